"""The subject of `regard verify`: a bundle, its model in both precisions, and synthetic batches as its task has them.

Each task has a subclass beside its recipe; no check changes for a new one.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.blocks.norm import BatchNorm
from regard.bundle import Bundle
from regard.data.pictures.config import PictureFormat
from regard.models.config import GPTConfig
from regard.models.protocols import has_steps
from regard.tokens import TextTokenizer
from regard.training.feed import Source

ALLOWED = {torch.float64: 1e-9, torch.float32: 1e-4}
Model: TypeAlias = Any  # of any family; which methods it has, a check asks with `needs_steps` and `needs_loss`
Batch: TypeAlias = Any  # of the subject's task

ROWS = range(5)  # of a batch that is taken whole
EXTRA = 3  # columns behind a row that has none
SOURCE_LENGTHS, TARGET_LENGTHS = (7, 11, 3, 5, 2), (5, 2, 11, 7, 3)  # tokens of each pair: primes, none alike
TEXT_LENGTHS = (7, 37, 3, 5, 2)  # one is longer than a cache has room for at first
LENGTHS = (5, 2, 11, 7, 3)  # tokens of each caption or question


class NotApplicable(Exception):
    """Why an invariant does not apply to this bundle."""


@dataclass(frozen=True, eq=False)
class Subject(ABC):
    """A bundle, its model in both precisions, and rows of random tokens, as its task has them."""

    bundle: Bundle
    models: dict[torch.dtype, Model]

    @classmethod
    def of(cls, bundle: Bundle) -> Self:
        device = next(bundle.model.parameters()).device
        exact = copy.deepcopy(bundle.model)
        if device.type == "mps":  # has no float64
            exact = exact.cpu()
        models = {torch.float64: exact.double().eval(), torch.float32: copy.deepcopy(bundle.model).float().eval()}
        return cls(bundle, models)

    # -- what every task has --

    @abstractmethod
    def take(self, rows: Sequence[int]) -> Batch:
        """A batch of these of the rows of random tokens, `ROWS` in all, each as long as it is, the same every time."""

    @abstractmethod
    def lengthened(self, batch: Batch) -> Batch:
        """The same rows with columns behind them; where a mask hides them, of real-looking tokens."""

    @abstractmethod
    def training(self, seed: int) -> Source:
        """Batches of random tokens, several in an epoch, as the training loop takes them."""

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """The logits of every place of the batch: (B, T, V)."""
        logits: Tensor = model.logits(batch)
        return logits

    def real(self, outputs: Tensor, batch: Batch) -> list[Tensor]:
        """The outputs of the real places of each row: (T, V)."""
        return [row[:length] for row, length in zip(outputs, batch.lengths.tolist(), strict=True)]

    @property
    def learns(self) -> bool:
        """Whether the model has a loss."""
        return True

    @property
    def tokenizers(self) -> dict[str, TextTokenizer]:
        return {"tokenizer": self.bundle.tokenizer}

    # -- what tasks have whose models write one token after another --

    def reads(self, batch: Batch) -> tuple[Tensor, ...] | None:
        """The source that `start` takes beside the prefix; None where there is none."""
        return None

    def writes(self, batch: Batch) -> Tensor:
        """The ids (B, T + 1) of which `outputs` predicts all but the first."""
        raise NotApplicable(f"{self.name} answers when it has read the whole text")

    def rewritten(self, batch: Batch, ids: Tensor) -> Batch:
        """The same rows with other ids to write, all of them real."""
        raise NotApplicable(f"{self.name} writes nothing")

    # -- what the checks share --

    @property
    def name(self) -> str:
        """The model by its kind, with its article: "a gpt2", "an lstm"."""
        kind = self.bundle.config.model.kind
        return f"{'an' if kind[0] in 'aeiou' or kind == 'lstm' else 'a'} {kind}"

    @property
    def balanced(self) -> bool:
        """Whether the loss has a term that keeps experts in use; it is of all places of a batch, real or not."""
        config = self.bundle.config.model
        return isinstance(config, GPTConfig) and config.experts > 0 and config.balance > 0

    def batch(self, model: nn.Module, rows: Sequence[int] = ROWS) -> Batch:
        return self.take(rows).to(next(model.parameters()).device)

    def losses(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """Every part of the loss that is a sum over real places or rows."""
        parts = {name: part.sum for name, part in model(batch).parts.items()}
        return {name: part for name, part in parts.items() if not (self.balanced and name == "loss")}

    def steps(self, model: Model, batch: Batch) -> Tensor:
        """The logits of `outputs`, but computed one step after the other: (B, T, V)."""
        ids = self.writes(batch)
        logits, state = model.start(self.reads(batch), ids[:, :1])
        found = [logits]
        for column in torch.split(ids[:, 1:-1], 1, dim=1):
            logits, state = model.step(column, state)
            found.append(logits)
        return torch.cat(found, dim=1)

    def needs_steps(self) -> None:
        if not has_steps(self.bundle.model):
            raise NotApplicable(f"{self.name} does not write step by step")

    def needs_loss(self) -> None:
        if not self.learns:
            raise NotApplicable(f"{self.name} without a head gives vectors: there is no loss to learn from")

    def needs_parts(self) -> None:
        """A batch must be the sum of its parts."""
        if self.balanced:
            raise NotApplicable(
                "the term that keeps experts in use is of each micro-batch by itself, not of the whole batch"
            )
        if any(isinstance(module, BatchNorm) for module in self.bundle.model.modules()):
            raise NotApplicable("batch norm takes its statistics from each micro-batch by itself, not the whole batch")

    def ordinary(self, side: int = -1) -> np.ndarray:
        """The ids of a vocabulary that stand for text; all, if there are no others."""
        tokenizer = self.bundle.tokenizers.source if side == 0 else self.bundle.tokenizers.target
        ids = np.arange(self.bundle.config.vocabulary[side])
        found = np.setdiff1d(ids, sorted(tokenizer.specials.all))
        return found if len(found) else ids

    def draw(self, lengths: Sequence[int], special: int, *, side: int = -1, seed: int = 1) -> list[np.ndarray]:
        """Random text, as long as asked, or as the model has positions for beside `special` tokens and `EXTRA` more."""
        longest = self.bundle.config.model.longest
        room = math.inf if longest is None else max(1, longest - special - EXTRA)
        random, ids = np.random.default_rng(seed), self.ordinary(side)
        return [random.choice(ids, int(min(length, room))).astype(np.int32) for length in lengths]

    def compare(self, measure: Callable[[Model], float]) -> tuple[bool, str]:
        """Measure a difference in both precisions; it passes if both are small enough."""
        found = {kind: measure(model) for kind, model in self.models.items()}
        passed = all(found[kind] <= limit for kind, limit in ALLOWED.items())  # NaN is not
        parts = [f"{found[kind]:.0e} in {str(kind)[6:]} ({limit:.0e} allowed)" for kind, limit in ALLOWED.items()]
        return passed, f"largest difference {', '.join(parts)}"


def difference(found: Tensor, expected: Tensor, least: float = 1.0) -> float:
    """The largest difference, relative to the largest expected number, which counts as no less than `least`."""
    if found.shape != expected.shape:
        raise ValueError(f"shapes {tuple(found.shape)} and {tuple(expected.shape)} differ")
    scale = max(least, float(expected.abs().max()))
    return float((found - expected).abs().max()) / scale


class SeeingSubject(Subject):
    """What all tasks that see share."""

    @property
    def format(self) -> PictureFormat:
        assert self.bundle.config.pictures is not None
        return self.bundle.config.pictures

    @cached_property
    def pixels(self) -> Tensor:
        """(5, channels, size, size)."""
        size, channels = self.format.size, self.format.channels
        return torch.randn(len(ROWS), channels, size, size, generator=torch.Generator().manual_seed(1))

    @cached_property
    def labels(self) -> Tensor:
        return torch.from_numpy(np.random.default_rng(3).integers(0, len(self.bundle.config.labels), len(ROWS)))

    def batch(self, model: nn.Module, rows: Sequence[int] = ROWS) -> Batch:
        batch = super().batch(model, rows)
        return replace(batch, pixels=batch.pixels.to(next(model.parameters()).dtype))

    def training(self, seed: int) -> FewBatches:
        return FewBatches([self.take(rows) for rows in ([0, 1], [2, 3], [3, 4], [4, 0])], seed)


class FewBatches:
    """A few batches, as the training loop takes them, in an order of each epoch's own."""

    def __init__(self, batches: list[Batch], seed: int) -> None:
        self.batches, self.seed = batches, seed

    def count(self, epoch: int) -> int:
        return len(self.batches)

    def get(self, epoch: int, index: int) -> Batch:
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.batches))
        return self.batches[order[index]]

    def padding_share(self) -> float:
        return 0.0


def real_behind(ids: Tensor) -> Tensor:
    """Columns that look like text: (B, S) -> (B, S + EXTRA)."""
    return torch.cat([ids, ids[:, :1].expand(-1, EXTRA)], dim=1)


def zeros_behind(segments: Tensor | None) -> Tensor | None:
    return None if segments is None else pad(segments, (0, EXTRA))
