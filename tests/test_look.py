"""Attention maps read back from what they were written to: numbers from files, colours from pixels, text by width."""

import csv
import io
import json
import math
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.cells import cell_len
from rich.console import Console

from regard.errors import RegardError, UsageError
from regard.look import AttentionMap
from regard.look.colors import GLOW, INK, color, scale_top
from regard.look.figures import fonts as fonts_module
from regard.look.figures.curves import draw as draw_curves
from regard.look.figures.curves import series, training_curves
from regard.look.figures.sheet import render
from regard.look.labels import visible

H, T, S = 3, 5, 7
NAN = float("nan")


def random_weights(*shape: int) -> np.ndarray:
    weights = np.random.default_rng(11).random(shape) ** 3
    return weights / weights.sum(axis=-1, keepdims=True)


def words(number: int, prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{'x' * (index % 5)}{index}" for index in range(number))


def causal(size: int) -> AttentionMap:
    weights = np.tril(random_weights(size, size))
    weights /= weights.sum(axis=1, keepdims=True)
    weights[np.triu_indices(size, 1)] = NAN
    return AttentionMap(weights, words(size, "k"), words(size, "q"), "causal")


def pixels(map: AttentionMap, panels: tuple[int, ...] = (0,)) -> list[np.ndarray]:
    """The colour in the middle of each cell of the PNG, for each of these panels: (T, S, 3)."""
    figure = map.figure()
    picture = np.asarray(Image.open(io.BytesIO(render(figure, "png"))).convert("RGB"))[::-1]  # y upwards, as in figures
    rows, columns = map.weights.shape[-2:]
    middles = [(s + 0.5, t + 0.5) for t in range(rows) for s in range(columns)]
    places = [figure.axes[panel].transData.transform(middles).astype(int) for panel in panels]
    return [np.array([picture[y, x] for x, y in place]).reshape(rows, columns, 3).astype(int) for place in places]


# the map itself


def test_mean_and_heads():
    weights = random_weights(H, T, S)
    weights[:, 1, 2] = NAN  # masked for every head
    weights[0, 3, 4] = NAN  # masked for one
    map = AttentionMap(weights, words(S, "k"), words(T, "q"), "all")
    mean = map.mean().weights
    assert np.isnan(mean[1, 2])
    assert mean[3, 4] == pytest.approx((weights[1, 3, 4] + weights[2, 3, 4]) / 3)
    assert mean[0, 0] == pytest.approx(sum(weights[:, 0, 0]) / 3)
    np.testing.assert_array_equal(map.head(2).weights, weights[2])
    assert map.head(2).title == "all · head 2"
    assert map.heads == H
    assert map.mean().mean().weights.shape == (T, S)
    with pytest.raises(UsageError, match=r"no head 3; this map has 3"):
        map.head(3)


def test_a_map_cannot_be_changed_from_outside():
    weights = random_weights(T, S)
    map = AttentionMap(weights, words(S, "k"), words(T, "q"))
    first = map.weights[0, 0]
    weights[0, 0] = 9.0
    assert map.weights[0, 0] == first
    with pytest.raises(ValueError, match="read-only"):
        map.weights[0, 0] = 9.0


def test_wrong_sizes_are_told_with_both_numbers():
    with pytest.raises(RegardError, match="5 rows and 7 columns, but 7 row labels and 5 column labels"):
        AttentionMap(random_weights(T, S), words(T, "k"), words(S, "q"))
    with pytest.raises(RegardError, match=r"not \(7,\)"):
        AttentionMap(random_weights(S), words(S, "k"), ())
    with pytest.raises(RegardError, match="empty"):
        AttentionMap(np.zeros((0, S)), words(S, "k"), ())
    with pytest.raises(RegardError, match="infinity"):
        AttentionMap(np.array([[-math.inf, 1.0]]), ("a", "b"), ("c",))


# data


@pytest.mark.parametrize("shape", [(T, S), (H, T, S)])
def test_json_gives_back_every_number_and_label(tmp_path, shape):
    weights = random_weights(*shape)
    weights[..., 2, 3] = NAN
    rows = ("a,b", 'say "x"', "new\nline", "年", "")
    path = AttentionMap(weights, words(S, "k"), rows, "T").save(tmp_path / "map.json")
    found = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)  # NaN is no JSON
    np.testing.assert_array_equal(np.array(found["weights"], dtype=np.float64), weights)
    assert (found["title"], tuple(found["columns"]), tuple(found["rows"])) == ("T", words(S, "k"), rows)


@pytest.mark.parametrize("shape", [(T, S), (H, T, S)])
def test_csv_gives_back_every_number_and_label(tmp_path, shape):
    weights = random_weights(*shape)
    weights[..., 2, 3] = NAN
    rows = ("a,b", 'say "x"', "new\nline", "年", "")
    path = AttentionMap(weights, words(S, "k"), rows).save(tmp_path / "map.CSV")
    with open(path, encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    before = len(shape) - 1  # the label, and the head before it
    assert tuple(header[before:]) == words(S, "k")
    numbers = np.array([[float(cell) if cell else NAN for cell in line[before:]] for line in lines])
    np.testing.assert_array_equal(numbers.reshape(shape), weights)
    assert [line[before - 1] for line in lines] == list(rows) * (len(lines) // T)
    if len(shape) == 3:
        assert [int(line[0]) for line in lines] == [0] * T + [1] * T + [2] * T


def test_an_unknown_suffix_names_the_known(tmp_path):
    map = AttentionMap(random_weights(T, S), words(S, "k"), words(T, "q"))
    with pytest.raises(UsageError, match=r"ends in \.jpg; use \.png, \.svg, \.json, \.csv"):
        map.save(tmp_path / "map.jpg")
    with pytest.raises(UsageError, match="has no suffix"):
        map.save(tmp_path / "map")
    assert list(tmp_path.iterdir()) == []


# colours


@pytest.mark.parametrize(("ramp", "sign"), [(INK, -1), (GLOW, 1)])
def test_the_ramps_are_monotone_in_lightness(ramp, sign):
    """Relative luminance as the sRGB standard defines it (IEC 61966-2-1)."""

    def luminance(share: float) -> float:
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(color(ramp, share)) / 255
        ]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    steps = np.diff([luminance(share) for share in np.linspace(0, 1, 67)])
    assert (sign * steps > 0).all()
    assert color(ramp, -1.0) == ramp[0]
    assert color(ramp, 2.0) == ramp[-1]


@given(st.floats(1e-6, 3.0))
def test_the_top_of_the_scale_is_just_above_the_highest_weight(highest):
    top = scale_top(np.array([[highest, NAN, 0.0]]))
    assert highest <= top * (1 + 1e-5)
    assert top <= 1.51 * highest


def test_the_top_of_the_scale_by_hand():
    for highest, top in (
        (1.0, 1.0),
        (1.0 + 1e-9, 1.0),
        (0.81, 1.0),
        (0.3, 0.3),
        (0.22, 0.3),
        (0.011, 0.015),
        (0.0, 1.0),
    ):
        assert scale_top(np.array([[highest]])) == top
    assert scale_top(np.array([[NAN]])) == 1.0


# figures


def test_pixels_have_the_colour_of_their_weight():
    weights = np.linspace(0, 1, T * S).reshape(T, S)[:, ::-1]  # every weight another; rows need not sum to one here
    map = AttentionMap(weights, words(S, "k"), words(T, "q"), "title")
    (found,) = pixels(map)
    expected = np.array([[color(INK, weight) for weight in row] for row in weights])
    assert np.abs(found - expected).max() <= 3  # matplotlib has 256 steps
    brightness = found.sum(axis=-1).ravel()[np.argsort(weights.ravel())]
    assert (np.diff(brightness) < 0).all()


def test_the_first_row_is_above_and_the_first_column_on_the_left():
    axes = AttentionMap(random_weights(T, S), words(S, "k"), words(T, "q")).figure().axes[0]
    (left, top), (right, bottom) = axes.transData.transform([(0.5, 0.5), (S - 0.5, T - 0.5)])
    assert left < right and top > bottom  # y upwards, as in figures


def test_masked_cells_are_not_coloured():
    map = causal(11)
    (found,) = pixels(map)
    masked = np.isnan(map.weights)
    grey = np.ptp(found, axis=-1)  # a grey has the same red, green and blue; every ink has more blue
    assert grey[masked].max() <= 1
    assert found[masked].max() < 250  # and it is not the white of the page
    assert grey[~masked].min() >= 4


@pytest.mark.parametrize("masked", [False, True])
def test_a_grid_shows_each_head_in_its_own_panel(masked):
    heads = 7
    weights = np.zeros((heads, T, S))
    weights[np.arange(heads), :, np.arange(heads)] = 1.0  # head h looks only at column h
    if masked:
        weights[:, T - 1] = NAN
    map = AttentionMap(weights, words(S, "k"), words(T, "q"), "heads")
    for index, found in enumerate(pixels(map, tuple(range(heads)))):
        expected = np.zeros((T, S), dtype=bool)
        expected[: T - masked, index] = True
        np.testing.assert_array_equal(found.sum(axis=-1) < 300, expected)
    names = [axes.get_xlabel() for axes in map.figure().axes[:heads]]
    assert names == [f"head {index}" for index in range(heads)]


def labels_of(figure, which: int = 0):
    axes = figure.axes[which]
    return axes.get_xticklabels(), axes.get_yticklabels()


def assert_everything_is_on_the_page(figure):
    page = figure.bbox
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
        assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_date_labels_stand_upright_and_spaces_are_seen():
    source, target = "mardi 3 mars 1998", "1998-03-03"
    figure = AttentionMap(random_weights(10, 17), tuple(source), tuple(target), "a date").figure()
    across, down = labels_of(figure)
    assert "".join(label.get_text() for label in across) == source.replace(" ", "␣")
    assert "".join(label.get_text() for label in down) == target
    assert {label.get_rotation() for label in across} == {0.0}
    assert_everything_is_on_the_page(figure)


@pytest.mark.parametrize(("rows", "columns"), [(13, 17), (59, 61)])
def test_every_word_has_a_label_and_labels_do_not_overlap(rows, columns):
    figure = AttentionMap(random_weights(rows, columns), words(columns, "word"), words(rows, "w"), "x " * 80).figure()
    across, down = labels_of(figure)
    assert [label.get_text() for label in across] == list(words(columns, "word"))
    assert [label.get_text() for label in down] == list(words(rows, "w"))
    assert all(label.get_rotation() > 0 for label in across)
    assert all(label.get_fontsize() >= 5.5 for label in (*across, *down))
    boxes = [label.get_window_extent() for label in down]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    if across[0].get_rotation() == 90:
        boxes = [label.get_window_extent() for label in across]
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    assert_everything_is_on_the_page(figure)


def test_a_very_long_map_keeps_a_page_that_can_be_opened():
    map = AttentionMap(np.full((3, 1009), 1 / 1009), words(1009, "k"), words(3, "q"))
    figure = map.figure()
    assert max(figure.get_size_inches()) < 45
    assert 10 < len(labels_of(figure)[0]) < 1009


def test_a_very_long_label_is_cut():
    map = AttentionMap(np.array([[1.0]]), ("https://example.org/" + "x" * 200,), ("y" * 300,))
    figure = map.figure()
    assert max(figure.get_size_inches()) < 8
    assert labels_of(figure)[1][0].get_text() == "y" * 25 + "…"


def test_a_dollar_is_a_dollar():
    """matplotlib takes what stands between two dollar signs for mathematics, and fails on half of it."""
    map = AttentionMap(np.array([[0.5, 0.5]]), ("$x^$", r"$\frac$"), ("$$",), r"$5 to $\6")
    assert [label.get_text() for label in labels_of(map.figure())[0]] == ["$x^$", r"$\frac$"]
    assert map._repr_png_().startswith(b"\x89PNG")


def test_a_character_without_a_font_is_written_by_its_number(monkeypatch):
    """Without a Chinese font matplotlib would draw empty boxes, all alike, and warn."""
    base = [entry for entry in fonts_module._installed() if entry.name == fonts_module.BASE]
    monkeypatch.setattr(fonts_module, "_installed", lambda: base)
    map = AttentionMap(random_weights(2, 3), ("1", "年", "x年月"), ("a", "é"), "1998年")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = map.figure()
        map._repr_png_()
    assert [label.get_text() for label in labels_of(figure)[0]] == ["1", "U+5E74", "x<5E74><6708>"]
    assert figure.texts[0].get_text() == "1998<5E74>"
    assert [label.get_rotation() for label in labels_of(figure)[0]] == [0, 45, 45]


def test_a_font_that_has_the_character_is_found(monkeypatch):
    """The first installed font with the glyph is taken, after the base, and then nothing is escaped."""

    class Entry:
        def __init__(self, name: str):
            self.name = self.fname = name

    has = {"DejaVu Sans": "ab", "Noto Sans CJK JP": "a年", "Other": "b年月"}
    monkeypatch.setattr(fonts_module, "_installed", lambda: [Entry(name) for name in has])
    monkeypatch.setattr(fonts_module, "_has_glyph", lambda path, character: character in has[path])
    assert fonts_module.families_for(["ab"]) == ["DejaVu Sans"]
    families = fonts_module.families_for(["a年", "b", "月", "日"])
    assert sorted(families) == ["DejaVu Sans", "Noto Sans CJK JP", "Other"]
    assert families[0] == "DejaVu Sans"
    assert fonts_module.drawable("年月", families) == "年月"
    assert fonts_module.drawable("日", families) == "U+65E5"


def test_threads_draw_what_one_thread_draws():
    maps = [AttentionMap(random_weights(rows, 3), words(3, "k"), words(rows, "q"), "t") for rows in (2, 3, 5, 7)]
    alone = [map._repr_png_() for map in maps]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda map: map._repr_png_(), maps)) == alone


def test_svg_and_png_are_whole_files(tmp_path):
    map = AttentionMap(random_weights(T, S), words(S, "k"), words(T, "q"))
    assert map.save(tmp_path / "map.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    assert map.png(tmp_path / "deep" / "map.png").read_bytes() == map._repr_png_()


# terminal


def grid_of(text: str, rows: int) -> list[str]:
    """The lines of the (only) grid: those between the header and the empty line before the legend."""
    lines = text.split("\n")
    assert lines[-2] == ""
    return lines[-2 - rows : -2]


@pytest.mark.parametrize("source", ["1998年3月3日", "mardi 3 mars 1998"])
def test_a_date_in_the_terminal(source):
    target = "1998-03-03"
    path = [index % len(source) for index in range(10)]
    map = AttentionMap(np.eye(len(source))[path], tuple(source), tuple(target), f"{source} → {target}")
    text = map.text(width=80)
    title, header, *_ = text.split("\n")
    assert title == f"{source} → {target}"
    assert header[2:].replace(" ", "") == source.replace(" ", "␣")
    grid = grid_of(text, 10)
    assert [line[0] for line in grid] == list(target)
    assert {cell_len(line) for line in [header, *grid]} == {2 + 2 * len(source)}
    assert [line[2:].index("██") // 2 for line in grid] == path
    assert text.split("\n")[-1] == "weight 0 ░▒▓█ 1"


def test_shades_are_five_equal_steps():
    map = AttentionMap(np.array([[0.0, 0.19, 0.21, 0.41, 0.61, 0.81, 1.0, NAN]]), tuple("abcdefgh"), ("q",))
    assert grid_of(map.text(), 1) == ["q     ░░▒▓██████··".replace("▒▓██████", "▒▒▓▓████")]
    assert map.text().endswith("weight 0 ░▒▓█ 1   ·· masked")


def test_words_are_written_downwards_and_end_at_the_grid():
    map = AttentionMap(np.eye(3), ("the", "e\u0301te\u0301", "猫だ"), ("one", "犬", "three"))
    lines = map.text().split("\n")
    assert lines[:3] == ["      t e\u0301   ", "      h t 猫", "      e e\u0301 だ"]
    assert lines[3:6] == ["  one ██    ", "   犬   ██  ", "three     ██"]
    assert {cell_len(line) for line in lines[:6]} == {12}


@pytest.mark.parametrize("width", [80, 41, 23, 7, 1])
def test_a_wide_map_is_cut_into_panels_that_fit(width):
    rows, columns = 11, 61
    weights = np.eye(columns)[:rows]
    map = AttentionMap(weights, tuple("x" * columns), words(rows, "犬"), "t")
    lines = map.text(width=width).split("\n")[1:-2]
    assert len(lines) % (rows + 1) == 0  # each panel has a line of labels and a line for each row
    panels = [lines[start : start + rows + 1] for start in range(0, len(lines), rows + 1)]
    for panel in panels:
        assert len({cell_len(line) for line in panel}) == 1
    if width >= 7:
        assert max(cell_len(line) for line in lines) <= width
    assert sum(panel[0].count("x") for panel in panels) == columns
    assert [sum(panel[row + 1].count("█") for panel in panels) for row in range(rows)] == [2] * rows


def test_colours_on_a_terminal_that_has_them():
    map = AttentionMap(np.array([[0.0, 1.0, NAN]]), ("a", "b", "c"), ("q",))
    ansi = map.text(color=True)
    assert "\x1b[48;2;68;1;84m  " in ansi  # the first and the last colour of viridis
    assert "\x1b[48;2;253;231;37m  " in ansi
    assert "·" in ansi
    assert "weight 0" in ansi


@pytest.mark.parametrize(
    ("system", "colored"), [("truecolor", True), ("256", True), ("standard", False), (None, False)]
)
def test_a_console_gets_colours_only_if_it_has_enough(system, colored):
    """Sixteen colours have no order of lightness: shades read better."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=system, width=20, legacy_windows=False)
    console.print(AttentionMap(random_weights(3, 17), tuple("x" * 17), tuple("abc")))
    assert ("\x1b[48;" in file.getvalue()) is colored
    assert ("█" in file.getvalue()) is not colored
    assert file.getvalue().count("weight 0") == 1


def test_heads_follow_each_other_in_the_terminal():
    weights = np.stack([np.eye(S)[:T], np.eye(S)[1 : T + 1], np.eye(S)[2 : T + 2]])
    lines = AttentionMap(weights, tuple("abcdefg"), tuple("vwxyz")).text().split("\n")
    starts = [lines.index(f"head {index}") for index in range(H)]
    assert [lines[start + 2].index("█") for start in starts] == [2, 4, 6]


def test_invisible_characters_are_shown():
    for label, shown in ((" ", "␣"), ("\n", "↵"), ("", "∅"), ("\x1b[31m", r"\x1b[31m"), ("\u202e", r"\u202e")):
        assert visible(label) == shown
    assert visible("\u0301") == "◌\u0301"
    assert visible("می‌روم") == "می‌روم"  # a joiner inside a word stays
    map = AttentionMap(np.eye(2), ("\x1b[2J", "\x07"), ("\r", "\u202e"), "\x1b]0;title\x07")
    assert "\x1b" not in map.text() and "\x07" not in map.text() and "\u202e" not in map.text()
    assert map._repr_png_().startswith(b"\x89PNG")


def test_html_is_well_formed_and_escapes_its_labels():
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            seen.append((tag, dict(attributes)))

    map = AttentionMap(random_weights(2, 3), ("<script>", '"&', "c"), ("<b>", "d"), "<img src=x>")
    Reader().feed(map._repr_html_())
    assert not {"script", "img"} & {tag for tag, _ in seen}
    cells = [attributes for tag, attributes in seen if tag == "td" and "title" in attributes]
    assert cells[0]["title"] == f"<b> → <script>: {map.weights[0, 0]:.3f}"
    assert len(cells) == 6


# curves


@pytest.fixture
def painted(monkeypatch):
    """Figures of curves are painted, whatever their panels (see conftest.py)."""
    monkeypatch.setattr("regard.look.figures.curves.render", render)


LOG = [
    {"kind": "train", "step": 100, "loss": 4.1, "learning_rate": 1e-3},
    {"kind": "train", "step": 200, "loss": NAN, "learning_rate": 2e-3},
    {"kind": "valid", "step": 200, "loss": 3.7, "perplexity": 40.4, "bleu": None},
    {"kind": "train", "step": 300, "loss": 3.1, "learning_rate": 1e-3},
    {"kind": "valid", "step": 300, "loss": 3.2, "perplexity": 24.5, "bleu": 21.0},
    {"kind": "end", "step": 300, "seconds": 12.0},
]


def test_series_keep_their_gaps():
    steps, values = series(LOG, "train", "loss")
    assert list(steps) == [100, 200, 300]
    np.testing.assert_array_equal(values, [4.1, NAN, 3.1])
    steps, values = series(LOG, "valid", "bleu")
    np.testing.assert_array_equal(values, [NAN, 21.0])
    assert len(series(LOG, "valid", "chrf")[0]) == 0


def test_curves_have_a_panel_for_what_the_log_has(tmp_path, painted):
    figure = draw_curves(LOG)
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "BLEU", "learning rate"]
    lines = figure.axes[0].get_lines()
    np.testing.assert_array_equal(lines[0].get_ydata(), [4.1, NAN, 3.1])
    np.testing.assert_array_equal(lines[1].get_ydata(), [3.7, 3.2])
    assert [text.get_text() for text in figure.axes[1].texts] == ["21.0"]  # the best is told
    path = training_curves(LOG, tmp_path / "curves.png")
    assert Image.open(path).size == tuple(round(side * 160) for side in figure.get_size_inches())


@pytest.mark.parametrize(
    ("rows", "panels"),
    [
        ([{"kind": "train", "step": 1, "loss": 2.0}], ["loss"]),
        ([{"kind": "train", "step": 1, "loss": NAN, "learning_rate": 1e-3}], ["learning rate"]),
        ([{"kind": "valid", "step": 7, "loss": math.inf, "ter": 31.0, "chrf": 53.0}], ["score"]),
    ],
)
def test_curves_of_a_short_log(tmp_path, painted, rows, panels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert training_curves(rows, tmp_path / "c.png").stat().st_size > 1000
    assert [axes.get_ylabel() for axes in draw_curves(rows).axes] == panels


CHOSEN_BY_LOSS = [  # the second was taken for its loss, though the first had the higher BLEU, by luck
    {"kind": "valid", "step": 60, "loss": 5.1, "bleu": 0.9, "best": True, "by": "loss"},
    {"kind": "valid", "step": 80, "loss": 4.7, "bleu": 0.4, "best": True, "by": "loss"},
    {"kind": "valid", "step": 100, "loss": 4.9, "bleu": 0.6, "best": False, "by": "loss"},
]
AVERAGE = {"kind": "average", "step": 100, "loss": 4.5, "bleu": 0.7, "by": "loss"}


@pytest.mark.parametrize(
    ("log", "step", "loss", "bleu"),
    [
        (CHOSEN_BY_LOSS, 80, 4.7, 0.4),
        ([*CHOSEN_BY_LOSS, {**AVERAGE, "best": False}], 80, 4.7, 0.4),
        ([*CHOSEN_BY_LOSS, {**AVERAGE, "best": True}], 100, 4.5, 0.7),  # the average lies beside the lines
    ],
)
def test_curves_mark_the_weights_that_were_chosen(log, step, loss, bleu):
    for axes, value, digits in zip(draw_curves(log).axes, (loss, bleu), (2, 1), strict=True):
        (text,) = axes.texts
        assert (text.get_text(), text.xy) == (f"{value:.{digits}f}", (step, value))
        assert [tuple(line.get_xydata()[0]) for line in axes.get_lines() if len(line.get_xydata()) == 1] == [
            (step, value)
        ]


def test_curves_of_captions_name_and_mark_bleu_4():
    """The bug: the panel was called bleu4, and no value in it was told."""
    figure = draw_curves([{"kind": "valid", "step": step, "bleu4": 3.25, "best": True} for step in (5, 7)])
    assert [(axes.get_ylabel(), [text.get_text() for text in axes.texts]) for axes in figure.axes] == [
        ("BLEU-4", ["3.2"])
    ]


def test_an_empty_log_is_told():
    with pytest.raises(RegardError, match="the 1 rows of the log"):
        draw_curves([{"kind": "end", "step": 3}])


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("regard.look.map", {"torch", "matplotlib", "rich"}),
        ("regard.look.figures.curves", {"torch", "matplotlib.pyplot"}),
    ],
)
def test_importing_is_light(module, unwanted):
    code = f"import sys, {module}; sys.exit(bool({unwanted} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
