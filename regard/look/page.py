"""Attention maps as one HTML page that works alone: the picture, the words, and every number under the pointer.

A map of 60 x 60 tokens shows all its words; one of 512 x 512 begins small, and grows under a slider. Several heads stand
small above one large map, which shows the head that was clicked.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.labels import visible, visible_title
from regard.look.page_style import SCRIPT, STYLE

if TYPE_CHECKING:
    from regard.look.map import AttentionMap

WIDE, HIGH = 1150, 900  # pixels that the large map takes at first, at most
SMALL_CELL, LARGE_CELL = 9, 28  # pixels; below the first, words cannot be read and are left out
THUMBNAIL = 132  # pixels, the longer side of a head
MOST_NUMBERS = 2_000_000  # on one page, two bytes each; with more, only the colours tell
LEVELS, HIDDEN = 65534, 65535  # of a number on the page

Head = tuple[str, np.ndarray]  # name and weights (T, S)


def page_of(map: AttentionMap) -> str:
    """The page of a map, or of its heads."""
    if map.weights.ndim == 2:
        heads = [[("", map.weights)]]
    else:
        heads = [[(f"head {number}", weights) for number, weights in enumerate(map.weights)]]
    return page(heads, map.columns, map.rows, map.title, map.notes)


def page(
    lines: Sequence[Sequence[Head]], columns: Sequence[str], rows: Sequence[str], title: str, notes: Sequence[str]
) -> str:
    """Lines of heads, a line for each layer where there are several."""
    heads = [head for line in lines for head in line]
    top = max(scale_top(weights) for _, weights in heads)
    pictures = [_picture(weights, top) for _, weights in heads]
    numbers = sum(weights.size for _, weights in heads) <= MOST_NUMBERS
    notes = notes if numbers else [*notes, "too many numbers for a page: the colours are here, the numbers in .json"]
    told = "".join(f"<p>{escape(visible_title(note))}</p>" for note in notes)
    masked = any(bool(np.isnan(weights).any()) for _, weights in heads)
    small = _thumbnails(lines, pictures, len(rows), len(columns)) if len(heads) > 1 else ""
    name = escape(visible_title(title or "attention map"))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{name}</title><style>{STYLE}</style></head><body><h1>{name}</h1>{told}{_legend(top, masked, rows, columns)}"
        f'<div class="both">{small}<div><h2 id="name">{escape(heads[0][0])}</h2>{_map(pictures[0], rows, columns)}</div></div>'
        f'<div id="told"></div>{_data(heads if numbers else [])}<script>{SCRIPT}</script></body></html>\n'
    )


def _map(picture: str, rows: Sequence[str], columns: Sequence[str]) -> str:
    cell = _first_cell(len(rows), len(columns))
    small = " small" if cell < SMALL_CELL else ""
    sizes = f"--cell: {cell}px; --across: {len(columns)}; --down: {len(rows)}"
    across, down = (
        "".join(f'<span dir="auto">{escape(visible(each))}</span>' for each in side) for side in (columns, rows)
    )
    cells = f'<div class="cells" id="cells"><img src="{picture}" alt=""/><i id="across"></i><i id="down"></i></div>'
    return (
        f'<div class="scroll"><div class="map{small}" id="map" style="{sizes}"><div class="corner"></div>'
        f'<div class="columns">{across}</div><div class="rows">{down}</div>{cells}</div></div>'
    )


def _first_cell(rows: int, columns: int) -> int:
    room = min(WIDE // columns, max(HIGH // rows, SMALL_CELL if rows * SMALL_CELL < 2 * HIGH else 0))
    return max(2, min(LARGE_CELL, room))


def _legend(top: float, masked: bool, rows: Sequence[str], columns: Sequence[str]) -> str:
    ramp = ",".join(hexadecimal(each) for each in INK)
    scale = f'attention weight 0 <span class="ramp" style="background:linear-gradient(to right,{ramp})"></span> {top:g}'
    hidden = '<span><span class="swatch"></span> masked</span>' if masked else ""
    cell = _first_cell(len(rows), len(columns))
    size = f'<label>size <input type="range" id="size" min="2" max="40" value="{cell}"/></label>'
    return f'<div class="bar"><span>{scale}</span>{hidden}<span>each row looks at the columns</span>{size}</div>'


def _thumbnails(lines: Sequence[Sequence[Head]], pictures: Sequence[str], rows: int, columns: int) -> str:
    """All heads, small: a line for each layer, named at its left if there are several."""
    share = THUMBNAIL / max(rows, columns) * (1.0 if len(lines) == 1 else 0.75)
    width, height = max(12, round(columns * share)), max(12, round(rows * share))
    shrunk = ' class="shrunk"' if share < 1 else ""
    several, across, found, number = len(lines) > 1, max(len(line) for line in lines), [], 0
    found += ["<b></b>"] * several + [f"<b>head {head}</b>" for head in range(across)]
    for layer, line in enumerate(lines):
        found += [f'<b class="layer">layer {layer}</b>'] * several
        for name, _ in line:
            image = f'<img src="{pictures[number]}" alt="" width="{width}" height="{height}"{shrunk}/>'
            pressed = "true" if number == 0 else "false"
            found.append(f'<button type="button" aria-pressed="{pressed}" aria-label="{escape(name)}">{image}</button>')
            number += 1
        found += ["<span></span>"] * (across - len(line))
    style = f"grid-template-columns: repeat({across + several}, max-content)"
    return f'<div class="scroll"><div class="heads" style="{style}">{"".join(found)}</div></div>'


def _picture(weights: np.ndarray, top: float) -> str:
    """One pixel a cell, in 255 steps of colour; masked cells are clear, and the hatched ground shows."""
    steps = np.clip(np.nan_to_num(weights) / top, 0.0, 1.0) * 254
    image = Image.fromarray(np.where(np.isnan(weights), 255, np.round(steps)).astype(np.uint8))
    image.putpalette([part for step in range(255) for part in color(INK, step / 254)] + [255] * 3)
    file = io.BytesIO()
    image.save(file, format="PNG", transparency=255, optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _data(heads: Sequence[Head]) -> str:
    """The numbers in two bytes each, from the lowest to the highest, and one value for masked."""
    known = [weights[np.isfinite(weights)] for _, weights in heads]
    low = min((float(each.min()) for each in known if each.size), default=0.0)
    high = max((float(each.max()) for each in known if each.size), default=1.0)
    span = (high - low) or 1.0
    panels = []
    for _, weights in heads:
        share = (np.where(np.isnan(weights), low, weights) - low) / span
        coded = np.where(np.isnan(weights), HIDDEN, np.round(share * LEVELS)).astype("<u2")
        panels.append(base64.b64encode(coded.tobytes()).decode("ascii"))
    value = json.dumps({"low": low, "high": low + span, "panels": panels})
    return f'<script type="application/json" id="numbers">{value}</script>'
