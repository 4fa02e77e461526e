"""A run that has a time to use: when it looks at unseen data, when its learning rate begins to fall, and when it ends.

After a warm-up the rate stays at its peak, then falls linearly to zero (Hu et al. 2024, "MiniCPM"; Hägele et al. 2024,
"Scaling laws and compute-optimal training beyond fixed training durations"). When the fall begins is a matter of the clock, so
that it ends with the time although nobody knows beforehand how many updates that allows; where the machine becomes faster or
slower on the way, the fall is made longer or shorter.

Whatever the clock decided is written down at once (`schedule.json`), with the number of updates that were done. A resumed run
follows what is written before it asks the clock again: up to there it equals the run without a stop, bit for bit.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from regard.config import Tables
from regard.errors import RegardError
from regard.files import read_json, write_json
from regard.training.config import TrainConfig
from regard.training.stopwatch import duration

SCHEDULE = "schedule.json"
CLOCKED, COUNTED, IDLE = (
    "by the clock",
    "enough passes over the data",
    "validations no longer get better",
)  # why it falls
FIRST = 4  # updates after which the pace is known well enough to tell how long the warm-up may be
WARMING = 0.1  # most of the updates that may be a warm-up
LOOKS, COSTLY = 16, 12.0  # validations of a run; and the least time between two, as a multiple of what one takes
REACTS = 0.08  # of the time: how far back the pace is measured
LONG, SOON = 0.25, 0.1  # and farther back, to tell what is not very soon
NEARLY = 0.2  # of the fall: its last updates
SLOWER = 1.5  # times the longest validation so far that one is expected to take, at most
SURELY = (
    0.7  # of what one takes as a rule, and of the time for what comes after: later than this, nothing more is learned
)
AMISS = 0.03  # of the fall: an end that is farther off than this is corrected
THREADS_AFTER, THREADS_SHARE = (
    5.0,
    0.04,
)  # seconds, and share of the time, between two looks at how many threads are fastest
ENDING = 2.0  # seconds for what comes after the last validation: bundles, a drawing of the curves


@dataclass(frozen=True)
class Decision:
    """A decision of the clock, made after `step` updates."""

    step: int
    what: Literal["warmup", "validate", "fall", "threads", "end"]
    end: int = 0  # last update of the warm-up, or of the fall; of the run, as a validation foresees it
    threads: int = 0
    rate: float = 1.0  # share of the peak rate from which the rate falls
    seconds: float = 0.0  # that a validation took
    why: str = ""


class Look(NamedTuple):
    """A validation that is over."""

    seconds: float
    pace: float = 0.0  # of the updates before it; 0: not known


class Timetable:
    """The decisions of a timed run: those that are written down, then those of the clock.

    Who calls gives the time, in seconds since the run was asked for, preparation included.
    """

    def __init__(self, config: TrainConfig, folder: Path, most_steps: int, *, writes: bool = True) -> None:
        assert config.budget is not None
        self.config, self.path, self.most_steps = config, folder / SCHEDULE, most_steps
        self._writes = writes  # of several processes, which all decide the same by one clock, one does
        self.budget = config.budget
        self.decisions: list[Decision] = []
        self.written: list[Decision] = []  # behind the checkpoint from which a stopped run goes on
        self.began = 0.0  # when the first update began
        self.pace = Pace(REACTS * self.budget)
        self.long_pace = Pace(LONG * self.budget)
        self._looks: deque[Look] = deque(maxlen=5)  # the last validations
        self._foreseen = 0  # last update of the run, as it was foreseen at the last validation
        self._looked = self._checked = 0.0  # when it last validated, and last compared its plan with the clock
        self._tried = -math.inf  # when it last tried numbers of threads

    def start(self, spent: float) -> None:
        """The first update comes next."""
        self.began = self._looked = self._checked = spent
        if self._time_left(spent) < 0.1 * self.budget:
            needed = 10 * math.ceil(3 * (spent + ENDING) / 10)
            raise RegardError(
                f"{duration(self.budget)} is too short: to get ready took {duration(spent)} of it",
                f"give {needed}s or more",
            )

    # --- What is decided

    def share(self, step: int) -> float:
        """The rate of update `step` (the first is 1) as a share of the peak."""
        warmup, fall, lowest = self._last("warmup"), self._last("fall"), self.config.last
        rising = min(1.0, step / max(1, self.config.warmup if warmup is None else warmup.end))
        if fall is None:
            return rising
        left = (fall.end - step + 1) / max(1, fall.end - fall.step)  # the last update still has a rate
        return rising * (lowest + max(0.0, fall.rate - lowest) * min(1.0, max(0.0, left)))

    @property
    def end(self) -> int | None:
        """The last update, once that is known."""
        fall = self._last("fall")
        return None if fall is None else fall.end

    @property
    def threads(self) -> int:
        """How many threads were decided on; 0: nothing was."""
        decided = self._last("threads")
        return 0 if decided is None else decided.threads

    def validation_is_due(self, step: int, spent: float) -> bool:
        if self.config.validate_every:
            return step % self.config.validate_every == 0
        if any(each.step == step and each.what == "validate" for each in self.written):
            return True
        often = self._often()
        return not self.replaying(step) and spent - self._looked >= often and self._time_left(spent) > 0.5 * often

    def is_over(self, step: int, spent: float) -> bool:
        if self.replaying(step):
            return False
        if self._ended(step) is not None:
            return True
        return (self.end is not None and step >= self.end) or self._time_left(spent, SURELY) <= 0

    @property
    def reason(self) -> str:
        """Why it is over: the time is up, or the validations or the passes over the data were enough before."""
        if self.written and (ended := self._ended(self.written[-1].step)) is not None:
            return ended.why
        first = next((each for each in self.decisions if each.what == "fall"), None)
        return {COUNTED: "steps", IDLE: "patience"}.get("" if first is None else first.why, "time")

    # --- What the clock decides

    def updated(self, step: int, spent: float, seconds: float) -> None:
        """An update is done, which took so many seconds: see whether anything is to be decided."""
        self.pace.add(seconds)
        self.long_pace.add(seconds)
        if self.replaying(step - 1):
            again = [each for each in self.written if each.step == step and each.what in ("warmup", "fall", "threads")]
            self.decisions += [each for each in again if each.why != IDLE]
            self._checked = spent
        elif self.pace.count < FIRST and self._time_left(spent) > 0:
            return
        elif self._last("warmup") is None:
            most = int(WARMING * (step + self.updates_left(spent)))
            self.decide(Decision(step, "warmup", max(step, min(self.config.warmup, most))))
        elif self._last("fall") is None:
            self._perhaps_fall(step, spent)
        elif spent - self._checked >= 0.02 * self.budget or step >= self._nearly(self._last("fall")):
            self._perhaps_correct(step, spent)

    def validated(self, step: int, spent: float, seconds: float) -> None:
        """A validation is done, which took so many seconds with all that is saved."""
        self._looked = spent
        self._looks.append(Look(seconds, self.pace.seconds if self.pace.count >= FIRST else 0.0))
        self.decide(Decision(step, "validate", self._foreseen, seconds=round(seconds, 3)))

    def perhaps_idle(self, step: int, spent: float, idle: bool) -> None:
        """Where validations no longer get better the fall begins: as long, beside the updates before it, as ever."""
        again = [each for each in self.written if each.step == step and each.why == IDLE]
        if again:
            self.decisions += again
        elif idle and not self.replaying(step):
            most = max(1, round(step * self.config.fall / max(1e-9, 1 - self.config.fall)))
            self._fall(step, min(most, self.updates_left(spent)), IDLE)

    def threads_are_due(self, step: int, spent: float) -> bool:
        """Whether to see again which number of threads is fastest: soon after the start, then every so often."""
        often = max(THREADS_AFTER, THREADS_SHARE * self.budget)
        return not self.replaying(step - 1) and step > 1 and spent - self._tried >= often  # the first update warms up

    def use_threads(self, step: int, spent: float, threads: int, due: bool) -> None:
        """So many threads do the next update. `due`: this was the time to see how many are fastest."""
        self._tried = spent if due else self._tried
        if threads != self.threads:
            self.decide(Decision(step, "threads", threads=threads))

    def finish(self, step: int, reason: str) -> None:
        """The run is over: whoever repeats it does not ask the clock at all."""
        if self._last("end") is None:
            self.decide(Decision(step, "end", why=reason))

    def decide(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self._write([*self.decisions, *(each for each in self.written if each.step > decision.step)])

    def _perhaps_fall(self, step: int, spent: float) -> None:
        left, fall = self.updates_left(spent), self.config.fall
        room = self.most_steps - step
        if step >= (1 - fall) * self.most_steps and room <= left:
            self._fall(step, room, COUNTED)
        elif spent - self.began >= (1 - fall) * self._time_left(self.began):
            self._fall(step, min(left, room), CLOCKED)

    def _perhaps_correct(self, step: int, spent: float) -> None:
        """The machine became faster or slower: from the present rate to zero in the updates that still fit."""
        self._checked = spent
        first = next(each for each in self.decisions if each.what == "fall")
        planned, end = self.end or 0, min(step + self.updates_left(spent), self.most_steps)
        if end > planned and first.why != CLOCKED:
            return  # it was not for want of time that the fall began
        if abs(end - planned) > max(1.0, AMISS * (planned - first.step)):
            self._fall(step, end - step, "faster than before" if end > planned else "slower than before")

    def _nearly(self, fall: Decision | None) -> float:
        """The update from which on a fall is so near its end that its plan is compared with the clock after each one."""
        return math.inf if fall is None else fall.end - max(3.0, NEARLY * (fall.end - fall.step))

    def _fall(self, step: int, updates: int, why: str) -> None:
        self.decide(Decision(step, "fall", step + max(1, updates), rate=self.share(step), why=why))

    # --- How much fits

    @property
    def looking(self) -> float:
        """Seconds that a validation takes now.

        What slows down updates, where threads wait for each other all the time, slows down a validation less: about by the
        square root (beside a program on both cores, updates of a small model 6 times, its validation 2.5 times).
        """
        took = [each.seconds for each in self._looks]
        known = [each.seconds * math.sqrt(self.pace.seconds / each.pace) for each in self._looks if each.pace]
        if not known or self.pace.count < FIRST:
            return max(took, default=0.0)
        return min(max(median(known), min(took) / SLOWER), SLOWER * max(took))

    def updates_left(self, spent: float) -> int:
        """How many updates fit into the time that is left, validations taken off."""
        left, often = self._time_left(spent), self._often()
        after_next = left - max(0.0, often - (spent - self._looked))
        validations = max(0, math.ceil(after_next / often - 0.5))
        left -= validations * self.looking
        soon = min(left, SOON * self.budget)  # at the pace of now, and what is later as it was on the whole
        return max(1, round(soon / self.pace.seconds + (left - soon) / self.long_pace.seconds))

    def foresee_end(self, step: int, spent: float) -> int:
        """The last update, as far as one can tell at a validation: as it was told before, if the run goes on from a stop."""
        before = (each.end for each in self.written if each.step == step and each.what == "validate")
        found = min(step + self.updates_left(spent), self.most_steps) if self.end is None else self.end
        self._foreseen = max(step, next(before, 0) or found)
        return self._foreseen

    def _often(self) -> float:
        """Seconds between two validations."""
        if self.config.validate_every:
            return self.config.validate_every * self.pace.seconds + self.looking
        return max((self.budget - self.began) / LOOKS, COSTLY * self.looking)

    def _time_left(self, spent: float, share: float = 1.0) -> float:
        """Seconds until the last validation, and all that comes after it, must begin; or if these take a share of the time."""
        validations = 2 if self.config.average > 1 else 1
        looking = (
            self.looking
            if share == 1
            else share * median([0.0] if not self._looks else [each.seconds for each in self._looks])
        )
        return self.budget - spent - validations * looking - share * min(ENDING, 0.1 * self.budget)

    # --- What is written down

    def replaying(self, step: int) -> bool:
        """Whether a run that was stopped had decided more after this step."""
        return bool(self.written) and step < self.written[-1].step

    def restore(self, step: int, began: float, spent: float) -> None:
        """Go on from `step`: what was decided before is known, and what was decided later will be so again."""
        found = [Decision(**each) for each in _read(self.path)]
        self.decisions = [each for each in found if each.step <= step]
        self.written = [each for each in found if each.step > step]
        looked = self._last("validate")
        self._looks.extend([] if looked is None else [Look(looked.seconds)])
        self.began, self._looked, self._checked = began, spent, spent

    def forget(self, step: int) -> None:
        """Drop what was decided after `step`: the run goes another way from there."""
        self.decisions, self.written = [each for each in self.decisions if each.step <= step], []
        self._write(self.decisions)

    def forget_end(self, step: int) -> None:
        """The run goes on, for a longer time."""
        self.decisions = [each for each in self.decisions if each.what != "end"]
        self.forget(step)

    def forget_fall(self, step: int) -> None:
        """The rate does not fall any more: the run goes on from `step`, before the fall, for a longer time."""
        self.decisions = [each for each in self.decisions if each.step <= step and each.what != "fall"]
        self.forget_end(step)

    def _write(self, decisions: list[Decision]) -> None:
        if not self._writes:
            return
        write_json(self.path, {"decisions": [asdict(each) for each in decisions]})

    def _ended(self, step: int) -> Decision | None:
        return next((each for each in self.written if each.what == "end" and each.step == step), None)

    def _last(self, what: str) -> Decision | None:
        return next((each for each in reversed(self.decisions) if each.what == what), None)


class Pace:
    """Seconds of an update, of the last `span` seconds more than of earlier ones."""

    def __init__(self, span: float) -> None:
        self.span, self.time, self.updates, self.count = span, 0.0, 0.0, 0

    def add(self, seconds: float) -> None:
        if self.count == 1:
            self.time = self.updates = 0.0  # the first update also warms up
        self.count += 1
        fades = math.exp(-seconds / self.span)
        self.time, self.updates = self.time * fades + seconds, self.updates * fades + 1

    @property
    def seconds(self) -> float:
        return max(1e-9, self.time / self.updates) if self.updates else 1e-9


def _read(path: Path) -> list[Tables]:
    return list(read_json(path)["decisions"]) if path.exists() else []
