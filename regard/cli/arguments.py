"""Words that people type, made into words that typer reads: `--data a.en a.de`, and `--debug` and `--plugin` anywhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

from regard.errors import Named, Option, Setting, UsageError, Verb, nearest

if TYPE_CHECKING:
    from typer._click.core import Command, Context

FILE_OPTIONS = ("--data", "--valid", "--test", "--on")  # each takes one file of pairs or two parallel ones
NUMBER_OPTIONS = ("--join", "--seeds")  # each takes any number of numbers
PLUGIN = "--plugin"


class Typed:
    """When the command that runs now was typed, by the clock; time that it is given counts from there."""

    at = time.monotonic()  # about when the process began
    words: Sequence[str] = ()  # what was typed behind `regard`


class SeveralValues(TyperCommand):
    """A verb whose options may be followed by several values: typer's take one at a time."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread_files(args))


class NearestName(TyperGroup):
    """A group whose unknown commands get the nearest name."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise UsageError(f"no command {args[0]}", nearest(args[0], known))
        return super().resolve_command(ctx, args)


def take_debug(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether --debug stands among the options, and the words without it."""
    options, texts = _before_texts(words)
    return "--debug" in options, [word for word in options if word != "--debug"] + texts


def plugins_first(words: Sequence[str]) -> list[str]:
    """`train mine --plugin a.py` as `--plugin a.py train mine`: a plugin is read before the verb's file and its checks."""
    options, texts = _before_texts(words)
    first: list[str] = []
    rest: list[str] = []
    left = iter(options)
    for word in left:
        if word == PLUGIN:
            file = next(left, "")
            if not file:
                raise UsageError(f"{PLUGIN} needs a Python file, as in: regard {PLUGIN} mine.py train mine.toml")
            first += [PLUGIN, file]
        elif word.startswith(f"{PLUGIN}="):
            first.append(word)
        else:
            rest.append(word)
    return first + rest + texts


def spread_files(words: Sequence[str]) -> list[str]:
    """`--data a.en a.de` as `--data a.en --data a.de`, and `--join 2 3` likewise."""
    options, texts = _before_texts(words)
    spread: list[str] = []
    for place, word in enumerate(options):
        if place >= 2 and options[place - 2] in FILE_OPTIONS and _is_second_file(word):
            spread.append(options[place - 2])
        elif len(spread) >= 2 and spread[-2] in NUMBER_OPTIONS and word.isdecimal():
            spread.append(spread[-2])
        spread.append(word)
    return spread + texts


def _is_second_file(word: str) -> bool:
    """Not an option, nor what may follow one file of pairs: a task, a kind of model, a configuration, a run's folder."""
    from regard.models.kinds import all_kinds  # pydantic, which few need for this
    from regard.tasks.table import TASKS

    if word in (*TASKS, *all_kinds()):
        return False
    return not (word.startswith("-") or word.endswith(".toml") or Path(word).is_dir())


def _before_texts(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before a lone `--`, and the rest, which is text and never an option."""
    end = list(words).index("--") if "--" in words else len(words)
    return list(words[:end]), list(words[end:])


TYPED = {"out": "-o", "form": "--as"}  # parameters whose options have another name


def as_typed(named: Named) -> str:
    """A setting, an option or a verb as it is typed in a shell."""
    match named:
        case Setting(key, value):
            return f"--set {key}={value or 'VALUE'}"
        case Option(name, value):
            option = TYPED.get(name) or f"--{name.replace('_', '-')}"
            return f"{option} {value}".rstrip()
        case Verb():
            return str(named)
