"""Pairs of texts from two parallel files, TSV, JSONL or built-in, and what was left out of them and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regard.config import find_file
from regard.data import addition, copying, held_out
from regard.data.config import Generated, PairsConfig, generated
from regard.data.dates import as_pairs, date_pairs
from regard.data.lines import LONGEST_LINE, read_lines, suffix_of
from regard.data.rows import as_text, read_rows
from regard.errors import RegardError, UsageError

Pair = tuple[str, str]
BUILTIN = "builtin/dates"

# How long the texts of the generated sets are where their name does not say it, and who makes them.
MOST = {**copying.MOST, **dict.fromkeys(addition.FORMS, addition.MOST)}
MAKERS: dict[str, Callable[[str, int, int, int | None], list[Pair]]] = {
    "copy": copying.copy_pairs,
    "recall": copying.recall_pairs,
    **{form: partial(addition.addition_pairs, form) for form in addition.FORMS},
}


@dataclass(frozen=True)
class PairSets:
    """The pairs of a run, and sentences for the person: what was dropped, what looks wrong."""

    train: list[Pair]
    valid: list[Pair]
    notes: tuple[str, ...]


def load_pairs(config: PairsConfig, beside: Path | None = None) -> PairSets:
    """Training and validation pairs as the configuration names them."""
    notes: list[str] = []
    name = whole_builtin(config.train)
    train = (
        read_pairs(config.train, config.fields, beside)
        if name is None
        else builtin_pairs("train", config.builtin_size, name)
    )
    train = without_empty(train, "training", notes)
    if name is not None and not config.valid:
        valid = builtin_pairs("valid", 500, name)
        notes += overlap(train, valid, "validation")
    elif config.valid:
        valid = without_empty(read_pairs(config.valid, config.fields, beside), "validation", notes)
        notes += overlap(train, valid, "validation")
    else:
        train, valid = hold_out(train, config.hold_out)
        notes.append(
            f"no validation set: held out {len(valid):,} of {len(train) + len(valid):,} pairs (by source text)"
        )
    if config.test:
        notes += overlap(train, read_pairs(config.test, config.fields, beside), "test")
    return PairSets(train, valid, tuple(notes))


def is_builtin(names: Sequence[str]) -> bool:
    """Whether the pairs are built in: each of these has one right answer."""
    return len(names) == 1 and names[0].startswith("builtin/")


def whole_builtin(names: Sequence[str]) -> str | None:
    """The name of a built-in set, if it is one and names no split."""
    if not is_builtin(names) or _is_dates(names[0]):
        return names[0] if tuple(names) == (BUILTIN,) else None
    return names[0] if _generated(names[0]).split is None else None


def builtin_pairs(split: str, count: int, name: str = BUILTIN) -> list[Pair]:
    """`count` pairs of a split of a built-in set."""
    if name == BUILTIN:
        return as_pairs(date_pairs(split, count))
    which = _generated(name)
    return MAKERS[which.task](split, count, which.most, which.length)


def read_pairs(names: Sequence[str], fields: tuple[str, str], beside: Path | None = None) -> list[Pair]:
    """The pairs of one file (TSV, JSONL), of two parallel files, or of a split of a built-in set."""
    if is_builtin(names):
        if _is_dates(names[0]):
            return builtin_pairs(names[0].removeprefix(BUILTIN).strip("/") or "test", 1000)
        return builtin_pairs(_generated(names[0]).split or "test", 1000, names[0])
    paths = [find_file(name, beside) for name in names]
    if len(paths) == 2:
        return _parallel(*paths)
    kind = suffix_of(paths[0])
    if kind == ".tsv":
        return _tsv(paths[0])
    if kind in (".jsonl", ".json"):
        return _jsonl(paths[0], fields)
    raise UsageError(
        f"{paths[0]}: pairs come as one .tsv or .jsonl file, or as two parallel files (each may end in .gz)"
    )


def without_empty(pairs: list[Pair], which: str, notes: list[str]) -> list[Pair]:
    """Leave out pairs with an empty or endless side; say how many."""
    reasons: Counter[str] = Counter()
    kept = []
    for pair in pairs:
        if not all(side.strip() for side in pair):
            reasons["an empty side"] += 1
        elif max(map(len, pair)) > LONGEST_LINE:
            reasons[f"a side over {LONGEST_LINE:,} characters"] += 1
        else:
            kept.append(pair)
    if reasons:
        notes.append(dropped(which, len(pairs), reasons))
    if not kept:
        raise RegardError(f"no {which} pair is left of {len(pairs):,}: {dropped(which, len(pairs), reasons)}")
    return kept


def dropped(which: str, total: int, reasons: Counter[str]) -> str:
    """One sentence: how many pairs were dropped, and why."""
    parts = ", ".join(f"{count:,} with {reason}" for reason, count in reasons.most_common())
    return f"dropped {reasons.total():,} of {total:,} {which} pairs: {parts}"


def hold_out(pairs: list[Pair], most: int) -> tuple[list[Pair], list[Pair]]:
    """Split off a validation set by a hash of the source text, so that equal sources stay together."""
    return held_out.hold_out(pairs, most, text=lambda pair: pair[0])


def overlap(train: list[Pair], other: list[Pair], which: str) -> list[str]:
    """A warning when sentences that should be unseen occur in training."""
    return held_out.overlap((pair[0] for pair in train), (pair[0] for pair in other), which)


def _is_dates(name: str) -> bool:
    return name == BUILTIN or name.startswith(BUILTIN + "/")


def _generated(name: str) -> Generated:
    if name.split("/")[1] not in MOST:
        raise UsageError(f"there are no pairs {name}; the built-in ones are {BUILTIN}, {', '.join(map(_full, MOST))}")
    return generated(name, MOST)


def _full(task: str) -> str:
    return f"builtin/{task}"


def _parallel(source: Path, target: Path) -> list[Pair]:
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise RegardError(
            f"{source} has {len(sources):,} lines and {target} has {len(targets):,}; line n of one must translate line n "
            "of the other"
        )
    return list(zip(sources, targets, strict=True))


def _tsv(path: Path) -> list[Pair]:
    pairs: list[Pair] = []
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2 and line.strip():
            raise RegardError(f"{path}, line {number}: no tab; write source, tab, target (further columns are ignored)")
        pairs.append((columns[0], columns[1]) if len(columns) > 1 else ("", ""))
    return pairs


def _jsonl(path: Path, fields: tuple[str, str]) -> list[Pair]:
    rows = read_rows(path, [(field, as_text) for field in fields], "data.fields")
    return [(source, target) for source, target in rows]
