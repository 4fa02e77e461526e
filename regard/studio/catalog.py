"""The models of a service: those that were named, those of `models` and of the folder's runs, and those of Regard itself.

A client names a model by its name in this list, never by a path. A model is loaded when it is first asked for; the one that
was not asked for the longest time is dropped when the weights of all would be too many.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from regard.config import Tables
from regard.errors import RegardError, nearest
from regard.files import read_json
from regard.predictor import Predictor
from regard.runs import CONFIG, all_runs, bundle_folder, shipped_bundles
from regard.studio.config import ServeConfig
from regard.studio.metrics import Metrics
from regard.studio.refusals import Refusal
from regard.tasks.trained import load_model

FRESH = 1.0  # seconds for which a list of the folder is not made again
BEING_WRITTEN = (".tmp", ".old")  # endings of folders that `new_folder` is about to rename or remove
DEPTH = 3  # of runs below their folder, as in tune/1/best

P = TypeVar("P", bound=Predictor)


@dataclass(frozen=True, eq=False)
class Entry:
    """A model that can be asked for, not loaded yet."""

    name: str
    folder: Path  # of the bundle
    run: Path | None  # the run that it is of, where it is
    shipped: bool
    config: Tables = field(repr=False)  # its config.json, not checked yet
    changed: float  # when that was written: a run that goes on writes its bundle anew

    @property
    def task(self) -> str:
        return str(self.config.get("task", ""))

    @property
    def kind(self) -> str:
        model = self.config.get("model")
        return str(model.get("kind", "")) if isinstance(model, dict) else ""

    @property
    def languages(self) -> tuple[str, str] | None:
        """The languages that a translation model was trained for; "source" and "target" where nobody said."""
        if self.task != "translate":
            return None
        given = self.config.get("languages")
        return (str(given[0]), str(given[1])) if isinstance(given, list) and len(given) == 2 else ("source", "target")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model that is ready."""

    entry: Entry
    predictor: Predictor
    size: int  # bytes of its weights


class Catalog:
    """Every model of a service by its name, and those that are loaded."""

    def __init__(self, config: ServeConfig, metrics: Metrics, dropped: Callable[[Loaded], None]) -> None:
        self.config, self.metrics, self.dropped = config, metrics, dropped
        self._lock, self._loading = threading.Lock(), threading.Lock()
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()  # the least recently used first
        self._entries: dict[str, Entry] = {}
        self._listed = -FRESH

    def entries(self) -> dict[str, Entry]:
        """Those that were named, those from elsewhere, the runs', the newest first, then those that come with Regard."""
        with self._lock:
            if time.monotonic() - self._listed > FRESH:
                self._entries, self._listed = self._list(), time.monotonic()
            return self._entries

    def entry(self, name: str) -> Entry:
        found = self.entries()
        if name not in found:
            raise Refusal(404, f"there is no model {name[:100]!r}", nearest(name[:100], found), code="model_not_found")
        return found[name]

    def in_folder(self, folder: Path) -> Entry:
        """The model that was just written there."""
        with self._lock:
            self._listed = -FRESH
        return next(entry for entry in self.entries().values() if entry.folder == folder)

    def of_task(self, *tasks: str) -> list[Entry]:
        return [each for each in self.entries().values() if each.task in tasks]

    def loaded_names(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._loaded)

    def loaded_bytes(self) -> int:
        """Bytes of all weights that are loaded."""
        with self._lock:
            return sum(each.size for each in self._loaded.values())

    def load(self, name: str) -> Loaded:
        """The model of that name, loaded now if it is not yet; it may take seconds."""
        entry = self.entry(name)
        with self._loading:
            with self._lock:
                known = self._loaded.get(name)
                if known is not None and known.entry.changed == entry.changed:
                    self._loaded.move_to_end(name)
                    return known
            found = Loaded(entry, self._read(entry), _weights(entry.folder))
            self.metrics.loads.add(name)
            self._keep(found)
            return found

    def _read(self, entry: Entry) -> Predictor:
        most = self.config.limits.model_bytes
        size = _weights(entry.folder)
        if size > most:
            raise Refusal(422, f"{entry.name} has {size:,} bytes of weights; this service keeps at most {most:,}")
        with told_as_refusal(entry.name):
            return load_model(entry.folder)

    def _keep(self, found: Loaded) -> None:
        """Put a model among those that are loaded; others go until the weights of all are few enough."""
        gone = []
        with self._lock:
            if (old := self._loaded.pop(found.entry.name, None)) is not None:
                gone.append(old)
            room = self.config.limits.model_bytes - found.size
            while self._loaded and sum(each.size for each in self._loaded.values()) > room:
                gone.append(self._loaded.popitem(last=False)[1])
            self._loaded[found.entry.name] = found
        for each in gone:
            self.dropped(each)

    def _list(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        seen: set[Path] = set()
        for path, name, shipped in self._places():
            try:
                folder = bundle_folder(path)
                config = read_json(folder / "config.json")
                changed = (folder / "config.json").stat().st_mtime
            except (RegardError, OSError):
                continue  # no bundle yet, or not any more
            if folder.resolve() in seen or not isinstance(config, dict):
                continue
            if path.parent == self.config.imported and not isinstance(config.get("format"), int):
                continue  # another library's folder
            seen.add(folder.resolve())
            unique = _unique(name, found)
            run = next((each for each in (path, folder.parent) if (each / CONFIG).exists()), None)
            found[unique] = Entry(unique, folder, run, shipped, config, changed)
        return found

    def _imported(self) -> list[Path]:
        """The configurations of bundles that came from elsewhere, not of those that are being written or replaced."""
        found = sorted(self.config.imported.glob("*/config.json"))
        return [path for path in found if path.parent.suffix not in BEING_WRITTEN]

    def _places(self) -> Iterable[tuple[Path, str, bool]]:
        yield from ((path, _name(path), False) for path in self.config.models)
        yield from ((path.parent, path.parent.name, False) for path in self._imported())
        for run in reversed(all_runs(self.config.runs, DEPTH)):
            whole = run.folder.relative_to(self.config.runs) if run.folder != self.config.runs else run.folder
            yield run.folder, "-".join(whole.parts), False
        if self.config.shipped:
            yield from ((path, name, True) for name, path in shipped_bundles().items())


@contextmanager
def told_as_refusal(name: str) -> Iterator[None]:
    """Refuse with 422 if reading a model fails: that is a fault of its files, not of the service."""
    try:
        yield
    except RegardError:
        raise
    except (RuntimeError, MemoryError, OSError, ValueError, TypeError, KeyError) as error:
        raise Refusal(422, f"{name} cannot be loaded", f"{type(error).__name__}: {error}"[:300]) from error


def as_task(loaded: Loaded, kind: type[P], does: str) -> P:
    """The predictor of a model that must be of this class."""
    if not isinstance(loaded.predictor, kind):
        raise Refusal(400, f"{loaded.entry.name} is a model to {loaded.entry.task}, not to {does}", param="model")
    return loaded.predictor


def _name(path: Path) -> str:
    """A name for a folder that a person gave: its own, and those around it where that says little."""
    parts = path.resolve().parts
    many = 3 if parts[-1] in ("best", "last") else 2 if parts[-1].isdigit() else 1
    return "-".join(parts[-many:])


def _unique(name: str, taken: Iterable[str]) -> str:
    """The name in letters that need no quoting anywhere, with a number behind it where another has it."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"
    number, found = 1, safe
    while found in taken:
        number += 1
        found = f"{safe}-{number}"
    return found


def _weights(folder: Path) -> int:
    try:
        return (folder / "model.safetensors").stat().st_size
    except OSError:
        return 0
