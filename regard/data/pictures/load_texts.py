"""Pictures with texts, as a configuration names them: captions to write, or questions to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from regard.config import find_file
from regard.data.pictures.captions import read_captions, read_questions
from regard.data.pictures.config import CaptionsConfig, QuestionsConfig, SeenConfig
from regard.data.pictures.format import PictureFormat
from regard.data.pictures.load import format_for, held_out, with_statistics
from regard.data.pictures.sets import PictureSet
from regard.data.pictures.shapes import scenes
from regard.data.pictures.store import PictureStore, Progress, open_store
from regard.errors import RegardError, UsageError

SHAPES = "builtin/shapes"
_scenes = lru_cache(maxsize=3)(scenes)  # of one size: drawing 20,000 takes a quarter of a minute
SEEDS = {SHAPES: 1, f"{SHAPES}/valid": 2, f"{SHAPES}/test": 3}


@dataclass(frozen=True, eq=False)
class Captioned:
    """Pictures of a store, each with its captions."""

    store: PictureStore
    rows: np.ndarray  # (N,) places in the store
    captions: list[tuple[str, ...]]  # of each picture
    notes: tuple[str, ...] = ()  # what was left out


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions, each about a picture of a store, with its answer."""

    store: PictureStore
    rows: np.ndarray  # (N,) the picture of each question
    questions: list[str]
    answers: list[str]
    notes: tuple[str, ...] = ()  # what was left out


def load_captions(
    config: CaptionsConfig, beside: Path | None = None, progress: Progress | None = None
) -> tuple[Captioned, Captioned, PictureFormat, tuple[str, ...]]:
    """Training and validation captions, what the pictures are fitted into, and what to tell."""
    pictures, captions, notes = _captions(config.train, beside, config.builtin_size)
    format = format_for(config, pictures)
    store = open_store(pictures, format, progress=progress)
    train = Captioned(store, np.arange(len(store)), [captions[place] for place in store.kept])
    notes += store.notes
    if config.valid or config.train == (SHAPES,):
        held, texts, more = _captions(config.valid or (f"{SHAPES}/valid",), beside, _few(config))
        other = open_store(held, format, progress=progress)
        valid = Captioned(other, np.arange(len(other)), [texts[place] for place in other.kept])
        notes += (*more, *other.notes)
    else:
        inside = held_out(store, train.rows, config.hold_out)
        train, valid = _split_captions(train, inside)
        notes += (f"no validation pictures: held out {len(valid.rows):,}",)
    return train, valid, with_statistics(format, store, train.rows), notes


def load_questions(
    config: QuestionsConfig, beside: Path | None = None, progress: Progress | None = None
) -> tuple[Asked, Asked, PictureFormat, tuple[str, ...]]:
    """Training and validation questions, what the pictures are fitted into, and what to tell."""
    pictures, asked, notes = _questions(config.train, beside, config.builtin_size)
    format = format_for(config, pictures)
    store = open_store(pictures, format, progress=progress)
    train = _of_kept(store, asked)
    notes += store.notes
    if config.valid or config.train == (SHAPES,):
        held, others, more = _questions(config.valid or (f"{SHAPES}/valid",), beside, _few(config))
        other = open_store(held, format, progress=progress)
        valid = _of_kept(other, others)
        notes += (*more, *other.notes)
    else:
        inside = held_out(store, np.arange(len(store)), config.hold_out)[train.rows]
        train, valid = _some(train, ~inside), _some(train, inside)
        notes += (f"no validation pictures: held out those of {len(valid.rows):,} questions",)
    return train, valid, with_statistics(format, store, np.unique(train.rows)), notes


def read_captioned(
    names: Sequence[str], format: PictureFormat, beside: Path | None = None, size: int = 1000
) -> Captioned:
    """A test set of captions, its pictures fitted as a model sees them."""
    pictures, captions, notes = _captions(names, beside, size)
    store = open_store(pictures, format)
    kept = [captions[place] for place in store.kept]
    return Captioned(store, np.arange(len(store)), kept, (*notes, *store.notes))


def read_asked(names: Sequence[str], format: PictureFormat, beside: Path | None = None, size: int = 1000) -> Asked:
    """A test set of questions, its pictures fitted as a model sees them."""
    pictures, asked, notes = _questions(names, beside, size)
    store = open_store(pictures, format)
    return replace(_of_kept(store, asked), notes=(*notes, *store.notes))


Row = tuple[int, str, str]  # the number of a picture, a question, its answer


def _captions(
    names: Sequence[str], beside: Path | None, size: int
) -> tuple[PictureSet, list[tuple[str, ...]], tuple[str, ...]]:
    if names[0].startswith(SHAPES):
        drawn = _scenes(size, _seed(names[0]))
        return PictureSet(arrays=drawn.pictures), [(caption,) for caption in drawn.captions], ()
    found = read_captions(find_file(_one(names), beside))
    return PictureSet(paths=found.paths, left_out=found.left_out), list(found.captions), found.notes


def _questions(names: Sequence[str], beside: Path | None, size: int) -> tuple[PictureSet, list[Row], tuple[str, ...]]:
    if names[0].startswith(SHAPES):
        drawn = _scenes(size, _seed(names[0]))
        rows = [(place, *each) for place, questions in enumerate(drawn.questions) for each in questions]
        return PictureSet(arrays=drawn.pictures), rows, ()
    found = read_questions(find_file(_one(names), beside))
    rows = list(zip(found.pictures.tolist(), found.questions, found.answers, strict=True))
    return PictureSet(paths=found.paths, left_out=found.left_out), rows, found.notes


def _of_kept(store: PictureStore, asked: Sequence[Row]) -> Asked:
    """The questions whose pictures could be read."""
    place = {int(kept): row for row, kept in enumerate(store.kept)}
    known = [each for each in asked if each[0] in place]
    rows = np.array([place[each[0]] for each in known], dtype=np.int64)
    return Asked(store, rows, [each[1] for each in known], [each[2] for each in known])


def _some(asked: Asked, which: np.ndarray) -> Asked:
    chosen = which.nonzero()[0]
    questions, answers = ([texts[row] for row in chosen] for texts in (asked.questions, asked.answers))
    return Asked(asked.store, asked.rows[chosen], questions, answers)


def _split_captions(whole: Captioned, inside: np.ndarray) -> tuple[Captioned, Captioned]:
    parts = []
    for which in (~inside, inside):
        chosen = which.nonzero()[0]
        parts.append(Captioned(whole.store, whole.rows[chosen], [whole.captions[row] for row in chosen]))
    return parts[0], parts[1]


def _few(config: SeenConfig) -> int:
    return min(config.hold_out, config.builtin_size)


def _seed(name: str) -> int:
    if name not in SEEDS:
        raise UsageError(f"no built-in pictures {name}; there are {', '.join(SEEDS)}")
    return SEEDS[name]


def _one(names: Sequence[str]) -> str:
    if len(names) != 1:
        raise RegardError(f"name one file of pictures and texts, not {len(names)}")
    return names[0]
