"""The report of a check, as data: findings by how much they matter, sizes, and what covers what. Who shows it is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from regard.files import JSON

Severity = Literal["error", "warning", "fine"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "fine")
NO_ROWS = np.empty(0, dtype=np.int64)

CHECKED = (
    "translate",
    "classify",
    "generate",
    "fill",
    "classify-pictures",
    "caption",
    "answer",
)  # tasks whose data is known


@dataclass(frozen=True)
class Example:
    """Where something was found, and the texts that stand there."""

    place: str  # "pairs.tsv:12"
    texts: tuple[str, ...] = ()
    note: str = ""  # why, where the texts do not tell it

    def data(self) -> dict[str, JSON]:
        return {"place": self.place, "texts": list(self.texts), "note": self.note}


@dataclass(frozen=True)
class Finding:
    """One thing that was found: how often, how bad, where, and what would help."""

    kind: str  # "duplicates", the same word in every report
    severity: Severity
    what: str  # "pairs come more than once"
    advice: str  # what would help
    count: int
    total: int  # of how many
    set: str = "train"
    examples: tuple[Example, ...] = ()
    rows: np.ndarray = field(default_factory=lambda: NO_ROWS, repr=False, compare=False)  # all of them, from 0

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else 0.0

    def data(self) -> dict[str, JSON]:
        return {
            "kind": self.kind,
            "severity": self.severity,
            "set": self.set,
            "what": self.what,
            "advice": self.advice,
            "count": self.count,
            "total": self.total,
            "share": self.share,
            "examples": [example.data() for example in self.examples],
        }


@dataclass(frozen=True)
class PartSize:
    """How much text one side or column has."""

    name: str
    words: int
    characters: int
    types: int  # different words
    once: float  # share of the types that occur once
    median: float  # words of an example
    most: float  # words that 95% of the examples do not exceed
    longest: int

    def data(self) -> dict[str, JSON]:
        return dict(vars(self))


@dataclass(frozen=True)
class SetSize:
    """How much a set has: training, validation or test."""

    name: str
    files: tuple[str, ...]
    examples: int
    parts: tuple[PartSize, ...] = ()

    def data(self) -> dict[str, JSON]:
        parts = [part.data() for part in self.parts]
        return {"name": self.name, "files": list(self.files), "examples": self.examples, "parts": parts}


@dataclass(frozen=True)
class Coverage:
    """How many of the words of a held-out set training has."""

    set: str
    part: str
    words: float  # share of the running words
    types: float  # share of the different words

    def data(self) -> dict[str, JSON]:
        return dict(vars(self))


@dataclass(frozen=True)
class Report:
    """All that a check found."""

    task: str
    unit: str  # "pairs"
    sets: tuple[SetSize, ...]
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity:
        """The worst of all findings."""
        return next((each for each in SEVERITIES if self.count(each)), "fine")

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One line: whether to train on it, and how much there is to look at."""
        errors, warnings = self.count("error"), self.count("warning")
        look = f"{warnings} thing{'s' * (warnings != 1)} to look at"
        if errors:
            mend = f"mend {errors} thing{'s' * (errors != 1)} before training"
            return f"{mend}; {look} besides" if warnings else mend
        return f"fit to train on; {look if warnings else 'nothing stands out'}"

    def find(self, kind: str) -> Finding | None:
        """The finding of a kind, if there is one."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def data(self) -> dict[str, JSON]:
        return {
            "task": self.task,
            "severity": self.severity,
            "verdict": self.verdict,
            "sets": [each.data() for each in self.sets],
            "findings": [finding.data() for finding in self.findings],
            "coverage": [each.data() for each in self.coverage],
            "labels": [{"label": label, "count": count} for label, count in self.labels.items()],
            "notes": [str(note) for note in self.notes],
        }


def severity_of(share: float, warning: float, error: float) -> Severity:
    """How bad a share is, by the shares from which on it is a warning and an error."""
    return "error" if share >= error else "warning" if share >= warning else "fine"


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The worst first, of equals what touches most."""
    return tuple(sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), -each.share, each.kind)))
