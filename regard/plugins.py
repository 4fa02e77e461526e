"""Plugins: scores, kernels, kinds of models and tasks that people add from files and packages of their own. No torch here.

    # mine.py, used as: regard train translate --model bahdanau --set model.score=mine --plugin mine.py
    import regard

    regard.add_score("mine", lambda query_width, key_width, longest: MyScore(query_width, key_width))

A plugin is a file, or a package that names a module under the entry point `regard.plugins`. What it adds stands in the same
tables as ours; a bundle that needs it says which plugin that was.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from regard.errors import Advice, Option, RegardError, UsageError

Sort = Literal["score", "kernel", "kind", "task"]
GROUP = "regard.plugins"  # the entry point of packages

Part = TypeVar("Part")

_adding: ContextVar[str] = ContextVar("adding", default="a plugin")
_added: dict[tuple[str, str], str] = {}  # (sort, name) -> the plugin that added it
_loaded: dict[str, str] = {}  # the file of each plugin -> its name


def imported(part: Any) -> Any:
    """A part of a record or a table: what "module:name" names, or the part itself."""
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)


class NamedParts(MutableMapping[str, Part]):
    """A table of parts, some named as "module:name": each is imported when it is first looked up, and no other with it."""

    def __init__(self, parts: Mapping[str, str | Part]) -> None:
        self._parts = dict(parts)

    def __getitem__(self, name: str) -> Part:
        part = self._parts[name]
        if isinstance(part, str):
            self._parts[name] = part = imported(part)
        return cast("Part", part)

    def __setitem__(self, name: str, part: Part) -> None:
        self._parts[name] = part

    def __delitem__(self, name: str) -> None:
        del self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def lent(self) -> dict[str, str | Part]:
        """The parts as they are named, for another table; nothing is imported."""
        return dict(self._parts)


def adding(sort: Sort, name: str, taken: Container[str]) -> None:
    """Note that the plugin which is being loaded adds `name`; one that is there already is refused."""
    if name in taken:
        raise UsageError(f"there is a {sort} {name} already", "give yours another name")
    _added[sort, name] = _adding.get()


def added(sort: Sort) -> tuple[str, ...]:
    """The names of this sort that plugins added."""
    return tuple(name for of, name in _added if of == sort)


def needed_by(values: object) -> tuple[str, ...]:
    """The plugins without which a configuration, dumped to plain values, means nothing."""
    return tuple(sorted(set(_needed(values))))


def _needed(values: object) -> Iterator[str]:
    for key, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, str):
            sorts = {"task": ("task",), "score": ("score",), "kind": ("kind", "kernel")}.get(key, ())
            yield from (_added[sort, value] for sort in sorts if (sort, value) in _added)
        else:
            yield from _needed(value)


def check_plugins(names: Sequence[str], what: str) -> None:
    """Refuse what needs plugins that are not loaded, by their names."""
    missing = [name for name in names if name not in _loaded.values()]
    if missing:
        hint = Advice("load its file: ", Option("plugin", f"{missing[0]}.py"))
        raise RegardError(f"{what} needs the plugin {', '.join(missing)}, which is not loaded", hint)


def load_plugins(files: Sequence[str | Path] = ()) -> None:
    """Load these files, and before them what installed packages add; each is loaded once."""
    _load_installed()
    for file in files:
        path = Path(file).resolve()
        if str(path) not in _loaded:
            _load(path, file)


def _load(path: Path, typed: str | Path) -> None:
    if not path.is_file():
        raise UsageError(f"there is no plugin {typed}", "name a Python file")
    spec = spec_from_file_location(f"regard_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"there is no plugin {typed}", "name a Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    with _named(path.stem, f"the plugin {typed}"):
        spec.loader.exec_module(module)
    _loaded[str(path)] = path.stem


@lru_cache(maxsize=1)
def _load_installed() -> None:
    from importlib.metadata import entry_points  # a third of the time of `regard --help`, which loads no plugin

    for point in entry_points(group=GROUP):
        with _named(point.name, f"the plugin {point.name} of an installed package"):
            point.load()
        _loaded[f"{GROUP}:{point.name}"] = point.name


@contextmanager
def _named(name: str, where: str) -> Iterator[None]:
    token = _adding.set(name)
    before = dict(_added)
    try:
        yield
    except UsageError:
        _forget(before)
        raise
    except Exception as error:
        _forget(before)
        raise UsageError(f"{where} fails: {type(error).__name__}: {error}") from error
    finally:
        _adding.reset(token)


def _forget(before: dict[tuple[str, str], str]) -> None:
    _added.clear()
    _added.update(before)
