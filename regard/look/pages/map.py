"""Attention maps as HTML: a table of coloured cells for notebooks, and a page with every number under the pointer.

On the page a map of 60 x 60 tokens shows all its words; one of 512 x 512 begins small, and grows under a slider. Several
heads stand small above one large map, which shows the head that was clicked. Cells are a picture with one pixel each, made
larger by the style; without script the page still shows them all.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from PIL import Image

from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.labels import visible
from regard.look.map import AttentionMap
from regard.look.pages import template
from regard.look.sentence import AllHeads
from regard.look.shown import Shown

MOST_CELLS = 6_000  # of tables in a notebook: a cell takes 160 bytes
WIDE, HIGH = 1150, 900  # pixels that the large map takes at first, at most
SMALL_CELL, LARGE_CELL = 9, 28  # pixels; below the first, words cannot be read and are left out
THUMBNAIL = 132  # pixels, the longer side of a head
MOST_NUMBERS = 2_000_000  # on one page, two bytes each; with more, only the colours tell
LEVELS, HIDDEN = 65534, 65535  # of a number on the page

Head = tuple[str, np.ndarray]  # name and weights (T, S)


@dataclass(frozen=True)
class MapPanelOfPage:
    """One head of a page."""

    name: str
    picture: str  # the address of a picture with one pixel a cell


def map_table(attention: AttentionMap) -> str:
    """Return one table, or one for each head, on one colour scale, with a legend; for a large map, its picture."""
    if attention.weights.size > MOST_CELLS:
        return picture_of(attention)
    top = scale_top(attention.weights)
    if attention.weights.ndim == 2:
        panels = [{"name": "", "rows": _cells(attention, attention.weights, top)}]
    else:
        panels = [
            {"name": f"head {number}", "rows": _cells(attention, weights, top)}
            for number, weights in enumerate(attention.weights)
        ]
    return template.render(
        "map_table.html",
        title=attention.title,
        notes=attention.notes,
        columns=attention.columns,
        panels=panels,
        top=f"{top:g}",
        masked=bool(np.isnan(attention.weights).any()),
    )


def _cells(attention: AttentionMap, weights: np.ndarray, top: float) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each row label with its cells: what a cell tells under the pointer, and its colour, empty where masked."""
    shown = [visible(column) for column in attention.columns]
    return [
        (label, [_cell(weight, top, visible(label), column) for weight, column in zip(line, shown, strict=True)])
        for label, line in zip(attention.rows, weights, strict=True)
    ]


def _cell(weight: float, top: float, row: str, column: str) -> tuple[str, str]:
    if np.isnan(weight):
        return f"{row} → {column}: masked", ""
    return f"{row} → {column}: {weight:.3f}", hexadecimal(color(INK, weight / top))


def picture_of(shown: Shown) -> str:
    """Return the figure as a picture for a notebook, which says in words what is on it."""
    address = template.data_uri(shown._repr_png_(), "image/png")
    return template.render("picture.html", address=address, alt=shown._alternative())


def picture_page(shown: Shown) -> str:
    """Return a page with nothing but the figure and what is on it in words."""
    return template.render("sheet.html", title=shown.called, fragment=Markup(picture_of(shown)), widest="110em")


def map_page(attention: AttentionMap) -> str:
    """Return the page of a map, or of its heads."""
    if attention.weights.ndim == 2:
        heads = [[("", attention.weights)]]
    else:
        heads = [[(f"head {number}", weights) for number, weights in enumerate(attention.weights)]]
    return maps_page(heads, attention.columns, attention.rows, attention.title, attention.notes)


def all_heads_page(heads: AllHeads) -> str:
    """Return the page of every layer and head."""
    lines = [
        [(f"layer {layer}, head {head}", weights) for head, weights in enumerate(each)]
        for layer, each in enumerate(heads.layers.values())
    ]
    return maps_page(lines, heads.columns, heads.rows, heads.title, heads.notes)


def maps_page(
    lines: Sequence[Sequence[Head]], columns: Sequence[str], rows: Sequence[str], title: str, notes: Sequence[str]
) -> str:
    """Return the page of lines of heads, a line for each layer where there are several."""
    heads = [head for line in lines for head in line]
    top = max(scale_top(weights) for _, weights in heads)
    numbers = sum(weights.size for _, weights in heads) <= MOST_NUMBERS
    notes = notes if numbers else [*notes, "too many numbers for a page: the colours are here, the numbers in .json"]
    cell = _first_cell(len(rows), len(columns))
    share = THUMBNAIL / max(len(rows), len(columns)) * (1.0 if len(lines) == 1 else 0.75)
    return template.render(
        "map.html",
        title=title or "attention map",
        notes=notes,
        rows=rows,
        columns=columns,
        lines=[[MapPanelOfPage(name, _picture(weights, top)) for name, weights in line] for line in lines],
        across=max(len(line) for line in lines),
        top=f"{top:g}",
        masked=any(bool(np.isnan(weights).any()) for _, weights in heads),
        cell=cell,
        small=cell < SMALL_CELL,
        thumbnail=(max(12, round(len(columns) * share)), max(12, round(len(rows) * share))),
        shrunk=share < 1,
        numbers=coded_numbers([weights for _, weights in heads] if numbers else []),
    )


def _first_cell(rows: int, columns: int) -> int:
    room = min(WIDE // columns, max(HIGH // rows, SMALL_CELL if rows * SMALL_CELL < 2 * HIGH else 0))
    return max(2, min(LARGE_CELL, room))


def _picture(weights: np.ndarray, top: float) -> str:
    """One pixel a cell, in 255 steps of colour; masked cells are clear, and the hatched ground shows."""
    steps = np.clip(np.nan_to_num(weights) / top, 0.0, 1.0) * 254
    image = Image.fromarray(np.where(np.isnan(weights), 255, np.round(steps)).astype(np.uint8))
    image.putpalette([part for step in range(255) for part in color(INK, step / 254)] + [255] * 3)
    file = io.BytesIO()
    image.save(file, format="PNG", transparency=255, optimize=True)
    return template.data_uri(file.getvalue(), "image/png")


def coded_numbers(panels: Sequence[np.ndarray]) -> dict[str, object]:
    """Return weights in two bytes each, from the lowest to the highest, and one value for masked."""
    known = [weights[np.isfinite(weights)] for weights in panels]
    low = min((float(each.min()) for each in known if each.size), default=0.0)
    high = max((float(each.max()) for each in known if each.size), default=1.0)
    span = (high - low) or 1.0
    coded = []
    for weights in panels:
        share = (np.where(np.isnan(weights), low, weights) - low) / span
        levels = np.where(np.isnan(weights), HIDDEN, np.round(share * LEVELS)).astype("<u2")
        coded.append(base64.b64encode(levels.tobytes()).decode("ascii"))
    return {"low": low, "high": low + span, "panels": coded}
