"""How an attention formed, as one HTML page: a slider over the steps, a button that plays them, the curves beside.

Nothing is loaded from elsewhere. Without scripts the page shows the last map, the curves and every number; the script
only repaints the cells. The arrow keys move the slider, as in any page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

import numpy as np

from regard.files import finite
from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.formation import Formation
from regard.look.labels import visible, visible_title

SHADES = 64  # colours of the scale
FLAT = 2.5  # times as many columns as rows: the curves stand below the map, not beside
UPRIGHT = ' class="upright"'
MOST_NUMBERS = 600_000  # weights on a page: beyond, only what is shown is on it, not every head


def formation_page(formation: Formation) -> str:
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


STYLE = """
:root { color-scheme: light dark; --text: #1d2329; --quiet: #5b646c; --line: #dde2e7; --ground: #fff; --head: #9ecae1;
  --shown: #08519c; --loss: #c44e00; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --quiet: #a0aab4; --line: #353d45; --ground: #14181c;
  --head: #3c5f7d; --shown: #7cc0f2; --loss: #f0935a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 74rem; margin: 0 auto; padding: 2rem 1.5rem 3rem; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .3rem; }
p { margin: .2rem 0; color: var(--quiet); }
.bar { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: center; margin: 1.2rem 0 .4rem; }
.bar[hidden] { display: none; }
.bar input { flex: 1 1 16rem; accent-color: var(--shown); }
button, select { max-width: min(30rem, 100%); font: inherit; padding: .25rem .8rem; color: inherit; background: var(--ground);
  border: 1px solid var(--quiet); border-radius: 6px; }
button { min-width: 5.5rem; cursor: pointer; }
#state { color: var(--text); font-variant-numeric: tabular-nums; min-height: 1.5em; margin-bottom: 1rem; }
.both { display: flex; flex-wrap: wrap; gap: 1.5rem 2.5rem; align-items: flex-start; }
.scroll { overflow-x: auto; max-width: 100%; }
table.map { border-collapse: collapse; font-size: SIZE; }
.map td { width: CELL; min-width: CELL; height: CELL; padding: 0; border: 1px solid var(--ground); }
.masked { background: repeating-linear-gradient(45deg, #ececec, #ececec 3px, #d4d4d4 3px, #d4d4d4 5px) !important; }
.map th { font-weight: normal; padding: 0 .5em 0 0; text-align: right; white-space: nowrap; line-height: 1; }
.map thead th { padding: 0 0 .4em; vertical-align: bottom; text-align: center; }
.map thead span.upright { writing-mode: initial; transform: none; }
.map thead span { writing-mode: vertical-rl; transform: rotate(180deg); }
.ramp { display: inline-block; width: 8em; height: .8em; vertical-align: -.05em; }
.ramp.masked { width: 1em; }
.below .curves { display: flex; flex-wrap: wrap; gap: 0 2rem; max-width: none; margin-top: 1.2rem; }
.below svg { flex: 1 1 28%; width: 28%; min-width: 14rem; }
.curves { flex: 1 1 18rem; min-width: 15rem; max-width: 27rem; }
svg { display: block; width: 100%; height: auto; margin-bottom: .6rem; overflow: visible; }
svg text { font-size: 10px; fill: var(--quiet); }
svg .name { font-size: 11px; fill: var(--text); }
svg path { fill: none; vector-effect: non-scaling-stroke; }
.head { stroke: var(--head); stroke-width: .8; } .shown { stroke: var(--shown); stroke-width: 2.2; }
.loss { stroke: var(--loss); stroke-width: 2.2; } .axis { stroke: var(--line); stroke-width: 1; }
.now { stroke: var(--text); stroke-width: 1; stroke-dasharray: 3 3; }
.numbers { border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: .5rem; }
.numbers th, .numbers td { padding: .15rem 0 .15rem 1.4rem; text-align: right; border-bottom: 1px solid var(--line); }
details { margin-top: 1.5rem; } summary { cursor: pointer; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById('data').textContent);
const slider = document.getElementById('step'), button = document.getElementById('play');
const chosen = document.getElementById('view'), state = document.getElementById('state');
const cells = Array.from(document.querySelectorAll('.map tbody td')), across = data.columns.length;
const marks = document.querySelectorAll('.now');
let timer = null;
function paint() {
  const n = +slider.value, view = data.views[chosen ? +chosen.value : 0], map = view.maps[n];
  cells.forEach((cell, i) => {
    const value = map[i], row = data.rows[Math.floor(i / across)], column = data.columns[i % across];
    cell.className = value === null ? 'masked' : '';
    const share = value === null ? 0 : Math.min(1, Math.max(0, value / 1000 / data.top));
    cell.style.background = data.ramp[Math.round(share * (data.ramp.length - 1))];
    cell.title = row + ' \\u2192 ' + column + ': ' + (value === null ? 'masked' : (value / 1000).toFixed(3));
  });
  state.textContent = data.captions[n] + ' \\u00b7 greatest weight of a row ' + view.sharpness[n].toFixed(2) +
    ' \\u00b7 alike to the last map ' + view.alike[n].toFixed(2);
  slider.setAttribute('aria-valuetext', data.captions[n]);
  marks.forEach(mark => mark.setAttribute('d', 'M' + data.places[n] + ' 0V' + mark.dataset.high));
  document.querySelectorAll('path.shown').forEach(path => path.setAttribute('d', view[path.dataset.of]));
}
function stop() { clearInterval(timer); timer = null; button.textContent = 'Play'; }
function go() {
  if (+slider.value >= +slider.max) slider.value = 0;
  button.textContent = 'Pause';
  timer = setInterval(() => { slider.value = +slider.value + 1; paint(); if (+slider.value >= +slider.max) stop(); }, 400);
  paint();
}
button.addEventListener('click', () => timer ? stop() : go());
slider.addEventListener('input', () => { stop(); paint(); });
if (chosen) chosen.addEventListener('change', paint);
document.querySelector('.bar').hidden = false;
paint();
"""


WIDE, HIGH = 300, 120  # of a curve, in its own units
LEFT, BELOW = 34, 18  # of which its numbers take so much


def draw_curves(formation: Formation) -> str:
    """Likeness, sharpness and loss over the steps, as drawings with words beside them."""
    parts = [
        ("alike to the last map", formation.alike, formation.heads_alike, "alike_path", "shown", (0.0, 1.0)),
        (
            "greatest weight of a row",
            formation.sharpness,
            formation.heads_sharpness,
            "sharp_path",
            "shown",
            sharp_ends(formation),
        ),
    ]
    found = "".join(_curve(formation, *each) for each in parts)
    losses = np.array([formation.found(number).get("loss", np.nan) for number in range(len(formation.steps))])
    if np.isfinite(losses).sum() > 1:
        ends = (float(np.nanmin(losses)), float(np.nanmax(losses)))
        found += _curve(formation, "validation loss", losses, losses[:, None][:, :0], "", "loss", ends)
    return f"{found}<p>thin: each head; thick: the map shown</p>" if len(formation.names) > 1 else found


def sharp_ends(formation: Formation) -> tuple[float, float]:
    """From 0 to 1, and beyond where weights do not sum to one."""
    values = formation.heads_sharpness
    return min(0.0, float(values.min())), max(1.0, float(values.max()))


def _curve(
    formation: Formation,
    name: str,
    values: np.ndarray,
    heads: np.ndarray,
    of: str,
    kind: str,
    ends: tuple[float, float],
) -> str:
    known = values[np.isfinite(values)]
    words = escape(f"{name}: from {known[0]:.2f} to {known[-1]:.2f}")
    thin = "".join(f'<path class="head" d="{path(formation, line, ends)}"/>' for line in heads.T if heads.shape[1] > 1)
    ticks = "".join(
        f'<text x="{LEFT - 4}" y="{_down(value, ends) + 3:.1f}" text-anchor="end">{value:.3g}</text>'
        f'<path class="axis" d="M{LEFT} {_down(value, ends):.1f}H{WIDE}"/>'
        for value in (ends[0], (ends[0] + ends[1]) / 2, ends[1])
    )
    steps = "".join(
        f'<text x="{across(formation, number):.1f}" y="{HIGH - 4}" text-anchor="{anchor}">{formation.steps[number]:,}</text>'
        for number, anchor in ((0, "start"), (-1, "end"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -16 {WIDE} {HIGH + 16}" role="img" aria-label="{words}">'
        f'<text class="name" x="{LEFT}" y="-6">{escape(name)}</text>{ticks}{steps}{thin}'
        f'<path class="{kind}" data-of="{of}" d="{path(formation, values, ends)}"/>'
        f'<path class="now" data-high="{HIGH - BELOW}" d=""/></svg>'
    )


def path(formation: Formation, values: np.ndarray, ends: tuple[float, float] = (0.0, 1.0)) -> str:
    """A line over the steps; a step without a value is left out."""
    points = [
        f"{across(formation, number):.1f} {_down(float(value), ends):.1f}"
        for number, value in enumerate(values)
        if np.isfinite(value)
    ]
    return "M" + "L".join(points)


def across(formation: Formation, number: int) -> float:
    first, last = formation.steps[0], formation.steps[-1]
    return LEFT + (formation.steps[number] - first) / max(1, last - first) * (WIDE - LEFT)


def _down(value: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return 2 + (1 - (value - low) / ((high - low) or 1.0)) * (HIGH - BELOW - 4)
