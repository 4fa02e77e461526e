"""Texts in batches, and passes of a model over them: the loss of each text, and where each head looked in it.

    texts.losses()            the loss of each text, summed over what is predicted, and how many predictions that are
    texts.maps("cross")       where the heads looked, text by text

Whatever the task, a pass gives the loss of each prediction: a token of a translation or of a text, a hidden token, a label.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from regard.attention import AttentionCall, Role, record
from regard.data.batch import text_batch
from regard.data.batches import TokenPairs, cut_by_budget
from regard.data.pairs import Pair
from regard.errors import UsageError
from regard.models.loss import CHUNK_ELEMENTS
from regard.predictor import Predictor
from regard.tokens import PAD, TextTokenizer, TokenizerPair, as_arrays

if TYPE_CHECKING:
    from regard.look.words import WeighedText
    from regard.models.classifier import Classifier

ROLES: tuple[Role, ...] = ("self", "causal", "cross", "pool")  # of attention between tokens

TOGETHER = 4096  # tokens of a batch, or one text
LONGEST = 256  # tokens of a pair's longer side, or of a labelled text: what is longer does not fit
WINDOW = 128  # tokens of a window of running text, at most

Ids = dict[str, tuple[int, ...]]  # by axis, as in `predictor.Reading`
Labels = dict[str, tuple[str, ...]]


class TextsBatch(Protocol):
    """A batch of any task."""

    def to(self, device: torch.device, /) -> Self: ...


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

    predictor: TextPredictor
    ids: list[Ids]
    batches: Sequence[tuple[np.ndarray, TextsBatch]]  # the numbers of the texts, and the batch
    name: str = "the given texts"
    raw: Sequence[object] = ()  # the texts as they came, where they came one by one

    def __len__(self) -> int:
        return len(self.ids)

    def labels(self) -> list[Labels]:
        """Labels of each text's ids, as a person reads them; of equal ids they are worked out once."""
        joined = "source" in self.ids[0] and "text" in self.ids[0]  # source and target are one text
        axes = [axis for axis in self.ids[0] if not (joined and axis == "text")]
        known = {}
        for axis in axes:
            tokenizer = self.predictor.tokenizer_of(axis)
            numbers = sorted({number for each in self.ids for number in each[axis]})
            known[axis] = dict(zip(numbers, tokenizer.labels(numbers), strict=True))
        found = [{axis: tuple(known[axis][number] for number in each[axis]) for axis in axes} for each in self.ids]
        return [{**each, "text": each["source"] + each["prefix"]} for each in found] if joined else found

    @torch.inference_mode()
    def losses(self) -> tuple[np.ndarray, np.ndarray]:
        """The loss of each text, summed over its predictions, in nats, and how many there are."""
        each = self.prediction_losses()
        return np.array([float(losses.sum()) for losses in each]), np.array([float(len(losses)) for losses in each])

    @torch.inference_mode()
    def prediction_losses(self) -> list[np.ndarray]:
        """The losses of each text, prediction by prediction, in their order."""
        found: list[np.ndarray] = [np.zeros(0)] * len(self)
        for numbers, batch in self.batches:
            losses, rows = self.predictor.predictions(batch.to(self.predictor.device))
            counts = torch.bincount(rows.cpu(), minlength=len(numbers)).tolist()
            for number, part in zip(numbers, losses.double().cpu().split_with_sizes(counts), strict=True):
                found[number] = part.numpy()
        return found

    @torch.inference_mode()
    def maps(self, *roles: Role) -> Iterator[Map]:
        """Every attention of every text, batch after batch, without padding."""
        for numbers, batch in self.batches:
            with record(self.predictor.model, only=roles or ROLES) as seen:
                self.predictor.predictions(batch.to(self.predictor.device))
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


@dataclass(frozen=True, eq=False)
class Material:
    """Texts as people have them: pairs, labelled texts, or running texts (of a language model perhaps its ids at once)."""

    items: Sequence[object] | np.ndarray
    name: str = "the given texts"  # for the person
    learned: Sequence[Pair] = ()  # pairs from which an aligner may learn besides
    context: int | None = None  # tokens of a window in training


class TextPredictor(Predictor):
    """A predictor whose loss on texts can be measured, prediction by prediction."""

    paired: ClassVar[str] = ""  # how texts are given that come with what belongs to them; empty: they come alone
    joins = False  # whether the model reads a source and its translation as one text

    @abstractmethod
    def texts(self, material: Material, count: int, longest: int = LONGEST) -> Texts:
        """The first `count` texts that fit, in batches; a pair or a labelled text fits within `longest` tokens."""

    @abstractmethod
    def predictions(self, batch: TextsBatch) -> tuple[Tensor, Tensor]:
        """One pass: the loss of each prediction (N,), in nats, and the row of the batch that it is of (N,), row by row."""

    @abstractmethod
    def tokenizer_of(self, axis: str) -> TextTokenizer:
        """The tokenizer that makes ids of an axis."""

    def check_loss(self) -> None:
        """Refuse where the model has no loss on texts."""


class PairPredictor(TextPredictor):
    """A predictor that reads a source and writes its translation."""

    tokenizers: TokenizerPair

    @abstractmethod
    def greedy_pairs(self, texts: Sequence[str]) -> list[tuple[list[int], tuple[int, ...]]]:
        """The ids of each text and of the model's own greedy translation, those that are empty left out."""


class LabelPredictor(TextPredictor):
    """A predictor that gives a text, or a pair, one of its labels."""

    model: Classifier
    tokenizer: TextTokenizer
    labels: tuple[str, ...]
    longest: int  # tokens of a text that are read

    @abstractmethod
    def probabilities(self, texts: Sequence[str], others: Sequence[str | None] | None = None) -> np.ndarray:
        """The probability of every label for each text, or for each pair with `others`: (texts, labels)."""

    @abstractmethod
    def look(self, text: str, second: str | None = None) -> WeighedText:
        """How much each piece of a text counted for its label."""


class LanguagePredictor(TextPredictor):
    """A predictor that goes on with a text, token by token."""

    tokenizer: TextTokenizer

    @property
    @abstractmethod
    def context(self) -> int:
        """How many tokens the model reads at once."""


def text_predictor(predictor: Predictor) -> TextPredictor:
    """The predictor, if it is one whose loss on texts can be measured; refuse any other."""
    if not isinstance(predictor, TextPredictor):
        raise UsageError(f"this looks at models of text; the model is one to {predictor.config.task}")
    predictor.check_loss()
    return predictor


def prepare(predictor: Predictor, material: Material, count: int, longest: int = LONGEST) -> Texts:
    """The first `count` texts that fit, in batches; a pair or a labelled text fits with less than `longest` tokens."""
    found = text_predictor(predictor)
    if count < 1:
        raise UsageError(f"{count} texts are none; give 1 or more")
    if found.paired and isinstance(next(iter(material.items), None), str):
        raise UsageError(f"a model to {found.config.task} takes each text with what belongs to it: {found.paired}")
    return found.texts(material, count, longest)


# --- What tasks share


def next_token_losses(hidden: Tensor, table: Tensor, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (N,) and rows (N,) of vectors (B, T, D) that predict ids (B, 1 + T) from the second on, padding left out."""
    real = torch.arange(hidden.size(1), device=hidden.device) < lengths[:, None]  # (B, T)
    return token_losses(hidden[real], table, ids[:, 1:][real]), real.nonzero()[:, 0]


def token_losses(hidden: Tensor, table: Tensor, wanted: Tensor) -> Tensor:
    """-log softmax(hidden tableᵀ) at the wanted tokens, part by part: (N, D), (V, D), (N,) -> (N,)."""
    rows = max(1, CHUNK_ELEMENTS // len(table))
    parts = [hidden.new_zeros(0)]
    for start in range(0, len(hidden), rows):
        logits = hidden[start : start + rows] @ table.T
        parts.append(logits.logsumexp(dim=-1) - logits.gather(1, wanted[start : start + rows, None]).squeeze(1))
    return torch.cat(parts)


def pair_texts(
    predictor: TextPredictor,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    name: str,
    raw: Sequence[object] = (),
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
        {"source": as_tuple(source), "target": as_tuple(target[1:]), "prefix": as_tuple(target[:-1])}
        for source, target in zip(sources, targets, strict=True)
    ]
    if predictor.joins:
        ids = [{**each, "text": each["source"] + each["prefix"]} for each in ids]
    return Texts(predictor, ids, [(rows, tokens.take(rows)) for rows in groups], name, raw)


def stretches(predictor: TextPredictor, rows: Sequence[np.ndarray], name: str) -> Texts:
    """Stretches of ids of one length, each predicting all its tokens but the first."""
    together = max(1, TOGETHER // len(rows[0]))
    groups = np.split(np.arange(len(rows)), range(together, len(rows), together))
    batches = [(group, text_batch([rows[row] for row in group])) for group in groups]
    return Texts(predictor, [{"text": as_tuple(row[:-1])} for row in rows], batches, name)


def as_tuple(ids: Iterable[int]) -> tuple[int, ...]:
    """Ids as plain numbers."""
    return tuple(int(number) for number in ids)
