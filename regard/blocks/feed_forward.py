"""The position-wise feed-forward layer (Vaswani et al. 2017, eq. 2): FFN(x) = max(0, x W_1 + b_1) W_2 + b_2."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from regard.noise import dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu}


class FeedForward(nn.Module):
    """(B, T, D) -> (B, T, F) -> (B, T, D), the same for every position."""

    def __init__(self, width: int, inner: int, *, activation: str = "relu", rate: float = 0.0) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation, self.rate = ACTIVATIONS[activation], rate

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x))  # (B, T, F)
        return self.down(dropout(inner, self.rate) if self.training else inner)
