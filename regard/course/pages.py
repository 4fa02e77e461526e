"""A chapter as cells: its Markdown is the source of the page, of the notebook and of the test that runs it.

```python blocks are cells of Python, ```sh blocks commands, one a line. A block marked ```sh long takes more than a minute: it
is shown, and run by nobody but the reader. A block marked ```text behind a command is what it prints, shortened: each of
its lines stands in the output, "..." for those left out; one marked ```text once came from one run and may differ.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FENCE = re.compile(r"^```(\w*)[ ]?(\w*)\n(.*?)^```$\n?", re.DOTALL | re.MULTILINE)
LEFT_OUT = "..."
TINY = {"--steps": "3", "--merges": "10", "--lengths": "32,64"}  # options of long commands, in a tiny run


@dataclass(frozen=True)
class Cell:
    """A piece of a chapter: markdown, python or sh; with the output that the page shows of a command."""

    kind: str
    text: str
    long: bool = False
    output: str | None = None  # of sh, if the page shows one that does not vary

    @property
    def commands(self) -> list[str]:
        """The commands of a cell of sh, a line each."""
        return [line for line in self.text.splitlines() if line.strip()]


def cells_of(page: str) -> list[Cell]:
    """Cut a page into cells, in order; output blocks belong to the text, and to the command before them as well."""
    cells: list[Cell] = []
    end = 0
    for fence in FENCE.finditer(page):
        language, mark, body = fence.groups()
        if language not in ("python", "sh"):
            _add_output(cells, page[end : fence.start()], language, mark, body)
            continue
        _add_text(cells, page[end : fence.start()])
        cells.append(Cell(language, body, long=mark == "long"))
        end = fence.end()
    _add_text(cells, page[end:])
    return cells


def _add_text(cells: list[Cell], text: str) -> None:
    if text.strip():
        cells.append(Cell("markdown", text.strip("\n") + "\n"))


def _add_output(cells: list[Cell], between: str, language: str, mark: str, body: str) -> None:
    """Give a command the output behind it, if nothing but white space stands between."""
    if language == "text" and not mark and cells and cells[-1].kind == "sh" and not between.strip():
        last = cells[-1]
        cells[-1] = Cell(last.kind, last.text, last.long, body)


def words_of(command: str, tiny: bool) -> list[str]:
    """The words behind `regard` of a command; in a tiny run what takes long is short, and experiments are tiny."""
    words = shlex.split(command)[1:]
    if not tiny:
        return words
    for option, value in TINY.items():
        if option in words:
            words[words.index(option) + 1] = value
    return [*words, "--tiny"] if words[0] == "experiment" and "--tiny" not in words else words


def not_printed(shown: str, printed: str) -> Iterator[str]:
    """Lines of a shown output that the command did not print, whatever the spaces between words."""
    there = [_plain(line) for line in printed.splitlines()]
    for line in shown.splitlines():
        wanted = _plain(line)
        if wanted and wanted != LEFT_OUT and not any(_agrees(wanted, each) for each in there):
            yield line


def _plain(line: str) -> str:
    return " ".join(line.split())


def _agrees(wanted: str, printed: str) -> bool:
    """Whether a line is shown whole, or cut at its end with "..."."""
    if wanted.endswith(f" {LEFT_OUT}"):
        return printed.startswith(wanted.removesuffix(f" {LEFT_OUT}"))
    return wanted == printed


# --- Notebooks

LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)]+\))")


def notebook_of(page: str, name: str) -> dict[str, object]:
    """The chapter as a notebook (format 4.5) without outputs; the same page always gives the same notebook."""
    cells = [_notebook_cell(cell, f"{name}-{number:02d}") for number, cell in enumerate(cells_of(page))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _notebook_cell(cell: Cell, name: str) -> dict[str, object]:
    if cell.kind == "python":
        return _code(cell.text, name)
    if cell.kind == "sh" and not cell.long:
        return _code("".join(f"!{line}\n" for line in cell.commands), name)
    text = cell.text if cell.kind == "markdown" else f"```sh\n{cell.text}```\n"
    source = _lines(LINK.sub(r"\1../\2", text) if cell.kind == "markdown" else text)
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def _code(text: str, name: str) -> dict[str, object]:
    source = _lines(text)
    return {
        "cell_type": "code", "execution_count": None, "id": name, "metadata": {}, "outputs": [], "source": source
    }  # fmt: skip


def _lines(text: str) -> Sequence[str]:
    return text.rstrip("\n").splitlines(keepends=True)
