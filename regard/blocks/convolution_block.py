"""The residual block of ByteNet with ReLUs (Kalchbrenner et al. 2016, figure 3, left): a convolution at half the width.

x + Dropout(up(φ(convolution(φ(down(φ(x)))))))    φ(x) = max(0, LayerNorm(x)), each with its own norm
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from regard.blocks.convolution import CausalConvolution, CentredConvolution, Past
from regard.noise import add_dropped


class NormReLU(nn.LayerNorm):
    """max(0, LayerNorm(x)), in one buffer: the norm's gradient does not need its output."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu_()


class ConvolutionBlock(nn.Module):
    """(B, T, channels) -> (B, T, channels). One block serves encoder (centred) and decoder (causal)."""

    def __init__(self, channels: int, convolution: CentredConvolution | CausalConvolution, *, rate: float) -> None:
        super().__init__()
        inner = convolution.inputs
        self.before_down, self.down = NormReLU(channels), nn.Linear(channels, inner)
        self.before_convolution, self.convolution = NormReLU(inner), convolution
        self.before_up, self.up = NormReLU(inner), nn.Linear(inner, channels)
        self.rate = rate

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """`real` (B, T, 1) is zero where a row has ended: the convolution sees zeros there, as behind the last column."""
        return self._around(x, lambda y: self.convolution(y if real is None else y * real))

    def start(self, rows: int, like: Tensor) -> Past:
        return self._causal().start(rows, like)

    def step(self, x: Tensor, past: Past) -> Tensor:
        """The newest position of each hypothesis, (B, W, channels) -> (B, W, channels); it joins the past."""
        convolution = self._causal()
        return self._around(x, lambda y: convolution.step(y.flatten(0, 1), past).view_as(y))

    def _around(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        y = self.down(self.before_down(x))  # (B, T, channels / 2)
        y = convolve(self.before_convolution(y))
        y = self.up(self.before_up(y))  # (B, T, channels)
        return add_dropped(x, y, self.rate if self.training else 0.0)

    def _causal(self) -> CausalConvolution:
        assert isinstance(self.convolution, CausalConvolution), "only a causal convolution goes step by step"
        return self.convolution
