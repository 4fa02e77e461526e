"""All heads at a glance: panels by their pixels, names and words by their places, and what can be read back."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from PIL import Image

from regard.errors import RegardError, UsageError
from regard.look.figures.sheet import render
from regard.look.sentence import AllHeads, SentenceAttention

L, H, T, S = 2, 3, 5, 7
NAN = float("nan")


def heads_of(layers: int, heads: int, rows: int, columns: int) -> AllHeads:
    """Head h of layer l looks only at column l * heads + h."""
    weights = np.zeros((layers, heads, rows, columns))
    for layer in range(layers):
        for head in range(heads):
            weights[layer, head, :, (layer * heads + head) % columns] = 1.0
    words = tuple(f"k{n}" for n in range(columns)), tuple(f"q{n}" for n in range(rows))
    return AllHeads({f"layer.{n}": each for n, each in enumerate(weights)}, *words, "all of them")


def names_in(figure: Figure) -> list[str]:
    return [each.get_text() for axes in figure.axes for each in axes.texts if isinstance(each, Annotation)]


def assert_nothing_is_cut_off(figure: Figure) -> None:
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box is not None
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1


def test_each_head_has_its_own_panel_in_the_line_of_its_layer() -> None:
    figure = heads_of(L, H, T, S).figure()
    picture = np.asarray(Image.open(io.BytesIO(render(figure, "png"))).convert("RGB"))[::-1]  # y upwards
    panels = figure.axes[: L * H]
    for number, axes in enumerate(panels):
        middles = [(s + 0.5, t + 0.5) for t in range(T) for s in range(S)]
        colours = [picture[y, x].astype(int).sum() for x, y in axes.transData.transform(middles).astype(int)]
        dark = np.array(colours).reshape(T, S) < 300
        assert dark[:, number].all() and dark.sum() == T
    boxes = [axes.get_window_extent() for axes in panels]
    assert boxes[0].x1 < boxes[1].x0 and boxes[0].y0 == boxes[2].y0 and boxes[3].y1 < boxes[0].y0
    assert sorted(names_in(figure)) == ["head 0", "head 1", "head 2", "layer 0", "layer 1"]
    assert_nothing_is_cut_off(figure)


def test_words_stand_once_at_the_left_and_above() -> None:
    figure = heads_of(L, H, T, S).figure()
    across = [[label.get_text() for label in axes.get_xticklabels()] for axes in figure.axes[: L * H]]
    down = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes[: L * H]]
    words = [f"k{n}" for n in range(S)], [f"q{n}" for n in range(T)]
    assert across == [words[0]] * H + [[]] * H
    assert down == [words[1], [], [], words[1], [], []]


@pytest.mark.parametrize(("layers", "heads"), [(4, 4), (6, 8)])
def test_words_of_twenty_tokens_can_be_read(layers: int, heads: int) -> None:
    figure = heads_of(layers, heads, 20, 20).figure()
    labels = figure.axes[0].get_yticklabels()
    assert len(labels) == 20 and float(labels[0].get_fontsize()) >= 5.5
    assert max(figure.get_size_inches()) < 18
    assert_nothing_is_cut_off(figure)


def test_where_words_do_not_fit_it_is_said_what_runs_along() -> None:
    figure = heads_of(6, 8, 61, 59).figure()
    assert not figure.axes[0].get_yticklabels() and max(figure.get_size_inches()) < 17
    told = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    assert "61 rows (from 'q0' down to 'q60') look at 59 columns (from 'k0' on the left to 'k58' on the right)" in told
    assert "head 7" in names_in(figure) and "layer 5" in names_in(figure)
    assert_nothing_is_cut_off(figure)


def test_the_page_has_a_button_for_each_head(tmp_path: Path) -> None:
    page = heads_of(L, H, T, S).save(tmp_path / "a.html").read_text(encoding="utf-8")
    root = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    names = [button.get("aria-label") for button in root.iter("button")]
    assert names == [f"layer {layer}, head {head}" for layer in range(L) for head in range(H)]
    assert len({image.get("src") for image in root.iterfind(".//button/img")}) == L * H
    assert not re.search(r"https?:", page)


def test_json_has_every_number(tmp_path: Path) -> None:
    heads = heads_of(L, H, T, S)
    heads.layers["layer.1"][0, 2, 3] = NAN
    found = json.loads(heads.save(tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert (found["title"], found["columns"][0], found["rows"][-1]) == ("all of them", "k0", "q4")
    for name, weights in heads.layers.items():
        np.testing.assert_array_equal(np.array(found["layers"][name], dtype=float), weights)
    with pytest.raises(UsageError, match=r"ends in \.gif; use \.png, \.svg, \.html, \.json, \.csv"):
        heads.save(tmp_path / "a.gif")


def test_csv_has_every_number_behind_its_layer_and_head(tmp_path: Path) -> None:
    heads = heads_of(L, H, T, S)
    heads.layers["layer.1"][0, 2, 3] = NAN
    with heads.save(tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file))
    assert header == ["layer", "head", "token", *heads.columns]
    assert len(lines) == L * H * T
    for line, (layer, head, row) in zip(lines, np.ndindex(L, H, T), strict=True):
        assert line[:3] == [str(layer), str(head), heads.rows[row]]
        wanted = list(heads.layers.values())[layer][head, row]
        np.testing.assert_array_equal([float(cell or "nan") for cell in line[3:]], wanted)


def test_the_terminal_shows_as_many_heads_as_fit() -> None:
    lines = heads_of(L, H, T, S).text(width=3 * S + 4).split("\n")
    assert lines[0] == "all of them" and lines[2].split() == ["0.0", "0.1", "0.2"]
    assert [line.index("█") for line in lines[3 : 3 + T]] == [0] * T
    assert lines[3] == "█" + " " * 8 + " █" + " " * 7 + "  █" + " " * 4
    narrow = heads_of(L, H, T, S).text(width=S).split("\n")
    assert max(len(line) for line in narrow[1:-2]) <= 16 and narrow.count("") == L * H + 1
    colored = heads_of(1, 1, 3, 2).text(color=True)
    assert colored.count("▀") == 2 * 2  # two rows of cells in a line, the last alone
    assert "weight 0" in colored


def test_words_and_hidden_tokens_are_those_of_one_map() -> None:
    weights = np.random.default_rng(2).random((L * H, 4, 4))
    weights /= weights.sum(axis=-1, keepdims=True)
    labels = ("<s>", " ru", "ns", "</s>")
    heads = AllHeads({"a": weights[:H], "b": weights[H:]}, labels, labels).words().hide()
    assert heads.rows == heads.columns == ("runs",) and list(heads.layers) == ["a", "b"]
    for each in heads.layers.values():
        np.testing.assert_allclose(each, np.ones((H, 1, 1)))
    hidden = weights[:, 1:3][:, :, [0, 3]].sum(axis=-1).mean(axis=1)  # the word's row is the mean of its pieces'
    assert (
        f"without <s>, </s>: they had {hidden.mean():.0%} of the weight (at most {hidden.max():.0%}" in heads.notes[1]
    )


def test_layers_of_other_sizes_are_refused() -> None:
    with pytest.raises(RegardError, match=r"b has weights of shape \(1, 2, 3\), but there are 2 rows and 2 columns"):
        AllHeads({"a": np.ones((1, 2, 2)), "b": np.ones((1, 2, 3))}, ("a", "b"), ("c", "d"))
    with pytest.raises(RegardError, match="nothing to show"):
        AllHeads({}, (), ())


def test_a_sentence_gives_its_grid() -> None:
    heads = heads_of(L, H, T, S)
    grid = SentenceAttention(heads.columns, heads.rows, heads.layers, 0.0, "self").grid()
    assert grid.title == "self-attention, 2 layers x 3 heads" and grid.heads == H
    assert grid.layers is heads.layers
