"""How many of torch's threads are fastest now: found by trying, with real updates of a run and real steps of a search.

Several threads wait for each other after each operation. That pays for large products; small operations, as of recurrent
networks, are faster by one thread (45 s of Bahdanau's model on two quiet cores: 72 updates instead of 48), and where another
program has taken one of the cores, all wait for the thread that is not running: one thread alone is several times faster.
An engine beside the threads of its callers serves 149 texts a second by one thread and 121 by two.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

CLEARLY = 1.1  # times faster, before another number of threads is taken
SUDDENLY = 1.5  # times slower than the fastest update with as many threads: something has changed
TRIED = 2  # updates with each number, in turns
AGAIN = 500  # steps of one size after which another trial is due


class ThreadTrial:
    """One thread or `most`: a run tells how long each update took, and hears with how many threads to do the next one.

    `tried`: how often each number is, in turns. `suddenly`: how many times slower than the fastest an update is after which
    both are tried again.
    """

    def __init__(self, most: int, tried: int = TRIED, suddenly: float = SUDDENLY) -> None:
        self.most, self.times, self.suddenly = most, tried, suddenly
        self.waiting: list[int] = []  # numbers that are still to be tried
        self.before = 0  # threads before the trial; 0: there is none now
        self.tried: dict[int, float] = {}  # seconds a token of the fastest update in this trial
        self.fastest: dict[int, float] = {}  # and in the whole run

    def took(self, threads: int, pace: float, due: bool) -> int:
        """An update with so many threads took so many seconds a token: how many the next one has. `due`: try again."""
        sudden = pace > self.suddenly * self.fastest.get(threads, math.inf)
        self.fastest[threads] = min(pace, self.fastest.get(threads, math.inf))
        if self.before:
            self.tried[threads] = min(pace, self.tried.get(threads, math.inf))
            return self.waiting.pop(0) if self.waiting else self._end()
        if not (due or sudden):
            return threads
        other = self.most if threads == 1 else 1
        self.before, self.tried, self.waiting = threads, {}, [other, threads] * self.times
        return self.waiting.pop(0)

    def _end(self) -> int:
        now, self.before = self.before, 0
        best = min(self.tried, key=self.tried.__getitem__)
        return best if self.tried[now] > CLEARLY * self.tried[best] else now


class StepThreads:
    """How many threads steps of different sizes have: a trial for each size, doubled from one to the next."""

    TRIED = 6  # a step takes milliseconds, and callers disturb it

    def __init__(self) -> None:
        self.most = torch.get_num_threads()
        self.trials: dict[int, ThreadTrial] = {}
        self.now: dict[int, int] = {}  # threads
        self.done: Counter[int] = Counter()  # steps

    @contextmanager
    def step(self, rows: int) -> Iterator[None]:
        """Do a step of so many rows in here."""
        if self.most == 1:
            yield
            return
        size = rows.bit_length()
        threads = self.now.setdefault(size, self.most)
        torch.set_num_threads(threads)
        began = time.perf_counter()
        try:
            yield
        finally:
            torch.set_num_threads(self.most)
        self._took(size, (time.perf_counter() - began) / rows)

    def _took(self, size: int, pace: float) -> None:
        trial = self.trials.setdefault(size, ThreadTrial(self.most, self.TRIED, math.inf))
        self.now[size] = trial.took(
            self.now[size], pace, due=self.done[size] % AGAIN == 1
        )  # the first is not like the rest
        self.done[size] += 1


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
