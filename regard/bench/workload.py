"""What one update of a model costs, from its configuration: parameters, products, and what waits for the backward pass.

Parameters are counted on the model itself, built without memory for its weights. Each matrix multiplies each token once,
tables of embeddings only where they are the output layer as well; with attention that gives, for GPT-2 and the Transformer,
the formulas of `published.py`. What a block keeps of a token, in bytes:

    float32   32 D + 4 F        bf16 (autocast)   22 D + 2 F        with ReLU, computed in place
            + 8 D, or 4 D where positions turn queries and keys;   + 8 D for the masks of dropout, always float32
            + 4 F, or 2 F for GELU;   + 12 F, or 6 F for SwiGLU
            + 24 D, or 17 D for attention to a memory, and 4 D for its dropout

with fused attention, which keeps no weights; `tests/test_plan.py` holds it against what torch saves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.bench.plan import Workload
from regard.bench.published import WORDS_OF_SENTENCE
from regard.config import Tables, from_assignments, merge
from regard.errors import UsageError
from regard.files import read_json
from regard.models.config import TransformerConfig
from regard.models.configs.language import BlocksConfig
from regard.models.kinds import KINDS_OF
from regard.models.presets import PRESETS
from regard.runs import CONFIG, bundle_folder, read_run
from regard.tasks.config import RunConfig
from regard.tasks.configure import check_run, run_config
from regard.tasks.settings import LABELS
from regard.tasks.table import TASKS, family_of
from regard.training.config import TrainConfig

ADAM, MOMENTUM, AVERAGE = 8, 4, 4  # bytes of the optimiser for each parameter, and of a moving average of the weights
OUTSIDE = 12  # bytes for each of the width that a token keeps outside the blocks: embeddings, the last norm


def configured(what: str, kind: str | None, over: Tables, assignments: list[str]) -> tuple[RunConfig, tuple[int, ...]]:
    """The configuration that a person means, and its vocabularies: a TOML file, a task, a preset, a run or a bundle."""
    if (Path(what) / CONFIG).exists():
        run = check_run(read_run(Path(what))["config"], what)
        return _again(run, over, assignments, what), _vocabulary(run, bundle_folder(what))
    if not what.endswith(".toml") and what not in TASKS and what not in PRESETS:
        folder = bundle_folder(what)
        values = read_json(folder / "config.json")
        found = _again(run_config(values["task"], {"model": values["model"]}), over, assignments, what)
        return found, tuple(values["vocabulary"])
    if what in PRESETS:
        task = "translate" if kind is None else next((task for task, kinds in KINDS_OF.items() if kind in kinds), None)
        if task is None:
            raise UsageError(f"no kind of model {kind}")
        over, what = {**over, "preset": what}, task
    if kind is not None:
        over = {**over, "model": {"kind": kind}}
    found = run_config(what, over, assignments)
    size = 0 if found.tokens is None else found.tokens.size
    return found, (size, size) if family_of(found.task) == "translate" else (size,)


def _again(found: RunConfig, over: Tables, assignments: list[str], what: str) -> RunConfig:
    """A configuration that is there, with what a person changes of it."""
    return check_run(merge(merge(found.dump(), over), from_assignments(assignments)), what)


def _vocabulary(run: RunConfig, bundle: Path) -> tuple[int, ...]:
    return tuple(read_json(bundle / "config.json")["vocabulary"])


def workload_of(name: str, config: RunConfig, vocabulary: tuple[int, ...], length: int | None = None) -> Workload:
    """One update of a Transformer, of tokens that attend to `length` others: a window of its data, or a sentence."""
    model, train = config.model, config.train
    experts: int = getattr(model, "experts", 0)
    if not isinstance(model, TransformerConfig | BlocksConfig) or not any(vocabulary) or experts:
        kind = f"{model.kind} with experts" if experts else model.kind
        raise UsageError(f"plan counts Transformers of tokens, not a {kind}; regard cost tells of any run what it cost")
    longest = WORDS_OF_SENTENCE if isinstance(model, TransformerConfig) else model.max_length
    length = length or getattr(config.data, "context", None) or longest
    built = _built(config, vocabulary)
    units = _units(built)
    return Workload(
        name,
        sum(units.values()),
        max(units.values()),
        len(units),
        _matrices(built),
        2 * length * model.width * _attentions(model),
        (kept(model, half=False), kept(model, half=True)),
        _state(built, train),
        train.batch_tokens * train.accumulate,
        train.accumulate,
        train.steps,
        vocabulary[-1],
    )


def _built(config: RunConfig, vocabulary: tuple[int, ...]) -> Any:
    """The model without memory for its weights."""
    import torch

    from regard.models.table import build

    with torch.device("meta"):
        return build(config.task, config.model, vocabulary, labels=LABELS)


def _units(model: Any) -> dict[str, int]:
    """The parameters of each block, and of what is in none."""
    from regard.models.operations import layer_of

    found: dict[str, int] = {}
    for name, weight in model.named_parameters():
        found[layer_of(name)] = found.get(layer_of(name), 0) + weight.numel()
    return found


def _matrices(model: Any) -> int:
    """The parameters that multiply each token: matrices, without tables that are only looked up."""
    from torch import nn

    output = getattr(getattr(model, "output", None), "weight", None)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)} - {id(output)}
    return sum(
        weight.numel()
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and id(weight) not in tables and "position" not in name
    )


def _attentions(model: TransformerConfig | BlocksConfig) -> int:
    """Attentions that a token passes (and one of the other side with it)."""
    return model.encoder_layers + 2 * model.decoder_layers if isinstance(model, TransformerConfig) else model.layers


def kept(model: TransformerConfig | BlocksConfig, half: bool) -> float:
    """Bytes that a token leaves for the backward pass; reversible blocks leave those of one."""
    outside = OUTSIDE * model.width
    if isinstance(model, TransformerConfig):
        inside, cross = kept_by_block(model, half), kept_by_memory(model, half)
        if getattr(model, "reversible", False):
            return 2 * inside + cross + outside
        return (model.encoder_layers + model.decoder_layers) * inside + model.decoder_layers * cross + outside
    return (1 if model.reversible else model.layers) * kept_by_block(model, half) + outside


def kept_by_block(model: TransformerConfig | BlocksConfig, half: bool) -> float:
    """Bytes of a token in a block of self-attention and feed-forward layer; see above."""
    number, rotary = (2 if half else 4), getattr(model, "positions", "") == "rotary"
    by_width = (22 if half else 32) + rotary * 2 * number + 8 * (model.dropout > 0)
    inner = {"relu": 1, "swiglu": 4}.get(getattr(model, "activation", "relu"), 2)
    return by_width * model.width + number * inner * model.feed_forward


def kept_by_memory(model: TransformerConfig, half: bool) -> float:
    """Bytes of a token in an attention to the memory, the keys and values of the memory included."""
    return ((17 if half else 24) + 4 * (model.dropout > 0)) * model.width


def _state(model: Any, train: TrainConfig) -> float:
    """Bytes for each parameter that the optimiser and a moving average hold, all in float32."""
    average = AVERAGE if train.ema else 0
    if train.optimiser == "sgd":
        return average
    if train.optimiser == "adam":
        return ADAM + average
    from regard.training.optimiser import hidden_matrices

    hidden = set(hidden_matrices(model))
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}
    muon = sum(count for name, count in sizes.items() if name in hidden) / sum(sizes.values())
    return ADAM - (ADAM - MOMENTUM) * muon + average
