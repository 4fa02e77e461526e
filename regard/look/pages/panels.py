"""Panels as a page: heat maps that tell the number under the pointer, charts and pictures drawn, tables as tables."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from regard.look.colors import DIVERGING, INK, Color, hexadecimal, ink_on, shades
from regard.look.figures.panels import panels_figure
from regard.look.figures.sheet import render as as_file
from regard.look.pages import template
from regard.look.pages.map import coded_numbers
from regard.look.panels import Facts, Gallery, HeatMap, OnePanel, Panels

WIDE, LARGEST, SMALLEST = 1100, 22, 5  # pixels of a heat map, and of a cell of it
SMALL = 120  # pixels of a picture in a gallery
MOST_LABELS = 9  # pixels of a cell below which labels are left out


@dataclass(frozen=True)
class MapOfPage:
    """A heat map with a picture of one pixel a cell."""

    panel: HeatMap
    picture: str
    cell: int  # pixels
    size: tuple[int, int]  # of one in a gallery, in pixels
    number: int  # among those that tell their numbers
    ramp: str
    low: str
    high: str

    @property
    def small(self) -> bool:
        return self.cell < MOST_LABELS


@dataclass(frozen=True)
class GalleryOfPage:
    """Small pictures side by side."""

    panel: Gallery
    maps: list[MapOfPage]


@dataclass(frozen=True)
class WordsOfPage:
    """A heat map with words in its cells: each column as a line of (words, ground, ink)."""

    panel: HeatMap
    lines: list[tuple[str, list[tuple[str, str, str]]]]


@dataclass(frozen=True)
class DrawnOfPage:
    """A chart or a picture, drawn."""

    panel: OnePanel
    picture: str


def panels_page(view: Panels) -> str:
    """Return the page of a view."""
    told: list[np.ndarray] = []
    parts: list[object] = []
    for panel in view.panels():
        if isinstance(panel, HeatMap) and not panel.texts:
            parts.append(_map(panel, len(told)))
            told.append(panel.values)
        elif isinstance(panel, HeatMap):
            parts.append(WordsOfPage(panel, _words(panel)))
        elif isinstance(panel, Gallery):
            parts.append(
                GalleryOfPage(panel, [_map(each, len(told) + number) for number, each in enumerate(panel.maps)])
            )
            told += [each.values for each in panel.maps]
        elif isinstance(panel, Facts):
            parts.append(panel)
        else:
            svg = as_file(panels_figure([panel]), "svg")
            parts.append(DrawnOfPage(panel, template.data_uri(svg, "image/svg+xml")))
    kinds = {MapOfPage: "map", GalleryOfPage: "gallery", WordsOfPage: "words", DrawnOfPage: "drawn", Facts: "facts"}
    return template.render(
        "panels.html",
        title=view.title,
        notes=view.notes,
        parts=[(kinds[type(part)], part) for part in parts],
        numbers=[coded_numbers([values]) for values in told],
    )


def _map(panel: HeatMap, number: int) -> MapOfPage:
    rows, columns = panel.values.shape
    ramp, (low, high) = _ramp(panel), panel.ends
    file = io.BytesIO()
    Image.fromarray(shades(panel.shares(), ramp)).save(file, format="PNG")
    return MapOfPage(
        panel,
        template.data_uri(file.getvalue(), "image/png"),
        max(SMALLEST, min(LARGEST, WIDE // columns)),
        (SMALL, max(1, round(SMALL * rows / columns))),
        number,
        ",".join(hexadecimal(each) for each in ramp),
        f"{low:g}",
        f"{high:g}",
    )


def _words(panel: HeatMap) -> list[tuple[str, list[tuple[str, str, str]]]]:
    grounds = shades(panel.shares(), _ramp(panel))  # (R, C, 3)
    lines = []
    for column, label in enumerate(panel.columns):
        inks: list[Color] = [(int(r), int(g), int(b)) for r, g, b in grounds[:, column]]
        words = [row[column] for row in panel.texts]
        cells = [(word, hexadecimal(ink), hexadecimal(ink_on(ink))) for word, ink in zip(words, inks, strict=True)]
        lines.append((label, cells))
    return lines


def _ramp(panel: HeatMap) -> tuple[Color, ...]:
    return DIVERGING if panel.signed else INK
