"""The base of everything that shows itself: in a notebook, in a terminal, and as a file by its suffix.

A class of data derives from `Written`, or from `Shown` if it has a figure, and says nothing about how it looks: who draws
it in which medium is told by the table in `renderers`. A renderer is imported when something is drawn, here and nowhere
else, so that data alone needs neither matplotlib nor rich nor templates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import RegardError, UsageError
from regard.files import finite, write_bytes, write_text
from regard.look.renderers import FIGURE_FILE, RENDERERS, TERMINAL_TEXT, Medium

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, ConsoleOptions, RenderResult

PICTURES = (".png", ".svg")
SUFFIXES = (*PICTURES, ".json", ".csv", ".html")  # of a map, a weighed text, lines
COLORFUL = ("256", "truecolor")  # what rich calls terminals that have enough colours for a scale


class Written:
    """Something that shows itself in words and numbers. A subclass has `data`, and may be saved as more texts than JSON."""

    called: ClassVar[str] = "this"  # in a message: cannot tell how to write a map to ...

    def data(self) -> Mapping[str, object]:
        """Everything as strict JSON holds it, once NaN is null."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Write it in the format that the suffix names, whole or not at all."""
        return self._save(Path(path), self._texts())

    def json(self) -> str:
        return json.dumps(finite(self.data()), ensure_ascii=False, allow_nan=False) + "\n"

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        """The makers of each text that it can be saved as, by suffix, in the order in which messages name them."""
        return {".json": self.json}

    def _save(self, path: Path, texts: Mapping[str, Callable[[], str]], others: tuple[str, ...] = ()) -> Path:
        """Write one of the texts; a message that refuses the suffix names the `others`, too."""
        if path.suffix.lower() in texts:
            return write_text(path, texts[path.suffix.lower()]())
        raise UsageError(unknown_suffix(path, f"write {self.called}", (*others, *texts)))

    def _draw(self, medium: Medium, *arguments: object, **options: object) -> Any:  # as the medium has it
        for kind in type(self).__mro__:
            name = getattr(RENDERERS.get(kind.__name__), medium, "")
            if name:
                return function(name)(self, *arguments, **options)
        raise RegardError(
            f"{type(self).__name__} has no renderer for {medium}; the table of renderers names those it has"
        )

    def _terminal(self, width: int, color: bool, *arguments: object) -> str:
        text: str = function(TERMINAL_TEXT)(self._draw("terminal", width, color, *arguments), width, color)
        return text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._draw("terminal", options.max_width, console.color_system in COLORFUL and not console.no_color)

    def _repr_html_(self) -> str:
        fragment: str = self._draw("fragment")
        return fragment


class Shown(Written):
    """Something that shows itself as a figure, too."""

    def figure(self) -> Figure:
        """A matplotlib figure."""
        return self._draw("figure")

    def save(self, path: str | Path) -> Path:
        """Write it in the format that the suffix names, whole or not at all."""
        path = Path(path)
        if path.suffix.lower() in PICTURES:
            return write_bytes(path, as_file(self.figure(), path.suffix.lower()))
        return self._save(path, self._texts(), PICTURES)

    def png(self, path: str | Path) -> Path:
        """Write the figure as PNG, whatever the file is called."""
        return write_bytes(path, self._repr_png_())

    def _alternative(self) -> str:
        """The words for a reader who cannot see the picture."""
        return repr(self)

    def _repr_png_(self) -> bytes:
        return as_file(self.figure(), ".png")


def function(name: str) -> Callable[..., Any]:
    """Import and return a function of another module: "package.module:function"."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def as_file(figure: Figure, suffix: str) -> bytes:
    """Return the bytes of a figure as .png or .svg."""
    content: bytes = function(FIGURE_FILE)(figure, suffix.removeprefix("."))
    return content


def unknown_suffix(path: Path, verb: str, suffixes: tuple[str, ...]) -> str:
    """Return the message for a file whose suffix says no format: what it has, and which there are."""
    suffix = path.suffix.lower()
    found = f"ends in {suffix}" if suffix else "has no suffix"
    return f"cannot tell how to {verb} to {path.name}, which {found}; use {', '.join(suffixes)}"
