"""Files of labelled texts: each trouble says in which line it is.

A row of JSONL may give a tree with its text, `"heads": [1, 1, 1]`: for each word (what white space separates) the place
of its head, from 0; a root has itself or -1.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.lines import opened, read_lines, read_text, suffix_of
from regard.data.rows import as_label, as_text, read_rows
from regard.errors import RegardError, UsageError

_TEXT_HEADS = {"text", "sentence", "sentence1", "premise", "question", "question1", "review", "title"}
_LABEL_HEADS = {"label", "class", "category", "sentiment"}


@dataclass(frozen=True)
class Labelled:
    """A text, or a pair of texts, the name of its label, and the tree of its words if one is known."""

    text: str
    label: str
    second: str | None = None
    heads: tuple[int, ...] | None = None  # for each word the place of its head; a root has itself


@dataclass(frozen=True)
class Keys:
    """What text, label, second text and tree are called in JSONL, and how other files are encoded."""

    text: str = "text"
    label: str = "label"
    second: str | None = None
    heads: str = "heads"
    encoding: str = "utf-8"


def read_file(path: Path, keys: Keys, label_first: bool) -> list[Labelled]:
    """The labelled texts of one file, by what its name ends with."""
    kind = suffix_of(path)
    if kind in (".jsonl", ".json"):
        return _jsonl(path, keys)
    if kind == ".tsv":
        rows = ((number, line.split("\t")) for number, line in enumerate(read_lines(path, keys.encoding), start=1))
        return _columns(path, rows, label_first, "a tab")
    if kind == ".csv":
        return _columns(path, _csv_rows(path, keys.encoding), label_first, "a comma")
    if label_first:
        return _label_then_text(path, keys.encoding)
    raise UsageError(
        f"{path}: labelled texts come as .tsv, .csv or .jsonl (each may end in .gz) or as a folder with a folder of .txt "
        "files for each label; if each line is a label, a space and the text, say --set data.label_first=true"
    )


def read_folders(folder: Path) -> list[Labelled]:
    """A folder for each label, named like it, with the texts as .txt files."""
    labels = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = []
    for label in labels:
        for path in sorted((*label.glob("*.txt"), *label.glob("*.txt.gz"))):
            with opened(path) as file:
                found.append(Labelled(read_text(path, file.read()).strip(), label.name))
    if not found:
        raise RegardError(f"{folder} should hold a folder for each label, with the texts as .txt files; there are none")
    return found


def _jsonl(path: Path, keys: Keys) -> list[Labelled]:
    wanted = [(keys.text, as_text), (keys.label, as_label)]
    if keys.second is not None:
        wanted.append((keys.second, as_text))
    rows = read_rows(path, wanted, "data.text, data.label and data.second")
    trees = _trees(path, keys, [row[0] for row in rows])
    both = zip(rows, trees, strict=True)
    return [Labelled(row[0], row[1], row[2] if row[2:] else None, tree) for row, tree in both if row[1]]


def _trees(path: Path, keys: Keys, texts: Sequence[str]) -> list[tuple[int, ...] | None]:
    """The tree of each line's text; None where the line has none, or nobody asks for trees."""
    if not keys.heads:
        return [None] * len(texts)
    found: list[tuple[int, ...] | None] = []
    for number, (line, text) in enumerate(zip(read_lines(path), texts, strict=True), start=1):
        given = json.loads(line).get(keys.heads) if f'"{keys.heads}"' in line else None
        try:
            if given is not None and keys.second is not None:
                raise ValueError("a tree is of one text, and here are two; leave out the one or data.second")
            found.append(None if given is None else as_tree(given, len(text.split())))
        except ValueError as error:
            raise RegardError(f"{path}, line {number}: {keys.heads}: {error} (see data.heads)") from error
    return found


def as_tree(heads: object, words: int) -> tuple[int, ...]:
    """The head of each word, roots with themselves; a ValueError says why it is no tree."""
    if not isinstance(heads, list) or any(type(head) is not int for head in heads):
        raise ValueError("write a list of whole numbers, the place of each word's head")
    if len(heads) != words:
        raise ValueError(f"{len(heads)} heads for {words} words; each word, between white space, has one")
    wrong = [head for head in heads if not -1 <= head < words]
    if wrong:
        raise ValueError(f"no word {wrong[0]}; words are 0 to {words - 1}, and a root has -1 or itself")
    tree = tuple(word if head == -1 else head for word, head in enumerate(heads))
    checked: set[int] = set()
    for word in range(words):
        way: set[int] = set()
        while word not in checked and word not in way:
            way.add(word)
            word = tree[word]
        if word in way and tree[word] != word:
            raise ValueError(f"a cycle through word {word}; some word must be its own head, or have -1")
        checked |= way
    return tree


def _label_then_text(path: Path, encoding: str) -> list[Labelled]:
    found = []
    for number, line in enumerate(read_lines(path, encoding), start=1):
        label, space, text = line.strip().partition(" ")
        if label and not space:
            raise RegardError(f"{path}, line {number}: no text after the label {label!r}; write label, space, text")
        if label:
            found.append(Labelled(text.strip(), label))
    return found


def _csv_rows(path: Path, encoding: str) -> Iterator[tuple[int, list[str]]]:
    with opened(path) as file:
        text = read_text(path, file.read(), encoding)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise RegardError(f"{path}, line {reader.line_num}: {error}; it is not valid CSV") from error


def _columns(path: Path, rows: Iterable[tuple[int, list[str]]], label_first: bool, separator: str) -> list[Labelled]:
    """Rows of text and label, or of text, second text and label; a first row that names its columns is left out."""
    found: list[Labelled] = []
    columns = 0
    for number, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) not in (2, 3) or columns not in (0, len(row)):
            wanted = {0: "2 or 3", 2: "2", 3: "3"}[columns]
            order = "label, text (and second text)" if label_first else "text (and second text), label"
            raise RegardError(
                f"{path}, line {number}: {len(row)} columns where {wanted} should be; write {order} with {separator} between"
            )
        first, columns = columns == 0, len(row)
        texts, label = (row[1:], row[0].strip()) if label_first else (row[:-1], row[-1].strip())
        if first and _is_header(texts, label):
            continue
        if not label:
            raise RegardError(f"{path}, line {number}: the label is empty (see data.label_first)")
        found.append(Labelled(texts[0], label, texts[1] if columns == 3 else None))
    return found


def _is_header(texts: Sequence[str], label: str) -> bool:
    return label.casefold() in _LABEL_HEADS and texts[0].strip().casefold() in _TEXT_HEADS
