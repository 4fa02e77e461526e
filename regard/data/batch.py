"""Batches: frozen, with the shape of each field, and the counts known before the forward pass.

A batch that several processes share is cut between its rows (`part`). A part is padded as the whole is, so that everything in
it stands where it stood; it counts its own items, and its noise is that of its rows in the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from regard.noise import Picked, Place, RowsOf


class ByRows:
    """A batch whose tensors begin with its rows, and that can be cut between them."""

    @property
    def examples(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def part(self, first: int, end: int) -> Self:
        """Rows `first` to `end`, at least one."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        cut: dict[str, Any] = {name: v[first:end] for name, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **cut | self.of_part(first, end))  # type: ignore[type-var]

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        """Fields of the part that are no rows: its counts, and what all rows share."""
        return {}

    def place(self, first: int, end: int) -> Place:
        """Where the noise of these rows is in that of the whole batch."""
        return RowsOf(first, end - first, self.examples)

    def to(self, device: torch.device | str) -> Self:
        """The batch with its tensors on a device; the counts stay plain numbers."""
        return moved(self, device)


@dataclass(frozen=True)
class PairBatch(ByRows):
    """Pairs of token sequences. A source ends with the end token; a target also starts with the begin token."""

    source: Tensor  # (B, S)
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T + 1): begin, tokens, end
    target_lengths: Tensor  # (B,): T of each row, the number of tokens to predict (end included)
    target_tokens: int

    @property
    def source_parts(self) -> tuple[Tensor, ...]:
        """The tensors that `encode` takes."""
        return self.source, self.source_lengths

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        return {"loss": self.target_tokens, "nll": self.target_tokens}

    @property
    def padded_tokens(self) -> int:
        return self.source.numel() + self.target.numel() - len(self.target)

    @property
    def real_tokens(self) -> int:
        return int(self.source_lengths.sum()) + self.target_tokens

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        return {"target_tokens": int(self.target_lengths[first:end].sum())}


@dataclass(frozen=True)
class TextBatch(ByRows):
    """Stretches of text, each token but the first to be predicted from those before it."""

    ids: Tensor  # (B, T + 1)
    lengths: Tensor  # (B,): T of each row, the number of tokens to predict
    tokens: int  # predictions that count
    skip: int = 0  # the first predictions of each row are context only: they do not count
    learned: Tensor | None = None  # (B, T), bool: of chats, the predictions that count: those of answers

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        return {"loss": self.tokens, "nll": self.tokens}

    @property
    def padded_tokens(self) -> int:
        return self.ids.numel() - len(self.ids)

    @property
    def real_tokens(self) -> int:
        return int(self.lengths.sum())

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        if self.learned is not None:
            return {"tokens": int(self.learned[first:end].sum())}
        return {"tokens": int((self.lengths[first:end] - self.skip).clamp(min=0).sum())}


@dataclass(frozen=True)
class PreferenceBatch(ByRows):
    """Two answers to each of B prompts: the first B rows are the chosen ones, the last B the rejected ones."""

    ids: Tensor  # (2B, T + 1): begin, prompt, answer, end
    lengths: Tensor  # (2B,): T of each row
    learned: Tensor  # (2B, T), bool: the predictions of answers
    reference: Tensor | None = None  # (2B,): log-probability of each answer by the model that is gone on from

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        return dict.fromkeys(("loss", "nll", "correct", "margin"), len(self.ids) // 2)

    @property
    def padded_tokens(self) -> int:
        return self.ids.numel() - len(self.ids)

    @property
    def real_tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def examples(self) -> int:
        return len(self.ids) // 2

    def rows_of(self, first: int, end: int) -> Tensor:
        """The rows of prompts `first` to `end`: (2B',)."""
        chosen = torch.arange(first, end)
        return torch.cat([chosen, self.examples + chosen])

    def part(self, first: int, end: int) -> PreferenceBatch:
        """Prompts `first` to `end`, each with both answers."""
        rows = self.rows_of(first, end)
        reference = None if self.reference is None else self.reference[rows]
        return PreferenceBatch(self.ids[rows], self.lengths[rows], self.learned[rows], reference)

    def place(self, first: int, end: int) -> Place:
        return Picked(self.rows_of(first, end), len(self.ids))


@dataclass(frozen=True)
class RolloutBatch:
    """Answers that a policy wrote itself, and how they were judged: what PPO learns from."""

    ids: Tensor  # (B, T + 1): begin, prompt, answer, end
    lengths: Tensor  # (B,): T of each row
    learned: Tensor  # (B, T), bool: the predictions of answers
    tokens: int  # of all answers
    log_probs: Tensor  # (B, T): of each token, by the policy that wrote it
    values: Tensor  # (B, T): of each place, by the critic of that time
    advantages: Tensor  # (B, T), whitened
    returns: Tensor  # (B, T): what the critic should have said
    rewards: Tensor  # (B,): of the reward model, without the penalty
    penalties: Tensor  # (B,): log π / π_ref of each answer
    kept: TextBatch | None = None  # answers of people, which the policy goes on learning beside its own

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        each = dict.fromkeys(("loss", "value", "clipped", "moved"), self.tokens)
        kept = {} if self.kept is None else {"kept": self.kept.tokens}
        return each | dict.fromkeys(("reward", "penalty"), len(self.ids)) | kept

    def to(self, device: torch.device | str) -> RolloutBatch:
        return replace(moved(self, device), kept=None if self.kept is None else self.kept.to(device))


@dataclass(frozen=True)
class MaskedBatch(ByRows):
    """Texts of which some tokens are hidden and must be guessed from all the others."""

    ids: Tensor  # (B, S), as the model sees them
    lengths: Tensor  # (B,)
    places: Tensor  # (B, S), bool: what must be guessed
    wanted: Tensor  # (N,): the true ids at these places, row by row
    segments: Tensor | None = None  # (B, S): 0 in the first text of a pair, 1 in the second
    follows: Tensor | None = None  # (B,): 1 if the second text really follows the first, else 0

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        counts = {"loss": len(self.wanted), "nll": len(self.wanted)}
        return counts if self.follows is None else counts | {"next": len(self.follows)}

    @property
    def padded_tokens(self) -> int:
        return self.ids.numel()

    @property
    def real_tokens(self) -> int:
        return int(self.lengths.sum())

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        before, here = int(self.places[:first].sum()), int(self.places[first:end].sum())
        return {"wanted": self.wanted[before : before + here]}


@dataclass(frozen=True)
class LabelBatch(ByRows):
    """Texts, each with its label."""

    ids: Tensor  # (B, S)
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)
    predicted: int  # tokens that a language model would predict besides: all but the first of each row
    segments: Tensor | None = None  # (B, S): 0 in the first text of a pair, 1 in the second
    parents: Tensor | None = (
        None  # (B, S): the place of each token's parent in its tree; roots and padding have their own
    )

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        rows = len(self.labels)
        return {"loss": rows, "nll": rows, "correct": rows, "language": self.predicted}

    @property
    def padded_tokens(self) -> int:
        return self.ids.numel()

    @property
    def real_tokens(self) -> int:
        return int(self.lengths.sum())

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        return {"predicted": int(self.lengths[first:end].sum()) - (end - first)}


@dataclass(frozen=True)
class StoryBatch(ByRows):
    """Stories, each a row of sentences, with a question about it and the number of its answer."""

    story: Tensor  # (B, S, W): the words of each sentence, oldest first; padding behind both
    sentences: Tensor  # (B,): how many each story has
    question: Tensor  # (B, Q)
    labels: Tensor  # (B,)
    pad: int = 0
    longest: int = 0  # of a part: most words of a story and its question in the whole batch

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        rows = len(self.labels)
        return {"loss": rows, "nll": rows, "correct": rows}

    @property
    def padded_tokens(self) -> int:
        return self.story.numel() + self.question.numel()

    @property
    def real_tokens(self) -> int:
        return int((self.story != self.pad).sum() + (self.question != self.pad).sum())

    def flat(self, begin: int) -> LabelBatch:
        """The stories and their questions as running texts, for models that read word after word."""
        first = torch.full_like(self.question[:, :1], begin)
        ids = torch.cat([first, self.story.flatten(1), self.question], dim=1)  # (B, 1 + S W + Q)
        behind = torch.argsort((ids == self.pad).long(), dim=1, stable=True)
        lengths = (ids != self.pad).sum(dim=1)
        ids = ids.gather(1, behind)[:, : self.longest + 1 if self.longest else int(lengths.max())]
        return LabelBatch(ids, lengths, self.labels, int(lengths.sum()) - len(lengths))

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        words = (self.story.flatten(1) != self.pad).sum(dim=1) + (self.question != self.pad).sum(dim=1)
        return {"longest": int(words.max())}


@dataclass(frozen=True)
class BitBatch(ByRows):
    """Sequences of vectors of bits, and those that should come out at the steps that count."""

    inputs: Tensor  # (B, T, I)
    targets: Tensor  # (B, T, O)
    counted: Tensor  # (T,), bool

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        rows, _, outputs = self.targets.shape
        bits = rows * outputs * int(self.counted.sum())
        return {"loss": bits, "nll": bits, "wrong": bits, "ponder": rows * self.steps}

    @property
    def steps(self) -> int:
        """Steps up to the last that counts."""
        return int(self.counted.nonzero().max()) + 1

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        return {"counted": self.counted}


@dataclass(frozen=True)
class TableBatch(ByRows):
    """Questions about tables: where they name columns and numbers, the tables, and the answers, numbers or cells."""

    words: Tensor  # (B, Q)
    lengths: Tensor  # (B,)
    name_places: Tensor  # (B, M): where in the question a column is named
    names: Tensor  # (B, M): which column that is
    name_counts: Tensor  # (B,)
    number_places: Tensor  # (B, N): where a number stands
    number_counts: Tensor  # (B,)
    signs: Tensor  # (B, N, R, C): 1 where a cell is greater than the number, -1 where it is lesser, 0 where equal or a word
    cells: Tensor  # (B, R, C): numbers; 0 where there are words
    rows: Tensor  # (B,): how many each table has
    columns: Tensor  # (B,)
    wanted: Tensor  # (B,): the number that is the answer; 0 where cells are
    printed: Tensor  # (B, R, C), bool: the cells that are the answer
    prints: Tensor  # (B,), bool: whether cells are

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        return {"loss": len(self.words), "nll": len(self.words)}

    @property
    def padded_tokens(self) -> int:
        return self.words.numel()

    @property
    def real_tokens(self) -> int:
        return int(self.lengths.sum())


Moved = TypeVar("Moved")


def moved(batch: Moved, device: torch.device | str) -> Moved:
    """A batch, a dataclass, with its tensors on a device; what is there already stays as it is."""
    if torch.device(device).type == "cpu":
        return batch
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}  # type: ignore[arg-type]
    sent: dict[str, Any] = {name: _sent(v, device) for name, v in values.items() if isinstance(v, Tensor)}
    return replace(batch, **sent)  # type: ignore[type-var]


def _sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; to a GPU from memory that stays where it is (pinned), so that nobody waits for the transfer."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def pad(sequences: Sequence[np.ndarray], fill: int, width: int | None = None) -> tuple[Tensor, Tensor]:
    """Sequences of ids as one matrix, `fill` behind the shorter ones, and their lengths.

    The matrix is `width` wide, where others that are not here may be longer.
    """
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    ids = np.full((len(sequences), int(lengths.max()) if width is None else width), fill, dtype=np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(ids), lengths


def pair_batch(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    fill: int,
    widths: tuple[int | None, int | None] = (None, None),
) -> PairBatch:
    """A batch of sources (each with its end token) and targets (each with its begin and end tokens)."""
    source, source_lengths = pad(sources, fill, widths[0])
    target, lengths = pad(targets, fill, widths[1])
    return PairBatch(source, source_lengths, target, lengths - 1, int(lengths.sum()) - len(lengths))


def text_batch(rows: Sequence[np.ndarray], fill: int = 0, skip: int = 0) -> TextBatch:
    """A batch of stretches of text; the first `skip` predictions of each do not count."""
    ids, lengths = pad(rows, fill)
    return TextBatch(ids, lengths - 1, int((lengths - 1 - skip).clamp(min=0).sum()), skip)


def label_batch(
    texts: Sequence[np.ndarray],
    labels: Sequence[int] | np.ndarray,
    fill: int,
    segments: Sequence[np.ndarray] | None = None,
    parents: Sequence[np.ndarray] | None = None,
    width: int | None = None,
) -> LabelBatch:
    """A batch of texts with the numbers of their labels, which text of a pair each token belongs to, and their trees."""
    ids, lengths = pad(texts, fill, width)
    return LabelBatch(
        ids,
        lengths,
        torch.tensor(np.asarray(labels), dtype=torch.long),
        int(lengths.sum()) - len(lengths),
        None if segments is None else pad(segments, 0, width)[0],
        None if parents is None else _own_behind(pad(parents, -1, width)[0]),
    )


def _own_behind(parents: Tensor) -> Tensor:
    """Heads of which padding has itself: (B, S)."""
    return torch.where(parents < 0, torch.arange(parents.size(1)), parents)
