"""Score a classifier on labelled texts it has not seen: accuracy with its uncertainty, F1, confusion, and speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from regard.config import Tables, check
from regard.data.config import LabelledConfig
from regard.data.labelled import Labelled, read_labelled
from regard.errors import RegardError
from regard.evaluate.classification import ClassificationScores, score_labels
from regard.files import JSON
from regard.models.config import reads_trees
from regard.predictor import Cancel, Result
from regard.runs import CONFIG, bundle_labels, read_run
from regard.tasks.classify.predictor import TextClassifier

KEYS = ("text", "label", "second", "heads", "label_first", "encoding")


@dataclass(frozen=True, eq=False)
class LabelEvaluation(Result):
    """The scores of a classifier on a test set."""

    scores: ClassificationScores
    predicted: np.ndarray  # (texts,) numbers of labels
    wanted: np.ndarray  # (texts,)
    seconds: float
    left_out: tuple[tuple[str, str], ...] = ()  # nothing: a text that cannot be read is an error

    @property
    def right(self) -> list[bool]:
        return [bool(same) for same in self.predicted == self.wanted]

    def data(self) -> dict[str, JSON]:
        return {**self.scores.data(), "texts": len(self.wanted), "seconds": self.seconds}


def evaluate_labels(
    classifier: TextClassifier,
    texts: Sequence[Labelled],
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
) -> LabelEvaluation:
    """Classify the texts and compare."""
    place = {label: number for number, label in enumerate(classifier.labels)}
    unknown = sorted({each.label for each in texts} - place.keys())
    if unknown:
        raise RegardError(
            f"the test set has labels that the model never learned: {', '.join(unknown[:5])}; "
            f"it knows {', '.join(classifier.labels[:8])}"
        )
    started = time.perf_counter()
    trees = [each.parents for each in texts] if reads_trees(classifier.config.model) else None
    shares = classifier.probabilities(
        [each.text for each in texts], [each.second for each in texts], progress, trees, cancel
    )
    seconds = time.perf_counter() - started
    wanted, predicted = np.array([place[each.label] for each in texts]), shares.argmax(axis=1)
    scores = score_labels(predicted.tolist(), wanted.tolist(), classifier.labels)
    return LabelEvaluation(scores, predicted, wanted, seconds)


def read_labelled_test(
    names: Sequence[str],
    run: str | Path,
    data_root: Path | None = None,
    *,
    columns: Mapping[str, Any] = MappingProxyType({}),
    notes: list[str] | None = None,
) -> list[Labelled]:
    """The texts of a test set, with columns as named, or else as those that the run was trained with.

    The labels that the model knows tell which column is theirs; `notes` get what was guessed.
    """
    values: Tables = {}
    if (Path(run) / CONFIG).exists():
        config: Any = read_run(run)["config"]
        values = {key: value for key, value in config.get("data", {}).items() if key in KEYS}
        values |= {} if config["model"].get("positions") == "tree" else {"heads": ""}
    values |= columns
    checked = check(LabelledConfig, values, str(run))
    values = {key: getattr(checked, key) for key in values}
    return read_labelled(names, data_root=data_root, known=frozenset(bundle_labels(run)), notes=notes, **values)
