"""Pictures as a configuration names them, with labels, captions or questions: read, fitted, kept, and some held out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from regard.config import find_file
from regard.data.builtin.glyphs import FONTS, TEST_FONTS, glyphs
from regard.data.builtin.scenes import scenes
from regard.data.pictures.captions import read_captions, read_questions
from regard.data.pictures.config import CaptionsConfig, PictureFormat, PicturesConfig, QuestionsConfig, SeenConfig
from regard.data.pictures.decode import PictureError, read_picture
from regard.data.pictures.sets import PictureSet, read_picture_set
from regard.data.pictures.store import OnProgress, PictureStore, open_store
from regard.errors import RegardError, UsageError

GLYPHS = "builtin/glyphs"
SMALL, USUAL = 96, 64  # pictures up to so many pixels stay as they are; larger ones are fitted into so many
SAMPLE = 2000  # pictures whose mean and deviation are taken
CHUNK = 512


@dataclass(frozen=True, eq=False)
class PicturePart:
    """Pictures of a store that belong together, each with its label."""

    store: PictureStore
    rows: np.ndarray  # (N,) places in the store
    labels: np.ndarray  # (N,)


@dataclass(frozen=True, eq=False)
class LabelledPictures:
    """All that a classifier of pictures learns from."""

    train: PicturePart
    valid: PicturePart
    names: tuple[str, ...]
    format: PictureFormat
    notes: tuple[str, ...]


def load_pictures(
    config: PicturesConfig, data_root: Path | None = None, progress: OnProgress | None = None
) -> LabelledPictures:
    """Training and validation pictures with the names of their classes."""
    found = read_pictures(config.train, data_root, size=config.builtin_size)
    picture_format = format_for(config, found)
    train, notes = as_part(found, picture_format, progress)
    if config.valid or config.train == (GLYPHS,):
        names = config.valid or (f"{GLYPHS}/valid",)
        held = read_pictures(names, data_root, size=min(config.hold_out, config.builtin_size))
        valid, more = as_part(renamed(held, found.names), picture_format, progress)
    else:
        inside = held_out(train.store, train.rows, config.hold_out)
        valid = PicturePart(train.store, train.rows[inside], train.labels[inside])
        train = PicturePart(train.store, train.rows[~inside], train.labels[~inside])
        more = (f"no validation pictures: held out {len(valid.rows):,}",)
    picture_format = with_statistics(picture_format, train.store, train.rows)
    return LabelledPictures(train, valid, found.names, picture_format, (*notes, *more))


def read_pictures(names: Sequence[str], data_root: Path | None, size: int = 1000) -> PictureSet:
    """A set of labelled pictures by its name or names."""
    if names[0].startswith(GLYPHS):
        return _drawn(names[0], size)
    return read_picture_set([find_file(name, data_root) for name in names])


def _drawn(name: str, size: int) -> PictureSet:
    seeds = {GLYPHS: 1, f"{GLYPHS}/valid": 2, f"{GLYPHS}/test": 3}
    if name not in seeds:
        raise UsageError(f"no built-in pictures {name}", f"there are {', '.join(seeds)}")
    fonts = TEST_FONTS if name.endswith("/test") else FONTS  # a test also asks for fonts that were never seen
    arrays, labels, names = glyphs(size, seeds[name], fonts=fonts)
    return PictureSet(arrays=arrays, labels=labels, names=names)


def format_for(config: SeenConfig, found: PictureSet) -> PictureFormat:
    """How large the pictures are that a model sees: as asked, or as they are if they are small."""
    height, width, channels = shape_of(found)
    small = height == width <= SMALL
    return PictureFormat(size=config.size or (height if small else USUAL), channels=channels, fit=config.fit)


def shape_of(found: PictureSet) -> tuple[int, int, Literal[1, 3]]:
    """Height, width and channels of the first picture that can be read; files are taken to be coloured."""
    if found.arrays is not None:
        _, height, width, channels = found.arrays.shape
        return height, width, 1 if channels == 1 else 3
    for path in found.paths:
        try:
            height, width, _ = read_picture(path).shape
            return height, width, 3
        except PictureError:
            continue
    raise RegardError(f"none of {len(found.paths):,} pictures can be read", f"the first is {found.paths[0]}")


def as_part(
    found: PictureSet, picture_format: PictureFormat, progress: OnProgress | None = None
) -> tuple[PicturePart, tuple[str, ...]]:
    """The pictures of a set, decoded and fitted; broken ones are left out, and it is told."""
    assert found.labels is not None
    store = open_store(found, picture_format, progress=progress)
    return PicturePart(store, np.arange(len(store)), found.labels[store.kept]), (*found.notes, *store.notes)


def renamed(held: PictureSet, names: tuple[str, ...]) -> PictureSet:
    """The validation set with its labels numbered as in training."""
    unknown = sorted(set(held.names) - set(names))
    if unknown:
        raise RegardError(f"validation has classes that training has not: {', '.join(unknown[:5])}")
    assert held.labels is not None
    places = np.array([names.index(name) for name in held.names])
    return replace(held, labels=places[held.labels], names=names)


def held_out(store: PictureStore, rows: np.ndarray, most: int) -> np.ndarray:
    """Which rows are held out, a tenth or about `most`: a hash of the pixels decides, so equal pictures stay together."""
    limit = int(min(0.1, most / len(rows)) * 2**64)
    inside = np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), CHUNK):
        pictures = store.take(rows[start : start + CHUNK])
        for place, picture in enumerate(pictures, start):
            digest = hashlib.blake2b(np.ascontiguousarray(picture).tobytes(), digest_size=8).digest()
            inside[place] = int.from_bytes(digest, "big") < limit
    if not inside.any() or inside.all():
        raise RegardError(f"{len(rows)} pictures are too few to hold some out", "name a validation set (data.valid)")
    return inside


def with_statistics(picture_format: PictureFormat, store: PictureStore, rows: np.ndarray) -> PictureFormat:
    """The format with mean and deviation of each channel, of evenly spread training pictures."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(int)]
    pixels = store.take(np.unique(chosen)).reshape(-1, picture_format.channels) / 255.0
    mean, deviation = pixels.mean(axis=0), np.maximum(pixels.std(axis=0), 1e-3)
    return picture_format.model_copy(
        update={
            "mean": tuple(round(float(m), 4) for m in mean),
            "deviation": tuple(round(float(d), 4) for d in deviation),
        }
    )


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
    config: CaptionsConfig, data_root: Path | None = None, progress: OnProgress | None = None
) -> tuple[Captioned, Captioned, PictureFormat, tuple[str, ...]]:
    """Training and validation captions, what the pictures are fitted into, and what to tell."""
    pictures, captions, notes = _captions(config.train, data_root, config.builtin_size)
    picture_format = format_for(config, pictures)
    store = open_store(pictures, picture_format, progress=progress)
    train = Captioned(store, np.arange(len(store)), [captions[place] for place in store.kept])
    notes += store.notes
    if config.valid or config.train == (SHAPES,):
        held, texts, more = _captions(config.valid or (f"{SHAPES}/valid",), data_root, _few(config))
        other = open_store(held, picture_format, progress=progress)
        valid = Captioned(other, np.arange(len(other)), [texts[place] for place in other.kept])
        notes += (*more, *other.notes)
    else:
        inside = held_out(store, train.rows, config.hold_out)
        train, valid = _split_captions(train, inside)
        notes += (f"no validation pictures: held out {len(valid.rows):,}",)
    return train, valid, with_statistics(picture_format, store, train.rows), notes


def load_questions(
    config: QuestionsConfig, data_root: Path | None = None, progress: OnProgress | None = None
) -> tuple[Asked, Asked, PictureFormat, tuple[str, ...]]:
    """Training and validation questions, what the pictures are fitted into, and what to tell."""
    pictures, asked, notes = _questions(config.train, data_root, config.builtin_size)
    picture_format = format_for(config, pictures)
    store = open_store(pictures, picture_format, progress=progress)
    train = _of_kept(store, asked)
    notes += store.notes
    if config.valid or config.train == (SHAPES,):
        held, others, more = _questions(config.valid or (f"{SHAPES}/valid",), data_root, _few(config))
        other = open_store(held, picture_format, progress=progress)
        valid = _of_kept(other, others)
        notes += (*more, *other.notes)
    else:
        inside = held_out(store, np.arange(len(store)), config.hold_out)[train.rows]
        train, valid = _some(train, ~inside), _some(train, inside)
        notes += (f"no validation pictures: held out those of {len(valid.rows):,} questions",)
    return train, valid, with_statistics(picture_format, store, np.unique(train.rows)), notes


def read_captioned(
    names: Sequence[str], picture_format: PictureFormat, data_root: Path | None = None, size: int = 1000
) -> Captioned:
    """A test set of captions, its pictures fitted as a model sees them."""
    pictures, captions, notes = _captions(names, data_root, size)
    store = open_store(pictures, picture_format)
    kept = [captions[place] for place in store.kept]
    return Captioned(store, np.arange(len(store)), kept, (*notes, *store.notes))


def read_asked(
    names: Sequence[str], picture_format: PictureFormat, data_root: Path | None = None, size: int = 1000
) -> Asked:
    """A test set of questions, its pictures fitted as a model sees them."""
    pictures, asked, notes = _questions(names, data_root, size)
    store = open_store(pictures, picture_format)
    return replace(_of_kept(store, asked), notes=(*notes, *store.notes))


Row = tuple[int, str, str]  # the number of a picture, a question, its answer


def _captions(
    names: Sequence[str], data_root: Path | None, size: int
) -> tuple[PictureSet, list[tuple[str, ...]], tuple[str, ...]]:
    if names[0].startswith(SHAPES):
        drawn = _scenes(size, _seed(names[0]))
        return PictureSet(arrays=drawn.pictures), [(caption,) for caption in drawn.captions], ()
    found = read_captions(find_file(_one(names), data_root))
    return PictureSet(paths=found.paths, left_out=found.left_out), list(found.captions), found.notes


def _questions(
    names: Sequence[str], data_root: Path | None, size: int
) -> tuple[PictureSet, list[Row], tuple[str, ...]]:
    if names[0].startswith(SHAPES):
        drawn = _scenes(size, _seed(names[0]))
        rows = [(place, *each) for place, questions in enumerate(drawn.questions) for each in questions]
        return PictureSet(arrays=drawn.pictures), rows, ()
    found = read_questions(find_file(_one(names), data_root))
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
        raise UsageError(f"no built-in pictures {name}", f"there are {', '.join(SEEDS)}")
    return SEEDS[name]


def _one(names: Sequence[str]) -> str:
    if len(names) != 1:
        raise RegardError(f"name one file of pictures and texts, not {len(names)}")
    return names[0]
