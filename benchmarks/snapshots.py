"""Does Regard still do, bit for bit, what it did? Snapshots of all that a person sees, taken before a change and after it.

    OMP_NUM_THREADS=1 python benchmarks/snapshots.py take before     # of the Regard that is imported, in about five minutes
    OMP_NUM_THREADS=1 python benchmarks/snapshots.py take after      # after the change, on the same machine
    python benchmarks/snapshots.py compare before after              # a line for each file that differs; exit code 1 if any
    OMP_NUM_THREADS=1 python benchmarks/snapshots.py replay before   # do bundles and stopped runs of `before` still serve?

A snapshot holds, for each run of snapshots/runs.toml, its log of 20 updates and its final weights (losses/), and what its
attentions were (recorded/); what each command of snapshots/commands.txt printed and wrote (commands/); what the functions of
`regard` gave (python.json); a few bundles with their answers (bundles/, answers/), and a run that was stopped half-way, with
what became of it (stopped/, resumed.json). Times, paths and commits are left out. Only `import regard`, `python -m regard` and
the files that they write are used, so that it outlives any other order of the packages.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the folder of its parts lies

from snapshots.contents import PACKAGE, content
from snapshots.data import make_data
from snapshots.differences import Differences
from snapshots.functions import functions, recorded
from snapshots.runs import Run, go_on, planned, settings, stop
from snapshots.typed import commands, sections, typed

ASKED = {  # how many commands of commands.txt the kept bundles of each task answer
    "translate": 3, "generate": 3, "fill": 3, "classify": 1, "classify-pictures": 1, "caption": 1, "answer": 1,
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("take", "compare", "replay"))
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--tiny", action="store_true", help="two models, some commands: to see that it works")
    given = parser.parse_args(words)
    if given.verb is None and given.tiny:
        with tempfile.TemporaryDirectory() as folder:
            take(Path(folder), tiny=True)
            return replay(Path(folder)) or compare(Path(folder), Path(folder))
    if len(given.folders) != {"compare": 2}.get(given.verb, 1):
        parser.error("say take FOLDER, compare BEFORE AFTER, or replay BEFORE")
    if given.verb == "compare":
        return compare(*given.folders)
    return replay(*given.folders) if given.verb == "replay" else take(*given.folders, tiny=given.tiny)


def take(folder: Path, *, tiny: bool = False) -> int:
    """Write a snapshot of the Regard that is imported into an empty folder."""
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty; a snapshot wants a folder of its own")
    with alone():
        make_data()
        runs = planned(tiny)
        for number, run in enumerate(runs):
            print(f"{number + 1} of {len(runs)}: {run.name}", flush=True)
            write(folder / "losses" / f"{run.name}.json", run.train())
            write(folder / "recorded" / f"{run.name}.json", recorded(Path("models") / run.name))
        write(folder / "python.json", functions())
        keep(folder, runs)
        told = commands(runs, () if tiny else settings()["kept"], tiny)
        for number, (name, line) in enumerate(told.items()):
            if number % 20 == 0:
                print(f"{number} of {len(told)} commands", flush=True)
            write(folder / "commands" / f"{name}.json", typed(line))
    write(folder / "conditions.json", conditions())
    print(f"took {len(runs)} runs and {len(told)} commands of {PACKAGE} into {folder}")
    return 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Work in a folder of its own, on one thread, without anybody's data or settings."""
    unsynced = patch("os.fsync", lambda file: None)  # nothing here has to outlive a power cut
    environment = {"REGARD_CACHE": "cache", "COLUMNS": "120", "TERM": "dumb", "PYTHONPATH": str(PACKAGE)}
    threads = torch.get_num_threads()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        patch.dict(os.environ, environment),
        unsynced,
    ):
        os.environ.pop("REGARD_DATA", None)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def conditions() -> dict[str, str]:
    """Where equal bits can be expected."""
    return {"torch": torch.__version__, "python": platform.python_version(), "platform": platform.machine()}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def keep(folder: Path, runs: Sequence[Run]) -> None:
    """Keep some bundles and what they answer, and a run that is stopped, and what becomes of it when it goes on."""
    for run in runs:
        if run.name in settings()["kept"]:
            copy(Path("models") / run.name / "best", folder / "bundles" / run.name)
            write(folder / "answers" / f"{run.name}.json", answers(run.task, f"models/{run.name}"))
    stop(Path("stopped"))
    copy(Path("stopped"), folder / "stopped")
    shutil.copytree("stopped", "resumed")
    write(folder / "resumed.json", go_on("resumed"))


def copy(source: Path, target: Path) -> None:
    """Copy a run or a bundle without what says on which machine it was made."""
    shutil.copytree(source, target)
    for file in (target / name for name in ("config.json", "run.json", "best/config.json")):
        if file.exists():
            said = json.loads(file.read_text(encoding="utf-8").replace(str(Path.cwd()), "/somewhere"))
            said["made"]["commit"] = None
            file.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def replay(folder: Path) -> int:
    """Ask the bundles of a snapshot again and go on with its stopped run, by the Regard that is imported now."""
    folder, found = folder.absolute(), []
    with alone():
        make_data()
        for bundle in sorted((folder / "bundles").iterdir()):
            task = json.loads((bundle / "config.json").read_text(encoding="utf-8"))["task"]
            shutil.copytree(bundle, Path("models") / bundle.name)
            found += differing(folder / "answers" / f"{bundle.name}.json", answers(task, f"models/{bundle.name}"))
        shutil.copytree(folder / "stopped", "resumed")
        found += differing(folder / "resumed.json", go_on("resumed"))
    print("\n".join(found) or f"every bundle of {folder} answers as it did, and its stopped run ends as it did")
    return int(bool(found))


def differing(before: Path, after: Any) -> list[str]:
    found = Differences.of(json.loads(before.read_text(encoding="utf-8")), json.loads(json.dumps(after)))
    return [found.line(before.name)] if found else []


def answers(task: str, run: str) -> list[Any]:
    lines = sections()[f"every {task}"][: ASKED[task]]
    return [typed(line.replace("RUN", run)) for line in lines]


def compare(before: Path, after: Path) -> int:
    """Print a line for each file that differs, and a summary; 1 if any does."""
    files = sorted({str(file.relative_to(top)) for top in (before, after) for file in top.rglob("*") if file.is_file()})
    losses: dict[str, Differences] = {}
    unlike = 0
    for name in files:
        if not all((top / name).exists() for top in (before, after)):
            print(f"{name}: only in {before if (before / name).exists() else after}")
            unlike += 1
            continue
        found = Differences.of(*(kept_value(top / name, top) for top in (before, after)))
        if found:
            print(found.line(name))
            unlike += 1
        if name.startswith("losses"):
            losses[name] = found
    equal = sum(not found for found in losses.values())
    print(f"losses: {equal} of {len(losses)} runs are bit-equal" + worst(losses))
    print(f"{unlike} of {len(files)} files differ")
    return int(unlike > 0)


def kept_value(file: Path, top: Path) -> Any:
    """A file of a snapshot; bundles and runs without what is of time in them."""
    inside = file.relative_to(top).parts[0] in ("bundles", "stopped")
    return content(file) if inside else json.loads(file.read_text(encoding="utf-8"))


def worst(losses: dict[str, Differences]) -> str:
    """The run whose numbers differ most; digests of weights differ or not, and have no size."""
    sizes = {name: found.largest_number for name, found in losses.items() if found}
    if not sizes:
        return ""
    name = max(sizes, key=sizes.__getitem__)
    return f"; the largest relative difference of their numbers is {sizes[name]:.2g}, of {name}"


if __name__ == "__main__":
    sys.exit(main())
