"""How large a picture is behind a convolution or a pooling (Dumoulin & Visin 2016, relationship 15), said in numbers.

    output = ⌊(w + 2p - d (k - 1) - 1) / s⌋ + 1    width w, padding p, kernel k, dilation d, stride s

Without dilation that is ⌊(w + 2p - k) / s⌋ + 1.
"""

from __future__ import annotations

from regard.errors import RegardError


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


def same_padding(kernel: int) -> tuple[int, int]:
    """Zeros before the first row and behind the last, so that at stride 1 as many rows come out as go in.

    They are k - 1 together; an even kernel has no middle, and one more of them stands behind.
    """
    before = (kernel - 1) // 2
    return before, kernel - 1 - before


def _formula(size: int, kernel: int, stride: int, padding: int, dilation: int) -> str:
    taken = f"{kernel}" if dilation == 1 else f"{dilation}·({kernel} − 1) − 1"
    return f"⌊({size} + 2·{padding} − {taken})/{stride}⌋ + 1"


def _signed(number: int) -> str:
    return f"−{-number}" if number < 0 else str(number)


def _at_least(what: str, name: str, value: int, least: int) -> None:
    if value < least:
        raise RegardError(f"{what}: {name} is {value}; it must be {least} or more")
