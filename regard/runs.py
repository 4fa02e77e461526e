"""Run folders: `runs/<task>/<number>`. Which is new, which is newest, and where its bundle lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import RegardError, UsageError
from regard.files import read_json, whole_folder

RUNS = Path("runs")
CONFIG = "run.json"


@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def best(self) -> Path:
        return whole_folder(self.folder / "best")

    @property
    def number(self) -> int:
        return int(self.folder.name) if self.folder.name.isdigit() else 0

    def modified(self) -> float:
        """When the run last did something."""
        return max((file.stat().st_mtime for file in self.folder.iterdir()), default=0.0)


def new_run(task: str, root: Path = RUNS) -> Path:
    """A folder that no other run has, made now (two runs that start at once get two)."""
    parent = root / task
    parent.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in parent.iterdir() if path.name.isdigit()), default=0) + 1
    while True:
        folder = parent / str(number)
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def all_runs(root: Path = RUNS) -> list[Run]:
    """Every run below `root`, oldest first."""
    runs = [Run(path.parent) for path in root.glob(f"*/*/{CONFIG}")]
    return sorted(runs, key=Run.modified)


def newest(task: str, root: Path = RUNS) -> Run | None:
    """The newest run of a task that has a bundle."""
    found = [run for run in all_runs(root) if run.folder.parent.name == task and (run.best / "config.json").exists()]
    return found[-1] if found else None


def bundle_folder(path: str | Path) -> Path:
    """The bundle that a person means: a bundle's folder, or a run's folder (its best bundle)."""
    path = Path(path)
    if not path.exists():
        raise UsageError(f"there is no {path}; regard runs lists the runs here")
    best = whole_folder(path / "best")
    if (best / "config.json").exists():
        return best
    if (path / CONFIG).exists():
        raise RegardError(f"the run {path} has no bundle yet; go on with: regard train --resume {path}")
    return path


def bundle_task(path: str | Path) -> str:
    """What the model in a run's or a bundle's folder does, without loading it."""
    folder = bundle_folder(path)
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else None
    if not isinstance(config, dict) or not isinstance(config.get("task"), str):
        raise RegardError(f"{path} is neither a run nor a bundle")
    return str(config["task"])


def bundle_labels(path: str | Path) -> tuple[str, ...]:
    """The labels of the model in a run's or a bundle's folder, without loading it; none where there is no model yet."""
    places = (whole_folder(Path(path) / "best") / "config.json", Path(path) / "config.json")
    config = next((read_json(place) for place in places if place.exists()), None)
    labels = config.get("labels") if isinstance(config, dict) else None
    return tuple(map(str, labels)) if isinstance(labels, list) else ()


def read_run(folder: str | Path) -> dict[str, object]:
    """The configuration that a run started with."""
    folder = Path(folder)
    if not (folder / CONFIG).exists():
        raise UsageError(f"{folder} is not a run: it has no {CONFIG}; regard runs lists the runs here")
    values = read_json(folder / CONFIG)
    if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
        raise RegardError(f"{folder / CONFIG} does not hold a configuration")
    return values
