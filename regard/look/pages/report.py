"""Reports as one HTML page: no script, nothing loaded from elsewhere, readable on light and dark screens and on paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from regard.look.figures.heads import draw_heads, draw_offsets
from regard.look.figures.sheet import render
from regard.look.heads import Faithfulness, Head, HeadReport, Induction
from regard.look.labels import visible_title
from regard.look.roles import RULES, rules_for
from regard.look.sentence import NAMES


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


def heads_page(report: HeadReport) -> str:
    """The whole page."""
    sections = [
        Section("All heads", [_heads_picture(report)]),
        *(_role(report, role) for role in report.roles),
        *([] if report.induction is None else [_induction(report.induction)]),
        *([] if report.faithful is None else [_faithful(report.faithful)]),
        Section("The rules", _rules(report)),
    ]
    facts = [("model", report.model), ("task", report.task), ("texts", f"{report.texts:,} of {report.on}")]
    if report.loss is not None:
        facts.append(("loss", f"{report.loss.value:.4f} nats a {report.unit}, {report.predictions:,} of them"))
    return html(Page(f"What each head does: {report.model}", _summary(report), sections, facts))


def heads_fragment(report: HeadReport) -> str:
    """The picture alone, for notebooks."""
    data = base64.b64encode(render(draw_heads(report), "svg")).decode("ascii")
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{_alt(report)}" style="max-width:100%;background:#fff"/>'


def _alt(report: HeadReport) -> str:
    named = sum(bool(head.rules) for head in report.heads)
    return f"a grid of {len(report.heads)} heads, of which {named} meet a rule"


def _summary(report: HeadReport) -> str:
    counts: dict[str, int] = {}
    for head in report.heads:
        counts[head.rule] = counts.get(head.rule, 0) + 1
    found = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f"{len(report.heads)} head{'s' if len(report.heads) > 1 else ''}: {found}."


def _heads_picture(report: HeadReport) -> Picture:
    framed = ["Framed: the heads without which the loss rises most."] if report.marked() else []
    return Picture(render(draw_heads(report, words=False), "svg"), " ".join([*report.meaning(), *framed]), _alt(report))


def _role(report: HeadReport, role: str) -> Section:
    parts: list[Table | Picture | str] = [_heads_table(report, role)]
    if any(head.offsets for head in report.of(role)):
        own = "as far through the source as the query is through the target" if role == "cross" else "the query's own"
        caption = (
            f"Mean weight by distance: place 0 (orange) is {own}, to the left is what comes before. One scale for all."
        )
        parts.append(
            Picture(render(draw_offsets(report, role), "svg"), caption, "mean weight by distance, for each head")
        )
    return Section(NAMES[role], parts)


def _columns(report: HeadReport, role: str) -> list[str]:
    """The rules that get a column: all, but those of two and three places away only where one holds."""
    heads = report.of(role)
    known = [rule.name for rule in rules_for(role) if any(rule.name in head.measures for head in heads)]
    return [name for name in known if not name[0].isdigit() or any(name in head.rules for head in heads)]


def _heads_table(report: HeadReport, role: str) -> Table:
    rules, marked, removed = _columns(report, role), report.marked(), report.loss is not None
    layers: dict[int, list[Row]] = {}
    for head in report.of(role):
        best = frozenset(place + removed for place, name in enumerate(rules) if name in head.rules)
        if (head.role, head.layer, head.head) in marked:
            best |= {0}
        layers.setdefault(head.layer, []).append(
            Row(
                f"head {head.head}",
                [_removed(head)][:removed] + [_value(head, name) for name in rules],
                head.rule,
                best,
            )
        )
    return Table(
        [*["loss without it"][:removed], *rules],
        [Group(f"layer {layer}", rows) for layer, rows in layers.items()],
        "Each number is the mean weight on what the rule names (of broad: entropy, of alignment: share of words); bold: the "
        "rule holds, or the head is among those that matter most.",
    )


def _removed(head: Head) -> str:
    return "" if head.removal is None else head.removal.signed(4)


def _value(head: Head, rule: str) -> str:
    return f"{head.measures[rule].value:.2f}" if rule in head.measures else ""


def _rules(report: HeadReport) -> list[Table | Picture | str]:
    used = [RULES[name] for name in RULES if any(name in head.measures for head in report.heads)]
    rows = [Row(rule.name, [f"{rule.threshold:g}", _chance(report, rule.name)], rule.keys) for rule in used]
    reasons: dict[tuple[float, str], list[str]] = {}
    for rule in used:
        reasons.setdefault((rule.threshold, rule.why), []).append(rule.name)
    return [
        "A rule holds where (value - even) / (1 - even) reaches its threshold, where even is what an even map has. The rule "
        "that is farthest beyond its threshold, in proportion, names the head.",
        Table(["threshold", "even map"], [Group("", rows)]),
        *(f"{threshold:g} ({', '.join(names)}): {why}." for (threshold, why), names in reasons.items()),
    ]


def _chance(report: HeadReport, name: str) -> str:
    found = sorted({f"{head.measures[name].chance:.2f}" for head in report.heads if name in head.measures})
    if name == "broad":
        return "1"
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _induction(found: Induction) -> Section:
    rows = []
    for (layer, head), score in found.scores.items():
        best = frozenset({0}) if found.holds and (layer, head) in found.heads else frozenset[int]()
        rows.append(Row(f"head {layer}.{head}", [f"{score:.3f}", f"{found.previous[layer, head]:.3f}"], "", best))
    columns = ["behind the first occurrence", "token before"]
    return Section("Induction", [*found.sentences(), Table(columns, [Group("", rows)])])


def _faithful(found: Faithfulness) -> Section:
    rows = []
    for each in found.maps:
        numbers = [f"{each.score.value:.2f}", each.score.interval(), f"{each.drop:.2f}", f"{each.hits:.0%}"]
        rows.append(Row(each.name, numbers))
    columns = ["score", "95% interval", "falls by, nats", "is the best word"]
    return Section("Faithfulness of maps", [*found.sentences(), Table(columns, [Group("", rows)])])
