"""A map over a picture as HTML: squares of colour over the picture, which tell their weight under the pointer."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from PIL import Image

from regard.look.colors import hexadecimal
from regard.look.overlay import FRAME, MIDDLE, Box, cover, covered, paled, resized, strongest
from regard.look.pages import template
from regard.look.pictures import Panel, PictureMap

MOST_PIXELS = 480  # of the longer side: twice what is shown
WIDEST, TALLEST = 210, 240  # pixels of a panel on the page
FEW_PIXELS = 128 * 128  # of a picture that is kept exactly, as PNG


@dataclass(frozen=True)
class Square:
    """A place of the grid, as far as it lies on the picture."""

    place: Markup
    ink: str
    opacity: str
    hint: str


@dataclass(frozen=True)
class PicturePanelOfPage:
    """A panel with its squares; `peak` is where the greatest weight is framed, or empty."""

    name: str
    value: str
    note: str
    squares: list[Square]
    peak: Markup


@dataclass(frozen=True)
class Strip:
    """A part of the picture that the model did not see, in per cent of its sides."""

    left: str
    top: str
    width: str
    height: str


def pictures_fragment(picture_map: PictureMap) -> str:
    """Return title, caption, panels and legend in one element, for a notebook or a page."""
    photo = _small(picture_map.picture)
    height, width = picture_map.picture.shape[:2]
    scale = min(WIDEST / width, TALLEST / height)
    panels = [_panel(picture_map, panel) for panel in picture_map.panels]
    return template.render(
        "pictures.html",
        title=picture_map.title,
        caption=picture_map.caption,
        photo=_uri(photo),
        pale=_uri(paled(photo, picture_map.colored)),  # written once, shown in every panel
        enlarged=scale > 1,  # a small picture keeps its pixels, as in a PNG
        width=f"{width * scale:.0f}",
        height=f"{height * scale:.0f}",
        view=(width, height),
        size=f"{width} × {height}",
        panels=panels,
        strips=_unseen(picture_map),
        even=picture_map.even,
        peaked=any(strongest(panel.weights) for panel in picture_map.panels if not panel.even),
        scale=",".join(hexadecimal(covered(MIDDLE, step / 8)) for step in range(9)),
        top=f"{picture_map.top:g}",
        frame=hexadecimal(FRAME),
        ground=hexadecimal(covered(MIDDLE, 0.3)),
        grid=f"{picture_map.grid[0]} × {picture_map.grid[1]}",
    )


def pictures_page(picture_map: PictureMap) -> str:
    """Return the fragment as a whole page, which is also well-formed XML."""
    title = picture_map.title or picture_map.caption or "A map over a picture"
    return template.render("sheet.html", title=title, fragment=Markup(pictures_fragment(picture_map)), widest="76em")


def _panel(picture_map: PictureMap, panel: Panel) -> PicturePanelOfPage:
    """A square for each place that lies on the picture."""
    height, width = picture_map.picture.shape[:2]
    greatest = None if panel.even else strongest(panel.weights)
    squares, peak = [], Markup("")
    for (row, column), weight in np.ndenumerate(panel.weights):
        left, top, right, bottom = _clipped(picture_map.boxes.cell(row, column, picture_map.grid), width, height)
        if right <= left or bottom <= top:
            continue
        ink, opacity = cover(0.0 if panel.even else float(weight) / picture_map.top)
        place = Markup(f'x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}"')
        hint = f"{panel.name}: {weight:.3g} (row {row + 1}, column {column + 1})"
        squares.append(Square(place, hexadecimal(ink), f"{opacity:.3g}", hint))
        if greatest == (row, column):
            peak = place
    return PicturePanelOfPage(panel.name, panel.value, picture_map.note(panel), squares, peak)


def _clipped(box: Box, width: int, height: int) -> Box:
    left, top, right, bottom = box
    return max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))


def _unseen(picture_map: PictureMap) -> list[Strip]:
    """The strips at the sides where the model saw nothing."""
    if not picture_map.cut:
        return []
    height, width = picture_map.picture.shape[:2]
    left, top, right, bottom = _clipped(picture_map.seen, width, height)
    strips = [
        (0.0, 0.0, left, height), (right, 0.0, width, height), (left, 0.0, right, top), (left, bottom, right, height)
    ]  # fmt: skip
    return [
        Strip(
            f"{100 * x / width:.4g}", f"{100 * y / height:.4g}",
            f"{100 * (u - x) / width:.4g}", f"{100 * (v - y) / height:.4g}",
        )
        for x, y, u, v in strips
        if u > x and v > y
    ]  # fmt: skip


def _small(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    scale = MOST_PIXELS / max(height, width)
    return picture if scale >= 1 else resized(picture, max(1, round(width * scale)), max(1, round(height * scale)))


def _uri(pixels: np.ndarray) -> str:
    """The pixels inside the page: as PNG if they are few, else as JPEG."""
    file = io.BytesIO()
    if pixels.shape[0] * pixels.shape[1] <= FEW_PIXELS:
        Image.fromarray(pixels).save(file, format="PNG")
        return template.data_uri(file.getvalue(), "image/png")
    Image.fromarray(pixels).save(file, format="JPEG", quality=90)
    return template.data_uri(file.getvalue(), "image/jpeg")
