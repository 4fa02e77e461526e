"""Preferences: prompts with two answers each, the chosen one first, from JSON Lines or built in; and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.config import find_file
from regard.data.batch import PreferenceBatch
from regard.data.batches import padding_of, plan_by_length
from regard.data.builtin.preferences import NOISE, PREFERENCES, made_preferences
from regard.data.chats import EncodedChat, chat_batch, encode_chats, first_row, json_rows, text_under, turns_of
from regard.data.config import ChatFormat, PreferencesConfig
from regard.data.held_out import hashes_of, held_rows
from regard.errors import RegardError, UsageError
from regard.tokens import TextTokenizer

TESTED = 600  # built-in pairs of a test
SHOULD = 'a preference is {"prompt": "…", "chosen": "…", "rejected": "…"}'


@dataclass(frozen=True)
class Preference:
    """A prompt and two answers, of which the first was chosen."""

    prompt: str
    chosen: str
    rejected: str


@dataclass(frozen=True)
class PreferenceSets:
    """The pairs of a run, and sentences for the person."""

    train: list[Preference]
    valid: list[Preference]
    notes: tuple[str, ...]


def are_preferences(names: Sequence[str]) -> bool:
    """Whether these data are preferences: built-in ones, or JSON Lines whose first row is one."""
    return bool(names) and all(
        name.startswith(PREFERENCES)
        if name.startswith("builtin/")
        else {"chosen", "rejected"} <= first_row(find_file(name)).keys()
        for name in names
    )


def load_preferences(config: PreferencesConfig, data_root: Path | None = None) -> PreferenceSets:
    """Training and validation pairs as the configuration names them."""
    if config.train == (PREFERENCES,) and not config.valid:
        train = _made("train", config.builtin_size, config.noise)
        return PreferenceSets(train, _made("valid", min(config.hold_out, config.builtin_size)), ())
    train = read_preferences(config.train, data_root, "train")
    if config.valid:
        return PreferenceSets(train, read_preferences(config.valid, data_root, "valid"), ())
    held = held_rows(hashes_of(each.prompt for each in train), config.hold_out, "preferences")
    kept, valid = ([each for each, out in zip(train, held, strict=True) if out == which] for which in (False, True))
    return PreferenceSets(kept, valid, (f"no validation set: held out {len(valid):,} of {len(train):,} (by prompt)",))


def read_preferences(names: Sequence[str], data_root: Path | None = None, split: str = "test") -> list[Preference]:
    """The pairs of files, or built-in ones."""
    found = [pair for name in names for pair in _named(name, data_root, split)]
    if not found:
        raise RegardError(f"there are no preferences in {', '.join(names)}", SHOULD)
    return found


def _named(name: str, data_root: Path | None, split: str) -> Iterable[Preference]:
    if name == PREFERENCES or name.startswith(f"{PREFERENCES}/"):
        return _made(name.removeprefix(PREFERENCES).strip("/") or split, TESTED)
    if name.startswith("builtin/"):
        raise UsageError(f"there are no preferences {name}", f"the built-in ones are {PREFERENCES}")
    return json_rows(find_file(name, data_root), _preference_of, SHOULD)


def _made(split: str, count: int, noise: float = NOISE) -> list[Preference]:
    if split not in ("train", "valid", "test"):
        raise UsageError(f"there are no preferences {PREFERENCES}/{split}", f"write {PREFERENCES}/valid or /test")
    return [Preference(*each) for each in made_preferences(split, count, noise)]


def _preference_of(row: Mapping[str, object]) -> Preference:
    return Preference(text_under(row, "prompt"), _answer(row, "chosen"), _answer(row, "rejected"))


def _answer(row: Mapping[str, object], key: str) -> str:
    """An answer as a text, or as the last of some messages."""
    if isinstance(row.get(key), list):
        return turns_of(row[key])[-1][1]
    return text_under(row, key)


# --- As ids


@dataclass(frozen=True, eq=False)
class EncodedPreferences:
    """Pairs as ids, and, once they are known, the log-probabilities of both answers by the model that is gone on from."""

    chosen: Sequence[EncodedChat]
    rejected: Sequence[EncodedChat]
    fill: int
    reference: np.ndarray | None = None  # (N, 2)

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens to predict of the longer row of each pair: (N,)."""
        both = zip(self.chosen, self.rejected, strict=True)
        return np.array([max(len(one.ids), len(other.ids)) - 1 for one, other in both])

    def take(self, rows: Sequence[int] | np.ndarray) -> PreferenceBatch:
        every = [side[row] for side in (self.chosen, self.rejected) for row in rows]
        found = chat_batch(every, self.fill)
        assert found.learned is not None
        return PreferenceBatch(found.ids, found.lengths, found.learned, self._known(rows))

    def _known(self, rows: Sequence[int] | np.ndarray) -> Tensor | None:
        if self.reference is None:
            return None
        return torch.from_numpy(self.reference[np.asarray(rows, dtype=np.int64)].T.flatten())


def encode_preferences(
    pairs: Sequence[Preference], tokenizer: TextTokenizer, form: ChatFormat, most: int
) -> tuple[EncodedPreferences, tuple[str, ...]]:
    """Pairs as ids, without those of more than `most` tokens, which are counted in a note."""
    chosen = encode_chats([((each.prompt, each.chosen),) for each in pairs], tokenizer, form)
    rejected = encode_chats([((each.prompt, each.rejected),) for each in pairs], tokenizer, form)
    every = list(zip(chosen, rejected, strict=True))
    fitting = [pair for pair in every if max(len(each.ids) for each in pair) <= most + 1]
    if not fitting:
        raise RegardError(
            f"all {len(every):,} pairs have an answer that ends beyond {most} tokens", "give shorter ones"
        )
    dropped = len(every) - len(fitting)
    told = (f"dropped {dropped:,} of {len(every):,} pairs: more than {most} tokens",) if dropped else ()
    sides = tuple(zip(*fitting, strict=True))
    return EncodedPreferences(sides[0], sides[1], tokenizer.specials.pad), told


class PreferenceBatches:
    """`batches.get(epoch, index)`: pairs of like length, at most `batch_tokens` tokens of both answers with padding."""

    def __init__(self, pairs: EncodedPreferences, batch_tokens: int, seed: int) -> None:
        self.pairs, self.seed, self._lengths = pairs, seed, 2 * pairs.lengths
        self.budget = max(batch_tokens, int(self._lengths.max()))
        self.plan = lru_cache(maxsize=2)(self._plan)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> PreferenceBatch:
        return self.pairs.take(self.plan(epoch)[index])

    def padding_share(self) -> float:
        return padding_of(self.plan(0), self._lengths)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.budget, (self.seed, epoch))
