"""Groups of sources searched side by side: by this process, and by copies of it where there is enough to do.

The operations of a step are small: threads that share one operation gain little, and Python runs one of several threads at
a time. Processes do not hold each other up. On Linux a copy of this process (`fork`) has the model at once, without
reading or copying it, and costs some milliseconds. So the process that was asked begins by itself, and only work that lasts
is shared (`HIRE_AFTER`). Each process takes the next group when it is done with one. Which sources make a group does not
depend on the number of workers, so neither do the results.

What a helper found comes back as JSON through a socket. A helper that fails, is killed or is not heard of is no misfortune:
its group is searched here, and an error is then raised here as if there had been no helper.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from functools import partial
from typing import Protocol

import torch

from regard.attention import channel
from regard.decode.ranking import Hypothesis
from regard.files import JSON
from regard.shards import Elsewhere, Shards, cut
from regard.threads import is_alone

HIRE_AFTER = 0.05  # seconds of work: twice what it took until a copy was at work (26 ms, on a busy machine)
MANY = 3  # groups for each worker that last in any case
LOST, LATE = 5.0, 10.0  # seconds and times the longest own search, after which nobody waits for a helper any more
PATIENCE = 0.05  # seconds until `watch` is called again while nothing but helpers work
PART = 2**16  # bytes read at once

Found = list[list[Hypothesis]]
HEAD = struct.Struct("=qq")  # the number of a group, and how many bytes follow


class SearchGroup(Protocol):
    """Search the sources of one group; `watch` is called after each step."""

    def __call__(self, group: list[int], watch: Callable[[], None], /) -> Found: ...


def worker_count(device: torch.device) -> int:
    """How many groups to search at once: as many as torch has threads.

    One where someone looks on, where a device of its own computes, or where this process cannot be copied: not on Linux,
    or with other threads that compute.
    """
    alone = channel.blocks or device.type != "cpu" or sys.platform != "linux" or not is_alone()
    return 1 if alone else torch.get_num_threads()


def side_by_side(
    groups: Sequence[list[int]], search: SearchGroup, workers: int, watch: Callable[[], None]
) -> Iterator[tuple[list[int], Found]]:
    """Each group with what `search` finds for it, as they are done. `watch` is called often; what it raises ends all.

    One source alone is searched on one thread: two that share such small operations wait for each other (a sentence took
    34 ms on one and 53 on two, each on an idle machine).
    """
    team = Team(groups, search, min(workers, len(groups)), watch)
    try:
        if workers > 1 and [*map(len, groups)] == [1]:
            torch.set_num_threads(1)
        yield from team.work()
    finally:
        team.dismiss()


class Spread(Protocol):
    """A way to have groups searched: `side_by_side`, or in the shards of several processes."""

    def __call__(
        self, groups: Sequence[list[int]], search: SearchGroup, workers: int, watch: Callable[[], None], /
    ) -> Iterator[tuple[list[int], Found]]: ...


def spread_over(shards: Shards) -> Spread:
    """Have groups searched in shards: neighbours, as many as make one, whole groups always, so that each is as ever."""

    def spread(
        groups: Sequence[list[int]], search: SearchGroup, workers: int, watch: Callable[[], None]
    ) -> Iterator[tuple[list[int], Found]]:
        sizes, of_shard = cut([len(group) for group in groups]), list[Sequence[list[int]]]()
        for shard in sizes:
            start = sum(map(len, of_shard))
            of_shard.append(groups[start : start + len(shard)])

        def make(number: int) -> JSON:
            found = side_by_side(of_shard[number], search, workers, watch)
            return [[group, packed(each).decode()] for group, each in found]

        if not shards.work(len(of_shard), make):
            raise Elsewhere
        for number in range(len(of_shard)):
            for group, found in shards.read(number):
                yield group, unpacked(found)

    return spread


class Team:
    """This process and those that help it."""

    def __init__(
        self, groups: Sequence[list[int]], search: SearchGroup, workers: int, watch: Callable[[], None]
    ) -> None:
        self.groups, self.search, self.workers, self.watch = groups, search, workers, watch
        self.left: list[int] = list(range(len(groups)))[::-1]  # groups that nobody has begun, the next one last
        self.tickets: int | None = None  # a file with them, once there are helpers
        self.helpers: list[Helper] = []
        self.arrived: dict[int, Found] = {}  # what helpers have found and nobody has taken
        self.begun, self.threads = time.perf_counter(), torch.get_num_threads()
        self.longest, self.waited = 0.0, 0.0  # seconds of one search here, and since the last was done

    def work(self) -> Iterator[tuple[list[int], Found]]:
        """Search here what no helper searches; give what any has found."""
        missing = set(range(len(self.groups)))
        if self.workers > 1 and len(missing) >= MANY * self.workers:
            self._hire()
        while missing:
            number = self._next()
            if number is None and not self.helpers:
                number = min(missing)  # of a helper that failed
            if number is None:
                self._wait()
            else:
                begun = time.perf_counter()
                with uncollected():
                    self.arrived[number] = self.search(self.groups[number], self._between_steps)
                self.longest = max(self.longest, time.perf_counter() - begun)
            for each in [*self.arrived]:
                missing.discard(each)
                yield self.groups[each], self.arrived.pop(each)

    def _wait(self) -> None:
        """Hear from helpers; those that take far longer than this process did are given up."""
        begun = time.perf_counter()
        self._receive(PATIENCE)
        self.waited = 0.0 if self.arrived else self.waited + time.perf_counter() - begun
        if self.waited > LOST + LATE * self.longest:
            for helper in self.helpers:
                helper.end()
            self.helpers.clear()

    def _next(self) -> int | None:
        if self.tickets is not None:
            return _ticket(self.tickets)
        return self.left.pop() if self.left else None

    def _between_steps(self) -> None:
        """Hire helpers once the work has lasted; hear from those there are."""
        if self.helpers:
            self._receive(0)
            return
        self.watch()
        if self.workers > 1 and self.left and time.perf_counter() - self.begun > HIRE_AFTER:
            self._hire()

    def _hire(self) -> None:
        count = min(self.workers - 1, len(self.left))
        self.tickets = os.memfd_create("groups")
        os.write(self.tickets, b"".join(each.to_bytes(8, "little") for each in reversed(self.left)))
        os.lseek(self.tickets, 0, os.SEEK_SET)
        self.left.clear()
        torch.set_num_threads(1)
        for _ in range(count):
            self.helpers.append(Helper(self.groups, self.search, self.tickets))

    def _receive(self, seconds: float) -> None:
        """Take what helpers have sent, waiting at most so long for it; those that are through leave."""
        self.watch()
        with selectors.DefaultSelector() as selector:
            for helper in self.helpers:
                selector.register(helper.pipe, selectors.EVENT_READ, helper)
            ready: list[Helper] = [key.data for key, _ in selector.select(seconds)]
        for helper in ready:
            for number, found in helper.receive():
                self.arrived[number] = found
            if helper.through:
                self.helpers.remove(helper)

    def dismiss(self) -> None:
        """End all helpers, also in the midst of their work."""
        for helper in self.helpers:
            helper.end()
        if self.tickets is not None:
            os.close(self.tickets)
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside this block nobody looks for garbage: a search makes none that refers to itself, and a look through all that a
    process has imported takes as long as many steps (5% of the time of a beam)."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Helper:
    """A copy of this process that takes tickets, searches their groups and sends what it found."""

    def __init__(self, groups: Sequence[list[int]], search: SearchGroup, tickets: int) -> None:
        self.pipe, sends = socket.socketpair()  # of some 200 kB; what 128 sources give is 70
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own threads, which rest; see `_help`
            self.process = os.fork()
        if self.process == 0:
            _help(groups, search, tickets, sends)
        sends.close()
        self.pipe.setblocking(False)
        self.through, self._bytes = False, bytearray()

    def receive(self) -> Iterator[tuple[int, Found]]:
        """The groups that have arrived in whole."""
        while True:
            try:
                part = self.pipe.recv(PART)
            except BlockingIOError:
                break
            if not part:
                self.end()
                break
            self._bytes += part
        while len(self._bytes) >= HEAD.size:
            number, size = HEAD.unpack_from(self._bytes)
            if len(self._bytes) < HEAD.size + size:
                break
            yield number, unpacked(bytes(self._bytes[HEAD.size : HEAD.size + size]))
            del self._bytes[: HEAD.size + size]

    def end(self) -> None:
        """See to it that the process is no more."""
        if not self.through:
            self.through = True
            self.pipe.close()
            with suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.process, 0)


def _help(groups: Sequence[list[int]], search: SearchGroup, tickets: int, sends: socket.socket) -> None:
    """Help, in the process that is a copy; it never returns.

    Torch's threads are not copied, so it must never ask for them (as in torch's own loaders of data). Who began it may be
    gone, or may have been told to stop: then it goes, too.
    """
    try:
        gc.disable()  # looking for what nobody refers to would copy each page it looks at
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        torch.set_num_threads(1)
        check_parent = partial(_check_parent, os.getppid())
        while (number := _ticket(tickets)) is not None:
            message = packed(search(groups[number], check_parent))
            sends.sendall(HEAD.pack(number, len(message)) + message)
    finally:
        os._exit(0)  # neither what is waiting to be written nor what is called at the exit is its own


def _check_parent(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)


def _ticket(tickets: int) -> int | None:
    """The next group that nobody has begun. Copies of a process share the place in a file: each number is read once."""
    number = os.read(tickets, 8)
    return int.from_bytes(number, "little") if number else None


def packed(found: Found) -> bytes:
    """Hypotheses as JSON, whose numbers are exact."""
    return json.dumps([[astuple(each) for each in of_source] for of_source in found]).encode()


def unpacked(message: bytes | str) -> Found:
    return [
        [Hypothesis(tuple(ids), score, total, tuple(parts), finished) for ids, score, total, parts, finished in each]
        for each in json.loads(message)
    ]
