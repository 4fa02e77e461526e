"""Several models of one task other than translation, on one test set: quality and whether it differs, size, speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from regard.bundle import read_config
from regard.compare.conditions import Conditions, conditions
from regard.compare.contenders import Contender
from regard.config import find_file
from regard.data.builtin.scenes import scenes
from regard.data.documents import read_documents
from regard.data.labelled import Labelled, load_labelled, read_labelled
from regard.data.pictures.captions import read_captions, read_questions
from regard.data.pictures.load import SEEDS, SHAPES, read_pictures
from regard.errors import RegardError, UsageError
from regard.evaluate.classification import mcnemar
from regard.look.words import WeighedText
from regard.runs import bundle_folder
from regard.tasks.classify.evaluate import KEYS, evaluate_labels, read_labelled_test
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.evaluate_pictures import DRAWN, evaluate_answers, evaluate_captions, evaluate_pictures
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.evaluate import evaluate_text, field_of
from regard.tasks.generate.predictor import Generator
from regard.tasks.trained import load_model
from regard.training.history import History, read_history

OnProgress = Callable[[int, int], None]


# --- The test set, read before anything is trained: what is wrong with it costs no training


def read_test(
    task: str,
    contenders: Sequence[Contender],
    on: Sequence[str],
    columns: Mapping[str, str] = MappingProxyType({}),
    notes: list[str] | None = None,
) -> list[Labelled]:
    """Check that a test set can be read and asks for nothing that the models do not learn; labelled texts are returned."""
    first, texts = contenders[0], list[Labelled]()
    wanted: set[str] = set()
    if task == "classify":
        texts = _test_texts(first, on, columns, notes)
        wanted = {each.label for each in texts}
    elif task == "classify-pictures":
        wanted = set(read_pictures(on, first.data_root, DRAWN).names)
    elif task in ("caption", "answer"):
        wanted = _test_answers(task, first, on)
    else:
        data: Any = None if first.config is None else first.config.data
        read_documents(on, first.data_root, columns.get("field") or (data.field if data else field_of(first.word)))
    for contender in contenders if wanted else ():
        known = _labels(task, contender)
        unknown = sorted(wanted - known)
        if unknown:
            raise RegardError(
                f"{' '.join(on)} has {'answers' if task == 'answer' else 'labels'} that {contender.name} does not learn: "
                f"{', '.join(unknown[:5])}",
                f"it learns {', '.join(sorted(known)[:8])}",
            )
    return texts


def _test_texts(
    first: Contender, on: Sequence[str], columns: Mapping[str, str], notes: list[str] | None
) -> list[Labelled]:
    """Labelled texts, laid out as those of training."""
    if first.config is None:
        return read_labelled_test(on, first.word, first.data_root, columns=columns, notes=notes)
    values = {key: value for key, value in first.config.data.model_dump().items() if key in KEYS}
    values |= {} if getattr(first.config.model, "positions", None) == "tree" else {"heads": ""}
    return read_labelled(on, data_root=first.data_root, notes=notes, **values | dict(columns))


def _test_answers(task: str, first: Contender, on: Sequence[str]) -> set[str]:
    """The answers that a test set asks for; of captions none."""
    if on[0].startswith(SHAPES):
        if on[0] not in SEEDS:
            raise UsageError(f"no built-in pictures {on[0]}", f"there are {', '.join(SEEDS)}")
        return set()
    file = find_file(on[0], first.data_root)
    if task == "caption":
        read_captions(file)
        return set()
    return set(read_questions(file).answers)


def _labels(task: str, contender: Contender) -> set[str]:
    """The labels that a model tells apart: those of its bundle, or of the data that it is to learn from."""
    if contender.config is None:
        return set(read_config(bundle_folder(contender.word)).labels)
    data: Any = contender.config.data
    if task == "classify":
        return set(load_labelled(data, contender.data_root).labels)
    if task == "classify-pictures":
        return set(read_pictures(data.train, contender.data_root, DRAWN).names)
    if data.train[0].startswith(SHAPES):
        return {answer for scene in scenes(DRAWN, SEEDS[data.train[0]]).questions for _, answer in scene}
    return set(read_questions(find_file(data.train[0], contender.data_root)).answers)


# --- Each model on the test set


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
    rate: float  # texts or tokens a second
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
    count: int  # texts, or tokens
    budget: float | None
    conditions: Conditions
    notes: tuple[str, ...] = ()  # what was left out of the test set

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


def compare_classifiers(
    folders: dict[str, Path],
    texts: Sequence[Labelled],
    *,
    on: Sequence[str],
    sentence: str | None = None,
    budget: float | None = None,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> QualityReport:
    """Classify the same texts with every model; `sentence` is what is looked at (one of the test set unless given)."""
    entries: list[QualityEntry] = []
    first: list[bool] | None = None
    example = Labelled(sentence, "") if sentence is not None else _typical(texts)
    for name, folder in folders.items():
        model = load_model(folder, device, "classify")
        assert isinstance(model, TextClassifier)
        found = evaluate_labels(model, texts, progress)
        p_value = None if first is None else mcnemar(first, found.right)
        first = found.right if first is None else first
        entries.append(
            QualityEntry(
                name,
                str(folder),
                model.config.model.kind,
                sum(p.numel() for p in model.model.parameters()),
                read_history(folder),
                {"accuracy": found.scores.accuracy, "macro F1": found.scores.macro_f1},
                (found.scores.low, found.scores.high),
                p_value,
                len(texts) / max(1e-9, found.seconds),
                model.look(example.text, example.second, example.parents),
            )
        )
    return QualityReport("classify", tuple(entries), tuple(on), len(texts), budget, conditions(device))


def compare_language_models(
    folders: dict[str, Path],
    *,
    on: Sequence[str],
    data_root: Path | None = None,
    field: str | None = None,
    budget: float | None = None,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> QualityReport:
    """Read the same text with every model. Losses of different tokens do not compare; bits for each byte do.

    `field` is the key of JSON Lines; without it, that of the first model's training.
    """
    entries, count, notes = [], 0, tuple[str, ...]()
    files = [name if name.startswith("builtin/") else str(find_file(name, data_root)) for name in on]
    key = field or field_of(next(iter(folders.values())))
    for name, folder in folders.items():
        model = load_model(folder, device)
        assert isinstance(model, Generator | Filler)
        found = evaluate_text(model, files, field=key, progress=progress)
        notes = found.notes
        scores = {"bits per byte": found.bits_per_byte} if found.bits_per_byte is not None else {}
        count = found.tokens
        entries.append(
            QualityEntry(
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
    return QualityReport("generate", tuple(entries), tuple(on), count, budget, conditions(device), notes)


def compare_seeing(
    task: str,
    folders: dict[str, Path],
    *,
    on: Sequence[str],
    data_root: Path | None = None,
    budget: float | None = None,
    device: str = "cpu",
    progress: OnProgress | None = None,
) -> QualityReport:
    """Show the same pictures to every model."""
    entries: list[QualityEntry] = []
    first: list[bool] | None = None
    count, notes = 0, tuple[str, ...]()
    for name, folder in folders.items():
        model = load_model(folder, device)
        scores, interval, right, seconds, count, notes = _seen(task, model, on, data_root, progress)
        p_value = None if first is None or right is None else mcnemar(first, right)
        first = right if first is None else first
        size = sum(p.numel() for p in model.model.parameters())
        kind, history = model.config.model.kind, read_history(folder)
        rate = count / max(1e-9, seconds)
        entries.append(QualityEntry(name, str(folder), kind, size, history, scores, interval, p_value, rate))
    return QualityReport(task, tuple(entries), tuple(on), count, budget, conditions(device), notes)


def _seen(
    task: str, model: Any, on: Sequence[str], data_root: Path | None, progress: OnProgress | None
) -> tuple[dict[str, float], tuple[float, float], list[bool] | None, float, int, tuple[str, ...]]:
    """Scores, interval of the first, which items are right (captions: None), seconds, how many items, what was left out."""
    if task == "caption":
        written = evaluate_captions(model, on, data_root)
        found = written.scores
        scores = {"BLEU-4": found.bleu4, "CIDEr-D": 100 * found.cider_d, "ROUGE-L": found.rouge_l}
        return scores, found.bleu4_interval, None, written.seconds, len(written.outputs), written.notes
    result = (evaluate_answers if task == "answer" else evaluate_pictures)(model, on, data_root, progress=progress)
    scores = {"accuracy": result.scores.accuracy, "macro F1": result.scores.macro_f1}
    right = [bool(same) for same in result.predicted == result.wanted]
    return scores, (result.scores.low, result.scores.high), right, result.seconds, len(right), result.notes


def _typical(texts: Sequence[Labelled]) -> Labelled:
    """A text of the middle length: neither a word nor a novel."""
    return sorted(texts, key=lambda each: (len(each.text), each.text))[len(texts) // 2]
