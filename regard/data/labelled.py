"""Labelled texts from TSV, CSV, JSONL, lines that begin with their label, a folder for each label, or built-in ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.config import find_file
from regard.data import held_out
from regard.data.builtin import listops
from regard.data.builtin.names import LANGUAGES, language_names, left_out
from regard.data.config import LabelledConfig, generated
from regard.data.labelled_files import Keys, Labelled, read_file, read_folders
from regard.errors import RegardError, UsageError

BUILTIN = "builtin/names"
LISTOPS = "builtin/listops"
SIZES = {"valid": 1000, "test": 2000}  # of generated texts; those of training are data.builtin_size


@dataclass(frozen=True)
class LabelledSets:
    """The texts of a run, the names of their labels (sorted), and sentences for the person."""

    train: list[Labelled]
    valid: list[Labelled]
    labels: tuple[str, ...]
    notes: tuple[str, ...]


def load_labelled(config: LabelledConfig, data_root: Path | None = None) -> LabelledSets:
    """Training and validation texts as the configuration names them."""
    notes: list[str] = []
    builtin = len(config.train) == 1 and _is_whole(config.train[0])
    train_names = _with_split(config.train, "train")
    valid_names = _with_split(config.train if builtin and not config.valid else config.valid, "valid")
    train = without_empty(_read(train_names, config, data_root, notes), "training", notes)
    known = frozenset(each.label for each in train)
    if config.train == (BUILTIN,):
        notes.append(f"{BUILTIN}: left out {left_out():,} names that two languages spell alike")
    if valid_names:
        valid = without_empty(_read(valid_names, config, data_root, notes, known), "validation", notes)
        notes += _overlap(train, valid, "validation")
    else:
        train, valid = _hold_out(train, config.hold_out)
        notes.append(f"no validation set: held out {len(valid):,} of {len(train) + len(valid):,} texts (by their hash)")
    if config.test:
        notes += _overlap(train, _read(config.test, config, data_root, notes, known), "test")
    return LabelledSets(train, valid, _labels(train, valid, valid_names), tuple(notes))


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
    found: list[Labelled] = []
    keys = Keys(text, label, second, heads, encoding, label_first)
    for name in names:
        if name == BUILTIN or name.startswith(BUILTIN + "/"):
            found += builtin_names(name.removeprefix(BUILTIN).strip("/") or "test")
        elif name == LISTOPS or name.startswith(LISTOPS + "/"):
            found += builtin_listops(name, builtin_size)
        elif name.startswith("builtin/"):
            raise UsageError(f"there are no labelled texts {name}", f"the built-in ones are {BUILTIN} and {LISTOPS}")
        elif (path := find_file(name, data_root)).is_dir():
            found += read_folders(path)
        else:
            found += read_file(path, keys, known or {each.label for each in found}, notes)
    if not found:
        raise RegardError(f"there are no labelled texts in {', '.join(names)}")
    return found if heads else [replace(each, parents=None) for each in found]


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


def without_empty(texts: list[Labelled], which: str, notes: list[str]) -> list[Labelled]:
    """Leave out texts in which there is nothing; say how many."""
    kept = [each for each in texts if each.text.strip() and (each.second is None or each.second.strip())]
    if not kept:
        raise RegardError(f"no {which} text is left of {len(texts):,}: all are empty")
    if len(kept) < len(texts):
        notes.append(f"dropped {len(texts) - len(kept):,} of {len(texts):,} {which} texts: empty")
    if len({each.second is None for each in kept}) == 2:
        raise RegardError(f"some {which} texts are pairs and some are not", "a classifier reads the one or the other")
    if len({each.parents is None for each in kept}) == 2:
        raise RegardError(f"some {which} texts have a tree and some have none", "give heads to all of them, or to none")
    return kept


def _with_split(names: Sequence[str], split: str) -> tuple[str, ...]:
    return tuple(f"{name}/{split}" if _is_whole(name) else name for name in names)


def _is_whole(name: str) -> bool:
    """Whether a name is of a built-in set and says nothing of a split."""
    if name.startswith(LISTOPS):
        return generated(name, {"listops": listops.MOST}).split is None
    return name == BUILTIN


def _read(
    names: Sequence[str],
    config: LabelledConfig,
    data_root: Path | None,
    notes: list[str],
    known: Collection[str] = frozenset(),
) -> list[Labelled]:
    return read_labelled(
        names,
        text=config.text,
        label=config.label,
        second=config.second,
        heads=config.heads,
        label_first=config.label_first,
        encoding=config.encoding,
        builtin_size=config.builtin_size,
        data_root=data_root,
        known=known,
        notes=notes,
    )


def _hold_out(texts: list[Labelled], most: int) -> tuple[list[Labelled], list[Labelled]]:
    """Split off a validation set by a hash of the first text; a label that only it would have goes back to training."""
    train, valid = held_out.hold_out(texts, most, text=lambda each: each.text, what="texts")
    known = {each.label for each in train}
    back = [each for each in valid if each.label not in known]
    valid = [each for each in valid if each.label in known]
    if not valid:
        raise RegardError(f"{len(texts)} texts are too few to hold some out", "name a validation set (data.valid)")
    return train + back, valid


def _overlap(train: list[Labelled], other: list[Labelled], which: str) -> list[str]:
    return held_out.overlap(map(_whole, train), map(_whole, other), which, "texts")


def _whole(each: Labelled) -> str:
    return each.text if each.second is None else f"{each.text}\t{each.second}"


def _labels(train: list[Labelled], valid: list[Labelled], names: Sequence[str]) -> tuple[str, ...]:
    """The labels of training, sorted (numbers as numbers). There are two or more, and validation has no others."""
    counts = Counter(each.label for each in train)
    if len(counts) < 2:
        raise RegardError(
            f"all training texts have the label {train[0].label!r}", "a classifier needs two labels or more"
        )
    unknown = sorted({each.label for each in valid} - set(counts))
    if unknown:
        raise RegardError(
            f"{', '.join(names)} has labels that training lacks: {_some(unknown)}",
            f"training has {_some(sorted(counts))}",
        )
    if all(re.fullmatch(r"-?\d+", label) for label in counts):
        return tuple(sorted(counts, key=int))
    return tuple(sorted(counts))


def _some(labels: Sequence[str], most: int = 10) -> str:
    return ", ".join(map(repr, labels[:most])) + (", …" if len(labels) > most else "")
