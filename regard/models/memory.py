"""What every encoder returns, and all that decoders, cross-attention and figures need of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from regard.attention import Mask


@dataclass(frozen=True)
class Memory:
    vectors: Tensor  # (B, S, D)
    mask: Mask | None  # which of the S positions are real
    layout: Literal["words", "grid", "frames", "slots"] = "words"
