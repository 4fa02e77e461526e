"""Preferences: prompts with two answers each, the chosen one first, from JSON Lines or built in. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import find_file
from regard.data.builtin.preferences import NOISE, PREFERENCES, made_preferences
from regard.data.chats import first_row, json_rows, text_under, turns_of
from regard.data.config import PreferencesConfig
from regard.data.held_out import hashes_of, held_rows
from regard.errors import RegardError, UsageError

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
