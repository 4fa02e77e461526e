"""An attention map as an HTML table for notebooks: coloured cells that tell their weight under the pointer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.labels import visible, visible_title

if TYPE_CHECKING:
    from regard.look.map import AttentionMap

MOST_CELLS = 6_000  # of tables in a notebook: a cell takes 160 bytes
MASKED = "repeating-linear-gradient(45deg,#eee,#eee 3px,#ddd 3px,#ddd 5px)"
CELL = "width:1.4em;min-width:1.4em;height:1.4em;padding:0;border:1px solid #fff"
UPRIGHT = "padding:2px;text-align:center;vertical-align:bottom;font-weight:normal"
TURNED = UPRIGHT + ";writing-mode:vertical-rl;transform:rotate(180deg);text-align:left"
ROW_LABEL = "padding:0 6px;text-align:right;font-weight:normal;white-space:nowrap"


def table(map: AttentionMap) -> str:
    """One table, or one for each head side by side, on one colour scale, with a legend; of a large map, its picture."""
    if map.weights.size > MOST_CELLS:
        return picture(map._repr_png_(), map.title or "attention map", map.notes)
    top = scale_top(map.weights)
    heads = map.weights if map.weights.ndim == 3 else map.weights[None]  # (H, T, S)
    names = [f"head {index}" if map.weights.ndim == 3 else "" for index in range(len(heads))]
    tables = "".join(_table(map, weights, top, name) for weights, name in zip(heads, names, strict=True))
    title = f"<div><b>{escape(visible_title(map.title))}</b></div>" if map.title else ""
    legend = _legend(top, masked=bool(np.isnan(map.weights).any()))
    return f'<div>{title}<div style="display:flex;flex-wrap:wrap;gap:1em">{tables}</div>{legend}{_notes(map)}</div>'


def picture(png: bytes, title: str, notes: Sequence[str]) -> str:
    """A picture for a notebook, which says in words what is on it."""
    data = base64.b64encode(png).decode("ascii")
    told = escape("; ".join(visible_title(each) for each in (title, *notes)), quote=True)
    return f'<img src="data:image/png;base64,{data}" alt="{told}" style="max-width:100%;background:#fff"/>'


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
    background = MASKED if np.isnan(weight) else hexadecimal(color(INK, weight / top))
    return f'<td style="{CELL};background:{background}" title="{escape(hint)}"></td>'


def _legend(top: float, masked: bool) -> str:
    ramp = ",".join(hexadecimal(each) for each in INK)
    box = "display:inline-block;height:.8em;background:"
    scale = f'0 <span style="{box}linear-gradient(to right,{ramp});width:8em"></span> {top:g}'
    blank = f' &emsp; <span style="{box}{MASKED};width:.8em"></span> masked' if masked else ""
    return f'<div style="font-size:85%">attention weight {scale}{blank}</div>'
