"""Seeded noise for training, a pure function of a key such as (seed, step, micro-batch): nothing has to be saved.

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
    kept = stream.bytes(x.numel()) >= threshold
    return kept.to(x.dtype).mul_(256 / (256 - threshold)).view(x.shape)


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
