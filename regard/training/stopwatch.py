"""How fast a run learns, told by its own updates: what to expect after the first ones, how much is left after any."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from regard.training.config import TrainConfig
from regard.training.events import Forecast, Progress

FEW, LATE = 4, 5.0  # a forecast comes after so many updates (batches are of unlike size), or after so many seconds
OFTEN = 1.0  # seconds between two events of progress

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]


class Stopwatch:
    """The speed of the updates since a run started, went on or went back."""

    def __init__(
        self,
        config: TrainConfig,
        unit: str,
        step: int,
        tokens: int,
        spent: float,
        most_steps: int | None = None,
        span: float | None = None,
    ) -> None:
        self.config, self.unit = config, unit
        self.steps, self.span = most_steps or config.steps, span  # a timed run has `span` seconds for training
        self.first, self.warm = (step, tokens, spent), (step, tokens, spent)  # the first update also warms up
        self.last_event: float | None = None  # when progress was last emitted
        self.has_forecast = False
        self._tokens, self._spent = tokens, spent  # since when the speed counts

    def pause(self, spent: float, tokens: int) -> None:
        """Do not count what came before, such as a validation, for the speed of updates."""
        self._tokens, self._spent = tokens, spent

    def is_due(self) -> bool:
        """Whether a person would like to hear of the run again."""
        return self.last_event is None or time.monotonic() - self.last_event >= OFTEN

    def forecast(self, step: int, tokens: int, spent: float, padding: Callable[[], float]) -> Forecast | None:
        """Forecast the run, once, as soon as there are enough updates to tell."""
        if step == self.first[0] + 1:
            self.warm = (step, tokens, spent)
        too_soon = step < self.first[0] + FEW and spent < self.first[2] + LATE
        if self.has_forecast or too_soon:
            return None
        self.has_forecast = True
        begin = self.warm if step > self.warm[0] else self.first
        span = max(1e-9, spent - begin[2])
        each, speed = span / (step - begin[0]), (tokens - begin[1]) / span
        config, steps, seconds = self.config, self.steps, spent + each * max(0, self.steps - step)
        if self.span is not None and self.span < seconds:
            steps, seconds = step + int((self.span - spent) / each), self.span
        stops_early = bool(config.patience)
        return Forecast(steps, seconds, config.max_time, stops_early, speed, self.unit, padding(), peak_memory())

    def progress(
        self, step: int, epoch: int, tokens: int, spent: float, values: dict[str, float], end: int | None = None
    ) -> Progress:
        """Where the run is now; the speed is that since the last event. `end` is the last step, where the clock told it."""
        speed = (tokens - self._tokens) / max(1e-9, spent - self._spent)
        self.last_event, self._tokens, self._spent = time.monotonic(), tokens, spent
        config, each = self.config, (spent - self.first[2]) / max(1, step - self.first[0])
        steps = min(self.steps, end or self.steps)
        left, done = each * (steps - step), step / steps
        limits = [limit for limit in (config.max_time, self.span) if limit is not None]
        if limits:
            left, done = min(left, min(limits) - spent), max(done, spent / min(limits))
        return Progress(step, steps, epoch, values, self.unit, tokens, speed, spent, max(0.0, left), min(1.0, done))


def peak_memory() -> int:
    """The most memory this process has had, in bytes (on a GPU, the most allocated there); 0 where nobody tells."""
    import torch  # here, so that who only shows a run is quick to import

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if resource is None:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def duration(seconds: float) -> str:
    """A span of time as a person says it: 45 s, 12 min, 1 h 30 min, 2 days 5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def roughly(seconds: float) -> str:
    """A span that is only guessed, without minutes where there are many hours: 45 s, 12 min, 1 h 30 min, 9 h."""
    return duration(seconds) if seconds < 5 * 3600 else duration(3600 * round(seconds / 3600)).removesuffix(" 0 min")
