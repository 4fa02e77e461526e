"""Dilated convolutions of sequences: a position is computed from a few others, `dilation` apart.

    y_t = b + Σ_j W_j x_{t + o_j},    x is zero before the first position and behind the last

With K taps and dilation d the offsets o_j are -(K-1) d, ..., -d, 0 for a causal convolution, which sees no later position
(the masked convolution of van den Oord et al. 2016, "WaveNet"), and -⌊K/2⌋ d, ..., 0, ..., ⌊K/2⌋ d for a centred one.

Vectors stay whole, (B, T, D), and all taps are one matrix product with shifted copies of them. On a CPU that is faster
than `conv1d`, which wants its channels in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad


def shifted(x: Tensor, offsets: Sequence[int]) -> Tensor:
    """Beside each other the vectors x_{t + o} of every offset o, in ascending order: (B, T, D) -> (B, T, K * D)."""
    before, behind = max(0, -offsets[0]), max(0, offsets[-1])
    padded = pad(x, (0, 0, before, behind))  # (B, before + T + behind, D)
    return torch.cat([padded.narrow(1, before + offset, x.size(1)) for offset in offsets], dim=-1)


class DilatedConvolution(nn.Module):
    """(B, T, inputs) -> (B, T, outputs). The matrices W_j stand side by side in `taps`, in the order of the offsets."""

    def __init__(self, inputs: int, outputs: int, offsets: Sequence[int]) -> None:
        super().__init__()
        self.inputs, self.offsets = inputs, tuple(offsets)
        self.taps = nn.Linear(len(self.offsets) * inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        live = [j for j, offset in enumerate(self.offsets) if abs(offset) < x.size(1)]  # others reach only zeros
        first, last = live[0], live[-1] + 1
        weight = self.taps.weight[:, first * self.inputs : last * self.inputs]  # (outputs, live * inputs)
        return linear(shifted(x, self.offsets[first:last]), weight, self.taps.bias)


class CentredConvolution(DilatedConvolution):
    """Sees as far to the right as to the left."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        if kernel % 2 == 0:
            raise ValueError(f"kernel {kernel} has no middle; choose an odd number")
        half = kernel // 2
        super().__init__(inputs, outputs, [j * dilation for j in range(-half, half + 1)])


@dataclass
class Past:
    """What a causal convolution may still look back at: the last inputs of each hypothesis, in a ring.

    Position t lies in slot t modulo the length of the ring, so that a step overwrites one slot and moves nothing. What
    was never written is zero, as positions before the first are.
    """

    inputs: Tensor  # (B * W, (K - 1) * dilation, D)
    read: int = 0

    def select(self, rows: Tensor) -> Past:
        """The past of the hypotheses `rows`, copied."""
        return Past(self.inputs.index_select(0, rows), self.read)


class CausalConvolution(DilatedConvolution):
    """Sees the position itself and those before it, over whole sequences or step by step."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__(inputs, outputs, [-j * dilation for j in reversed(range(kernel))])

    def start(self, rows: int, like: Tensor) -> Past:
        """An empty past, of the type and on the device of `like`."""
        return Past(like.new_zeros(rows, max(1, -self.offsets[0]), self.inputs))  # one tap has no past: a slot unread

    def step(self, x: Tensor, past: Past) -> Tensor:
        """The newest position of each hypothesis, (N, inputs) -> (N, outputs); it joins the past. K vectors are read."""
        length = past.inputs.size(1)
        earlier = [past.inputs[:, (past.read + offset) % length] for offset in self.offsets[:-1]]
        seen = torch.cat([*earlier, x], dim=-1)  # (N, K * inputs)
        past.inputs[:, past.read % length] = x
        past.read += 1
        return self.taps(seen)
