"""Who comes next: requests that wait, callers in turn, each with a share of the rows (`Waiting`)."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from regard.decode.tickets import Ticket


@dataclass(frozen=True)
class Room:
    """What an engine holds at most."""

    rows: int = 320  # hypotheses that are read side by side
    tokens: int = 65536  # of sources, and of hypotheses at their limits
    waiting: int = 1000  # requests
    share: float = 0.5  # of the rows, for one caller while it has some

    def __post_init__(self) -> None:
        if min(self.rows, self.tokens, self.waiting) < 1 or not 0 < self.share <= 1:
            raise ValueError(f"{self}: rows, tokens and waiting are 1 or more, share is above 0 and at most 1")


@dataclass(frozen=True, eq=False)
class Part:
    """What is admitted at once: a request, or some of its samples."""

    number: int  # of the source, in the books
    ticket: Ticket
    first_sample: int
    rows: int
    tokens: int
    read: int  # tokens of the source

    @property
    def caller(self) -> object:
        """Who asks; a request that names nobody stands for itself."""
        return self.ticket if self.ticket.request.caller is None else self.ticket.request.caller


class Waiting:
    """Parts that wait and parts that run. Callers take turns; who is first in turn is waited for, so none starves."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.running: dict[int, Part] = {}
        self.rows, self.tokens = 0, 0  # of those that run
        self._of_caller: Counter[object] = Counter()  # rows that run
        self._lines: OrderedDict[object, deque[Part]] = OrderedDict()  # of callers, first who is next
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, part: Part) -> None:
        self._lines.setdefault(part.caller, deque()).append(part)
        self._count += 1

    def admit(self, most: int) -> list[Part]:
        """Those that run from now on: while there is room, and of sources no more than so many tokens, but at least one."""
        admitted: list[Part] = []
        read = 0
        for part in self._in_turn():
            if not self._fits(part) or (admitted and read + part.read > most):
                break
            self._take(part)
            admitted.append(part)
            read += part.read
        return admitted

    def should_wait(self, share: float) -> bool:
        """Whether more wait than there is room for, and less than this share of the rows is free.

        Reading sources and putting them beside those that run costs about as much as a step, for one as for some.
        """
        free = self.room.rows - self.rows
        first = next(self.all_waiting(), None)
        return first is not None and len(self) * first.rows > free and free < share * self.room.rows

    def leave(self, number: int) -> Part | None:
        """One that runs no more."""
        part = self.running.pop(number, None)
        if part is not None:
            self.rows, self.tokens = self.rows - part.rows, self.tokens - part.tokens
            self._of_caller[part.caller] -= part.rows
            if not self._of_caller[part.caller]:
                del self._of_caller[part.caller]
        return part

    def forget_over(self) -> None:
        """Drop those that wait for nobody any more."""
        for caller, line in list(self._lines.items()):
            left = deque(part for part in line if not part.ticket.over)
            self._count -= len(line) - len(left)
            if left:
                self._lines[caller] = left
            else:
                del self._lines[caller]

    def all_waiting(self) -> Iterator[Part]:
        for line in self._lines.values():
            yield from line

    def _in_turn(self) -> Iterator[Part]:
        """The first of each caller that is within its share, callers in turn, until none is."""
        passed: set[int] = set()
        while line := next((each for each in self._lines.values() if id(each) not in passed), None):
            part = line[0]
            held = self._of_caller.get(part.caller, 0)
            if held and held + part.rows > self.room.share * self.room.rows:
                passed.add(id(line))
            else:
                yield part

    def _fits(self, part: Part) -> bool:
        rows, tokens = self.rows + part.rows, self.tokens + part.tokens
        return not self.running or (rows <= self.room.rows and tokens <= self.room.tokens)

    def _take(self, part: Part) -> None:
        line = self._lines.pop(part.caller)
        line.popleft()
        if line:
            self._lines[part.caller] = line  # behind the others
        self._count -= 1
        self.running[part.number] = part
        self.rows, self.tokens = self.rows + part.rows, self.tokens + part.tokens
        self._of_caller[part.caller] += part.rows
