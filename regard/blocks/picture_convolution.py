"""Convolutions of pictures: as large behind as before, fresh weights of He et al. 2015, and the layout that a CPU likes.

    y[o, r, c] = b[o] + Σ_i Σ_{u,v} W[o, i, u, v] x[i, r + u - before, c + v - before],    x is zero outside the picture

Channels of a place beside each other in memory ("channels last") make training faster on a CPU, depth-wise convolutions
most of all. It is enough that the picture begins so: what is computed of it stays so. Weights stay as they are: an
optimiser's memory, saved and read back, would lie otherwise than a turned weight, and fused Adam reads both in the order
of memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.blocks.batch_norm import BatchNorm
from regard.blocks.sizes import output_size, same_padding


class Convolution(nn.Conv2d):
    """(B, inputs, H, W) -> (B, outputs, H', W'), at stride 1 as large as before."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> None:
        before, behind = same_padding(kernel)
        # A 1 x 1 kernel with a stride leaves places out. They are left out first: with channels last and fewer than 8 of
        # them, oneDNN (3.12, issue 6035) writes behind the end of its memory when it computes that gradient.
        self.skip = stride if kernel == 1 else 1
        super().__init__(inputs, outputs, kernel, stride // self.skip, before, groups=groups, bias=bias)
        self.more = behind - before  # an even kernel needs more zeros behind

    def reset_parameters(self) -> None:
        """Variance 2 / fan-in, which keeps the size of signals through ReLUs (He et al. 2015, eq. 10)."""
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.skip > 1:
            x = x[:, :, :: self.skip, :: self.skip]
        return super().forward(pad(x, (0, self.more, 0, self.more)) if self.more else x)

    def size_after(self, size: int) -> int:
        """Rows of what comes out of pictures of `size` rows."""
        kernel, stride, before = self.kernel_size[0], self.stride[0] * self.skip, int(self.padding[0])
        return output_size(size + self.more, kernel, stride, before)


class ConvolutionNorm(nn.Module):
    """A convolution without a bias, which its batch norm has."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.convolution = Convolution(inputs, outputs, kernel, stride=stride)
        self.norm = BatchNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x))

    def size_after(self, size: int) -> int:
        return self.convolution.size_after(size)


def channels_last(pixels: Tensor) -> Tensor:
    """The same numbers (B, C, H, W) with the channels of a place beside each other in memory."""
    if pixels.size(1) > 1:
        return pixels.contiguous(memory_format=torch.channels_last)
    # One channel lies the same either way, but strides must say so, or convolutions go on channel by channel.
    batch, _, rows, columns = pixels.shape
    return pixels.reshape(batch, rows, columns, 1).movedim(-1, 1)
