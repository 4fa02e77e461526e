"""A map over a picture as HTML: squares of colour over the picture, which tell their weight under the pointer."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from html import escape

import numpy as np
from PIL import Image

from regard.look.colors import hexadecimal
from regard.look.labels import visible_title
from regard.look.overlay import FRAME, MIDDLE, Box, cover, covered, paled, resized, strongest
from regard.look.pictures import Panel, PictureMap

MOST_PIXELS = 480  # of the longer side: twice what is shown
WIDEST, TALLEST = 210, 240  # pixels of a panel on the page
QUIET = "#5b646c"
SHEET = "background:#fff;color:#000;padding:.8em 1em;max-width:72em"  # the same in a dark notebook
ROW = "display:flex;flex-wrap:wrap;gap:1em 1em;margin:.6em 0"
FILL = "position:absolute;left:0;top:0;width:100%;height:100%"
UNSEEN = "repeating-linear-gradient(135deg,#fff,#fff 5px,#b4b4b4 5px,#b4b4b4 6px)"
PAGE = "margin:0;padding:2em 1em;background:#fff;font:16px/1.5 system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif"


def pictures_fragment(map: PictureMap) -> str:
    """Title, caption, panels and legend in one element, for a notebook or a page. The picture is in it twice."""
    title = f"<div><b>{escape(visible_title(map.title))}</b></div>" if map.title else ""
    caption = f"<div>{escape(visible_title(map.caption))}</div>" if map.caption else ""
    photo = _small(map.picture)
    pale = f"--pale:url({_uri(paled(photo, map.colored))})"  # written once, shown in every panel
    height, width = map.picture.shape[:2]
    scale = min(WIDEST / width, TALLEST / height)
    box = f"position:relative;width:{width * scale:.0f}px;height:{height * scale:.0f}px"
    fill = FILL + (";image-rendering:pixelated" if scale > 1 else "")  # a small picture keeps its pixels, as in a PNG
    first = f'<img src="{_uri(photo)}" alt="the picture" style="{fill}"/>'
    tiles = _tile("picture", f"{width} × {height}", "", box, first)
    for panel in map.panels:
        squares = f'<div style="{fill};background:var(--pale) 0 0/100% 100%"></div>{_unseen(map)}{_squares(map, panel)}'
        tiles += _tile(panel.name, panel.value, map.note(panel), box, squares)
    body = f'<div style="{ROW}">{tiles}</div>'
    return f'<div style="{SHEET};{pale}">{title}{caption}{body}{_legend(map)}</div>'


def pictures_page(map: PictureMap) -> str:
    """The fragment as a whole page, which is also well-formed XML."""
    title = escape(visible_title(map.title or map.caption or "A map over a picture"))
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title></head>"
        f'<body style="{PAGE}"><div style="max-width:76em;margin:0 auto">{pictures_fragment(map)}</div></body></html>\n'
    )


def _tile(title: str, value: str, note: str, box: str, inside: str) -> str:
    name = f'<span style="overflow:hidden;text-overflow:ellipsis">{escape(title)}</span>'
    number = f'<span style="color:{QUIET};font-size:80%">{escape(value)}</span>'
    line = "display:flex;justify-content:space-between;align-items:baseline;gap:.5em;white-space:nowrap"
    below = f'<div style="color:{QUIET};font-size:80%">{escape(visible_title(note))}</div>' if note else ""
    width = box.split(";")[1]
    return (
        f'<div style="{width}"><div style="{line}">{name}{number}</div><div style="{box}">{inside}</div>{below}</div>'
    )


def _squares(map: PictureMap, panel: Panel) -> str:
    """A rectangle for each place, as far as it lies on the picture."""
    height, width = map.picture.shape[:2]
    peak = None if panel.even else strongest(panel.weights)
    parts, frame = [], ""
    for (row, column), weight in np.ndenumerate(panel.weights):
        left, top, right, bottom = _clipped(map.boxes.cell(row, column, map.grid), width, height)
        if right <= left or bottom <= top:
            continue
        ink, opacity = cover(0.0 if panel.even else float(weight) / map.top)
        place = f'x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}"'
        hint = f"{panel.name}: {weight:.3g} (row {row + 1}, column {column + 1})"
        parts.append(
            f'<rect {place} fill="{hexadecimal(ink)}" fill-opacity="{opacity:.3g}"><title>{escape(hint)}</title></rect>'
        )
        if peak == (row, column):
            frame = f'<rect {place} fill="none" stroke="{hexadecimal(FRAME)}" vector-effect="non-scaling-stroke"/>'
    shape = f'viewBox="0 0 {width} {height}" preserveAspectRatio="none" shape-rendering="crispEdges"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {shape} style="{FILL}">{"".join(parts)}{frame}</svg>'


def _clipped(box: Box, width: int, height: int) -> Box:
    left, top, right, bottom = box
    return max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))


def _unseen(map: PictureMap) -> str:
    """Hatched strips where the model saw nothing."""
    if not map.cut:
        return ""
    height, width = map.picture.shape[:2]
    left, top, right, bottom = _clipped(map.seen, width, height)
    strips = [
        (0.0, 0.0, left, height), (right, 0.0, width, height), (left, 0.0, right, top), (left, bottom, right, height)
    ]  # fmt: skip
    return "".join(
        f'<div style="position:absolute;left:{100 * x / width:.4g}%;top:{100 * y / height:.4g}%;'
        f'width:{100 * (u - x) / width:.4g}%;height:{100 * (v - y) / height:.4g}%;background:{UNSEEN};opacity:.85"></div>'
        for x, y, u, v in strips
        if u > x and v > y
    )


def _legend(map: PictureMap) -> str:
    ramp = ",".join(hexadecimal(covered(MIDDLE, step / 8)) for step in range(9))
    box = "display:inline-block;height:.8em;vertical-align:middle;background:"
    scale = f'weight 0 <span style="{box}linear-gradient(to right,{ramp});width:8em"></span> {map.top:g}'
    scale = "" if map.even else scale
    return f'<div style="font-size:85%;color:{QUIET}">{scale}{"".join(_remarks(map, box))}</div>'


def _remarks(map: PictureMap, box: str) -> Iterator[str]:
    if any(strongest(panel.weights) for panel in map.panels if not panel.even):
        edge = f"border:1px solid {hexadecimal(FRAME)};width:.7em;height:.7em"
        yield f' &#8195; <span style="{box}{hexadecimal(covered(MIDDLE, 0.3))};{edge}"></span> greatest weight'
    if map.cut:
        yield f' &#8195; <span style="{box}{UNSEEN};width:.9em"></span> not seen by the model'
    yield f" &#8195; {map.grid[0]} × {map.grid[1]} places"


def _small(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    scale = MOST_PIXELS / max(height, width)
    return picture if scale >= 1 else resized(picture, max(1, round(width * scale)), max(1, round(height * scale)))


def _uri(pixels: np.ndarray) -> str:
    """The pixels inside the page: as PNG if they are few, else as JPEG."""
    file, few = io.BytesIO(), pixels.shape[0] * pixels.shape[1] <= 128 * 128
    Image.fromarray(pixels).save(file, format="PNG" if few else "JPEG", **({} if few else {"quality": 90}))
    return f"data:image/{'png' if few else 'jpeg'};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
