"""Sheets and films of pictures that are written pixel by pixel, drawn by Pillow: each pixel is a square of whole pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from regard.look.pixels import PictureSheet, WritingFilm
from regard.tokens.pixels import greys_of

PAPER, GAP = (255, 255, 255), (150, 158, 170)
UNWRITTEN = (214, 222, 232)  # where nothing stands yet
NOW, LOOK = (214, 40, 40), (245, 140, 20)  # the pixel that is being written, and what it looked at
LARGE = 240  # pixels of a picture of a film, about
SHEET = 84  # of one of a sheet, about
MARGIN, LETTERS = 10, 13
COLOURS = 192  # of a frame of a film
WHOLE, SHORTEST, LAST = 9000, 40, 2500  # milliseconds of a film, of a frame at least, and of the last


def draw_sheet(sheet: PictureSheet, alone: bool) -> bytes:
    """The PNG: the only picture in its own size, or all beside and below each other."""
    if alone:
        return _png(Image.fromarray(greys_of(sheet.pictures[0].levels.clip(min=0), sheet.count)))
    rows, heads = sheet.rows(), sheet.columns()
    height, width = rows[0][0].shape
    scale = max(1, SHEET // max(height, width))
    gap, across = max(2, scale), max(map(len, rows))
    top = 2 * LETTERS if heads else 0
    out = Image.new("RGB", (across * (scale * width + gap) + gap, top + len(rows) * (scale * height + gap) + gap), GAP)
    draw = ImageDraw.Draw(out)
    if heads:
        draw.rectangle((0, 0, out.width, top - 1), fill=PAPER)
    for column, head in enumerate(heads):
        middle = gap + column * (scale * width + gap) + scale * width / 2
        draw.text((middle, top / 2), head, fill=(40, 44, 52), font=_font(), anchor="mm")
    for number, row in enumerate(rows):
        for column, levels in enumerate(row):
            place = gap + column * (scale * width + gap), top + gap + number * (scale * height + gap)
            out.paste(_enlarged(_coloured(levels, sheet.count), scale), place)
    return _png(out)


def film(shown: WritingFilm) -> bytes:
    """The GIF; it begins anew when it has ended."""
    first, *rest = (frame.quantize(COLOURS, dither=Image.Dither.NONE) for frame in _frames(shown))
    each = max(SHORTEST, WHOLE // (1 + len(rest)))
    file = io.BytesIO()
    durations = [*[each] * len(rest), LAST]
    first.save(file, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, disposal=1)
    return file.getvalue()


def draw_strip(shown: WritingFilm) -> bytes:
    """The PNG of some frames, two beside each other."""
    frames = list(_frames(shown))
    chosen = [frames[number] for number in shown.strip()]
    across = min(2, len(chosen))
    wide, high = chosen[0].size
    out = Image.new("RGB", (across * wide, -(-len(chosen) // across) * high), PAPER)
    for number, frame in enumerate(chosen):
        out.paste(frame, (number % across * wide, number // across * high))
    return _png(out)


def _frames(shown: WritingFilm) -> Iterator[Image.Image]:
    """For each pixel that is shown what was written before it, and the same with where it looked; at last the whole."""
    height, width = shown.picture.levels.shape
    scale = max(2, LARGE // max(height, width))
    wide, high = scale * width, scale * height
    for pixel, look in zip(shown.frames, shown.looks, strict=True):
        left = _coloured(shown.so_far(pixel), shown.count)
        right = _looked(left, look.reshape(height, width), pixel)
        places = {(pixel // width, pixel % width): NOW}
        yield _framed(shown, _marked(left, places), right, scale, wide, high, f"pixel {pixel + 1} of {height * width}")
    whole = _coloured(shown.picture.levels, shown.count)
    told = f"{int((shown.picture.levels >= 0).sum())} pixels"
    yield _framed(shown, whole, whole, scale, wide, high, told)


def _framed(
    shown: WritingFilm, left: np.ndarray, right: np.ndarray, scale: int, wide: int, high: int, told: str
) -> Image.Image:
    out = Image.new("RGB", (2 * wide + 3 * MARGIN, high + 3 * MARGIN + 3 * LETTERS), PAPER)
    for number, picture in enumerate((left, right)):
        out.paste(_enlarged(picture, scale), (MARGIN + number * (wide + MARGIN), MARGIN + LETTERS + 4))
    draw = ImageDraw.Draw(out)
    draw.text((MARGIN, MARGIN), told, fill=(40, 44, 52), font=_font())
    draw.text((2 * MARGIN + wide, MARGIN), "where it looked", fill=(40, 44, 52), font=_font())
    for line, words in enumerate((shown.title, shown.how)):
        place = (MARGIN, MARGIN + LETTERS + 10 + high + line * (LETTERS + 2))
        draw.text(place, words, fill=(90, 96, 108), font=_font(11))
    return out


def _coloured(levels: np.ndarray, count: int) -> np.ndarray:
    """Levels (rows, columns) as colours (rows, columns, 3)."""
    grey = greys_of(levels.clip(min=0), count)[..., None]
    return np.where((levels < 0)[..., None], UNWRITTEN, grey).astype(np.uint8)


def _looked(picture: np.ndarray, look: np.ndarray, pixel: int) -> np.ndarray:
    """The picture, pale, with what was looked at in colour: the more, the stronger."""
    top = look.max()
    share = np.sqrt(look / top)[..., None] if top > 0 else np.zeros((*look.shape, 1))
    pale = 0.45 * picture + 0.55 * 235
    mixed = (1 - share) * pale + share * np.array(LOOK)
    return _marked(mixed.astype(np.uint8), {(pixel // look.shape[1], pixel % look.shape[1]): NOW})


def _marked(picture: np.ndarray, places: dict[tuple[int, int], tuple[int, int, int]]) -> np.ndarray:
    marked = picture.copy()
    for place, colour in places.items():
        marked[place] = colour
    return marked


def _enlarged(picture: np.ndarray, scale: int) -> Image.Image:
    return Image.fromarray(picture.repeat(scale, axis=0).repeat(scale, axis=1))


@cache
def _font(size: int = LETTERS) -> ImageFont.FreeTypeFont:
    from matplotlib import get_data_path

    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
