"""Computing for requests: in threads, never in the event loop; within a queue and a deadline; not for a client that left."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from regard.errors import Cancelled
from regard.studio.config import Limits
from regard.studio.refusals import Refusal, full, too_late
from regard.studio.visit import Visit

T = TypeVar("T")


def gone() -> Refusal:
    return Refusal(499, "the client has left")


@dataclass(eq=False)
class Asked:
    """Something that is computed for a request, as long as someone waits for it."""

    deadline: float  # of time.monotonic
    stop: threading.Event = field(default_factory=threading.Event)

    def cancelled(self) -> bool:
        """Whether nobody wants it any more: predictors ask between steps."""
        return self.stop.is_set() or time.monotonic() > self.deadline


class Work:
    """A few threads that compute, many that wait, and how many requests there are for both."""

    def __init__(self, limits: Limits, threads: int) -> None:
        self.limits = limits
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="regard-work")
        self.waiting = ThreadPoolExecutor(
            limits.queue, thread_name_prefix="regard-wait"
        )  # for an engine, not computing
        self.lock, self.pending = threading.Lock(), 0
        self.asked: set[Asked] = set()

    async def run(self, visit: Visit, compute: Callable[[Asked], T], pool: ThreadPoolExecutor | None = None) -> T:
        """Compute in a thread; give up where the deadline passes or the client leaves."""
        asked = self._enter(visit)
        future = (pool or self.pool).submit(compute, asked)
        future.add_done_callback(lambda _: self._leave(asked))
        return await self._within(visit, asked, asyncio.wrap_future(future))

    async def stream(self, visit: Visit, begin: Callable[[Asked], Iterator[T]]) -> AsyncIterator[T]:
        """Events of an iterator that runs in a thread. The first is waited for: what is refused is refused before it.

        Whoever closes what is returned stops the computing.
        """
        asked = self._enter(visit)
        events = _Events[T](asyncio.get_running_loop())
        future = self.waiting.submit(events.fill, begin, asked)
        future.add_done_callback(lambda _: self._leave(asked))
        first = await self._within(visit, asked, asyncio.ensure_future(events.next()))
        return self._rest(visit, asked, first, events)

    async def _rest(self, visit: Visit, asked: Asked, first: T | None, events: _Events[T]) -> AsyncIterator[T]:
        event = first
        try:
            while event is not None:
                yield event
                event = await events.next()
        except Cancelled:
            raise self._why(asked) from None
        finally:
            asked.stop.set()

    async def _within(self, visit: Visit, asked: Asked, future: asyncio.Future[T]) -> T:
        watcher = asyncio.ensure_future(visit.gone())
        waiting: set[asyncio.Future[object]] = {future, watcher}  # type: ignore[arg-type]
        try:
            done, _ = await asyncio.wait(waiting, timeout=visit.left(), return_when=asyncio.FIRST_COMPLETED)
            if future in done:
                return future.result()
            if watcher in done:
                raise gone()
            raise too_late(self.limits.seconds)
        except Cancelled:
            raise self._why(asked) from None
        except BaseException:
            asked.stop.set()
            raise
        finally:
            watcher.cancel()
            if not future.done():
                future.add_done_callback(_ignore)

    def _why(self, asked: Asked) -> Refusal:
        return gone() if asked.stop.is_set() else too_late(self.limits.seconds)

    def _enter(self, visit: Visit) -> Asked:
        with self.lock:
            if self.pending >= self.limits.queue:
                raise full()
            self.pending += 1
            asked = Asked(visit.deadline)
            self.asked.add(asked)
        return asked

    def _leave(self, asked: Asked) -> None:
        with self.lock:
            if asked in self.asked:
                self.asked.remove(asked)
                self.pending -= 1

    def close(self) -> None:
        """Let nothing go on that nobody waits for."""
        with self.lock:
            left = list(self.asked)
        for asked in left:
            asked.stop.set()
        for pool in (self.pool, self.waiting):
            pool.shutdown(wait=False, cancel_futures=True)


class _Events(Generic[T]):
    """Events that one thread puts and the event loop takes; None ends them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue: asyncio.Queue[T | BaseException | None] = asyncio.Queue()

    def fill(self, begin: Callable[[Asked], Iterator[T]], asked: Asked) -> None:
        """Put all events of an iterator: those of a text, so that a slow reader's queue has an end."""
        try:
            with contextlib.closing(_closable(begin(asked))) as events:
                for event in events:
                    if asked.cancelled():
                        raise Cancelled("cancelled")
                    self._put(event)
            self._put(None)
        except BaseException as error:
            self._put(error)

    async def next(self) -> T | None:
        event = await self.queue.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def _put(self, event: T | BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self.queue.put_nowait, event)


def _closable(events: Iterator[T]) -> Generator[T, None, None]:
    """The events of an iterator that can be closed, which ends a generator at once."""
    yield from events


def _ignore(future: asyncio.Future[T]) -> None:
    """Take the error of something that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
