"""Documents of text from files, folders, JSONL and the built-in library source, and what was left out of them and why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import find_file
from regard.data.builtin.python_source import python_documents
from regard.data.held_out import hash_of
from regard.data.lines import opened, read_text, suffix_of
from regard.data.rows import Wanted, as_text, no_column, place_of, read_table
from regard.errors import Option, RegardError, UsageError

BUILTIN = "builtin/python"
_NAMED = 3  # of the files left out, as many are named


@dataclass(frozen=True)
class Documents:
    """Texts that belong together from their first character to their last, and sentences for the person."""

    texts: list[str]
    notes: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()  # each file that was left out, and why


class _NotText(RegardError):
    """The file is readable, but not as text."""


def read_documents(
    names: Sequence[str], data_root: Path | None = None, field: str = "text", builtin_size: int = 4_000_000
) -> Documents:
    """Every document of what is named: a file is one, a row of JSONL is one, a folder has those of its files."""
    texts: list[str] = []
    notes: list[str] = []
    left_out: list[tuple[str, str]] = []
    for name in names:
        if name == BUILTIN:
            texts += python_documents(builtin_size)
        elif name.startswith("builtin/"):
            raise UsageError(f"there is no text {name}", f"the built-in text is {BUILTIN}")
        elif (path := find_file(name, data_root)).is_dir():
            texts += _folder(path, field, notes, left_out)
        else:
            texts += _file(path, field)
    kept = [text for text in texts if text.strip()]
    if len(kept) < len(texts):
        notes.append(f"dropped {len(texts) - len(kept):,} of {len(texts):,} documents: nothing but white space in them")
    if not kept:
        raise RegardError(f"there is no text in {', '.join(names)}; " + ("; ".join(notes) or "name files with text"))
    return Documents(kept, tuple(notes), tuple(left_out))


def split_documents(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Hold out about `share` of the characters: whole documents, chosen by a hash of their text; of a single one its end.

    Equal documents stay together, and their order does not matter. The first 90% of tiny Shakespeare are customarily
    its training text: that is `share` = 0.1.
    """
    if len(set(texts)) == 1:
        return _cut_end(texts[0], share)
    held = _chosen(texts, share * sum(map(len, texts)))
    return [text for text in texts if text not in held], [text for text in texts if text in held]


def _chosen(texts: Sequence[str], wanted: float) -> set[str]:
    """Documents in the order of their hashes, each taken if that brings the sum of characters nearer to `wanted`."""
    sizes = dict.fromkeys(sorted(set(texts), key=hash_of), 0)
    for text in texts:
        sizes[text] += len(text)
    held: set[str] = set()
    total = 0
    for text, size in sizes.items():
        if abs(total + size - wanted) < abs(total - wanted) and len(held) + 1 < len(sizes):
            held.add(text)
            total += size
    return held or {min(sizes, key=lambda text: sizes[text])}


def _cut_end(text: str, share: float) -> tuple[list[str], list[str]]:
    cut = int(len(text) * (1 - share))
    if not text[:cut].strip() or not text[cut:].strip():
        raise RegardError(
            f"a single document of {len(text)} characters is too short to hold {share:.0%} out",
            "name a validation text (data.valid)",
        )
    return [text[:cut]], [text[cut:]]


def _folder(folder: Path, field: str, notes: list[str], every: list[tuple[str, str]]) -> list[str]:
    """The documents of all text files below a folder; what is hidden or not text is left out and counted."""
    texts: list[str] = []
    hidden: list[Path] = []
    not_text: list[Path] = []
    for path in _walk(folder, hidden):
        try:
            texts += _file(path, field) if path.stat().st_size else [""]  # an empty .jsonl costs no more than a .txt
        except _NotText:
            not_text.append(path)
    for left_out, what in ((hidden, "hidden"), (not_text, "not UTF-8 text")):
        if left_out:
            names = [path.name if what == "hidden" else str(path.relative_to(folder)) for path in left_out]
            named = ", ".join(names[:_NAMED]) + (", …" if len(left_out) > _NAMED else "")
            notes.append(f"{folder}: left out {len(left_out):,} that {_are(left_out)} {what} ({named})")
            every += [(str(path), what) for path in left_out]
    return texts


def _are(items: Sequence[object]) -> str:
    return "is" if len(items) == 1 else "are"


def _walk(folder: Path, hidden: list[Path]) -> Iterator[Path]:
    """Files below a folder, sorted by path. Names that start with a dot go to `hidden`, a folder's as one."""
    for entry in sorted(_entries(folder), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            hidden.append(entry)
        elif entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry, hidden)
        elif entry.is_file():
            yield entry


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError as error:
        raise RegardError(f"cannot read {folder}: {error.strerror or error}") from error


def _file(path: Path, field: str) -> list[str]:
    if suffix_of(path) == ".jsonl":
        return _rows(path, field)
    with opened(path) as file:
        data = file.read()
    if b"\0" in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")):  # UTF-16 gets the advice of `read_text`
        raise _NotText(f"{path} is not text: it holds zero bytes", "name files of UTF-8 text")
    try:
        return [read_text(path, data)]
    except RegardError as error:
        raise _NotText(str(error)) from error


def _rows(path: Path, field: str) -> list[str]:
    wanted = Wanted("text", Option("text"), None if field == "text" else field, ("text", "content", "document", "body"))
    table = read_table(path, [wanted], "data.field")
    place = place_of(table, wanted)
    if place is None:
        raise RegardError(no_column(table, field))
    return [table.cell(line, row, place, as_text) if row else "" for line, row in table.rows]
