"""The report of a comparison on disk: report.json, report.html, and the figures as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.compare.translation import LEAST, Entry, LengthBucket, Report, decoding, nothing_learned
from regard.files import finite, write_bytes, write_json, write_text
from regard.look.comparison import Bars, Column, Curve, MapPanel
from regard.look.figures.comparison import draw_by_length, draw_learning
from regard.look.figures.map import draw_side_by_side
from regard.look.figures.sheet import render
from regard.look.pages.report import Group, Page, Picture, ReportRow, ReportTable, Section, html
from regard.training.stopwatch import duration

SIGNIFICANT = 0.05


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write everything; the files, the page first."""
    figures = draw_figures(report)
    written = []
    pictures: dict[str, bytes] = {}
    for name, figure in figures.items():
        pictures[name] = render(figure, "svg")
        written.append(write_bytes(folder / f"{name}.png", render(figure, "png")))
        written.append(write_bytes(folder / f"{name}.svg", pictures[name]))
    page = write_text(folder / "report.html", html(make_page(report, pictures)))
    return [page, write_json(folder / "report.json", finite(report.data())), *written]


# --- Figures


def draw_figures(report: Report) -> dict[str, Figure]:
    """By name; a figure that would be empty is not there."""
    entries = report.entries
    figures = {}
    if report.buckets:
        columns = [Column(span(bucket), bucket.sentences, bucket.joined) for bucket in report.buckets]
        figures["bleu-by-length"] = draw_by_length(columns, [_bars(entry) for entry in entries], report.unit)
    if any(entry.attention.layers for entry in entries):
        panels = [MapPanel(e.name, e.attention.map() if e.attention.layers else None) for e in entries]
        figures["attention"] = draw_side_by_side(panels, f"{report.example.source} → {report.example.target}")
    if any(entry.training is not None and entry.training.looks for entry in entries):
        figures["learning"] = draw_learning([_curve(entry) for entry in entries])
    return figures


def _bars(entry: Entry) -> Bars:
    scores = entry.by_length
    return Bars(entry.name, [s.value for s in scores], [s.low for s in scores], [s.high for s in scores])


def _curve(entry: Entry) -> Curve:
    looks = entry.training.looks if entry.training is not None else ()
    values = {key: [look.metrics.get(key, math.nan) for look in looks] for key in ("bleu", "loss")}
    return Curve(entry.name, [look.seconds / 60 for look in looks], values["bleu"], values["loss"])


def span(bucket: LengthBucket) -> str:
    return str(bucket.low) if bucket.low == bucket.high else f"{bucket.low} to {bucket.high}"


# --- The page


def make_page(report: Report, pictures: dict[str, bytes]) -> Page:
    names = [entry.name for entry in report.entries]
    sections = [Section("Numbers", [ReportTable(names, _groups(report), _numbers_caption(report))])]
    captions = {
        "bleu-by-length": ("BLEU by length of the source", length_caption(report)),
        "attention": ("Where they look", attention_caption(report)),
        "learning": ("What they learned, when", LEARNING_CAPTION),
    }
    for name, (title, caption) in captions.items():
        if name in pictures:
            sections.append(Section(title, [Picture(pictures[name], caption, f"{title}: {caption}")]))
    if len(names) > 2:
        sections.insert(1, Section("Is it luck?", [ReportTable(names, [Group("", _p_rows(report))], P_CAPTION)]))
    if report.notes:
        sections.append(Section("Keep in mind", list(report.notes)))
    return Page(title_of(report), summary(report), sections, facts(report))


def _numbers_caption(report: Report) -> str:
    return (
        f"{report.sentences:,} test sentences. The best number of a line is in colour. Intervals and p tell what the luck of "
        "drawing these sentences may do; each model was trained once, and what another seed may do they do not tell."
    )


def title_of(report: Report) -> str:
    return " · ".join(entry.name for entry in report.entries)


def summary(report: Report) -> str:
    """One sentence from the numbers: which is best, by how much, and whether that could be luck."""
    order = sorted(range(len(report.entries)), key=lambda place: -report.entries[place].bleu.value)
    best, second = (report.entries[place] for place in order[:2])
    budget = "" if report.budget is None else f"Within {duration(report.budget)} of training each, "
    if nothing_learned(report.entries):
        scores = ", ".join(f"{entry.name} {entry.bleu.value:.1f}" for entry in report.entries)
        nothing = f"nothing was learned yet that could tell the models apart: BLEU under {LEAST:g} ({scores})."
        return f"{budget}{nothing if budget else nothing[:1].upper() + nothing[1:]}"
    exact = "" if best.exact is None else f", {best.exact:.1f}% exactly right"
    lead = best.bleu.value - second.bleu.value
    p_value = report.p_values[order[0]][order[1]]
    assert p_value is not None
    if lead == 0:
        return f"{budget}{best.name} and {second.name} score the same: BLEU {best.bleu.value:.1f}{exact}."
    verdict = "more than luck" if p_value < SIGNIFICANT else "which may be luck"
    return (
        f"{budget}{best.name} scores highest: BLEU {best.bleu.value:.1f} (95% interval {best.bleu.low:.1f} to "
        f"{best.bleu.high:.1f}{exact}), {lead:.1f} above {second.name}, {verdict} (p = {p_value:.3f})."
    )


P_CAPTION = (
    "p-values of the difference in BLEU, paired bootstrap with 1,000 resamples: how often the luck of drawing these test "
    "sentences alone makes such a difference. Below 0.05 in colour. Not corrected for the number of comparisons."
)
LEARNING_CAPTION = (
    "Validations over the time of training, which includes the validations themselves. BLEU here is of greedy search on the "
    "first validation sentences; loss is nats a token."
)


def length_caption(report: Report) -> str:
    joined = [bucket for bucket in report.buckets if bucket.joined > 1]
    more = (
        " Hollow marks: longer inputs made of neighbouring test sentences, joined by a space (source with source, target "
        "with target)."
        if joined
        else ""
    )
    return (
        f"Corpus BLEU of the test sentences in each range of source length, in {report.unit}; bars are 95% intervals by "
        f"bootstrap. The points of a range stand side by side only to be told apart.{more}"
    )


def attention_caption(report: Report) -> str:
    best = max(report.entries, key=lambda entry: entry.bleu.value)
    whose = "the reference" if report.example.reference else f"what {best.name} wrote"
    return (
        f"Mean over all layers and heads of the attention from each written token (rows) to the source (columns). Every "
        f"model was made to write the same target, {whose}, so that the rows are the same words."
    )


def facts(report: Report) -> list[tuple[str, str]]:
    """Under which conditions it was measured."""
    there = report.conditions
    found = [
        ("test set", f"{' '.join(report.on)}, {report.sentences:,} sentences"),
        ("training data", " ".join(report.training_data)),
        ("budget", "" if report.budget is None else f"{duration(report.budget)} of training for each"),
        (
            "machine",
            f"{there.machine}; {there.device}; cores for this process: {there.cores}; threads: {there.threads}",
        ),
        ("versions", ", ".join(f"{name} {version}" for name, version in there.versions.items())),
        ("tokens", _shared([entry.tokens for entry in report.entries])),
        ("decoding", _shared([decoding(entry.decode) for entry in report.entries])),
        ("BLEU", report.entries[0].bleu.signature),
        ("chrF", report.entries[0].chrf.signature),
    ]
    return [(name, value) for name, value in found if value]


def _shared(values: list[str]) -> str:
    """The value that all models share; empty where they differ, and the table shows each."""
    return values[0] if len(set(values)) == 1 else ""


# --- The table of numbers

Value = Callable[[Entry], float | None]


def _groups(report: Report) -> list[Group]:
    groups = [
        Group("Quality on the test set", _quality(report)),
        Group("Attention against the true alignment of the dates", _attention(report)),
        Group("Training", _training(report)),
        Group("Size and speed", _size_and_speed(report)),
    ]
    return [group for group in groups if group.rows]


def _quality(report: Report) -> list[ReportRow]:
    rows = [
        _measure(report, "BLEU", lambda e: e.bleu.value, "{:.1f}", +1),
        ReportRow("95% interval", [f"{e.bleu.low:.1f} to {e.bleu.high:.1f}" for e in report.entries]),
        ReportRow(
            "difference", [_against(e, "difference", "{:+.1f}") for e in report.entries], f"to {report.entries[0].name}"
        ),
        ReportRow("p", [_against(e, "p_value", "{:.3f}") for e in report.entries], "that it is luck, paired bootstrap"),
        _measure(report, "chrF", lambda e: e.chrf.value, "{:.1f}", +1),
        _measure(report, "exactly right", lambda e: e.exact, "{:.1f}%", +1),
    ]
    return [row for row in rows if any(row.cells)]


def _against(entry: Entry, value: str, form: str) -> str:
    return "" if entry.against_first is None else form.format(getattr(entry.against_first, value))


def _attention(report: Report) -> list[ReportRow]:
    """Only for dates; a model without attention says none."""
    if all(entry.alignment is None for entry in report.entries):
        return []
    mean = _measure(report, "alignment error, mean map", _alignment("mean"), "{:.1%}", -1, "none", "0% is perfect")
    hint = "chosen on validation dates, scored on test dates"
    best = _measure(report, "alignment error, best head", _alignment("best"), "{:.1%}", -1, "none", hint)
    names = [head_name(entry) or "none" for entry in report.entries]
    return [mean, best, ReportRow("which head", names)]


def _alignment(which: str) -> Value:
    return lambda entry: None if entry.alignment is None else getattr(entry.alignment, which)


def head_name(entry: Entry) -> str:
    """Both counted from 0, as the options of `regard translate --attention` count them."""
    found = entry.alignment
    return "" if found is None else f"layer {found.layer}, head {found.head}"


def _training(report: Report) -> list[ReportRow]:
    history: list[ReportRow] = [
        ReportRow("time", [_of(e, lambda t: duration(t.seconds)) for e in report.entries], "validations included"),
        ReportRow("steps", [_of(e, lambda t: f"{t.steps:,}") for e in report.entries]),
        _measure(report, "tokens seen", _history("tokens"), "{:,}", 0),
        _measure(report, "tokens a second", _history("tokens_per_second"), "{:,.0f}", +1),
        _measure(report, "validation loss", _validation("loss"), "{:.3f}", -1, hint="of the weights that were kept"),
        _measure(report, "validation BLEU", _validation("bleu"), "{:.1f}", +1, hint="greedy, first sentences"),
        ReportRow("weights kept", [_of(e, lambda t: t.weights) for e in report.entries]),
    ]
    return [row for row in history if any(row.cells)]


def _size_and_speed(report: Report) -> list[ReportRow]:
    kinds, names, tokens = zip(*((entry.kind, entry.name, entry.tokens) for entry in report.entries), strict=True)
    return [
        *([] if kinds == names else [ReportRow("kind", kinds)]),
        *([] if len(set(tokens)) == 1 else [ReportRow("tokens", tokens)]),
        _measure(report, "parameters", lambda e: e.parameters, "{:,}", -1),
        _measure(report, "on disk", lambda e: e.size / 1e6, "{:.1f} MB", -1),
        _measure(report, "sentences a second", lambda e: e.sentences_per_second, "{:,.0f}", +1, hint="of decoding"),
    ]


def _measure(
    report: Report, name: str, value: Value, form: str, better: int, none: str = "", hint: str = ""
) -> ReportRow:
    """A row of one number for each model; the best is marked (`better`: +1 more, -1 less, 0 neither)."""
    values = [value(entry) for entry in report.entries]
    known = [each for each in values if each is not None and math.isfinite(each)]
    cells = [none if each is None else form.format(each) for each in values]
    if not known:
        return ReportRow(name, [""] * len(cells), hint)
    best = form.format(max(known) if better > 0 else min(known))
    unlike = better and len(set(cells)) > 1
    return ReportRow(name, cells, hint, frozenset(place for place, cell in enumerate(cells) if unlike and cell == best))


def _history(name: str) -> Value:
    return lambda entry: None if entry.training is None else getattr(entry.training, name)


def _validation(metric: str) -> Value:
    return lambda entry: None if entry.training is None else entry.training.validation.get(metric)


def _of(entry: Entry, say: Callable[[Any], str]) -> str:
    return "" if entry.training is None else say(entry.training)


def _p_rows(report: Report) -> list[ReportRow]:
    def row(entry: Entry, values: Sequence[float | None]) -> ReportRow:
        cells = ["" if value is None else f"{value:.3f}" for value in values]
        low = frozenset(place for place, value in enumerate(values) if value is not None and value < SIGNIFICANT)
        return ReportRow(entry.name, cells, "", low)

    return [row(entry, values) for entry, values in zip(report.entries, report.p_values, strict=True)]
