"""Several models of one task other than translation, on one test set: quality and whether it differs, size, speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.labelled import Labelled
from regard.evaluate.classification import mcnemar
from regard.look.words import WeighedText
from regard.tasks.classify import TextClassifier
from regard.tasks.conditions import Conditions, conditions
from regard.tasks.evaluate_labels import evaluate_labels
from regard.tasks.evaluate_pictures import evaluate_answers, evaluate_captions, evaluate_pictures
from regard.tasks.evaluate_text import evaluate_text
from regard.tasks.trained import load_model
from regard.training.history import History, read_history

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class OtherEntry:
    """One model of a comparison: its scores by name, the main one first."""

    name: str
    run: str
    kind: str
    parameters: int
    training: History | None
    scores: dict[str, float]
    interval: tuple[float, float] | None  # of the main score, 95%
    p_value: float | None  # of the difference to the first model (McNemar); None for the first, and for language models
    rate: float  # texts or tokens a second
    looked: WeighedText | None = None

    def data(self) -> dict[str, Any]:
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
class OtherReport:
    """All that was found out."""

    task: str
    entries: tuple[OtherEntry, ...]
    on: tuple[str, ...]
    count: int  # texts, or tokens
    budget: float | None
    conditions: Conditions
    notes: tuple[str, ...] = ()  # what was left out of the test set

    def data(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "on": list(self.on),
            "count": self.count,
            "budget_seconds": self.budget,
            "runs": [entry.data() for entry in self.entries],
            "conditions": self.conditions.data(),
            "notes": list(self.notes),
        }


def compare_classifiers(
    folders: dict[str, Path],
    texts: Sequence[Labelled],
    *,
    on: Sequence[str],
    sentence: str | None = None,
    budget: float | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> OtherReport:
    """Classify the same texts with every model; `sentence` is what is looked at (one of the test set unless given)."""
    entries: list[OtherEntry] = []
    first: list[bool] | None = None
    example = Labelled(sentence, "") if sentence is not None else _typical(texts)
    for name, folder in folders.items():
        model: TextClassifier = load_model(folder, device, "classify")
        found = evaluate_labels(model, texts, progress)
        p_value = None if first is None else mcnemar(first, found.right)
        first = found.right if first is None else first
        entries.append(
            OtherEntry(
                name,
                str(folder),
                model.config.model.kind,
                sum(p.numel() for p in model.model.parameters()),
                read_history(folder),
                {"accuracy": found.scores.accuracy, "macro F1": found.scores.macro_f1},
                (found.scores.low, found.scores.high),
                p_value,
                len(texts) / max(1e-9, found.seconds),
                model.look(example.text, example.second, example.heads),
            )
        )
    return OtherReport("classify", tuple(entries), tuple(on), len(texts), budget, conditions(device))


def compare_language_models(
    folders: dict[str, Path],
    *,
    on: Sequence[str],
    budget: float | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> OtherReport:
    """Read the same text with every model. Losses of different tokens do not compare; bits for each byte do."""
    entries, count, notes = [], 0, tuple[str, ...]()
    for name, folder in folders.items():
        model = load_model(folder, device)
        found = evaluate_text(model, on, progress=progress)
        notes = found.notes
        scores = {"bits per byte": found.bits_per_byte} if found.bits_per_byte is not None else {}
        count = found.tokens
        entries.append(
            OtherEntry(
                name,
                str(folder),
                model.config.model.kind,
                sum(p.numel() for p in model.model.parameters()),
                read_history(folder),
                {**scores, "perplexity": found.perplexity, "loss": found.loss},
                None,
                None,
                found.tokens / max(1e-9, found.seconds),
            )
        )
    return OtherReport("generate", tuple(entries), tuple(on), count, budget, conditions(device), notes)


def compare_seeing(
    task: str,
    folders: dict[str, Path],
    *,
    on: Sequence[str],
    budget: float | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> OtherReport:
    """Show the same pictures to every model."""
    entries: list[OtherEntry] = []
    first: list[bool] | None = None
    count, notes = 0, tuple[str, ...]()
    for name, folder in folders.items():
        model = load_model(folder, device)
        scores, interval, right, seconds, count, notes = _seen(task, model, on, progress)
        p_value = None if first is None or right is None else mcnemar(first, right)
        first = right if first is None else first
        size = sum(p.numel() for p in model.model.parameters())
        kind, history = model.config.model.kind, read_history(folder)
        rate = count / max(1e-9, seconds)
        entries.append(OtherEntry(name, str(folder), kind, size, history, scores, interval, p_value, rate))
    return OtherReport(task, tuple(entries), tuple(on), count, budget, conditions(device), notes)


def _seen(
    task: str, model: Any, on: Sequence[str], progress: Progress | None
) -> tuple[dict[str, float], tuple[float, float], list[bool] | None, float, int, tuple[str, ...]]:
    """Scores, interval of the first, which items are right (captions: None), seconds, how many items, what was left out."""
    if task == "caption":
        written = evaluate_captions(model, on)
        found = written.scores
        scores = {"BLEU-4": found.bleu4, "CIDEr-D": 100 * found.cider_d, "ROUGE-L": found.rouge_l}
        return scores, found.bleu4_interval, None, written.seconds, len(written.outputs), written.notes
    told = (evaluate_answers if task == "answer" else evaluate_pictures)(model, on, progress=progress)
    scores = {"accuracy": told.scores.accuracy, "macro F1": told.scores.macro_f1}
    right = [bool(same) for same in told.predicted == told.wanted]
    return scores, (told.scores.low, told.scores.high), right, told.seconds, len(right), told.notes


def _typical(texts: Sequence[Labelled]) -> Labelled:
    """A text of the middle length: neither a word nor a novel."""
    return sorted(texts, key=lambda each: (len(each.text), each.text))[len(texts) // 2]
