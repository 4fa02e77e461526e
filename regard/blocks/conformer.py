"""The Conformer block (Gulati et al. 2020, section 2.4): attention and convolution between two halves of a feed-forward:

    x = x + ½ FFN(x);   x = x + Attention(x);   x = x + Convolution(x);   y = LayerNorm(x + ½ FFN(x))

each sub-layer behind a layer norm of its own. The convolution module (section 2.2) is pointwise, gated, depthwise, norm,
swish, pointwise; its norm is a layer norm, where the paper has batch norm, so that a row does not depend on its batch.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import glu, pad, silu

from regard.attention import Mask, MultiHead
from regard.blocks.block import Residual
from regard.blocks.feed_forward import FeedForward


class ConvolutionModule(nn.Module):
    """(B, T, D) -> (B, T, D): each channel is mixed over `kernel` frames, around each frame or, if causal, before it."""

    def __init__(self, width: int, kernel: int, *, causal: bool = False) -> None:
        super().__init__()
        self.expand, self.project = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width)
        self.norm = nn.LayerNorm(width)
        self.before = kernel - 1 if causal else (kernel - 1) // 2
        self.behind = kernel - 1 - self.before

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """`real` (B, T, 1) is zero where a row has ended: the convolution sees zeros there, as behind the last column."""
        x = glu(self.expand(x), dim=-1)  # (B, T, D)
        x = x if real is None else x * real
        x = self.depthwise(pad(x.transpose(1, 2), (self.before, self.behind))).transpose(1, 2)
        return self.project(silu(self.norm(x)))


class HalfStep(nn.Module):
    """Half of what a feed-forward layer gives (Lu et al. 2019, as in the Macaron network)."""

    def __init__(self, layer: FeedForward) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * self.layer(x)


class ConformerBlock(nn.Module):
    """(B, T, D) -> (B, T, D)."""

    def __init__(
        self, attention: MultiHead, convolution: ConvolutionModule, width: int, inner: int, rate: float
    ) -> None:
        super().__init__()
        self.attention, self.convolution = attention, convolution
        self.first, self.second = (HalfStep(FeedForward(width, inner, activation="swish", rate=rate)) for _ in range(2))
        arounds = [Residual(nn.LayerNorm(width), rate, order="pre") for _ in range(4)]
        self.around_first, self.around_attention, self.around_convolution, self.around_second = arounds
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Mask | None, real: Tensor | None) -> Tensor:
        """`mask` is what frames see of each other, `real` (B, T, 1) zero where a row has ended."""
        x = self.around_first(x, self.first)
        x = self.around_attention(x, lambda y: self.attention(y, y, mask))
        x = self.around_convolution(x, lambda y: self.convolution(y, real))
        return self.norm(self.around_second(x, self.second))
