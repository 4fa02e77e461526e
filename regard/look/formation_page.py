"""How an attention formed, as one HTML page: a slider over the steps, a button that plays them, the curves beside.

Nothing is loaded from elsewhere. Without scripts the page shows the last map, the curves and every number; the script
only repaints the cells. The arrow keys move the slider, as in any page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from regard.files import finite
from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.formation_style import SCRIPT, STYLE
from regard.look.formation_svg import across, draw_curves, path, sharp_ends
from regard.look.labels import visible, visible_title

if TYPE_CHECKING:
    from regard.look.formation import Formation

SHADES = 64  # colours of the scale
FLAT = 2.5  # times as many columns as rows: the curves stand below the map, not beside
UPRIGHT = ' class="upright"'
MOST_NUMBERS = 600_000  # weights on a page: beyond, only what is shown is on it, not every head


def page(formation: Formation) -> str:
    """The whole page, which is also well-formed XML."""
    frames = formation.frames(len(formation.steps))
    views = _views(formation, frames)
    top = scale_top(formation.maps[frames] if len(views) == 1 else formation.heads[frames])
    flat = len(formation.rows) * FLAT < len(formation.columns)
    title = _text(f"How it formed: {formation.title}")
    said = "".join(f"<p>{_text(each)}</p>" for each in (formation.sentence, *formation.notes))
    state = f'<p id="state" aria-live="polite">{_text(formation.caption(frames[-1]))}</p>'
    map = f'<div><div class="scroll">{_map(formation, frames[-1], top)}</div>{_legend(formation, top)}</div>'
    curves = f'<div class="curves">{draw_curves(formation)}</div>'
    data = _json(_data(formation, frames, views, top))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{_style(formation, flat)}</style></head><body><main><h1>{title}</h1>{said}"
        f"{_bar(formation, len(frames), len(views))}{state}"
        f'<div class="{"below" if flat else "both"}">{map}{curves}</div>{_numbers(formation)}</main>'
        f'<script type="application/json" id="data">{data}</script><script>{SCRIPT}</script></body></html>\n'
    )


def _style(formation: Formation, flat: bool) -> str:
    """The style with cells as large as there is room for."""
    cell = min(1.9, max(0.55, min(34 / len(formation.rows), (66 if flat else 34) / len(formation.columns))))
    return STYLE.replace("CELL", f"{cell:.2f}rem").replace("SIZE", f"{min(0.95, max(0.5, cell * 0.62)):.2f}rem")


def _data(formation: Formation, frames: Sequence[int], views: Sequence[object], top: float) -> dict[str, object]:
    """What the script reads."""
    rows, columns = ([visible(label) for label in labels] for labels in (formation.rows, formation.columns))
    captions = [formation.caption(number) for number in frames]
    places = [round(across(formation, number), 1) for number in frames]
    ramp = [hexadecimal(color(INK, number / (SHADES - 1))) for number in range(SHADES)]
    found = {"rows": rows, "columns": columns, "captions": captions, "places": places}
    return {**found, "top": top, "ramp": ramp, "views": views}


def _views(formation: Formation, frames: Sequence[int]) -> list[dict[str, object]]:
    """What can be looked at: the map shown, and every head if the page can hold them."""
    found = [("", formation.maps, formation.sharpness, formation.alike)]
    if len(formation.names) > 1 and formation.heads[frames].size <= MOST_NUMBERS:
        each = zip(formation.names, range(len(formation.names)), strict=True)
        numbers = formation.heads_sharpness, formation.heads_alike
        found += [(name, formation.heads[:, k], numbers[0][:, k], numbers[1][:, k]) for name, k in each]
    return [
        {
            "name": name, "maps": [_thousandths(maps[number]) for number in frames],
            "sharpness": sharp[frames].round(4).tolist(), "alike": same[frames].round(4).tolist(),
            "alike_path": path(formation, same), "sharp_path": path(formation, sharp, sharp_ends(formation)),
        }
        for name, maps, sharp, same in found
    ]  # fmt: skip


def _thousandths(weights: np.ndarray) -> list[int | None]:
    return [None if np.isnan(weight) else round(weight * 1000) for weight in weights.ravel()]


def _bar(formation: Formation, steps: int, views: int) -> str:
    """Play, slider and which head; hidden until the script runs."""
    names = (f"shown: {formation.title}", *formation.names)[:views]
    options = "".join(f'<option value="{number}">{_text(name)}</option>' for number, name in enumerate(names))
    heads = f'<select id="view" aria-label="which head">{options}</select>' if views > 1 else ""
    slider = (
        f'<input type="range" id="step" min="0" max="{steps - 1}" value="{steps - 1}" aria-label="step of training"/>'
    )
    return f'<div class="bar" hidden="hidden"><button type="button" id="play">Play</button>{slider}{heads}</div>'


def _map(formation: Formation, number: int, top: float) -> str:
    """One step; the script repaints it."""
    rows, columns = ([visible(label) for label in labels] for labels in (formation.rows, formation.columns))
    head = "".join(
        f'<th scope="col"><span{UPRIGHT if len(label) <= 2 else ""}>{_text(label)}</span></th>' for label in columns
    )
    body = "".join(
        f'<tr><th scope="row">{_text(label)}</th>{"".join(_cell(weight, top) for weight in line)}</tr>'
        for label, line in zip(rows, formation.maps[number], strict=True)
    )
    return f'<table class="map"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(weight: float, top: float) -> str:
    if np.isnan(weight):
        return '<td class="masked"></td>'
    return f'<td style="background:{hexadecimal(color(INK, weight / top))}" title="{weight:.3f}"></td>'


def _legend(formation: Formation, top: float) -> str:
    ramp = ",".join(hexadecimal(each) for each in INK)
    scale = f'0 <span class="ramp" style="background:linear-gradient(to right,{ramp})"></span> {top:g}'
    hatched = ' &#8195; <span class="ramp masked"></span> masked' if np.isnan(formation.maps).any() else ""
    return f"<p>attention weight {scale}{hatched}</p>"


def _numbers(formation: Formation) -> str:
    columns, *lines = formation.table()
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in line)}</tr>" for line in lines)
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f"<details><summary>Every step in numbers</summary>{table}</details>"


def _json(value: object) -> str:
    """JSON inside markup: no character of it can end or begin an element."""
    text = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _text(text: str) -> str:
    return escape(visible_title(text), quote=True)
