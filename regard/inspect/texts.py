"""Texts in batches, and passes of a model over them: the loss of each text, and where each head looked in it.

    texts.losses()            the loss of each text, summed over what is predicted, and how many predictions that are
    texts.maps("cross")       where the heads looked, text by text

Whatever the task, a pass gives the loss of each prediction: a token of a translation or of a text, a hidden token, a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.attention import AttentionCall, Role, record
from regard.data.batch import text_batch
from regard.data.batches import TokenPairs, cut_by_budget, encode_labelled, with_trees
from regard.data.labelled import Labelled
from regard.data.masking import MaskedBatches
from regard.data.pairs import Pair
from regard.errors import UsageError
from regard.models.loss import CHUNK_ELEMENTS
from regard.tokens import PAD, TextTokenizer, as_arrays

ROLES: tuple[Role, ...] = ("self", "causal", "cross", "pool")  # of attention between tokens

Ids = dict[str, tuple[int, ...]]  # by axis, as in `reading.Reading`
Labels = dict[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Map:
    """Where the heads of one attention looked in one text."""

    text: int
    role: Role
    layer: int
    path: str
    weights: np.ndarray  # (H, T, S)
    allowed: np.ndarray  # (T, S)
    axes: tuple[str, str]


@dataclass(frozen=True, eq=False)
class Texts:
    """Some texts in batches of like length."""

    predictor: Any
    ids: list[Ids]
    batches: list[tuple[np.ndarray, Any]]  # the numbers of the texts, and the batch
    name: str = "the given texts"
    raw: Sequence[Any] = ()  # the texts as they came, where they came one by one

    def __len__(self) -> int:
        return len(self.ids)

    def labels(self) -> list[Labels]:
        """What a person reads for each id; of equal ids it is worked out once."""
        axes = list(self.ids[0])
        known = {}
        for axis in axes:
            tokenizer = tokenizer_of(self.predictor, axis)
            numbers = sorted({number for each in self.ids for number in each[axis]})
            known[axis] = dict(zip(numbers, tokenizer.labels(numbers), strict=True))
        return [{axis: tuple(known[axis][number] for number in each[axis]) for axis in axes} for each in self.ids]

    @torch.inference_mode()
    def losses(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each text: the loss summed over its predictions, in nats, and how many there are."""
        each = self.prediction_losses()
        return np.array([float(losses.sum()) for losses in each]), np.array([float(len(losses)) for losses in each])

    @torch.inference_mode()
    def prediction_losses(self) -> list[np.ndarray]:
        """Of each text the loss of each prediction, in their order."""
        found: list[np.ndarray] = [np.zeros(0)] * len(self)
        for numbers, batch in self.batches:
            losses, rows = predictions(self.predictor, batch.to(self.predictor.device))
            counts = torch.bincount(rows.cpu(), minlength=len(numbers)).tolist()
            for number, part in zip(numbers, losses.double().cpu().split(counts), strict=True):
                found[number] = part.numpy()
        return found

    @torch.inference_mode()
    def maps(self, *roles: Role) -> Iterator[Map]:
        """Every attention of every text, batch after batch, without padding."""
        for numbers, batch in self.batches:
            with record(self.predictor.model, only=roles or ROLES) as seen:
                predictions(self.predictor, batch.to(self.predictor.device))
            for call in (each for each in seen.calls if each.has_exact):  # others have no heads that look
                yield from self._cut(call, numbers, seen.axes(call))

    def _cut(self, call: AttentionCall, numbers: np.ndarray, axes: tuple[str, str]) -> Iterator[Map]:
        weights = normal(call.weights(), call.sums_to_one).double().cpu().numpy()  # (B, H, T, S)
        allowed = call.allowed().any(dim=1).cpu().numpy()  # (B, T, S)
        for row, number in enumerate(numbers):
            rows, columns = (len(self.ids[number].get(axis, (0,))) for axis in axes)  # a pool has one query
            cut = weights[row, :, :rows, :columns], allowed[row, :rows, :columns]
            yield Map(int(number), call.role, call.layer, call.path, *cut, axes)


def normal(weights: Tensor, sums_to_one: bool) -> Tensor:
    """Weights that may have any sum, and signs, by their size: rows sum to one."""
    if sums_to_one:
        return weights
    return weights.abs() / weights.abs().sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def predictions(predictor: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """One pass: the loss of each prediction (N,), in nats, and the row of the batch that it is of (N,), row by row."""
    model, task = predictor.model, predictor.config.task
    if task == "classify":
        logits = model.logits(batch)
        return cross_entropy(logits, batch.labels, reduction="none"), torch.arange(len(logits))
    if task == "fill":
        found = model.encoder(batch.ids, batch.lengths, batch.segments).vectors[batch.places]
        hidden, table = model.head.with_bias(model.head(found), model.table)
        return token_losses(hidden, table, batch.wanted), batch.places.nonzero()[:, 0]
    hidden = model.hidden(batch)  # (B, T, D)
    wanted, lengths = (batch.target, batch.target_lengths) if task == "translate" else (batch.ids, batch.lengths)
    real = torch.arange(hidden.size(1), device=hidden.device) < lengths[:, None]  # (B, T)
    return token_losses(hidden[real], model.output.weight, wanted[:, 1:][real]), real.nonzero()[:, 0]


def token_losses(hidden: Tensor, table: Tensor, wanted: Tensor) -> Tensor:
    """-log softmax(hidden tableᵀ) at the wanted tokens, part by part: (N, D), (V, D), (N,) -> (N,)."""
    rows = max(1, CHUNK_ELEMENTS // len(table))
    parts = [hidden.new_zeros(0)]
    for start in range(0, len(hidden), rows):
        logits = hidden[start : start + rows] @ table.T
        parts.append(logits.logsumexp(dim=-1) - logits.gather(1, wanted[start : start + rows, None]).squeeze(1))
    return torch.cat(parts)


def tokenizer_of(predictor: Any, axis: str) -> TextTokenizer:
    """What makes ids of an axis."""
    if predictor.config.task != "translate":
        return predictor.tokenizer
    return predictor.tokenizers.source if axis == "source" else predictor.tokenizers.target


TASKS = ("translate", "generate", "fill", "classify")


@dataclass(frozen=True, eq=False)
class Material:
    """Texts as people have them: pairs, labelled texts, or running texts (of a language model perhaps its ids at once)."""

    items: Sequence[Any] | np.ndarray
    name: str = "the given texts"  # for the person
    learned: Sequence[Pair] = ()  # pairs from which an aligner may learn besides
    context: int | None = None  # tokens of a window in training


def check_task(predictor: Any) -> None:
    if predictor.config.task not in TASKS:
        raise UsageError(f"this looks at models of text; the model is one to {predictor.config.task}")
    if predictor.config.task == "fill" and predictor.model.head is None:
        raise UsageError("this model gives vectors only, it has no head that fills gaps: there is no loss to compare")


TOGETHER = 4096  # tokens of a batch, or one text
LONGEST = 256  # tokens of a pair's longer side, or of a labelled text: what is longer does not fit
WINDOW = 128  # tokens of a window of running text, at most
PAIRED = {"translate": '[("ein Mann", "a man"), ...]', "classify": '[("a good film", "positive"), ...]'}


def prepare(predictor: Any, material: Material, count: int, longest: int = LONGEST) -> Texts:
    """The first `count` texts that fit, in batches; a pair or a labelled text fits with less than `longest` tokens."""
    check_task(predictor)
    if count < 1:
        raise UsageError(f"{count} texts are none; give 1 or more")
    if predictor.config.task in PAIRED and isinstance(next(iter(material.items), None), str):
        raise UsageError(
            f"a model to {predictor.config.task} takes each text with what belongs to it: {PAIRED[predictor.config.task]}"
        )
    ways: dict[str, Callable[[Any, Material, int, int], Texts]] = {
        "translate": _pairs, "generate": _windows, "fill": _gaps, "classify": _labelled,
    }  # fmt: skip
    return ways[predictor.config.task](predictor, material, count, longest)


def _pairs(predictor: Any, material: Material, count: int, longest: int) -> Texts:
    longest = min(longest, predictor.model.longest or longest)
    chosen: list[Pair] = []
    encoded: list[tuple[list[int], list[int]]] = []
    for pair in material.items:
        both = (predictor.tokenizers.source.encode(pair[0]), predictor.tokenizers.target.encode(pair[1]))
        if all(0 < len(ids) < longest for ids in both):
            chosen.append((pair[0], pair[1]))
            encoded.append(both)
        if len(chosen) == count:
            break
    return pair_texts(predictor, encoded, material.name, chosen)


def pair_texts(
    predictor: Any, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], name: str, raw: Sequence[Any]
) -> Texts:
    """Pairs of ids without begin and end, in batches."""
    if not pairs:
        raise UsageError(f"no pair of {name} fits: both sides must have a token, and not too many")
    sources = as_arrays([source for source, _ in pairs], begin=False)
    targets = as_arrays([target for _, target in pairs], begin=True)
    tokens = TokenPairs(sources, targets, PAD)
    read, predicted = tokens.lengths()
    order = np.lexsort([predicted, read])
    groups = cut_by_budget(order, np.maximum(read, predicted), max(TOGETHER, int(max(read.max(), predicted.max()))))
    ids: list[Ids] = [
        {"source": _tuple(source), "target": _tuple(target[1:]), "prefix": _tuple(target[:-1])}
        for source, target in zip(sources, targets, strict=True)
    ]
    return Texts(predictor, ids, [(rows, tokens.take(rows)) for rows in groups], name, raw)


def _windows(predictor: Any, material: Material, count: int, _: int) -> Texts:
    stream = material.items if isinstance(material.items, np.ndarray) else _stream(predictor, material.items, count)
    size = min(WINDOW, predictor.context, material.context or WINDOW)
    starts = [start for start in range(0, len(stream) - 1, size) if start + size < len(stream)][:count] or [0]
    windows = [np.asarray(stream[start : start + size + 1], dtype=np.int64) for start in starts]
    if len(windows[0]) < 3:
        raise UsageError(f"{material.name} has {len(windows[0])} tokens, too few to see anything; give more text")
    return stretches(predictor, windows, material.name)


def stretches(predictor: Any, rows: Sequence[np.ndarray], name: str) -> Texts:
    """Stretches of ids of one length, each predicting all its tokens but the first."""
    together = max(1, TOGETHER // len(rows[0]))
    groups = np.split(np.arange(len(rows)), range(together, len(rows), together))
    batches = [(group, text_batch([rows[row] for row in group])) for group in groups]
    return Texts(predictor, [{"text": _tuple(row[:-1])} for row in rows], batches, name)


def _stream(predictor: Any, texts: Sequence[str], count: int) -> np.ndarray:
    """Documents one after the other as in training, as many as are needed."""
    special, ids = predictor.tokenizer.specials, list[int]()
    for text in texts:
        ids += [special.begin, *predictor.tokenizer.encode(text), special.end]
        if len(ids) > (count + 1) * WINDOW:
            break
    return np.array(ids)


def _gaps(predictor: Any, material: Material, count: int, _: int) -> Texts:
    """Chunks of texts with gaps, which are drawn with a fixed seed."""
    room = min(WINDOW, predictor.longest, material.context or WINDOW) - 2
    chunks: list[list[int]] = []
    for text in material.items:
        ids = predictor.tokenizer.encode(text)
        chunks += [ids[start : start + room] for start in range(0, len(ids), room)]
        if len(chunks) >= count:
            break
    special = predictor.tokenizer.specials
    masked = MaskedBatches(
        [np.array(ids, dtype=np.int32) for ids in chunks[:count] if ids],
        begin=special.begin, end=special.end, mask=special.mask, pad=special.pad, vocabulary=predictor.tokenizer.size,
        special=special.all, length=room + 2, batch_tokens=TOGETHER, seed=0,
    )  # fmt: skip
    batches = [(rows, masked.get(0, index)) for index, rows in enumerate(masked.plan(0))]
    shown = {
        int(row): _tuple(batch.ids[n, : batch.lengths[n]]) for rows, batch in batches for n, row in enumerate(rows)
    }
    return Texts(predictor, [{"text": shown[row]} for row in range(len(shown))], batches, material.name)


def _labelled(predictor: Any, material: Material, count: int, longest: int) -> Texts:
    items = [each if isinstance(each, Labelled) else Labelled(*each) for each in material.items]
    unknown = sorted({each.label for each in items} - set(predictor.labels))
    if unknown:
        raise UsageError(
            f"the texts have a label that the model never learned: {unknown[0]}; it knows {', '.join(predictor.labels[:8])}"
        )
    room = min(predictor.longest, longest)
    fitting = list(islice((each for each in items if _tokens(predictor, each) <= room), count))
    if not fitting:
        raise UsageError(f"no text of {material.name} fits: it must have at most {room} tokens")
    batches = encode_labelled(fitting, predictor.labels, predictor.tokenizer, predictor.longest, TOGETHER, seed=0)
    batches = with_trees(
        batches, [each.text for each in fitting], [each.heads for each in fitting], predictor.tokenizer
    )
    plan = [(rows, batches.take(rows)) for rows in batches.plan(0)]
    return Texts(predictor, [{"text": _tuple(ids)} for ids in batches.texts], plan, material.name, fitting)


def _tokens(predictor: Any, labelled: Labelled) -> int:
    texts = [labelled.text, *([] if labelled.second is None else [labelled.second])]
    return sum(len(predictor.tokenizer.encode(text)) + 1 for text in texts) + 1  # each has an end, the first a begin


def _tuple(ids: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in ids)
