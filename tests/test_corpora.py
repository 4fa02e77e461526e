"""What stands in several corpora, and what of validation stands in training: found by hashes and told with counts."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import held_out
from regard.data.config import LabelledConfig, PairsConfig, TextConfig
from regard.data.corpora import also_in
from regard.data.held_out import WORDS, hash_of, line_hashes, lines_in, occur_in
from regard.data.kept.cache import keep_at_once, no_progress
from regard.data.labelled import further_labelled, load_labelled
from regard.data.pairs import further_pairs, load_pairs
from regard.data.text_sets import DocumentRows, further_texts, leak_notes, load_texts
from regard.errors import Advice, Setting
from regard.tasks.configure import run_config
from regard.tasks.recipe import prepare

NUMBERS = st.lists(st.integers(0, 60), max_size=30)
LETTERS = st.text(st.sampled_from("ab \n\t"), max_size=60)


def hashes(numbers: list[int]) -> np.ndarray:
    return np.unique(np.array(numbers, dtype=np.uint64))


@settings(max_examples=60, deadline=None)
@given(NUMBERS, st.lists(NUMBERS, min_size=1, max_size=3))
def test_hashes_are_counted_in_parts_as_in_sets(ours: list[int], others: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "CHUNK", 7)
        assert also_in(hashes(ours), [hashes(each) for each in others]) == len(set(ours) & set().union(*others))
        parts = [np.array(each, dtype=np.uint64) for each in others]
        known = occur_in(np.array(ours, dtype=np.uint64), parts)
    assert known.tolist() == [each in set().union(*others) for each in ours]


@settings(max_examples=60, deadline=None)
@given(LETTERS, st.integers(1, 9))
def test_lines_do_not_depend_on_blocks(text: str, size: int) -> None:
    blocks = [text[start : start + size] for start in range(0, len(text), size)]
    wanted = [hash_of(line.strip()) for line in text.split("\n") if len(line.split()) >= WORDS]
    assert line_hashes(line for some in lines_in(blocks) for line in some).tolist() == wanted


def test_a_text_without_line_ends_is_looked_through_in_constant_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "LONGEST_LINE", 5_000)
    monkeypatch.setattr("regard.data.text_sets.BLOCK", 1 << 12)
    for text in ("one two three four five six ", "one two three four five six\n"):
        data = np.frombuffer((text * 100_000).encode(), dtype=np.uint8)
        rows = DocumentRows(data, np.array([0], dtype=np.uint64), np.array([len(data)], dtype=np.uint64))
        tracemalloc.start()
        count = sum(len(some) for some in rows.lines())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count > 100 and peak < len(data) / 10, (count, peak)


# --- Corpora beside each other


def write(path: Path, rows: range) -> str:
    path.write_text("".join(f"source {row}\tt{row % 3}\n" for row in rows), encoding="utf-8")
    return str(path)


def corpora(folder: Path) -> dict[str, Any]:
    """Three corpora: the second has 7 rows of the first, the third 5 of the first or the second."""
    names = {"a": range(50), "b": range(43, 60), "c": range(55, 70)}
    first, second, third = (write(folder / f"{name}.tsv", rows) for name, rows in names.items())
    valid = write(folder / "valid.tsv", range(100, 107))
    return {"train": (first,), "valid": (valid,), "also": ({"train": second}, {"train": third})}


@pytest.mark.parametrize("what", ["pairs", "texts"])
def test_what_stands_in_several_corpora_is_told(tmp_path: Path, what: str) -> None:
    table = corpora(tmp_path)
    rest = tmp_path, (lambda number: keep_at_once), no_progress
    if what == "pairs":
        pairs = PairsConfig(**table)
        found = further_pairs(pairs, rest[0], load_pairs(pairs), *rest[1:])
    else:
        labelled = LabelledConfig(**table)
        found = further_labelled(labelled, rest[0], load_labelled(labelled), *rest[1:])  # type: ignore[assignment]
    second, third = (each.notes[-1] for each in found)
    first, b, c = (str(tmp_path / f"{name}.tsv") for name in "abc")
    assert second.startswith(
        f"{b}: 7 of 17 different {what} also stand in {first}, and are learned so much more often; "
    )
    assert third.startswith(f"{c}: 5 of 15 different {what} also stand in {first} or {b}, ")
    assert isinstance(second, Advice) and Setting("data.weight", "0.5") in second.parts


def test_corpora_that_share_nothing_are_not_told_of(tmp_path: Path) -> None:
    table = corpora(tmp_path) | {"also": ({"train": write(tmp_path / "d.tsv", range(200, 230))},)}
    config = PairsConfig(**table)
    (found,) = further_pairs(config, tmp_path, load_pairs(config), lambda number: keep_at_once, no_progress)
    assert found.notes == ()


# --- Validation inside the training text


def lines(first: int, last: int) -> str:
    return "".join(f"this is line number {n} of a long story\n" for n in range(first, last))


def test_a_validation_text_inside_the_training_text_is_told(tmp_path: Path) -> None:
    """A chapter of a book is no document of its own: whole documents were compared, and nothing was said."""
    book, chapter = tmp_path / "book.txt", tmp_path / "chapter.txt"
    book.write_text(lines(0, 500))
    chapter.write_text("THE END\n" + lines(450, 480) + lines(900, 917))
    notes = load_texts(TextConfig(train=(str(book),), valid=(str(chapter),))).notes
    told = "30 of 47 validation lines of 5 words or more also occur in training"
    assert notes == (f"warning: {told}; scores on them flatter: take them out of training",)
    chapter.write_text(lines(498, 500) + lines(900, 930))
    assert load_texts(TextConfig(train=(str(book),), valid=(str(chapter),))).notes == ()  # 2 of 32, as by chance


def test_a_further_corpus_with_the_end_of_the_book_is_told(tmp_path: Path) -> None:
    """The end of a single document is held out, which no other document is equal to."""
    book, again = tmp_path / "book.txt", tmp_path / "again.txt"
    book.write_text(lines(0, 500))
    again.write_text("An edition\n" + lines(0, 500))
    over = {"data": {"train": str(book), "also": [{"train": str(again)}], "context": 16}, "tokens": {"size": 300}}
    prepared = prepare(run_config("generate", over), tmp_path / "run", data_root=tmp_path, resume=False)
    (told,) = [note for note in prepared.notes if note.startswith("warning: ")]
    assert f"lines of 5 words or more also occur in {again}; " in told
    count, total = (int(word) for word in told.removeprefix("warning: ").split(" validation")[0].split(" of "))
    assert count in (total, total - 1) and total in (50, 51)  # the cut may go through a line


def test_equal_documents_of_corpora_are_told(tmp_path: Path) -> None:
    for name, rows in (("a", range(40)), ("b", range(33, 50))):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"text": "story {row}"}}\n' for row in rows))
    a, b = (str(tmp_path / f"{name}.jsonl") for name in "ab")
    (tmp_path / "valid.txt").write_text(lines(0, 9))
    config = TextConfig(train=(a,), valid=(str(tmp_path / "valid.txt"),), also=({"train": b},))
    (found,) = further_texts(config, tmp_path, load_texts(config), lambda number: keep_at_once, no_progress)
    assert found.notes[-1].startswith(f"{b}: 7 of 17 different documents also stand in {a}, ")


def test_old_and_new_text_that_hold_what_the_other_validates_on(tmp_path: Path) -> None:
    """What the old run was validated on stands in the new text; what the new one is validated on, its end, is new."""
    for name, text in {"old": lines(0, 300), "new": lines(250, 700), "valid": lines(280, 310)}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    places = {name: (str(tmp_path / f"{name}.txt"),) for name in ("old", "new", "valid")}
    old, new = (
        load_texts(TextConfig(train=places["old"], valid=places["valid"])),
        load_texts(TextConfig(train=places["new"])),
    )
    told = "lines of 5 words or more also occur in training; scores on them flatter: take them out of training"
    assert leak_notes(old.unseen, new, "old validation") == [f"warning: 30 of 30 old validation {told}"]
    assert leak_notes(new.unseen, old, "validation") == []
