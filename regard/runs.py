"""Run folders: `runs/<task>/<number>`. Which is new, which is newest, and where its bundle lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from regard.config import Tables
from regard.errors import Advice, RegardError, UsageError, Verb
from regard.files import LOCK, is_bare, read_json, standing_folder

RUNS = Path("runs")
MODELS = Path("models")  # bundles that came from elsewhere
SHIPPED = Path(__file__).parent / "shipped"  # small bundles that come with the package (`tools/ship.py` makes them)
EXAMPLES = {  # what to type to use the model in the folder {model}, by its task
    "translate": 'regard translate -m {model} "a sentence"',
    "generate": 'regard generate -m {model} "how a text begins"',
    "align": "regard eval {model} --on preferences.jsonl",
    "fill": 'regard fill -m {model} "a text with a [MASK]"',
    "classify": 'regard classify -m {model} "a text"',
    "classify-pictures": "regard classify -m {model} photo.jpg",
    "classify-graphs": "regard classify -m {model} graph.npz",
    "caption": "regard caption -m {model} photo.jpg",
    "answer": 'regard answer -m {model} photo.jpg "a question?"',
    "ask": 'regard ask -m {model} "Mary took the ring. Mary went to the park." "Where is the ring?"',
    "remember": "regard remember -m {model} 20 40",
    "transcribe": "regard transcribe -m {model} talk.wav",
    "classify-sounds": "regard classify -m {model} sound.wav",
    "compute": 'regard compute -m {model} table.csv "How many rows have price over 5?"',
}
CONFIG = "run.json"


def used_by(task: str) -> str:
    """The verb that uses a model of a task: that of its example."""
    return EXAMPLES[task].split()[1] if task in EXAMPLES else task.partition("-")[0]


@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def best(self) -> Path:
        return standing_folder(self.folder / "best")

    @property
    def number(self) -> int:
        return int(self.folder.name) if self.folder.name.isdigit() else 0

    @property
    def has_bundle(self) -> bool:
        return (self.best / "config.json").exists()

    def modified(self) -> float:
        """When the run last did something."""
        return max((file.stat().st_mtime for file in self.folder.iterdir() if file.name != LOCK), default=0.0)


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


def check_free(folder: Path) -> None:
    """Refuse to start a run in a folder that holds something, or where a file is in the way."""
    if folder.is_dir() and not is_bare(folder):
        raise UsageError(f"{folder} is not empty", Advice("choose another folder, or go on with: ", _resume(folder)))
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "a run needs a folder, choose another name")


def all_runs(root: Path = RUNS, depth: int = 2) -> list[Run]:
    """Every run in `root` and in the folders below it, oldest first; a run's own folder is a list of one."""
    if (root / CONFIG).exists():
        return [Run(root)]
    found = [path.parent for level in range(1, depth + 1) for path in root.glob("/".join([*["*"] * level, CONFIG]))]
    return sorted(map(Run, found), key=Run.modified)


def newest(task: str, root: Path = RUNS) -> Run | None:
    """The newest run of a task that has a bundle."""
    found = [run for run in all_runs(root) if run.folder.parent.name == task and run.has_bundle]
    return found[-1] if found else None


def shipped_bundles() -> dict[str, Path]:
    """The bundles that come with the package, by name."""
    return {path.parent.name: path.parent for path in sorted(SHIPPED.glob("*/config.json"))}


def shipped_for(tasks: Sequence[str]) -> Path | None:
    """The first bundle of one of these tasks that comes with the package."""
    return next((folder for folder in shipped_bundles().values() if bundle_task(folder) in tasks), None)


def bundle_folder(path: str | Path) -> Path:
    """The bundle that a person means: a bundle's folder, or a run's (its best bundle), or a search's (of its best run).

    The name of a bundle that comes with the package means that, unless something here has the same name.
    """
    path = Path(path)
    if not path.exists() and str(path) in (shipped := shipped_bundles()):
        return shipped[str(path)]
    if not path.exists():
        raise UsageError(
            f"there is no {path}", Advice(Verb("runs"), " lists the runs here", _newest_in(path.parent, depth=1))
        )
    if not path.is_dir():
        raise _not_a_folder(path)
    best = standing_folder(path / "best")
    if (best / "config.json").exists():
        return best
    if (best / CONFIG).exists():
        return bundle_folder(best)
    if (path / CONFIG).exists():
        raise RegardError(f"the run {path} has no bundle yet", Advice("go on with: ", _resume(path)))
    if not (path / "config.json").exists():
        raise _no_bundle(path)
    return path


def _resume(run: Path) -> Verb:
    return Verb("train", f"--resume {run}")


def _no_bundle(folder: Path) -> UsageError:
    """Why a folder is no model, and which is meant."""
    with_model = [run.folder for run in all_runs(folder, depth=3) if run.has_bundle]
    if with_model:
        return UsageError(f"{folder} is a folder of runs", f"the newest is {with_model[-1]}")
    return UsageError(f"{folder} is neither a run nor a bundle: it has no config.json{_newest_in(RUNS)}")


def _not_a_folder(file: Path) -> UsageError:
    """Say what a file is that was named in the place of a model, and what to name instead."""
    if file.name in ("config.json", "model.safetensors", CONFIG):
        return UsageError(f"{file} is a file of a model", f"name the folder that it lies in: {file.parent}")
    if file.suffix == ".toml":
        hint = Advice("train it first: ", Verb("train", str(file)))
        return UsageError(f"{file} is a configuration, not a model", hint)
    if file.suffix in (".bin", ".safetensors"):
        return UsageError(f"{file} is not a model of Regard", Advice("make one of it: ", Verb("import", str(file))))
    return UsageError(f"{file} is a file of data, not a model", f"a model is the folder of a run{_newest_in(RUNS)}")


def _newest_in(folder: Path, depth: int = 2) -> str:
    """The end of an error about a model that is not there: the newest that is."""
    found = [run.folder for run in all_runs(folder, depth) if run.has_bundle]
    return f"; the newest is {found[-1]}" if found else ""


def bundle_task(path: str | Path) -> str:
    """The task of the model in a run's or a bundle's folder, without loading it."""
    folder = bundle_folder(path)
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else None
    if not isinstance(config, dict) or not isinstance(config.get("task"), str):
        raise RegardError(
            f"{path} is not a model of Regard",
            Advice("one of Hugging Face becomes one with: ", Verb("import", str(path))),
        )
    return str(config["task"])


def bundle_labels(path: str | Path) -> tuple[str, ...]:
    """The labels of the model in a run's or a bundle's folder, without loading it; none where there is no model yet."""
    places = (standing_folder(Path(path) / "best") / "config.json", Path(path) / "config.json")
    config = next((read_json(place) for place in places if place.exists()), None)
    labels = config.get("labels") if isinstance(config, dict) else None
    return tuple(map(str, labels)) if isinstance(labels, list) else ()


class RunRecord(TypedDict):
    """The file run.json: what a run started with."""

    config: Tables
    beside: NotRequired[str | None]  # the folder from which its data files are named
    made: NotRequired[Tables]  # by which versions and how many threads


def data_root_of(record: RunRecord) -> Path | None:
    """The folder from which a run's data files are named; None where it is not known."""
    place = record.get("beside")
    return Path(place) if place else None


def read_run(folder: str | Path) -> RunRecord:
    """Read what a run started with."""
    folder = Path(folder)
    if not (folder / CONFIG).exists():
        below = all_runs(folder)
        if below:
            raise UsageError(f"{folder} is a folder of runs", f"the newest is {below[-1].folder}")
        raise UsageError(f"{folder} is not a run: it has no {CONFIG}", Advice(Verb("runs"), " lists the runs here"))
    values = read_json(folder / CONFIG)
    if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
        raise RegardError(f"{folder / CONFIG} does not hold a configuration")
    return values  # type: ignore[return-value]
