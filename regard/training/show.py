"""Listeners that show a run while it learns: a live table on a terminal, plain lines elsewhere, all on stderr.

On a terminal something moves at every moment. Into a pipe or a log go lines, never more than five seconds apart; whatever takes
long (reading, a validation, one slow update) says that it goes on.
"""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.errors import Spell, spelled
from regard.training.events import (
    Checkpoint,
    Chosen,
    End,
    Event,
    Forecast,
    Note,
    OnEvent,
    Outlook,
    Prepared,
    Progress,
    Validated,
    Working,
)
from regard.training.stopwatch import duration, roughly

ROWS = 12  # validations that stay in view
SAMPLE_LINES = 4  # of a sample that is shown
SOON, OFTEN, LATE = 1.0, 3.0, 5.0  # seconds until work is named; between lines; until a slow update is named


class Show:
    """Shows nothing: the base, for who wants silence. An event goes to the method of its kind."""

    spell: Spell = staticmethod(str)  # how notes write the settings and options that they name

    def __call__(self, event: Event) -> None:
        match event:
            case Note():
                self.note(spelled(event.text, self.spell))
            case Working():
                self.working(event)
            case Chosen():
                self.chosen(event)
            case Prepared():
                self.prepared(event)
            case Forecast():
                self.forecast(event)
            case Progress():
                self.progress(event)
            case Validated():
                self.validated(event)
            case Outlook():
                self.outlook(event)
            case Checkpoint():
                self.checkpoint(event)
            case End():
                self.end(event)

    def note(self, text: str) -> None: ...
    def working(self, event: Working) -> None: ...
    def chosen(self, event: Chosen) -> None: ...
    def prepared(self, event: Prepared) -> None:
        for text in event.notes:
            self.note(spelled(text, self.spell))

    def forecast(self, event: Forecast) -> None: ...
    def progress(self, event: Progress) -> None: ...
    def validated(self, event: Validated) -> None: ...
    def outlook(self, event: Outlook) -> None: ...
    def checkpoint(self, event: Checkpoint) -> None: ...
    def end(self, event: End) -> None: ...

    def __enter__(self) -> Show:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class BothListeners(Show):
    """A show, and someone else who listens, who hears of each event after it is shown."""

    def __init__(self, show: Show, emit: OnEvent) -> None:
        self.show, self.emit = show, emit

    def __call__(self, event: Event) -> None:
        self.show(event)
        self.emit(event)

    def __enter__(self) -> Show:
        self.show.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show.__exit__(kind, error, trace)


class Activity:
    """The work that is going on now, since when, and how long it will take where that is known."""

    def __init__(self) -> None:
        self.what, self.since = "", time.monotonic()
        self.done = self.total = 0

    def start(self, what: str, done: int = 0, total: int = 0) -> None:
        again = done < self.done or (total != self.total and self.total > 0)  # the same of something else
        if what != self.what or again:
            self.what, self.since = what, time.monotonic()
        self.done, self.total = done, total

    def elapsed(self) -> float:
        return time.monotonic() - self.since

    def line(self) -> str:
        """As "encoding 12,000 of 27,995 · 8,000/s · 2 s left", or "validating … 12 s"."""
        elapsed = self.elapsed()
        if not self.total or not self.done:
            return f"{self.what} …" + (f" {duration(elapsed)}" if elapsed >= SOON else "")
        rate = self.done / max(1e-9, elapsed)
        left = duration((self.total - self.done) / max(1e-9, rate))
        return f"{self.what}: {self.done:,} of {self.total:,} · {rate:,.0f}/s · {left} left"


class PlainLines(Show):
    """One line for each event that matters: for logs and pipes. A thread speaks up when nothing was said for long."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.activity = Activity()
        self._said = time.monotonic()  # when something was last said
        self._wait = SOON  # how long nothing may be said before the activity is named
        self._inside, self._stop, self._thread = 0, threading.Event(), None  # type: tuple[int, threading.Event, Any]

    def note(self, text: str) -> None:
        self._said = time.monotonic()
        self.console.print(Text(text), soft_wrap=True)

    def working(self, event: Working) -> None:
        if event.what != self.activity.what:
            self._wait = SOON
        self.activity.start(event.what, event.done, event.total)

    def chosen(self, event: Chosen) -> None:
        self.note(chosen_lines(event))

    def prepared(self, event: Prepared) -> None:
        super().prepared(event)
        self.note(f"{event.parameters:,} parameters")

    def forecast(self, event: Forecast) -> None:
        self.note(forecast_line(event))

    def progress(self, event: Progress) -> None:
        first = self.activity.what and not self.activity.what.startswith("step ")
        if first or time.monotonic() - self._said >= OFTEN:
            self.note(progress_line(event))
        self.activity.start(f"step {event.step + 1:,}")
        self._wait = LATE

    def validated(self, event: Validated) -> None:
        self.activity.start(f"step {event.step + 1:,}")
        self._wait = LATE
        if event.weights.startswith(("average", "blend")):
            found = f"{event.weights}: {metrics_line(event.metrics)}{'  taken' if event.best else '  not better'}"
            self.note(f"{found}{chosen_by(event)}")
            return
        star = "  best so far" if event.best else ""
        line = f"step {event.step:,}  validation  {metrics_line(event.metrics)}  after {duration(event.seconds)}"
        self.note(f"{line}{star}{chosen_by(event)}")
        for source, output, reference in event.samples[:1]:
            parts = (
                (("    ", source), ("  → ", output), ("  = ", reference)) if reference else (("    ", source + output),)
            )
            self.note("\n".join(mark + "\n    ".join(wrapped(text, self.console.width - 4)) for mark, text in parts))

    def outlook(self, event: Outlook) -> None:
        self.note(outlook_line(event))

    def end(self, event: End) -> None:
        self.activity.start("")

    def __enter__(self) -> Show:
        self._inside += 1
        if self._inside == 1:
            self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._finish()

    def _begin(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._speak_up, daemon=True)
        self._thread.start()

    def _finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _speak_up(self) -> None:
        while not self._stop.wait(SOON / 4):
            elapsed, silence = self.activity.elapsed(), time.monotonic() - self._said
            if self.activity.what and silence >= self._wait and elapsed >= SOON:
                self._wait = LATE
                self.note(self.activity.line())


class LiveTable(PlainLines):
    """A live table: one row for each validation, the present state and time left below it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._rows: list[list[str]] = []
        self._header: list[str] = []
        self._last: Progress | None = None
        self._samples: list[tuple[str, str, str]] = []
        self._outlook = ""  # what to expect at the end
        self._choice = ""  # which metric decided, where it was not the one that was asked for
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=False)

    def progress(self, event: Progress) -> None:
        self._last = event
        self.activity.start(f"step {event.step + 1:,}")
        self._live.refresh()

    def validated(self, event: Validated) -> None:
        if event.weights.startswith(("average", "blend")):
            super().validated(event)
            return
        self.activity.start(f"step {event.step + 1:,}")
        last, unit = self._last, self._last.unit if self._last else "tokens"
        self._header = ["step", "train loss", *(f"valid {name}" for name in event.metrics), f"{unit}/s", "time"]
        numbers = [number(name, value) for name, value in event.metrics.items()]
        loss, speed = (f"{last.loss:.3f}", f"{last.speed:,.0f}") if last else ("", "")
        step = f"{event.step:,}{' ★' if event.best else '  '}"
        self._rows.append([step, loss, *numbers, speed, duration(event.seconds)])
        self._samples, self._choice = list(event.samples[:2]), chosen_by(event).strip()
        self._live.refresh()

    def outlook(self, event: Outlook) -> None:
        self._outlook = outlook_line(event)
        self._live.refresh()

    def end(self, event: End) -> None:
        super().end(event)
        self._outlook = ""

    def _begin(self) -> None:
        self._live.start()

    def _finish(self) -> None:
        self._live.refresh()
        self._live.stop()

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in self._header:
            table.add_column(name, justify="right")
        for row in self._rows[-ROWS:]:
            table.add_row(*row)
        parts: list[Any] = [table] if self._rows else []
        parts += [Text(line, style="dim") for line in (self._choice, self._outlook) if line]
        for source, output, reference in self._samples:
            width = self.console.width - 4
            source, output, reference = ("\n  ".join(wrapped(each, width)) for each in (source, output, reference))
            if not reference:  # nothing to compare with: a text that goes on
                parts.append(Text(f"{source}{output}", style="dim"))
                continue
            right = output == reference
            mark = "[green]✓[/]" if right else "[dim]·[/]"
            parts.append(Text.from_markup(f"{mark} {escape(source)} [dim]→[/] {escape(output)}"))
            if not right:
                parts.append(Text.from_markup(f"  [dim]reference: {escape(reference)}[/]"))
        if self._last is not None:
            bar = ProgressBar(total=1.0, completed=self._last.done, width=60)
            parts.append(Padding(bar, 0))  # a bar alone ends no line
        parts.append(Text(self._status(), style="dim"))
        return Group(*parts)

    def _status(self) -> str:
        """The last step and how fast it goes; where something takes longer, what and since when."""
        if not self.activity.what:
            return progress_line(self._last) if self._last else ""
        if self._last is None:
            return self.activity.line()
        slow = self.activity.elapsed() >= OFTEN or not self.activity.what.startswith("step ")
        return progress_line(self._last) + (f"  ({self.activity.line()})" if slow else "")


def chosen_lines(event: Chosen) -> str:
    """The settings that were chosen, one below the other, each with its reason."""
    rows = [(f"{each.setting} = {each.value}", each.why) for each in event.choices if each.why]
    wide = max((len(setting) for setting, _ in rows), default=0)
    return "\n".join(["chosen for this data, machine and time:", *(f"  {a:<{wide}}  {b}" for a, b in rows)])


def progress_line(event: Progress) -> str:
    learned = "  ".join([f"loss {event.loss:.3f}", *quality(event.values, event.unit)])
    return (
        f"step {event.step:,}  epoch {event.epoch + 1}  {learned}  "
        f"{event.speed:,.0f} {event.unit}/s  {duration(event.left)} left"
    )


def forecast_line(event: Forecast) -> str:
    """A forecast as a sentence: how long, how fast, how much memory."""
    early = ", less if validations stop getting better" if event.stops_early else ""
    span = f"about {roughly(event.seconds)} for {event.steps:,} steps{early}"
    if event.limit is not None and event.limit < event.seconds:
        span = f"{duration(event.limit)} (the time limit), {event.steps:,} steps would take {roughly(event.seconds)}"
    padding = f" · {event.padding_share:.1%} padding" if event.padding_share else ""  # pictures have none
    return f"{span} · {event.speed:,.0f} {event.unit}/s{padding} · {event.peak_memory / 2**30:.1f} GiB of memory"


def outlook_line(event: Outlook) -> str:
    """As "at the end about 21.0 to 24.0 bleu, loss 3.210 to 3.400 (8 runs of 10); 20 min more: about 2.0 bleu better"."""
    told = [f"{each.metric} {range_of(each.metric, each.low, each.high)}" for each in event.expected]
    first = event.expected[0]
    gain = number(first.metric, first.gain)
    better = f"about {gain} better" if float(gain) else "hardly better"
    return f"to be expected at the end (8 runs of 10): {', '.join(told)}; {event.more}: {first.metric} {better}"


def range_of(metric: str, low: float, high: float) -> str:
    """An interval as a person says it: 21.0 to 24.0."""
    ends = [number(metric, low), number(metric, high)]
    return " to ".join(dict.fromkeys(ends))


def quality(row: Mapping[str, float], unit: str) -> list[str]:
    """The quality in a row of the log besides the loss: the perplexity of tokens, the share of right answers."""
    found = []
    if "nll" in row and unit.endswith("tokens"):
        found.append(f"perplexity {number('perplexity', math.exp(min(20.0, row['nll'])))}")
    if "correct" in row:
        found.append(f"accuracy {row['correct']:.1%}")
    return found


def chosen_by(event: Validated) -> str:
    """Which metric decided, where it was not the one that was asked for."""
    return f"  (by {event.by}: {event.why})" if event.why else ""


def metrics_line(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {number(name, value)}" for name, value in metrics.items())


def number(name: str, value: float) -> str:
    """Three digits where small differences matter, one for scores out of 100."""
    if name in ("loss", "bits_per_byte", "bits_per_dimension"):
        return f"{value:.3f}"
    fine = (name == "perplexity" and value < 10) or name in ("kl", "reward", "rule")
    return f"{value:.2f}" if fine else f"{value:,.1f}"


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a sample that fit so many columns; of a long one the first, and a sign that there is more."""
    lines = [line.plain.rstrip() for line in Text(text).wrap(Console(width=width, file=io.StringIO()), width)] or [""]
    if len(lines) <= SAMPLE_LINES:
        return lines
    last = Text(lines[SAMPLE_LINES - 1])
    last.truncate(width - 2)
    return [*lines[: SAMPLE_LINES - 1], f"{last.plain} …"]


def make_show(console: Console | None = None) -> Show:
    """A live table on a terminal, lines elsewhere."""
    console = console or Console(stderr=True)
    return LiveTable(console) if console.is_terminal else PlainLines(console)
