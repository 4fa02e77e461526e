"""`regard`: the verbs, one file each, joined here; whatever goes wrong becomes one line on stderr and an exit code.

0 well, 1 the work failed, 2 wrong use, 130 interrupted. A verb's file is imported when it is typed, and nothing at its top
imports torch: `regard --help` and wrong use are instant.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard import __version__
from regard.cli.arguments import NearestName, SeveralValues, Typed, as_typed, plugins_first, take_debug
from regard.errors import RegardError, UsageError
from regard.plugins import added, load_plugins
from regard.world import LostError, ended_for_good

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter


# The verbs in the order of the journey, in the groups of `regard --help`; each is the file and the name of its function.
GROUPS = {
    "Train": {
        "demo": "demo:demo",
        "course": "course:course",
        "data": "data:data",
        "train": "train:train",
        "tune": "tune:tune",
        "config": "config:config",
        "runs": "runs:runs",
    },
    "Use": {
        "translate": "translate:translate",
        "generate": "generate:generate",
        "fill": "fill:fill",
        "classify": "classify:classify",
        "caption": "caption:caption",
        "transcribe": "transcribe:transcribe",
        "answer": "answer:answer",
        "ask": "ask:ask",
        "remember": "remember:remember",
        "compute": "compute:compute",
        "vectors": "vectors:vectors",
        "score": "score:score",
        "serve": "serve:serve",
        "studio": "serve:studio",
    },
    "Look inside": {
        "look": "look:look",
        "walk": "walk:walk",
        "heads": "heads:heads",
        "formation": "formation:formation",
        "landscape": "landscape:landscape",
        "summary": "summary:summary",
        "tokens": "tokens:tokens",
    },
    "Measure and compare": {
        "eval": "eval:evaluate",
        "compare": "compare:compare",
        "extrapolate": "extrapolate:extrapolate",
        "bench": "bench:bench",
        "cost": "cost:cost",
        "plan": "plan:plan",
        "scale": "scale:scale",
        "experiment": "experiment:experiment",
    },
    "Exchange and check": {
        "import": "interop:import_model",
        "export": "interop:export_model",
        "verify": "verify:verify",
        "doctor": "doctor:doctor",
    },
}


@dataclass(frozen=True)
class VerbFile:
    """A command, by the file and the name of its function."""

    module: str
    function: str

    @cached_property
    def does(self) -> str:
        """The first line of its docstring, read from the file without importing it: 25 imports would be felt."""
        source = Path(__file__).with_name(f"{self.module}.py").read_text(encoding="utf-8")
        docstring = re.search(rf'^(?:def )?{self.function}\b.*?"""(.*?)(?:\n|""")', source, re.DOTALL | re.MULTILINE)
        return docstring[1] if docstring else ""


VERBS = {name: VerbFile(*place.split(":")) for verbs in GROUPS.values() for name, place in verbs.items()}
WrongUse: type[Any] = typer.BadParameter.__mro__[1]  # typer's own usage error, which has lived in several modules


class Verbs(NearestName):
    """The verbs by name; the file of one is imported when it is typed, and of none to list them."""

    def list_commands(self, ctx: Context) -> list[str]:
        return [*VERBS, *added("task")]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        return command(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))  # the same in every group
        groups = {group: {name: VERBS[name].does for name in verbs} for group, verbs in GROUPS.items()}
        if _added_verbs():
            groups["Added by plugins"] = _added_verbs()
        for group, verbs in groups.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), does) for name, does in verbs.items()])

    def shell_complete(self, ctx: Context, incomplete: str) -> list[Any]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        found = [(name, verb.does) for name, verb in VERBS.items() if name.startswith(incomplete)]
        return [SimpleNamespace(value=name, help=does, type="plain") for name, does in found]


def _added_verbs() -> dict[str, str]:
    """The tasks that plugins added, each a verb, and what it does."""
    names = added("task")
    if not names:
        return {}
    predict = import_module("regard.cli.predict")
    return {name: predict.does(name) for name in names}


def _function(name: str) -> Any:
    if name not in VERBS:
        return import_module("regard.cli.predict").verb_of(name)
    return getattr(import_module(f"regard.cli.{VERBS[name].module}"), VERBS[name].function)


def command(name: str) -> Command:
    """The command of a verb, made of its function; bench has commands of its own."""
    made = _function(name)
    if isinstance(made, typer.Typer):
        return typer.main.get_command(made)
    alone = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=SeveralValues)(made)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="New here? Type: regard demo",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def read_plugins(files: list[Path] | None) -> None:
    load_plugins(files or ())


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
    plugins: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            envvar="REGARD_PLUGINS",
            callback=read_plugins,
            is_eager=True,
            help="A Python file with tasks, models, scores or kernels of your own (after any verb as well; may be repeated).",
        ),
    ] = None,
) -> None:
    """Train, run and look inside attention models on the machine you have."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Do what was typed; the exit code for the shell."""
    _write_utf8()
    if arguments is not None:  # not what the process was begun for
        Typed.at = time.monotonic()
    Typed.words = list(sys.argv[1:] if arguments is None else arguments)
    debug, words = take_debug(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(plugins_first(words) or ["--help"], prog_name="regard", standalone_mode=False)
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
        return ended_for_good(code) if isinstance(error, RegardError) and not isinstance(error, LostError) else code


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
