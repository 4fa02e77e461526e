"""Reports as one HTML page: no script, nothing loaded from elsewhere, readable on light and dark screens and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.look.figures.heads import draw_heads, draw_offsets
from regard.look.figures.sheet import render
from regard.look.heads import Faithfulness, Head, HeadReport, Induction
from regard.look.pages import template
from regard.look.roles import RULES, rules_for
from regard.look.sentence import NAMES

LONGEST_NUMBER = 16  # characters: a cell with more holds words


@dataclass(frozen=True)
class ReportRow:
    """A line of a table: its name, what it means, a cell for each column, and which of them are best."""

    name: str
    cells: Sequence[str]
    hint: str = ""
    best: frozenset[int] = frozenset()

    @property
    def wordy(self) -> bool:
        """Whether a cell holds words, which may take several lines."""
        return max(map(len, self.cells), default=0) > LONGEST_NUMBER


@dataclass(frozen=True)
class Group:
    """Rows under one heading."""

    name: str
    rows: Sequence[ReportRow]


@dataclass(frozen=True)
class ReportTable:
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
    parts: Sequence[ReportTable | Picture | str]  # a text is a paragraph


@dataclass(frozen=True)
class Page:
    title: str
    summary: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]]  # name and value, at the end


def html(page: Page) -> str:
    """Return the whole page. Text from anywhere is safe in it: nothing is markup, and control codes are shown."""
    return template.render("report.html", title=page.title, page=page)


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
    """Return the grid alone, for notebooks."""
    address = template.data_uri(render(draw_heads(report), "svg"), "image/svg+xml")
    return template.render("picture.html", address=address, alt=_alt(report))


def _alt(report: HeadReport) -> str:
    named = sum(1 for head in report.heads if head.rules)
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
    parts: list[ReportTable | Picture | str] = [_heads_table(report, role)]
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


def _heads_table(report: HeadReport, role: str) -> ReportTable:
    rules, marked = _columns(report, role), report.marked()
    first = [] if report.loss is None else ["loss without it"]  # a column before those of the rules
    layers: dict[int, list[ReportRow]] = {}
    for head in report.of(role):
        removed = [] if report.loss is None else [_removed(head)]
        best = frozenset(place for place, name in enumerate(rules, len(first)) if name in head.rules)
        if (head.role, head.layer, head.head) in marked:
            best |= {0}
        cells = [*removed, *(_value(head, name) for name in rules)]
        layers.setdefault(head.layer, []).append(ReportRow(f"head {head.head}", cells, head.rule, best))
    return ReportTable(
        [*first, *rules],
        [Group(f"layer {layer}", rows) for layer, rows in layers.items()],
        "Each number is the mean weight on what the rule names (of broad: entropy, of alignment: share of words); bold: the "
        "rule holds, or the head is among those that matter most.",
    )


def _removed(head: Head) -> str:
    return "" if head.removal is None else head.removal.signed(4)


def _value(head: Head, rule: str) -> str:
    return f"{head.measures[rule].value:.2f}" if rule in head.measures else ""


def _rules(report: HeadReport) -> list[ReportTable | Picture | str]:
    used = [RULES[name] for name in RULES if any(name in head.measures for head in report.heads)]
    rows = [ReportRow(rule.name, [f"{rule.threshold:g}", _chance(report, rule.name)], rule.keys) for rule in used]
    reasons: dict[tuple[float, str], list[str]] = {}
    for rule in used:
        reasons.setdefault((rule.threshold, rule.why), []).append(rule.name)
    return [
        "A rule holds where (value - even) / (1 - even) reaches its threshold, where even is what an even map has. The rule "
        "that is farthest beyond its threshold, in proportion, names the head.",
        ReportTable(["threshold", "even map"], [Group("", rows)]),
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
        rows.append(ReportRow(f"head {layer}.{head}", [f"{score:.3f}", f"{found.previous[layer, head]:.3f}"], "", best))
    columns = ["behind the first occurrence", "token before"]
    return Section("Induction", [*found.sentences(), ReportTable(columns, [Group("", rows)])])


def _faithful(found: Faithfulness) -> Section:
    rows = []
    for each in found.maps:
        numbers = [f"{each.score.value:.2f}", each.score.interval(), f"{each.drop:.2f}", f"{each.hits:.0%}"]
        rows.append(ReportRow(each.name, numbers))
    columns = ["score", "95% interval", "falls by, nats", "is the best word"]
    return Section("Faithfulness of maps", [*found.sentences(), ReportTable(columns, [Group("", rows)])])
