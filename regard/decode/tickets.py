"""What a caller asks of an engine (`Request`), and what it is given for it (`Ticket`): events, a result, or an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from regard.decode.config import DecodeConfig
from regard.decode.live import Stops
from regard.decode.ranking import Hypothesis
from regard.errors import Cancelled, RegardError


class Overloaded(RegardError):
    """More requests wait than the engine takes: a server answers 503, and a caller asks again later."""


class DeadlinePassed(RegardError):
    """The time that a request had is over: a server answers 504."""


class EngineClosed(RegardError):
    """The engine takes no requests any more."""


@dataclass(frozen=True, eq=False)
class Request:
    """One source, and what is wanted of it."""

    source: Any  # as the engine's `Model` takes it
    options: DecodeConfig
    limit: int  # most tokens, end not counted
    stream: int = 0  # tells sources of one seed apart: samples are a function of (seed, stream, sample)
    first_sample: int = 0  # the number of the first sample
    stops: Stops | None = None  # whether ids end a sequence although no end token was written
    caller: object = None  # who asks: callers take turns, and each has a share of the rows
    seconds: float | None = None  # that it may take from now on; None: any number
    telling: bool = False  # each token is told as soon as it is written; for one sequence that is not searched for

    @property
    def rows(self) -> int:
        """Hypotheses that are read side by side."""
        return self.options.n_best if self.options.sample else self.options.beam


@dataclass(frozen=True)
class Started:
    """The source is being read."""


@dataclass(frozen=True)
class Written:
    """Tokens that were written since the last event, and how likely each was (NaN where nobody asked)."""

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Finished:
    """The sequences that were found, best first."""

    hypotheses: list[Hypothesis]


Event = Started | Written | Finished


@dataclass(eq=False)
class Ticket:
    """A request under way. Iterate over its events, or ask for its `result`; both raise what went wrong."""

    request: Request
    leave: Callable[[Ticket], None]  # tells the engine that nobody waits any more
    begun: float = field(default_factory=time.monotonic)
    _started: bool = False
    _tokens: list[tuple[int, float]] = field(default_factory=list)  # ids with their log-probabilities
    _found: list[Hypothesis] | None = None
    _error: Exception | None = None
    _news: Condition = field(default_factory=Condition)

    @property
    def over(self) -> bool:
        """Whether there is a result, or an error."""
        return self._found is not None or self._error is not None

    @property
    def error(self) -> Exception | None:
        """The error, if something went wrong."""
        return self._error

    @property
    def deadline(self) -> float | None:
        """When its time is over, by the monotonic clock."""
        return None if self.request.seconds is None else self.begun + self.request.seconds

    def __iter__(self) -> Iterator[Event]:
        """Events as they come; the last is `Finished`. Whoever stops listening should `cancel`."""
        started, told = False, 0
        while True:
            with self._news:
                while not (self.over or self._started > started or len(self._tokens) > told):
                    self._news.wait()
                tokens, begins, started = self._tokens[told:], self._started > started, self._started
                found, error = self._found, self._error
            told += len(tokens)
            if begins:
                yield Started()
            if tokens:
                yield Written(*zip(*tokens, strict=True))
            if error is not None:
                raise error
            if found is not None:
                yield Finished(found)
                return

    def result(self, timeout: float | None = None) -> list[Hypothesis]:
        """The sequences that were found, best first; waits for them, at most so many seconds (then `TimeoutError`)."""
        with self._news:
            if not self._news.wait_for(lambda: self.over, timeout):
                raise TimeoutError(f"no result after {timeout:g} s; it is still under way")
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def cancel(self) -> None:
        """Give up: the rows are free before the next step. What is over stays as it is."""
        if self.fail(Cancelled("cancelled")):
            self.leave(self)

    def start(self) -> None:
        with self._news:
            self._started = True
            self._news.notify_all()

    def write(self, token: int, log_probability: float) -> None:
        with self._news:
            self._tokens.append((token, log_probability))
            self._news.notify_all()

    def finish(self, found: list[Hypothesis]) -> bool:
        """Give the result, unless it is over; says whether it was given."""
        return self._end(found, None)

    def fail(self, error: Exception) -> bool:
        """Give the error, unless it is over; says whether it was given."""
        return self._end(None, error)

    def _end(self, found: list[Hypothesis] | None, error: Exception | None) -> bool:
        with self._news:
            if self.over:
                return False
            self._found, self._error = found, error
            self._news.notify_all()
            return True
