"""`regard`: the verbs, one file each, joined here; whatever goes wrong becomes one line on stderr and an exit code.

0 well, 1 the work failed, 2 wrong use, 130 interrupted. A verb's file is imported when it is typed, and nothing at its top
imports torch: `regard --help` and wrong use are instant.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard import __version__
from regard.cli.arguments import as_typed, spread_files, take_debug
from regard.errors import RegardError, UsageError, nearest


@dataclass(frozen=True)
class Verb:
    """A command by the file and the name of its function, and the line that says what it does."""

    module: str
    function: str
    does: str


VERBS = {
    name: Verb(*told)
    for name, told in {
        "demo": ("demo", "demo", "The whole journey on built-in data, in about a minute."),
        "train": ("train", "train", "Train a model from your own data."),
        "eval": ("eval", "evaluate", "Score a model on a test set."),
        "translate": (
            "translate",
            "translate",
            "Translate texts, a file line by line, or standard input as it comes: text in, text out.",
        ),
        "generate": ("generate", "generate", "Go on with a text."),
        "fill": (
            "fill",
            "fill",
            'Guess what stands in the gaps of a text: regard fill "Paris is the [MASK] of France".',
        ),
        "classify": (
            "classify",
            "classify",
            "The label of each text or picture, one a line; of several pictures, their names before their labels.",
        ),
        "caption": (
            "caption",
            "caption",
            "What is in each picture, one line for each; of several, with its name before it.",
        ),
        "answer": (
            "answer",
            "answer",
            "The answer to each question, one a line; of several pictures, with the picture's name before it.",
        ),
        "vectors": (
            "vectors",
            "vectors",
            "One vector of length 1 for each text, as JSON, a line each; the product of two says how alike "
            "the texts are.",
        ),
        "look": (
            "look",
            "look",
            "Where a model looks: who looks at whom, all heads, words in colours; what a classifier weighs; "
            "places of a picture.",
        ),
        "walk": (
            "walk",
            "walk",
            "Attention step by step with real numbers: x to q, k, v; q · k; mask; softmax; the weighted sum; "
            "all heads; the output.",
        ),
        "heads": (
            "heads",
            "heads",
            "What each head does (previous token, alignment, broad, ...), by rule, with the number that says so.",
        ),
        "formation": (
            "formation",
            "formation",
            "When a model learned where to look: the attention of a probed text over the steps of its training.",
        ),
        "score": ("score", "score", "Log-probabilities of given pairs."),
        "compare": ("compare", "compare", "One report for several models: quality, significance, size, speed."),
        "extrapolate": (
            "extrapolate",
            "extrapolate",
            "The loss of language models on windows longer than in training: where positions still reach, "
            "and where they break.",
        ),
        "import": ("interop", "import_model", "Take in a model from elsewhere."),
        "export": ("interop", "export_model", "Write a model for other libraries."),
        "runs": ("runs", "runs", "List the runs here: how far they came, how good they are, whether they can go on."),
        "config": ("config", "config", "Every key of a configuration: what it means, its default, its range."),
        "summary": (
            "summary",
            "summary",
            "Every layer of a model in the order in which they run: shape, parameters, multiply-adds.",
        ),
        "verify": ("verify", "verify", "Check what must hold for a model, on your own."),
        "doctor": ("doctor", "doctor", "Look at this machine and installation; say what could be better."),
        "bench": (
            "bench",
            "bench",
            "What attention costs over the length of a text, and which pairs sparse patterns see.",
        ),
    }.items()
}
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "add_completion": False, "pretty_exceptions_enable": False}
WrongUse: type[Any] = typer.BadParameter.__mro__[1]  # typer's own usage error, which has lived in several modules


class NearestName(TyperGroup):
    """A group whose unknown commands get the nearest name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise UsageError(f"no command {args[0]}", nearest(args[0], known))
        return super().resolve_command(ctx, args)


class Verbs(NearestName):
    """The verbs by name; the file of one is imported when it is typed, and of none to list them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.does) for name, verb in VERBS.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        found = [(name, verb.does) for name, verb in VERBS.items() if name.startswith(incomplete)]
        return [SimpleNamespace(value=name, help=does, type="plain") for name, does in found]


def command(name: str) -> Any:
    """The command of a verb, made of its function; bench has commands of its own."""
    verb = VERBS[name]
    made = getattr(import_module(f"regard.cli.{verb.module}"), verb.function)
    if isinstance(made, typer.Typer):
        made.info.cls = NearestName
        return typer.main.get_command(made)
    alone = typer.Typer(**PLAIN)
    alone.command(name)(made)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="New here? Type: regard demo",
    **{**PLAIN, "add_completion": True},
)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=print_version, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (after any verb as well).")
    ] = False,
) -> None:
    """Train, run and look inside attention models on the machine you have."""


def run(arguments: Sequence[str] | None = None) -> int:
    """What the shell calls; the exit code."""
    _write_utf8()
    debug, words = take_debug(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(spread_files(words) or ["--help"], prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # whoever read our output has gone, as `head` does
        return _leave_pipe()
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except SystemExit as end:  # rich and typer end so when a pipe breaks
        return _leave_pipe() if end.code else 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        message, code = _explain(error, debug)
        print(f"regard: {message}", file=sys.stderr)
        return code


def _explain(error: Exception, debug: bool) -> tuple[str, int]:
    """One line for the person, and the exit code."""
    if isinstance(error, RegardError):
        return error.sentence(as_typed), error.exit_code
    if isinstance(error, WrongUse):
        message = error.format_message().rstrip(".")
        verb = error.ctx.command_path if error.ctx is not None else "regard"
        return f"{message[:1].lower()}{message[1:]}; see {verb} --help", UsageError.exit_code
    if isinstance(error, OSError):
        return os_trouble(error), 1
    advice = "" if debug else "; run again with --debug for the traceback"
    return f"{type(error).__name__}: {' '.join(str(error).split())}{advice}", 1


def os_trouble(error: OSError) -> str:
    """Say in our own words what the operating system refused, with the file's name."""
    name = error.filename if isinstance(error.filename, str | os.PathLike) else ""
    told = {
        errno.ENOENT: f"there is no {name or 'such file'}",
        errno.EACCES: f"no permission to open {name or 'a file'}; change it with chmod, or choose another place",
        errno.EPERM: f"no permission to change {name or 'a file'}; choose another place",
        errno.EROFS: f"{name or 'the disk'} can only be read; choose another place",
        errno.EISDIR: f"{name or 'a file'} is a folder; name a file in it",
        errno.ENOTDIR: f"{name or 'a folder'} goes through a file as if it were a folder; look at its parts",
        errno.EEXIST: f"{name or 'a file'} is there already; choose another name",
        errno.ENOSPC: f"the disk is full{f' ({name})' if name else ''}; make room and run it again",
        errno.EDQUOT: f"your quota of disk space is used up{f' ({name})' if name else ''}; make room and run it again",
        errno.ENAMETOOLONG: f"a name is too long: {str(name)[:60]} …",
        errno.EMFILE: "too many files are open; close some, or raise the limit with ulimit -n",
        errno.ENOMEM: "there is not enough memory; close something, or make the batch smaller",
    }.get(error.errno or 0)
    return told or f"{name}: {error.strerror or error}".removeprefix(": ")


def _leave_pipe() -> int:
    """Nothing more can be written; point stdout nowhere, or Python complains when it flushes it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return 1


def _write_utf8() -> None:
    """Text goes out as it came in, as UTF-8, whatever the locale says."""
    for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors=errors)


if __name__ == "__main__":
    sys.exit(run())
