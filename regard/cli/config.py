"""`regard config`: every key of a configuration, a file to edit, and how large the presets are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import AsJson, given
from regard.cli.output import print_json, print_table, say
from regard.errors import UsageError, nearest
from regard.files import write_text
from regard.models.kinds import KINDS_OF
from regard.models.presets import PRESETS
from regard.tasks.configure import run_config
from regard.tasks.settings import ConfigKey, as_toml, config_keys, preset_sizes
from regard.tasks.table import TASKS


def config(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="translate, generate, fill, classify, classify-pictures, caption or answer; or a TOML file.",
            show_default="the list of tasks",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="Only keys that hold this, as train or lr.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of model: each has keys of its own.", show_default="of the task"),
    ] = None,
    size: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help="Size of the model.", show_default="of the task")
    ] = None,
    toml: Annotated[bool, typer.Option("--toml", help="A file to edit, for regard train.")] = False,
    presets: Annotated[bool, typer.Option("--presets", help="How large the presets of each kind are.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write the TOML here.", show_default="the terminal"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every key of a configuration: what it means, its default, its range.

    regard config translate --toml -o mine.toml writes a file to edit; regard train mine.toml trains it.
    """
    if what is None:
        _print_tasks(as_json)
        return
    if presets:
        if what not in TASKS:
            raise UsageError(f"no task {what}", nearest(what, TASKS))
        _print_presets(what, as_json)
        return
    if "." in what and not what.endswith(".toml"):
        raise UsageError(f"no task {what}; keys are those of a task, as in: regard config translate {what}")
    over = given(model=None if model is None else {"kind": model}, preset=None if what.endswith(".toml") else size)
    found = run_config(what, over)
    if toml or out is not None:
        _write(as_toml(found, size or type(found).size), out)
        return
    keys = [each for each in config_keys(found) if key is None or key in each.key]
    if not keys:
        raise UsageError(f"no key holds {key}; leave it out to see them all")
    if as_json:
        print_json([each.data() for each in keys])
    else:
        _print_keys(keys)


def _print_keys(keys: list[ConfigKey]) -> None:
    rows = [(each.key, _shown(each.default), each.allowed, each.meaning) for each in keys]
    print_table(("key", "default", "range", "what it means"), rows, fold=("default", "range", "what it means"))


def _shown(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        print(text, end="")
        return
    if out.suffix != ".toml":
        raise UsageError(f"-o {out}: a configuration ends in .toml, or regard train does not know it")
    if out.exists():
        raise UsageError(f"{out} is there already; choose another name, so that nothing of it is lost")
    say(f"wrote {write_text(out, text)}; train it with: regard train {out}")


def _print_tasks(as_json: bool) -> None:
    tasks = [(name, (task.configuration.__doc__ or "").strip(), list(KINDS_OF[name])) for name, task in TASKS.items()]
    if as_json:
        named = [dict(zip(("task", "does", "kinds"), each, strict=True)) for each in tasks]
        print_json({"tasks": named, "presets": list(PRESETS)})
        return
    rows = [(name, does, ", ".join(kinds)) for name, does, kinds in tasks]
    print_table(("task", "what it makes", "kinds of models"), rows, fold=("what it makes", "kinds of models"))
    say("regard config translate lists its keys; --toml writes a file to edit; --presets shows how large they are")


def _print_presets(task: str, as_json: bool) -> None:
    found = preset_sizes(task)
    if as_json:
        print_json([each.data() for each in found])
        return
    columns = ("preset", "kind", "width", "layers", "vocabulary", "parameters")
    rows = [
        (
            each.preset,
            each.kind,
            each.width,
            each.layers,
            f"{each.vocabulary:,}" if each.vocabulary else "",
            f"{each.parameters:,}",
        )
        for each in found
    ]
    print_table(columns, rows, right=columns[2:])
