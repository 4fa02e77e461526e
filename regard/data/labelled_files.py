"""Files of labelled texts: each trouble says in which line it is.

A row of JSONL may give a tree with its text, `"heads": [1, 1, 1]`: for each word (what white space separates) the place
of its head, from 0; a root has itself or -1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.data.lines import EncodingError, lines_of, opened, read_text, suffix_of
from regard.data.pictures.config import LOOKED_AT, is_picture
from regard.data.rows import (
    FORMATS,
    MISSING,
    Table,
    Wanted,
    as_label,
    as_text,
    counts_rows,
    few_values,
    no_column,
    place_of,
    read_table,
    renamed,
)
from regard.errors import Advice, Option, RegardError, Setting, UsageError

_TEXT_NAMES = """
text sentence sentence1 premise question question1 review title content comment message tweet document utterance query
body headline text1 text_a sentence_a
"""
_LABEL_NAMES = "label labels class category sentiment stars rating intent topic emotion polarity gold gold_label target"
TEXT_NAMES, LABEL_NAMES = tuple(_TEXT_NAMES.split()), tuple(_LABEL_NAMES.split())
# What the second text of a pair is called beside the first.
SECOND_NAMES = {
    "text": ("text_pair", "text2", "second"),
    "sentence": ("sentence2", "second"),
    "sentence1": ("sentence2",),
    "premise": ("hypothesis",),
    "question": ("sentence", "passage", "context"),
    "question1": ("question2",),
    "query": ("passage", "document"),
    "text1": ("text2",),
    "text_a": ("text_b",),
    "sentence_a": ("sentence_b",),
}
_SURE = 20  # rows from which on labels that are all different cannot be labels
_KNOWN = 0.9  # share of a column's values that are known labels, for it to be the label's


@dataclass(frozen=True)
class Labelled:
    """A text, or a pair of texts, the name of its label, and the tree of its words if one is known."""

    text: str
    label: str
    second: str | None = None
    parents: tuple[int, ...] | None = None  # for each word the place of its parent; a root has itself


@dataclass(frozen=True)
class Keys:
    """Which columns are text, label, second text and tree, by name or number, and how files are encoded.

    "text" and "label" are also what is usually called so, such as sentence and class.
    """

    text: str = "text"
    label: str = "label"
    second: str | None = None
    heads: str = "heads"
    encoding: str = "utf-8"
    label_first: bool = False


@dataclass(frozen=True)
class Columns:
    """The places of text, label and second text in a table, and whether that had to be guessed."""

    text: int
    label: int
    second: int | None = None
    guessed: str = ""  # what was guessed, and from what


def read_file(
    path: Path, keys: Keys, known: Collection[str] = frozenset(), notes: list[str] | None = None
) -> Iterator[Labelled]:
    """The labelled texts of one file. `known` labels tell which column is the label's; `notes` tell what was guessed."""
    try:
        yield from _read_file(path, keys, known, notes)
    except EncodingError as error:
        if suffix_of(path) in (".jsonl", ".json"):  # always UTF-8
            raise
        encoding = Setting("data.encoding", "latin1")
        raise EncodingError(Advice(f"{error} (or say how it is encoded: ", encoding, ", or cp1252)")) from error


def _read_file(path: Path, keys: Keys, known: Collection[str], notes: list[str] | None) -> Iterator[Labelled]:
    if suffix_of(path) in FORMATS:
        wanted = wanted_columns(keys)
        table = read_table(
            path, wanted, "data.text, data.label and data.second", keys.encoding, values=known, spread=True
        )
        columns = find_columns(table, keys, known)
        if notes is not None:
            notes += _told(table, columns)
        return _read(table, columns, keys)
    if keys.label_first:
        return _label_then_text(path, keys.encoding)
    raise UsageError(
        f"{path}: {renamed(path)}labelled texts come as .tsv, .csv or .jsonl (each may end in .gz) or as a folder with "
        "a folder of .txt files for each label",
        Advice("if each line is a label, a space and the text, say ", Setting("data.label_first", "true")),
    )


def read_folders(folder: Path) -> Iterator[Labelled]:
    """A folder for each label, named like it, with the texts as .txt files."""
    labels = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = [(path, label.name) for label in labels for path in sorted((*label.glob("*.txt"), *label.glob("*.txt.gz")))]
    _refuse_pictures(folder, len(files))
    if not files:
        raise RegardError(f"{folder} should hold a folder for each label, with the texts as .txt files; there are none")
    for path, label in files:
        with opened(path) as file:
            text = read_text(path, file.read()).strip()
        yield Labelled(text, label)


def _refuse_pictures(folder: Path, texts: int) -> None:
    """Raise an error if a folder holds pictures, and fewer texts."""
    below, here = (
        sum(is_picture(file) for file in islice(files, LOOKED_AT)) for files in (folder.glob("*/*"), folder.iterdir())
    )
    if below > texts:
        hint = Advice("take one that sees, as in: ", Option("model", "vit"))
        raise RegardError(f"{folder} holds pictures, and the model reads texts", hint)
    if here > texts:
        raise RegardError(
            f"{folder} holds pictures", "give the folder above, which holds a folder of pictures for each label"
        )


# --- Which column is which


def wanted_columns(keys: Keys) -> tuple[Wanted, Wanted, Wanted]:
    """The columns of text, label and second text, by the names that a person gave or that mean them."""
    seconds = tuple(dict.fromkeys(name for names in SECOND_NAMES.values() for name in names))
    return (
        Wanted("text", Option("text"), None if keys.text == "text" else keys.text, TEXT_NAMES),
        Wanted("label", Option("label"), None if keys.label == "label" else keys.label, LABEL_NAMES),
        Wanted("second text", Option("pair"), keys.second, seconds, needed=False),
    )


def find_columns(table: Table, keys: Keys, known: Collection[str] = frozenset()) -> Columns:
    """Text, label and second text: as asked, by known names, in the usual order, or the label by its few values."""
    wanted_text, wanted_label, wanted_second = wanted_columns(keys)
    if not table.width:
        return Columns(0, 1)  # nothing but blank lines
    text, label = place_of(table, wanted_text), place_of(table, wanted_label)
    second = None if wanted_second.asked is None else place_of(table, wanted_second)
    if table.names and text is None and wanted_text.asked is None:
        text = _first_of_pair(table)
    if second is None and text is not None and wanted_text.asked is None:
        second = _second_beside(table, text, label)
    if text is None and label is None and not (table.names and table.width > 2) and second is None:
        return _usual_order(table, keys, known)
    if label is None and keys.label_first and table.separator:
        label = 0
    return _filled(table, text, label, second, known)


def _folded(table: Table) -> list[str]:
    return [name.strip().casefold() for name in table.names]


def _first_of_pair(table: Table) -> int | None:
    """Choose the first text of a pair: the column whose partner is there too; of two texts and a label, the first."""
    names = _folded(table)
    texts = [place for place, name in enumerate(names) if name in TEXT_NAMES]
    firsts = [place for place in texts if set(SECOND_NAMES.get(names[place], ())) & set(names)]
    if len(firsts) == 1:
        return firsts[0]
    return texts[0] if len(texts) == 2 and len(names) == 3 else None


def _second_beside(table: Table, text: int, label: int | None) -> int | None:
    """The partner of a text by its name; of three columns with names, also another text's."""
    names = _folded(table)
    for name in SECOND_NAMES.get(names[text], ()) if names else ():
        if name in names and names.index(name) not in (text, label):
            return names.index(name)
    rest = [place for place in range(len(names)) if place not in (text, label)]
    both = len(names) == 3 and label is not None and len(rest) == 1 and table.separator
    return rest[0] if both and names[rest[0]] in TEXT_NAMES else None


def _is_label(table: Table, place: int, known: Collection[str]) -> bool:
    """Whether a column holds labels: those that are known, or few different values."""
    column = table.column(place)
    if known and column and sum(value in known for value in column) >= _KNOWN * len(column):
        return True
    return few_values(column)


def _usual_order(table: Table, keys: Keys, known: Collection[str]) -> Columns:
    """Text, (second text,) label, or the label first where the configuration or the values say so."""
    places = list(range(table.width))
    if table.width == 3 and counts_rows(table.column(0)) and not keys.label_first:
        places = places[1:]  # 0, 1, 2, ... is no text
    if len(places) not in (2, 3):
        wrong = f"{table.width} columns where 2 or 3 should be"
        line = next((line for line, row in table.seen if row), 1)
        raise RegardError(f"{table.path}, line {line}: {wrong}", _ways(table, keys.label_first))
    first, last = places[0], places[-1]
    guessed = "in the usual order" if table.names else ""
    guessed = guessed if len(places) == table.width else "column 1 counts the rows"
    if keys.label_first:
        return Columns(places[1], first, places[2] if len(places) == 3 else None)
    labels = [place for place in places if _is_label(table, place, known)]
    if last in labels and not _ends_differ(table, first, last, labels):
        return Columns(first, last, places[1] if len(places) == 3 else None, guessed)
    if labels == [first]:
        return Columns(places[1], first, places[2] if len(places) == 3 else None, _few(table, first))
    values = table.column(last)
    if labels or (len(values) >= _SURE and len(set(values)) == len(values)):
        raise _unsure(table, "label")
    return Columns(first, last, places[1] if len(places) == 3 else None, guessed)


def _ends_differ(table: Table, first: int, last: int, labels: Sequence[int]) -> bool:
    """Whether the first column, by its few values, is rather the label than the last, which also has few."""
    return first in labels and 4 * len(set(table.column(first))) <= len(set(table.column(last)))


def _filled(table: Table, text: int | None, label: int | None, second: int | None, known: Collection[str]) -> Columns:
    """Complete the columns that neither names nor the person tell, by what stands in those that are left."""
    taken = {place for place in (text, label, second) if place is not None}
    free = [place for place in range(table.width) if place not in taken and not counts_rows(table.column(place))]
    guessed = []
    if label is None:
        labels = [place for place in free if _is_label(table, place, known)]
        label = _only(labels if labels else free if text is not None else [])
        if label is None:
            raise _no_column(table, "label")
        guessed.append(_few(table, label) if labels else "the label is what is left")
    if text is None:
        rest = [place for place in free if place != label]
        text = _only([place for place in rest if _has_sentences(table.column(place))] or rest)
        if text is None:
            raise _no_column(table, "text")
        guessed += ["the text by its words"] if len(rest) > 1 else ["the text is what is left"] if table.names else []
    if len({text, label, second}) < 3:
        raise UsageError(f"{table.path}: text, label and second text are three columns; two are the same")
    return Columns(text, label, second, ", ".join(guessed))


def _only(places: Sequence[int]) -> int | None:
    return places[0] if len(places) == 1 else None


def _few(table: Table, place: int) -> str:
    return f"the label by its {len(set(table.column(place)))} values"


def _has_sentences(column: Sequence[str]) -> bool:
    """Whether most of a column are several words, and few of them equal."""
    return 2 * sum(" " in value for value in column) > len(column) and not few_values(column)


def _no_column(table: Table, what: str) -> RegardError:
    """That a column cannot be told; of JSON Lines with no key that it could be, that the key is missing."""
    if not table.separator and table.width < 2:
        return RegardError(no_column(table, what))
    return _unsure(table, what)


def _unsure(table: Table, what: str) -> UsageError:
    return UsageError(f"{table.path}: which {table.kind} is the {what}? There is {table.columns()}", _ways(table))


def _ways(table: Table, label_first: bool = False) -> str:
    """The ways to say which column is which."""
    say = ("say ", Option("text"), " and ", Option("label"), " by name")
    keys = " (data.text, data.label)"
    if not table.separator:
        return Advice("call the keys text and label, or ", *say, keys)
    order = "label, text (and second text)" if label_first else "text (and second text), label"
    write = f"write {order} with {table.separator} between, or name columns text and label in the first line, or "
    return Advice(write, *say, " or number, as ", Option("text", "2"), " ", Option("label", "1"), keys)


def _told(table: Table, columns: Columns) -> list[str]:
    """A sentence where something was guessed, or where named columns are not read."""
    used = {columns.text, columns.label, columns.second}
    unread = [table.called(place) for place in range(table.width) if place not in used] if table.separator else []
    if not columns.guessed and not unread:
        return []
    read = [("text", columns.text), ("second text", columns.second), ("label", columns.label)]
    parts = ", ".join(f"{what} is {table.kind} {table.called(place)}" for what, place in read if place is not None)
    left = f"; not read: {', '.join(unread)}" if unread else ""
    if not columns.guessed:
        return [f"{table.path}: {parts}{left}"]
    otherwise = ("; say otherwise with ", Option("text"), " and ", Option("label"), ")")
    return [Advice(f"{table.path}: {parts} ({columns.guessed}", *otherwise, left)]


# --- Rows


def _read(table: Table, columns: Columns, keys: Keys) -> Iterator[Labelled]:
    heads = table.names.index(keys.heads) if not table.separator and keys.heads in table.names else None
    label_of = as_label if not table.separator else _plain_label
    for line, row in table.rows:
        if not row:
            continue
        if table.separator and len(row) != table.width:
            raise RegardError(
                f"{table.path}, line {line}: {len(row)} columns where {table.width} should be",
                _ways(table, keys.label_first),
            )
        text, label = table.cell(line, row, columns.text, as_text), table.cell(line, row, columns.label, label_of)
        second = None if columns.second is None else table.cell(line, row, columns.second, as_text)
        tree = None if heads is None else _tree(table, line, row, heads, text, second)
        yield Labelled(text, label, second, tree)


def _plain_label(key: str, value: object) -> str:
    label = str(value).strip()
    if not label:
        raise ValueError("the label is empty (see data.label_first)")
    return label


def _tree(
    table: Table, line: int, row: Sequence[object], place: int, text: str, second: str | None
) -> tuple[int, ...] | None:
    """The tree of a line's text; None where the line has none."""
    given = row[place]
    if given is MISSING or given is None:
        return None
    try:
        if second is not None:
            raise ValueError("a tree is of one text, and here are two; leave out the one or data.second")
        return as_tree(given, len(text.split()))
    except ValueError as error:
        raise RegardError(f"{table.path}, line {line}: {table.called(place)}: {error} (see data.heads)") from error


def as_tree(parents: object, words: int) -> tuple[int, ...]:
    """The parent (head) of each word in its dependency tree, roots with themselves; a ValueError says why it is none."""
    if not isinstance(parents, list) or any(type(parent) is not int for parent in parents):
        raise ValueError("write a list of whole numbers, the place of each word's head")
    if len(parents) != words:
        raise ValueError(f"{len(parents)} heads for {words} words; each word, between white space, has one")
    wrong = [parent for parent in parents if not -1 <= parent < words]
    if wrong:
        raise ValueError(f"no word {wrong[0]}; words are 0 to {words - 1}, and a root has -1 or itself")
    tree = tuple(word if parent == -1 else parent for word, parent in enumerate(parents))
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


def _label_then_text(path: Path, encoding: str) -> Iterator[Labelled]:
    for number, line in enumerate(lines_of(path, encoding), start=1):
        label, space, text = line.strip().partition(" ")
        if label and not space:
            raise RegardError(f"{path}, line {number}: no text after the label {label!r}", "write label, space, text")
        if label:
            yield Labelled(text.strip(), label)
