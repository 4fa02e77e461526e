"""Weighed texts read back from what they were written to: numbers from files, colours from pixels, text by width."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
import textwrap
import unicodedata
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image
from rich.cells import cell_len
from rich.console import Console

from regard.errors import RegardError, UsageError
from regard.look.colors import GLOW, INK, color, contrast
from regard.look.figures.fonts import BASE, drawable
from regard.look.figures.sheet import render
from regard.look.labels import characters, readable, right_to_left, wrap
from regard.look.words import WeighedText

NAN = float("nan")
SENTENCE = "The acting is unbelievably good."


def pieces(text: str, pattern: str = r"\w+|[^\w\s]", title: str = "", caption: str = "") -> WeighedText:
    spans = tuple(match.span() for match in re.finditer(pattern, text))
    weights = np.random.default_rng(5).random(len(spans)) ** 3
    return WeighedText(text, spans, tuple(weights / max(weights.sum(), 1e-9)), title, caption)


# --- The text itself


def test_words_add_up_by_hand() -> None:
    """`Aw` + `ful`, `film` + `.`; what was not weighed adds nothing; the mark of the end has no place in the text."""
    spans = ((0, 2), (2, 5), (6, 10), (10, 11), (0, 0))
    merged = WeighedText("Awful film. ", spans, (0.1, 0.2, NAN, 0.25, 0.4), "t", "c").merged()
    assert [merged.text[start:end] for start, end in merged.spans] == ["Awful", "film.", ""]
    assert merged.weights == pytest.approx((0.3, 0.25, 0.4))
    assert (merged.title, merged.caption, merged.outside) == ("t", "c", pytest.approx(0.4))


def test_pieces_with_their_space_in_front_are_words_without_it() -> None:
    """Byte-level tokenizers cut `so unfair` into `so`, ` un`, `fair`."""
    merged = WeighedText("so unfair", ((0, 2), (2, 5), (5, 9)), (0.5, 0.3, 0.2)).merged()
    assert merged.spans == ((0, 2), (3, 9))
    assert merged.weights == pytest.approx((0.5, 0.5))


def test_a_word_is_unweighed_only_if_all_of_it_is() -> None:
    merged = WeighedText("ab cd", ((0, 1), (1, 2), (3, 4), (4, 5)), (NAN, 0.5, NAN, NAN)).merged()
    assert merged.weights[0] == 0.5 and math.isnan(merged.weights[1])


def test_chinese_keeps_its_pieces_and_korean_has_words() -> None:
    assert pieces("很好看", r"\w").merged().spans == ((0, 1), (1, 2), (2, 3))
    assert pieces("정말 좋아요", r"\w").merged().spans == ((0, 2), (3, 6))


@settings(max_examples=50)
@given(st.text("ab, 年\n", max_size=40), st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), max_size=30))
def test_merging_loses_no_weight_and_finds_the_words(text: str, sizes: list[tuple[int, float]]) -> None:
    spans, start = [], 0
    for size, _ in sizes:
        end = min(start + size, len(text))
        spans.append((start, end))
        start = end
    weighed = WeighedText(text, tuple(spans), tuple(weight for _, weight in sizes))
    merged = weighed.merged()
    assert math.isclose(math.fsum(merged.weights), math.fsum(weighed.weights), abs_tol=1e-12)
    assert merged.merged().spans == merged.spans
    assert merged.outside == pytest.approx(weighed.outside)
    if "年" not in text and start == len(text) and all(size == 1 for size, _ in sizes):
        words = [text[a:b] for a, b in merged.spans if a < b and text[a:b].strip()]
        assert words == text.split()


@pytest.mark.parametrize(
    ("spans", "weights", "message"),
    [
        (((0, 3),), (), "1 pieces but 0 weights"),
        (((0, 3),), (-0.5,), "a weight is -0.5"),
        (((0, 3),), (math.inf,), "a weight is inf"),
        (((0, 9),), (1.0,), "from 0 to 9 does not lie in a text of 5 characters"),
        (((3, 2),), (1.0,), "from 3 to 2"),
        (((0, 3), (2, 4)), (1.0, 1.0), "starts at 2, before the last one ended at 3"),
        (((3, 4), (0, 2)), (1.0, 1.0), "in order"),
    ],
)
def test_wrong_pieces_are_told(spans: tuple[tuple[int, int], ...], weights: tuple[float, ...], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        WeighedText("hello", spans, weights)


# --- Data


def test_json_and_csv_give_back_every_number(tmp_path: Path) -> None:
    weighed = WeighedText('a "b", 年', ((0, 1), (2, 5), (7, 8), (0, 0)), (0.1, 1 / 3, NAN, 0.2), "T", "C")
    found = json.loads(weighed.save(tmp_path / "w.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert found == weighed.data()
    assert (found["title"], found["caption"], found["text"]) == ("T", "C", 'a "b", 年')
    assert [(each["text"], each["weight"]) for each in found["pieces"]] == [
        ("a", 0.1), ('"b"', 1 / 3), ("年", None), ("", 0.2)
    ]  # fmt: skip
    with open(weighed.save(tmp_path / "w.CSV"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["start"]), int(row["end"])) for row in rows] == list(weighed.spans)
    assert [float(row["weight"] or "nan") for row in rows] == pytest.approx(weighed.weights, nan_ok=True, abs=0)


def test_an_unknown_suffix_names_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.jpg; use \.png, \.svg, \.html, \.json, \.csv"):
        pieces(SENTENCE).save(tmp_path / "w.jpg")
    with pytest.raises(UsageError, match="has no suffix"):
        pieces(SENTENCE).save(tmp_path / "w")
    assert list(tmp_path.iterdir()) == []


# --- Lines


def lines_of(text: str, width: int) -> list[str]:
    return [text[start:end] for start, end in wrap(text, width, lambda start, end: cell_len(text[start:end]))]


def test_lines_by_hand() -> None:
    text = "  one two  three\n\n\n\nfour extraordinary\n"
    assert lines_of(text, 8) == ["one two", "three", "", "four ext", "raordina", "ry"]
    assert lines_of("很好看。真的", 4) == ["很好", "看。", "真的"]  # a full stop does not begin a line
    assert lines_of("很good看", 5) == ["很", "good", "看"]
    assert lines_of("", 8) == lines_of(" \n ", 8) == []


@given(st.text("abc 年e\u0301\n👩\u200d🚀", max_size=60), st.integers(1, 12))
def test_no_line_is_too_wide_and_nothing_is_lost(text: str, width: int) -> None:
    lines = lines_of(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert line == line.strip()
        assert cell_len(line) <= width or len(characters(line)) == 1
    joining = [line for line in lines if line and unicodedata.combining(line[0])]
    assert len(joining) <= text.count(" \u0301") + text.count("\n\u0301") + text.startswith("\u0301")


@settings(max_examples=50)
@given(st.lists(st.text("ab", min_size=1, max_size=7), max_size=30), st.integers(7, 20))
def test_words_fill_the_lines_as_textwrap_does(words: list[str], width: int) -> None:
    assert lines_of(" ".join(words), width) == textwrap.wrap(" ".join(words), width)


def test_what_cannot_be_seen_is_shown() -> None:
    assert "".join(map(readable, "a\tb\u00a0c\x1b[31m\u202e\n")) == "a b c\\x1b[31m\\u202e\n"
    assert right_to_left("123 שלום abc") and not right_to_left("123 abc שלום") and not right_to_left("12")


# --- Terminal


def test_shades_stand_under_their_words() -> None:
    weighed = WeighedText("ab 年 cd e, f", ((0, 2), (3, 4), (5, 7), (8, 9), (11, 12)), (0.2, 0.41, 1.0, NAN, 0.1))
    lines = weighed.terminal(40).split("\n")
    assert lines == ["ab 年 cd e, f", "░░ ▒▒ ██ ·", "", "weight 0 ░▒▓█ 1   · not weighed"]


@pytest.mark.parametrize("width", [80, 23, 7, 1])
@pytest.mark.parametrize("text", [SENTENCE * 3, "這部電影非常好看。" * 4])
def test_long_texts_wrap(text: str, width: int) -> None:
    lines = pieces(text, r"\w+", "T").terminal(width).split("\n")
    assert lines[0] == "T" and lines[-1].startswith("weight 0")
    body = lines[2:-2]
    assert "".join("".join(body[::2]).split()) == "".join(text.split())
    for above, below in zip(body[::2], body[1::2], strict=True):
        assert cell_len(below) <= cell_len(above) <= max(width, 2)


@pytest.mark.parametrize("width", [80, 23, 7, 1])
def test_long_arabic_texts_wrap_with_their_shades_behind_the_words(width: int) -> None:
    """Under a line that the terminal may turn around, a shade would stand under another word."""
    text = "هذا الفيلم رائع جدا. " * 4
    weighed = pieces(text, r"\w+", "T")
    lines = weighed.terminal(width).split("\n")
    assert lines[0] == "T" and lines[-1].startswith("weight 0") and lines[-1].endswith("behind each word")
    body = "".join("".join(lines[2:-2]).split())
    assert re.sub("[░▒▓█]", "", body) == "".join(text.split())
    assert all(cell_len(line) <= max(width, 2) for line in lines[2:-2])
    shades = ["", "░", "▒", "▓", "█"]
    steps = [min(int(weight / weighed.top * 5), 4) for weight in weighed.weights]
    marks = [shades[step] + dot for step, dot in zip(steps, ("", "", "", ".") * 4, strict=True)]
    assert body == "".join(word.strip(".") + mark for word, mark in zip(text.split(), marks, strict=True))


def test_colours_behind_the_words_and_an_ink_that_can_be_read() -> None:
    count = 41
    text = " ".join("w" * count)
    weighed = WeighedText(text, tuple((2 * i, 2 * i + 1) for i in range(count)), tuple(np.linspace(0, 1, count)))
    codes = re.findall(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)mw", weighed.terminal(200, color=True))
    assert len(codes) == count
    for code, weight in zip(codes, weighed.weights, strict=True):
        ink, ground = tuple(map(int, code[:3])), tuple(map(int, code[3:]))
        assert ground == color(GLOW, weight)
        assert contrast(ink, ground) >= 4.5  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("system", "colored"), [("truecolor", True), ("256", True), ("standard", False), (None, False)]
)
def test_a_console_gets_colours_only_if_it_has_enough(system: str | None, colored: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=system, width=20, legacy_windows=False)  # type: ignore[arg-type]
    console.print(pieces(SENTENCE * 3))
    assert ("\x1b[48;" in file.getvalue() or ";48;" in file.getvalue()) is colored
    assert ("█" in file.getvalue()) is not colored
    assert file.getvalue().count("weight 0") == 1


def test_control_codes_never_reach_the_terminal() -> None:
    weighed = WeighedText("a\x1b[31mb", ((0, 1), (1, 7)), (0.5, 0.5), "t\x1bt", "c\x07")
    assert "\x1b" not in weighed.terminal(40) and "\x07" not in weighed.terminal(40)


def test_what_lies_outside_the_text_is_told() -> None:
    weighed = WeighedText("ab", ((0, 0), (0, 2), (2, 2)), (0.25, 0.5, 0.125))
    assert weighed.outside == 0.375 and weighed.top == 0.5
    for shown in (weighed.terminal(), weighed.terminal(color=True), weighed._repr_html_()):
        assert "0.38 outside the text" in shown
    assert any("0.38 outside the text" in text.get_text() for text in weighed.figure().axes[0].texts)


# --- HTML


def test_html_has_every_word_with_its_colour_and_weight(tmp_path: Path) -> None:
    weighed = WeighedText("<b> & 'x'\n年", ((0, 3), (4, 5), (6, 9), (10, 11)), (0.0, 0.2, 0.4, NAN), 'T "<i>"', "C & D")
    page = weighed.save(tmp_path / "w.html").read_text(encoding="utf-8")
    assert "<script" not in page and "http" not in page and "url(" not in page
    root = ElementTree.fromstring(page.partition("\n")[2])  # well-formed after the doctype
    assert (root.findtext("head/title"), root.findtext(".//b")) == ('T "<i>"', 'T "<i>"')
    body = next(each for each in root.iter("div") if each.get("dir") == "auto")
    assert "".join(body.itertext()) == weighed.text
    spans = [(span.text, span.get("title"), span.get("style") or "") for span in body.iter("span")]
    assert [(text, hint) for text, hint, _ in spans] == [("<b>", "0"), ("&", "0.2"), ("'x'", "0.4"), ("年", None)]
    for (_, _, style), share in zip(spans[:3], (0.0, 0.5, 1.0), strict=True):  # the scale ends at 0.4
        assert "background:#{:02x}{:02x}{:02x}".format(*color(INK, share)) in style
    assert "not weighed" in page and "background" not in spans[3][2]
    assert weighed._repr_html_() in page


# --- Figures


def boxes(figure: Figure) -> list[np.ndarray]:
    """The corners of each coloured box, in pixels."""
    axes = figure.axes[0]
    return [axes.transData.transform(path.vertices[:4]) for path in axes.collections[0].get_paths()]


def body(figure: Figure) -> dict[str, object]:
    return {text.get_text(): text for text in figure.axes[0].texts}


def test_pixels_behind_a_word_have_the_colour_of_its_weight_and_its_letters_lie_inside() -> None:
    words = ["zero", "little", "some", "much", "most"]
    text, weights = " ".join(words), (0.0, 0.25, 0.5, 0.75, 1.0)
    spans = tuple((text.index(word), text.index(word) + len(word)) for word in words)
    figure = WeighedText(text, spans, weights, "A title", "a caption").figure()
    picture = np.asarray(Image.open(io.BytesIO(render(figure, "png"))).convert("RGB"))[::-1].astype(int)
    drawn = body(figure)
    assert {"A title", "a caption", *words} <= set(drawn)
    for word, weight, corners in zip(words, weights, boxes(figure), strict=True):
        left, right = corners[:, 0].min(), corners[:, 0].max()
        bottom = corners[:, 1].min()
        found = picture[int(bottom) + 3, int(left) + 3 : int(right) - 3]
        assert np.abs(found - color(INK, weight)).max() <= 3
        extent = drawn[word].get_window_extent()  # type: ignore[attr-defined]
        assert left - 2 <= extent.x0 and extent.x1 <= right + 2
        assert bottom <= extent.y0 and extent.y1 <= corners[:, 1].max()
    assert any("1" in text and "weight" not in text for text in drawn) and "weight 0" in drawn


def test_a_long_review_makes_the_page_taller_not_wider() -> None:
    short, long = pieces((SENTENCE + " ") * 10), pieces((SENTENCE + " ") * 60, title="t " * 100)
    one, many = short.figure(), long.figure()
    assert many.get_figwidth() < 8.0 and one.get_figwidth() < 8.0
    assert many.get_figheight() > 2.5 * one.get_figheight()
    for text in many.axes[0].texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= many.bbox.x1 and box.y0 >= 0 and box.y1 <= many.bbox.y1
        assert text.get_fontsize() >= 9
    placed = boxes(many)
    assert len(placed) == 60 * 6
    before = placed[0]
    for corners in placed[1:]:  # no box covers the one before: it starts to its right, or on a line below
        right_of = corners[:, 0].min() >= before[:, 0].max() - 0.01
        assert right_of or corners[:, 1].max() <= before[:, 1].min()
        before = corners


def test_right_to_left_text_starts_at_the_right() -> None:
    figure = pieces("הסרט הזה טוב מאוד", r"\w+").figure()
    placed, drawn = boxes(figure), body(figure)
    lefts = [corners[:, 0].min() for corners in placed]
    assert len(lefts) == 4 and lefts == sorted(lefts, reverse=True)
    assert placed[0][:, 0].max() == pytest.approx(figure.axes[0].get_window_extent().x1)
    for word, corners in zip(["הסרט", "הזה", "טוב", "מאוד"], placed, strict=True):
        extent = drawn[drawable(word, [BASE])].get_window_extent()  # type: ignore[attr-defined]
        assert corners[:, 0].min() - 2 <= extent.x0 and extent.x1 <= corners[:, 0].max() + 2


def test_a_text_that_is_far_too_long_is_cut_and_says_so() -> None:
    figure = WeighedText("a\n" * 450, ((0, 1),), (1.0,)).figure()
    assert figure.get_figheight() < 65
    assert any("500 more characters" in text.get_text() for text in figure.axes[0].texts)  # 250 letters, 250 new lines


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "$x^$ \\frac",
        "這部電影非常好看。" * 9,
        "مرحبا بالعالم " * 20,
        "x" * 150,
        "👩\u200d🚀 e\u0301",
        "a\x00b\u202e",
    ],
)
def test_any_text_can_be_drawn(text: str) -> None:
    weighed = pieces(text, r"\S", "$t$ 年", "\x1b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert weighed._repr_png_().startswith(b"\x89PNG")
    assert weighed.figure().get_figwidth() < 8.0
    for shown in (weighed.terminal(), weighed.html(), weighed.json(), weighed.csv()):
        assert shown


@settings(max_examples=20)
@given(st.floats(0, 1e300), st.floats(5e-324, 1e-300))
def test_any_weights_can_be_shown(large: float, tiny: float) -> None:
    for weights in ((large, tiny), (tiny, NAN), (0.0, 0.0)):
        weighed = WeighedText("ab", ((0, 1), (1, 2)), weights)
        assert weighed.top > 0
        assert weighed.terminal() and weighed.terminal(color=True) and weighed.html()


def test_files_are_whole_and_equal_for_equal_texts(tmp_path: Path) -> None:
    weighed = pieces(SENTENCE)
    assert weighed.save(tmp_path / "w.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    assert weighed.png(tmp_path / "deep" / "w").read_bytes() == weighed.save(tmp_path / "w.png").read_bytes()


def test_importing_weighed_texts_loads_no_pictures() -> None:
    program = "import sys, regard.look.words as w; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent).returncode == 0
