"""Before the first update: how large, how long, how much memory, from a few batches that change nothing."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.noise import noise

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Forecast:
    """What to expect of a run."""

    parameters: int
    padding_share: float
    speed: float  # units of the loss a second
    seconds_per_step: float
    peak_memory: int  # bytes
    unit: str = "tokens"

    def sentence(self, steps: int, limit: float | None) -> str:
        total = self.seconds_per_step * steps
        span = duration(total) if limit is None or total < limit else f"{duration(limit)} (the time limit)"
        return (
            f"{self.parameters:,} parameters · {self.padding_share:.1%} padding · about "
            f"{self.speed:,.0f} {self.unit}/s · at most {span} for {steps:,} steps · "
            f"{self.peak_memory / 2**30:.1f} GiB of memory"
        )


def forecast(model: nn.Module, batches: Any, accumulate: int, unit: str = "tokens", tries: int = 3) -> Forecast:
    """Time forward and backward passes over the first batches. Weights and statistics do not change, nor gradients stay."""
    times, counts = [], []
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for index in range(min(tries, batches.count(0))):
        batch = batches.get(0, index).to(next(model.parameters()).device)
        started = time.perf_counter()
        with noise(0, index):
            model(batch).objective(batch.counts).backward()
        times.append(time.perf_counter() - started)
        counts.append(batch.counts["loss"])
        model.zero_grad(set_to_none=True)
    for name, buffer in model.named_buffers():  # running statistics
        buffer.copy_(before[name])
    rate = sum(counts[1:] or counts) / sum(times[1:] or times)  # the first batch also warms up
    typical = sum(times[1:] or times) / len(times[1:] or times)
    size = sum(p.numel() for p in model.parameters())
    return Forecast(size, batches.padding_share(), rate, typical * accumulate, peak_memory(), unit)


def peak_memory() -> int:
    """The most memory this process has had, in bytes (on a GPU, the most allocated there); 0 where nobody tells."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if resource is None:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def duration(seconds: float) -> str:
    """A span of time as a person says it: 45 s, 12 min, 1 h 30 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
