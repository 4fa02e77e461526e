"""A listener that shows the runs of a search: on a terminal one line that moves, elsewhere a line each few seconds."""

from __future__ import annotations

import time

from rich.console import Console
from rich.status import Status

from regard.training.events import Chosen, Forecast, Prepared, Progress, Validated
from regard.training.show import LATE, PlainLines, metrics_line
from regard.training.stopwatch import duration


class TrialShow(PlainLines):
    """Shows the runs of a search: on a terminal one line that moves, elsewhere a line each few seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.trial = ""  # "trial 3"
        self._status: Status | None = None

    def chosen(self, event: Chosen) -> None:
        """Say nothing: a trial's settings are told when it begins."""

    def prepared(self, event: Prepared) -> None:
        """Say nothing: the notes on the data are the same in every trial."""

    def forecast(self, event: Forecast) -> None:
        """Say nothing: the search knows how long each run has."""

    def progress(self, event: Progress) -> None:
        line = f"{self.trial}: step {event.step:,}  loss {event.loss:.3f}  {duration(event.left)} left of it"
        self.activity.start(f"{self.trial}: step {event.step + 1:,}")
        self._wait = LATE
        self._tell(line)

    def validated(self, event: Validated) -> None:
        self.activity.start(f"{self.trial}: step {event.step + 1:,}")
        self._tell(f"{self.trial}: step {event.step:,}  {metrics_line(event.metrics)}")

    def _tell(self, line: str) -> None:
        if self._status is not None:
            self._status.update(line)
        elif time.monotonic() - self._said >= LATE:
            self.note(line)

    def _begin(self) -> None:
        if not self.console.is_terminal:
            super()._begin()
            return
        self._status = self.console.status(self.trial)
        self._status.start()

    def _finish(self) -> None:
        if self._status is None:
            super()._finish()
            return
        self._status.stop()
        self._status = None


def make_trial_show() -> TrialShow:
    return TrialShow(Console(stderr=True, highlight=False))
