"""What a model can do beyond learning, as protocols: whoever needs it asks for it, and not for a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor


@runtime_checkable
class FineTunable(Protocol):
    """Takes the weights of a pre-trained model below its own last layer."""

    def load_body(self, weights: Mapping[str, Tensor], /) -> None: ...


@runtime_checkable
class Countable(Protocol):
    """Counts something in the training texts before the first update, such as in how many of them a token occurs."""

    def fit(self, texts: Sequence[np.ndarray], /) -> None: ...
