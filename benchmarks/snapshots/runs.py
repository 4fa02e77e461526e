"""The runs of runs.toml, trained by `regard.train`, and one that is stopped half-way."""

from __future__ import annotations

import json
import os
import signal
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regard
from snapshots.contents import tensors
from snapshots.data import sentences
from snapshots.typed import shell, typed

STOPPED_AT, STEPS = 7, 12  # of the run that is stopped and goes on


@dataclass(frozen=True)
class Run:
    """One run of runs.toml."""

    name: str
    task: str
    tables: dict[str, Any]

    def train(self) -> dict[str, Any]:
        """Train it in models/NAME; its log, and its weights in the end."""
        size: list[int] = []

        def hear(event: Any) -> None:
            if isinstance(event, regard.events.Prepared):
                size.append(event.parameters)

        folder = Path("models") / self.name
        try:
            ended = regard.train(self.task, folder=folder, quiet=True, on_event=hear, **self.tables)
        except regard.RegardError as error:
            print(f"{self.name} was refused: {error}")
            return {"refused": str(error)}
        if ended.outcome.reason == "interrupted":
            raise KeyboardInterrupt
        return {"parameters": size, **learned(folder)}


def learned(folder: Path) -> dict[str, Any]:
    """The whole log (losses, norms of gradients, metrics; none of it is of time), and a digest of all weights by value."""
    rows = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return {"log": [json.loads(row) for row in rows], **tensors(folder / "last" / "model.safetensors")}


def planned(tiny: bool) -> list[Run]:
    """Every kind of model of every task, as `regard config` lists them, and the variants."""
    said, tables = json.loads(shell("config --json")[1]), settings()
    runs = []
    for task in (each for each in said["tasks"]):
        kinds = {kind: {"model": {"kind": kind}} for kind in task["kinds"]}
        for name, over in {**kinds, **tables["variant"].get(task["task"], {})}.items():
            run = Run(f"{task['task']}-{name}", task["task"], laid_over(tables, task, over))
            longer = tables["kept_train"] if run.name in tables["kept"] else {}
            run.tables["train"].update(tables["tiny_train"] if tiny else longer)
            runs.append(run)
    order = sorted(runs, key=lambda run: "start" in run.tables)  # what others start from comes first
    return [run for run in order if not tiny or run.name in tables["tiny"]]


def laid_over(tables: dict[str, Any], task: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """The tables of one run: those of its task and its kind, and its own."""
    shared = json.loads(json.dumps(tables["task"][task["task"]]))
    shared["train"] = {**tables["train"], **shared.get("train", {})}
    if "start" in over:
        shared.pop("tokens")
    else:
        kind = over.get("model", {}).get("kind", task["kinds"][0])
        shared["model"] = {"kind": kind, **tables["kind"].get(kind, {})}
        shared["preset"] = "demo"
    for name, value in over.items():
        shared[name] = {**shared.get(name, {}), **value} if isinstance(value, dict) else value
    return shared


def settings() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("runs.toml").read_text(encoding="utf-8"))


def stop(folder: Path) -> None:
    """A run that someone stopped with Ctrl-C, of examples that are kept in its folder."""

    def press(event: Any) -> None:
        if isinstance(event, regard.events.Progress) and event.step == STOPPED_AT:
            os.kill(os.getpid(), signal.SIGINT)

    tables = settings()
    model = {"kind": "transformer", **tables["kind"]["transformer"], "width": 8, "feed_forward": 8}
    train = {**tables["train"], "steps": STEPS, "validate_every": 5, "average": 2}
    ended = regard.train(
        "translate", data=sentences(60), valid=sentences(6, 60), folder=folder, quiet=True, on_event=press,
        tokens={"kind": "character"}, model=model, train=train, probes=0, validate={"sentences": 0},
    )  # fmt: skip
    assert ended.outcome.reason == "interrupted", ended


def go_on(folder: str) -> dict[str, Any]:
    """What a run says when it is resumed, and what is in its folder at the end."""
    return {"typed": typed(f"train --resume {folder} --json"), **learned(Path(folder))}
