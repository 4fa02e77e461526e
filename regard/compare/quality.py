"""Several models of one task other than translation, on one test set: quality and whether it differs, size, speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from regard.bundle import read_config
from regard.compare.conditions import Conditions, conditions
from regard.compare.contenders import Contender
from regard.errors import RegardError, UsageError
from regard.evaluate.classification import mcnemar
from regard.look.words import WeighedText
from regard.runs import bundle_folder
from regard.tasks.comparison import Comparison, OnProgress, TestData
from regard.tasks.table import part_of
from regard.tasks.trained import load_model
from regard.training.history import History, read_history


def comparison_of(task: str) -> Comparison:
    """How models of a task are compared, as its record says."""
    found: Comparison | None = part_of(task, "comparison")
    if found is None:
        raise UsageError(f"models to {task} cannot be compared", "let the task's record name a comparison")
    return found


def read_test(
    task: str,
    contenders: Sequence[Contender],
    on: Sequence[str],
    columns: Mapping[str, str] = MappingProxyType({}),
    notes: list[str] | None = None,
) -> TestData:
    """Read a test set; check that it asks for nothing that the models do not learn."""
    comparison = comparison_of(task)
    test = comparison.read(on, contenders[0], columns, notes)
    for contender in contenders if test.wanted else ():
        known = _labels(comparison, contender)
        unknown = sorted(test.wanted - known)
        if unknown:
            raise RegardError(
                f"{' '.join(on)} has {comparison.labels} that {contender.name} does not learn: {', '.join(unknown[:5])}",
                f"it learns {', '.join(sorted(known)[:8])}",
            )
    return test


def _labels(comparison: Comparison, contender: Contender) -> set[str]:
    """The labels that a model tells apart: those of its bundle, or of the data that it is to learn from."""
    if contender.config is None:
        return set(read_config(bundle_folder(contender.word)).labels)
    return comparison.learned(contender.config, contender.data_root)


@dataclass(frozen=True, eq=False)
class QualityEntry:
    """One model of a comparison: its scores by name, the main one first."""

    name: str
    run: str
    kind: str
    parameters: int
    training: History | None
    scores: dict[str, float]
    interval: tuple[float, float] | None  # of the main score, 95%
    p_value: float | None  # of the difference to the first model (McNemar); None for the first, and for language models
    rate: float  # of what is counted, a second
    looked: WeighedText | None = None

    def data(self) -> dict[str, object]:
        return {
            "name": self.name,
            "run": self.run,
            "kind": self.kind,
            "parameters": self.parameters,
            "steps": None if self.training is None else self.training.steps,
            "seconds": None if self.training is None else self.training.seconds,
            "scores": self.scores,
            "interval": None if self.interval is None else list(self.interval),
            "p_value": self.p_value,
            "rate": self.rate,
            "looked": None if self.looked is None else self.looked.data(),
        }


@dataclass(frozen=True, eq=False)
class QualityReport:
    """All that was found out."""

    task: str
    entries: tuple[QualityEntry, ...]
    on: tuple[str, ...]
    count: int  # of what `unit` says
    budget: float | None
    conditions: Conditions
    notes: tuple[str, ...] = ()  # what was left out of the test set
    unit: str = "items"  # what is counted

    def data(self) -> dict[str, object]:
        return {
            "task": self.task,
            "on": list(self.on),
            "count": self.count,
            "budget_seconds": self.budget,
            "runs": [entry.data() for entry in self.entries],
            "conditions": self.conditions.data(),
            "notes": list(self.notes),
        }


def compare_models(
    task: str,
    folders: Mapping[str, Path],
    test: TestData,
    *,
    sentence: str | None = None,
    budget: float | None = None,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> QualityReport:
    """Test every model on the same test set; `sentence` is the text that is looked at (one of the test set unless given)."""
    comparison, test = comparison_of(task), replace(test, sentence=sentence)
    entries: list[QualityEntry] = []
    first: list[bool] | None = None
    count, notes = 0, tuple[str, ...]()
    for name, folder in folders.items():
        model = load_model(folder, device)
        found = comparison.score(model, test, progress)
        p_value = None if first is None or found.right is None else mcnemar(first, found.right)
        first = found.right if first is None else first
        count, notes = found.count, found.notes
        entries.append(
            QualityEntry(
                name,
                str(folder),
                model.config.model.kind,
                sum(p.numel() for p in model.model.parameters()),
                read_history(folder),
                found.scores,
                found.interval,
                p_value,
                found.count / max(1e-9, found.seconds),
                found.looked,
            )
        )
    where = conditions(device)
    return QualityReport(comparison.task, tuple(entries), test.names, count, budget, where, notes, comparison.unit)
