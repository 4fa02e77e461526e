"""Maps over pictures read back from what they were written to: colours from pixels, numbers from files, text by width."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.cells import cell_len
from rich.console import Console

from regard.data.pictures.config import PictureFormat
from regard.data.pictures.decode import fitted
from regard.errors import RegardError, UsageError
from regard.look.colors import GLOW, INK, color, luminance
from regard.look.figures.confusion import confusion_figure, confusion_samples_figure, mistakes, save_confusion_samples
from regard.look.figures.layers import DIVERGING, bars_figure, chosen, matrix_figure, save_bars, save_mixing
from regard.look.figures.pictures import best_across
from regard.look.figures.sheet import DPI, render
from regard.look.overlay import covered, laid_over, resized, strongest
from regard.look.pictures import Even, Panel, PictureMap


def drawn(height: int, width: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def grey(height: int, width: int, byte: int = 100) -> np.ndarray:
    return np.full((height, width, 3), byte, dtype=np.uint8)


def made_map(
    words: int = 3, grid: tuple[int, int] = (3, 5), fit: str = "crop", shape: tuple[int, int] = (60, 90)
) -> PictureMap:
    draw = np.random.default_rng(11)
    panels = tuple(Panel(f"word{n}", draw.dirichlet(np.ones(grid[0] * grid[1])).reshape(grid)) for n in range(words))
    boxes = fitted(shape, PictureFormat(size=32, fit=fit))  # type: ignore[arg-type]
    return PictureMap(grey(*shape), boxes, grid, panels, "A title", "a caption")


def pixels_of(figure: Figure) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(render(figure, "png"))).convert("RGB")).astype(int)


def box_in_pixels(figure: Figure, image) -> tuple[float, float, float, float]:  # type: ignore[no-untyped-def]
    """Where an image stands on the page: left, top, right, bottom, from the top left."""
    left, right, bottom, top = image.get_extent()
    (x0, y0), (x1, y1) = image.axes.transData.transform([(left, top), (right, bottom)])
    height = figure.get_figheight() * DPI
    return x0, height - y0, x1, height - y1


def words_on(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


# --- Colours over a picture


def by_hand(ground: float, share: float) -> list[float]:
    """Pale grey, mixed with the dark end of the ink, up to 88% of it."""
    ink = color(INK[5:], share)
    opacity = 0.88 * share**0.7
    return [(1 - opacity) * ground + opacity * part for part in ink]


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
@pytest.mark.parametrize("shape", [(43, 61), (61, 43)])
def test_every_pixel_has_the_colour_of_the_place_it_lies_in(shape: tuple[int, int], fit: str) -> None:
    """The slow way: for each pixel, ask every place whether it holds the middle of it."""
    boxes, grid = fitted(shape, PictureFormat(size=32, fit=fit)), (2, 3)  # type: ignore[arg-type]
    weights = np.array([[0.0, 0.1, 0.4], [0.2, 0.2, 0.1]])
    picture = drawn(*shape)
    found = laid_over(picture, boxes, weights, 0.5, marked=False).astype(int)
    pale = 170 + np.asarray(Image.fromarray(picture).convert("L"), dtype=float) * (252 - 170) / 255
    unseen = 0
    for y in range(shape[0]):
        for x in range(shape[1]):
            inside = [
                (row, column)
                for row in range(2)
                for column in range(3)
                for left, top, right, bottom in [boxes.cell(row, column, grid)]
                if left <= x + 0.5 < right and top <= y + 0.5 < bottom
            ]
            if not inside:
                unseen += 1
                assert np.ptp(found[y, x]) == 0  # hatched grey, no colour
                continue
            assert found[y, x] == pytest.approx(by_hand(pale[y, x], weights[inside[0]] / 0.5), abs=2)
    assert unseen == (18 * 43 if fit == "crop" else 0)


def test_more_weight_is_darker_on_every_ground() -> None:
    for ground in range(170, 253, 6):
        lights = [luminance(covered(ground, share)) for share in np.linspace(0, 1, 41)]
        assert all(later < before for before, later in pairwise(lights))
    darkest = luminance(covered(170, 0.0))
    assert luminance(covered(252, 0.5)) < darkest  # no picture makes nothing look like half


def test_squares_are_flat_unless_smoothed() -> None:
    weights = np.zeros((3, 3))
    weights[1, 1] = 1.0
    boxes = Even((0, 0, 90, 90))
    flat = laid_over(grey(90, 90), boxes, weights, 1.0, marked=False)
    assert len(np.unique(flat.reshape(-1, 3), axis=0)) == 2
    assert (flat[30:60, 30:60] == flat[45, 45]).all() and (flat[:30] == flat[0, 0]).all()
    smooth = laid_over(grey(90, 90), boxes, weights, 1.0, smooth=True, marked=False)
    assert len(np.unique(smooth.reshape(-1, 3), axis=0)) > 20
    assert smooth[45, 45] == pytest.approx(flat[45, 45].tolist(), abs=3)  # the curve passes through the places
    assert smooth[45, 15] == pytest.approx(flat[45, 15].tolist(), abs=3)
    assert smooth[45, 31].tolist() != flat[45, 31].tolist()


def test_the_greatest_is_framed_if_there_is_one() -> None:
    assert strongest(np.array([[0.1, 0.5], [0.3, 0.1]])) == (0, 1)
    assert strongest(np.full((2, 2), 0.25)) is None
    pixels = laid_over(grey(40, 40), Even((0, 0, 40, 40)), np.array([[0.1, 0.5], [0.3, 0.1]]), 0.5)
    dark = (pixels.astype(int).sum(axis=2) < 100).nonzero()
    assert (dark[0].min(), dark[0].max(), dark[1].min(), dark[1].max()) == (0, 19, 20, 39)
    assert len(dark[0]) == 4 * 19  # a line of one pixel


def test_small_pictures_keep_their_pixels_and_large_ones_their_colours() -> None:
    small = drawn(3, 2)
    assert (resized(small, 8, 12) == small.repeat(4, axis=0).repeat(4, axis=1)).all()
    halves = np.concatenate([grey(300, 200, 40), grey(300, 200, 200)], axis=1)
    assert (resized(halves, 40, 30)[:, [5, 35]] == [40, 40, 40]).all(axis=2).tolist() == [[True, False]] * 30
    for shape, times in (((24, 32), 3), ((480, 640), 0)):  # a browser makes a blur of few pixels, unless it is told
        page = made_map(words=2, shape=shape).html()
        assert page.count("image-rendering:pixelated") == times


# --- The figure


def test_the_figure_shows_each_panel_in_its_colours() -> None:
    """Colours in the middle of every place that is seen, from the pixels of the PNG."""
    map = made_map()
    figure = map.figure()
    pixels, images = pixels_of(figure), figure.axes[0].images
    photo = box_in_pixels(figure, images[0])
    middle = pixels[int(photo[1] + photo[3]) // 2, int(photo[0] + photo[2]) // 2]
    assert middle.tolist() == [100, 100, 100]
    top = max(panel.peak for panel in map.panels)
    assert map.top >= top
    ground = 170 + 100 * 82 / 255
    for panel, image in zip(map.panels, images[1:4], strict=True):
        left, above, right, below = box_in_pixels(figure, image)
        assert (round(right - left), round(below - above)) == image.get_array().shape[1::-1]  # pixel for pixel
        for (row, column), weight in np.ndenumerate(panel.weights):
            x0, y0, x1, y1 = map.boxes.cell(row, column, map.grid)
            x = int(left + (x0 + x1) / 2 / 90 * (right - left))
            y = int(above + (y0 + y1) / 2 / 60 * (below - above))
            assert pixels[y, x] == pytest.approx(by_hand(ground, weight / map.top), abs=2)


def test_the_figure_says_what_it_shows() -> None:
    map = made_map()
    shown = words_on(map.figure())
    assert shown[:2] == ["A title", "a caption"]
    for panel in map.panels:
        assert shown[shown.index(panel.title) + 1] == f"{panel.peak:.2g}"
    assert shown.index("word0") < shown.index("word1") < shown.index("word2")
    assert {"picture", "90 × 60", "weight 0", f"{map.top:g}", "not seen by the model", "3 × 5 places"} <= set(shown)
    assert not any("smooth" in text for text in shown)
    assert "smoothed between the places" in words_on(map.figure(smooth=True))
    assert "not seen by the model" not in words_on(made_map(fit="squash").figure())
    own = words_on(map.figure(own_scale=True))
    assert "the panel's greatest" in own and f"{map.top:g}" not in own


def test_on_its_own_scale_every_panel_reaches_the_last_colour() -> None:
    low = PictureMap(grey(30, 30), Even((0, 0, 30, 30)), (1, 2), (Panel("a", [[0.1, 0.2]]), Panel("b", [[0.8, 0.1]])))
    for panel in low.figure(own_scale=True).axes[0].images[1:3]:
        assert luminance(tuple(panel.get_array().reshape(-1, 3).min(axis=0))) < 0.05
    first = low.figure().axes[0].images[1].get_array()
    assert first[10, -10].tolist() == pytest.approx(by_hand(202, 0.2 / 0.8), abs=2)


@pytest.mark.parametrize(
    ("words", "grid", "shape"),
    [(1, (7, 7), (60, 90)), (12, (14, 14), (90, 60)), (20, (7, 7), (60, 90)), (2, (9, 2), (900, 90))],
)
def test_everything_is_on_the_page_and_nothing_lies_over_another(
    words: int, grid: tuple[int, int], shape: tuple[int, int]
) -> None:
    figure = made_map(words, grid, "pad", shape).figure()
    page = figure.bbox
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
    boxes = [box_in_pixels(figure, image) for image in figure.axes[0].images[: words + 1]]
    assert len({round(left) for left, *_ in boxes}) <= 6
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert 0 <= left < right <= page.x1 and 0 <= top < bottom <= page.y1
        assert (right - left) / (bottom - top) == pytest.approx(shape[1] / shape[0], rel=0.02)
        for other in boxes[:number]:
            assert left >= other[2] or top >= other[3] or right <= other[0] or bottom <= other[1]


def test_rows_of_panels_by_hand() -> None:
    assert [best_across(count) for count in (1, 2, 6, 7, 8, 10, 12, 13, 21, 49)] == [1, 2, 6, 4, 4, 5, 6, 5, 6, 5]


def test_any_word_can_be_a_title() -> None:
    names = ("$x$", "犬", " ", "\x1b[31m", "a" * 200, "")
    map = PictureMap(grey(20, 20), Even((0, 0, 20, 20)), (1, 1), tuple(Panel(name, [[0.0]]) for name in names), "$t")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert map._repr_png_().startswith(b"\x89PNG")
    for shown in (map.terminal(40), map.html(), *words_on(map.figure())):
        assert "\x1b" not in shown
    assert "␣" in map.terminal(40) and "∅" in map.html()


# --- Weights that lie where no picture is


def test_weight_on_the_border_is_told() -> None:
    """A picture twice as wide as tall in a padded square of 4 x 4: the first and the last row lie on the border."""
    boxes = fitted((40, 80), PictureFormat(size=32, fit="pad"))
    weights = np.arange(16).reshape(4, 4) / 120
    map = PictureMap(grey(40, 80), boxes, (4, 4), (Panel("a", weights, "note"),))
    assert map.outside(map.panels[0]) == pytest.approx((0 + 1 + 2 + 3 + 12 + 13 + 14 + 15) / 120)
    assert not map.cut
    told = "note · 0.5 outside the picture"
    assert told in map.terminal() and told in map.html() and told in words_on(map.figure())
    assert map.html().count("<rect") == 8  # and no frame: the greatest lies on the border, too


# --- Files


def test_json_and_csv_give_back_every_number(tmp_path: Path) -> None:
    map = made_map()
    found = json.loads(map.save(tmp_path / "m.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert found == map.data()
    assert (found["title"], found["caption"], found["height"], found["width"]) == ("A title", "a caption", 60, 90)
    for panel, each in zip(map.panels, found["panels"], strict=True):
        assert (each["title"], each["peak"]) == (panel.title, panel.weights.max())
        assert np.array_equal(each["weights"], panel.weights)
    assert found["boxes"][2][4] == list(map.boxes.cell(2, 4, (3, 5)))
    with open(map.save(tmp_path / "m.CSV"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 15
    for row in rows:
        place = int(row["row"]), int(row["column"])
        assert float(row["weight"]) == map.panels[int(row["panel"])].weights[place]
        assert [float(row[side]) for side in ("left", "top", "right", "bottom")] == list(
            map.boxes.cell(*place, map.grid)
        )


def test_files_are_whole_and_options_are_for_figures(tmp_path: Path) -> None:
    map = made_map()
    assert map.save(tmp_path / "m.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    assert map.png(tmp_path / "deep" / "m").read_bytes() == map.save(tmp_path / "m.png").read_bytes()
    assert map.save(tmp_path / "s.png", smooth=True).read_bytes() != map.save(tmp_path / "m.png").read_bytes()
    for name, options in (("m.html", {"smooth": True}), ("m.json", {"own_scale": True})):
        with pytest.raises(UsageError, match=r"are for \.png and \.svg"):
            map.save(tmp_path / name, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"ends in \.gif; use \.png, \.svg, \.html, \.json, \.csv"):
        map.save(tmp_path / "m.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "m.png", "m.svg", "s.png"]


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    picture = drawn(60, 90)
    map = PictureMap(picture, Even((15, 0, 75, 60)), (2, 2), (Panel("<dog>", [[0.1, 0.2], [0.3, 0.4]]),), "T & t")
    text = map.save(tmp_path / "m.html").read_text(encoding="utf-8")
    assert "<script" not in text and not re.findall(r"(?:src|href)=\"(?!data:)", text)
    assert set(re.findall(r"url\((.{5})", text)) == {"data:"}
    root = ElementTree.fromstring(text.split("\n", 1)[1])
    source = next(root.iter("img")).attrib["src"]
    shown = Image.open(io.BytesIO(base64.b64decode(source.partition("base64,")[2])))
    assert np.array_equal(np.asarray(shown), picture)
    name = "{http://www.w3.org/2000/svg}"
    squares = list(root.iter(f"{name}rect"))
    hints = [square[0].text for square in squares[:4]]
    assert hints[3] == "<dog>: 0.4 (row 2, column 2)" and len(squares) == 5
    assert [squares[3].attrib[key] for key in ("x", "y", "width", "height")] == ["45", "30", "30", "30"]
    assert float(squares[3].attrib["fill-opacity"]) == pytest.approx(0.88, abs=0.001)  # the top of the scale is 0.4
    assert float(squares[0].attrib["fill-opacity"]) == pytest.approx(0.88 * 0.25**0.7, abs=0.001)
    assert squares[4].attrib["fill"] == "none" and squares[4].attrib["x"] == "45"
    assert "not seen by the model" in text and "T &amp; t" in map._repr_html_()


# --- Terminal


def test_blocks_by_hand() -> None:
    map = PictureMap(
        grey(20, 20),
        Even((0, 0, 20, 20)),
        (2, 2),
        (Panel("a", [[0, 1], [0.3, 0.6]]), Panel("long", np.ones((2, 2)))),
        "T",
    )
    assert map.terminal(12).split("\n") == [
        "T", "", "a     long", "··██  ····", "░░▓▓  ····", "",
        "a     1    …", "long  even …", "", "weight 0·░▒▓█ 1   2 × 2 places",
    ]  # fmt: skip
    lines = map.terminal(60).split("\n")
    assert lines[-4:-2] == ["a     1       row 1 of 2, column 2 of 2", "long  even    about 1 everywhere"]
    twice = PictureMap(grey(20, 20), Even((0, 0, 20, 20)), (2, 2), (Panel("a", [[0, 1], [1, 0]]),))
    assert "a  1       in several places" in twice.terminal(60).split("\n")


@pytest.mark.parametrize("width", [100, 41, 10, 6])
def test_panels_fit_the_width(width: int) -> None:
    lines = made_map(7).terminal(width).split("\n")
    assert all(cell_len(line) <= width for line in lines[:-1])
    assert "".join(lines).count("word") >= 7


def test_colours_and_the_picture_in_a_terminal() -> None:
    halves = np.concatenate([grey(20, 10, 0), grey(20, 10, 255)], axis=1)
    map = PictureMap(halves, Even((0, 0, 20, 20)), (1, 2), (Panel("a", [[0.5, 1.0]]),))
    text = map.terminal(40, color=True)
    found = re.findall(r"\x1b\[48;2;(\d+);(\d+);(\d+)m  \x1b", text)
    grounds = [tuple(int(part) for part in each) for each in found]
    assert grounds == [color(GLOW, 0.5), color(GLOW, 1.0)]
    assert text.count("▀") == 4 and "38;2;0;0;0;48;2;0;0;0m▀" in text and "38;2;255;255;255;48;2;255;255;255m▀" in text
    file = io.StringIO()
    Console(file=file, width=40, color_system=None).print(map)
    assert "▀" not in file.getvalue() and "██" in file.getvalue() and file.getvalue().count("weight 0") == 1


# --- What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"picture": np.zeros((4, 4, 3))}, r"bytes \(H, W, 3\), not float64"),
        ({"picture": np.zeros((4, 4, 4), dtype=np.uint8)}, r"shape \(4, 4, 4\)"),
        ({"picture": np.zeros((0, 4, 3), dtype=np.uint8)}, r"shape \(0, 4, 3\)"),
        ({"grid": (3, 2)}, r"'a' has weights of shape \(2, 3\) for a grid of \(3, 2\)"),
        ({"grid": (0, 2)}, "a grid is"),
        ({"panels": ()}, "without panels"),
    ],
)
def test_wrong_maps_are_told(change: dict[str, object], message: str) -> None:
    whole = {
        "picture": grey(4, 4),
        "boxes": Even((0, 0, 4, 4)),
        "grid": (2, 3),
        "panels": (Panel("a", np.ones((2, 3))),),
    }
    PictureMap(**whole)  # type: ignore[arg-type]
    with pytest.raises(RegardError, match=message):
        PictureMap(**{**whole, **change})  # type: ignore[arg-type]


def test_grey_pictures_are_welcome_and_wrong_weights_are_not() -> None:
    for shape in ((5, 7), (5, 7, 1)):
        map = PictureMap(np.full(shape, 9, dtype=np.uint8), Even((0, 0, 7, 5)), (1, 1), (Panel("a", [[1.0]]),))
        assert map.picture.shape == (5, 7, 3) and (map.picture == 9).all()
    for wrong in (-0.5, np.nan, np.inf):
        with pytest.raises(RegardError, match="a weight of 'a' is"):
            Panel("a", [[0.1, wrong]])


def test_importing_maps_loads_no_pictures() -> None:
    program = "import sys, regard.look.pictures as w; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent).returncode == 0


# --- Channels


def test_bars_are_as_high_as_their_values(tmp_path: Path) -> None:
    values = np.random.default_rng(2).random(101)
    axes = bars_figure(values, "A $title").axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(values)
    assert f"mean {values.mean():.2g}" in [text.get_text() for text in axes.texts]
    order = sorted(range(101), key=lambda channel: -values[channel])
    listed = "greatest: " + ", ".join(map(str, order[:6]))
    assert listed in [text.get_text() for text in axes.texts]
    inks = [bar.get_facecolor() for bar in axes.patches]
    assert {place for place in range(101) if inks[place] == inks[order[0]]} == set(order[:6])
    sorted_axes = bars_figure(values, in_order=True).axes[0]
    assert [bar.get_height() for bar in sorted_axes.patches] == pytest.approx(sorted(values, reverse=True))
    few = bars_figure(np.array([0.2, 0.9, 0.5]), in_order=True).axes[0]
    assert [label.get_text() for label in few.get_xticklabels()] == ["1", "2", "0"]
    assert save_bars(values, tmp_path / "b.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    low, high = bars_figure(np.array([-2.0, 1.0])).axes[0].get_ylim()
    assert low <= -2 and high >= 1


def test_many_channels_and_wrong_ones(tmp_path: Path) -> None:
    figure = bars_figure(np.linspace(0, 1, 512), "512")
    assert figure.get_figwidth() * DPI / 512 > 2  # pixels for each bar
    for wrong in (np.zeros((2, 2)), np.zeros(0), np.array([0.1, np.nan])):
        with pytest.raises(RegardError, match=r"one weight a channel|channel 1 has no finite"):
            bars_figure(wrong)
    with pytest.raises(UsageError, match=r"ends in \.txt"):
        save_bars(np.ones(3), tmp_path / "b.txt")


# --- Mixing


def test_which_output_places_are_shown_by_hand() -> None:
    assert chosen(6, (2, 3)) == [[0, 1, 2], [3, 4, 5]]
    places = chosen(196, (14, 14))
    assert len(places) == 7 and places[0] == [15, 17, 19, 21, 23, 25, 27] and places[1][0] == 43  # 3 * 14 + 1
    assert chosen(5, (4, 4)) == [[0, 1, 2], [3, 4, None]]  # hidden units, in order
    assert [len(line) for line in chosen(500, (4, 4))] == [7] * 7


def test_mixing_weights_are_read_back_from_the_figure() -> None:
    matrix = np.zeros((6, 6))
    matrix[0, 0], matrix[1, 5], matrix[4, 2] = 0.5, -0.5, 0.25
    figure = matrix_figure(matrix, (2, 3), "One layer")
    pixels, images = pixels_of(figure), figure.axes[0].images
    for row, image in enumerate(images[:6]):
        left, top, right, bottom = box_in_pixels(figure, image)
        for place in range(6):
            x = int(left + (place % 3 + 0.2) / 3 * (right - left))  # beside the dot in the middle
            y = int(top + (place // 3 + 0.2) / 2 * (bottom - top))
            assert pixels[y, x] == pytest.approx(color(DIVERGING, (matrix[row, place] / 0.5 + 1) / 2), abs=2)
    lefts = [round(box_in_pixels(figure, image)[0]) for image in images[:6]]
    assert lefts[:3] == lefts[3:] and lefts[0] < lefts[1] < lefts[2]  # where the places lie
    assert {"−0.5", "0.5", "6 output places, as they lie, dot: itself", "One layer"} <= set(words_on(figure))
    assert DIVERGING[5] == (247, 247, 247)
    lights = [luminance(each) for each in DIVERGING]
    assert sorted(lights[:6]) == lights[:6] and sorted(lights[5:], reverse=True) == lights[5:]


def test_several_matrices_have_scales_of_their_own(tmp_path: Path) -> None:
    matrices = [np.full((4, 4), 0.2), np.full((4, 4), -3.0), np.zeros((9, 4))]
    assert save_mixing(matrices, (2, 2), tmp_path / "m.png", "T").read_bytes().startswith(b"\x89PNG")
    figure = matrix_figure(matrices[2], (2, 2))
    assert "9 hidden units" in words_on(figure)
    from regard.look.figures.layers import mixing_figure

    shown = words_on(mixing_figure(dict(zip("ab", matrices, strict=False)), (2, 2)))
    assert {"a", "b", "0.2", "−0.2", "3", "−3"} <= set(shown)
    for wrong, message in ((np.ones((4, 5)), "2 x 2 = 4 places"), (np.full((4, 4), np.nan), "not a number")):
        with pytest.raises(RegardError, match=message):
            matrix_figure(wrong, (2, 2))
    with pytest.raises(RegardError, match="no matrix"):
        save_mixing([], (2, 2), tmp_path / "n.png")
    with pytest.raises(UsageError, match="has no suffix"):
        save_mixing(matrices, (2, 2), tmp_path / "n")


# --- Confusions with samples

COUNTS = np.array([[9, 4, 1], [7, 20, 0], [4, 2, 6]])


def test_the_most_frequent_mistakes_by_hand() -> None:
    samples = {
        (0, 0): [grey(2, 2)],
        (0, 1): [grey(2, 2)],
        (1, 0): [grey(2, 2)],
        (2, 0): [grey(2, 2)],
        (2, 1): [],
        (0, 2): [grey(2, 2)],
    }
    assert mistakes(COUNTS, samples, 9) == [(1, 0), (0, 1), (2, 0), (0, 2)]  # 7, 4, 4, 1; (2, 1) has no picture
    assert mistakes(COUNTS, samples, 2) == [(1, 0), (0, 1)]


def test_samples_stand_beside_their_mistake() -> None:
    samples = {(1, 0): [grey(8, 8, 10 * n) for n in range(6)], (0, 1): [np.full((4, 8), 77, dtype=np.uint8)]}
    figure = confusion_samples_figure(COUNTS, ("cat", "dog", "$ox"), samples, "A title")
    pixels, axes = pixels_of(figure), figure.axes[-1]
    boxes = [box_in_pixels(figure, image) for image in axes.images]
    colours = [pixels[int(top + bottom) // 2, int(left + right) // 2].tolist() for left, top, right, bottom in boxes]
    assert colours == [[10 * n] * 3 for n in range(4)] + [[77] * 3]  # four at most
    assert boxes[4][2] - boxes[4][0] == pytest.approx(2 * (boxes[4][3] - boxes[4][1]), rel=0.03)
    assert [text.get_text() for text in axes.texts] == [
        "most frequent mistakes", "dog → cat", "7 of 27", "cat → dog", "4 of 14"
    ]  # fmt: skip
    for text in axes.texts:
        box = text.get_window_extent()
        assert box.x0 > max(other.get_tightbbox().x1 for other in figure.axes[:-1])
        assert box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1


def test_the_matrix_stays_as_it_is() -> None:
    alone = confusion_figure(COUNTS, ("a", "b", "c"), "A title")
    beside = confusion_samples_figure(COUNTS, ("a", "b", "c"), {(1, 0): [grey(8, 8)]}, "A title")
    for one, other in zip(alone.axes, beside.axes, strict=False):
        assert [text.get_text() for text in one.texts] == [text.get_text() for text in other.texts]
        first, second = one.get_window_extent(), other.get_window_extent()
        assert (first.x0, first.width, first.height) == pytest.approx((second.x0, second.width, second.height), abs=0.1)
        assert alone.bbox.y1 - first.y1 == pytest.approx(
            beside.bbox.y1 - second.y1, abs=0.1
        )  # from the top of the page
    assert alone.texts[0].get_text() == beside.texts[0].get_text() == "A title"
    assert confusion_samples_figure(COUNTS, ("a", "b", "c"), {}, "t").get_figwidth() == pytest.approx(
        confusion_figure(COUNTS, ("a", "b", "c"), "t").get_figwidth()
    )


def test_wrong_samples_are_told(tmp_path: Path) -> None:
    labels = ("a", "b", "c")
    with pytest.raises(RegardError, match=r"samples of \(3, 0\)"):
        confusion_samples_figure(COUNTS, labels, {(3, 0): [grey(2, 2)]})
    with pytest.raises(RegardError, match=r"float64 of shape \(2, 2\)"):
        confusion_samples_figure(COUNTS, labels, {(1, 0): [np.zeros((2, 2))]})
    with pytest.raises(UsageError, match=r"ends in \.jpg; use \.png, \.svg"):
        save_confusion_samples(COUNTS, labels, {}, tmp_path / "c.jpg")
    assert save_confusion_samples(COUNTS, labels, {(1, 0): [grey(2, 2)]}, tmp_path / "c.svg").exists()


# --- Even maps, and colours that are asked about


def test_an_even_map_is_said_to_be_even_and_lays_no_veil_over_the_picture() -> None:
    """A tenth of the weight, moved, would make it even: by hand, 0.1 of 1 on four places."""
    boxes = Even((0, 0, 40, 40))
    nearly, pointing = np.array([[0.35, 0.15], [0.25, 0.25]]), np.array([[0.36, 0.14], [0.25, 0.25]])
    even, sharp = Panel("a", nearly), Panel("b", pointing)
    assert even.even and not sharp.even and Panel("c", np.full((2, 2), 0.7)).even
    assert not Panel("d", np.zeros((2, 2))).even and not Panel("e", np.ones((1, 1))).even
    map = PictureMap(grey(40, 40), boxes, (2, 2), (even, sharp))
    assert (even.value, sharp.value) == ("even", "0.36")
    assert map.note(even) == "about 0.25 everywhere" and not map.note(sharp)
    told = [line for line in map.terminal(60).splitlines() if line.startswith(("a  ", "b  "))]
    assert told[-2].split() == ["a", "even", "about", "0.25", "everywhere"] and "row 1 of 2" in told[-1]
    assert "even" in map.html() and map.html().count('fill-opacity="0"') == 4  # of one panel of two
    every = PictureMap(grey(40, 40), boxes, (2, 2), (even, even))
    assert every.even and "weight 0" not in every.html()
    shown = [image.get_array() for image in every.figure().axes[0].images]
    assert all((image == image[..., :1]).all() for image in shown)  # grey as the picture: no ink anywhere
    inked = [image.get_array() for image in PictureMap(grey(40, 40), boxes, (2, 2), (sharp,)).figure().axes[0].images]
    assert not all((image == image[..., :1]).all() for image in inked)


def test_a_picture_keeps_its_colours_where_they_are_asked_about() -> None:
    """Below the weights of an answer red stays red and blue blue, as bright as in grey; elsewhere all is grey."""
    picture = np.zeros((20, 40, 3), dtype=np.uint8)
    picture[:, :20, 0], picture[:, 20:, 2] = 200, 200
    boxes, weights = Even((0, 0, 40, 20)), np.array([[0.0, 0.0]])
    plain = laid_over(picture, boxes, weights, 1.0, marked=False).astype(int)
    colored = laid_over(picture, boxes, weights, 1.0, marked=False, colored=True).astype(int)
    assert (plain == plain[..., :1]).all()
    left, right = colored[5, 5], colored[5, 35]
    assert left[0] > left[1] + 50 and left[0] > left[2] + 50 and right[2] > right[0] + 50
    luma = np.array([0.299, 0.587, 0.114])
    assert np.abs(colored @ luma - plain @ luma).max() <= 2
