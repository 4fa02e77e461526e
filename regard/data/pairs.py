"""Pairs of texts from files or built-in, and what was left out: read once, in constant memory, and kept for all runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import find_file
from regard.data import held_out
from regard.data.builtin import algorithms as addition
from regard.data.builtin import algorithms as copying
from regard.data.config import GeneratedData, PairsConfig, generated
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
from regard.data.kept.copies import Arrays, Items, Work
from regard.data.kept.journal import Build, Kept, State
from regard.data.kept.ragged import TextRows, as_bytes
from regard.data.kept.ranks import Order, shared_out
from regard.data.lines import LONGEST_LINE, Bad, suffix_of, text_size
from regard.data.pair_files import FIELDS, Block, Pair, PairReader, meant_files, pair_blocks
from regard.data.parquet import PARQUET
from regard.data.tmx import TMX
from regard.errors import RegardError, UsageError

BUILTIN = "builtin/dates"
VALIDATED = 500  # pairs of a built-in set
TOGETHER = 10_000  # pairs read and written at once
BLOCK = 1 << 20  # bytes that these have, about
REASONS = ("an empty side", f"a side over {LONGEST_LINE:,} characters")  # why a pair is left out
SOURCE, STRIPPED, WHOLE = range(3)  # columns of hashes
ODD = np.uint64(0x9E3779B97F4A7C15)  # joins two hashes to one


def _spanish_pairs(split: str, count: int, most: int, length: int | None) -> list[Pair]:
    from regard.data.builtin.spanish import spanish_pairs  # imports babel

    return [(pair.source, pair.target) for pair in spanish_pairs(split, count, most, length)]


# How long the texts of the generated sets are where their name does not say it, and who makes them.
MOST = {**copying.MOST_LETTERS, **dict.fromkeys(addition.FORMS, addition.MOST_DIGITS), "spanish": 2}
MAKERS: dict[str, Callable[[str, int, int, int | None], list[Pair]]] = {
    "copy": copying.copy_pairs,
    "recall": copying.recall_pairs,
    **{form: partial(addition.addition_pairs, form) for form in addition.FORMS},
    "spanish": _spanish_pairs,
}


@dataclass(frozen=True)
class PairSets:
    """The pairs of a run, and sentences for the person: what was dropped, what looks wrong."""

    train: Sequence[Pair]
    valid: list[Pair]
    notes: tuple[str, ...]
    characters: tuple[int, int] = (0, 0)  # of all sources and of all targets to learn from
    key: str = ""  # under which they are kept; "": they are in memory
    unseen: np.ndarray = field(default_factory=lambda: held_out.NONE)  # hashes of what is validated and tested on
    different: np.ndarray = field(default_factory=lambda: held_out.NONE)  # hashes of the pairs to learn from, sorted


def load_pairs(
    config: PairsConfig,
    data_root: Path | None = None,
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
    apart: np.ndarray | None = None,
) -> PairSets:
    """Training and validation pairs as the configuration names them, without those of further corpora.

    Those of large files are read once, kept in the cache, and mapped: `keep` finds or makes them there. A further corpus has
    no validation: what it has of the sources `apart` (hashes) is left out.
    """
    key, make = partial(_key, config, data_root, apart), partial(_gather, config, data_root, progress, apart)
    found = keep("pairs", key, make)
    arrays, about = found.arrays, found.about
    rows: Any = kept_pairs(found)
    valid: Any = TextRows(arrays["valid_text"], arrays["valid_lengths"])
    valid = [] if apart is not None else [*rows.at(arrays["held"].astype(np.int64)), *valid]
    notes, sizes = notes_from_json(about["notes"]), (about["characters"][0], about["characters"][1])
    hashes = arrays["unseen"], arrays.get("different", held_out.NONE)  # an older entry lacks the second
    return PairSets(rows if found.key else list(rows), valid, notes, sizes, found.key, *hashes)


def kept_pairs(found: Kept) -> TextRows:
    """The pairs to learn from of an entry of the cache."""
    return TextRows(found.arrays["text"], found.arrays["lengths"], found.arrays["held"])


def further_pairs(
    config: PairsConfig, data_root: Path | None, main: PairSets, keep: Callable[[int], Keep], progress: Progress
) -> list[PairSets]:
    """The pairs of the further corpora, without those that the main one validates or tests on."""

    def load(table: PairsConfig, kept: Keep, apart: np.ndarray) -> PairSets:
        return load_pairs(table, data_root, kept, progress, apart)

    return further_corpora(config, main, load, keep, "pairs")


def _key(config: PairsConfig, data_root: Path | None, apart: np.ndarray | None) -> str:
    names = (*config.train, *config.valid, *config.test)
    split = (len(config.train), len(config.valid), len(config.test), config.hold_out, config.builtin_size)
    without = None if apart is None else held_out.digest_of_hashes(apart)
    return data_key(names, data_root, "pairs", split, config.fields, config.languages, without)


def _gather(
    config: PairsConfig, data_root: Path | None, progress: Progress, apart: np.ndarray | None, build: Build
) -> State:
    """Read all pairs one after the other, leave out those of no use, and tell what they are like."""
    notes: list[str] = []
    name = whole_builtin(config.train)
    reader = PairReader(config.fields, config.languages, notes)
    read = partial(stream_blocks, reader=reader, data_root=data_root)
    rows, valid = Gathered(build, "training"), Gathered(build, "validation", "valid_")
    size = 0 if name else _size(config.train, data_root, config.languages)
    made = None if name is None else builtin_pairs("train", config.builtin_size, name)
    words = (list(config.train), list(config.fields), config.languages, str((data_root or Path()).absolute()))
    rows.take(partial(read, config.train, made=made), size, progress, words if made is None else ())
    notes += rows.notes()
    held, unseen = np.zeros(rows.count, dtype=bool), list[np.ndarray]()
    if apart is not None:
        held = held_out.among(rows.hashes()[:, STRIPPED], apart)
        notes += apart_note(int(held.sum()), rows.count, ", ".join(config.train), "pairs")
    elif config.valid or name is not None:
        made = None if config.valid else builtin_pairs("valid", VALIDATED, name or BUILTIN)
        valid.take(partial(read, config.valid, made=made))
        unseen.append(valid.hashes()[:, STRIPPED])
        notes += [*valid.notes(), *held_out.overlap_note(rows.hold(unseen[0]), "validation")]
    else:
        held = held_out.held_rows(rows.hashes()[:, SOURCE], config.hold_out, "pairs")
        unseen.append(rows.hashes()[held, STRIPPED])
        notes.append(f"no validation set: held out {held.sum():,} of {rows.count:,} pairs (by source text)")
    if config.test:
        test = stream_pairs(config.test, reader, data_root)
        unseen.append(held_out.hashes_of(source.strip() for source, _ in test))
        notes += held_out.overlap_note(rows.hold(unseen[-1], ~held), "test")
    different = np.unique(rows.hashes()[~held, WHOLE])
    if name is None:
        notes += held_out.repeats_note(len(different), int((~held).sum()), "pairs")
    for column, hashes in (("different", different), ("unseen", np.unique(np.concatenate([*unseen, held_out.NONE])))):
        build.column(column, "<u8").append(hashes)
    return rows.finish(build, held) | {"notes": notes_as_json(notes), "made_of": ", ".join(config.train)}


class Gathered:
    """Pairs that are written down as they are read: their texts, lengths in bytes and hashes."""

    def __init__(self, build: Build, which: str, prefix: str = "") -> None:
        self.build, self.which = build, which
        self.text, self.lengths = build.column(f"{prefix}text", "u1"), build.column(f"{prefix}lengths", "<u4", (2,))
        self._hashes = build.column(f"{prefix}hashes", "<u8", (3,), kept=False)  # of SOURCE, STRIPPED, WHOLE
        state = build.state.get(which, {})
        self.read, self.count, self.bytes = state.get("read", 0), state.get("count", 0), state.get("bytes", 0)
        self.characters = state.get("characters", [0, 0])
        self.reasons: Counter[str] = Counter(state.get("reasons", {}))

    def take(
        self,
        blocks: Callable[[int], Iterator[Block]],
        size: int = 0,
        progress: Progress = no_progress,
        words: tuple[Any, ...] = (),
    ) -> None:
        """Write down all pairs but those that were before a kill; `size` is how many bytes they have, about.

        `blocks` gives the pairs behind so many, and is called by each of the processes that share the work; another one
        makes it of `words` (`reading_again`).
        """
        order = partial(Order, "read pairs", (*words, self.read)) if words else None
        for _, found in shared_out(partial(blocks, self.read), _of_use, size // BLOCK, order):
            self._write(*found)
            self.build.commit({self.which: self._state()})
            total = max(self.read, round(self.read * size / max(1, self.bytes))) if size else 0
            progress("reading pairs", self.read, total)
        if not self.count:
            why = dropped(self.which, self.read, self.reasons)
            raise RegardError(f"no {self.which} pair is left of {self.read:,}: {why}")

    def _write(self, data: np.ndarray, lengths: np.ndarray, hashes: np.ndarray, counts: np.ndarray) -> None:
        self.text.append(data)
        self.lengths.append(lengths)
        self._hashes.append(hashes)
        read, sources, targets, *left_out = map(int, counts)
        self.read, self.count, self.bytes = (
            self.read + read,
            self.count + len(lengths),
            self.bytes + len(data) + 2 * read,
        )
        self.characters = [self.characters[0] + sources, self.characters[1] + targets]
        self.reasons += Counter(dict(zip(REASONS, left_out, strict=True)))

    def _state(self) -> State:
        names = ("read", "count", "bytes", "characters")
        return {name: getattr(self, name) for name in names} | {"reasons": dict(self.reasons)}

    def hashes(self) -> np.ndarray:
        """The hashes of each pair's source, of its source without space around it, and of the whole pair: (N, 3)."""
        return self._hashes.values()

    def hold(self, asked: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
        """Which of these hashes of stripped sources are here, or among some of the pairs."""
        seen = self.hashes()[:, STRIPPED]
        return held_out.occur_in(asked, held_out.in_parts(seen if among is None else seen[among]))

    def notes(self) -> list[str]:
        return [dropped(self.which, self.read, self.reasons)] if self.reasons else []

    def finish(self, build: Build, held: np.ndarray) -> State:
        """Write down which pairs are held out, and count what there is to learn from."""
        places = np.flatnonzero(held)
        build.column("held", "<u8").append(places)
        rows: Any = TextRows(self.text.values(), self.lengths.values())
        out = rows.at(places)
        learned = [count - sum(len(pair[side]) for pair in out) for side, count in enumerate(self.characters)]
        return {"characters": learned, "counts": f"{self.count:,} pairs"}


def reading_again(
    names: list[str], fields: list[str], languages: list[str] | None, data_root: str, skip: int
) -> tuple[Items[Block], Work[Block]] | None:
    """The work of `Gathered.take`, in a process that helps; None if it does not see the files."""
    try:
        for name in names:
            find_file(name, Path(data_root))
    except RegardError:
        return None
    first, second = fields
    reader = PairReader((first, second), None if languages is None else (languages[0], languages[1]), [])
    return partial(stream_blocks, names, skip, reader=reader, data_root=Path(data_root)), _of_use


def _of_use(block: Block) -> Arrays:
    """The texts of a block's pairs but those with a side that is empty or endless, their lengths in bytes and hashes.

    Then how many pairs were read, the characters of the sources and of the targets, and how many were left out by `REASONS`.
    """
    pairs = block()
    full = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    kept = [pair for pair in full if len(pair[0]) <= LONGEST_LINE and len(pair[1]) <= LONGEST_LINE]
    data, lengths = as_bytes([side for pair in kept for side in pair])
    characters = [sum(len(pair[side]) for pair in kept) for side in range(2)]
    counts = [len(pairs), *characters, len(pairs) - len(full), len(full) - len(kept)]
    return data, lengths.reshape(-1, 2), _hashes(kept), np.array(counts)


def _hashes(pairs: Sequence[Pair]) -> np.ndarray:
    sources, targets = (held_out.hashes_of(pair[side] for pair in pairs) for side in (0, 1))
    stripped = sources.copy()
    for place in [place for place, pair in enumerate(pairs) if pair[0] != pair[0].strip()]:
        stripped[place] = held_out.hash_of(pairs[place][0].strip())
    return np.stack([sources, stripped, sources * ODD + targets], axis=1)  # (N, 3)


def _size(names: Sequence[str], data_root: Path | None, languages: tuple[str, str] | None) -> int:
    """Bytes of the texts of all files, about; 0 if that is not known beforehand."""
    if is_builtin(names):
        return 0
    sizes = [text_size(path) for path in meant_files([find_file(name, data_root) for name in names], languages)]
    return sum(sizes) if all(sizes) and suffix_of(Path(names[0])).lower() not in (TMX, PARQUET) else 0


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
        from regard.data.builtin.dates import as_pairs, date_pairs  # imports babel

        return as_pairs(date_pairs(split, count))
    which = _generated(name)
    return MAKERS[which.task](split, count, which.most, which.length)


def read_pairs(
    names: Sequence[str],
    fields: tuple[str, str] = FIELDS,
    data_root: Path | None = None,
    languages: tuple[str, str] | None = None,
    notes: list[str] | None = None,
    bad: Bad | None = None,
) -> list[Pair]:
    """The pairs of files (`PairReader`), or of a split of a built-in set."""
    return list(stream_pairs(names, PairReader(fields, languages, notes, bad), data_root))


def stream_pairs(names: Sequence[str], reader: PairReader, data_root: Path | None = None) -> Iterator[Pair]:
    """The pairs as `read_pairs` has them, one after the other."""
    if not is_builtin(names):
        return reader.pairs([find_file(name, data_root) for name in names])
    if _is_dates(names[0]):
        return iter(builtin_pairs(names[0].removeprefix(BUILTIN).strip("/") or "test", 1000))
    return iter(builtin_pairs(_generated(names[0]).split or "test", 1000, names[0]))


def stream_blocks(
    names: Sequence[str], skip: int, reader: PairReader, data_root: Path | None, made: Sequence[Pair] | None = None
) -> Iterator[Block]:
    """The pairs of files behind the first `skip`, or those that were made, some at once."""
    if made is None and not is_builtin(names):
        return reader.blocks([find_file(name, data_root) for name in names], skip, TOGETHER)
    pairs = stream_pairs(names, reader, data_root) if made is None else made
    return pair_blocks(islice(pairs, skip, None), TOGETHER)


def dropped(which: str, total: int, reasons: Counter[str]) -> str:
    """One sentence: how many pairs were dropped, and why."""
    parts = ", ".join(f"{count:,} with {reason}" for reason, count in reasons.most_common())
    return f"dropped {reasons.total():,} of {total:,} {which} pairs: {parts}"


def overlap(train: Iterable[Pair], other: Iterable[Pair], which: str) -> list[str]:
    """A warning when sentences that should be unseen occur in training."""
    return held_out.overlap((pair[0] for pair in train), (pair[0] for pair in other), which)


def _is_dates(name: str) -> bool:
    return name == BUILTIN or name.startswith(BUILTIN + "/")


def _generated(name: str) -> GeneratedData:
    if name.split("/")[1] not in MOST:
        raise UsageError(
            f"there are no pairs {name}", f"the built-in ones are {BUILTIN}, {', '.join(map(_full, MOST))}"
        )
    return generated(name, MOST)


def _full(task: str) -> str:
    return f"builtin/{task}"
