"""A report as one HTML page: no script, nothing loaded from elsewhere, readable on light and dark screens and on paper.

Whatever comes from outside (names, sentences) is escaped here and nowhere else. The page is also well-formed XML.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from regard.look.labels import visible_title


@dataclass(frozen=True)
class Row:
    """A line of a table: its name, what it means, a cell for each column, and which of them are best."""

    name: str
    cells: Sequence[str]
    hint: str = ""
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Group:
    """Rows under one heading."""

    name: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    groups: Sequence[Group]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure with its caption; `alt` says it in words for who cannot see it."""

    svg: bytes
    caption: str
    alt: str


@dataclass(frozen=True)
class Section:
    title: str
    parts: Sequence[Table | Picture | str]  # a text is a paragraph


@dataclass(frozen=True)
class Page:
    title: str
    summary: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]]  # name and value, at the end


LONGEST_NUMBER = 16  # characters: a cell with more holds words, which may take several lines

STYLE = """
:root { color-scheme: light dark; --text: #1d2329; --quiet: #5b646c; --line: #dde2e7; --ground: #fff; --shade: #f5f7f9;
  --accent: #0b5c96; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --quiet: #a0aab4; --line: #353d45; --ground: #14181c;
  --shade: #1c2228; --accent: #7cc0f2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 3rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .8rem; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 3rem 0 .8rem; }
p { max-width: 44rem; margin: .6rem 0; overflow-wrap: anywhere; }
.summary { font-size: 1.15rem; line-height: 1.5; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem; }
th, td { padding: .34rem 0 .34rem 1.4rem; text-align: right; white-space: nowrap; vertical-align: baseline; }
.words td { white-space: normal; max-width: 9rem; }
th:first-child { text-align: left; padding-left: 0; font-weight: 400; position: sticky; left: 0; background: var(--ground); }
thead th { border-bottom: 2px solid var(--text); font-weight: 600; white-space: normal; overflow-wrap: break-word;
  min-width: 5rem; max-width: 11rem; vertical-align: bottom; }
tbody tr.group th { padding-top: 1.1rem; font-size: .8rem; font-weight: 600; color: var(--quiet); }
tbody tr:not(.group) th, tbody td { border-bottom: 1px solid var(--line); }
td b { color: var(--accent); font-weight: 650; }
small { color: var(--quiet); font-size: .86em; }
th small { display: block; white-space: normal; max-width: 15rem; line-height: 1.35; }
figure { margin: 1.2rem 0 0; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figcaption, .caption { color: var(--quiet); font-size: .9rem; line-height: 1.45; max-width: 46rem; text-align: left; }
figcaption { margin-top: .6rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.5rem; margin: .8rem 0 0; font-size: .92rem; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (prefers-color-scheme: light) { figure img { border: 1px solid var(--line); } }
@media (max-width: 36rem) { main { padding: 1.5rem 1rem 3rem; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .6rem; } th small { display: none; } }
@media print { :root { color-scheme: light; --text: #000; --quiet: #444; --line: #ccc; --ground: #fff; --accent: #000; }
  main { max-width: none; padding: 0; } body { font-size: 10pt; } table { font-size: 8.5pt; } .scroll { overflow: visible; }
  th:first-child { position: static; } figcaption, .caption, dl { font-size: 9pt; } .summary { font-size: 11.5pt; }
  h2 { margin-top: 1.6rem; break-after: avoid; } figure, tr { break-inside: avoid; } figure img { border: 0; } }
"""


def html(page: Page) -> str:
    """The whole page."""
    body = "".join(_section(section) for section in page.sections)
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in page.facts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{_text(page.title)}</title><style>{STYLE}</style></head><body><main>"
        f'<h1>{_text(page.title)}</h1><p class="summary">{_text(page.summary)}</p>'
        f"{body}<section><h2>Conditions</h2><dl>{facts}</dl></section></main></body></html>\n"
    )


def _section(section: Section) -> str:
    return f"<section><h2>{_text(section.title)}</h2>{''.join(_part(part) for part in section.parts)}</section>"


def _part(part: Table | Picture | str) -> str:
    if isinstance(part, Table):
        return _table(part)
    return _picture(part) if isinstance(part, Picture) else f"<p>{_text(part)}</p>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.columns)
    body = "".join(_group(group, len(table.columns)) for group in table.groups)
    caption = f'<p class="caption">{_text(table.caption)}</p>' if table.caption else ""
    rows = f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{rows}</table></div>{caption}'


def _group(group: Group, columns: int) -> str:
    heading = f'<tr class="group"><th scope="rowgroup" colspan="{columns + 1}">{_text(group.name)}</th></tr>'
    return (heading if group.name else "") + "".join(_row(row) for row in group.rows)


def _row(row: Row) -> str:
    hint = f"<small>{_text(row.hint)}</small>" if row.hint else ""
    cells = (f"<b>{_text(cell)}</b>" if place in row.best else _text(cell) for place, cell in enumerate(row.cells))
    words = ' class="words"' if max(map(len, row.cells), default=0) > LONGEST_NUMBER else ""
    name = f'<th scope="row">{_text(row.name)}{hint}</th>'
    return f"<tr{words}>{name}" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.svg).decode("ascii")
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{_text(picture.alt)}"/>'
    return f"<figure>{image}<figcaption>{_text(picture.caption)}</figcaption></figure>"


def _text(text: str) -> str:
    """Text from anywhere, safe in a page: nothing in it is markup, and control codes are shown, not obeyed."""
    return escape(visible_title(text), quote=True)
