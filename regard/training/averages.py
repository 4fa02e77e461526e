"""Averages of weights: an exponential moving average, and the mean of the last N snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.tensors import read_tensors, weights_of


class MovingAverage:
    """ema ← decay · ema + (1 - decay) · weights after every update; younger than 1/(1 - decay) updates it warms up."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, step / (step + 9))  # early on the start is forgotten faster
        for name, tensor in weights_of(model).items():
            if tensor.is_floating_point():
                self.tensors[name].lerp_(tensor.to(self.tensors[name].dtype), 1 - decay)
            else:  # a count, such as which random features are in use, has no mean
                self.tensors[name].copy_(tensor)


@contextmanager
def weights_in_place(model: nn.Module, tensors: dict[str, Tensor] | None) -> Iterator[None]:
    """Inside this block the model has these weights (None: its own); afterwards its own again, bit for bit."""
    if tensors is None:
        yield
        return
    own = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}
    set_weights(model, tensors)
    try:
        yield
    finally:
        set_weights(model, own)


@torch.no_grad()
def set_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, tensor in weights_of(model).items():
        tensor.copy_(tensors[name])


def mean_of(files: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the tensors in several files, summed in float64."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for file in files:
        for name, tensor in read_tensors(file).items():
            kinds[name] = tensor.dtype
            adds = name in total and tensor.is_floating_point()  # of counts the last one holds
            total[name] = total[name] + tensor.double() if adds else tensor.double()
    counts = {name: len(files) if kind.is_floating_point else 1 for name, kind in kinds.items()}
    return {name: (tensor / counts[name]).to(kinds[name]) for name, tensor in total.items()}
