"""The check of texts with labels, and of plain text: balance, spelling of labels, contradictions, lengths."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from regard.check.findings import (
    Draft,
    broken_texts,
    conflicts,
    duplicates,
    leakage,
    unreadable,
    with_examples,
)
from regard.check.reading import Rows
from regard.check.report import Example, Finding, Report, in_order
from regard.check.scan import Grams, OnProgress, Scan, coverage, expect_grams, joined, scan
from regard.check.texts import spelling_of
from regard.errors import Advice, Setting

FEW = 5  # examples of a label from which on a model may learn it
LARGE = 20  # times as many as another label has
LONG = 400  # words of a text from which on its end is not read: 256 tokens are
LONG_LINE = 2000  # words of a line of plain text
REPEATED_WORDS = 5  # lines of fewer words come again without harm


def check_labelled(
    train: Rows,
    held_out: dict[str, Rows] | None = None,
    *,
    examples: int = 3,
    task: str = "classify",
    unit: str = "texts",
    progress: OnProgress | None = None,
) -> Report:
    """Check texts with a label each, and whether validation and test are apart from them."""
    found, others, grams = _scans(train, held_out or {}, "label", progress)
    whole = joined(*(column.exact for column in found.columns))
    drafts = [
        unreadable(found),
        *broken_texts(found, unit),
        duplicates(found, unit),
        conflicts(found, whole.tolist(), found.labels, "contradiction",
                  f"{unit} come with different labels", "decide which label is right, or leave both out", 0.001, 0.05),
        _long(found, unit),
    ]  # fmt: skip
    findings = with_examples(drafts, found, examples) + _labels(found, examples, unit)
    for other in others:
        held = [unreadable(other), *broken_texts(other, unit), *leakage(found, other, unit, grams)]
        findings += with_examples(held, other, examples) + unknown_labels(found.values, other.values, other.name)
    sizes = tuple(each.size() for each in (found, *others))
    covered = tuple(each for other in others for each in coverage(found, other))
    labels = dict(found.values.most_common())
    return Report(task, unit, sizes, in_order(findings), covered, labels, train.notes)


def check_plain(
    train: Rows,
    held_out: dict[str, Rows] | None = None,
    *,
    examples: int = 3,
    task: str = "generate",
    progress: OnProgress | None = None,
) -> Report:
    """Check plain text line by line (JSON Lines by documents), and whether validation and test are apart from it."""
    unit = "lines"
    found, others, grams = _scans(train, held_out or {}, None, progress)
    drafts = [
        unreadable(found),
        *_without_empty(found, unit),
        duplicates(found, unit, REPEATED_WORDS),
        _long_lines(found),
    ]
    findings = with_examples(drafts, found, examples)
    for other in others:
        held = [unreadable(other), *_without_empty(other, unit), *leakage(found, other, unit, grams, REPEATED_WORDS)]
        findings += with_examples(held, other, examples)
    sizes = tuple(each.size() for each in (found, *others))
    covered = tuple(each for other in others for each in coverage(found, other))
    return Report(task, unit, sizes, in_order(findings), covered, {}, train.notes)


def _scans(
    train: Rows, held_out: dict[str, Rows], label: str | None, progress: OnProgress | None
) -> tuple[Scan, list[Scan], Grams]:
    grams = Grams()
    for rows in held_out.values():
        expect_grams(rows, grams)
    found = scan(train, label=label, grams=grams, progress=progress)
    return found, [scan(rows, name, label=label) for name, rows in held_out.items()], grams


# --- Lengths


def _long(found: Scan, unit: str) -> Draft:
    rows = np.flatnonzero(np.asarray(found.columns[0].words) > LONG)
    advice = "of longer texts only the first 256 tokens are read (data.max_length): raise it, or shorten them"
    return Draft("long", rows, f"{unit} have over {LONG} words", advice, 0.05, 2.0)


def _long_lines(found: Scan) -> Draft:
    rows = np.flatnonzero(np.asarray(found.columns[0].words) > LONG_LINE)
    return Draft("long", rows, f"lines have over {LONG_LINE:,} words", "no harm, if these are documents", 0.5, 2.0)


def _without_empty(found: Scan, unit: str) -> list[Draft]:
    """Blank lines and lines of signs are part of a text."""
    return [draft for draft in broken_texts(found, unit) if draft.kind not in ("empty", "wordless", "script")]


# --- Labels


def _labels(found: Scan, examples: int, unit: str) -> list[Finding]:
    """Findings about the labels themselves."""
    values = found.values
    return [*few_labels(values, examples, unit), *imbalance(values, unit), *_spellings(values, examples)]


def few_labels(values: Counter[str], examples: int, unit: str) -> list[Finding]:
    """Labels with hardly any examples, and data with only one label."""
    total = values.total()
    if len(values) < 2:
        what = f"{unit} all have the label {next(iter(values), '')!r}"
        return [Finding("one-label", "error", what, "a classifier needs two labels or more", total, total)]
    rare = [(label, count) for label, count in values.items() if count < FEW]
    if not rare:
        return []
    shown = tuple(Example(label, (), f"{count} of {total:,}") for label, count in rare[:examples])
    what = f"labels have fewer than {FEW} examples"
    return [Finding("rare-labels", "warning", what, "find more of them, or join them with others", len(rare),
                    len(values), examples=shown)]  # fmt: skip


def imbalance(values: Counter[str], unit: str) -> list[Finding]:
    """One label that drowns another."""
    if len(values) < 2:
        return []
    (most, many), (least, few) = values.most_common()[0], values.most_common()[-1]
    if many < LARGE * max(1, few):
        return []
    what = f"{unit} have the label {most!r}, {many / max(1, few):,.0f} times as many as {least!r}"
    balanced = Setting("train.class_weights", "balanced")
    advice = Advice("look at macro F1 and not at accuracy; ", balanced, " weighs rare labels more")
    return [Finding("imbalance", "warning", what, advice, many, values.total())]


def _spellings(values: Counter[str], examples: int) -> list[Finding]:
    """Labels that only case, space and punctuation tell apart."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for label in values:
        groups[spelling_of(label)].append(label)
    alike = [labels for labels in groups.values() if len(labels) > 1]
    if not alike:
        return []
    shown = tuple(
        Example(" = ".join(map(repr, labels)), (), ", ".join(f"{values[label]:,}" for label in labels))
        for labels in alike[:examples]
    )
    what = "labels differ only in case, space or punctuation"
    count = sum(map(len, alike))
    return [Finding("label-spelling", "error", what, "write each label in one way", count, len(values), examples=shown)]


def unknown_labels(train: Counter[str], other: Counter[str], name: str) -> list[Finding]:
    """Labels of a held-out set that training lacks."""
    unknown = [label for label in other if label not in train]
    if not unknown:
        return []
    shown = tuple(Example(label, (), f"{other[label]:,} in {name}") for label in unknown[:5])
    what = f"labels of {name} are not in training"
    return [Finding("unknown-labels", "error", what, "training refuses them: add examples, or rename them",
                    len(unknown), len(other), name, shown)]  # fmt: skip
