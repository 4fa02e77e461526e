"""Train short runs, kill them with SIGKILL, resume them, and say on standard output which files came out unlike.

    python tests/drivers/train_short.py FOLDER

Importing torch takes seconds, so one parent imports it and forks a child for every start. The parent itself computes
nothing with torch: a thread pool would not survive the fork.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from toy_run import Contents, toy_job

from regard.data.pairs import builtin_pairs
from regard.tasks.configure import run_config
from regard.tasks.run import RunResult, resume_run, start_run
from regard.training.events import Progress
from regard.training.show import Show
from regard.training.state import has_checkpoint
from regard.training.timed import train

# What a run imports only when it needs it, which would take each child a second.
for late in ("torch._dynamo", "sacrebleu", "regard.tasks.translate.recipe", "regard.look.figures.curves"):
    importlib.import_module(late)

KILLS = 20
SETTINGS = {
    "data": {"builtin_size": 300, "valid": "valid.tsv"},
    "tokens": {"size": 300},
    "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "dropout": 0.1},
    "train": {
        "steps": 44,
        "validate_every": 8,
        "log_every": 3,
        "ema": 0.9,
        "average": 3,
        "accumulate": 2,
        "batch_tokens": 256,
        "warmup": 8,
        "precision": "float32",
    },
    "validate": {"sentences": 3},
}
CALLS = ("fsync", "replace", "rename", "unlink", "rmdir", "truncate")  # of os: all that a save is made of


def fork(action: Callable[[], Any]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        action()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def wait(child: int) -> int:
    """0: ended well; 9: killed. Anything else is a failure of the test."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"a child ended with {code}")
    return -code


def count_calls(action: Callable[[int, str, Any], None]) -> None:
    """From now on, `action(number, name, first argument)` is called before every call of those in CALLS."""
    numbers = itertools.count(1)

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def before(*arguments: Any, **options: Any) -> Any:
            if name not in ("fsync", "unlink") or _is_file(name, arguments[0]):
                action(next(numbers), name, arguments[0])
            return call(*arguments, **options)

        return before

    for name in CALLS:
        setattr(os, name, watched(name, getattr(os, name)))


def die_at(chosen: int) -> Callable[[int, str, Any], None]:
    """Kill this process at the chosen call; a file that was about to be synced stays half-written."""

    def action(number: int, name: str, target: Any) -> None:
        if number == chosen:
            if name == "fsync":
                os.ftruncate(target, os.fstat(target).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return action


def _is_file(name: str, target: Any) -> bool:
    """Whether a call does something that a crash could leave half done: a sync of a new file, not of a folder or log."""
    path = os.readlink(f"/proc/self/fd/{target}") if name == "fsync" else str(target)
    temporary = Path(path).name.startswith(".") and path.endswith(".tmp")
    return temporary if name == "fsync" else not temporary


def start_or_resume(folder: Path, show: Show | None = None) -> RunResult:
    torch.set_num_threads(1)
    if (folder / "run.json").exists():
        return resume_run(folder, show=show)
    shutil.rmtree(folder, ignore_errors=True)  # nothing had begun
    return start_run(run_config("translate", SETTINGS), folder=folder, data_root=folder.parent, show=show)


def kills(place: Path) -> dict[str, Any]:
    """Kill one run after another, at random moments and inside of saves, until KILLS processes have died."""
    draw = random.Random(20)
    started = time.monotonic()
    wait(fork(lambda: start_or_resume(place / "whole")))
    span = time.monotonic() - started
    whole = Contents.of(place / "whole")
    died = {"at a moment": 0, "inside a save": 0}
    unlike: list[list[str]] = []
    folder = place / "killed-0"
    while sum(died.values()) < KILLS:
        if sum(died.values()) % 2:
            kind, ended = "inside a save", _inside_a_save(folder, draw.randrange(1, 150))
        else:
            kind, ended = "at a moment", _at_a_moment(folder, draw.uniform(0.05, 0.5) * span)
        died[kind] += ended == signal.SIGKILL
        if ended == 0:
            span *= 0.8  # the machine has become faster
            unlike.append(whole.unlike(Contents.of(folder)))
            folder = place / f"killed-{len(unlike)}"
    wait(fork(lambda: start_or_resume(folder)))
    unlike.append(whole.unlike(Contents.of(folder)))
    return {"died": died, "files": sorted(whole.digests), "unlike": unlike}


def _at_a_moment(folder: Path, seconds: float) -> int:
    child = fork(lambda: start_or_resume(folder))
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)  # a child that has ended waits as a zombie: no other process has its number
    return wait(child)


def _inside_a_save(folder: Path, chosen: int) -> int:
    def action() -> None:
        count_calls(die_at(chosen))
        start_or_resume(folder)

    return wait(fork(action))


def signals(place: Path) -> dict[str, Any]:
    """SIGTERM and SIGINT to the same run: it says "interrupted", and goes on to the same end."""
    reasons: list[str] = []
    for number, step in ((signal.SIGTERM, 6), (signal.SIGINT, 16)):  # 16 is due for a validation
        ready, reason = place / f"ready-{step}", place / f"reason-{step}"
        child = fork(lambda: reason.write_text(_stopped(place, step, ready)))  # noqa: B023
        while not ready.exists():
            time.sleep(0.005)
        os.kill(child, number)
        wait(child)
        reasons.append(reason.read_text())
    wait(fork(lambda: start_or_resume(place / "stopped")))
    unlike = Contents.of(place / "whole").unlike(Contents.of(place / "stopped"))
    return {"reasons": reasons, "unlike": unlike}


def _stopped(place: Path, step: int, ready: Path) -> str:
    """Train; at `step` wait for a signal. Why the run ended."""

    class Waits(Show):
        def progress(self, event: Progress) -> None:
            if event.step == step:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
                ready.touch()
                while not signal.sigpending():
                    time.sleep(0.005)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})

    return start_or_resume(place / "stopped", Waits()).outcome.reason


def crash_points(place: Path) -> dict[str, Any]:
    """Kill a toy run before every single call that a save is made of, each time from the start; resume all; compare."""
    wait(fork(lambda: _toy(place / "toy", lambda number, *_: (place / "calls").write_text(str(number)))))
    whole, calls = Contents.of(place / "toy"), int((place / "calls").read_text())
    folders: list[Path] = []
    for chosen in range(1, calls + 1):
        folder = place / f"toy-{chosen}"
        if wait(fork(lambda: _toy(folder, die_at(chosen)))) != signal.SIGKILL:  # noqa: B023
            raise SystemExit(f"call {chosen} of {calls} never came")
        folders.append(folder)
    os.fsync = lambda _: None
    wait(fork(lambda: _go_on(folders)))
    unlike = {chosen: whole.unlike(Contents.of(folder)) for chosen, folder in enumerate(folders, 1)}
    return {"calls": calls, "unlike": {chosen: found for chosen, found in unlike.items() if found}}


def _toy(folder: Path, action: Callable[[int, str, Any], None]) -> None:
    folder.mkdir()
    os.fsync = lambda _: None  # only the page cache matters to a process that dies, and thousands of syncs take minutes
    count_calls(action)
    _go_on([folder])


def _go_on(folders: list[Path]) -> None:
    torch.set_num_threads(1)
    for folder in folders:
        train(toy_job(folder), Show(), resume=has_checkpoint(folder / "checkpoints"))


def main(place: Path) -> None:
    builtin_pairs("train", 300)  # the tables of the dates are made once, for all children
    valid = "".join(f"{source}\t{target}\n" for source, target in builtin_pairs("valid", 29))
    (place / "valid.tsv").write_text(valid, encoding="utf-8")
    found = {}
    for part in (kills, signals, crash_points):
        started = time.monotonic()
        found[part.__name__] = part(place)
        print(f"{part.__name__}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
