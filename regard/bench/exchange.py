"""How long an all-reduce takes here, by the size of the message, and the latency and bandwidth that explain it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.bench.hardware import Link
from regard.world import World

SIZES = tuple(2**power for power in (10, 14, 18, 20, 22, 24, 26))  # bytes: 1 KiB to 64 MiB
ENOUGH = 2**26  # bytes that are sent of each size, and no fewer than LEAST messages
LEAST, MOST = 3, 50


@dataclass(frozen=True)
class Exchange:
    """The time of an all-reduce of so many bytes."""

    size: int
    seconds: float

    def rate(self, ranks: int) -> float:
        """Bytes a second that each rank sends: 2 (n - 1)/n of the message in this time."""
        return 2 * (ranks - 1) / ranks * self.size / self.seconds


def measure(world: World, device: torch.device, sizes: Sequence[int] = SIZES) -> list[Exchange]:
    """The median time of all-reduces of each size, of the slowest rank."""
    found = []
    for size in sizes:
        message = torch.zeros(size // 4, device=device)
        count = max(LEAST, min(MOST, ENOUGH // size))
        times = sorted(_seconds(message, world) for _ in range(count + 1))[
            :count
        ]  # without the slowest, mostly the first
        found.append(Exchange(size, max(world.gather(times[len(times) // 2]))))
    return found


def _seconds(message: Tensor, world: World) -> float:
    world.wait()
    started = time.perf_counter()
    world.sum_(message)
    if message.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def fitted(found: Sequence[Exchange], ranks: int, name: str = "here") -> Link:
    """The link whose ring, 2 (n - 1)(latency + size / n / bandwidth), is nearest to what was measured, in proportion."""
    sizes, seconds = (np.array([getattr(each, key) for each in found]) for key in ("size", "seconds"))
    terms = 2 * (ranks - 1) * np.stack([np.ones_like(sizes, float), sizes / ranks], axis=1)
    latency, inverse = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(found)), rcond=None)[0]
    fastest = max(each.rate(ranks) for each in found)
    return Link(name, "measured", 1 / inverse if inverse > 0 else fastest, max(latency, 0.0), "measured")
