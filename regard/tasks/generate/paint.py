"""What a model of pixels begins with, and what it wrote: sheets of pictures, pictures gone on with, and films."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import find_file
from regard.data.batch import text_batch
from regard.data.form import form_of, is_packed
from regard.data.notation import NOTATIONS
from regard.data.pictures.config import is_picture
from regard.errors import RegardError, UsageError, nearest
from regard.inspect.pixels import looks_of
from regard.look.pixels import ACROSS, PictureSheet, WritingFilm, as_picture
from regard.models.configs.pixels import BEFORE
from regard.predictor import Cancel
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.results import Generated
from regard.tokens.pixels import NO_LABEL, read_digits, with_label, write_digits

ROWS = 8  # pictures of a set that are gone on with
KEEP = 0.5  # share of the rows of a picture that is gone on with
FRAMES = 109  # of a film, at most: prime, so that they are of all columns
MOST_LABELS = 12  # that stand above the columns of a sheet


@dataclass(frozen=True)
class Beginning:
    """How a picture begins: its label, the first pixels, and the picture that these are of, if there is one."""

    text: str
    true: np.ndarray | None = None  # levels (rows, columns)


def check_pictures(generator: Generator) -> None:
    if not generator.writes_pictures:
        raise UsageError("this model writes no pictures", "name one that was trained on pictures")


def side_of(generator: Generator) -> int:
    """Height and width of the pictures of a model."""
    side = form_of(generator.config.tokens).side
    if side is None:
        raise RegardError("this model does not say how large its pictures are", "copy its bundle again")
    return side


def labels_of(generator: Generator) -> list[str]:
    """The labels that pictures had in training."""
    tokens = generator.config.tokens
    if tokens is None or tokens.labels_from is None:
        return []
    names = generator.tokenizer.vocabulary(generator.tokenizer.size)[tokens.labels_from :]
    return [name[1:-1] for name in names if name != NO_LABEL]


# --- What it begins with


def beginnings(generator: Generator, count: int = 1, label: str | None = None) -> list[Beginning]:
    """So many pictures from nothing: of a label, or of each label in turn."""
    check_pictures(generator)
    labels = [_checked(generator, label)] if label is not None else labels_of(generator) or [""]
    return [Beginning(f"<{labels[number % len(labels)]}>") for number in range(count)]


def continued(
    generator: Generator, start: str, count: int = 1, label: str | None = None, keep: float = KEEP
) -> list[Beginning]:
    """`count` times each picture of a file, of which the upper rows are kept; of a set of pictures, the first eight.

    Where nobody says what a picture shows, it is the label under which what is kept is likeliest.
    """
    check_pictures(generator)
    side = side_of(generator)
    if not 0 <= keep < 1:
        raise UsageError(f"--keep {keep:g} is no share of a picture to keep", "give a number from 0 to below 1")
    found = list[Beginning]()
    for text in _texts(generator, start):
        levels, own = read_digits(with_label(text))
        given = levels[: round(keep * side) * side]
        said = _known(generator, own, given) if label is None else _checked(generator, label)
        found += [Beginning(write_digits(given, said), levels.reshape(side, side))] * count
    return found


def _known(generator: Generator, label: str, given: np.ndarray) -> str:
    """The label of a picture, if the model knows it; else that under which these first pixels are likeliest."""
    known = labels_of(generator)
    return label if label in known or not known else likeliest_label(generator, given)


@torch.inference_mode()
def likeliest_label(generator: Generator, given: np.ndarray) -> str:
    """The label under which the first pixels of a picture are likeliest."""
    labels, ids = labels_of(generator), []
    for label in labels:
        ids.append(np.array([generator.tokenizer.specials.begin, *generator.encoded(write_digits(given, label))]))
    if not len(given):
        return labels[0]
    losses = []
    for each in ids:
        batch = text_batch([each], skip=BEFORE - 1).to(generator.device)
        losses.append(float(generator.model(batch).parts["nll"].sum))
    return labels[int(np.argmin(losses))]


def _texts(generator: Generator, start: str) -> list[str]:
    path, form, notation = find_file(start), form_of(generator.config.tokens), NOTATIONS["pixels"]
    if is_packed(path):
        texts: Iterable[str] = notation.unpack([path], form)
        return list(islice(texts, ROWS))
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if is_picture(file))
        return [notation.read(file, "" if file.parent == path else file.parent.name, form) for file in files[:ROWS]]
    if not is_picture(path):
        raise UsageError(f"{start} is none of the pictures that this model goes on with", "name a .png file")
    return [notation.read(path, "", form)]


def _checked(generator: Generator, label: str) -> str:
    known = labels_of(generator)
    if label not in known:
        raise UsageError(f"this model knows no label {label}", nearest(label, known) if known else "leave out --label")
    return label


# --- What it wrote


def written(
    generator: Generator,
    begins: Sequence[Beginning],
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
    **options: Any,  # of decoding
) -> list[Generated]:
    """Write pictures that begin so, many together; `progress` is told pixels."""
    texts = [each.text for each in begins]
    options.pop("n_best", None)
    return generator.generate(texts, progress=progress, cancel=cancel, **options)


def painted(generator: Generator, begins: Sequence[Beginning], **options: Any) -> PictureSheet:
    """A sheet of pictures that begin so; `options` are those of decoding."""
    return sheet_of(generator, begins, written(generator, begins, **options))


def sheet_of(generator: Generator, begins: Sequence[Beginning], found: Sequence[Generated]) -> PictureSheet:
    """The pictures that were written, beside the true ones where they went on from such."""
    side, count = side_of(generator), form_of(generator.config.tokens).levels
    pictures = []
    for begin, each in zip(begins, found, strict=True):
        levels, label = read_digits(str(each))
        pictures.append(as_picture(levels, side, label, given=len(read_digits(begin.text)[0])))
    true, last = list[np.ndarray](), None
    for begin in begins:  # equal beginnings stand together
        if begin.true is not None and begin.true is not last:
            true.append(begin.true)
        last = begin.true
    labels = [each.label for each in pictures]
    across = _across(labels)
    heads = tuple(labels[:across]) if across == len(set(labels)) > 1 else ()
    title = f"{generator.config.model.kind}: {len(pictures)} written"
    return PictureSheet(tuple(pictures), count, tuple(true), across, heads, title)


def _across(labels: Sequence[str]) -> int:
    """How many stand beside each other: one of each label, if there are not too many; else eight, or a square."""
    different = len(set(labels))
    if 1 < different <= MOST_LABELS and different < len(labels):
        return different
    return min(ACROSS, max(1, math.ceil(math.sqrt(len(labels)))))


def film_of(
    generator: Generator,
    begin: Beginning,
    found: Generated,
    *,
    layer: int | None = None,
    head: int | None = None,
    frames: int = FRAMES,
    pixel: int | None = None,
) -> WritingFilm:
    """How one picture was written, and where the model looked: evenly spread pixels, or a single one."""
    text, side = with_label(str(found)), side_of(generator)
    levels, label = read_digits(text)
    given = len(read_digits(begin.text)[0])
    if len(levels) <= given:
        raise UsageError("nothing was written of this picture", "keep less of it, or write more pixels")
    places = tuple(given + number * (len(levels) - given) // frames for number in range(frames))
    shown = tuple(sorted(set(places))) if pixel is None else (pixel,)
    ids = generator.encoded(text)
    looks, how = looks_of(
        generator, generator.read_ids(ids), [generator.tokenizer.specials.begin, *ids], shown, layer, head
    )
    whole = np.zeros((len(shown), side * side))
    whole[:, : looks.shape[1]] = looks
    picture = as_picture(levels, side, label, given)
    title = f"{generator.config.model.kind}{f', {label}' if label else ''}: one pixel after the other, in the order of reading"
    return WritingFilm(picture, form_of(generator.config.tokens).levels, shown, whole, how, title)


def pixels_of(
    generator: Generator, file: str, layer: int | None = None, head: int | None = None, word: str | None = None
) -> WritingFilm:
    """Where a model looks as it reads a picture in a file, pixel by pixel; `word` is the number of a single one, from 0."""
    check_pictures(generator)
    side = side_of(generator)
    if word is not None and not (word.isdecimal() and int(word) < side**2):
        raise UsageError(f"no pixel {word}", f"give a number from 0 to {side**2 - 1}")
    levels, label = read_digits(_texts(generator, file)[0])
    begin = Beginning(write_digits(levels[:0], _known(generator, label, levels)), levels.reshape(side, side))
    read = Generated(begin.text, write_digits(levels)[len(NO_LABEL) :], 0.0, 0.0, (), (), True)
    pixel = None if word is None else int(word)
    return film_of(generator, begin, read, layer=layer, head=head, pixel=pixel)


def save_written(generator: Generator, begins: Sequence[Beginning], found: Sequence[Generated], path: Path) -> Path:
    """A sheet of all (.png, .json) or a film of the first (.gif, .html)."""
    if path.suffix.lower() in (".gif", ".html"):
        return film_of(generator, begins[0], found[0]).save(path)
    return sheet_of(generator, begins, found).save(path)
