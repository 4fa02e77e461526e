"""What a person sees while a model learns: a live table on a terminal, plain lines elsewhere, all on stderr."""

from __future__ import annotations

import io
import math
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.training.config import TrainConfig
from regard.training.probe import Forecast, duration
from regard.training.state import Progress

ROWS = 12  # validations that stay in view
SAMPLE_LINES = 4  # of a sample that is shown


class Show:
    """Shows nothing: the base, for runs from Python that want silence."""

    unit = "tokens"  # what is counted; the loop says it

    def forecast(self, found: Forecast, config: TrainConfig) -> None: ...
    def train(self, row: dict[str, Any], spent: float, config: TrainConfig) -> None: ...
    def valid(self, progress: Progress, found: Any, better: bool, spent: float) -> None: ...
    def average(self, name: str, found: Any, better: bool) -> None: ...
    def note(self, text: str) -> None: ...

    def __enter__(self) -> Show:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Lines(Show):
    """One line for each event: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._speed = Speed()

    def forecast(self, found: Forecast, config: TrainConfig) -> None:
        self.note(found.sentence(config.steps, config.max_time))

    def train(self, row: dict[str, Any], spent: float, config: TrainConfig) -> None:
        if row["step"] % (5 * config.log_every) == 0:
            self.note(self._speed.line(row, spent, config, self.unit))

    def valid(self, progress: Progress, found: Any, better: bool, spent: float) -> None:
        star = "  best so far" if better else ""
        self.note(f"step {progress.step:,}  validation  {metrics_line(found.metrics)}  after {duration(spent)}{star}")
        for source, output, reference in found.samples[:1]:
            parts = (
                (("    ", source), ("  → ", output), ("  = ", reference)) if reference else (("    ", source + output),)
            )
            self.note("\n".join(mark + "\n    ".join(wrapped(text, self.console.width - 4)) for mark, text in parts))

    def average(self, name: str, found: Any, better: bool) -> None:
        self.note(f"{name}: {metrics_line(found.metrics)}{'  taken' if better else '  not better'}")

    def note(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


class LiveTable(Lines):
    """A live table: one row for each validation, the present state and time left below it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._rows: list[list[str]] = []
        self._header: list[str] = []
        self._last: dict[str, Any] = {}
        self._status = ""
        self._done = 0.0
        self._samples: list[tuple[str, str, str]] = []
        self._live = Live(self._render(), console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Show:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(self._render(), refresh=True)
        self._live.stop()

    def train(self, row: dict[str, Any], spent: float, config: TrainConfig) -> None:
        self._last = row
        self._status = self._speed.line(row, spent, config, self.unit)
        self._done = share_done(row["step"], spent, config)
        self._live.update(self._render())

    def valid(self, progress: Progress, found: Any, better: bool, spent: float) -> None:
        loss = f"{self._last['loss']:.3f}" if self._last else ""
        self._header = ["step", "train loss", *(f"valid {name}" for name in found.metrics), f"{self.unit}/s", "time"]
        numbers = [number(name, value) for name, value in found.metrics.items()]
        self._rows.append([
            f"{progress.step:,}{' ★' if better else '  '}", loss, *numbers, f"{self._speed.rate:,.0f}", duration(spent)
        ])  # fmt: skip
        self._samples = found.samples[:2]
        self._live.update(self._render())

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in self._header:
            table.add_column(name, justify="right")
        for row in self._rows[-ROWS:]:
            table.add_row(*row)
        parts: list[Any] = [table] if self._rows else []
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
        parts.append(Padding(ProgressBar(total=1.0, completed=self._done, width=60), 0))  # a bar alone ends no line
        parts.append(Text(self._status or "first batches …", style="dim"))
        return Group(*parts)


class Speed:
    """Tokens (or texts) per second since the last row, and the line that says so."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._tokens, self._spent = 0, 0.0

    def line(self, row: dict[str, Any], spent: float, config: TrainConfig, unit: str = "tokens") -> str:
        if row["tokens"] > self._tokens and spent > self._spent and self._spent:
            self.rate = (row["tokens"] - self._tokens) / (spent - self._spent)
        elif spent:
            self.rate = row["tokens"] / spent
        self._tokens, self._spent = row["tokens"], spent
        learned = "  ".join([f"loss {row['loss']:.3f}", *quality(row, unit)])
        return (
            f"step {row['step']:,}  epoch {row['epoch'] + 1}  {learned}  "
            f"{self.rate:,.0f} {unit}/s  {time_left(row['step'], spent, config)}"
        )


def quality(row: dict[str, Any], unit: str) -> list[str]:
    """What a row of the log tells beside the loss: the perplexity of tokens, the share of right answers."""
    found = []
    if "nll" in row and unit.endswith("tokens"):
        found.append(f"perplexity {number('perplexity', math.exp(min(20.0, row['nll'])))}")
    if "correct" in row:
        found.append(f"accuracy {row['correct']:.1%}")
    return found


def share_done(step: int, spent: float, config: TrainConfig) -> float:
    by_time = spent / config.max_time if config.max_time else 0.0
    return min(1.0, max(step / config.steps, by_time))


def time_left(step: int, spent: float, config: TrainConfig) -> str:
    """The time to the last step, or to the time limit if that comes first."""
    left = spent / step * (config.steps - step)
    if config.max_time is not None:
        left = min(left, config.max_time - spent)
    return f"{duration(max(0.0, left))} left"


def metrics_line(metrics: dict[str, float]) -> str:
    return "  ".join(f"{name} {number(name, value)}" for name, value in metrics.items())


def number(name: str, value: float) -> str:
    """Three digits where small differences matter, one for scores out of 100."""
    if name in ("loss", "bits_per_byte"):
        return f"{value:.3f}"
    return f"{value:.2f}" if name == "perplexity" and value < 10 else f"{value:,.1f}"


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
    return LiveTable(console) if console.is_terminal else Lines(console)
