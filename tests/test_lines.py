"""Lines between two sentences, read back from what was drawn: ends of curves, looks of lines, numbers in files."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from rich.cells import cell_len
from rich.console import Console

from regard.errors import RegardError, UsageError
from regard.look.colors import luminance
from regard.look.figures import sheet as series
from regard.look.lines import HUES, Lines, number
from regard.look.map import AttentionMap
from regard.look.pages.text import SCRIPT, STYLE

NAN = float("nan")
GERMAN, ENGLISH = ("ein", "rotes", "Fahrrad"), ("a", "red", "bike", "</s>")
BY_HAND = AttentionMap(
    np.array([[0.9, 0.06, 0.04], [0.02, 0.96, 0.02], [0.0, 0.3, 0.7], [NAN, NAN, 1.0]]), GERMAN, ENGLISH, "by hand"
)


def names(stem: str, count: int) -> tuple[str, ...]:
    return tuple(f"{stem}{place}" for place in range(count))


def random_map(rows: int, columns: int, heads: int = 0, sharp: float = 3.0) -> AttentionMap:
    scores = np.random.default_rng(7).normal(size=(heads, rows, columns) if heads else (rows, columns)) * sharp
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return AttentionMap(weights, names("word", columns), names("wort", rows), "random")


# --- What is drawn


def test_lines_by_hand() -> None:
    """The scale ends at 1, so a twentieth of it is 0.05: four weights fall below, 0.08 of the 4 that there are."""
    lines = Lines(BY_HAND)
    assert (lines.top, lines.threshold) == (1.0, 0.05)
    assert [line[1:] for line in lines.drawn] == [
        (0, 1, 0.06), (2, 1, 0.3), (2, 2, 0.7), (0, 0, 0.9), (1, 1, 0.96), (3, 2, 1.0)
    ]  # fmt: skip
    assert lines.hidden == pytest.approx(0.02)
    assert lines.notes == ("weights below 0.05 are left out: 2% of all weight", "masked: no line")


def test_a_threshold_may_be_given_and_nothing_is_hidden_silently() -> None:
    assert len(Lines(BY_HAND, below=0.5).drawn) == 4
    assert Lines(BY_HAND, below=0.5).hidden == pytest.approx((0.1 + 0.04 + 0.3) / 4)
    assert Lines(BY_HAND, below=0.0).notes[0] == "no weight is left out"
    assert len(Lines(BY_HAND, below=0.0).drawn) == 9  # masked cells and zeros have no line
    assert "less than 1%" in Lines(BY_HAND, below=0.021).notes[0] or Lines(BY_HAND, below=0.021).hidden >= 0.01
    for wrong in (-0.1, NAN, float("inf")):
        with pytest.raises(RegardError, match="0 or more"):
            Lines(BY_HAND, below=wrong)


def test_a_map_of_very_many_words_has_lines_that_can_be_told_apart() -> None:
    many = Lines(random_map(211, 223, sharp=1.0))
    assert 3900 <= len(many.drawn) <= 4100
    assert many.hidden == pytest.approx(1 - sum(line.weight for line in many.drawn) / 211)
    even = Lines(AttentionMap(np.full((101, 103), 1 / 103), ("a",) * 103, ("b",) * 101))
    assert not even.drawn and even.notes == ("weights below 0.01 are left out: 100% of all weight",)


def test_heads_have_a_colour_each_and_more_than_eight_are_averaged() -> None:
    eight, nine = Lines(random_map(5, 7, heads=8)), Lines(random_map(5, 7, heads=9))
    assert eight.colored and {line.head for line in eight.drawn} == set(range(8))
    assert {eight.stroke(0.5, head).color for head in range(8)} == set(HUES)
    assert not nine.colored and "mean of 9 heads" in nine.notes
    np.testing.assert_allclose(nine.weights[0], nine.map.weights.mean(0))
    assert not Lines(random_map(5, 7, heads=1)).colored


def test_notes_of_the_map_are_kept() -> None:
    noted = AttentionMap(np.eye(2), ("a", "b"), ("c", "d"), notes=("special tokens hidden",))
    assert "special tokens hidden" in Lines(noted).notes
    assert "special tokens hidden" in Lines(noted).text() and "special tokens hidden" in Lines(noted).html()


# --- How a line looks


@pytest.mark.parametrize(("heads", "head"), [(0, None), (8, None), *((8, head) for head in range(8))])
def test_more_weight_is_thicker_less_transparent_and_darker(heads: int, head: int | None) -> None:
    lines = Lines(random_map(5, 7, heads=heads))
    strokes = [lines.stroke(weight, head) for weight in np.linspace(0.01, lines.top, 50)]
    on_white = [1 + each.opacity * (np.array(to_rgb(each.color)) - 1) for each in strokes]
    light = [luminance(tuple(round(255 * part) for part in each)) for each in on_white]
    for before, after in pairwise(range(50)):
        assert strokes[after].width > strokes[before].width and strokes[after].opacity > strokes[before].opacity
        assert light[after] <= light[before]
    assert light[-1] < light[0] - 0.3 and light[0] < 0.95


def test_hues_are_told_apart_by_eyes_without_red_or_green() -> None:
    """Machado, Oliveira & Fernandes 2009: what a colour becomes without the M cones, and without the L cones."""
    without = {
        "green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    }
    assert HUES[: len(series.COLORS)] == series.COLORS
    for matrix in without.values():
        seen = [np.clip(np.array(matrix) @ np.array(to_rgb(hue)), 0, 1) for hue in HUES]
        assert min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)) > 0.15


# --- Figures


def label_boxes(figure: Figure, labels: tuple[str, ...], column: int) -> dict[str, Bbox]:
    """The boxes of the labels of one side: 0 left, 1 right."""
    middle = figure.bbox.width / 2
    found: dict[str, Bbox] = {}
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        if text.get_text() in labels and (box.x0 > middle) == bool(column):
            found[text.get_text()] = box
    return found


def test_curves_end_at_the_words_that_they_join_and_look_as_their_weights_say() -> None:
    lines = Lines(BY_HAND)
    figure = lines.figure()
    (curves,) = figure.axes[0].collections
    widths, colors = np.array(curves.get_linewidth()), np.array(curves.get_edgecolor())
    left, right = label_boxes(figure, ENGLISH, 0), label_boxes(figure, GERMAN, 1)
    assert len(curves.get_paths()) == len(lines.drawn) == 6
    for index, (path, line) in enumerate(zip(curves.get_paths(), lines.drawn, strict=True)):
        start, *_, end = figure.axes[0].transData.transform(path.vertices)
        one, other = left[ENGLISH[line.row]], right[GERMAN[line.column]]
        height = max(box.height for box in (*left.values(), *right.values()))
        assert one.x1 < start[0] < one.x1 + 30 and other.x0 - 30 < end[0] < other.x0
        assert abs(start[1] - (one.y0 + one.y1) / 2) < height / 2
        assert abs(end[1] - (other.y0 + other.y1) / 2) < height / 2
        stroke = lines.stroke(line.weight)
        assert widths[index] == pytest.approx(stroke.width)
        assert tuple(colors[index]) == pytest.approx((*to_rgb(stroke.color), stroke.opacity))
    assert colors[0][3] < colors[-1][3]  # the strongest lies on top


@pytest.mark.parametrize(
    ("rows", "columns", "heads"), [(13, 11, 0), (60, 60, 0), (3, 61, 0), (7, 5, 8), (1, 1, 0), (290, 30, 0)]
)
def test_labels_can_be_read_and_nothing_overlaps_or_is_cut(rows: int, columns: int, heads: int) -> None:
    lines = Lines(random_map(rows, columns, heads))
    figure = lines.figure()
    boxes = [(text, text.get_window_extent()) for text in figure.axes[0].texts]
    for text, box in boxes:
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 and box.y1 <= figure.bbox.height
        assert float(text.get_fontsize()) >= 5.5
    for (_, one), (_, other) in combinations(boxes, 2):
        assert one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1
    shown = {text.get_text() for text, _ in boxes}
    if rows <= 60:
        assert {*lines.map.rows, *lines.map.columns} <= shown
        assert all(float(text.get_fontsize()) >= 7.9 for text, _ in boxes)
    assert {"random", "looks", "is looked at", "weight", f"{lines.top:g}", f"{lines.threshold:g}"} <= shown
    assert not heads or {f"head {head}" for head in range(heads)} <= shown
    assert any("left out" in each for each in shown)


def test_a_dollar_and_a_space_are_seen() -> None:
    figure = Lines(AttentionMap(np.eye(2), ("$x$", " b"), ("", "\n"))).figure()
    texts = list[Text](figure.axes[0].texts)
    assert {"$x$", "␣b", "∅", "↵"} <= {text.get_text() for text in texts}
    assert not any(text.get_parse_math() for text in texts)


def test_files_are_whole_and_equal_for_equal_lines(tmp_path: Path) -> None:
    lines = Lines(BY_HAND)
    assert lines.save(tmp_path / "a.svg").read_bytes() != b"" and b"</svg>" in (tmp_path / "a.svg").read_bytes()[-20:]
    assert lines.save(tmp_path / "a.PNG").read_bytes() == lines.save(tmp_path / "b.png").read_bytes()
    with pytest.raises(UsageError, match=r"a\.pdf, which ends in \.pdf; use \.png, \.svg, \.html, \.json, \.csv"):
        lines.save(tmp_path / "a.pdf")


# --- HTML


def test_html_has_every_line_with_its_numbers_and_escapes_its_labels(tmp_path: Path) -> None:
    odd = AttentionMap(BY_HAND.weights, ('<b>"', "&amp;", "年"), ("'", "</script>", "\n", "x"), "<i> & co")
    page = Lines(odd).save(tmp_path / "lines.html").read_text(encoding="utf-8")
    assert "http" not in page and "url(" not in page and "src=" not in page
    root = ElementTree.fromstring(page.partition("\n")[2])  # well-formed after the doctype
    assert root.findtext("head/title") == "<i> & co" and root.findtext(".//bdi") == "<i> & co"
    paths = list(root.iter("path"))
    found = [
        (int(each.attrib["data-row"]), int(each.attrib["data-column"]), each.attrib["data-weight"]) for each in paths
    ]
    assert found == [(line.row, line.column, number(line.weight)) for line in Lines(odd).drawn]
    assert [path.findtext("title") for path in paths][-2:] == ["</script> → &amp;: 0.960", "x → 年: 1.000"]
    words = [group for group in root.iter("g") if group.get("class") == "w"]
    shown = [(group.findtext("text") or "").strip("\u2068\u2069") for group in words]
    assert shown == ["'", "</script>", "↵", "x", '<b>"', "&amp;", "年"]
    assert all(group.get("tabindex") == "0" and group.get("aria-label") for group in words)
    assert words[2].get("aria-label") == "↵ looks at 年 0.70, &amp; 0.30"
    assert words[5].get("aria-label") == "&amp; is looked at by </script> 0.96, ↵ 0.30, ' 0.06"
    assert "left out: 2% of all weight" in page and Lines(odd)._repr_html_() in page


def test_html_curves_begin_at_their_words() -> None:
    root = ElementTree.fromstring(Lines(BY_HAND)._repr_html_())
    middles = {
        (side, int(group.attrib[f"data-{side}"])): float(group.find("text").attrib["y"])  # type: ignore[union-attr]
        for group in root.iter("g") for side in ("row", "column") if f"data-{side}" in group.attrib
    }  # fmt: skip
    for path in root.iter("path"):
        match = re.fullmatch(r"M\S+ (\S+)C\S+ (\S+) \S+ (\S+) \S+ (\S+)", path.attrib["d"])
        assert match is not None
        start, level, other, end = map(float, match.groups())
        assert start == level and other == end  # leaves and arrives level
        assert abs(start - middles["row", int(path.attrib["data-row"])]) < 8
        assert abs(end - middles["column", int(path.attrib["data-column"])]) < 8


def test_the_script_is_the_same_in_html_and_xml() -> None:
    assert not set("<&") & set(SCRIPT + STYLE)
    assert "fetch" not in SCRIPT and "import" not in SCRIPT


# --- Terminal and data


def test_each_word_with_what_it_looks_at() -> None:
    assert Lines(BY_HAND).text().splitlines() == [
        "by hand",
        "   a → ein 0.90, rotes 0.06",
        " red → rotes 0.96",
        "bike → Fahrrad 0.70, rotes 0.30",
        "</s> → Fahrrad 1.00",
        "",
        "weights below 0.05 are left out: 2% of all weight",
        "masked: no line",
    ]


@pytest.mark.parametrize("width", [24, 40, 100])
def test_long_lists_go_on_in_the_next_line(width: int) -> None:
    lines = Lines(random_map(7, 23, heads=2, sharp=0.3))
    text = lines.text(width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "head 0" in text and "head 1" in text
    assert len(re.findall(r"word\d+ 0\.\d+", text)) == len(lines.drawn)


def test_a_console_gets_colours_only_if_it_has_them() -> None:
    def shown(system: str | None) -> str:
        file = io.StringIO()
        Console(file=file, force_terminal=True, color_system=system, width=60).print(Lines(BY_HAND))  # type: ignore[arg-type]
        return file.getvalue()

    assert "48;2;" in shown("truecolor") and "48;2;" not in shown(None)
    assert "48;2;" in Lines(BY_HAND).text(60, color=True)


def test_json_has_every_weight_and_csv_every_line(tmp_path: Path) -> None:
    lines = Lines(random_map(5, 7, heads=3))
    found = json.loads(lines.save(tmp_path / "a.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    np.testing.assert_array_equal(np.array(found["weights"]), lines.map.weights)
    assert (found["below"], found["left_out"], len(found["lines"])) == (lines.threshold, lines.hidden, len(lines.drawn))
    with open(lines.save(tmp_path / "a.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(lines.drawn) == (lines.map.weights >= lines.threshold).sum()
    for row in rows:
        place = int(row["head"]), int(row["row"]), int(row["column"])
        assert float(row["weight"]) == lines.map.weights[place]
        assert (row["looks"], row["is_looked_at"]) == (f"wort{place[1]}", f"word{place[2]}")
    assert json.loads(Lines(BY_HAND).json())["weights"][3] == [None, None, 1.0]


def test_importing_lines_loads_no_pictures() -> None:
    program = "import sys, regard.look.lines as w; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent).returncode == 0
