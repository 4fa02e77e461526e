"""Errors that a person can act on: what is wrong, and what would help.

Messages name settings, parameters and commands in Python's words. Whoever prints them elsewhere spells them for the
reader: the command line writes `--on test.tsv` for `Option("on", "test.tsv")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias


@dataclass(frozen=True)
class Setting:
    """A key of the configuration with a value that would help: train.class_weights=balanced."""

    key: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.value else self.key


@dataclass(frozen=True)
class Option:
    """A parameter of what was asked for, such as on='test.tsv'; without a value, its name."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}" if self.value else f"{self.name}="


@dataclass(frozen=True)
class Verb:
    """A command to type in a shell, such as regard import FOLDER."""

    name: str
    words: str = ""

    def __str__(self) -> str:
        return f"regard {self.name} {self.words}".rstrip()


Named: TypeAlias = Setting | Option | Verb


Spell: TypeAlias = Callable[[Named], str]


class Advice(str):
    """A text with settings, options and verbs among its parts: in Python's words, and for others to spell in theirs."""

    parts: tuple[str | Named, ...]

    def __new__(cls, *parts: str | Named) -> Advice:
        self = super().__new__(cls, "".join(map(str, parts)))
        self.parts = parts
        return self

    def spelled(self, spell: Spell) -> str:
        return "".join(spelled(part, spell) if isinstance(part, str) else spell(part) for part in self.parts)

    def __reduce__(self) -> tuple[type[Advice], tuple[str | Named, ...]]:
        return Advice, self.parts


def spelled(text: str, spell: Spell) -> str:
    """A text as it is, or one that names settings, options and verbs as `spell` writes them."""
    return text.spelled(spell) if isinstance(text, Advice) else text


class RegardError(ValueError):
    """The work failed for a reason the person can mend: `wrong` says which, `hint` what would help.

    The command line prints it in one line and exits 1.
    """

    exit_code = 1

    def __init__(self, wrong: str, hint: str = "") -> None:
        super().__init__(wrong, hint)
        self.wrong = wrong
        self.hint = hint

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, spell: Spell = str) -> str:
        """Join what is wrong and what would help to one sentence, with settings and options as `spell` writes them."""
        wrong, hint = spelled(self.wrong, spell), spelled(self.hint, spell)
        if not hint:
            return wrong
        return f"{wrong} {hint}" if wrong.endswith("?") else f"{wrong}; {hint}"


class ModelError(RegardError):
    """The model fails whatever it is asked, as one whose weights are no numbers: going on with other inputs is no use."""


class UsageError(RegardError):
    """The request itself is wrong (unknown name, contradictory options). The command line exits 2."""

    exit_code = 2


class Cancelled(Exception):
    """Raised between two steps or two batches of long work when nobody wants it any more."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint of an error about an unknown name: 'did you mean X?', or the list of what there is."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"there is {', '.join(known)}" if known else ""
