"""Chats: prompts and their answers, from JSON Lines or built in. No torch here.

A row is {"prompt": ..., "answer": ...}, or {"messages": [{"role": "user", "content": ...}, ...]} with answers of the role
"assistant"; what a "system" says stands before the first prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypeVar

from regard.config import find_file
from regard.data.builtin.preferences import CHATS, made_chats
from regard.data.config import TextConfig
from regard.data.held_out import hashes_of, held_rows, overlap
from regard.data.lines import lines_of, suffix_of
from regard.errors import RegardError, UsageError

Row = TypeVar("Row")
Chat: TypeAlias = tuple[tuple[str, str], ...]  # turns, each a prompt and its answer
BUILTIN_SIZE, TESTED, HELD = 12_000, 600, 1000  # built-in chats; those of a test; most that are held out
SHOULD = 'a chat is {"prompt": "…", "answer": "…"} or {"messages": [{"role": "user", "content": "…"}, …]}'


@dataclass(frozen=True)
class ChatSets:
    """The chats of a run, and sentences for the person."""

    train: list[Chat]
    valid: list[Chat]
    notes: tuple[str, ...]


def are_chats(names: Sequence[str], data_root: Path | None = None) -> bool:
    """Whether these data are chats and no running text: built-in ones, or JSON Lines whose first row is one."""
    return bool(names) and all(_is_chat(name, data_root) for name in names)


def _is_chat(name: str, data_root: Path | None) -> bool:
    if name.startswith("builtin/"):
        return name == CHATS or name.startswith(f"{CHATS}/")
    try:
        path = find_file(name, data_root)
    except RegardError:  # who reads it says that it is not there
        return False
    row = first_row(path)
    return {"prompt", "answer"} <= row.keys() or isinstance(row.get("messages"), list)


def first_row(path: Path) -> Mapping[str, object]:
    """The first object of JSON Lines; nothing of any other file."""
    if path.is_dir() or suffix_of(path) != ".jsonl":
        return {}
    try:
        row = json.loads(next((line for line in islice(lines_of(path), 100) if line.strip()), "{}"))
    except (ValueError, RegardError):  # who reads all of it says what is wrong
        return {}
    return row if isinstance(row, dict) else {}


def load_chats(config: TextConfig, data_root: Path | None = None) -> ChatSets:
    """Training and validation chats as the configuration names them."""
    if config.train == (CHATS,) and not config.valid:
        size = min(BUILTIN_SIZE, config.builtin_size)
        return ChatSets(_made("train", size), _made("valid", min(TESTED, size)), ())
    train = read_chats(config.train, data_root, "train")
    if config.valid:
        valid = read_chats(config.valid, data_root, "valid")
        return ChatSets(train, valid, tuple(overlap(map(_text, train), map(_text, valid), "validation", "chats")))
    held = held_rows(hashes_of(chat[0][0] for chat in train), HELD, "chats")
    kept, valid = ([each for each, out in zip(train, held, strict=True) if out == which] for which in (False, True))
    return ChatSets(kept, valid, (f"no validation set: held out {len(valid):,} of {len(train):,} chats (by prompt)",))


def read_chats(names: Sequence[str], data_root: Path | None = None, split: str = "test") -> list[Chat]:
    """The chats of files, or built-in ones."""
    found = [chat for name in names for chat in _named(name, data_root, split)]
    if not found:
        raise RegardError(f"there are no chats in {', '.join(names)}", SHOULD)
    return found


def _named(name: str, data_root: Path | None, split: str) -> Iterable[Chat]:
    if name == CHATS or name.startswith(f"{CHATS}/"):
        return _made(name.removeprefix(CHATS).strip("/") or split, TESTED)
    if name.startswith("builtin/"):
        raise UsageError(f"there are no chats {name}", f"the built-in ones are {CHATS}")
    return json_rows(find_file(name, data_root), chat_of, SHOULD)


def _made(split: str, count: int) -> list[Chat]:
    if split not in ("train", "valid", "test"):
        raise UsageError(f"there are no chats {CHATS}/{split}", f"write {CHATS}/valid or {CHATS}/test")
    return [(turn,) for turn in made_chats(split, count)]


def json_rows(path: Path, read: Callable[[Mapping[str, object]], Row], should: str) -> Iterator[Row]:
    """What each line of a file holds, by a reader that raises `ValueError` where something is wrong with it."""
    for number, line in enumerate(lines_of(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"a {type(row).__name__}, not an object")
            yield read(row)
        except ValueError as error:  # JSONDecodeError is one
            raise RegardError(f"{path}, line {number}: {error}", should) from error


def chat_of(row: Mapping[str, object]) -> Chat:
    """The turns of a row."""
    if "messages" in row:
        return turns_of(row["messages"])
    return ((text_under(row, "prompt"), text_under(row, "answer")),)


def text_under(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"no text under {key!r}")
    return value.strip()


def turns_of(messages: object) -> Chat:
    """Messages by turns: of a user, then of the assistant."""
    said = [_message(each) for each in messages] if isinstance(messages, list) else []
    before = "\n".join(text for role, text in said if role == "system")
    talk = [(role, text) for role, text in said if role != "system"]
    roles = [role for role, _ in talk]
    if not talk or roles != ["user", "assistant"] * (len(talk) // 2):
        raise ValueError(f"messages of {', '.join(roles) or 'nobody'}; a user and the assistant take turns")
    texts = [text for _, text in talk]
    texts[0] = f"{before}\n{texts[0]}" if before else texts[0]
    return tuple(zip(texts[::2], texts[1::2], strict=True))


def _message(message: object) -> tuple[str, str]:
    found = message if isinstance(message, dict) else {}
    role, text = found.get("role"), found.get("content")
    if role not in ("system", "user", "assistant") or not isinstance(text, str) or not text.strip():
        raise ValueError("a message is {'role': 'system', 'user' or 'assistant', 'content': a text}")
    return role, text.strip()


def _text(chat: Chat) -> str:
    return "\n".join(text for turn in chat for text in turn)
