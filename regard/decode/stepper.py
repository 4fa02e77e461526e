"""What a search knows of a model: a `Stepper`. Recurrent states and key-value caches are both just its state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import pad

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
    """A stepper whose sources each have their own length, so that new ones can come while others go on.

    Its `keep` takes rows in any order.
    """

    def join(self, state: Any, other: Any, /) -> Any:
        """The sources of both states, the other's behind, in one; each has as many hypotheses. Both are consumed."""
        ...


@dataclass(frozen=True)
class SlidingState(Generic[S]):
    """The model's state, and the tokens it stands for."""

    inner: S
    ids: Tensor  # (B, W, T) tokens read; of a source that has read fewer, the first are none
    read: Tensor  # (B,) how many of them are


def sliding(stepper: Stepper[S], window: int) -> Sliding[S]:
    """A stepper of any length from a language model that knows `window` positions. Within them it changes nothing."""
    return JoiningSliding(stepper, window) if isinstance(stepper, Joins) else Sliding(stepper, window)


class Sliding(Generic[S]):
    """Slides when the window is full: the last half of it is read again. All sources are as long as each other."""

    longest = None

    def __init__(self, stepper: Stepper[S], window: int) -> None:
        self.stepper, self.window, self.kept = stepper, window, max(1, window // 2)

    def start(self, source: Any, prefix: Tensor) -> tuple[Tensor, SlidingState[S]]:
        seen = prefix if prefix.size(1) <= self.window else prefix[:, -self.kept :]
        logits, state = self.stepper.start(source, seen)
        return logits, SlidingState(state, seen[:, None], torch.full((len(seen),), seen.size(1)))

    def step(self, ids: Tensor, state: SlidingState[S]) -> tuple[Tensor, SlidingState[S]]:
        seen = torch.cat([state.ids, ids[..., None]], dim=-1)  # (B, W, T)
        if int(state.read[0]) < self.window:
            logits, inner = self.stepper.step(ids, state.inner)
            return logits, SlidingState(inner, seen, state.read + 1)
        return self._read_again(seen)

    def reorder(self, state: SlidingState[S], parents: Tensor) -> SlidingState[S]:
        ids = state.ids.gather(1, parents[..., None].expand(-1, -1, state.ids.size(-1)))
        return replace(state, inner=self.stepper.reorder(state.inner, parents), ids=ids)

    def keep(self, state: SlidingState[S], rows: Tensor) -> SlidingState[S]:
        return SlidingState(self.stepper.keep(state.inner, rows), state.ids[rows], state.read[rows.cpu()])

    def _read_again(self, seen: Tensor) -> tuple[Tensor, SlidingState[S]]:
        """Every hypothesis from the last of its tokens (B, W, T): as sources of their own, then regrouped."""
        seen = seen[..., -self.kept :]
        rows, width, _ = seen.shape
        logits, state = self.stepper.start(None, seen.flatten(0, 1))  # (B * W, 1, V)
        inner = self.stepper.regroup(state, width)  # type: ignore[attr-defined]
        return logits.view(rows, width, -1), SlidingState(inner, seen, torch.full((rows,), self.kept))


class JoiningSliding(Sliding[S]):
    """Slides each source at its own time, whoever comes and goes."""

    def start(self, source: Tensor | None, prefix: Tensor) -> tuple[Tensor, SlidingState[S]]:
        """Prompts (B, P), of which each has as many tokens as `source` (B,) says; of a long one the last half is read."""
        lengths = torch.full((len(prefix),), prefix.size(1)) if source is None else source.cpu()
        read = torch.where(lengths > self.window, self.kept, lengths)
        longest = int(read.max())
        columns = torch.arange(longest)
        first = prefix.gather(1, (columns + (lengths - read)[:, None]).clamp(max=prefix.size(1) - 1).to(prefix.device))
        logits, state = self.stepper.start(read, first)
        last = prefix.gather(1, (columns + (lengths - longest)[:, None]).clamp(min=0).to(prefix.device))
        return logits, SlidingState(state, last[:, None], read)

    def step(self, ids: Tensor, state: SlidingState[S]) -> tuple[Tensor, SlidingState[S]]:
        full = state.read >= self.window
        if not bool(full.any()):
            logits, inner = self.stepper.step(ids, state.inner)
            return logits, SlidingState(inner, torch.cat([state.ids, ids[..., None]], dim=-1), state.read + 1)
        seen = torch.cat([state.ids, ids[..., None]], dim=-1)  # (B, W, T)
        over, within = (rows.nonzero()[:, 0].to(ids.device) for rows in (full, ~full))
        logits, again = self._read_again(seen[over])
        if not len(within):
            return logits, again
        others, rest = self.step(ids[within], self.keep(state, within))
        place = torch.cat([over, within]).argsort()
        return torch.cat([logits, others])[place], self.keep(self.join(again, rest), place)

    def join(self, state: SlidingState[S], other: SlidingState[S]) -> SlidingState[S]:
        """The sources of both, the other's behind."""
        read = torch.cat([state.read, other.read])
        longest = int(read.max())
        ids = torch.cat([_last(state.ids, longest), _last(other.ids, longest)])
        return SlidingState(cast(Joins, self.stepper).join(state.inner, other.inner), ids, read)


def _last(ids: Tensor, count: int) -> Tensor:
    """The last tokens of each (B, W, T), with none before where there are fewer."""
    return pad(ids[..., -count:], (max(0, count - ids.size(-1)), 0))
