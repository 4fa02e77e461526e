"""Stories with questions: bAbI's files as they come, JSON Lines, folders of them, or built-in ones.

bAbI (Weston et al. 2015, "Towards AI-complete question answering") numbers the lines of each story from 1; a question stands in
its line with the answer and the numbers of the sentences that support it, divided by tabs. Each question is one example: all
sentences before it, the question, and its answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import find_file
from regard.data import held_out
from regard.data.builtin.worlds import BUILTIN, told_stories
from regard.data.config import StoriesConfig
from regard.data.lines import lines_of, suffix_of
from regard.errors import RegardError, UsageError

VALIDATED, TESTED = 1000, 1000  # built-in examples
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
SHOULD = '{"story": ["...", "..."], "question": "...", "answer": "..."}'
BABI = "bAbI's form: a number and a sentence a line; of a question also its answer and the numbers behind tabs"
_LINE = re.compile(r"(\d+) (.*)")


@dataclass(frozen=True)
class Story:
    """Sentences, a question about them and its answer."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...] = ()  # places of the sentences that the answer follows from, from 0, where that is known


@dataclass(frozen=True)
class StorySets:
    """The stories of a run, and sentences for the person."""

    train: list[Story]
    valid: list[Story]
    notes: tuple[str, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        """Every answer of training, sorted."""
        return tuple(sorted({story.answer for story in self.train}))


def load_stories(config: StoriesConfig, data_root: Path | None = None) -> StorySets:
    """Training and validation stories as the configuration names them."""
    builtin = config.train == (BUILTIN,)
    if builtin and not config.valid:
        return StorySets(made("train", config.builtin_size), made("valid", VALIDATED), ())
    train = read_stories(config.train, data_root, "train")
    if config.valid:
        valid, notes = read_stories(config.valid, data_root, "valid"), []
    else:
        train, valid = hold_out(train, config.hold_out)
        notes = [f"no validation set: held out {len(valid):,} of {len(train) + len(valid):,} questions (by story)"]
    known = {story.answer for story in train}
    unknown = sum(story.answer not in known for story in valid)
    if unknown:
        notes.append(f"{unknown:,} validation questions have answers that training has not: left out")
        valid = [story for story in valid if story.answer in known]
    if len(known) < 2 or not valid:
        raise RegardError(f"{len(known)} different answers and {len(valid)} validation questions", "give more stories")
    return StorySets(train, valid, tuple(notes))


def read_stories(names: Sequence[str], data_root: Path | None = None, split: str = "test") -> list[Story]:
    """The stories of files, of folders with a file for each of bAbI's tasks and splits, or built-in ones."""
    found = [story for name in names for story in _named(name, data_root, split)]
    if not found:
        raise RegardError(f"there are no questions in {', '.join(names)}")
    return found


def _named(name: str, data_root: Path | None, split: str) -> Sequence[Story]:
    if name == BUILTIN or name.startswith(f"{BUILTIN}/"):
        return made(name.removeprefix(BUILTIN).strip("/") or split, TESTED)
    if name.startswith("builtin/"):
        raise UsageError(f"there are no stories {name}", f"the built-in ones are {BUILTIN}")
    path = find_file(name, data_root)
    if path.name.endswith(ARCHIVES):
        raise UsageError(f"{path} is an archive", "unpack it, and name the folder with *_train.txt in it, such as en")
    if not path.is_dir():
        return list(stories_of(path))
    files = sorted(path.glob("*.txt"))
    wanted = [file for file in files if file.stem.endswith(f"_{split}")]
    if not wanted and split == "valid":
        raise UsageError(f"{path}: no file *_valid.txt", "leave out the validation set: some stories are held out")
    if not wanted:
        below = sorted({file.parent for file in path.glob(f"*/*_{split}.txt")}, key=lambda folder: folder.name != "en")
        known = below[0] if below else "a folder of bAbI, such as en, or its files"
        raise UsageError(f"{path}: no file *_{split}.txt", f"name {known}")
    return [story for file in wanted for story in stories_of(file)]


def made(split: str, count: int) -> list[Story]:
    """Built-in stories of a split."""
    return [Story(*each) for each in told_stories(split, count)]


def stories_of(path: Path) -> Iterator[Story]:
    """The questions of one file, each with all sentences before it."""
    if suffix_of(path) in (".jsonl", ".json"):
        return _json_stories(path)
    return babi_stories(enumerate(lines_of(path), start=1), str(path))


def babi_stories(lines: Iterator[tuple[int, str]] | Sequence[tuple[int, str]], name: str) -> Iterator[Story]:
    """The questions in lines of bAbI's form; each line comes with its number in the file."""
    sentences: list[str] = []
    places: dict[int, int] = {}  # of sentences, by the numbers of their lines in the story
    for line, text in lines:
        if not text.strip():
            continue
        if (numbered := _LINE.fullmatch(text.strip())) is None:
            raise RegardError(f"{name}, line {line}: no number before {text[:30]!r}", f"stories come in {BABI}")
        number, rest = int(numbered[1]), numbered[2]
        if number == 1:
            sentences, places = [], {}
        cells = [cell.strip() for cell in rest.split("\t")]
        if len(cells) == 1:
            places[number] = len(sentences)
            sentences.append(cells[0])
            continue
        if not cells[0] or not cells[1]:
            raise RegardError(f"{name}, line {line}: a question needs an answer behind a tab")
        support = [int(each) for each in " ".join(cells[2:]).split() if each.isdecimal()]
        if wrong := [each for each in support if each not in places]:
            raise RegardError(f"{name}, line {line}: there is no sentence {wrong[0]} before it in the story")
        yield Story(tuple(sentences), cells[0], cells[1], tuple(places[each] for each in support))


def _json_stories(path: Path) -> Iterator[Story]:
    for line, text in enumerate(lines_of(path), start=1):
        if not text.strip():
            continue
        try:
            yield story_from(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise RegardError(f"{path}, line {line}: {error}", f"each line should be {SHOULD}") from error


def story_from(row: object) -> Story:
    """A story from JSON; a ValueError says what is wrong with it."""
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__}, not an object")
    sentences = row.get("story")
    if isinstance(sentences, str):
        sentences = split_story(sentences)
    if not isinstance(sentences, list) or not all(isinstance(each, str) for each in sentences):
        raise ValueError("story is not a list of sentences")
    for key in ("question", "answer"):
        if not isinstance(row.get(key), str) or not row[key].strip():
            raise ValueError(f"no text under {key!r}")
    support = row.get("support", [])
    if not isinstance(support, list) or not all(
        isinstance(each, int) and 0 <= each < len(sentences) for each in support
    ):
        raise ValueError("support is not a list of places of sentences, from 0")
    return Story(tuple(sentences), row["question"].strip(), row["answer"].strip(), tuple(support))


def split_story(text: str) -> list[str]:
    """The sentences of a running text: each ends with a full stop and space behind it, or with its line."""
    parts = [part.strip() for line in text.splitlines() for part in re.split(r"(?<=[.!?])\s+", line.strip())]
    return [re.sub(r"^\d+ ", "", part) for part in parts if part]


def hold_out(stories: list[Story], most: int) -> tuple[list[Story], list[Story]]:
    """A tenth of the stories, or about `most` questions; those about one story, told by how it begins, stay together."""
    firsts = held_out.hashes_of("\n".join(story.sentences[:3]) for story in stories)
    held = held_out.held_rows(firsts, most, "questions")
    return [s for s, out in zip(stories, held, strict=True) if not out], [
        s for s, out in zip(stories, held, strict=True) if out
    ]
