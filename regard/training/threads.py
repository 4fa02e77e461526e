"""How many of torch's threads do updates fastest now: found by trying, with real updates.

Several threads wait for each other after each operation. That pays for large products; small operations, as of recurrent
networks, are faster by one thread (45 s of Bahdanau's model on two quiet cores: 72 updates instead of 48), and where another
program has taken one of the cores, all wait for the thread that is not running: one thread alone is several times faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

CLEARLY = 1.1  # times faster, before another number of threads is taken
SUDDENLY = 1.5  # times slower than the fastest update with as many threads: something has changed
TRIED = 2  # updates with each number, in turns


class ThreadTrial:
    """One thread or `most`: a run tells how long each update took, and hears with how many threads to do the next one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.waiting: list[int] = []  # numbers that are still to be tried
        self.before = 0  # threads before the trial; 0: there is none now
        self.tried: dict[int, float] = {}  # seconds a token of the fastest update in this trial
        self.fastest: dict[int, float] = {}  # and in the whole run

    def took(self, threads: int, pace: float, due: bool) -> int:
        """An update with so many threads took so many seconds a token: how many the next one has. `due`: try again."""
        sudden = pace > SUDDENLY * self.fastest.get(threads, math.inf)
        self.fastest[threads] = min(pace, self.fastest.get(threads, math.inf))
        if self.before:
            self.tried[threads] = min(pace, self.tried.get(threads, math.inf))
            return self.waiting.pop(0) if self.waiting else self._end()
        if not (due or sudden):
            return threads
        other = self.most if threads == 1 else 1
        self.before, self.tried, self.waiting = threads, {}, [other, threads] * TRIED
        return self.waiting.pop(0)

    def _end(self) -> int:
        now, self.before = self.before, 0
        best = min(self.tried, key=self.tried.__getitem__)
        return best if self.tried[now] > CLEARLY * self.tried[best] else now


def seconds_by_threads(update: Callable[[], object]) -> dict[int, float]:
    """The time of an update with one thread and with all, the fastest of several tried in turns."""
    most = torch.get_num_threads()
    took = {most: math.inf, 1: math.inf}
    try:
        for threads in [*took] * TRIED:
            torch.set_num_threads(threads)
            began = time.monotonic()
            update()
            took[threads] = min(took[threads], time.monotonic() - began)
    finally:
        torch.set_num_threads(most)
    return took


@contextmanager
def fastest_threads(update: Callable[[], object]) -> Iterator[None]:
    """Compute with as many threads as do this update fastest, so that speed is measured as a timed run learns."""
    most, took = torch.get_num_threads(), seconds_by_threads(update)
    torch.set_num_threads(min(took, key=took.__getitem__))
    try:
        yield
    finally:
        torch.set_num_threads(most)
