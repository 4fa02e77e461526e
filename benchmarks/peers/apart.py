"""A contender in a process of its own: it reads questions line by line, and writes answers and how long they took.

A tiny mode, whose figures nobody reads, has only its first contender apart: a process begins with seconds of imports.

In one process, CTranslate2's setting of threads became torch's, and whatever one loads is counted as memory of all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LOOK = 0.02  # seconds between two looks at a process' memory


class Apart:
    """A process that was started with words after `python`, and answers."""

    def __init__(self, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, *question: Any) -> tuple[Any, float]:
        """The answer, and its seconds."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        found, seconds = json.loads(self.process.stdout.readline())
        return found, seconds

    def watched(self, *question: Any) -> tuple[Any, int]:
        """The answer, and the greatest memory in bytes meanwhile. Looking slows it down."""
        greatest, done = 0, threading.Event()

        def look() -> None:
            nonlocal greatest
            while not done.wait(LOOK):
                greatest = max(greatest, memory_of(self.process.pid))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            return self(*question)[0], greatest
        finally:
            done.set()
            watcher.join()

    def end(self) -> None:
        self.process.communicate()


class Here:
    """A contender of a tiny mode in this process, asked as one apart is."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def __call__(self, *question: Any) -> tuple[Any, float]:
        begun = time.perf_counter()
        return self.run(*question), time.perf_counter() - begun

    def watched(self, *question: Any) -> tuple[Any, int]:
        return self(*question)[0], 0

    def end(self) -> None:
        pass


def answer(run: Callable[..., Any], clock: Callable[[], float] = time.perf_counter) -> None:
    """Be a contender: answer the questions that stand in the lines of the standard input, with the seconds by a clock."""
    for line in sys.stdin:
        question = json.loads(line)
        begun = clock()
        found = run(*question)
        print(json.dumps([found, clock() - begun]), flush=True)


def memory_of(process: int) -> int:
    """Bytes of a process and of those that it began; a page that n of them share counts 1 / n in each."""
    place = Path("/proc") / str(process)
    try:
        own = next(line for line in (place / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
        children = [each for task in (place / "task").iterdir() for each in (task / "children").read_text().split()]
    except (OSError, StopIteration):  # it has just ended
        return 0
    return int(own.split()[1]) * 1024 + sum(memory_of(int(each)) for each in children)
