"""Results go to stdout, everything else to stderr. rich is imported when something is drawn with it."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.cli.arguments import as_typed
from regard.errors import spelled
from regard.files import finite
from regard.threads import only_waits
from regard.world import world_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from regard.training.show import Show

WIDE = 1000  # columns of a table that no terminal shows: nothing is cut or wrapped in a file


def say(text: str) -> None:
    """A line for the person, out of the way of results; of several processes that do one work, the first one speaks."""
    if world_of(os.environ).is_first:
        print(spelled(text, as_typed), file=sys.stderr)


def show_run() -> Show:
    """A listener that shows a run as it learns, with settings and options as they are typed."""
    from regard.training import show  # imports pydantic, which verbs that only print do not need

    shown = show.make_show()
    shown.spell = as_typed
    return shown


def results() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: object) -> None:
    print(json_line(value, indent=2))


def json_line(value: object, indent: int | None = None) -> str:
    """A value as strict JSON, in one line; a lone surrogate, as in the name of a file that is not UTF-8, is escaped."""
    line = json.dumps(finite(value), ensure_ascii=False, indent=indent)
    return line if printable(line) == line else json.dumps(finite(value), indent=indent)


def printable(text: str) -> str:
    """The text as it can be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
    *,
    stack: bool = False,
) -> None:
    """A plain table; the columns in `right` hold numbers, those in `fold` take several lines where room is short.

    With `stack`, a terminal that is too narrow for the columns gets a paragraph for each row instead.
    """
    from rich.table import Table
    from rich.text import Text

    console = results()
    if stack and console.is_terminal and _natural_width(columns, rows) > console.width:
        _print_stacked(columns, rows, console)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(name.strip() for name in columns))
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name not in fold, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    if console.is_terminal:
        console.print(table)
        return
    console.width = WIDE
    with console.capture() as captured:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _natural_width(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> int:
    """Columns of a terminal that a table takes if nothing is folded, two spaces between them."""
    from rich.cells import cell_len

    widths = [max(cell_len(str(cell)) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def _print_stacked(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], console: Console) -> None:
    """Each row as its first cell and, indented below it, the others with the names of their columns."""
    for first, *cells in rows:
        console.print(first, markup=False, style="bold", overflow="fold")
        told = [f"{name} {cell}" for name, cell in zip(columns[1:], cells, strict=True) if str(cell)]
        for line in textwrap.wrap(" · ".join(told), max(20, console.width - 2)):
            console.print(f"  {line}", markup=False)


def one_line(text: str) -> str:
    """The text without line ends, so that line n of the output answers line n of the input."""
    return re.sub(r"\r\n|\r|\n", " ", text)


Advance = Callable[[int, int], None]


def _in_lines(what: str, every: float) -> Advance:
    """Progress for a file or a pipe: whole lines, not more often than each so many seconds."""
    started = last = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every and done:
            last = now
            left = f", about {(now - started) * (total - done) / done:,.0f} s left" if total else ""
            say(f"{what}: {done:,}{f' of {total:,}' if total else ''} in {now - started:,.0f} s{left}")

    return advance


@contextmanager
def progress(what: str, every: float | None = None) -> Iterator[Advance]:
    """A line on the terminal: how many of how many, how fast, how long it will take.

    Where stderr is no terminal there is nothing, or, with `every`, a line each so many seconds.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield (lambda done, total: None) if every is None else _in_lines(what, every)
        return
    started = time.monotonic()
    spinner = Spinner("dots", f"{what} …")
    # What is printed goes where it should meanwhile: rich would take stdout to the terminal, past a file that it was sent to.
    before = set(threading.enumerate())
    with Live(spinner, console=console, transient=True, redirect_stdout=False):
        only_waits(*set(threading.enumerate()) - before)

        def advance(done: int, total: int) -> None:
            rate = max(done, 1e-9) / max(1e-9, time.monotonic() - started)
            of, left = (f" of {total:,}", f", {(total - done) / rate:,.0f} s left") if total else ("", "")
            spinner.update(text=f"{what}: {done:,}{of}, {rate:,.{0 if rate >= 10 else 1}f} a second{left}")

        yield advance
