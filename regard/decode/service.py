"""Predictors whose callers share one running batch: `predictor.served()` (`Serves`), by way of an engine (`Service`).

with regard.load("runs/translate/3").served() as translator:      callers of many threads
    translator.translate("A man rides a bike.")
    translator.for_caller("10.0.0.7", seconds=30).translate(texts)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from time import monotonic
from typing import Self

from regard.decode.engine import Engine, Model, Statistics
from regard.decode.ranking import Hypothesis
from regard.decode.tickets import Finished, Overloaded, Request, Ticket, Written
from regard.decode.waiting import Room
from regard.errors import UsageError

GATHER = 0.005  # seconds that newcomers wait for each other while others run
AHEAD = 256  # requests of one call that are under way; the others are submitted as these are done
PATIENCE = 0.05  # seconds between two questions whether to go on


@dataclass(frozen=True)
class Service:
    """An engine as one caller sees it."""

    engine: Engine
    caller: object = None  # None: each call is a caller of its own
    seconds: float | None = None  # that a call may take

    def search(
        self,
        requests: Sequence[Request],
        check: Callable[[], None] | None = None,
        done: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each request. `check` is asked now and then, and may raise; `done` is told of each."""
        caller, end = self._caller(), None if self.seconds is None else monotonic() + self.seconds
        found: list[list[Hypothesis]] = []
        under_way: deque[Ticket] = deque()
        left = deque(requests)
        try:
            while left or under_way:
                while left and len(under_way) < AHEAD and self._submit(left, under_way, caller, end):
                    pass
                found.append(_result(under_way[0], check))
                under_way.popleft()
                if done is not None:
                    done(1)
        finally:
            for ticket in under_way:
                ticket.cancel()
        return found

    def _caller(self) -> object:
        return object() if self.caller is None else self.caller

    def _submit(self, left: deque[Request], under_way: deque[Ticket], caller: object, end: float | None) -> bool:
        """Submit the first that is left; False where others of this call must be done before."""
        seconds = None if end is None else max(0.0, end - monotonic())
        try:
            under_way.append(self.engine.submit(replace(left[0], caller=caller, seconds=seconds)))
        except Overloaded:
            if not under_way:
                raise
            return False
        left.popleft()
        return True

    def written(
        self, request: Request, check: Callable[[], None] | None = None
    ) -> Generator[tuple[list[int], list[float]], None, list[Hypothesis]]:
        """All ids of one sequence after each event, with their log-probabilities; at the end what was found.

        Closed, it computes no more.
        """
        ticket = self.engine.submit(replace(request, caller=self._caller(), seconds=self.seconds, telling=True))
        ids: list[int] = []
        log_probabilities: list[float] = []
        try:
            for event in ticket:
                if check is not None:
                    check()
                if isinstance(event, Written):
                    ids, log_probabilities = [*ids, *event.ids], [*log_probabilities, *event.log_probabilities]
                    yield ids, log_probabilities
                elif isinstance(event, Finished):
                    return event.hypotheses
        finally:
            ticket.cancel()
        raise AssertionError("a ticket ends with its result, or raises")


def _result(ticket: Ticket, check: Callable[[], None] | None) -> list[Hypothesis]:
    while check is not None:
        check()
        try:
            return ticket.result(PATIENCE)
        except TimeoutError:
            continue
    return ticket.result()


class Serves:
    """A predictor whose searches can be those of a service. It is safe from many threads, as predictors are."""

    service: Service | None = None  # None: each call searches by itself

    def served_model(self) -> Model:
        """The model as an engine knows it."""
        raise NotImplementedError

    def served(self, room: Room | None = None, *, gather: float = GATHER) -> Self:
        """The same predictor, whose callers share one running batch; each gets what it would get alone.

        `room` bounds what runs and what waits; whoever finds no room to wait gets `Overloaded`. `gather`: seconds that
        newcomers wait for others to be read with them. Close it, or use it in a `with` block.
        """
        found = copy(self)
        found.service = Service(Engine(self.served_model(), room, gather=gather))
        return found

    def for_caller(self, caller: object, seconds: float | None = None) -> Self:
        """The same, for a caller that takes turns with others, and whose calls each take so many seconds at most."""
        found = copy(self)
        found.service = Service(self._served().engine, caller, seconds)
        return found

    def statistics(self) -> Statistics:
        """Counts of what has been served, and of what waits and runs now."""
        return self._served().engine.statistics()

    def close(self, *, drop: bool = False) -> None:
        """Take no more calls, and finish or drop those under way."""
        self._served().engine.close(drop=drop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.service is not None:
            self.close(drop=kind is not None)

    def _served(self) -> Service:
        if self.service is None:
            raise UsageError("this predictor is not served; take what its served() gives")
        return self.service
