"""A convolution over a row of numbers, window by window (LeCun et al. 1989), with padding, stride and dilation.

out_i = Σ_j kernel_j x_(i s - p + j d),   ⌊(w + 2p - d (k - 1) - 1) / s⌋ + 1 windows (Dumoulin & Visin 2016, relation 15)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.errors import UsageError
from regard.look.walk.examples.given import check_names, read_count, read_vector
from regard.look.walk.steps import Array, Numbers, Step, Walk, WorkedLine, column, counted, named_apart, sum_line

X = (1, 3, 2, 0, 4, 1, 5)
KERNEL = (1, 0, -1)
SETTINGS = ((1, 0, 1), (2, 0, 1), (2, 1, 1), (1, 1, 1), (1, 2, 2))  # stride, padding, dilation
KEYS = ("x", "kernel", "stride", "padding", "dilation")
POOL = 2


@dataclass(frozen=True, eq=False)
class ConvolutionNumbers:
    """A row of numbers, a kernel, and how it slides."""

    x: Array  # (w,)
    kernel: Array  # (k,)
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def padded(self) -> Array:
        return np.pad(self.x, self.padding)

    @property
    def count(self) -> int:
        """Windows: ⌊(w + 2p - d (k - 1) - 1) / s⌋ + 1."""
        span = self.dilation * (len(self.kernel) - 1) + 1
        return (len(self.padded) - span) // self.stride + 1

    @property
    def places(self) -> Array:
        """Where each window stands in the padded row: (windows, k)."""
        return np.arange(self.count)[:, None] * self.stride + np.arange(len(self.kernel)) * self.dilation

    @property
    def windows(self) -> Array:
        """The numbers under the kernel in each window: (windows, k)."""
        return self.padded[self.places]

    @property
    def out(self) -> Array:
        return self.windows @ self.kernel

    @property
    def name(self) -> str:
        return f"s{self.stride} p{self.padding} d{self.dilation}"


def convolution_walk(query: int | str | None = None) -> Walk:
    """One row and one kernel, slid in five ways; then pooled."""
    _check_query(query)
    each = [ConvolutionNumbers(np.array(X, float), np.array(KERNEL, float), *setting) for setting in SETTINGS]
    steps = [_enter(each[0])]
    for numbers in each:
        steps += [named_apart(step, numbers.name) for step in slide_steps(numbers)]
    steps += [_sizes(each), _pool(each[0])]
    summary = (
        "Seven numbers and a kernel of three. The kernel is the same at every place: what differs is where it stands."
    )
    return Walk("A convolution, window by window", summary, tuple(steps))


def read_convolution(values: Mapping[str, object], name: str, query: int | str | None) -> Walk:
    """A person's own row and kernel: {"x": [...], "kernel": [...], "stride": 1, "padding": 0, "dilation": 1}."""
    check_names(values, KEYS, ("x", "kernel"), name)
    _check_query(query)
    x, kernel = (read_vector(values[key], f"{name}: {key}") for key in ("x", "kernel"))
    stride, padding, dilation = (
        read_count(values.get(key, default), f"{name}: {key}", least)
        for key, default, least in (("stride", 1, 1), ("padding", 0, 0), ("dilation", 1, 1))
    )
    numbers = ConvolutionNumbers(x, kernel, stride, padding, dilation)
    span = dilation * (len(kernel) - 1) + 1
    if span > len(numbers.padded):
        raise UsageError(
            f"{name}: the kernel spans {span} places, and x with its padding has {len(numbers.padded)}",
            "give more padding, a smaller kernel or less dilation",
        )
    steps = (_enter(numbers), *slide_steps(numbers))
    return Walk("A convolution, window by window", f"{counted(len(x), 'number')}, a kernel of {len(kernel)}.", steps)


def _check_query(query: int | str | None) -> None:
    if query is not None:
        raise UsageError("a convolution looks from fixed places and has no query", "leave out the query")


def _enter(numbers: ConvolutionNumbers) -> Step:
    text = (
        "A row of numbers, and the kernel that slides over it. This one takes right from left: it finds where the row falls "
        "or rises."
    )
    if tuple(numbers.kernel) != KERNEL:
        text = "A row of numbers, and the kernel that slides over it."
    return Step(
        "A row and a kernel",
        "x,  kernel",
        text,
        (Numbers("x", numbers.x, ("x",)), Numbers("kernel", numbers.kernel, ("kernel",))),
    )


def slide_steps(numbers: ConvolutionNumbers) -> list[Step]:
    """How many windows there are, and each of them."""
    width, k = len(numbers.x), len(numbers.kernel)
    sizes = (float(width), float(numbers.padding), float(numbers.dilation), float(k), float(numbers.stride))
    line = WorkedLine(
        "floor(({} + 2 · {} - {} · ({} - 1) - 1) / {}) + 1 = {}", (*sizes, float(numbers.count)), ("windows", 0, 0)
    )
    arrays = [Numbers("windows", np.array([[numbers.count]]), ("",), ("windows",), shading="plain")]
    told = f"The kernel moves {counted(numbers.stride, 'place')} at a time"
    if numbers.padding:
        told += f", over the row with {counted(numbers.padding, 'zero')} at each end"
        names = tuple(
            "0" if not 0 <= place < width else f"x_{place}"
            for place in range(-numbers.padding, width + numbers.padding)
        )
        arrays.append(
            Numbers("padded x", numbers.padded, ("padded",), tuple(f"{n}: {each}" for n, each in enumerate(names)))
        )
    if numbers.dilation > 1:
        span = numbers.dilation * (k - 1) + 1
        told += f"; its numbers stand {numbers.dilation} apart, so that {k} of them span {span} places"
    keeps = (
        f" As many come out as went in: {width}."
        if numbers.count == width
        else f" {width} go in, {numbers.count} come out."
    )
    title = f"Stride {numbers.stride}, padding {numbers.padding}, dilation {numbers.dilation}"
    size = Step(
        f"{title}: how many windows", "⌊(w + 2p - d (k - 1) - 1) / s⌋ + 1", told + "." + keeps, tuple(arrays), (line,)
    )
    return [size, _windows(numbers, title)]


def _windows(numbers: ConvolutionNumbers, title: str) -> Step:
    places = numbers.places - numbers.padding
    rows = tuple(f"{n}: {' '.join(map(str, row))}" for n, row in enumerate(places.tolist()))
    names = tuple(f"· {weight:g}" for weight in numbers.kernel)
    arrays = (
        Numbers("under the kernel", numbers.windows, rows, names),
        Numbers("products", numbers.windows * numbers.kernel, rows, names, beside=True),
        column("out", numbers.out, rows, beside=True),
    )
    lines = tuple(
        sum_line(f"out_{n}", numbers.windows[n], numbers.kernel, ("out", n, 0)) for n in range(min(2, numbers.count))
    )
    text = (
        "Each row is one window: its number, and the places of x that it covers (those below 0 or behind the end are "
        "padding). Number times number, then the sum."
    )
    return Step(f"{title}: window by window", "out_i = Σ_j kernel_j x_(i s - p + j d)", text, arrays, lines)


def _sizes(each: list[ConvolutionNumbers]) -> Step:
    columns = ("w", "k", "stride", "padding", "dilation", "out")
    values = [[len(n.x), len(n.kernel), n.stride, n.padding, n.dilation, n.count] for n in each]
    text = (
        "A stride of 2 without padding leaves 3 of 7, with one zero at each end 4; one zero at each end and a stride of 1 keep "
        "the width, as in VGG (Simonyan & Zisserman 2015); two zeros do so for a dilation of 2."
    )
    return Step(
        "Sizes side by side",
        "⌊(w + 2p - d (k - 1) - 1) / s⌋ + 1",
        text,
        (Numbers("sizes", np.array(values, float), tuple(n.name for n in each), columns, shading="plain"),),
    )


def _pool(numbers: ConvolutionNumbers) -> Step:
    """Pooling: the greatest, or the mean, of windows that do not overlap."""
    pairs = ConvolutionNumbers(numbers.x, np.ones(POOL), stride=POOL).windows  # (windows, 2)
    rows = tuple(f"window {n}" for n in range(len(pairs)))
    best, first = pairs.argmax(axis=1), pairs[0]
    gradient = np.eye(POOL)[best]
    arrays = (
        Numbers("pairs", pairs, rows),
        column("max", pairs.max(axis=1), rows, beside=True),
        column("mean", pairs.mean(axis=1), rows, beside=True),
        Numbers("gradient of max", gradient, rows, shading="weight"),
        Numbers("gradient of mean", np.full_like(pairs, 1 / POOL), rows, shading="weight", beside=True),
    )
    line = WorkedLine(
        "({} + {}) / {} = {}", (float(first[0]), float(first[1]), float(POOL), float(first.mean())), ("mean", 0, 0)
    )
    text = (
        "Two neighbours become one number: the greatest or their mean. The gradient of the maximum goes to the greatest "
        "alone, that of the mean to both alike."
    )
    return Step("Pooling", "max(x_2i, x_2i+1)   or   (x_2i + x_2i+1) / 2", text, arrays, (line,))
