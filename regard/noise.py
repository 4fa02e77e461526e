"""Dropout and its seed: noise for training, a pure function of a key such as (seed, step, micro-batch); none is saved.

On a CPU, `bernoulli_` takes a sixth of a training step. One random byte per element from a fast bit generator
(NumPy's SFC64), compared with a threshold, does the same job; the rate is rounded to 1/256 (0.1 becomes 26/256) and
kept values are scaled by the true keep probability, so the expectation stays exact. Other devices, and a forward
pass outside `noise(...)`, use torch's own dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Noise:
    """A stream of random bytes that depends on nothing but its key."""

    def __init__(self, *key: int) -> None:
        self.key = key
        self._bits = np.random.SFC64(np.random.SeedSequence(key))

    def bytes(self, count: int) -> Tensor:
        words = self._bits.random_raw(-(-count // 8))  # uint64
        return torch.from_numpy(words.view(np.uint8))[:count]


_current: ContextVar[Noise | None] = ContextVar("noise", default=None)


@contextmanager
def noise(*key: int) -> Iterator[None]:
    """Inside this block, dropout draws from the stream of `key` (and torch's own generator is seeded with it)."""
    seed_torch(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))
    token = _current.set(Noise(*key))
    try:
        yield
    finally:
        _current.reset(token)


class NoisePlace:
    """Where the random numbers were, and in which precision products were made, when this was written down."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        stream = _current.get()
        self.stream = None if stream is None else (stream.key, stream._bits.state)
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.autocast = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Inside this block, noise is drawn again from here on; behind it everything is as before."""
        enabled, dtype = self.autocast
        devices = [self.device] if self.cuda is not None else []
        token = _current.set(self._stream())
        try:
            with torch.random.fork_rng(devices), torch.autocast(self.device.type, dtype, enabled):
                torch.set_rng_state(self.torch)
                if self.cuda is not None:
                    torch.cuda.set_rng_state(self.cuda, self.device)
                yield
        finally:
            _current.reset(token)

    def _stream(self) -> Noise | None:
        if self.stream is None:
            return None
        key, bits = self.stream
        stream = Noise(*key)
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
