"""A walk that shows itself: on a console, in a notebook, and as a file by its suffix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import UsageError
from regard.files import write_text
from regard.look.terminal.map import ansi
from regard.look.walk.page import render_fragment, render_page
from regard.look.walk.steps import WalkData
from regard.look.walk.terminal import draw

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

DIGITS = 3  # behind the point, where a person does not say how many
SUFFIXES = (".html", ".json", ".txt")


@dataclass(frozen=True, eq=False, repr=False)
class Walk(WalkData):
    """One query of one head, from its vector to what attention makes of it."""

    def text(self, width: int = 80, color: bool = False, digits: int = DIGITS) -> str:
        """The walk for a terminal of that width."""
        drawn = self.drawn(width, color, digits)
        return ansi(drawn) if color else drawn.plain

    def drawn(self, width: int, colored: bool, digits: int = DIGITS) -> Text:
        """The same as rich has it."""
        return draw(self, width, colored, digits)

    def html(self, digits: int = DIGITS) -> str:
        """A whole page; nothing is loaded from elsewhere."""
        return render_page(self, digits)

    def save(self, path: str | Path, digits: int = DIGITS) -> Path:
        """Write the walk in the format that the suffix names, whole or not at all."""
        path = Path(path)
        if path.suffix.lower() == ".html":
            return write_text(path, self.html(digits))
        if path.suffix.lower() == ".json":
            return write_text(path, self.json())
        if path.suffix.lower() == ".txt":
            return write_text(path, self.text(digits=digits) + "\n")
        found = f"ends in {path.suffix}" if path.suffix else "has no suffix"
        raise UsageError(f"cannot tell how to write a walk to {path.name}, which {found}; use {', '.join(SUFFIXES)}")

    def _repr_html_(self) -> str:
        return render_fragment(self, DIGITS)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.drawn(options.max_width, console.color_system is not None)
