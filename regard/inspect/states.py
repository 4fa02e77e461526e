"""States of a model over a text: gates and states of recurrent layers, gradients by distance, and what a state still knows.

    states_of(model, "a man rides a bike")                 states and gates, and gradients of this text
    states_of(model, text, material=material)              gradients over many texts, and the probe

Gradients are those of a trained model: ‖∂ h_T / ∂ x_t‖ (the Jacobian's Frobenius norm) by the distance T - t, as Pascanu
et al. 2013 follow it back through a recurrent net, and of language models the norm of the loss's gradient, too. The probe
is a linear classifier on frozen states (Alain & Bengio 2016), fitted on some texts and counted on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, one_hot

from regard.attention.call import names_of
from regard.blocks.block import Block
from regard.blocks.recurrent import LayerRun, RecurrentLayer, joined_runs, layer_runs
from regard.embed import TokenEmbedding
from regard.errors import UsageError
from regard.inspect.texts import LanguagePredictor, Material, TextPredictor
from regard.look.states import BlockTrace, Gradients, Knowledge, LayerTrace, States
from regard.models.protocols import KeepsState
from regard.models.table import build
from regard.predictor import Predictor, Reading

LENGTHS = (1, 2, 4, 8, 16, 32, 64)  # tokens that are read before the first of them is asked for
MOST_SAMPLES, LEAST_SAMPLES = 1200, 50  # of each length
HELD_OUT = 0.25  # of all samples: those on which the probe is counted
CLASSES = 50  # tokens that the probe tells apart: the most frequent
PENALTY = 1e-3  # of the squares of the probe's weights
ROUNDS, FLAT = 120, 1e-5  # steps of its fit, at most, and the slope at which it ends
FARTHEST = 64  # tokens of a text whose gradients are measured
TEXTS = 12  # texts over which gradients are averaged
UNITS = 128  # of a state, differentiated at once
SEED = 0  # of fresh weights


def states_of(
    predictor: Predictor,
    text: str,
    second: str | None = None,
    *,
    material: Material | None = None,
    layer: int | None = None,
) -> States:
    """States over one text; with `material`, gradients are of its texts, and a probe is fitted on their states.

    `layer` is the recurrent layer that is shown, counted from 0; by default the last. The data have all.
    """
    reading = predictor.read(text, second)
    traces, blocks = _traces(reading)
    if not traces and not blocks:
        raise UsageError(
            f"a {predictor.config.model.kind} has neither recurrent layers nor blocks whose states could be seen"
        )
    _check_layer(traces, layer)
    fresh = fresh_of(predictor)
    ids = _ids(predictor, reading, material)
    gradients = tuple(
        found for measure in (_state_gradients, _loss_gradients) if (found := measure(predictor, fresh, ids))
    )
    knowledge = None
    if material is not None and isinstance(predictor.model, KeepsState) and isinstance(fresh.model, KeepsState):
        knowledge = knowledge_of(predictor.model, fresh.model, _ordinary(predictor, ids), predictor.device)
    notes = reading.notes
    if traces and material is None:
        notes = (
            *notes,
            "no texts to probe on: name some to see what a state still knows, and gradients over many texts",
        )
    if traces:
        notes = (*notes, f"units that change most, of {traces[-1].parts['state'].shape[1]}")
    return States(f"states: {text}", notes, traces, blocks, gradients, knowledge, layer)


def has_states(predictor: Predictor) -> bool:
    """Whether a model of text has recurrent layers, or Transformer blocks."""
    parts = (RecurrentLayer, Block)
    return isinstance(predictor, TextPredictor) and any(isinstance(each, parts) for each in predictor.model.modules())


def _check_layer(traces: Sequence[LayerTrace], layer: int | None) -> None:
    if layer is None:
        return
    if not traces:
        raise UsageError(f"layer {layer} of what? this model has no recurrent layers; all its blocks are shown")
    count = 1 + max(each.layer for each in traces)
    if not 0 <= layer < count:
        raise UsageError(f"no layer {layer}; there {'is one, number 0' if count == 1 else f'are {count}, from 0 on'}")


def fresh_of(predictor: Predictor) -> Predictor:
    """The same predictor before its model learned anything, with seeded weights."""
    config = predictor.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = build(config.task, config.model, config.vocabulary, labels=len(config.labels), pictures=config.pictures)
    return type(predictor)(replace(predictor.bundle, model=model.to(predictor.device).eval()))


# --- States and gates


def _traces(reading: Reading) -> tuple[tuple[LayerTrace, ...], tuple[BlockTrace, ...]]:
    """One pass: all recurrent layers, and all stacks of blocks."""
    model = reading.predictor.model
    with torch.inference_mode(), layer_runs() as runs, _block_vectors(model) as vectors:
        reading.run()
        names = names_of(model)
        traces = tuple(_layer_trace(run, names[id(run.layer)], reading) for run in joined_runs(runs))
    return traces, tuple(_block_traces(vectors, names, reading))


def _layer_trace(run: LayerRun, path: str, reading: Reading) -> LayerTrace:
    """The run of a layer in the order of the text, whichever end it reads first."""
    words = path.split(".")
    labels = _labels(words, reading)
    read_last_first = words[-1] == "back"
    model = reading.predictor.model
    if "decoder" not in words and isinstance(model, KeepsState):
        order = model.in_order(torch.arange(len(labels), device=reading.predictor.device)[None])[0]
        read_last_first ^= bool(len(order) > 1 and order[0] > order[-1])
    parts = {name: values[:, 0].double().cpu().numpy() for name, values in run.parts().items()}  # each (T, units)
    assert all(len(values) == len(labels) for values in parts.values()), f"{path}: steps and tokens differ"
    parts = {name: values[::-1].copy() if read_last_first else values for name, values in parts.items()}
    number = next(int(word) for word in words if word.isdecimal())
    side = next((f"{word}, " for word in words if word in ("encoder", "decoder")), "")
    direction = {"forth": ", forwards", "back": ", backwards"}.get(words[-1], "") if _both(model, path) else ""
    return LayerTrace(f"{side}layer {number}{direction}", number, labels, parts, read_last_first)


def _both(model: nn.Module, path: str) -> bool:
    """Whether a layer is one of two directions."""
    before, _, last = path.rpartition(".")
    return last in ("forth", "back") and hasattr(model.get_submodule(before), "back")


def _labels(words: Sequence[str], reading: Reading) -> tuple[str, ...]:
    """The tokens that the part of a model with this path reads."""
    if "text" in reading.labels:
        return reading.labels["text"]
    return reading.labels["prefix" if "decoder" in words else "source"]


@contextmanager
def _block_vectors(model: nn.Module) -> Iterator[dict[Block, tuple[Tensor, Tensor]]]:
    """Inside this block what goes into each Transformer block, and what comes out: (B, T, D) each."""
    found: dict[Block, tuple[Tensor, Tensor]] = {}

    def keep(block: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        assert isinstance(block, Block)
        found[block] = (inputs[0], out)

    hooks = [each.register_forward_hook(keep) for each in model.modules() if isinstance(each, Block)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _block_traces(
    vectors: dict[Block, tuple[Tensor, Tensor]], names: dict[int, str], reading: Reading
) -> Iterator[BlockTrace]:
    """Blocks of one stack belong together: their paths differ in the last number."""
    stacks: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for block, both in vectors.items():
        stacks.setdefault(names[id(block)].rpartition(".")[0], []).append(both)
    for path, blocks in stacks.items():
        words = path.split(".")
        depths = torch.stack([blocks[0][0], *(out for _, out in blocks)])[:, 0]  # (blocks + 1, T, D)
        labels, side = _labels(words, reading), next((word for word in words if word in ("encoder", "decoder")), "")
        if depths.size(1) == len(labels):
            yield BlockTrace(side, labels, depths.double().cpu().numpy())


# --- Gradients by distance


def _ids(predictor: Predictor, reading: Reading, material: Material | None) -> list[tuple[int, ...]]:
    """The ids of texts (or of sources): those of the material, or of the one text."""
    axis = "text" if "text" in reading.ids else "source"
    if material is None:
        return [reading.ids[axis]]
    if not isinstance(predictor, TextPredictor):
        raise UsageError(f"a model to {predictor.config.task} has no texts to look at")
    return [each[axis] for each in predictor.texts(material, MOST_SAMPLES).ids]


def _ordinary(predictor: Predictor, ids: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Texts without begin and end, of which all have the same."""
    assert isinstance(predictor, TextPredictor)
    special = predictor.tokenizer_of("source").specials.all
    return [tuple(token for token in each if token not in special) for each in ids]


def _state_gradients(predictor: Predictor, fresh: Predictor, ids: Sequence[tuple[int, ...]]) -> Gradients | None:
    if not isinstance(predictor.model, KeepsState) or not isinstance(fresh.model, KeepsState):
        return None
    some = [predictor.as_row(each[:FARTHEST]) for each in ids[:TEXTS] if len(each) > 1]
    both = [_mean_by_distance([jacobian_norms(model, row) for row in some]) for model in (predictor.model, fresh.model)]
    return Gradients("last state", both[0], both[1], len(some)) if some else None


def jacobian_norms(model: KeepsState, ids: Tensor) -> np.ndarray:
    """‖∂ h_T / ∂ x_t‖ of the last state with regard to the vector of each token of ids (1, T), by T - t: (T,).

    Each unit of the state is differentiated in a row of its own, so that one pass back gives many rows of the Jacobian.
    """
    with torch.no_grad():
        x = model.embedded(model.in_order(ids))  # (1, T, I)
        hidden = model.last_state(x).size(-1)
    squares = torch.zeros(ids.size(1), dtype=torch.float64)
    for units in torch.split(torch.arange(hidden, device=ids.device), UNITS):
        copies = x.repeat(len(units), 1, 1).requires_grad_()  # (units, T, I)
        state = model.last_state(copies).gather(1, units[:, None])  # (units, 1)
        (gradient,) = torch.autograd.grad(state.sum(), copies)
        squares += gradient.double().square().sum(dim=(0, 2)).cpu()
    return squares.sqrt().flip(0).numpy()


def _loss_gradients(predictor: Predictor, fresh: Predictor, ids: Sequence[tuple[int, ...]]) -> Gradients | None:
    """Gradients of the loss by distance, for models that predict the next token of one text; None for others."""
    if not isinstance(predictor, LanguagePredictor):
        return None
    begin = predictor.tokenizer.specials.begin
    texts = [each[1:] if each[0] == begin else each for each in ids[:TEXTS]]  # it is read before each anyway
    some = [each[:FARTHEST] for each in texts if len(each) > 1]
    if not some:
        return None
    both = [_mean_by_distance([loss_gradient_norms(each, row) for row in some]) for each in (predictor, fresh)]
    return Gradients("loss of the last token", both[0], both[1], len(some))


def loss_gradient_norms(predictor: Predictor, ids: Sequence[int]) -> np.ndarray:
    """‖∂ loss / ∂ x_t‖ of the last token's loss with regard to the vector of each token before it, by distance: (T,)."""
    reading = predictor.read_ids(ids)
    embedding = next(each for each in predictor.model.modules() if isinstance(each, TokenEmbedding))
    seen: list[Tensor] = []

    def cut(module: nn.Module, inputs: object, out: Tensor) -> Tensor:
        seen.append(out.detach().requires_grad_())
        return seen[-1]

    hook = embedding.register_forward_hook(cut)
    try:
        last = len(reading.predicted) - 1
        logits = reading.run()[0, last] @ predictor.output_table().T
        (gradient,) = torch.autograd.grad(-log_softmax(logits, dim=-1)[reading.predicted[last]], seen[0])  # (1, T, D)
    finally:
        hook.remove()
    norms: np.ndarray = gradient[0, : last + 1].double().norm(dim=-1).flip(0).cpu().numpy()
    return norms


def _mean_by_distance(found: Sequence[np.ndarray]) -> np.ndarray:
    """The mean at each distance over the texts that are so long."""
    longest = max(map(len, found))
    padded = np.full((len(found), longest), np.nan)
    for row, values in zip(padded, found, strict=True):
        row[: len(values)] = values
    mean: np.ndarray = np.nanmean(padded, axis=0)
    return mean


# --- What a state still knows


class Samples(NamedTuple):
    """Texts of one length, of which the first so many are to learn from."""

    ids: Tensor  # (N, T), in the order in which they are read
    wanted: np.ndarray  # (N,) the class of the token that is read first
    learned: int


def knowledge_of(
    model: KeepsState, fresh: KeepsState, texts: Sequence[tuple[int, ...]], device: torch.device
) -> Knowledge | None:
    """How well the first token can be read from the last state, by length; None where there are too few texts."""
    found: list[tuple[int, float, float, float, int]] = []
    classes = 0
    for length in LENGTHS:
        samples = _samples(model, texts, length, device)
        if samples is None:
            break
        classes = max(classes, int(samples.wanted.max()) + 1)
        learned, held_out = samples.wanted[: samples.learned], samples.wanted[samples.learned :]
        majority = float((held_out == np.bincount(learned).argmax()).mean())
        right = [_probed(each, samples) for each in (model, fresh)]
        found.append((length, right[0], right[1], majority, len(held_out)))
    if not found:
        return None
    lengths, trained, untrained, majority_all, held = zip(*found, strict=True)
    return Knowledge(lengths, trained, untrained, majority_all, held, classes)


def _samples(model: KeepsState, texts: Sequence[tuple[int, ...]], length: int, device: torch.device) -> Samples | None:
    """Stretches of that length that do not overlap, one after another; later texts are held out."""
    cuts = [each[start : start + length] for each in texts for start in range(0, len(each) - length + 1, length)]
    if len(cuts) < LEAST_SAMPLES:
        return None
    rows = np.linspace(0, len(cuts) - 1, min(len(cuts), MOST_SAMPLES)).astype(int)  # from all texts alike, in order
    ids = model.in_order(torch.tensor([cuts[row] for row in rows], device=device))
    first = ids[:, 0].cpu().numpy()
    learned = int(len(ids) * (1 - HELD_OUT))
    tokens, counts = np.unique(first[:learned], return_counts=True)
    known = tokens[np.argsort(-counts, kind="stable")[:CLASSES]]
    place = {int(token): number for number, token in enumerate(known)}
    kept = np.array([int(token) in place for token in first])
    if kept[:learned].sum() < LEAST_SAMPLES // 2 or not kept[learned:].any():
        return None
    wanted = np.array([place[int(token)] for token in first[kept]])
    return Samples(ids[torch.from_numpy(kept).to(device)], wanted, int(kept[:learned].sum()))


@torch.no_grad()
def _probed(model: KeepsState, samples: Samples) -> float:
    """The share of held-out texts whose first token a probe of the last state reads right."""
    states = (
        torch.cat([model.last_state(model.embedded(part)) for part in torch.split(samples.ids, 256)]).double().cpu()
    )
    learned, wanted = states[: samples.learned], torch.from_numpy(samples.wanted)
    middle, spread = learned.mean(dim=0), learned.std(dim=0).clamp(min=1e-6)
    scaled = (states - middle) / spread
    weight, bias = fit_probe(scaled[: samples.learned], wanted[: samples.learned], int(wanted.max()) + 1)
    said = (scaled[samples.learned :] @ weight.T + bias).argmax(dim=-1)
    return float((said == wanted[samples.learned :]).double().mean())


def fit_probe(x: Tensor, wanted: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression: weight (classes, D) and bias (classes,) of the least loss,

        mean of -log softmax(W x + b)[wanted]  +  λ / 2 · ‖W‖²        λ = PENALTY.

    It has one minimum only. No curvature is greater than ½ XᵀX / N + λ (Böhning 1992), so that steps with the inverse of
    that bound always lead down; what they gain is carried on (Nesterov 1983) until they would lead up again.
    """
    ones = torch.cat([x, x.new_ones(len(x), 1)], dim=1)  # (N, D + 1), the bias's input last
    penalty = torch.cat([x.new_full((x.size(1),), PENALTY), x.new_full((1,), 1e-9)])  # (D + 1,)
    bound = torch.linalg.inv(ones.T @ ones / (2 * len(x)) + penalty.diag())  # (D + 1, D + 1)
    target = one_hot(wanted, classes).to(x.dtype)
    found = ahead = x.new_zeros(x.size(1) + 1, classes)
    pace = 1.0
    for _ in range(ROUNDS):
        slope = (
            ones.T @ ((ones @ ahead).softmax(dim=-1) - target) / len(x) + penalty[:, None] * ahead
        )  # (D + 1, classes)
        if slope.abs().max() < FLAT:
            break
        after = ahead - bound @ slope
        pace = 1.0 if bool((slope * (after - found)).sum() > 0) else pace
        faster = (1 + (1 + 4 * pace * pace) ** 0.5) / 2
        ahead, found, pace = after + (pace - 1) / faster * (after - found), after, faster
    return found[:-1].T, found[-1]
