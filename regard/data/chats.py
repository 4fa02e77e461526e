"""Chats: prompts and their answers, from JSON Lines or built in, as ids of which only those of answers are learned.

A row is {"prompt": ..., "answer": ...}, or {"messages": [{"role": "user", "content": ...}, ...]} with answers of the role
"assistant"; what a "system" says stands before the first prompt. Each turn is begin, prompt, answer, end, and all turns of a
chat stand one after the other, as in LLaMA 2 (Touvron et al. 2023, section 3.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import torch

from regard.config import find_file
from regard.data.batch import TextBatch, pad
from regard.data.batches import generator, padding_of, plan_by_length
from regard.data.builtin.preferences import CHATS, made_chats
from regard.data.config import ChatFormat, TextConfig
from regard.data.held_out import hashes_of, held_rows, overlap
from regard.data.lines import lines_of, suffix_of
from regard.errors import RegardError, UsageError
from regard.tokens import TextTokenizer

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
        return ChatSets(_made("train", min(BUILTIN_SIZE, config.builtin_size)), _made("valid", TESTED), ())
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


# --- As ids


@dataclass(frozen=True)
class EncodedChat:
    """A chat as ids, and which of them are learned: those of answers, and their ends."""

    ids: np.ndarray  # (T,)
    learned: np.ndarray  # (T,), bool


def prompt_ids(tokenizer: TextTokenizer, chat: ChatFormat, prompt: str) -> list[int]:
    """The ids after which an answer follows, the begin token first."""
    return [tokenizer.specials.begin, *tokenizer.encode(f"{chat.before}{prompt}{chat.after}")]


def encode_chats(chats: Sequence[Chat], tokenizer: TextTokenizer, form: ChatFormat) -> list[EncodedChat]:
    """Chats as ids, all texts at once."""
    turns = [turn for chat in chats for turn in chat]
    asked = tokenizer.encode_all([f"{form.before}{prompt}{form.after}" for prompt, _ in turns])
    both = iter(zip(asked, tokenizer.encode_all([answer for _, answer in turns]), strict=True))
    return [_joined([next(both) for _ in chat], tokenizer) for chat in chats]


def _joined(turns: Sequence[tuple[list[int], list[int]]], tokenizer: TextTokenizer) -> EncodedChat:
    begin, end = tokenizer.specials.begin, tokenizer.specials.end
    ids = [[begin, *prompt, *answer, end] for prompt, answer in turns]
    learned = [[False] * (1 + len(prompt)) + [True] * (len(answer) + 1) for prompt, answer in turns]
    return EncodedChat(np.concatenate(ids).astype(np.int64), np.concatenate(learned))


def fitting_chats(chats: Sequence[EncodedChat], most: int) -> tuple[list[EncodedChat], tuple[str, ...]]:
    """The chats of at most so many tokens, and how many are longer."""
    kept = [chat for chat in chats if len(chat.ids) <= most + 1]
    if not kept:
        raise RegardError(f"all {len(chats):,} chats have more than {most} tokens", "raise data.context")
    dropped = len(chats) - len(kept)
    told = f"dropped {dropped:,} of {len(chats):,} chats: more than data.context ({most}) tokens"
    return kept, (told,) if dropped else ()


def chat_batch(chats: Sequence[EncodedChat], fill: int) -> TextBatch:
    """A batch of chats, of which only answers count."""
    ids, lengths = pad([chat.ids for chat in chats], fill)
    learned, _ = pad([chat.learned for chat in chats], 0)
    count = sum(int(chat.learned[1:].sum()) for chat in chats)
    return TextBatch(ids, lengths - 1, count, learned=learned[:, 1:].to(torch.bool))


class ChatBatches:
    """`batches.get(epoch, index)`: chats of like length, at most `batch_tokens` of them with their padding."""

    def __init__(self, chats: Sequence[EncodedChat], fill: int, batch_tokens: int, seed: int) -> None:
        self.chats, self.fill, self.seed = chats, fill, seed
        self._lengths = np.array([len(chat.ids) - 1 for chat in chats])
        self.budget = max(batch_tokens, int(self._lengths.max()))
        self._plan = lru_cache(maxsize=2)(self._make_plan)

    def count(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def get(self, epoch: int, index: int) -> TextBatch:
        return chat_batch([self.chats[row] for row in self._plan(epoch)[index]], self.fill)

    def padding_share(self) -> float:
        return padding_of(self._plan(0), self._lengths)

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.budget, (self.seed, epoch))


def first_prompts(chats: Sequence[Chat], most: int, seed: int = 0) -> list[str]:
    """Some different first prompts, the same each time."""
    every = list(dict.fromkeys(chat[0][0] for chat in chats))
    order = generator(seed).permutation(len(every))[:most]
    return [every[place] for place in order.tolist()]
