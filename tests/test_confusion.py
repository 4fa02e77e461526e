"""Confusion matrices read back from their pictures: colours from pixels, counts and recalls from the text drawn."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from regard.errors import RegardError, UsageError
from regard.look.colors import INK, color, contrast, ink_on, luminance
from regard.look.figures.confusion import confusion_figure, save_confusion
from regard.look.figures.sheet import render

COUNTS = np.array([[30, 10, 0], [5, 15, 5], [0, 0, 0]])
SHARES = [[0.75, 0.25, 0.0], [0.2, 0.6, 0.2]]  # of each row, by hand; the last label never occurs


def written(figure: Figure) -> dict[tuple[float, float], str]:
    return {text.get_position(): text.get_text() for text in figure.axes[0].texts}


def test_cells_have_the_colour_of_their_share_of_the_row() -> None:
    figure = confusion_figure(COUNTS, ("a", "b", "c"), "title")
    picture = np.asarray(Image.open(io.BytesIO(render(figure, "png"))).convert("RGB"))[::-1].astype(int)
    for row, shares in enumerate(SHARES):
        for column, share in enumerate(shares):
            x, y = figure.axes[0].transData.transform((column + 0.12, row + 0.12)).astype(int)  # beside the number
            assert np.abs(picture[y, x] - color(INK, share)).max() <= 3
    x, y = figure.axes[0].transData.transform((1.12, 2.12)).astype(int)
    assert np.ptp(picture[y, x]) <= 1  # a label that never occurs has no colour, only hatched grey


def test_counts_stand_in_their_cells_and_recalls_at_the_right() -> None:
    texts = written(confusion_figure(COUNTS, ("a", "b", "c"), ""))
    inside = {place: text for place, text in texts.items() if max(place) < 3}
    assert inside == {(0.5, 0.5): "30", (1.5, 0.5): "10", (0.5, 1.5): "5", (1.5, 1.5): "15", (2.5, 1.5): "5"}
    right = {y: text for (x, y), text in texts.items() if x > 3 and y < 3}
    assert right == {0.5: "75%", 1.5: "60%", 2.5: "–"}
    assert "recall" in texts.values()


@pytest.mark.parametrize("count", [1, 2, 30])
def test_counts_fit_into_their_cells_and_all_is_on_the_page(count: int) -> None:
    counts = np.full((count, count), 12_345)
    figure = confusion_figure(counts, [f"label number {place}" for place in range(count)], "A title")
    axes = figure.axes[0]
    cell = axes.get_window_extent().width / count
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text() == "12345"]
    assert len(boxes) == count**2
    assert max(box.width for box in boxes) < cell
    assert min(text.get_fontsize() for text in axes.texts) > 5.5
    for each in figure.axes:
        box = each.get_tightbbox()
        assert box is not None
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"label number {i}" for i in range(count)]


def test_many_labels_have_no_numbers() -> None:
    figure = confusion_figure(np.eye(31, dtype=int), [str(place) for place in range(31)], "")
    assert "1" not in written(figure).values()
    large = confusion_figure(np.eye(61, dtype=int), [f"l{place}" for place in range(61)], "")
    assert max(large.get_size_inches()) < 70
    assert len(large.axes[0].get_yticklabels()) == 61


def test_the_ink_is_readable_on_every_colour() -> None:
    assert (luminance((0, 0, 0)), luminance((255, 255, 255))) == pytest.approx((0.0, 1.0))
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21.0)
    assert contrast((118, 118, 118), (255, 255, 255)) == pytest.approx(4.54, abs=0.005)  # WCAG's well-known grey
    for share in np.linspace(0, 1, 101):
        ground = color(INK, float(share))
        assert contrast(ink_on(ground), ground) >= 4.5


def test_files_are_whole_and_unknown_suffixes_are_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    png = save_confusion(COUNTS, ("$a", "犬", "x\ny"), tmp_path / "deep" / "m.png", "$t$")
    assert png.read_bytes().startswith(b"\x89PNG")
    svg = save_confusion(COUNTS, ("a", "b", "c"), tmp_path / "m.SVG")
    assert svg.read_text(encoding="utf-8").rstrip().endswith("</svg>")
    with pytest.raises(UsageError, match=r"ends in \.jpg; use \.png, \.svg"):
        save_confusion(COUNTS, ("a", "b", "c"), tmp_path / "m.jpg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "m.SVG"]


@pytest.mark.parametrize(
    ("matrix", "labels", "message"),
    [
        (COUNTS, ("a", "b"), r"shape \(3, 3\) for 2 labels"),
        (np.zeros((0, 0), dtype=int), (), "nothing to show"),
        (COUNTS / 40, ("a", "b", "c"), "whole numbers"),
        (-COUNTS, ("a", "b", "c"), "0 or more"),
    ],
)
def test_wrong_matrices_are_told(matrix: np.ndarray, labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        confusion_figure(matrix, labels)
