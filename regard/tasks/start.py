"""The tokens and the model that a run takes over from the one that it goes on from. No torch here."""

from __future__ import annotations

from pathlib import Path

from regard.config import Tables
from regard.errors import UsageError
from regard.files import read_json
from regard.runs import CONFIG, bundle_folder, data_root_of, read_run
from regard.tasks.examples import FILES


def started_from(start: str, task: str, able_from: tuple[str, ...]) -> Tables:
    """The tables `tokens` and `model` of the bundle that a run goes on from; its task is one of `able_from`."""
    folder = bundle_folder(start)
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    if not isinstance(config, dict) or not {"task", "tokens", "model"} <= config.keys():
        raise UsageError(f"start: {start} is neither a run nor a bundle")
    if config["task"] not in able_from:
        able = " or ".join(able_from) or "no other run"
        raise UsageError(f"start: {start} is a {config['task']} model; {task} goes on from {able}")
    return {"start": str(Path(start)), "tokens": config["tokens"], "model": config["model"]}


def brought_along(start: str, data: Tables) -> Tables:
    """The rest that a run takes over from a model of its own task: how it decodes, its languages, how large its pictures are.

    Its data comes as `data.old`, if it is not named and still there, and if the new is other.
    """
    config = read_json(bundle_folder(start) / "config.json")
    assert isinstance(config, dict)
    found: Tables = {}
    if config.get("languages"):
        found["languages"] = config["languages"]
    if isinstance(seen := config.get("pictures"), dict):
        found |= {"size": seen["size"], "fit": seen["fit"]}
    if isinstance(config.get("chat"), dict):
        found["chat"] = config["chat"]
    named, old = data.get("old", {}), data_of(start)
    is_open = isinstance(named, dict) and "train" not in named  # a table may only change how the old data is read
    if is_open and old and set(old["train"]) != set(map(_absolute, _listed(data))):
        found["old"] = old
    return {"decode": config.get("decode", {}), "data": found}


def data_of(start: str) -> Tables:
    """The table of data of the run that a model is of, its files by their whole paths; empty if one is not there."""
    run = next((place for place in (Path(start), Path(start).parent) if (place / CONFIG).exists()), None)
    if run is None:
        return {}
    record = read_run(run)
    table, root = dict(record["config"].get("data", {})), data_root_of(record)
    if table.get("chats"):  # they are not mixed with running text
        return {}
    kept = {key: value for key, value in table.items() if key not in ("old", "mix", "test")}
    for part in ("train", "valid"):
        places = [_place(str(name), run, root) for name in table.get(part, ())]
        if None in places:
            return {}
        kept[part] = places
    return kept


def _listed(data: Tables) -> list[str]:
    names = data.get("train", ())
    return [names] if isinstance(names, str) else list(names)


def _absolute(name: str) -> str:
    return name if name.startswith("builtin/") else str(Path(name).absolute())


def _place(name: str, run: Path, root: Path | None) -> str | None:
    """Where a file of a run's data is: where it was, or in the run's folder if it was given in Python."""
    if name.startswith("builtin/"):
        return name
    places = [Path(name) if root is None else root / name, Path(name)]
    places += [run / Path(name).name] if Path(name).name in FILES.values() else []
    return next((str(place.absolute()) for place in places if place.exists()), None)
