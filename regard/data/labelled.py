"""Labelled texts from TSV, CSV, JSONL, lines that begin with their label, a folder for each label, or built-in ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from regard.config import find_file
from regard.data import held_out
from regard.data.builtin import listops
from regard.data.builtin.names import LANGUAGES, language_names, left_out
from regard.data.config import LabelledConfig, generated
from regard.data.corpora import apart_note, further_corpora
from regard.data.kept.cache import (
    Keep,
    Progress,
    data_key,
    keep_at_once,
    no_progress,
    notes_as_json,
    notes_from_json,
)
from regard.data.kept.journal import Build, Kept, State
from regard.data.labelled_files import Keys, Labelled, read_file, read_folders
from regard.data.labelled_rows import TEXT, WHOLE, GatheredLabelled, LabelledRows, whole_text
from regard.data.lines import text_size
from regard.errors import RegardError, UsageError

BUILTIN = "builtin/names"
LISTOPS = "builtin/listops"
SIZES = {"valid": 1000, "test": 2000}  # of generated texts; those of training are data.builtin_size


@dataclass(frozen=True)
class LabelledSets:
    """The texts of a run, the names of their labels (sorted), and sentences for the person."""

    train: Sequence[Labelled]
    valid: list[Labelled]
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    characters: int = 0  # to learn from
    pairs: bool = False  # whether each text has a second one
    key: str = ""  # under which they are kept; "": they are in memory
    unseen: np.ndarray = field(default_factory=lambda: held_out.NONE)  # hashes of what is validated and tested on
    different: np.ndarray = field(default_factory=lambda: held_out.NONE)  # hashes of the texts to learn from, sorted


def load_labelled(
    config: LabelledConfig,
    data_root: Path | None = None,
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
    apart: np.ndarray | None = None,
) -> LabelledSets:
    """Training and validation texts as the configuration names them, without those of further corpora.

    Those of large files are kept, and mapped. A further corpus has no validation: the texts `apart` (hashes) are left out.
    """
    key, make = partial(_key, config, data_root, apart), partial(_gather, config, data_root, progress, apart)
    found = keep("labelled", key, make)
    arrays, about = found.arrays, found.about
    held, back = (arrays[name].astype(np.int64) for name in ("held", "back"))
    rows = kept_texts(found)
    valid = [] if apart is not None else [*rows.at(np.setdiff1d(held, back)), *LabelledRows(arrays, about, "valid_")]
    train = rows if found.key else list(rows)
    notes, labels = notes_from_json(about["notes"]), tuple(about["labels"])
    hashes = arrays["unseen"], arrays.get("different", held_out.NONE)  # an older entry lacks the second
    return LabelledSets(train, valid, labels, notes, about["characters"], bool(about["paired"]), found.key, *hashes)


def kept_texts(found: Kept) -> LabelledRows:
    """The texts to learn from of an entry of the cache."""
    held, back = (found.arrays[name].astype(np.int64) for name in ("held", "back"))
    return LabelledRows(found.arrays, found.about, "", held, back)


def further_labelled(
    config: LabelledConfig,
    data_root: Path | None,
    main: LabelledSets,
    keep: Callable[[int], Keep],
    progress: Progress,
) -> list[LabelledSets]:
    """The texts of the further corpora, without those that the main one validates or tests on."""

    def load(table: LabelledConfig, kept: Keep, apart: np.ndarray) -> LabelledSets:
        return load_labelled(table, data_root, kept, progress, apart)

    found = further_corpora(config, main, load, keep, "texts")
    if any(each.pairs != main.pairs for each in found):
        raise RegardError(
            "some corpora have pairs of texts and some have not", "a classifier reads the one or the other"
        )
    return found


def _key(config: LabelledConfig, data_root: Path | None, apart: np.ndarray | None) -> str:
    names = (*config.train, *config.valid, *config.test)
    others = {"train", "valid", "test", "max_length", "also", "weight", "temperature"}
    how = config.model_dump(mode="json", exclude=others)
    without = None if apart is None else held_out.digest_of_hashes(apart)
    return data_key(names, data_root, "labelled", [len(config.train), len(config.valid)], how, without)


def _gather(
    config: LabelledConfig, data_root: Path | None, progress: Progress, apart: np.ndarray | None, build: Build
) -> State:
    """Read all texts one after the other, leave out empty ones, and tell what they are like."""
    notes: list[str] = []
    builtin = len(config.train) == 1 and _is_whole(config.train[0])
    valid_names = _with_split(config.train if builtin and not config.valid else config.valid, "valid")
    read = partial(_stream, config=config, data_root=data_root, notes=notes)
    numbers = dict[str, int]()  # of labels
    rows, valid = (GatheredLabelled(build, *each, numbers) for each in (("training", ""), ("validation", "valid_")))
    names = _with_split(config.train, "train")
    rows.take(partial(read, names), sum(_size(name, data_root) for name in names), progress)
    known = frozenset(numbers)
    notes += rows.notes()
    if config.train == (BUILTIN,):
        notes.append(f"{BUILTIN}: left out {left_out():,} names that two languages spell alike")
    held, back, unseen = np.zeros(rows.count, dtype=bool), np.empty(0, dtype=np.int64), list[np.ndarray]()
    if apart is not None:
        held = held_out.among(rows.hashes()[:, WHOLE], apart)
        notes += apart_note(int(held.sum()), rows.count, ", ".join(config.train), "texts")
    elif valid_names:
        valid.take(partial(read, valid_names, known=known))
        unseen.append(valid.hashes()[:, WHOLE])
        notes += [*valid.notes(), *_overlap(unseen[0], rows, ~held, "validation")]
    else:
        held, back = _held_out(rows, config.hold_out)
        unseen.append(rows.hashes()[np.setdiff1d(np.flatnonzero(held), back), WHOLE])
        notes.append(f"no validation set: held out {held.sum() - len(back):,} of {rows.count:,} texts (by their hash)")
    learned = ~held
    learned[back] = True
    if config.test:
        unseen.append(held_out.hashes_of(whole_text(each).strip() for each in read(config.test, known=known)))
        notes += _overlap(unseen[-1], rows, learned, "test")
    different = np.unique(rows.hashes()[learned, WHOLE])
    notes += [] if builtin else held_out.repeats_note(len(different), int(learned.sum()), "texts")
    hashes = {"different": different, "unseen": np.unique(np.concatenate([*unseen, held_out.NONE]))}
    for name, values in ({"held": np.flatnonzero(held), "back": back} | hashes).items():
        build.column(name, "<u8").append(values)
    labels = _labels(list(numbers), rows.labels.values()[learned], valid.labels.values(), valid_names)
    about = {
        "notes": notes_as_json(notes),
        "labels": labels,
        "names": list(numbers),
        "made_of": ", ".join(config.train),
    }
    return about | _described(rows, valid, learned)


def _described(rows: GatheredLabelled, valid: GatheredLabelled, learned: np.ndarray) -> State:
    """How many texts there are, how long those to learn from, and whether they have second texts and trees."""
    characters = int(rows.characters.values()[learned].sum(dtype=np.int64))
    shape = {"paired": rows.paired, "trees": rows.trees, "valid_paired": valid.paired, "valid_trees": valid.trees}
    return {"counts": f"{rows.count:,} texts", "characters": characters, **shape}


def _overlap(asked: np.ndarray, rows: GatheredLabelled, learned: np.ndarray, which: str) -> list[str]:
    known = held_out.occur_in(asked, held_out.in_parts(rows.hashes()[learned, WHOLE]))
    return held_out.overlap_note(known, which, "texts")


def _held_out(rows: GatheredLabelled, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Which texts are held out, by a hash of the first text, and where those are whose label no other text has.

    These go back to training.
    """
    held = held_out.held_rows(rows.hashes()[:, TEXT], most, "texts")
    labels = rows.labels.values()
    lacking = np.setdiff1d(labels[held], labels[~held])
    back = np.flatnonzero(held & np.isin(labels, lacking))
    if len(back) == held.sum():
        raise RegardError(f"{rows.count} texts are too few to hold some out", "name a validation set (data.valid)")
    return held, back


def read_labelled(
    names: Sequence[str],
    *,
    text: str = "text",
    label: str = "label",
    second: str | None = None,
    heads: str = "heads",
    label_first: bool = False,
    encoding: str = "utf-8",
    builtin_size: int = 20_000,
    data_root: Path | None = None,
    known: Collection[str] = frozenset(),
    notes: list[str] | None = None,
) -> list[Labelled]:
    """The texts of all that is named. `text`, `label` and `second` are columns or keys; no trees with heads="".

    `known` labels help to tell which column is the label's; `notes` get what was guessed, and what was not read.
    """
    keys = Keys(text, label, second, heads, encoding, label_first)
    return list(stream_labelled(names, keys, builtin_size, data_root, known, notes))


def stream_labelled(
    names: Sequence[str],
    keys: Keys,
    builtin_size: int = 20_000,
    data_root: Path | None = None,
    known: Collection[str] = frozenset(),
    notes: list[str] | None = None,
) -> Iterator[Labelled]:
    """The texts as `read_labelled` has them, one after the other."""
    labels = set[str]()
    for name in names:
        for each in _named(name, keys, builtin_size, data_root, known or labels, notes):
            labels.add(each.label)
            yield each if keys.heads else replace(each, parents=None)
    if not labels:
        raise RegardError(f"there are no labelled texts in {', '.join(names)}")


def _named(
    name: str,
    keys: Keys,
    builtin_size: int,
    data_root: Path | None,
    known: Collection[str],
    notes: list[str] | None,
) -> Iterable[Labelled]:
    if name == BUILTIN or name.startswith(BUILTIN + "/"):
        return builtin_names(name.removeprefix(BUILTIN).strip("/") or "test")
    if name == LISTOPS or name.startswith(LISTOPS + "/"):
        return builtin_listops(name, builtin_size)
    if name.startswith("builtin/"):
        raise UsageError(f"there are no labelled texts {name}", f"the built-in ones are {BUILTIN} and {LISTOPS}")
    path = find_file(name, data_root)
    return read_folders(path) if path.is_dir() else read_file(path, keys, known, notes)


def builtin_names(which: str) -> list[Labelled]:
    """The names of a split; test/5 is those of the test split with five characters or more."""
    split, slash, least = which.partition("/")
    if slash and not least.isdigit():
        raise UsageError(
            f"{BUILTIN}/{which}: write {BUILTIN}/{split}, or {BUILTIN}/{split}/5 for names that are longer"
        )
    return [Labelled(text, language) for text, language in language_names(split, LANGUAGES, int(least or 1))]


def builtin_listops(name: str, train: int) -> list[Labelled]:
    """The texts of builtin/listops, builtin/listops/2000, builtin/listops/test/1000; `train` of them to learn from."""
    which = generated(name, {"listops": listops.MOST})
    split = which.split or "test"
    return listops.listops(split, SIZES.get(split, train), which.length or which.most)


def _with_split(names: Sequence[str], split: str) -> tuple[str, ...]:
    return tuple(f"{name}/{split}" if _is_whole(name) else name for name in names)


def _is_whole(name: str) -> bool:
    """Whether a name is of a built-in set and says nothing of a split."""
    if name.startswith(LISTOPS):
        return generated(name, {"listops": listops.MOST}).split is None
    return name == BUILTIN


def _stream(
    names: Sequence[str],
    config: LabelledConfig,
    data_root: Path | None,
    notes: list[str],
    known: Collection[str] = frozenset(),
) -> Iterator[Labelled]:
    keys = Keys(config.text, config.label, config.second, config.heads, config.encoding, config.label_first)
    return stream_labelled(names, keys, config.builtin_size, data_root, known, notes)


def _size(name: str, data_root: Path | None) -> int:
    """Bytes of the texts of a file, about; 0 of those that are built in, and of folders."""
    return 0 if name.startswith("builtin/") else text_size(find_file(name, data_root))


def _labels(names: Sequence[str], train: np.ndarray, valid: np.ndarray, files: Sequence[str]) -> list[str]:
    """The labels of training, sorted (numbers as numbers). There are two or more, and validation has no others."""
    known = {names[number] for number in np.unique(train)}
    if len(known) < 2:
        raise RegardError(
            f"all training texts have the label {next(iter(known))!r}", "a classifier needs two labels or more"
        )
    unknown = sorted({names[number] for number in np.unique(valid)} - known)
    if unknown:
        raise RegardError(
            f"{', '.join(files)} has labels that training lacks: {_some(unknown)}",
            f"training has {_some(sorted(known))}",
        )
    return in_order(known)


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels sorted, numbers as numbers."""
    different = set(labels)
    return sorted(different, key=int if all(re.fullmatch(r"-?\d+", label) for label in different) else None)


def _some(labels: Sequence[str], most: int = 10) -> str:
    return ", ".join(map(repr, labels[:most])) + (", …" if len(labels) > most else "")
