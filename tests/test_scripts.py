"""Labels and texts in Hebrew, Arabic and Chinese: their order, their letters, and where they stand in pictures.

Oracles are the examples of the Unicode annex made by hand, and, where the installed matplotlib shapes text (3.11 on),
its own libraries for order and for joining, libraqm and HarfBuzz.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import ft2font
from matplotlib.font_manager import findfont, get_font

from regard.errors import UsageError
from regard.look.bidi import MARK, joined, levels, marked, turned, visual
from regard.look.figures import fonts
from regard.look.figures.fonts import drawable
from regard.look.labels import right_to_left, running
from regard.look.lines import Lines
from regard.look.map import AttentionMap
from regard.look.words import RowTexts, WeighedText

layout: Callable[..., Any] | None = getattr(get_font(findfont("DejaVu Sans")), "_layout", None)
shaping = pytest.mark.skipif(layout is None, reason="matplotlib before 3.11 does not shape text")


def shaped(text: str) -> list[Any]:
    """The glyphs from left to right, as libraqm and HarfBuzz set them."""
    assert layout is not None
    return list(layout(text, ft2font.LoadFlags.NO_HINTING))


def from_left(text: str, right: bool) -> str:
    """The characters as they stand from left to right."""
    return "".join(turned(text[start:end]) if odd else text[start:end] for start, end, odd in visual(text, right))


# --- Order


@pytest.mark.parametrize(
    ("text", "right", "expected"),
    [
        ("abc", False, "abc"),
        ("שלום", True, "םולש"),
        ("car is אבג.", False, "car is גבא."),
        ("אבג means car!", True, "!means car גבא"),
        ("בשנת 2024 היו 3,5%", True, "3,5% ויה 2024 תנשב"),  # numbers run from left to right
        ("ב-2024", True, "2024-ב"),
        ("(אבג)", True, "(גבא)"),  # brackets are mirrored
        ("אבג ABC (DEF) x", True, "ABC (DEF) x גבא"),  # and a pair of them has one direction
        ("abc (אבג) 5", False, "abc (גבא) 5"),
        ("سعر 12 ٣٤", True, "٣٤ 12 رعس"),  # numbers beside each other, each from left to right, in Arabic order
        ("אָב", True, "באָ"),  # the point stays with its letter
        ("אב  ", False, "בא  "),
        ("", True, ""),
    ],
)  # fmt: skip
def test_order_by_hand(text: str, right: bool, expected: str) -> None:
    assert from_left(text, right) == expected


@shaping
@settings(max_examples=300, deadline=None)
@given(st.text("אבש abX 019.,:-+%$()[]!?سمر٣", min_size=1, max_size=14))
def test_order_is_that_of_libraqm(text: str) -> None:
    ours = [
        place
        for start, end, odd in visual(text, right_to_left(text))
        for place in (range(end - 1, start - 1, -1) if odd else range(start, end))
    ]
    assert [text[place] for place in ours] == [glyph.char for glyph in shaped(text)]


def test_a_run_ends_at_each_cut_and_the_runs_cover_the_line() -> None:
    text = "אבגד 12 ab"
    runs = visual(text, True, cuts=(2,))
    assert runs == [(8, 10, False), (7, 8, True), (5, 7, False), (2, 5, True), (0, 2, True)]
    assert levels(text, True) == [1, 1, 1, 1, 1, 2, 2, 1, 2, 2]


def test_labels_in_a_terminal_do_not_turn_their_line() -> None:
    assert marked("bike") == "bike" and marked("אב") == f"{MARK}אב{MARK}"
    line = Lines(AttentionMap(np.array([[1.0]]), ("אופניים",), ("bike",))).text().splitlines()[0]
    assert line == f"bike → {MARK}אופניים{MARK} 1.00"


# --- Letters

ARABIC = [
    "مرحبا",
    "بالعالم",
    "الدراجة",
    "إلا",
    "الأولاد",
    "يلعبون",
    "سؤال",
    "والآن",
    "اللغة",
    "محمّد",
    "چای",
    "گل",
    "کتاب",
]


def form_names(text: str) -> list[str]:
    found = [unicodedata.name(each, "").removeprefix("ARABIC LETTER ") for each in joined(text) if each]
    return [name.removesuffix(" FORM") for name in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ب", ["BEH"]),
        ("بيت", ["BEH INITIAL", "YEH MEDIAL", "TEH FINAL"]),
        ("دار", ["DAL", "ALEF", "REH"]),  # these join nothing behind them
        ("كتاب", ["KAF INITIAL", "TEH MEDIAL", "ALEF FINAL", "BEH"]),
        ("لا", ["ARABIC LIGATURE LAM WITH ALEF ISOLATED"]),
        ("كلا", ["KAF INITIAL", "ARABIC LIGATURE LAM WITH ALEF FINAL"]),
        ("پدر", ["PEH INITIAL", "DAL FINAL", "REH"]),
        ("مّد", ["MEEM INITIAL", "ARABIC SHADDA", "DAL FINAL"]),  # a mark does not part two letters
        ("ب x", ["BEH", "SPACE", "LATIN SMALL LETTER X"]),
    ],
)
def test_letters_join_by_hand(text: str, expected: list[str]) -> None:
    assert form_names(text) == expected


def test_a_ligature_is_not_made_across_two_colours() -> None:
    assert joined("لا", owners=[0, 0])[1] == ""
    assert [unicodedata.name(each)[-12:] for each in joined("لا", owners=[0, 1])] == ["INITIAL FORM", "F FINAL FORM"]
    assert joined("ﻻب") == ["ﻻ", "ب"]  # one that is written as such takes nothing with it


@shaping
@pytest.mark.parametrize("word", ARABIC)
def test_letters_join_as_harfbuzz_joins_them(word: str) -> None:
    """Glyph by glyph; marks may stand on either side of their letter."""
    font = get_font(findfont("DejaVu Sans"))
    ours = [font.get_char_index(ord(each)) for each in "".join(joined(word))]
    assert sorted(ours) == sorted(glyph.glyph_index for glyph in shaped(word))


# --- Figures


def test_what_matplotlib_gets() -> None:
    """From 3.11 on it orders and joins by itself."""
    assert drawable("שלום 12!", [fonts.BASE]) == "שלום 12!"
    assert drawable("abc 年", [fonts.BASE]) == "abc <5E74>"


def drawn_texts(weighed: WeighedText, count: int) -> list[tuple[float, str]]:
    """The stretches of the text with their left ends, in the order of writing."""
    texts = weighed.figure().axes[0].texts
    heading = bool(weighed.title) + bool(weighed.caption)
    return [(text.get_window_extent().x0, text.get_text()) for text in texts[heading : heading + count]]


def test_pieces_of_a_mixed_line_stand_in_the_order_of_reading() -> None:
    """Hebrew from the right, the number and the English phrase inside it from the left."""
    weighed = WeighedText("שנה 2024 IBM Labs טובה", ((0, 3), (4, 6), (6, 8), (9, 12), (13, 17), (18, 22)), (0.1,) * 6)
    found = drawn_texts(weighed, 6)
    hebrew = [drawable(word, [fonts.BASE]) for word in ("שנה", "טובה")]
    assert [text for _, text in found] == [hebrew[0], "20", "24", "IBM", "Labs", hebrew[1]]
    assert [text for _, text in sorted(found)] == [hebrew[1], "IBM", "Labs", "20", "24", hebrew[0]]


def test_a_word_of_two_colours_is_still_joined() -> None:
    found = drawn_texts(WeighedText("كتاب", ((0, 2), (2, 4)), (0.2, 0.8)), 2)
    letters = "".join(text for _, text in found)
    assert [unicodedata.name(each).split()[-2] for each in letters[:3]] == ["INITIAL", "MEDIAL", "FINAL"]
    assert found[0][0] > found[1][0]  # the first piece stands to the right


def test_special_tokens_are_not_turned_around_in_hebrew() -> None:
    weighed = WeighedText("שלום </s>", ((0, 4), (5, 9)), (0.5, 0.5))
    assert [text for _, text in drawn_texts(weighed, 2)][1] == "</s>"
    assert '<span style="' in weighed.html() and 'dir="ltr">&lt;/s&gt;</span>' in weighed.html()


def test_titles_stand_where_their_language_begins() -> None:
    weighed = WeighedText("שלום עולם", ((0, 4),), (0.5,), title="כותרת", caption="a caption")
    figure = weighed.figure()
    title, caption = figure.axes[0].texts[:2]
    assert title.get_window_extent().x1 > figure.bbox.width * 0.9 and caption.get_window_extent().x0 < 40
    assert '<div dir="rtl"><b>כותרת</b></div><div>a caption</div><div dir="auto"' in weighed.html()


def test_columns_of_a_heat_map_run_from_left_to_right_in_every_language() -> None:
    """As time does: the triangle of a causal mask stays where it is."""
    map = AttentionMap(np.eye(3), ("אחת", "שתיים", "שלוש"), ("one", "two", "three"))
    labels = map.figure().axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == [drawable(each, [fonts.BASE]) for each in map.columns]


def test_without_a_chinese_font_numbers_are_written_and_nothing_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry for entry in fonts.fontManager.ttflist if entry.name.startswith("DejaVu Sans")]
    monkeypatch.setattr(fonts.fontManager, "ttflist", entries)
    map = AttentionMap(np.eye(3), ("年", "摩托车", "。"), ("year", "bike", "."), "中文")
    figure = Lines(map).figure()
    texts = list(figure.axes[0].texts)
    assert {"U+5E74", "<6469><6258><8F66>", "U+3002", "<4E2D><6587>"} <= {text.get_text() for text in texts}
    boxes = [text.get_window_extent() for text in texts]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes)
    for one, other in combinations(boxes, 2):
        assert one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1


def test_a_font_without_bold_is_not_asked_for_it(caplog: pytest.LogCaptureFixture) -> None:
    thin = [entry for entry in fonts.fontManager.ttflist if entry.name == fonts.BASE]
    assert fonts.heaviest("bold", [fonts.BASE]) == "bold" and thin
    assert fonts.heaviest("bold", [fonts.BASE, "No Such Font"]) == "normal"
    assert fonts.heaviest("normal", ["No Such Font"]) == "normal"


def test_shades_follow_their_words_where_lines_may_be_turned() -> None:
    weighed = WeighedText("שלום עולם טוב", ((0, 4), (5, 9), (10, 13)), (1.0, 0.5, 0.0))
    assert weighed.terminal().splitlines() == ["שלום█ עולם▒ טוב", "", "weight 0 ░▒▓█ 1   behind each word"]
    assert "behind" not in WeighedText("a", ((0, 1),), (1.0,)).terminal()
    assert "behind" not in weighed.terminal(color=True)


# --- A row of a map as text


@pytest.mark.parametrize(
    ("labels", "text", "pieces"),
    [
        ((" a", " bi", "ke", ".", "</s>"), " a bike. </s>", ["a", "bi", "ke", ".", "</s>"]),
        (("<s>", "Ġa", "Ġbike", "Ċ", "x"), "<s> a bike\nx", ["<s>", "a", "bike", "\n", "x"]),
        (("▁a", "▁bike"), " a bike", ["a", "bike"]),
        (("[CLS]", "un", "##fair", "!", "[SEP]"), "[CLS] unfair! [SEP]", ["[CLS]", "un", "fair", "!", "[SEP]"]),
        (
            ("A", "man", "(", "old", ")", ",", "rides"),
            "A man (old), rides",
            ["A", "man", "(", "old", ")", ",", "rides"],
        ),
        (("一个", "男人", "。", "</s>"), "一个男人。 </s>", ["一个", "男人", "。", "</s>"]),
        (("2", "0", "2", "4", "-", "0", "5"), "2024-05", ["2", "0", "2", "4", "-", "0", "5"]),
        (("a", " ", "b", "c"), "a bc", ["a", " ", "b", "c"]),
        (("", "a", "##"), "a ##", ["", "a", "##"]),
    ],
)
def test_labels_are_joined_as_people_write(labels: tuple[str, ...], text: str, pieces: list[str]) -> None:
    found, spans = running(labels)
    assert found == text
    assert [found[start:end] for start, end in spans] == pieces


def test_a_row_of_a_map_as_colours_behind_its_words() -> None:
    weights = np.array([[0.7, 0.2, 0.1], [0.5, 0.5, np.nan]])
    map = AttentionMap(
        np.stack([weights, weights[:, [1, 0, 2]]]), (" ein", " Rad", "."), (" a", " bike"), "T", ("noted",)
    )
    rows = RowTexts(map.mean(), words=False)
    found = rows.row(0)
    assert (found.text, found.title) == (" ein Rad.", "T")
    assert "'a' looks at" in found.caption and "noted" in found.caption
    assert found.weights == pytest.approx((0.45, 0.45, 0.1))
    assert np.isnan(rows.row(1).weights[2])
    for wrong in (-1, 2):
        with pytest.raises(UsageError, match="there are 0 a, 1 bike"):
            rows.row(wrong)
