"""Attention maps as HTML: a table of coloured cells for notebooks, and a page with every number under the pointer.

On the page a map of 60 x 60 tokens shows all its words; one of 512 x 512 begins small, and grows under a slider. Several
heads stand small above one large map, which shows the head that was clicked. Cells are a picture with one pixel each, made
larger by the style; without script the page still shows them all.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.labels import visible, visible_title
from regard.look.map import AttentionMap
from regard.look.pages import template
from regard.look.sentence import AllHeads
from regard.look.shown import Shown

MOST_CELLS = 6_000  # of tables in a notebook: a cell takes 160 bytes
MASKED_CELL = "repeating-linear-gradient(45deg,#eee,#eee 3px,#ddd 3px,#ddd 5px)"
CELL = "width:1.4em;min-width:1.4em;height:1.4em;padding:0;border:1px solid #fff"
UPRIGHT = "padding:2px;text-align:center;vertical-align:bottom;font-weight:normal"
TURNED = UPRIGHT + ";writing-mode:vertical-rl;transform:rotate(180deg);text-align:left"
ROW_LABEL = "padding:0 6px;text-align:right;font-weight:normal;white-space:nowrap"


def map_table(map: AttentionMap) -> str:
    """One table, or one for each head side by side, on one colour scale, with a legend; of a large map, its picture."""
    if map.weights.size > MOST_CELLS:
        return picture_of(map)
    top = scale_top(map.weights)
    heads = map.weights if map.weights.ndim == 3 else map.weights[None]  # (H, T, S)
    names = [f"head {index}" if map.weights.ndim == 3 else "" for index in range(len(heads))]
    tables = "".join(_table(map, weights, top, name) for weights, name in zip(heads, names, strict=True))
    title = f"<div><b>{escape(visible_title(map.title))}</b></div>" if map.title else ""
    legend = _table_legend(top, masked=bool(np.isnan(map.weights).any()))
    return f'<div>{title}<div style="display:flex;flex-wrap:wrap;gap:1em">{tables}</div>{legend}{_notes(map)}</div>'


def picture_of(shown: Shown) -> str:
    """The figure as a picture for a notebook, which says in words what is on it."""
    address = template.data_uri(shown._repr_png_(), "image/png")
    return template.render("picture.html", address=address, alt=shown._alternative())


def _notes(map: AttentionMap) -> str:
    return "".join(f'<div style="font-size:85%"><i>{escape(visible_title(note))}</i></div>' for note in map.notes)


def _table(map: AttentionMap, weights: np.ndarray, top: float, name: str) -> str:
    header = "".join(_column(label) for label in map.columns)
    body = "".join(
        f'<tr><th style="{ROW_LABEL}">{escape(visible(label))}</th>'
        + "".join(_cell(weight, top, label, column) for weight, column in zip(line, map.columns, strict=True))
        + "</tr>"
        for label, line in zip(map.rows, weights, strict=True)
    )
    caption = f"<caption>{name}</caption>" if name else ""
    return f'<table style="border-collapse:collapse;font-size:90%">{caption}<tr><td></td>{header}</tr>{body}</table>'


def _column(label: str) -> str:
    style = UPRIGHT if len(label) <= 2 else TURNED
    return f'<th style="{style}">{escape(visible(label))}</th>'


def _cell(weight: float, top: float, row: str, column: str) -> str:
    hint = f"{visible(row)} → {visible(column)}: " + ("masked" if np.isnan(weight) else f"{weight:.3f}")
    background = MASKED_CELL if np.isnan(weight) else hexadecimal(color(INK, weight / top))
    return f'<td style="{CELL};background:{background}" title="{escape(hint)}"></td>'


def _table_legend(top: float, masked: bool) -> str:
    ramp = ",".join(hexadecimal(each) for each in INK)
    box = "display:inline-block;height:.8em;background:"
    scale = f'0 <span style="{box}linear-gradient(to right,{ramp});width:8em"></span> {top:g}'
    blank = f' &emsp; <span style="{box}{MASKED_CELL};width:.8em"></span> masked' if masked else ""
    return f'<div style="font-size:85%">attention weight {scale}{blank}</div>'


WIDE, HIGH = 1150, 900  # pixels that the large map takes at first, at most
SMALL_CELL, LARGE_CELL = 9, 28  # pixels; below the first, words cannot be read and are left out
THUMBNAIL = 132  # pixels, the longer side of a head
MOST_NUMBERS = 2_000_000  # on one page, two bytes each; with more, only the colours tell
LEVELS, HIDDEN = 65534, 65535  # of a number on the page

Head = tuple[str, np.ndarray]  # name and weights (T, S)


def map_page(map: AttentionMap) -> str:
    """The page of a map, or of its heads."""
    if map.weights.ndim == 2:
        heads = [[("", map.weights)]]
    else:
        heads = [[(f"head {number}", weights) for number, weights in enumerate(map.weights)]]
    return maps_page(heads, map.columns, map.rows, map.title, map.notes)


def all_heads_page(heads: AllHeads) -> str:
    """The page of every layer and head."""
    lines = [
        [(f"layer {layer}, head {head}", weights) for head, weights in enumerate(each)]
        for layer, each in enumerate(heads.layers.values())
    ]
    return maps_page(lines, heads.columns, heads.rows, heads.title, heads.notes)


def maps_page(
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


MASKED = "repeating-linear-gradient(45deg, #f0f0f0 0 3px, #d4d4d4 3px 5px)"

STYLE = """
:root { color-scheme: light dark; --text: #1d2329; --quiet: #5b646c; --line: #c9d0d7; --ground: #fff; --on: #0b5c96; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --quiet: #a0aab4; --line: #3c454e; --ground: #14181c;
  --on: #7cc0f2; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.2rem 1.5rem 3rem; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.25rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: .3rem 0; }
p { margin: .2rem 0; color: var(--quiet); max-width: 60rem; overflow-wrap: anywhere; }
.bar { display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; align-items: center; margin: .7rem 0; }
.ramp, .swatch { display: inline-block; height: .8em; vertical-align: -.05em; border: 1px solid var(--line); }
.ramp { width: 9em; } .swatch { width: .9em; background: MASKED; }
.bar label { display: flex; gap: .5em; align-items: center; }
.heads { display: grid; width: max-content; gap: .5rem .6rem; align-items: center; color: var(--quiet);
  font-size: .8rem; padding: 4px; }
.both { display: flex; flex-wrap: wrap; gap: .2rem 2.5rem; align-items: flex-start; }
.heads b { font-weight: 600; text-align: center; } .heads b.layer { text-align: right; }
.heads button { padding: 0; border: 1px solid var(--line); background: MASKED; cursor: pointer; line-height: 0; }
.heads button[aria-pressed=true] { outline: 3px solid var(--on); }
.heads img { display: block; } img { image-rendering: pixelated; } img.shrunk { image-rendering: auto; }
.scroll { overflow: auto; max-height: 94vh; width: fit-content; max-width: 100%; }
.map { display: grid; grid-template-columns: max-content max-content; width: max-content; padding: 0 1rem 1rem 0;
  --size: calc(var(--cell) * .78); font-size: clamp(8px, var(--size), 14px); }
.columns, .rows, .corner { background: var(--ground); position: sticky; z-index: 2; display: flex; }
.columns { top: 0; align-items: flex-end; padding-bottom: 4px; }
.rows { left: 0; flex-direction: column; padding-right: 6px; }
.corner { top: 0; left: 0; z-index: 3; }
.columns span { width: var(--cell); line-height: var(--cell); writing-mode: vertical-rl; transform: rotate(180deg);
  text-align: left; white-space: nowrap; max-height: 11em; overflow: hidden; text-overflow: ellipsis; }
.rows span { height: var(--cell); line-height: var(--cell); text-align: right; white-space: nowrap; max-width: 15em;
  overflow: hidden; text-overflow: ellipsis; }
.small .columns span, .small .rows span { color: transparent; font-size: 1px; max-width: 1em; max-height: 1em; }
.columns span.on, .rows span.on { color: var(--on); text-shadow: 0 0 .6px currentColor; }
.cells { position: relative; background: MASKED; width: calc(var(--cell) * var(--across));
  height: calc(var(--cell) * var(--down)); outline: 1px solid var(--line); cursor: crosshair; touch-action: none; }
.cells img { display: block; width: 100%; height: 100%; }
.cells::after { content: ""; position: absolute; inset: 0; pointer-events: none;
  background: linear-gradient(to right, #fff 1px, transparent 1px) 0 0 / var(--cell) var(--cell),
  linear-gradient(#fff 1px, transparent 1px) 0 0 / var(--cell) var(--cell); }
.small .cells::after { background: none; }
.cells i { position: absolute; pointer-events: none; border: 0 solid #d4540a; z-index: 1; display: none; }
#across { left: 0; right: 0; height: var(--cell); border-width: 1px 0; }
#down { top: 0; bottom: 0; width: var(--cell); border-width: 0 1px; }
#told { position: fixed; z-index: 9; pointer-events: none; display: none; background: #1d2329; color: #fff;
  padding: .15em .5em; border-radius: 4px; font-size: 14px; white-space: nowrap; }
@media print { .scroll { max-height: none; overflow: visible; } .bar label { display: none; } }
""".replace("MASKED", MASKED)

SCRIPT = """
const all = JSON.parse(document.getElementById("numbers").textContent);
const get = id => document.getElementById(id), cells = get("cells"), map = get("map"), told = get("told");
const rows = [...document.querySelectorAll(".rows span")], columns = [...document.querySelectorAll(".columns span")];
const buttons = [...document.querySelectorAll(".heads button")], kept = {};
let chosen = 0, marked = [];

function numbers(panel) {
  if (kept[panel] === undefined) {
    const raw = atob(all.panels[panel] || "");
    kept[panel] = Uint16Array.from({length: raw.length / 2},
      (_, i) => raw.charCodeAt(2 * i) + 256 * raw.charCodeAt(2 * i + 1));
  }
  return kept[panel];
}
function say(panel, row, column) {
  const n = numbers(panel)[row * columns.length + column];
  const weight = n === undefined ? "" : n === 65535 ? ": masked"
    : ": " + (all.low + n / 65534 * (all.high - all.low)).toFixed(4);
  return rows[row].textContent + " \\u2192 " + columns[column].textContent + weight;
}
function place(event, box) {
  const at = box.getBoundingClientRect();
  const limit = (value, most) => Math.max(0, Math.min(most - 1, Math.floor(value * most)));
  return [limit((event.clientY - at.top) / at.height, rows.length),
          limit((event.clientX - at.left) / at.width, columns.length)];
}
function tell(event, text) {
  told.textContent = text;
  told.style.display = "block";
  const left = Math.min(event.clientX + 14, innerWidth - told.offsetWidth - 8);
  told.style.left = Math.max(4, left) + "px";
  told.style.top = (event.clientY > innerHeight - 60 ? event.clientY - 40 : event.clientY + 18) + "px";
}
function leave() {
  marked.forEach(each => each.classList.remove("on"));
  told.style.display = get("across").style.display = get("down").style.display = "none";
}
cells.addEventListener("pointermove", event => {
  const [row, column] = place(event, cells);
  leave();
  marked = [rows[row], columns[column]];
  marked.forEach(each => each.classList.add("on"));
  get("across").style.cssText = "display: block; top: calc(var(--cell) * " + row + ")";
  get("down").style.cssText = "display: block; left: calc(var(--cell) * " + column + ")";
  tell(event, say(chosen, row, column));
});
cells.addEventListener("pointerleave", leave);
buttons.forEach((button, panel) => {
  button.addEventListener("pointermove", event => tell(event, button.title0 + ", " + say(panel, ...place(event, button))));
  button.addEventListener("pointerleave", leave);
  button.title0 = button.getAttribute("aria-label");
  button.addEventListener("click", () => {
    chosen = panel;
    buttons.forEach((each, other) => each.setAttribute("aria-pressed", other === panel));
    cells.querySelector("img").src = button.querySelector("img").src;
    get("name").textContent = button.title0;
    get("name").scrollIntoView({block: "nearest"});
  });
});
get("size").addEventListener("input", event => {
  map.style.setProperty("--cell", event.target.value + "px");
  map.classList.toggle("small", 9 > event.target.value);
});
"""
