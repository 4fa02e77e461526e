"""Documents of text from files, folders, JSONL and the built-in library source, and what was left out of them and why."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import find_file
from regard.data.builtin.mappings import mapping_documents
from regard.data.builtin.python_source import python_documents
from regard.data.builtin.sentences import tree_documents
from regard.data.form import Form, in_sets
from regard.data.lines import lines_of, opened, suffix_of
from regard.data.notation import BUILTIN as WRITTEN
from regard.data.notation import PLAIN, Notation, is_packed, notation_of, notation_of_path
from regard.data.rows import Wanted, as_text, no_column, place_of, read_table
from regard.errors import Option, RegardError, UsageError

BUILTIN = "builtin/python"
SENTENCES = "builtin/sentences"
MAPPINGS = "builtin/mappings"
BLOCK = 1 << 20  # bytes read at once
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
    names: Sequence[str],
    data_root: Path | None = None,
    field: str = "text",
    builtin_size: int = 4_000_000,
    form: Form = PLAIN,
) -> Documents:
    """Every document of what is named: a file is one, a row of JSONL is one, a folder has those of its files."""
    notes: list[str] = []
    left_out: list[tuple[str, str]] = []
    texts = [
        "".join(blocks) for blocks in stream_documents(names, data_root, field, builtin_size, form, notes, left_out)
    ]
    kept = [text for text in texts if text.strip()]
    notes += blank_note(len(kept), len(texts), names, notes)
    return Documents(kept, tuple(notes), tuple(left_out))


def stream_documents(
    names: Sequence[str],
    data_root: Path | None,
    field: str,
    builtin_size: int,
    form: Form,
    notes: list[str],
    left_out: list[tuple[str, str]],
) -> Iterator[Iterable[str]]:
    """The documents one after the other, each in blocks; `notes` and `left_out` get what was not read.

    Music, sound and pictures are read as texts (`notation.py`), as finely as `form` says.
    """
    for name, *others in in_sets(names):
        if name == BUILTIN:
            yield from ((text,) for text in python_documents(builtin_size))
        elif name == SENTENCES or name.startswith(SENTENCES + "/"):
            yield from ((text,) for text in tree_documents(*_split_and_size(name, SENTENCES, builtin_size)))
        elif name == MAPPINGS or name.startswith(MAPPINGS + "/"):
            yield from ((text,) for text in mapping_documents(*_split_and_size(name, MAPPINGS, builtin_size)))
        elif name.startswith("builtin/") and (notation := notation_of(name)) is not None:
            yield from ((text,) for text in notation.documents(name, builtin_size, form))
        elif name.startswith("builtin/"):
            known = ", ".join((BUILTIN, SENTENCES, MAPPINGS, *WRITTEN))
            raise UsageError(f"there is no text {name}", f"the built-in texts are {known}")
        elif (notation := notation_of_path(path := find_file(name, data_root))) is not None:
            if is_packed(path):
                paths = [path, *(find_file(other, data_root) for other in others)]
                yield from ((text,) for text in notation.unpack(paths, form))
            else:
                yield from _written(path, notation, form, notes, left_out)
        elif path.is_dir():
            yield from _folder(path, field, notes, left_out)
        else:
            yield from _file(path, field)


def _split_and_size(name: str, base: str, size: int) -> tuple[str, int]:
    """The split of a built-in set, as builtin/sentences/test, and its characters: a twentieth where none is learned from."""
    split = name.removeprefix(base).strip("/") or "train"
    return split, size if split == "train" else size // 20


def blank_note(kept: int, total: int, names: Sequence[str], notes: Sequence[str]) -> list[str]:
    """A note of documents in which there is nothing; an error if nothing is left."""
    blank = f"dropped {total - kept:,} of {total:,} documents: nothing but white space in them"
    told = [blank] if kept < total else []
    if not kept:
        raise RegardError(
            f"there is no text in {', '.join(names)}; " + ("; ".join([*notes, *told]) or "name files with text")
        )
    return told


def _folder(folder: Path, field: str, notes: list[str], every: list[tuple[str, str]]) -> Iterator[Iterable[str]]:
    """The documents of all text files below a folder; what is hidden or not text is left out and counted."""
    hidden: list[Path] = []
    not_text: list[Path] = []
    for path in _walk(folder, hidden):
        if not path.stat().st_size:
            yield ("",)  # an empty .jsonl costs no more than a .txt
            continue
        try:
            for _ in _blocks(path) if suffix_of(path) != ".jsonl" else ():  # all of it is text, or none is taken
                pass
        except _NotText:
            not_text.append(path)
            continue
        yield from _file(path, field)
    _tell(folder, {"hidden": hidden, "not UTF-8 text": not_text}, notes, every)


def _written(
    path: Path, notation: Notation, form: Form, notes: list[str], every: list[tuple[str, str]]
) -> Iterator[Iterable[str]]:
    """The documents of files of music, sound or pictures: one, or all below a folder, without others and broken ones."""
    if not path.is_dir():
        yield (notation.read(path, "", form),)
        return
    hidden: list[Path] = []
    others: list[Path] = []
    broken: list[Path] = []
    for file in _walk(path, hidden):
        if not notation.fits(file):
            others.append(file)
            continue
        try:
            text = notation.read(file, "" if file.parent == path else file.parent.name, form)
        except RegardError as error:
            broken.append(file)
            notes += [f"left out: {error}"] if len(broken) <= _NAMED else []
            continue
        yield (text,)
    _tell(path, {"hidden": hidden, f"no {notation.called}": others, "of no use": broken}, notes, every)


def _tell(folder: Path, left: dict[str, list[Path]], notes: list[str], every: list[tuple[str, str]]) -> None:
    """Note which files of a folder were left out, by the reason."""
    for what, paths in left.items():
        if paths:
            names = [path.name if what == "hidden" else str(path.relative_to(folder)) for path in paths]
            named = ", ".join(names[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
            notes.append(f"{folder}: left out {len(paths):,} that {_are(paths)} {what} ({named})")
            every += [(str(path), what) for path in paths]


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


def _file(path: Path, field: str) -> Iterator[Iterable[str]]:
    if suffix_of(path) == ".jsonl":
        yield from ((text,) for text in _rows(path, field))
    else:
        yield _blocks(path)


def _blocks(path: Path) -> Iterator[str]:
    """The text of a file in blocks: lines end with a line feed alone, and a byte order mark goes."""
    held, first = "", True
    try:
        with opened(path) as file:
            decoder = codecs.getincrementaldecoder("utf-8")()
            while data := file.read(BLOCK):
                if b"\0" in data and not (first and data.startswith((b"\xff\xfe", b"\xfe\xff"))):
                    raise _NotText(f"{path} is not text: it holds zero bytes", "name files of UTF-8 text")
                text = held + decoder.decode(data)
                text, first = text.removeprefix("\ufeff") if first else text, False
                held = "\r" if text.endswith("\r") else ""  # a line feed may follow
                yield text[: len(text) - len(held)].replace("\r\n", "\n")
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _NotText(str(_encoding_error(path, error))) from error


def _encoding_error(path: Path, error: UnicodeDecodeError) -> Exception:
    """Which byte of which line is wrong: only who reads line by line knows."""
    try:
        for _ in lines_of(path):
            pass
    except RegardError as found:
        return found
    return error


def _rows(path: Path, field: str) -> Iterator[str]:
    wanted = Wanted("text", Option("text"), None if field == "text" else field, ("text", "content", "document", "body"))
    table = read_table(path, [wanted], "data.field")
    place = place_of(table, wanted)
    if place is None:
        raise RegardError(no_column(table, field))
    return (table.cell(line, row, place, as_text) if row else "" for line, row in table.rows)
