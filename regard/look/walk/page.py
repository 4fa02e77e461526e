"""A walk as one self-contained page, also well-formed XML: steps as sections, numbers as shaded tables, nothing loaded."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

import numpy as np

from regard.look.colors import scale_top
from regard.look.walk.figures import figure, figures, named, size_of, tables, written
from regard.look.walk.steps import Numbers, Step, Walk
from regard.look.walk.style import level, style

FEW = 16  # cells of an array that is shown although it is aside
WIDE = 8  # columns from which on sums stay in sight
PAPER = 12  # columns that fit on paper; rows with more take several lines there
MOST = 5000  # cells of an array aside that a page holds; more are in the JSON only


def page(walk: Walk, digits: int) -> str:
    """The whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="color-scheme" content="light dark"/>'
        f"<title>{escape(walk.title)}</title></head>"
        f'<body style="margin:0">{fragment(walk, digits)}</body></html>\n'
    )


def fragment(walk: Walk, digits: int) -> str:
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
    lines = "".join(f'<p class="line"><code>{escape(written(line, digits))}</code></p>' for line in step.lines)
    arrays = "".join(_array(table, digits) for table in tables(step.arrays))
    return (
        f'<section id="step-{number}"><h2>{number} · {escape(step.title)}</h2>'
        f'<p class="formula"><code>{escape(step.formula)}</code></p><p>{escape(step.text)}</p>{lines}'
        f'<div class="arrays">{arrays}</div></section>'
    )


def _array(table: Sequence[Numbers], digits: int) -> str:
    """A picture, a single number, a table, or a table that is folded away."""
    first = table[0]
    if first.picture:
        return _picture(first)
    if first.values.size == 1 and not first.rows[0]:
        return f'<div class="one"><h3>{escape(first.name)} = {figure(float(first.values[0, 0]), digits)}</h3></div>'
    name = escape(", ".join([size_of(first), *(each.name for each in table[1:])]))
    if not first.aside or first.values.size <= FEW:
        heading = f"<h3>{name}</h3>" if len(first.columns) > 1 else ""
        return f"<div>{heading}{_table(table, digits)}</div>"
    if first.values.size > MOST:
        return f'<p class="note">{name}: too many for a page; the JSON of this walk has them all.</p>'
    return f"<details><summary>{name}</summary>{_table(table, digits)}</details>"


def _picture(table: Numbers) -> str:
    from regard.look.walk.table import png

    rows, columns = table.values.shape
    data = base64.b64encode(png(table)).decode("ascii")
    told = f"Sines and cosines of positions 0 to {rows - 1} in {columns} dimensions"
    return f'<img src="data:image/png;base64,{data}" alt="{told}"/>'


def _table(table: Sequence[Numbers], digits: int) -> str:
    wide = len(table[0].columns) > WIDE
    header = '<td class="gap"></td>'.join(
        "".join(f'<th scope="col"{_end(array, wide)}>{escape(named(name))}</th>' for name in array.columns)
        for array in table
    )
    cells = [_cells(array, digits, wide) for array in table]
    remarks = next((each.remarks for each in table if each.remarks), ())
    marked = next((each.marked for each in table if each.marked is not None), None)
    body = ""
    for row, label in enumerate(table[0].rows):
        here = ' class="here"' if row == marked else ""
        why = f'<td class="why">{escape(remarks[row])}</td>' if remarks else ""
        values = '<td class="gap"></td>'.join(each[row] for each in cells)
        body += f'<tr{here}><th scope="row">{escape(named(label))}</th>{values}{why}</tr>'
    top = f"<thead><tr><td></td>{header}</tr></thead>"
    kind = "scroll wide" if sum(len(each.columns) for each in table) > PAPER else "scroll"
    return f'<div class="{kind}"><table>{top}<tbody>{body}</tbody></table></div>{_legend(table, digits)}'


def _end(array: Numbers, wide: bool) -> str:
    """The column of sums beside a wide table stays in sight."""
    return ' class="end"' if wide and array.name == "sums" else ""


def _cells(array: Numbers, digits: int, wide: bool) -> list[str]:
    """Each row of an array as cells."""
    shown, top = figures(array.values, digits), _top(array)
    return [
        "".join(
            _cell(text, value, top, array.kind, wide and array.name == "sums")
            for text, value in zip(texts, row, strict=True)
        )
        for texts, row in zip(shown, array.values.tolist(), strict=True)
    ]


def _cell(text: str, value: float, top: float, kind: str, end: bool) -> str:
    if not np.isfinite(value):
        return f'<td class="masked">{text}</td>'
    if kind == "plain":
        return f"<td>{text}</td>"
    letter = "w" if kind == "weight" else "a" if value >= 0 else "b"
    return f'<td class="{letter}{level(abs(value) / top)}{" end" if end else ""}">{text}</td>'


def _top(array: Numbers) -> float:
    """The number that gets the last shade."""
    return scale_top(np.where(np.isfinite(array.values), np.abs(array.values), 0.0))


def _legend(table: Sequence[Numbers], digits: int) -> str:
    bars = []
    for array in table:
        if array.kind == "plain":
            continue
        low = f"-{_top(array):g}" if array.kind == "signed" else "0"
        name = f"{escape(array.name)} " if len(table) > 1 else ""
        bars.append(f'<span>{name}{low} <i class="{array.kind}"></i> {_top(array):g}</span>')
    return f'<p class="legend">{"".join(bars)}</p>' if bars else ""
