"""Pairs of texts from two parallel files, TSV or JSONL, and what was left out of them and why."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import find_file
from regard.data.config import PairsConfig
from regard.data.dates import as_pairs, date_pairs
from regard.data.lines import LONGEST_LINE, read_lines
from regard.errors import RegardError, UsageError, nearest

Pair = tuple[str, str]
BUILTIN = "builtin/dates"


@dataclass(frozen=True)
class PairSets:
    """The pairs of a run, and sentences for the person: what was dropped, what looks wrong."""

    train: list[Pair]
    valid: list[Pair]
    notes: tuple[str, ...]


def load_pairs(config: PairsConfig, beside: Path | None = None) -> PairSets:
    """Training and validation pairs as the configuration names them."""
    notes: list[str] = []
    builtin = config.train == (BUILTIN,)
    train = builtin_pairs("train", config.builtin_size) if builtin else read_pairs(config.train, config.fields, beside)
    train = without_empty(train, "training", notes)
    if builtin and not config.valid:
        valid = builtin_pairs("valid", 500)
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


def builtin_pairs(split: str, count: int) -> list[Pair]:
    return as_pairs(date_pairs(split, count))


def read_pairs(names: Sequence[str], fields: tuple[str, str], beside: Path | None = None) -> list[Pair]:
    """The pairs of one file (TSV, JSONL), of two parallel files, or of a split of the built-in dates."""
    if len(names) == 1 and names[0].startswith(BUILTIN):
        return builtin_pairs(names[0].removeprefix(BUILTIN).strip("/") or "test", 1000)
    paths = [find_file(name, beside) for name in names]
    if len(paths) == 2:
        return _parallel(*paths)
    kind = _suffix(paths[0])
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
    share = min(0.1, most / len(pairs))
    limit = int(share * 2**64)
    held = [int.from_bytes(hashlib.blake2b(pair[0].encode(), digest_size=8).digest(), "big") < limit for pair in pairs]
    train = [pair for pair, out in zip(pairs, held, strict=True) if not out]
    valid = [pair for pair, out in zip(pairs, held, strict=True) if out]
    if not train or not valid:
        raise RegardError(f"{len(pairs)} pairs are too few to hold some out; name a validation set (data.valid)")
    return train, valid


def overlap(train: list[Pair], other: list[Pair], which: str) -> list[str]:
    """A warning when sentences that should be unseen occur in training."""
    seen = {pair[0].strip() for pair in train}
    count = sum(pair[0].strip() in seen for pair in other)
    if not count:
        return []
    return [f"warning: {count:,} of {len(other):,} {which} sentences also occur in training; scores on them flatter"]


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
    pairs: list[Pair] = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line) if line.strip() else dict.fromkeys(fields, "")
            pairs.append((_text(row, fields[0]), _text(row, fields[1])))
        except (ValueError, RecursionError) as error:  # JSONDecodeError is a ValueError
            wanted = f'{{"{fields[0]}": "…", "{fields[1]}": "…"}}'
            raise RegardError(
                f"{path}, line {number}: {error}; each line should be {wanted} (see data.fields)"
            ) from error
    return pairs


def _text(row: object, key: str) -> str:
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__}, not an object")
    if key not in row:
        raise ValueError(f"no key {key!r}{nearest(key, map(str, row))}")
    text = row[key]
    if not isinstance(text, str):
        raise ValueError(f"{key} is {text!r}, not a text")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{key} holds a lone surrogate, which is not Unicode text")
    return text


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
