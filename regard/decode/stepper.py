"""What search knows of a model: a `Stepper`. Recurrent states and key-value caches are both just its state."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from torch import Tensor

S = TypeVar("S")


class Stepper(Protocol[S]):
    """A model that continues sequences: B sources, each with W hypotheses (W may change from call to call).

    Logits are raw (not normalised), float, and a fresh tensor: the search writes -inf into them where a token is
    forbidden. The state keeps what belongs to a source (encoder memory) apart from what belongs to a hypothesis, so
    that the former is never tiled over the beam.
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
