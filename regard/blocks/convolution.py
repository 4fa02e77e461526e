"""Convolutions: causal and dilated over text, with gates, and over pictures; the size behind one, and what a place sees.

    output = ⌊(w + 2p - d (k - 1) - 1) / s⌋ + 1    width w, padding p, kernel k, dilation d, stride s

That is relationship 15 of Dumoulin & Visin 2016; without dilation ⌊(w + 2p - k) / s⌋ + 1.

    r' = r + (k - 1) d j,    j' = j s,    f' = f - p j      receptive field r, jump j, first pixel f

That is Araujo et al. 2019 ("Computing receptive fields of convolutional neural networks", eq. 2), layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from regard.blocks.norm import BatchNorm
from regard.errors import RegardError
from regard.noise import add_dropped


def output_size(
    size: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1, what: str = "convolution"
) -> int:
    """Rows (or columns) of what comes out of `size` rows; an error that shows the arithmetic where a kernel does not fit."""
    for name, value, least in (
        ("size", size, 1),
        ("kernel", kernel, 1),
        ("stride", stride, 1),
        ("dilation", dilation, 1),
    ):
        _at_least(what, name, value, least)
    _at_least(what, "padding", padding, 0)
    reach = dilation * (kernel - 1) + 1
    out = (size + 2 * padding - reach) // stride + 1
    if out >= 1:
        return out
    spread = f" with dilation {dilation} reaches over {reach} x {reach} and" if dilation > 1 else ""
    smaller = "a smaller kernel or dilation" if dilation > 1 else "a smaller kernel"
    raise RegardError(
        f"{what}: {_formula(size, kernel, stride, padding, dilation)} = {_signed(out)}: a {kernel} x {kernel} kernel{spread} "
        f"does not fit a picture of {size} x {size}{f' with padding {padding}' if padding else ''}; use {smaller}, "
        f"padding of {-(-(reach - size) // 2)} or more, or a larger picture"
    )


def same_padding(kernel: int, dilation: int = 1) -> tuple[int, int]:
    """Zeros before the first row and behind the last, so that at stride 1 as many rows come out as go in.

    They are d (k - 1) together; an even kernel has no middle, and where their number is odd one more stands behind.
    """
    before = dilation * (kernel - 1) // 2
    return before, dilation * (kernel - 1) - before


@dataclass(frozen=True)
class Window:
    """A convolution or a pooling as what it does to a row: `padding` counts the zeros before the first."""

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1


@dataclass(frozen=True)
class ReceptiveField:
    """The pixels that a place of a grid depends on, along one side: place i sees `size` of them from first + i · jump on.

    Those before 0 or behind the last pixel are padding.
    """

    size: int = 1
    jump: int = 1
    first: int = 0

    def after(self, *windows: Window) -> ReceptiveField:
        """The field of a place behind these windows, one after another."""
        field = self
        for each in windows:
            size = field.size + (each.kernel - 1) * each.dilation * field.jump
            field = ReceptiveField(size, field.jump * each.stride, field.first - each.padding * field.jump)
        return field

    def pixels(self, place: int, side: int) -> range:
        """The pixels of a picture of `side` that a place sees."""
        start = self.first + place * self.jump
        return range(max(0, start), max(0, min(side, start + self.size)))


def _formula(size: int, kernel: int, stride: int, padding: int, dilation: int) -> str:
    taken = f"{kernel}" if dilation == 1 else f"{dilation}·({kernel} − 1) − 1"
    return f"⌊({size} + 2·{padding} − {taken})/{stride}⌋ + 1"


def _signed(number: int) -> str:
    return f"−{-number}" if number < 0 else str(number)


def _at_least(what: str, name: str, value: int, least: int) -> None:
    if value < least:
        raise RegardError(f"{what}: {name} is {value}; it must be {least} or more")


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
class ConvolutionPast:
    """The last inputs of each hypothesis, in a ring: as far as a causal convolution looks back.

    Position t lies in slot t modulo the length of the ring, so that a step overwrites one slot and moves nothing. What
    was never written is zero, as positions before the first are.
    """

    inputs: Tensor  # (B * W, (K - 1) * dilation, D)
    read: int = 0

    def select(self, rows: Tensor) -> ConvolutionPast:
        """The past of the hypotheses `rows`, copied."""
        return ConvolutionPast(self.inputs.index_select(0, rows), self.read)


class CausalConvolution(DilatedConvolution):
    """Sees the position itself and those before it, over whole sequences or step by step."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__(inputs, outputs, [-j * dilation for j in reversed(range(kernel))])

    def start(self, rows: int, like: Tensor) -> ConvolutionPast:
        """An empty past, of the type and on the device of `like`."""
        return ConvolutionPast(
            like.new_zeros(rows, max(1, -self.offsets[0]), self.inputs)
        )  # one tap has no past: a slot unread

    def step(self, x: Tensor, past: ConvolutionPast) -> Tensor:
        """The newest position of each hypothesis, (N, inputs) -> (N, outputs); it joins the past. K vectors are read."""
        length = past.inputs.size(1)
        earlier = [past.inputs[:, (past.read + offset) % length] for offset in self.offsets[:-1]]
        seen = torch.cat([*earlier, x], dim=-1)  # (N, K * inputs)
        past.inputs[:, past.read % length] = x
        past.read += 1
        return self.taps(seen)


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

    def start(self, rows: int, like: Tensor) -> ConvolutionPast:
        return self._causal().start(rows, like)

    def step(self, x: Tensor, past: ConvolutionPast) -> Tensor:
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


class Convolution(nn.Conv2d):
    """(B, inputs, H, W) -> (B, outputs, H', W'). `padding` None: as many zeros as keep the size at stride 1."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int | None = None,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> None:
        before, behind = same_padding(kernel, dilation) if padding is None else (padding, padding)
        self.window, self.more = Window(kernel, stride, before, dilation), behind - before
        # A 1 x 1 kernel with a stride leaves places out. They are left out first: with channels last and fewer than 8 of
        # them, oneDNN (3.12, issue 6035) writes behind the end of its memory when it computes that gradient.
        self.skip = stride if kernel == 1 else 1
        around = 0 if self.skip > 1 else before
        super().__init__(inputs, outputs, kernel, stride // self.skip, around, dilation, groups=groups, bias=bias)

    def reset_parameters(self) -> None:
        """Variance 2 / fan-in, which keeps the size of signals through ReLUs (He et al. 2015, eq. 10)."""
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.skip > 1:
            zeros = self.window.padding
            x = (pad(x, (zeros,) * 4) if zeros else x)[:, :, :: self.skip, :: self.skip]
        return super().forward(pad(x, (0, self.more, 0, self.more)) if self.more else x)

    def size_after(self, size: int, what: str = "convolution") -> int:
        """Rows of what comes out of pictures of `size` rows."""
        each = self.window
        return output_size(size + self.more, each.kernel, each.stride, each.padding, each.dilation, what)


class ConvolutionNorm(nn.Module):
    """A convolution without a bias, which its batch norm has."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int | None = None,
        dilation: int = 1,
    ) -> None:
        super().__init__()
        self.convolution = Convolution(inputs, outputs, kernel, stride=stride, padding=padding, dilation=dilation)
        self.norm = BatchNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x))

    def size_after(self, size: int, what: str = "convolution") -> int:
        return self.convolution.size_after(size, what)

    @property
    def window(self) -> Window:
        return self.convolution.window


def channels_last(pixels: Tensor) -> Tensor:
    """The same numbers (B, C, H, W) with the channels of a place beside each other in memory."""
    if pixels.size(1) > 1:
        return pixels.contiguous(memory_format=torch.channels_last)
    # One channel lies the same either way, but strides must say so, or convolutions go on channel by channel.
    batch, _, rows, columns = pixels.shape
    return pixels.reshape(batch, rows, columns, 1).movedim(-1, 1)
