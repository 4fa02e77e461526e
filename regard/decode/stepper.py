"""What a search knows of a model: a `Stepper`. Recurrent states and key-value caches are both just its state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

S = TypeVar("S")


class Stepper(Protocol[S]):
    """A model that continues sequences: B sources, each with W hypotheses (W may change from call to call).

    Logits are raw (not normalised), float, and a fresh tensor: the search writes -inf into them where a token is
    forbidden. The state keeps what belongs to a source (encoder memory) apart from what belongs to a hypothesis, so
    that the former is never tiled over the beam. Whoever makes a new state of an old one may write into its buffers:
    the old one is not used again.
    """

    @property
    def longest(self) -> int | None:
        """Most tokens of a sequence that it can read, the prefix included; None: any number."""
        ...

    def start(self, source: Any, prefix: Tensor, /) -> tuple[Tensor, S]:
        """Read the source and the prefix, ids (B, P), P >= 1; gives logits (B, 1, V) after it, and a state of W = 1."""
        ...

    def step(self, ids: Tensor, state: S, /) -> tuple[Tensor, S]:
        """Append ids (B, W); gives logits (B, W, V). The old state is consumed: its buffers may have been written."""
        ...

    def reorder(self, state: S, parents: Tensor, /) -> S:
        """The state in which hypothesis w goes on from `parents[b, w]`; parents (B, W') index the W there are."""
        ...

    def keep(self, state: S, rows: Tensor, /) -> S:
        """The state of the sources that go on; rows (B',) are increasing indices into the B there are."""
        ...


@runtime_checkable
class Joins(Protocol):
    """A stepper whose sources each have their own length, so that new ones can come while others go on."""

    def join(self, state: Any, other: Any, /) -> Any:
        """The sources of both states, the other's behind, in one; each has as many hypotheses. Both are consumed."""
        ...


@dataclass(frozen=True)
class SlidingState(Generic[S]):
    """The model's state, and the tokens it stands for."""

    inner: S
    ids: Tensor  # (B, W, tokens read)


class Sliding(Generic[S]):
    """A stepper of any length from a language model that knows `window` positions. Within them it changes nothing."""

    longest = None

    def __init__(self, stepper: Stepper[S], window: int) -> None:
        self.stepper, self.window, self.kept = stepper, window, max(1, window // 2)

    def start(self, source: Any, prefix: Tensor) -> tuple[Tensor, SlidingState[S]]:
        seen = prefix if prefix.size(1) <= self.window else prefix[:, -self.kept :]
        logits, state = self.stepper.start(source, seen)
        return logits, SlidingState(state, seen[:, None])

    def step(self, ids: Tensor, state: SlidingState[S]) -> tuple[Tensor, SlidingState[S]]:
        seen = torch.cat([state.ids, ids[..., None]], dim=-1)  # (B, W, tokens)
        if seen.size(-1) <= self.window:
            logits, inner = self.stepper.step(ids, state.inner)
            return logits, SlidingState(inner, seen)
        return self._read_again(seen[..., -self.kept :])

    def reorder(self, state: SlidingState[S], parents: Tensor) -> SlidingState[S]:
        ids = state.ids.gather(1, parents[..., None].expand(-1, -1, state.ids.size(-1)))
        return SlidingState(self.stepper.reorder(state.inner, parents), ids)

    def keep(self, state: SlidingState[S], rows: Tensor) -> SlidingState[S]:
        return replace(state, inner=self.stepper.keep(state.inner, rows), ids=state.ids[rows])

    def _read_again(self, seen: Tensor) -> tuple[Tensor, SlidingState[S]]:
        """Every hypothesis from its last tokens (B, W, kept): as sources of their own, then regrouped."""
        rows, width, _ = seen.shape
        logits, state = self.stepper.start(None, seen.flatten(0, 1))  # (B * W, 1, V)
        return logits.view(rows, width, -1), SlidingState(self.stepper.regroup(state, width), seen)  # type: ignore[attr-defined]
