"""Maps as people read them: words and hidden tokens by plain loops, notes in every form, the page read back."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from regard.errors import UsageError
from regard.look import AttentionMap
from regard.look.colors import INK, color, scale_top
from regard.look.map import BEYOND
from regard.look.words import RowTexts

ROWS = ("<s>", " sto", "ry", "tell", "ers", " go", ".", "</s>")
COLUMNS = (" Er", "zähl", "er", " gehen", "<unk>", ".", "</s>")
ROW_WORDS = [[0], [1, 2, 3, 4], [5], [6], [7]]
COLUMN_WORDS = [[0, 1, 2], [3], [4], [5], [6]]
NOTE = "pieces joined into words: columns added up, rows averaged"
NAN = float("nan")


def weights_of(*shape: int, masked: float = 0.0) -> np.ndarray:
    draw = np.random.default_rng(3)
    weights = draw.random(shape) ** 4
    hidden = draw.random(shape) < masked
    hidden[..., 2] = False  # every row looks somewhere
    weights[hidden] = 0.0
    weights /= weights.sum(axis=-1, keepdims=True)
    weights[hidden] = NAN
    return weights


def by_loops(weights: np.ndarray) -> np.ndarray:
    """One head (T, S), cell by cell."""
    found = np.zeros((len(ROW_WORDS), len(COLUMN_WORDS)))
    for r, rows in enumerate(ROW_WORDS):
        for c, columns in enumerate(COLUMN_WORDS):
            cells = [weights[t, s] for t in rows for s in columns]
            known = [cell for cell in cells if cell == cell]
            found[r, c] = sum(known) / len(rows) if known else NAN
    return found


@pytest.mark.parametrize("masked", [0.0, 0.5])
@pytest.mark.parametrize("heads", [None, 3])
def test_words_add_columns_and_average_rows(heads: int | None, masked: float) -> None:
    shape = (8, 7) if heads is None else (heads, 8, 7)
    weights = weights_of(*shape, masked=masked)
    map = AttentionMap(weights, COLUMNS, ROWS, "title").words()
    expected = by_loops(weights) if heads is None else np.stack([by_loops(each) for each in weights])
    np.testing.assert_allclose(map.weights, expected, atol=1e-14)
    assert np.nansum(map.weights, axis=-1) == pytest.approx(1.0, abs=1e-12)
    assert np.array_equal(np.isnan(map.weights), np.isnan(expected))
    assert map.rows == ("<s>", "storytellers", "go", ".", "</s>")
    assert map.columns == ("Erzähler", "gehen", "<unk>", ".", "</s>")
    assert (map.title, map.notes) == ("title", (NOTE,))


def test_a_piece_that_may_look_nowhere_does_not_count_in_its_word() -> None:
    weights = weights_of(8, 7)
    weights[3] = NAN
    map = AttentionMap(weights, COLUMNS, ROWS).words()
    assert np.nansum(map.weights, axis=-1) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(map.weights[1, 1], weights[[1, 2, 4], 3].mean())


def test_whole_words_stay_as_they_are() -> None:
    weights = weights_of(2, 3)
    map = AttentionMap(weights, ("a", "b", "c"), ("d", "e")).words()
    np.testing.assert_array_equal(map.weights, weights)
    assert map.notes == ()


@pytest.mark.parametrize("heads", [None, 3])
def test_hidden_tokens_leave_and_rows_are_made_one_again(heads: int | None) -> None:
    shape = (8, 7) if heads is None else (heads, 8, 7)
    weights = weights_of(*shape, masked=0.3)
    map = AttentionMap(weights, COLUMNS, ROWS).hide()
    assert map.rows == ROWS[1:7] and map.columns == COLUMNS[:6]  # <unk> stands for a word, and stays
    shares = []
    for old, new in zip(weights.reshape(-1, 8, 7), map.weights.reshape(-1, 6, 6), strict=True):
        for t in range(6):
            last = 0.0 if np.isnan(old[t + 1, 6]) else old[t + 1, 6]
            shares.append((last, ROWS[t + 1]))
            for s in range(6):
                assert new[t, s] == pytest.approx(old[t + 1, s] / (1 - last), abs=1e-12, nan_ok=True)
    assert np.nansum(map.weights, axis=-1) == pytest.approx(1.0, abs=1e-12)
    most, row = max(shares)
    mean = sum(share for share, _ in shares) / len(shares)
    expected = (
        f"without </s>, <s>: they had {mean:.0%} of the weight (at most {most:.0%}, row '{row.replace(' ', '␣')}')"
    )
    assert map.notes == (expected + "; rows renormalised",)


def test_a_row_that_saw_only_hidden_tokens_is_zeros_and_is_named() -> None:
    weights = np.array([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.2, NAN, 0.8]])
    map = AttentionMap(weights, ("<s>", "a", "b"), ("x", "y", "z")).hide()
    np.testing.assert_array_equal(map.weights, [[0.0, 0.0], [0.5, 0.5], [NAN, 1.0]])
    assert map.notes[0].endswith("(at most 100%, row 'x'); rows renormalised; all of the weight of x was there: zeros")
    assert map.notes[0].startswith("without <s>: it had 57% of the weight")


def test_labels_can_be_hidden_by_name_and_unknown_ones_are_told() -> None:
    map = AttentionMap(weights_of(8, 7), COLUMNS, ROWS)
    assert map.hide(specials=False, labels=["."]).columns == (*COLUMNS[:5], "</s>")
    assert (
        map.hide(specials=False, labels=["gehen"]).columns == COLUMNS[:3] + COLUMNS[4:]
    )  # its space need not be typed
    assert map.hide(specials=False) is map
    with pytest.raises(UsageError, match=r"no token hut to hide; there are Er, zähl, er, gehen, <unk>, \. and 1 more"):
        map.hide(labels=["hut"])
    with pytest.raises(UsageError, match="all rows or all columns of this map would be hidden"):
        AttentionMap(np.eye(2), ("<s>", "</s>"), ("a", "b")).hide()
    only_rows = AttentionMap(weights_of(2, 3), ("a", "b", "c"), ("d", "</s>")).hide()
    assert only_rows.notes == ("without the rows </s>",)
    np.testing.assert_array_equal(only_rows.weights, weights_of(2, 3)[:1])


def test_notes_are_in_every_form_but_csv(tmp_path: Path) -> None:
    map = AttentionMap(weights_of(3, 8, 7), COLUMNS, ROWS, "t").hide()
    note = map.notes[0]
    for each in (map, map.mean(), map.head(1), map.words()):
        assert each.notes[0] == note
    assert json.loads(map.json())["notes"] == [note]
    assert next(csv.reader(io.StringIO(map.csv())))[:2] == ["head", "token"]  # names, not sentences
    assert next(csv.reader(io.StringIO(map.mean().csv())))[0] == "token"
    plain = map.mean()
    assert note in " ".join(plain.text(width=60).split("\n"))
    escaped = note.replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#x27;")
    assert escaped in plain._repr_html_() and escaped in plain.html()
    title, below = (text.get_text().replace("\n", " ") for text in plain.figure().texts)
    assert (title, below) == ("t", note)


def test_the_notes_of_a_figure_stand_on_the_page_and_touch_nothing() -> None:
    map = AttentionMap(weights_of(8, 7), COLUMNS, ROWS, "title " * 30, ("a note " * 40, "another"))
    figure = map.figure()
    boxes = [text.get_window_extent() for text in figure.texts] + [
        box for axes in figure.axes if (box := axes.get_tightbbox()) is not None
    ]
    for number, box in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert number > 1 or not any(box.overlaps(other) for other in boxes[number + 1 :])


# the page


def parsed(page: str) -> tuple[ElementTree.Element, dict[str, Any]]:
    """The page as XML, and the numbers in it."""
    root = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    return root, json.loads(next(each for each in root.iter("script") if each.get("id") == "numbers").text or "")


def numbers(data: dict[str, Any], panel: int, shape: tuple[int, int]) -> np.ndarray:
    coded = np.frombuffer(base64.b64decode(data["panels"][panel]), dtype="<u2").reshape(shape)
    values = data["low"] + coded / 65534 * (data["high"] - data["low"])
    return np.where(coded == 65535, NAN, values)


def test_a_page_gives_back_its_numbers_and_colours(tmp_path: Path) -> None:
    weights = weights_of(3, 8, 7, masked=0.3)
    labels = ('<script>alert("x")</script>', "&", *COLUMNS[2:])
    map = AttentionMap(weights, labels, ROWS, "<b>title</b>")
    page = map.save(tmp_path / "map.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|src=\"(?!data:)|@import|url\(", page)  # nothing is loaded from elsewhere
    root, data = parsed(page)
    assert [span.text for span in root.iterfind(".//div[@class='columns']/span")][:2] == list(labels[:2])
    assert root.findtext(".//h1") == "<b>title</b>"
    pictures = [image.get("src", "") for image in root.iterfind(".//button/img")]
    assert len(pictures) == len(data["panels"]) == 3
    for panel, source in enumerate(pictures):
        np.testing.assert_allclose(numbers(data, panel, (8, 7)), weights[panel], atol=1e-5)
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).convert("RGBA"))
        masked = np.isnan(weights[panel])
        assert (pixels[..., 3] == np.where(masked, 0, 255)).all()  # the hatched ground shows through
        expected = [color(INK, weight) for weight in weights[panel][~masked] / scale_top(weights)]
        assert np.abs(pixels[..., :3][~masked].astype(int) - np.array(expected)).max() <= 2


def test_large_maps_make_pages_that_can_be_opened() -> None:
    draw = np.random.default_rng(0).random((512, 512)).astype(np.float32)
    labels = tuple(f"token{n}" for n in range(512))
    map = AttentionMap(draw, labels, labels)
    page = map.html()
    assert len(page) < 2e6
    assert 'class="map small"' in page  # no words at first, there is no room
    _, data = parsed(page)
    np.testing.assert_allclose(numbers(data, 0, (512, 512)), draw, atol=1e-5)
    many = AttentionMap(np.broadcast_to(draw, (8, 512, 512)), labels, labels).html()
    assert len(many) < 6e6 and "the numbers in .json" in many


def test_a_notebook_gets_a_table_or_for_a_large_map_a_picture() -> None:
    small = AttentionMap(weights_of(8, 7), COLUMNS, ROWS)
    assert "<table" in small._repr_html_() and "<img" not in small._repr_html_()
    large = AttentionMap(weights_of(71, 97), tuple(map(str, range(97))), tuple(map(str, range(71))), '"large"')
    html = large._repr_html_()
    assert html.startswith('<img src="data:image/png;base64,') and 'alt="&quot;large&quot;"' in html
    assert len(html) < 600_000


# rows as texts


def test_a_row_is_weighed_by_words_or_by_pieces() -> None:
    weights = weights_of(8, 7)
    map = AttentionMap(weights, COLUMNS, ROWS, "cross")
    words = RowTexts(map).row("go")
    assert words.text == " Erzähler gehen <unk> . </s>" and words.caption == "'go' looks at"
    assert [words.text[start:end] for start, end in words.spans] == ["Erzähler", "gehen", "<unk>", ".", "</s>"]
    assert words.weights == pytest.approx([weights[5, :3].sum(), *weights[5, 3:]])
    pieces = RowTexts(map, words=False).row(5)
    assert pieces.weights == pytest.approx(weights[5])
    assert RowTexts(map, words=False).mean().weights == pytest.approx(weights.mean(axis=0))
    assert RowTexts(map).row("7").caption == "'</s>' looks at"
    for wrong in ("99", "-1", "going"):
        with pytest.raises(UsageError, match=f"no row {wrong}.*there are 0 <s>, 1 sto, 2 ry"):
            RowTexts(map).row(wrong)


def test_the_terminal_has_every_row_on_one_scale() -> None:
    weights = np.array([[0.9, 0.1], [0.3, 0.7]])
    file = io.StringIO()
    console = Console(file=file, width=40, color_system=None)
    console.print(RowTexts(AttentionMap(weights, ("ja", "nein"), ("yes", "no"), "title", ("a note",))))
    lines = file.getvalue().split("\n")
    assert lines[:5] == ["title", "", "'yes' looks at", "ja nein", "██"]
    assert lines[5:9] == ["", "'no' looks at", "ja nein", "░░ ▓▓▓▓"]
    assert lines[9:] == ["", "weight 0 ░▒▓█ 1", "a note", ""]


def test_a_row_that_sees_one_key_does_not_stretch_the_scale_and_that_is_said() -> None:
    """The first row of a causal map weighs 1 whatever the model does; beside it all else would be pale."""
    weights = np.array([[1.0, np.nan, np.nan], [0.3, 0.7, np.nan], [0.2, 0.2, 0.6]])
    map = AttentionMap(weights, tuple("abc"), tuple("abc"))
    assert scale_top(map.weights) == 0.8 and map.notes == (BEYOND,)
    assert map.words().notes.count(BEYOND) == 1
    assert scale_top(weights[:1]) == 1.0  # where there are no others, it is the scale
    sharp = AttentionMap(np.where(np.isnan(weights), np.nan, np.eye(3)), tuple("abc"), tuple("abc"))
    assert scale_top(sharp.weights) == 1.0 and BEYOND not in sharp.notes
