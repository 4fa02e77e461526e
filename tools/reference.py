"""Write the reference from the code: every verb with its options, every setting, the Python API, the HTTP API.

    python tools/reference.py -o build/reference

Verbs come from the command line's own definition, settings from the configurations that a run is checked by, routes from the
schema that the service serves. Whatever lacks a description is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

import regard
from regard.cli.main import GROUPS, app, command
from regard.config import configurations_in
from regard.models.kinds import CONFIGS, KINDS_OF
from regard.plugins import imported
from regard.predictor import Predictor
from regard.studio.app import make_app
from regard.studio.config import ServeConfig
from regard.studio.documentation import operations_of
from regard.tasks.configure import run_config
from regard.tasks.settings import ConfigKey, allowed_values, config_keys
from regard.tasks.table import TASKS

LINE = 88  # characters of a signature in one line
Missing = Callable[[str], None]  # is told what has no description


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown, with a blank line behind it."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_cell(each) for each in row)} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: object) -> str:
    """A word as code in a cell; nothing where there is nothing."""
    return f"`{text}`" if str(text) else ""


# --- Verbs


def verbs_page(missing: Missing) -> Iterator[str]:
    """Every verb in the order of `regard --help`, with all its arguments and options."""
    yield "# Verbs\n"
    yield "What can be typed behind `regard`, as `regard VERB --help` says it.\n"
    yield "## Before any verb\n"
    yield from _parameters(typer.main.get_command(app), "regard", missing)
    for group, verbs in GROUPS.items():
        yield f"## {group}\n"
        for name in verbs:
            yield from _verb(command(name), f"regard {name}", missing)


def _verb(made: Any, path: str, missing: Missing) -> Iterator[str]:
    """A verb, or one with verbs of its own."""
    yield f"### {path}\n"
    if not (made.help or "").strip():
        missing(f"{path} has no description")
    yield inspect.cleandoc(made.help or "") + "\n"
    if made.epilog:
        yield made.epilog + "\n"
    below: dict[str, Any] = getattr(made, "commands", {})
    if not below:
        yield from _parameters(made, path, missing)
    for name, each in below.items():
        yield from _verb(each, f"{path} {name}", missing)


def _parameters(made: Any, path: str, missing: Missing) -> Iterator[str]:
    """Arguments and options as a table; each as `--help` prints it."""
    context = made.context_class(made, info_name=path)
    rows = []
    for each in made.params:
        record = each.get_help_record(context)
        if record is None:
            continue
        if not (each.help or "").strip():
            missing(f"{path}: {record[0]} has no description")
        rows.append((code(record[0]), record[1].removesuffix("  ")))
    if rows:
        yield from table(("", "what it does"), rows)


# --- Settings


@dataclass
class Setting:
    """A key over all tasks or kinds of models that mean the same by it: its range, and its default in each."""

    key: str
    allowed: str
    meaning: str
    defaults: dict[str, list[str]] = field(default_factory=dict)  # a default -> who has it

    def default(self) -> str:
        """The default; where they differ, that of most, and who has another."""
        (most, _), *others = sorted(self.defaults.items(), key=lambda each: -len(each[1]))
        told = [f"{code(value) or 'none'} ({', '.join(who)})" for value, who in others]
        return "; ".join([code(most) or "none", *told])

    @property
    def owners(self) -> list[str]:
        return [name for who in self.defaults.values() for name in who]


def settings_page(missing: Missing) -> Iterator[str]:
    """Every key of every configuration, table by table; keys of models by kind."""
    shared, kinds = _collected(missing)
    parts = _parts()
    for keys in [shared, *kinds.values()]:
        for each in keys:
            place = each.key.removesuffix(".kind")
            choices = [part.model_fields["kind"].default for part in parts if place in parts[part]]
            if each.key.endswith(".kind") and choices:
                each.allowed, each.meaning = ", ".join(choices), "Which of the kinds below it is."
    yield "# Settings\n"
    yield (
        "Every key of a run's configuration, as `--set train.lr=1e-3` and TOML files name it (`regard config TASK --toml`). "
        "Where a preset, a rule or the time of a run chooses something else, the run says so.\n"
    )
    tables: dict[str, list[Setting]] = {}
    for each in shared:
        tables.setdefault(each.key.rpartition(".")[0], []).append(each)
    for name, keys in tables.items():
        yield f"## {name or 'A run'}\n"
        rows = [(code(each.key), each.default(), each.allowed, each.meaning, _owners(each)) for each in keys]
        yield from table(("key", "default", "range", "what it means", "tasks"), rows)
    yield "## Kinds of models\n"
    for kind, keys in kinds.items():
        yield f"### {kind}\n"
        yield f"{inspect.getdoc(CONFIGS[kind]) or ''} Tasks: {', '.join(t for t in KINDS_OF if kind in KINDS_OF[t])}.\n"
        rows4 = [(code(each.key), each.default(), each.allowed, each.meaning) for each in keys]
        yield from table(("key", "default", "range", "what it means"), rows4)
    yield "## Parts that come in several kinds\n"
    for part, places in sorted(parts.items(), key=lambda each: (min(each[1]), each[0].__name__)):
        yield from _part(part, sorted(places), missing)


def _collected(missing: Missing) -> tuple[list[Setting], dict[str, list[Setting]]]:
    """Keys that do not depend on the kind of model with the tasks that have them, and those of each kind."""
    shared: list[Setting] = []
    kinds: dict[str, list[Setting]] = {}
    for task in TASKS:
        for kind in KINDS_OF[task]:
            for key in config_keys(run_config(task, {"model": {"kind": kind}})):
                if not key.meaning and not key.key.endswith(".kind"):
                    missing(f"{key.key} of {task} ({kind}) has no description")
                if key.key.startswith("model.") and key.key != "model.kind":
                    _note(kinds.setdefault(kind, []), key, task)
                elif kind == KINDS_OF[task][0]:
                    _note(shared, key, task)
    return shared, kinds


def _note(into: list[Setting], key: ConfigKey, owner: str) -> None:
    """Add a key of a task to those of the others, beside one that is called the same and means the same."""
    meaning = key.meaning or "Which kind it is of."
    alike = [each for each in into if (each.key, each.meaning) == (key.key, meaning)]
    found = alike[0] if alike else Setting(key.key, key.allowed, meaning)
    if not alike:
        last = [place for place, each in enumerate(into) if each.key == key.key]
        into.insert(last[-1] + 1 if last else len(into), found)
    default = "" if key.default is None else json.dumps(key.default, ensure_ascii=False).strip('"')
    who = found.defaults.setdefault("" if key.key == "task" else default, [])
    if owner not in who:
        who.append(owner)


def _owners(setting: Setting) -> str:
    return "all" if len(setting.owners) == len(TASKS) else ", ".join(setting.owners)


def _parts() -> dict[type[BaseModel], set[str]]:
    """Configurations that are one of several in some place, and the keys that they may stand under."""
    found: dict[type[BaseModel], set[str]] = {}

    def walk(kind: type[BaseModel], before: str) -> None:
        for name, each in kind.model_fields.items():
            choices, key = configurations_in(each.annotation), f"{before}{each.alias or name}"
            for choice in choices:
                if "kind" in choice.model_fields and len(choices) > 1:
                    found.setdefault(choice, set()).add(key)
                walk(choice, f"{key}.")

    for kind in CONFIGS:
        walk(CONFIGS[kind], "model.")
    for task in TASKS.values():
        for name, each in task.configuration.model_fields.items():
            for choice in configurations_in(each.annotation) if name != "model" else ():
                walk(choice, f"{name}.")
    return found


def _part(part: type[BaseModel], places: list[str], missing: Missing) -> Iterator[str]:
    """One of several parts: what it is, under which keys it may stand, and its own keys."""
    kind = part.model_fields["kind"].default
    yield f"### {places[0]} = {kind}\n"
    also = f" Also under {', '.join(map(code, places[1:]))}." if places[1:] else ""
    yield f"{inspect.getdoc(part) or ''}{also}\n"
    rows = []
    for name, each in part.model_fields.items():
        if name == "kind" or configurations_in(each.annotation):
            continue
        if not each.description:
            missing(f"{places[0]}.{name} ({kind}) has no description")
        default = "" if each.is_required() or each.default is None else json.dumps(each.default, ensure_ascii=False)
        rows.append((code(name), code(default.strip('"')) or "none", allowed_values(each), each.description or ""))
    if rows:
        yield from table(("key", "default", "range", "what it means"), rows)


# --- Python


def python_page(missing: Missing) -> Iterator[str]:
    """What `import regard` gives, and the methods of what `regard.load` returns."""
    yield "# Python\n"
    yield "What stands in `regard`, imported when it is first used; and what `regard.load` returns.\n"
    yield "## regard\n"
    for name in regard.__all__:
        yield from _object(getattr(regard, name), f"regard.{name}", missing)
    yield "## What regard.load returns\n"
    yield "A predictor of the model's task. All have what the first has.\n"
    yield from _class(Predictor, "Predictor", missing)
    for task in TASKS.values():
        made = imported(task.predictor)
        yield from _class(made, f"{made.__name__} ({task.name})", missing, besides=Predictor)


def _object(found: Any, name: str, missing: Missing) -> Iterator[str]:
    if inspect.isclass(found):
        yield from _class(found, name, missing)
        return
    yield f"### {name}\n"
    yield f"```python\n{name}{signature(found, broken=True)}\n```\n"
    yield _doc(found, name, missing)


def _class(found: type[Any], name: str, missing: Missing, besides: type[Any] = object) -> Iterator[str]:
    """A class: how it is made, what it is, and its methods; of one below `besides` only what that does not have."""
    yield f"### {name}\n"
    if besides is object and not issubclass(found, Exception):
        yield f"```python\n{name}{signature(found, broken=True)}\n```\n"
    yield _doc(found, name, missing)
    for each, member in inspect.getmembers_static(found):
        if each.startswith("_") or hasattr(besides, each) or not inspect.getdoc(getattr(found, each)):
            continue
        if isinstance(member, property):
            yield f"- `.{each}`: {_first(member)}"
        elif inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
            yield f"- `.{each}{signature(getattr(found, each))}`: {_first(getattr(found, each))}"
    yield ""


def _first(found: Any) -> str:
    """The docstring, on one line."""
    return " ".join((inspect.getdoc(found) or "").split())


def _doc(found: Any, name: str, missing: Missing) -> str:
    """The docstring as Markdown; lines that are indented stay code."""
    own = inspect.getdoc(found) or ""
    if not own or (inspect.isclass(found) and not found.__dict__.get("__doc__")):
        missing(f"{name} has no docstring")
    return own + "\n"


def signature(found: Callable[..., Any], broken: bool = False) -> str:
    """How something is called, with annotations as they are written; with `broken`, over several lines where it is long."""
    made = inspect.signature(found)
    parts, keyword_only = [], False
    for each in made.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not keyword_only and not any(p.startswith("*") for p in parts):
            parts.append("*")
        keyword_only = keyword_only or each.kind is each.KEYWORD_ONLY
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        parts.append(f"{stars}{each.name}{kind}{default}")
    back = "" if made.return_annotation is made.empty else f" -> {_annotation(made.return_annotation)}"
    line = f"({', '.join(parts)}){back}"
    if len(line) <= LINE or not broken:
        return line
    return "(" + "".join(f"\n    {part}," for part in parts) + f"\n){back}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: object) -> str:
    told = repr(value)
    return "..." if told.startswith("<") else told


# --- HTTP


def http_page(missing: Missing) -> Iterator[str]:
    """Every route of the service's own schema, with the fields of its request."""
    served = make_app(ServeConfig(shipped=False, page=True))
    schema = served.app.openapi()
    served.app.state.service.close()
    yield "# Routes\n"
    yield "Every route of `regard serve`, from the schema that it serves under `/openapi.json`. How it is used, and what keeps"
    yield "it safe: the guide *Models over HTTP*.\n"
    for group, operations in operations_of(schema).items():
        yield f"## {group}\n"
        for each in operations:
            yield f"### {each.method} {each.path}\n"
            if not each.does.strip():
                missing(f"{each.method} {each.path} has no description")
            yield each.does.strip() + "\n"
            rows = [(code(row.name), row.kind + (", needed" if row.needed else ""), row.does) for row in each.fields]
            if rows:
                yield from table(("field", "", "what it means"), rows)


PAGES = {"verbs": verbs_page, "settings": settings_page, "python": python_page, "http": http_page}


def write_reference(folder: Path) -> list[str]:
    """Write every page; return what has no description."""
    missing: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        text = "\n".join(make(missing.append)) + "\n"
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return sorted(set(missing))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the reference from the code.")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/reference"), help="the folder of the pages")
    asked = parser.parse_args(arguments)
    missing = write_reference(asked.out)
    for each in missing:
        print(each, file=sys.stderr)
    print(f"wrote {', '.join(PAGES)} into {asked.out}" + (f"; {len(missing)} have no description" if missing else ""))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
