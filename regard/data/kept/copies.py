"""Items worked on in order by this process and copies of it, each taking its turn: all cores are busy, and arrays come back.

Encoding is looking up words, in Python, where threads would wait for each other. On Linux a copy of this process (`fork`) has
tokenizers and mapped texts at once. Of two workers the copy does items 1, 3, 5, ... and sends its arrays through a socket; they
are taken in the order of the items, so that what is written does not depend on how many worked. A copy that fails, is killed or
is not heard of is no misfortune: its items are done here.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import IO, TypeVar

import numpy as np

from regard.threads import is_alone

Item = TypeVar("Item")
Arrays = tuple[np.ndarray, ...]
Items = Callable[[], Iterator[Item]]
Work = Callable[[Item], Arrays]

FEW = 4  # items for each worker, below which nobody is copied
LOST, LATE = 30.0, 20.0  # seconds and times the longest own item, after which nobody waits for a copy any more
HEAD = struct.Struct("=q")  # how many bytes of JSON follow
PARALLEL = "TOKENIZERS_PARALLELISM"  # the variable by which the library of tokenizers is told to use one thread


def worker_count(items: int) -> int:
    """How many processes pay for so many items: as many as torch has threads, or one where this process cannot be copied."""
    if items < 2 * FEW or sys.platform != "linux" or not is_alone():
        return 1
    import torch  # takes a second, which a look at small data need not

    return max(1, min(torch.get_num_threads(), items // FEW))


def in_order(items: Items[Item], work: Work[Item], workers: int) -> Iterator[tuple[Item, Arrays]]:
    """Each item with what `work` makes of it. Every worker goes through `items()` itself, and works on its own."""
    copies: dict[int, Copy] = {}
    longest = 0.0
    try:
        for number in range(1, workers):
            copies[number] = Copy(islice(items(), number, None, workers), work, list(copies.values()))
        for number, item in enumerate(items()):
            copy = copies.get(number % workers)
            found = None if copy is None else copy.receive(LOST + LATE * longest)
            if found is None:
                if copy is not None:
                    copies.pop(number % workers).end()
                begun = time.perf_counter()
                found = work(item)
                longest = max(longest, time.perf_counter() - begun)
            yield item, found
    finally:
        for copy in copies.values():
            copy.end()


class Copy:
    """A copy of this process that works on some items and sends their arrays, one item after the other."""

    def __init__(self, items: Iterator[Item], work: Work[Item], others: Sequence[Copy]) -> None:
        self.pipe, sends = socket.socketpair()
        with _one_thread_each(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that rest
            self.process = os.fork()
        if self.process == 0:
            for each in (self, *others):
                each.pipe.close()  # so that who sends notices that nobody is left to hear it
            _work_and_send(items, work, sends)
        sends.close()
        self._file = self.pipe.makefile("rb")

    def receive(self, seconds: float) -> Arrays | None:
        """The arrays of its next item; None if it does not send them in time."""
        self.pipe.settimeout(seconds)
        try:
            return read_arrays(self._file)
        except (OSError, EOFError):  # a time-out among them
            return None

    def end(self) -> None:
        """See to it that the process is no more."""
        self._file.close()
        self.pipe.close()
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.process, 0)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """A copy has none of the tokenizers' threads, so they must not be asked for in it."""
    before = os.environ.get(PARALLEL)
    os.environ[PARALLEL] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PARALLEL]
        else:
            os.environ[PARALLEL] = before


def _work_and_send(items: Iterator[Item], work: Work[Item], sends: socket.socket) -> None:
    """Work, in the process that is a copy; it never returns. If who copied it is gone, sending fails, and it goes, too."""
    try:
        gc.disable()  # looking for what nobody refers to would copy each page it looks at
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ[PARALLEL] = "false"
        with sends.makefile("wb") as file:
            for item in items:
                write_arrays(file, work(item))
    finally:
        os._exit(0)  # neither what is waiting to be written nor what is called at the exit is its own


def write_arrays(file: IO[bytes], arrays: Arrays) -> None:
    """Send arrays: their kinds and shapes as JSON, then their bytes."""
    about = json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode()
    file.write(HEAD.pack(len(about)) + about)
    for array in arrays:
        file.write(np.ascontiguousarray(array).tobytes())
    file.flush()


def read_arrays(file: IO[bytes]) -> Arrays:
    """The arrays that were sent; an EOFError if who sends is gone."""
    about = json.loads(_read(file, HEAD.unpack(_read(file, HEAD.size))[0]))
    found = []
    for kind, shape in about:
        dtype = np.dtype(kind)
        data = _read(file, dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
        found.append(np.frombuffer(data, dtype).reshape(shape))
    return tuple(found)


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError(f"{size:,} bytes were to come, and {len(data):,} did")
    return data
