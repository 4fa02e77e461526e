"""Residual connection and layer norm around a sub-layer, in the paper's order or before it.

post (Vaswani et al. 2017):  LayerNorm(x + Dropout(sublayer(x)))
pre  (Xiong et al. 2020):    x + Dropout(sublayer(LayerNorm(x)))
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from regard.noise import add_dropped


class PostNorm(nn.Module):
    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.norm, self.rate = nn.LayerNorm(width), rate

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(add_dropped(x, sublayer(x), self.rate if self.training else 0.0))


class PreNorm(nn.Module):
    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.norm, self.rate = nn.LayerNorm(width), rate

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return add_dropped(x, sublayer(self.norm(x)), self.rate if self.training else 0.0)


RESIDUALS: dict[str, type[PostNorm] | type[PreNorm]] = {"post": PostNorm, "pre": PreNorm}
