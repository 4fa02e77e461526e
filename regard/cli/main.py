"""`regard`: the verbs, one file each, joined here; whatever goes wrong becomes one line on stderr and an exit code.

0 well, 1 the work failed, 2 wrong use, 130 interrupted. Nothing here or at the top of a verb's file imports torch, so
that `regard --help` is instant.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard import __version__
from regard.cli.answer import answer
from regard.cli.arguments import spread_files, take_debug
from regard.cli.bench import bench
from regard.cli.caption import caption
from regard.cli.classify import classify
from regard.cli.compare import compare
from regard.cli.demo import demo
from regard.cli.doctor import doctor
from regard.cli.eval import evaluate
from regard.cli.export import export_model
from regard.cli.extrapolate import extrapolate
from regard.cli.fill import fill
from regard.cli.formation import formation
from regard.cli.generate import generate
from regard.cli.heads import heads
from regard.cli.import_ import import_model
from regard.cli.look import look
from regard.cli.runs import runs
from regard.cli.score import score
from regard.cli.summary import summary
from regard.cli.train import train
from regard.cli.translate import translate
from regard.cli.vectors import vectors
from regard.cli.verify import verify
from regard.cli.walk import walk
from regard.errors import RegardError, UsageError, nearest

VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "eval": evaluate,
    "translate": translate,
    "generate": generate,
    "fill": fill,
    "classify": classify,
    "caption": caption,
    "answer": answer,
    "vectors": vectors,
    "look": look,
    "walk": walk,
    "heads": heads,
    "formation": formation,
    "score": score,
    "compare": compare,
    "extrapolate": extrapolate,
    "import": import_model,
    "export": export_model,
    "runs": runs,
    "summary": summary,
    "verify": verify,
    "doctor": doctor,
}

WrongUse: type[Any] = typer.BadParameter.__mro__[1]  # typer's own usage error, which has lived in several modules


class Verbs(TyperGroup):
    """A group whose unknown verbs get the nearest name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise UsageError(f"no command {args[0]}{nearest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="New here? Type: regard demo",
)
for name, verb in VERBS.items():
    app.command(name)(verb)
app.add_typer(bench, name="bench", cls=Verbs)


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
        return str(error), error.exit_code
    if isinstance(error, WrongUse):
        message = error.format_message().rstrip(".")
        verb = error.ctx.command_path if error.ctx is not None else "regard"
        return f"{message[:1].lower()}{message[1:]}; see {verb} --help", UsageError.exit_code
    if isinstance(error, OSError):
        return os_trouble(error), 1
    advice = "" if debug else "; run again with --debug for the traceback"
    return f"{type(error).__name__}: {' '.join(str(error).split())}{advice}", 1


def os_trouble(error: OSError) -> str:
    """What the operating system refused, in our own words, with the file's name."""
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
