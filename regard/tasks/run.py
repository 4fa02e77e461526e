"""Start a run in a new folder, or go on with one, and draw its curves at the end."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import check
from regard.errors import RegardError
from regard.files import alone_in, is_bare, write_json
from regard.look.curves import training_curves
from regard.runs import CONFIG, check_free, new_run, read_run
from regard.tasks.config import RunConfig, check_run
from regard.tasks.learn import prepare
from regard.tasks.learn_generate import STREAMS
from regard.tasks.prepared import TOKENS
from regard.tasks.trained import load_model, verb_of
from regard.training.log import RunLog
from regard.training.loop import Outcome, train
from regard.training.show import Show
from regard.training.state import has_checkpoint


@dataclass(frozen=True)
class RunResult:
    """A run that ended: where it lies and how it went."""

    folder: Path
    outcome: Outcome
    task: str = "translate"

    @property
    def best(self) -> Path:
        return self.folder / "best"

    @property
    def curves(self) -> Path:
        return self.folder / "curves.png"

    def load(self, device: str = "cpu") -> Any:
        """The trained model, ready to use: a Translator, Generator, Filler or TextClassifier."""
        return load_model(self.best, device)


def start_run(
    config: RunConfig,
    *,
    beside: Path | None = None,
    folder: str | Path | None = None,
    device: str = "cpu",
    show: Show | None = None,
) -> RunResult:
    """Train from the start, in `folder` or in the next free `runs/<task>/<number>`."""
    place = new_run(verb_of(config.task)) if folder is None else Path(folder)
    if folder is not None:
        check_free(place)
        place.mkdir(parents=True, exist_ok=True)
    return _run(config, place, beside, resume=False, device=device, show=show or Show())


def resume_run(folder: str | Path, *, device: str = "cpu", show: Show | None = None, **train_over: object) -> RunResult:
    """Go on with a run that was stopped; `train_over` may lengthen it (`steps`, `max_time`).

    A run that was stopped before its first checkpoint starts over.
    """
    values = read_run(folder)
    config = check_run(values["config"], f"{folder}")  # type: ignore[arg-type]
    if train_over:
        longer = check(type(config.train), {**config.train.model_dump(), **train_over}, "train")
        config = config.model_copy(update={"train": longer})
        write_json(Path(folder) / CONFIG, {**values, "config": config.dump()})  # the next resume knows it too
    beside = Path(str(values["beside"])) if values.get("beside") else None
    started = has_checkpoint(Path(folder) / "checkpoints")
    return _run(config, Path(folder), beside, resume=started, device=device, show=show or Show())


def _run(config: RunConfig, folder: Path, beside: Path | None, *, resume: bool, device: str, show: Show) -> RunResult:
    with alone_in(folder):
        began = (folder / CONFIG).exists()
        try:
            prepared = prepare(config, folder, beside=beside, resume=resume, device=device)
        except RegardError:
            if not began:
                _leave_nothing(folder)
            raise
        for note in prepared.notes:
            show.note(note)
        outcome = train(prepared.job, show, resume=resume)
        if outcome.reason != "interrupted":
            training_curves(RunLog(folder).rows(), folder / "curves.png")
    return RunResult(folder, outcome, config.task)


def _leave_nothing(folder: Path) -> None:
    """Of a run that could not start."""
    shutil.rmtree(folder / TOKENS, ignore_errors=True)
    for name in STREAMS:
        (folder / name).unlink(missing_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)
    if is_bare(folder):
        shutil.rmtree(folder, ignore_errors=True)  # with the lock, which ends with this process at the latest
