"""Many callers, one model: requests join a running batch and leave it (continuous batching; Yu et al. 2022, "Orca", section 4).

    engine = Engine(model)                       a `Model` says how sources are read; predictors bring theirs
    ticket = engine.submit(Request(source, options, limit))
    for event in ticket: ...                     or ticket.result(), ticket.cancel()

Callers of any thread submit; one thread of the engine's own computes. It begins with the first request and ends when there
is nothing to do. Sources that are searched by the same stepper, in the same way and with as many hypotheses, go on together
in one `Running`, whatever else they ask for; steppers that cannot `join` have their sources go on one by one, in turn.
Neither who else asks nor when changes what a request gives.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import count
from threading import Condition, Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.decode.books import Books
from regard.decode.choice import choice_of
from regard.decode.filters import filters_of
from regard.decode.live import Wants
from regard.decode.ranking import Hypothesis
from regard.decode.search import Running, within_reach
from regard.decode.stepper import Joins, Stepper
from regard.decode.tickets import DeadlinePassed, EngineClosed, Overloaded, Request, Ticket
from regard.decode.waiting import Part, Room, Waiting
from regard.errors import UsageError
from regard.trials import StepThreads

IDLE = 5.0  # seconds after which a thread without work ends
READ_AT_ONCE = 1024  # tokens of sources that are read before those that run go on
IN_TURN = 4  # sources that go on at a time where a stepper cannot join them
ENOUGH = 0.125  # of the room, that must be free before some of those that do not all fit are read
OVER = 256  # requests that are over whose deadlines may be kept


@dataclass(frozen=True)
class Model:
    """What an engine must know of a model."""

    stepper: Callable[[Request], Stepper[Any]]  # that searches for a request; one and the same for those that can join
    collate: Callable[[Sequence[Any]], tuple[Any, Tensor]]  # sources -> what `start` takes: a source, a prefix (B, P)
    size: Callable[[Any], int]  # tokens of a source
    ends: Sequence[int]
    forbidden: Sequence[int] = ()


@dataclass
class Statistics:
    """What an engine has done so far, and what it does now."""

    waiting: int = 0  # requests, or parts of them
    running: int = 0
    rows: int = 0  # hypotheses that are read side by side
    tokens_held: int = 0  # that those may come to
    submitted: int = 0
    refused: int = 0
    finished: int = 0
    cancelled: int = 0
    expired: int = 0
    failed: int = 0
    tokens: int = 0  # written, of sequences that were found
    steps: int = 0
    batch_sizes: Counter[int] = field(default_factory=Counter)  # steps by how many sources they had
    seconds_waiting: float = 0.0  # of all requests, until they were read
    seconds_computing: float = 0.0


class Lane(NamedTuple):
    """What sources that go on together have in common."""

    stepper: Stepper[Any]
    searched: bool  # by a beam
    rows: int  # hypotheses of each
    alone: int | None  # the number of the only source, where the stepper cannot join others


class Engine:
    """Runs the requests of many callers on one model."""

    def __init__(self, model: Model, room: Room | None = None, *, gather: float = 0.0) -> None:
        """`gather`: seconds that newcomers wait for others to be read with, while those that run go on."""
        self.model, self.gather = model, gather
        self._waiting = Waiting(Room() if room is None else room)
        self._lanes: dict[Lane, Running[Any]] = {}  # only the engine's thread looks at them
        self._parts: dict[Ticket, list[list[Hypothesis] | None]] = {}  # results of a request's parts so far
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._changed, self._numbers = Condition(), count()
        self._left: list[Ticket] = []  # that nobody waits for any more
        self._thread: Thread | None = None
        self._closed = False
        self._statistics = Statistics()
        self._threads = StepThreads()

    def submit(self, request: Request) -> Ticket:
        """Take a request, or raise `Overloaded` or `EngineClosed`."""
        if request.telling and request.rows > 1:
            raise UsageError("tokens are told of one sequence; leave out beam and n_best, or telling")
        ticket = Ticket(request, self._leave)
        parts = self._parts_of(ticket)
        with self._changed:
            if self._closed:
                raise EngineClosed("the engine is closed and takes no more requests")
            if len(self._waiting) + len(parts) > max(self._waiting.room.waiting, len(parts)):
                self._statistics.refused += 1
                raise Overloaded(f"{len(self._waiting)} requests wait already", "ask again later")
            self._statistics.submitted += 1
            self._parts[ticket] = [None] * len(parts)
            for part in parts:
                self._waiting.add(part)
            if ticket.deadline is not None:
                heappush(self._deadlines, (ticket.deadline, next(self._numbers), ticket))
            if self._thread is None:
                self._thread = Thread(target=self._run, name="regard-engine", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return ticket

    def statistics(self) -> Statistics:
        """A copy of the figures as they stand."""
        with self._changed:
            now = self._waiting
            return replace(
                self._statistics,
                waiting=len(now), running=len(now.running), rows=now.rows, tokens_held=now.tokens,
                batch_sizes=self._statistics.batch_sizes.copy(),
            )  # fmt: skip

    def close(self, *, drop: bool = False) -> None:
        """Take no more requests, and finish those that were taken, or drop them; returns when nothing runs any more."""
        with self._changed:
            self._closed = True
            thread, tickets = self._thread, list(self._parts)
            self._changed.notify_all()
        if drop:
            for ticket in tickets:
                if ticket.fail(EngineClosed("the engine was closed before the request was done")):
                    self._leave(ticket)
        if thread is not None:
            thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(drop=kind is not None)

    def _parts_of(self, ticket: Ticket) -> list[Part]:
        """Many samples come in parts, so that one request does not take all rows."""
        request, room = ticket.request, self._waiting.room
        read = self.model.size(request.source)
        most = max(1, int(room.share * room.rows)) if request.options.sample else request.rows
        return [
            Part(next(self._numbers), ticket, first, rows, read + rows * (request.limit + 1), read)
            for first in range(0, request.rows, most)
            for rows in [min(most, request.rows - first)]
        ]

    def _leave(self, ticket: Ticket) -> None:
        with self._changed:
            self._left.append(ticket)
            self._changed.notify_all()

    # --- In the engine's own thread

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._waited_for_work():
                    began = time.perf_counter()
                    self._work()
                    with self._changed:
                        self._statistics.seconds_computing += time.perf_counter() - began
        except BaseException as error:  # of the engine itself: nobody should wait for ever
            with self._changed:
                tickets, self._thread, self._closed = list(self._parts), None, True
            for ticket in tickets:
                ticket.fail(EngineClosed(f"the engine failed: {error!r}"))
            raise

    def _waited_for_work(self) -> bool:
        """Sleep until there is something to do; False when there was nothing for long, or never will be: the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_work() or self._closed, IDLE)
            if not self._has_work():
                self._thread = None
                return False
            return True

    def _has_work(self) -> bool:
        return bool(self._lanes or len(self._waiting) or self._left)

    def _work(self) -> None:
        """One step of all that run, after some have left and others come."""
        with self._changed:
            left, newcomers = self._take_left(), self._admit()
        self._drop(left)
        self._begin(newcomers)
        for lane in list(self._lanes):
            self._step(lane)

    def _take_left(self) -> set[Ticket]:
        """The tickets that nobody waits for any more, or whose time is over."""
        now = time.monotonic()
        if len(self._deadlines) > OVER + 2 * len(self._parts):  # most of them are over
            self._deadlines = [each for each in self._deadlines if not each[2].over]
            heapify(self._deadlines)
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, ticket = heappop(self._deadlines)
            if ticket.fail(DeadlinePassed(f"not done within {ticket.request.seconds:g} s")):
                self._left.append(ticket)
        left = set(self._left)
        self._left.clear()
        for ticket in left:
            if self._parts.pop(ticket, None) is not None:
                expired = isinstance(ticket.error, DeadlinePassed)
                self._statistics.expired += expired
                self._statistics.cancelled += not expired
        if left:
            self._waiting.forget_over()
        return left

    def _admit(self) -> list[Part]:
        """Those that begin now; while others run, newcomers wait a little for each other."""
        first, now = next(self._waiting.all_waiting(), None), time.monotonic()
        if first is None or (self._lanes and now - first.ticket.begun < self.gather):
            return []
        if sum(lane.alone is not None for lane in self._lanes) >= IN_TURN:
            return []
        if self._lanes and self._waiting.should_wait(ENOUGH):
            return []
        parts = self._waiting.admit(READ_AT_ONCE)
        self._statistics.seconds_waiting += sum(now - part.ticket.begun for part in parts)
        return parts

    def _drop(self, left: set[Ticket]) -> None:
        """Forget the rows of tickets that are over."""
        if not left:
            return
        with self._changed:
            numbers = {number for number, part in self._waiting.running.items() if part.ticket in left}
            for number in numbers:
                self._waiting.leave(number)
        for lane, running in list(self._lanes.items()):
            running.drop(list(numbers))
            if running.move is None:
                del self._lanes[lane]

    def _begin(self, newcomers: list[Part]) -> None:
        """Read new sources, those together that go on together."""
        together: dict[Lane, list[Part]] = {}
        for part in newcomers:
            try:
                stepper = self.model.stepper(part.ticket.request)
            except Exception as error:
                self._fail([part], error)
                continue
            options, alone = part.ticket.request.options, None if isinstance(stepper, Joins) else part.number
            lane = Lane(stepper, not options.sample and part.rows > 1, part.rows, alone)
            together.setdefault(lane, []).append(part)
        for lane, parts in together.items():
            for part in parts:
                part.ticket.start()
            self._read(lane, parts)

    def _read(self, lane: Lane, parts: list[Part]) -> None:
        try:
            begun = self._running(lane.stepper, parts)
        except Exception as error:
            if len(parts) == 1:
                self._fail(parts, error)
            else:  # one of them is at fault, and only that one pays
                for part in parts:
                    self._read(lane, [part])
            return
        self._tell(begun)
        if begun.move is None:  # each has ended with its first token
            return
        if lane in self._lanes:
            self._lanes[lane].join(begun)
        else:
            self._lanes[lane] = begun

    def _running(self, stepper: Stepper[Any], parts: list[Part]) -> Running[Any]:
        """New sources, read, with the first token of each."""
        requests = [part.ticket.request for part in parts]
        source, prefix = self.model.collate([each.source for each in requests])
        options = [each.options.model_copy(update={"n_best": part.rows}) if each.options.sample else each.options
                   for each, part in zip(requests, parts, strict=True)]  # fmt: skip
        limits = within_reach([each.limit for each in requests], stepper.longest, prefix.size(1))
        stops, samples = [each.stops for each in requests], [part.first_sample for part in parts]
        wants = Wants.of(options, limits, [each.stream for each in requests], stops, samples)
        ends, forbidden = self.model.ends, self.model.forbidden
        filters = filters_of(ends, forbidden, (), prefix.device)
        books = Books(choice_of(options[0], ends), filters, [part.number for part in parts], wants)
        return Running(stepper, books, source, prefix, known=(*ends, *forbidden))

    def _step(self, lane: Lane) -> None:
        running, parts = self._lanes[lane], self._waiting.running
        numbers = running.books.live.sources.tolist()
        try:
            with self._threads.step(len(numbers) * lane.rows):
                running.step()
        except Exception as error:
            del self._lanes[lane]
            self._fail([parts[number] for number in numbers], error)
            return
        with self._changed:
            self._statistics.steps += 1
            self._statistics.batch_sizes[len(numbers)] += 1
        self._tell(running)
        if running.move is None:
            del self._lanes[lane]

    def _tell(self, running: Running[Any]) -> None:
        """Give what a step has made of sources to those who wait for it: what is over, and the newest token of the others."""
        books, parts = running.books, self._waiting.running
        for number, error in books.failed.items():
            self._fail([parts[number]], error)
        for number, found in books.found.items():
            self._finish(parts[number], found)
        books.failed.clear()
        books.found.clear()
        if running.move is None:
            return
        live = books.live
        for row, number in enumerate(live.sources.tolist()):
            if parts[number].ticket.request.telling:
                newest = float(live.log_probs[row, 0, live.lengths[row] - 1])
                parts[number].ticket.write(int(running.move.ids[row, 0]), newest)

    def _finish(self, part: Part, found: list[Hypothesis]) -> None:
        """The result of a part; of the last of a request, its result."""
        ticket = part.ticket
        with self._changed:
            self._waiting.leave(part.number)
            results = self._parts.get(ticket)
            if results is None:
                return
            results[results.index(None)] = found
            if None in results:
                return
            del self._parts[ticket]
            every = sorted((each for some in results for each in some or ()), key=lambda each: -each.score)
            self._statistics.finished += 1
            self._statistics.tokens += sum(len(each.ids) for each in every)
        ticket.finish(every)

    def _fail(self, parts: Sequence[Part], error: Exception) -> None:
        for part in parts:
            with self._changed:
                self._waiting.leave(part.number)
                if self._parts.pop(part.ticket, None) is not None:
                    self._statistics.failed += 1
            if part.ticket.fail(error):
                self._leave(part.ticket)  # its other parts, if it has some
