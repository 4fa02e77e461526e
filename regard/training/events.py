"""Events that a run emits while it works, in the order in which they come; each is frozen. No torch here.

    regard.train("translate", data=pairs, on_event=print)

The live table of the command line is one of those who listen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Note:
    """A sentence for the person."""

    text: str


@dataclass(frozen=True)
class Working:
    """Work of a run besides updates: reading, encoding, validating. It comes again as the work goes on."""

    what: str
    done: int = 0
    total: int = 0  # 0: how much there is to do is not known


@dataclass(frozen=True)
class Choice:
    """A setting that was chosen for the person, and why."""

    setting: str  # as a person sets it: train.lr
    value: str | int | float | bool | None
    why: str


@dataclass(frozen=True)
class Chosen:
    """Settings that the person left open, chosen from the data, the machine and the time."""

    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Prepared:
    """The data is read and the model is built; nothing is learned yet."""

    folder: Path
    parameters: int
    steps: int  # most updates of the weights
    notes: tuple[str, ...] = ()  # what the data is like, what was left out


@dataclass(frozen=True)
class Forecast:
    """How long a run will take and how fast it is, from its own first updates."""

    steps: int
    seconds: float  # from its first step to its last, without validations
    limit: float | None  # train.max_time
    stops_early: bool  # when validations no longer get better
    speed: float  # units of the loss a second
    unit: str  # "tokens", "texts"
    padding_share: float
    peak_memory: int  # bytes


@dataclass(frozen=True)
class Progress:
    """Where the run is: after its first update, then about every second and at every row of its log."""

    step: int
    steps: int
    epoch: int  # from 0
    values: Mapping[str, float]  # means since the last row of the log: loss, nll, correct ...
    unit: str
    tokens: int  # units learned from, in all
    speed: float  # units a second
    seconds: float  # spent training, over all resumes
    left: float  # seconds, at this pace
    done: float  # share of the run, 0 to 1

    @property
    def loss(self) -> float:
        return self.values["loss"]


@dataclass(frozen=True)
class Validated:
    """The metrics of a validation, and whether these weights are now the best."""

    step: int
    weights: str  # "step 80", "average of steps 40..80"
    metrics: Mapping[str, float]
    samples: tuple[tuple[str, str, str], ...]  # source, output, reference
    best: bool
    by: str  # the metric that decided
    why: str  # why it was not train.select; empty if it was
    seconds: float


@dataclass(frozen=True)
class Expected:
    """A validation metric at the end of a run: an interval that holds in about 8 of 10 runs, and what more time would give."""

    metric: str
    now: float
    low: float
    high: float
    gain: float  # that a longer run would have over the middle of the interval; positive is better


@dataclass(frozen=True)
class Outlook:
    """The metrics to expect of a run at its end, after a validation, and the gain of one that is longer by `more`."""

    step: int
    share: float  # of its updates that are done
    expected: tuple[Expected, ...]  # the metric that selects, then the loss
    more: str  # as "20 min more", "twice the steps"


@dataclass(frozen=True)
class Checkpoint:
    """All that was learned so far is on disk."""

    step: int
    folder: Path


@dataclass(frozen=True)
class End:
    """Why the run ended ("steps", "time", "patience", "interrupted"), and what it leaves."""

    reason: str
    step: int
    seconds: float
    weights: str  # which weights the best bundle holds
    metrics: Mapping[str, float]  # theirs


Event = Note | Working | Chosen | Prepared | Forecast | Progress | Validated | Outlook | Checkpoint | End
OnEvent = Callable[[Event], object]


def counting(emit: OnEvent, what: str) -> Callable[[int, int], None]:
    """A callback for counts (done, in all) that emits them as `Working` events."""

    def count(done: int, total: int) -> None:
        emit(Working(what, done, total))

    return count


def silent(event: Event) -> None:
    """Do nothing: for runs that nobody listens to."""
