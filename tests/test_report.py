"""The page and the figures of a comparison: whole, self-contained, and safe whatever names and sentences hold."""

from __future__ import annotations

import base64
import itertools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from regard.errors import RegardError
from regard.look.comparison import Bars, Column, Curve, MapPanel
from regard.look.figures.comparison import draw_by_length, draw_learning
from regard.look.figures.map import draw_side_by_side
from regard.look.figures.sheet import COLORS, MARKERS, render, style
from regard.look.map import AttentionMap
from regard.look.pages.report import Group, Page, Picture, ReportRow, ReportTable, Section, html

HOSTILE = "</title><script>alert(1)</script> \"'&amp; ]]> $x_1^$ \x1b[31m \u202e年"
SVG = "http://www.w3.org/2000/svg"


def page(text: str = HOSTILE) -> str:
    table = ReportTable([text, "b"], [Group(text, [ReportRow(text, [text, "2"], text, frozenset({1}))])], text)
    return html(Page(text, text, [Section(text, [table, Picture(b"<svg/>", text, text), text])], [(text, text)]))


def test_the_page_is_well_formed_and_holds_every_text_as_text() -> None:
    found = page()
    root = ElementTree.fromstring(found.removeprefix("<!DOCTYPE html>"))
    assert not [each for each in root.iter() if each.tag in ("script", "link", "iframe", "object")]
    assert "<script" not in found and "\x1b" not in found and "\u202e" not in found
    shown = "".join(root.find("body").itertext())  # type: ignore[union-attr]
    assert shown.count("<script>alert(1)</script> \"'&amp; ]]> $x_1^$") == 13
    assert [each.text for each in root.iter("b")] == ["2"]


def test_the_page_loads_nothing() -> None:
    found = page("plain")
    assert not re.search(r"https?:|//[a-z]|@import|url\(", found)
    root = ElementTree.fromstring(found.removeprefix("<!DOCTYPE html>"))
    links = [each.get("src") or each.get("href") or "" for each in root.iter() if each.get("src") or each.get("href")]
    assert len(links) == 1 and links[0].startswith("data:image/svg+xml;base64,")
    assert base64.b64decode(links[0].split(",")[1]) == b"<svg/>"
    assert "prefers-color-scheme: dark" in found and "@media print" in found


def maps(names: list[str], count: int = 3) -> list[MapPanel]:
    weights = np.full((2, count), 1 / count)
    return [MapPanel(name, AttentionMap(weights, ("x",) * count, ("y", HOSTILE))) for name in names]


def test_hostile_names_can_be_drawn() -> None:
    columns = [Column("1 to 5", 31), Column("6 to 9", 40), Column("7 to 19", 35, joined=2)]
    models = [Bars(name, [3.0, 9.0, 1.0], [1.0, 8.0, 0.5], [4.0, 10.0, 2.0]) for name in (HOSTILE, "b" * 300)]
    curves = [Curve(HOSTILE, [1.0, 2.0], [3.0, 4.0], [float("nan"), 2.0])]
    figures = [
        draw_by_length(columns, models, "words"),
        draw_learning(curves),
        draw_side_by_side([*maps([HOSTILE, "b"]), MapPanel("c", None)], HOSTILE),
    ]
    for figure in figures:
        svg = render(figure, "svg")
        root = ElementTree.fromstring(svg)
        assert root.tag == f"{{{SVG}}}svg" and not list(root.iter(f"{{{SVG}}}script"))
        assert render(figure, "png").startswith(b"\x89PNG")


def test_scores_by_length_stand_where_they_should() -> None:
    """Points at their values, intervals around them, joined columns hollow and apart."""
    columns = [Column("1 to 5", 31), Column("6 to 9", 40), Column("7 to 19", 35, joined=2)]
    model = Bars("m", [30.0, 20.0, 10.0], [28.0, 17.0, 9.0], [31.0, 22.0, 12.0])
    axes = draw_by_length(columns, [model], "words").axes[0]
    plain, joined = (container[0] for container in axes.containers)
    assert plain.get_xydata().tolist() == [[0.0, 30.0], [1.0, 20.0]]
    assert joined.get_xydata().tolist() == [[2.0, 10.0]]
    assert joined.get_markerfacecolor() == "white" and plain.get_markerfacecolor() == COLORS[0]
    bars = [segment.tolist() for container in axes.containers for segment in container[2][0].get_segments()]
    assert bars == [[[0, 28], [0, 31]], [[1, 17], [1, 22]], [[2, 9], [2, 12]]]
    ticks = [label.get_text().split("\n") for label in axes.get_xticklabels()]
    assert ticks == [["1 to 5", "", "n = 31"], ["6 to 9", "", "n = 40"], ["2 joined", "7 to 19", "n = 35"]]


def test_learning_over_time() -> None:
    """Seconds for short runs, minutes for long ones; a metric that nobody has gets no panel."""
    gap = float("nan")
    short = draw_learning([Curve("a", [0.5, 1.0], [gap, gap], [3.0, 2.0])])
    assert [axes.get_ylabel() for axes in short.axes] == ["validation loss"]
    assert short.axes[0].get_lines()[0].get_xdata().tolist() == [30.0, 60.0]
    long = draw_learning([Curve("a", [5.0, 10.0], [1.0, 2.0], [3.0, 2.0]), Curve("b", [4.0], [9.0], [1.0])])
    assert [axes.get_xlabel() for axes in long.axes] == ["minutes of training"] * 2
    assert [line.get_label() for line in long.axes[0].get_lines()] == ["a", "b"]
    with pytest.raises(RegardError, match="no run has a validation"):
        draw_learning([Curve("a", [], [], [])])


def test_lines_differ_in_colour_and_in_mark() -> None:
    looks = [tuple(style(number).values()) for number in range(len(COLORS) * len(MARKERS))]
    assert len(set(looks)) == len(looks)  # coprime numbers of each
    assert all(one[0] != two[0] and one[1] != two[1] for one, two in itertools.pairwise(looks))


@pytest.mark.parametrize("count", [3, 23])
def test_side_by_side_everything_is_on_the_page(count: int) -> None:
    panels = [*maps(["a", "b", "c"], count), MapPanel("none", None), *maps(["d"], count)]
    figure = draw_side_by_side(panels, "title")
    width, height = figure.get_size_inches() * figure.dpi
    boxes = [box for axes in figure.axes if (box := axes.get_tightbbox()) is not None]
    assert all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= width + 1 and b.y1 <= height + 1 for b in boxes)
    inner = [axes.get_window_extent() for axes in figure.axes[: len(panels)]]
    assert not any(one.overlaps(two) for place, one in enumerate(inner) for two in inner[:place])
    names = [axes.get_xlabel() for axes in figure.axes[: len(panels)]]
    assert names == ["a", "b", "c", "none", "d"] and "no attention" in [t.get_text() for t in figure.axes[3].texts]
    with pytest.raises(RegardError, match="none of the models"):
        draw_side_by_side([MapPanel("a", None)])
