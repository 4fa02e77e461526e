"""Dropout and its seed: noise for training, a pure function of a key such as (seed, step, micro-batch); none is saved.

On a CPU, `bernoulli_` takes a sixth of a training step. One random byte per element from a fast bit generator
(NumPy's PCG64DXSM), compared with a threshold, does the same job; the rate is rounded to 1/256 (0.1 becomes 26/256) and
kept values are scaled by the true keep probability, so the expectation stays exact. Other devices, and a forward
pass outside `noise(...)`, use torch's own dropout.

Where a batch is cut over several processes, each draws for its rows what one process would draw for them, and jumps over
what belongs to the others: the generator can. So noise is for tensors whose first axis is the rows of the batch (or the rows
and what follows them, merged); of any other layout who calls says where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class RowsOf:
    """Where the rows that are here stand in a whole batch."""

    first: int
    rows: int
    total: int


@dataclass(frozen=True, eq=False)
class Picked:
    """Rows that were picked of `of`, which may themselves be a part of a whole batch."""

    rows: Tensor  # (N,)
    of: int
    within: RowsOf | None = None


Place: TypeAlias = RowsOf | Picked | None  # of the rows with which tensors begin; None: they are all there


GENERATOR = "PCG64DXSM"  # NumPy's, which draws as fast as any, and jumps


class Noise:
    """A stream of random bytes that depends on nothing but its key; `place`: our rows among those of the whole batch."""

    def __init__(self, *key: int, place: Place = None) -> None:
        self.key, self.place = key, place
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence(key))

    def bytes(self, count: int) -> Tensor:
        """The next bytes of the stream, for a tensor of so many elements that begins with our rows."""
        return self._of(self.place, count)

    def _of(self, place: Place, count: int) -> Tensor:
        if place is None or not count:
            return _bytes(self._bits, 0, count)
        each = _each(count, place)
        if isinstance(place, Picked):
            return self._of(place.within, each * place.of).view(place.of, each)[place.rows].flatten()
        start, total = each * place.first, each * place.total
        before, behind = start // 8, -(-(start + count) // 8)  # words
        self._bits.advance(before)
        found = _bytes(self._bits, start % 8, count)
        self._bits.advance(-(-total // 8) - behind)
        return found

    def branch(self) -> int:
        """A number for the key of another stream, which all parts of the batch have in common."""
        return int(self._bits.random_raw())


def _each(length: int, place: RowsOf | Picked) -> int:
    """How many elements of an axis of `length` belong to one row."""
    rows = place.rows if isinstance(place, RowsOf) else len(place.rows)
    each, rest = divmod(length, rows)
    assert not rest, f"an axis of {length} does not begin with {rows} rows"
    return each


def _bytes(bits: np.random.PCG64DXSM, skip: int, count: int) -> Tensor:
    words = bits.random_raw(-(-(skip + count) // 8))  # uint64
    return torch.from_numpy(words.view(np.uint8))[skip : skip + count]


_current: ContextVar[Noise | None] = ContextVar("noise", default=None)


@contextmanager
def noise(*key: int, place: Place = None) -> Iterator[None]:
    """Inside this block, dropout draws from the stream of `key` (and torch's own generator is seeded with it).

    `place`: the batch is a part of a whole one, whose noise its rows have.
    """
    number = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
    seed_torch(number)
    if isinstance(place, RowsOf) and torch.cuda.is_available():
        torch.cuda.manual_seed(number + place.first)  # there dropout is torch's own, and must not be equal in all parts
    with _drawing_from(Noise(*key, place=place)):
        yield


@contextmanager
def _drawing_from(stream: Noise | None) -> Iterator[None]:
    token = _current.set(stream)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def rows_are(place: Place) -> Iterator[None]:
    """Inside this block, tensors begin with other rows than those of the batch, such as its pictures; None: nothing changes."""
    stream = _current.get()
    if stream is None or place is None:
        yield
        return
    before, stream.place = stream.place, place
    try:
        yield
    finally:
        stream.place = before


def branch_of_noise() -> int | None:
    """A number for `of_branch`; None where there is no noise."""
    stream = _current.get()
    return None if stream is None else stream.branch()


@contextmanager
def of_branch(branch: int | None, number: int, rows: Tensor, of: int) -> Iterator[None]:
    """Inside this block, tensors begin with `rows` picked from `of`, and noise is from stream `number` of a branch.

    Another part of the batch may pick other rows, or none: the noise behind this block is the same.
    """
    stream = _current.get()
    if stream is None or branch is None:
        yield
        return
    assert not isinstance(stream.place, Picked)
    place = Picked(rows, of, _merged(stream.place, of))
    with _drawing_from(Noise(*stream.key, branch, number, place=place)):
        yield


def _merged(place: RowsOf | None, length: int) -> RowsOf | None:
    """The place of the elements of an axis that begins with our rows."""
    if place is None:
        return None
    each = _each(length, place)
    return RowsOf(each * place.first, length, each * place.total)


def for_rows(draw: Callable[..., Tensor], *shape: int) -> Tensor:
    """`draw(*shape)` of torch's own generator, whose first axis is our rows: what they have in a draw for the whole batch."""
    stream = _current.get()
    return _drawn(None if stream is None else stream.place, draw, *shape)


def _drawn(place: Place, draw: Callable[..., Tensor], length: int, *rest: int) -> Tensor:
    if place is None:
        return draw(length, *rest)
    each = _each(length, place)
    if isinstance(place, Picked):
        found = _drawn(place.within, draw, each * place.of, *rest)
        return found.unflatten(0, (place.of, each))[place.rows].flatten(0, 1)
    return draw(each * place.total, *rest)[each * place.first :][:length]


class NoisePlace:
    """Where the random numbers were, and in which precision products were made, when this was written down."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        stream = _current.get()
        self.stream = None if stream is None else (stream.key, stream.place, stream._bits.state)
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.autocast = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Inside this block, noise is drawn again from here on; behind it everything is as before."""
        enabled, dtype = self.autocast
        devices = [self.device] if self.cuda is not None else []
        with (
            _drawing_from(self._stream()),
            torch.random.fork_rng(devices),
            torch.autocast(self.device.type, dtype, enabled),
        ):
            torch.set_rng_state(self.torch)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield

    def _stream(self) -> Noise | None:
        if self.stream is None:
            return None
        key, place, bits = self.stream
        stream = Noise(*key, place=place)
        stream._bits.state = bits
        return stream


def step_of_training() -> int | None:
    """The number of the step that is being computed; None outside training."""
    stream = _current.get()
    return stream.key[1] if stream is not None and len(stream.key) > 1 else None


def seed_torch(number: int) -> None:
    """`torch.manual_seed` without its look for devices that this machine has not, which costs most of a millisecond."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


def dropout(x: Tensor, rate: float) -> Tensor:
    """Zero each element with probability `rate`, scale the rest so that the expectation stays (Srivastava 2014)."""
    if rate == 0.0:
        return x
    stream = _current.get()
    if stream is None or x.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.nn.functional.dropout(x, rate)
    return _ByteDropout.apply(x, keep_mask(stream, x, rate))


def add_dropped(x: Tensor, y: Tensor, rate: float) -> Tensor:
    """x + dropout(y): the residual connection, in one pass over memory."""
    y = y.to(x.dtype)  # under autocast the residual stream stays in float32
    if rate == 0.0:
        return x + y
    stream = _current.get()
    if stream is None or x.device.type != "cpu" or torch.compiler.is_compiling():
        return x + torch.nn.functional.dropout(y, rate)
    return _ByteDropoutAdd.apply(x, y, keep_mask(stream, y, rate))


def keep_mask(stream: Noise, x: Tensor, rate: float) -> Tensor:
    """Zero where dropped, 1 / (true keep probability) where kept, with the shape and type of `x`."""
    threshold = min(255, max(1, round(rate * 256)))
    kept = torch.empty(x.numel(), dtype=x.dtype)
    torch.ge(stream.bytes(x.numel()), threshold, out=kept)  # numbers at once: a mask first would be two passes more
    return kept.mul_(256 / (256 - threshold)).view(x.shape)


class _ByteDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor) -> Tensor:
        ctx.save_for_backward(keep)
        return x * keep

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradients[0] * keep, None


class _ByteDropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, keep: Tensor) -> Tensor:
        ctx.save_for_backward(keep)
        return torch.addcmul(x, y, keep)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradients[0], gradients[0] * keep, None
