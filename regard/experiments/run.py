"""Run an experiment part by part; what is finished is in its folder and is not run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.compare.conditions import conditions
from regard.errors import Advice, Option, UsageError
from regard.experiments.study import Check, Found, Part, Row, Study, Table, verdict
from regard.experiments.table import Experiment, find_experiment
from regard.files import alone_in, finite, read_json, write_bytes, write_json

OnProgress = Callable[[int, int], None]
GRAINS = 1000  # steps of progress in which all work is counted


@dataclass(frozen=True)
class Outcome:
    """An experiment that was run: every number, and what they say."""

    experiment: Experiment
    found: Found
    tables: Sequence[Table]
    checks: Sequence[Check]
    verdict: str
    values: dict[str, Any]  # as NAME.json has them
    folder: Path

    @property
    def figure(self) -> Path:
        return self.folder / f"{self.experiment.name}.png"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.experiment.name}.json"


def run_experiment(
    name: str,
    folder: str | Path,
    *,
    tiny: bool = False,
    seeds: Sequence[int] = (),
    progress: OnProgress = lambda done, total: None,
) -> Outcome:
    """Run what is not yet in the folder, judge the claims by the numbers, and write NAME.json and NAME.png."""
    experiment, folder = find_experiment(name), Path(folder)
    study = experiment.study
    settings = {**study.settings, **(study.tiny if tiny else {})}
    chosen = tuple(dict.fromkeys(seeds)) or (study.seeds[:1] if tiny else study.seeds)
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        values = _begun(experiment, folder / f"{name}.json", settings, tiny)
        parts = study.parts(settings, chosen)
        _measure(parts, values, folder / f"{name}.json", progress)
        rows = [row for part in parts for row in _flat(values["parts"][part.name])]
        return _concluded(experiment, study, Found(rows, settings, chosen), values, folder)


def _begun(experiment: Experiment, file: Path, settings: dict[str, Any], tiny: bool) -> dict[str, Any]:
    """Continue from the values an earlier run left in the file, if it had the same settings; else begin anew."""
    settings = json.loads(json.dumps(settings))  # as they come back from a file
    if file.exists():
        values: dict[str, Any] = read_json(file)
        if values.get("experiment") != experiment.name or values.get("settings") != settings:
            other = " (a tiny one)" if values.get("tiny") and not tiny else ""
            raise UsageError(
                f"{file} was made with other settings{other}",
                Advice("choose another folder with ", Option("out", "DIR")),
            )
        return values
    about = experiment.data()
    about["experiment"] = about.pop("name")
    return {**about, "tiny": tiny, "settings": settings, "conditions": conditions("cpu").data(), "parts": {}}


def _measure(parts: Sequence[Part], values: dict[str, Any], file: Path, progress: OnProgress) -> None:
    """Run the parts that are not in the file, and write it after each."""
    left = [part for part in parts if part.name not in values["parts"]]
    whole, done = sum(part.cost for part in left), 0.0
    for part in left:
        before, share = done, part.cost

        def report(inside: float, before: float = before, share: float = share) -> None:
            progress(round(GRAINS * (before + share * min(1.0, inside)) / whole), GRAINS)

        started = time.process_time()
        row: Row = part.measure(report)
        values["parts"][part.name] = finite({**row, "processor_seconds": round(time.process_time() - started, 2)})
        write_json(file, values)
        done += part.cost
        report(1.0)


def _flat(row: Row) -> list[Row]:
    """The rows of a part that measured several things at once, each with what they have in common."""
    common = {key: value for key, value in row.items() if key not in ("rows", "processor_seconds")}
    return [{**common, **each} for each in row["rows"]] if "rows" in row else [row]


def _concluded(experiment: Experiment, study: Study, found: Found, values: dict[str, Any], folder: Path) -> Outcome:
    from regard.look.figures.sheet import render  # Matplotlib takes a second that the start does not have

    tables, checks = study.tables(found), study.checks(found)
    said = verdict(checks)
    values |= {
        "seeds": list(found.seeds),
        "tables": [{"title": each.title, "columns": list(each.columns), "rows": list(each.rows)} for each in tables],
        "checks": [check.data() for check in checks],
        "verdict": said,
    }
    write_json(folder / f"{experiment.name}.json", values)
    write_bytes(folder / f"{experiment.name}.png", render(study.draw(found), "png"))
    return Outcome(experiment, found, tables, checks, said, values, folder)
