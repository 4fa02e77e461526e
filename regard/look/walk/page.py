"""A walk as one self-contained page, also well-formed XML: steps as sections, numbers as shaded tables, nothing loaded."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

import numpy as np

from regard.look.colors import GLOW, INK, Color, color, hexadecimal, ink_on, scale_top
from regard.look.walk.shades import signed
from regard.look.walk.steps import (
    Numbers,
    Shading,
    Step,
    Table,
    WalkData,
    format_cells,
    format_label,
    format_line,
    format_number,
)

WIDE = 8  # columns from which on sums stay in sight
PAPER_COLUMNS = 12  # columns that fit on paper; rows with more take several lines there
MOST_CELLS = 5000  # of a folded table that a page holds; larger ones are in the JSON only


def render_page(walk: WalkData, digits: int) -> str:
    """The whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="color-scheme" content="light dark"/>'
        f"<title>{escape(walk.title)}</title></head>"
        f'<body style="margin:0">{render_fragment(walk, digits)}</body></html>\n'
    )


def render_fragment(walk: WalkData, digits: int) -> str:
    """The same in one element, for a notebook."""
    contents = "".join(
        f'<li><a href="#step-{number}">{number} · {escape(step.title)}</a></li>'
        for number, step in enumerate(walk.steps)
    )
    body = "".join(_step(step, number, digits) for number, step in enumerate(walk.steps))
    return (
        f'<div class="walk"><style>{style()}</style><div><h1>{escape(walk.title)}</h1>'
        f'<p class="summary">{escape(walk.summary)}</p><nav aria-label="Steps"><ol>{contents}</ol></nav>{body}</div></div>'
    )


def _step(step: Step, number: int, digits: int) -> str:
    lines = "".join(f'<p class="line"><code>{escape(format_line(line, digits))}</code></p>' for line in step.lines)
    arrays = "".join(_array(table, digits) for table in step.tables())
    return (
        f'<section id="step-{number}"><h2>{number} · {escape(step.title)}</h2>'
        f'<p class="formula"><code>{escape(step.formula)}</code></p><p>{escape(step.text)}</p>{lines}'
        f'<div class="arrays">{arrays}</div></section>'
    )


def _array(table: Table, digits: int) -> str:
    """A picture, a single number, a table, or a table that is folded away."""
    first = table.first
    if first.picture:
        return _picture(first)
    if first.is_scalar:
        return (
            f'<div class="one"><h3>{escape(first.name)} = {format_number(float(first.values[0, 0]), digits)}</h3></div>'
        )
    title = escape(table.title)
    if not table.is_folded:
        heading = f"<h3>{title}</h3>" if len(first.columns) > 1 else ""
        return f"<div>{heading}{_table(table, digits)}</div>"
    if first.values.size > MOST_CELLS:
        return f'<p class="note">{title}: too many for a page; the JSON of this walk has them all.</p>'
    return f"<details><summary>{title}</summary>{_table(table, digits)}</details>"


def _picture(table: Numbers) -> str:
    from regard.look.walk.picture import png  # matplotlib is heavy, and most pages have no picture

    rows, columns = table.values.shape
    data = base64.b64encode(png(table)).decode("ascii")
    told = f"Sines and cosines of positions 0 to {rows - 1} in {columns} dimensions"
    return f'<img src="data:image/png;base64,{data}" alt="{told}"/>'


def _table(table: Table, digits: int) -> str:
    wide = len(table.first.columns) > WIDE
    header = '<td class="gap"></td>'.join(
        "".join(f'<th scope="col"{_end(array, wide)}>{escape(format_label(name))}</th>' for name in array.columns)
        for array in table.arrays
    )
    cells = [_cells(array, digits, wide) for array in table.arrays]
    remarks, marked = table.remarks, table.marked
    body = ""
    for row, label in enumerate(table.first.rows):
        here = ' class="here"' if row == marked else ""
        why = f'<td class="why">{escape(remarks[row])}</td>' if remarks else ""
        values = '<td class="gap"></td>'.join(each[row] for each in cells)
        body += f'<tr{here}><th scope="row">{escape(format_label(label))}</th>{values}{why}</tr>'
    top = f"<thead><tr><td></td>{header}</tr></thead>"
    kind = "scroll wide" if sum(len(each.columns) for each in table.arrays) > PAPER_COLUMNS else "scroll"
    return f'<div class="{kind}"><table>{top}<tbody>{body}</tbody></table></div>{_legend(table.arrays)}'


def _end(array: Numbers, wide: bool) -> str:
    """The column of sums beside a wide table stays in sight."""
    return ' class="end"' if wide and array.name == "sums" else ""


def _cells(array: Numbers, digits: int, wide: bool) -> list[str]:
    """Each row of an array as cells."""
    shown, top = format_cells(array.values, digits), _top(array)
    return [
        "".join(
            _cell(text, value, top, array.shading, wide and array.name == "sums")
            for text, value in zip(texts, row, strict=True)
        )
        for texts, row in zip(shown, array.values.tolist(), strict=True)
    ]


def _cell(text: str, value: float, top: float, shading: Shading, end: bool) -> str:
    if not np.isfinite(value):
        return f'<td class="masked">{text}</td>'
    if shading == "plain":
        return f"<td>{text}</td>"
    letter = "w" if shading == "weight" else "a" if value >= 0 else "b"
    return f'<td class="{letter}{level(abs(value) / top)}{" end" if end else ""}">{text}</td>'


def _top(array: Numbers) -> float:
    """The number that gets the last shade."""
    return scale_top(np.where(np.isfinite(array.values), np.abs(array.values), 0.0))


def _legend(arrays: Sequence[Numbers]) -> str:
    bars = []
    for array in arrays:
        if array.shading == "plain":
            continue
        low = f"-{_top(array):g}" if array.shading == "signed" else "0"
        name = f"{escape(array.name)} " if len(arrays) > 1 else ""
        bars.append(f'<span>{name}{low} <i class="{array.shading}"></i> {_top(array):g}</span>')
    return f'<p class="legend">{"".join(bars)}</p>' if bars else ""


LEVELS = 16  # shades from nothing to the most, of each sign
WEIGHTS_DARK: tuple[Color, ...] = ((27, 33, 39), *GLOW[2:8:2], (150, 232, 240))

BASE = """
.walk { --text: #1d2329; --quiet: #5b646c; --line: #dde2e7; --ground: #fff; --shade: #f4f6f8; --accent: #0b5c96;
  background: var(--ground); color: var(--text); font: 17px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans",
  "DejaVu Sans", sans-serif; padding: 2.4rem 1.5rem 4rem; }
.walk * { box-sizing: border-box; }
.walk > div { max-width: 68rem; margin: 0 auto; }
.walk h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; overflow-wrap: anywhere; }
.walk h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .5rem; }
.walk p { margin: .5rem 0; max-width: 48rem; overflow-wrap: anywhere; }
.walk .summary { font-size: 1.1rem; color: var(--quiet); }
.walk nav ol { list-style: none; margin: 1.4rem 0 0; padding: .9rem 1.1rem; background: var(--shade); border-radius: 8px;
  columns: 20rem; column-gap: 2rem; font-size: .95rem; }
.walk nav li { break-inside: avoid; padding: .1rem 0; }
.walk a { color: var(--accent); text-decoration: none; }
.walk a:hover { text-decoration: underline; }
.walk section { border-top: 1px solid var(--line); margin-top: 2.2rem; padding-top: 1.5rem; }
.walk code { font: 1em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.walk .formula { font-size: 1.05rem; background: var(--shade); border-left: 4px solid var(--accent); padding: .45rem .8rem;
  border-radius: 0 6px 6px 0; max-width: none; }
.walk .line { font-size: .92rem; max-width: none; }
.walk .scroll { overflow-x: auto; margin: .3rem 0 0; }
.walk table { border-collapse: separate; border-spacing: 1px; font-size: .86rem; font-variant-numeric: tabular-nums; }
.walk th, .walk td { padding: .18rem .42rem; text-align: right; white-space: nowrap; font-weight: 400; }
.walk th { color: var(--quiet); }
.walk tbody th { text-align: left; position: sticky; left: 0; background: var(--ground); color: var(--text); }
.walk tr.here th { font-weight: 700; }
.walk td.why { color: var(--quiet); text-align: left; }
.walk td.gap { min-width: .8rem; }
.walk td.masked { color: var(--quiet); background: repeating-linear-gradient(45deg, var(--shade), var(--shade) 4px,
  var(--line) 4px, var(--line) 6px); }
.walk .arrays { display: flex; flex-wrap: wrap; gap: 0 2.6rem; align-items: flex-start; }
.walk .arrays > * { min-width: 0; max-width: 100%; }
.walk .arrays > p, .walk .arrays > .one, .walk .arrays > details, .walk .arrays > img { flex: 0 0 100%; }
.walk .end { position: sticky; right: 0; box-shadow: -.6rem 0 .5rem -.3rem var(--ground); }
.walk th.end { background: var(--ground); }
.walk h3 { font-size: .92rem; margin: 1.3rem 0 0; font-weight: 600; }
.walk .legend { font-size: .8rem; color: var(--quiet); margin: .25rem 0 0; }
.walk .legend span { white-space: nowrap; margin-right: 1.2rem; }
.walk .legend i { display: inline-block; width: 7rem; height: .75em; vertical-align: -.05em; border-radius: 2px; }
.walk details { margin: .8rem 0 0; font-size: .92rem; }
.walk summary { cursor: pointer; color: var(--accent); }
.walk .note { color: var(--quiet); font-size: .9rem; }
.walk img { display: block; width: 100%; max-width: 52rem; height: auto; margin-top: .8rem; background: #fff;
  border-radius: 6px; }
"""
DARK = """
.walk { --text: #e4e8ec; --quiet: #a0aab4; --line: #353d45; --ground: #14181c; --shade: #1f262d; --accent: #7cc0f2; }
"""
SMALL = """
@media (max-width: 36rem) { .walk { padding: 1.2rem .9rem 3rem; font-size: 16px; } .walk h1 { font-size: 1.5rem; } }
@media print { .walk { padding: 0; font-size: 10.5pt; --shade: #f4f6f8; } .walk > div { max-width: none; }
  .walk .scroll { overflow: visible; } .walk table { font-size: 7pt; } .walk tbody th { position: static; }
  .walk h2, .walk h3, .walk .formula { break-after: avoid; } .walk tr, .walk img { break-inside: avoid; }
  .walk .wide table, .walk .wide tbody, .walk .wide tr { display: block; } .walk .wide thead { display: none; }
  .walk .wide td, .walk .wide tbody th { display: inline-block; min-width: 5em; } .walk .wide td.gap { min-width: 1em; }
  .walk .wide tbody th { font-weight: 700; } .walk .end { box-shadow: none; position: static; }
  .walk details { display: none; } .walk td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def style() -> str:
    """All rules, under one class, so that a notebook around it keeps its own."""
    dark = "@media screen and (prefers-color-scheme: dark) {" + DARK + _shades(dark=True) + "}"
    return BASE + _shades(dark=False) + dark + SMALL


def level(share: float) -> int:
    """The shade of a number at `share` of the most."""
    return min(max(round(share * (LEVELS - 1)), 0), LEVELS - 1)


def _shades(dark: bool) -> str:
    """Cells a0 .. (above zero), b0 .. (below) and w0 .. (weights), and the bars of their legends."""
    each = [step / (LEVELS - 1) for step in range(LEVELS)]
    ramps = {
        "a": [signed(share, dark) for share in each],
        "b": [signed(-share, dark) for share in each],
        "w": [color(WEIGHTS_DARK if dark else INK, share) for share in each],
    }
    rules = [
        f".walk .{name}{step} {{ background: {hexadecimal(ground)}; color: {hexadecimal(ink_on(ground))}; }}"
        for name, ramp in ramps.items()
        for step, ground in enumerate(ramp)
    ]
    both = [*ramps["b"][::-1], *ramps["a"]]
    rules += [_bar("signed", both), _bar("weight", ramps["w"])]
    return "\n".join(rules) + "\n"


def _bar(name: str, ramp: list[Color]) -> str:
    colors = ", ".join(hexadecimal(each) for each in ramp)
    return f".walk i.{name} {{ background: linear-gradient(to right, {colors}); print-color-adjust: exact; }}"
