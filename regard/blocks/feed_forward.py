"""The position-wise feed-forward layer (Vaswani et al. 2017, eq. 2), and with a gate (Shazeer 2020):

FFN(x)    = activation(x W_1 + b_1) W_2 + b_2
SwiGLU(x) = (swish(x W_g) ∘ x W_u) W_d
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from regard.noise import dropout

# gelu is exact (Hendrycks & Gimpel 2016, with erf); gelu-tanh is the approximation that GPT-2's weights were trained with.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu-tanh": partial(gelu, approximate="tanh"),
}


class FeedForward(nn.Module):
    """(B, T, D) -> (B, T, F) -> (B, T, D), the same for every position."""

    def __init__(
        self, width: int, inner: int, *, activation: str = "relu", rate: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner, bias=bias), nn.Linear(inner, width, bias=bias)
        self.activation, self.rate = ACTIVATIONS[activation], rate

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x))  # (B, T, F)
        return self.down(dropout(inner, self.rate) if self.training else inner)


class GatedFeedForward(nn.Module):
    """The same with a gate: what goes up is multiplied by the swish of another product. Both products are one."""

    def __init__(self, width: int, inner: int, *, rate: float = 0.0, bias: bool = False) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=bias), nn.Linear(inner, width, bias=bias)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # each (B, T, F)
        inner = silu(gate) * up
        return self.down(dropout(inner, self.rate) if self.training else inner)


def make_feed_forward(width: int, inner: int, *, activation: str, rate: float = 0.0, bias: bool = True) -> nn.Module:
    """The feed-forward layer that a configuration names."""
    if activation == "swiglu":
        return GatedFeedForward(width, inner, rate=rate, bias=bias)
    return FeedForward(width, inner, activation=activation, rate=rate, bias=bias)
