"""Residual connection (He et al. 2016) and norm around a sub-layer, in the paper's order, before it, or none.

post (Vaswani et al. 2017):  Norm(x + Dropout(sublayer(x)))
pre  (Xiong et al. 2020):    x + Dropout(sublayer(Norm(x)))
none:                        x + Dropout(sublayer(x))

Without the residual, x is not added: what it is worth can be measured.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from regard.noise import add_dropped, dropout


class Around(nn.Module):
    """What stands around a sub-layer of (B, T, D)."""

    def __init__(self, norm: nn.Module, rate: float, *, order: str, residual: bool = True) -> None:
        super().__init__()
        self.norm = norm if order != "none" else nn.Identity()
        self.rate, self.order, self.residual = rate, order, residual

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y = sublayer(self.norm(x) if self.order == "pre" else x)
        rate = self.rate if self.training else 0.0
        y = add_dropped(x, y, rate) if self.residual else dropout(y, rate)
        return self.norm(y) if self.order == "post" else y
