"""Protocols of what some models can do and others cannot: whoever needs it asks for it, and not for a class.

Each has methods only, so that it can be asked of any module while a program runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from torch import Tensor

from regard.attention import Seen

if TYPE_CHECKING:
    from regard.models.pictures.encoder import FeatureMap


@runtime_checkable
class HasSteps(Protocol):
    """Goes on with sequences token by token (all of it: `regard.decode.stepper.Stepper`)."""

    def start(self, source: Any, prefix: Tensor, /) -> tuple[Tensor, Any]: ...

    def step(self, ids: Tensor, state: Any, /) -> tuple[Tensor, Any]: ...


def has_steps(model: object) -> TypeGuard[HasSteps]:
    """Whether a model goes on token by token now: `isinstance` remembers what it once saw of a class."""
    return callable(getattr(model, "start", None)) and callable(getattr(model, "step", None))


@runtime_checkable
class HasDepths(Protocol):
    """Tells how deep each parameter lies, so that layers can learn at different rates: 0 for embeddings."""

    def depths(self) -> dict[str, int]: ...


@runtime_checkable
class HasHiddenMatrices(Protocol):
    """Names the matrices between its embeddings and its output, which Muon moves."""

    def hidden_matrices(self) -> Iterable[str]: ...


@runtime_checkable
class FineTunable(Protocol):
    """Takes the weights of a pre-trained model below its own last layer."""

    def load_body(self, weights: Mapping[str, Tensor], /) -> None: ...


@runtime_checkable
class Countable(Protocol):
    """Counts something in the training texts before the first update, such as in how many of them a token occurs."""

    def fit(self, texts: Sequence[np.ndarray], /) -> None: ...


@runtime_checkable
class MixesPlaces(Protocol):
    """Sees by mixing places with matrices, (P, P) in each layer, instead of attention."""

    def mixing(self) -> list[Tensor]: ...


@runtime_checkable
class LooksFromClassToken(Protocol):
    """Sees by attention between patches, from which a class token reads."""

    def class_attention(self, seen: Seen, /) -> Tensor: ...

    def rollout_map(self, seen: Seen, /) -> Tensor: ...


@runtime_checkable
class HasFeatureMaps(Protocol):
    """Sees by convolutions, each of which gives a map of every channel."""

    def feature_maps(self, pixels: Tensor, /) -> Iterator[FeatureMap]: ...


@runtime_checkable
class KeepsState(Protocol):
    """Reads a sequence by recurrent layers, from one end to the other, into a state of fixed size."""

    def in_order(self, ids: Tensor, /) -> Tensor:
        """Ids (B, T) in the order in which they are read."""

    def embedded(self, ids: Tensor, /) -> Tensor:
        """The vectors (B, T, I) of ids (B, T)."""

    def last_state(self, x: Tensor, /) -> Tensor:
        """The last state of the last layer over vectors (B, T, I), in the order in which they are read: (B, hidden)."""
