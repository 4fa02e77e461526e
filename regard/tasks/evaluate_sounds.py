"""Score a model that hears on a test set: labels or transcripts, with their uncertainty, and speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from regard.data.named_files import LeftOut
from regard.data.sound.batches import SpeechBatches
from regard.data.sound.load import SoundPart, as_part
from regard.data.sound.sets import Told, read_sounds
from regard.data.sound.waves import Sound
from regard.decode.config import DecodeOptions
from regard.errors import RegardError
from regard.evaluate.classification import ClassificationScores, score_labels
from regard.evaluate.words import WordScores, score_words
from regard.files import JSON
from regard.predictor import Result
from regard.tasks.classify_sounds.predictor import LONGEST, SoundLabeller
from regard.tasks.transcribe.predictor import Transcriber
from regard.tasks.transcribe.recipe import written
from regard.tokens import PAD, as_arrays

TOGETHER = 64
MADE = 500  # sounds of a built-in test set
FRAMES = 1 << 30  # a batch of validation is not planned here
OnProgress = Callable[[int, int], None] | None


@dataclass(frozen=True, eq=False)
class SoundEvaluation(Result):
    """The scores of a classifier of sounds on a test set."""

    scores: ClassificationScores
    predicted: np.ndarray  # (N,) numbers of labels
    wanted: np.ndarray  # (N,)
    seconds: float
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def data(self) -> dict[str, JSON]:
        return {**self.scores.data(), "items": len(self.wanted), "seconds": self.seconds, "notes": list(self.notes)}


@dataclass(frozen=True, eq=False)
class SpeechEvaluation(Result):
    """The scores of a transcriber on a test set."""

    scores: WordScores
    outputs: list[str]
    wanted: list[str]
    seconds: float  # of computing
    heard: float  # seconds of sound
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def data(self) -> dict[str, JSON]:
        found = {**self.scores.data(), "sounds": len(self.outputs), "seconds": self.seconds, "heard": self.heard}
        return {**found, "notes": list(self.notes)}


def evaluate_sounds(model: SoundLabeller, names: Sequence[str], progress: OnProgress = None) -> SoundEvaluation:
    """Classify the sounds of a test set and compare."""
    part, notes = _test(model, names, "label")
    unknown = sorted(set(part.told) - set(model.labels))
    if unknown:
        raise RegardError(f"{' '.join(names)} has labels that the model never learned: {', '.join(unknown[:5])}")
    wanted = np.array([model.labels.index(label) for label in part.told])
    started, predicted = time.perf_counter(), np.zeros(len(part), dtype=np.int64)
    for start in range(0, len(part), TOGETHER):
        waves = [
            Sound(part.store.wave(row), model.format.rate) for row in range(start, min(start + TOGETHER, len(part)))
        ]
        predicted[start : start + TOGETHER] = model.probabilities(waves, start).argmax(axis=1)
        if progress is not None:
            progress(min(start + TOGETHER, len(part)), len(part))
    seconds = time.perf_counter() - started
    scores = score_labels(predicted.tolist(), wanted.tolist(), model.labels)
    return SoundEvaluation(scores, predicted, wanted, seconds, notes, part.store.left_out)


def evaluate_speech(
    model: Transcriber, names: Sequence[str], ctc: float | None = None, **options: Unpack[DecodeOptions]
) -> SpeechEvaluation:
    """Transcribe the sounds of a test set and compare, with texts spelled as the model could write them."""
    part, notes = _test(model, names, "text")
    ids = as_arrays(model.tokenizer.encode_all(part.told), begin=True)
    batches = SpeechBatches(part, ids, FRAMES, 0, fill=PAD)
    started = time.perf_counter()
    found = written(model, batches, np.arange(len(part)), ctc, **options)
    seconds = time.perf_counter() - started
    wanted = [model.spelled(text) for text in part.told]
    heard = float(part.store.seconds.sum())
    return SpeechEvaluation(score_words(found, wanted), found, wanted, seconds, heard, notes, part.store.left_out)


def _test(model: SoundLabeller | Transcriber, names: Sequence[str], told: Told) -> tuple[SoundPart, tuple[str, ...]]:
    found = read_sounds(names, told, size=MADE)
    part = as_part(found, model.format, LONGEST)
    return part, (*found.notes, *part.store.notes)
