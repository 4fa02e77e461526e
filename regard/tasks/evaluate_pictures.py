"""Score a model that sees on a test set: labels, captions or answers, with their uncertainty, and speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np
import torch

from regard.data.named_files import LeftOut
from regard.data.pictures.augment import normalise
from regard.data.pictures.load import SHAPES, as_part, read_asked, read_captioned, read_pictures, renamed
from regard.data.pictures.store import PictureStore
from regard.decode.config import DecodeOptions
from regard.errors import RegardError
from regard.evaluate.captions import CaptionScores, score_captions
from regard.evaluate.classification import ClassificationScores, score_labels, top_k_accuracy
from regard.evaluate.translation import exact_match
from regard.files import JSON
from regard.predictor import Cancel, Result, check_cancel
from regard.tasks.answer.predictor import QuestionAnswerer
from regard.tasks.caption.predictor import Captioner
from regard.tasks.caption.recipe import source_of, written
from regard.tasks.classify_pictures.predictor import PictureLabeller

TOGETHER = 256
DRAWN = 1000  # pictures of a built-in test set
OnProgress = Callable[[int, int], None] | None


@dataclass(frozen=True, eq=False)
class PictureEvaluation(Result):
    """The scores of a classifier, or of a model that answers, on a test set."""

    scores: ClassificationScores
    top_5: float
    predicted: np.ndarray  # (N,) numbers of labels
    wanted: np.ndarray  # (N,)
    seconds: float
    samples: dict[tuple[int, int], list[np.ndarray]]  # (wanted, predicted) -> a few pictures
    notes: tuple[str, ...] = ()  # what was left out of the test set
    left_out: tuple[LeftOut, ...] = ()  # each of it

    def data(self) -> dict[str, JSON]:
        found = {**self.scores.data(), "top_5": self.top_5, "items": len(self.wanted), "seconds": self.seconds}
        return {**found, **_told(self.notes, self.left_out)}


@dataclass(frozen=True, eq=False)
class CaptionEvaluation(Result):
    """The scores of a writer of captions on a test set."""

    scores: CaptionScores
    exact: float | None  # percent; only of drawn scenes, which have one right caption
    outputs: list[str]
    seconds: float
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def data(self) -> dict[str, JSON]:
        exact = {} if self.exact is None else {"exact": self.exact}
        found = {**self.scores.data(), **exact, "pictures": len(self.outputs), "seconds": self.seconds}
        return {**found, **_told(self.notes, self.left_out)}


def _told(notes: Sequence[str], left_out: Sequence[LeftOut]) -> dict[str, JSON]:
    return {"notes": list(notes), "left_out": [{"name": name, "why": why} for name, why in left_out]}


def evaluate_pictures(
    predictor: PictureLabeller,
    names: Sequence[str],
    data_root: Path | None = None,
    progress: OnProgress = None,
    cancel: Cancel | None = None,
) -> PictureEvaluation:
    """Classify the pictures of a test set and compare."""
    found = renamed(read_pictures(names, data_root, DRAWN), predictor.labels)
    part, notes = as_part(found, predictor.format)
    started, shares = time.perf_counter(), []
    for start in range(0, len(part.rows), TOGETHER):
        check_cancel(cancel)
        shares.append(predictor.probabilities(part.store.take(part.rows[start : start + TOGETHER]), start))
        if progress is not None:
            progress(min(start + TOGETHER, len(part.rows)), len(part.rows))
    told, seconds = np.concatenate(shares), time.perf_counter() - started
    predicted = told.argmax(axis=1)
    scores = score_labels(predicted.tolist(), part.labels.tolist(), predictor.labels)
    samples = _samples(predicted, part.labels, part.store, part.rows)
    top_5 = top_k_accuracy(told, part.labels.tolist(), min(5, told.shape[1]))
    left_out = part.store.left_out
    return PictureEvaluation(scores, top_5, predicted, part.labels, seconds, samples, notes, left_out)


def evaluate_captions(
    predictor: Captioner,
    names: Sequence[str],
    data_root: Path | None = None,
    cancel: Cancel | None = None,
    **options: Unpack[DecodeOptions],
) -> CaptionEvaluation:
    """Caption the pictures of a test set and compare with all captions that people wrote."""
    part = read_captioned(names, predictor.format, data_root, DRAWN)
    source = source_of(predictor.model, part.store, predictor.format)
    started = time.perf_counter()
    outputs = written(predictor, source, part.rows, cancel, **options)
    seconds = time.perf_counter() - started
    drawn = names[0].startswith(SHAPES)
    exact = exact_match(outputs, [each[0] for each in part.captions]) if drawn else None
    scores = score_captions(outputs, part.captions)
    return CaptionEvaluation(scores, exact, outputs, seconds, part.notes, part.store.left_out)


def evaluate_answers(
    predictor: QuestionAnswerer,
    names: Sequence[str],
    data_root: Path | None = None,
    progress: OnProgress = None,
    cancel: Cancel | None = None,
) -> PictureEvaluation:
    """Answer the questions of a test set and compare."""
    asked = read_asked(names, predictor.format, data_root, DRAWN)
    place = {answer: number for number, answer in enumerate(predictor.labels)}
    unknown = sorted(set(asked.answers) - place.keys())
    if unknown:
        raise RegardError(f"the test set has answers that the model never learned: {', '.join(unknown[:5])}")
    source = source_of(predictor.model, asked.store, predictor.format)
    started, shares = time.perf_counter(), []
    for start in range(0, len(asked.rows), TOGETHER):
        check_cancel(cancel)
        shown = torch.from_numpy(source.take(asked.rows[start : start + TOGETHER]))
        pixels = normalise(shown.permute(0, 3, 1, 2), predictor.format) if shown.dtype == torch.uint8 else shown
        shares.append(
            predictor.probabilities(pixels.to(predictor.device), asked.questions[start : start + TOGETHER], start)
        )
        if progress is not None:
            progress(min(start + TOGETHER, len(asked.rows)), len(asked.rows))
    told, seconds = np.concatenate(shares), time.perf_counter() - started
    predicted, wanted = told.argmax(axis=1), np.array([place[answer] for answer in asked.answers])
    scores = score_labels(predicted.tolist(), wanted.tolist(), predictor.labels)
    top_5, left_out = top_k_accuracy(told, wanted.tolist(), min(5, told.shape[1])), asked.store.left_out
    return PictureEvaluation(scores, top_5, predicted, wanted, seconds, {}, asked.notes, left_out)


def _samples(
    predicted: np.ndarray, wanted: np.ndarray, store: PictureStore, rows: np.ndarray, most: int = 4
) -> dict[tuple[int, int], list[np.ndarray]]:
    """A few pictures of each confusion."""
    places: dict[tuple[int, int], list[int]] = {}
    for place in (predicted != wanted).nonzero()[0]:
        places.setdefault((int(wanted[place]), int(predicted[place])), []).append(int(rows[place]))
    return {pair: list(store.take(np.array(some[:most]))) for pair, some in places.items()}
