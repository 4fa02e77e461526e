"""A run that was killed, stopped or starved of disk space at any moment ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import toy_run
from toy_run import Contents, toy_job

import regard.files
from regard.errors import RegardError, UsageError
from regard.files import alone_in, write_json
from regard.runs import read_run
from regard.tasks.config import run_config
from regard.tasks.run import resume_run, start_run
from regard.training.config import TrainConfig
from regard.training.events import Progress
from regard.training.loop import Outcome, train
from regard.training.show import Show
from regard.training.state import has_checkpoint

DRIVER = Path(__file__).parent / "drivers" / "train_short.py"


# -- killed ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `drivers/train_short.py` found; one process for all, because importing torch takes seconds."""
    command = [sys.executable, str(DRIVER), str(tmp_path_factory.mktemp("driven"))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(1500)  # about a minute of one core that is free
def test_twenty_kills_change_no_bit(driven: dict[str, Any]) -> None:
    found = driven["kills"]
    assert sum(found["died"].values()) == 20 and min(found["died"].values()) >= 5, found["died"]
    assert [unlike for unlike in found["unlike"] if unlike] == []
    compared = set(found["files"])
    assert {"best/model.safetensors", "best/metrics.json", "last/model.safetensors", "log.jsonl"} <= compared
    assert {"checkpoints/step-44/ema.safetensors", "checkpoints/step-44/optimiser.safetensors"} <= compared
    assert {f"snapshots/step-{step}.safetensors" for step in (32, 40, 44)} <= compared


@pytest.mark.timeout(1500)
def test_signals_interrupt_and_change_no_bit(driven: dict[str, Any]) -> None:
    assert driven["signals"] == {"reasons": ["interrupted", "interrupted"], "unlike": []}


@pytest.mark.timeout(1500)
def test_a_kill_before_any_single_call_of_any_save_changes_no_bit(driven: dict[str, Any]) -> None:
    found = driven["crash_points"]
    assert found["calls"] > 80 and found["unlike"] == {}


def test_a_crash_between_the_two_renames_of_a_checkpoint(tmp_path: Path) -> None:
    """The bug: only `step-5.old` was there then, and resuming looked for `step-5`."""
    train(toy_job(tmp_path / "whole"), Show())
    train(toy_job(tmp_path / "run"), Show())
    (tmp_path / "run" / "checkpoints" / "step-5").rename(tmp_path / "run" / "checkpoints" / "step-5.old")
    assert train(toy_job(tmp_path / "run"), Show(), resume=True).reason == "steps"
    assert same(tmp_path)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    """The bug: it wrote the row of the final average once more."""
    first = train(toy_job(tmp_path), Show())
    before = Contents.of(tmp_path)
    again = train(toy_job(tmp_path), Show(), resume=True)
    assert before.unlike(Contents.of(tmp_path)) == []
    assert (again.reason, again.chosen, again.metrics) == (first.reason, first.chosen, first.metrics)


def test_a_finished_run_can_be_lengthened(tmp_path: Path) -> None:
    """A better average stays the best until something beats it, also when the run goes on."""
    first = train(toy_job(tmp_path), Show())
    longer = train(toy_job(tmp_path, with_steps(9)), Show(), resume=True)
    assert (longer.reason, longer.progress.step) == ("steps", 9)
    assert longer.metrics["loss"] <= first.metrics["loss"]
    best = json.loads((tmp_path / "best" / "metrics.json").read_text())
    assert best == {"weights": longer.chosen, **longer.metrics}


def test_a_run_killed_before_its_first_checkpoint_starts_over(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    config = run_config("translate", tiny_settings)
    start_run(config, folder=tmp_path / "whole")
    write_json(tmp_path / "run" / "run.json", {"config": config.dump(), "beside": None})  # killed right after this
    assert not has_checkpoint(tmp_path / "run" / "checkpoints")
    assert resume_run(tmp_path / "run").outcome.reason == "steps"
    assert same(tmp_path)


def test_resuming_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a run: it has no run\.json"):
        resume_run(tmp_path)
    write_json(tmp_path / "run.json", ["no configuration"])
    with pytest.raises(RegardError, match="does not hold a configuration"):
        read_run(tmp_path)


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    write_json(tmp_path / "run.json", {"config": run_config("translate", tiny_settings).dump(), "beside": None})
    before = Contents.of(tmp_path)
    with alone_in(tmp_path), pytest.raises(RegardError, match=f"another process is training in {tmp_path}"):
        resume_run(tmp_path)
    assert before.unlike(Contents.of(tmp_path)) == []


# -- stopped -----------------------------------------------------------------------------------------------------------


@dataclass
class Interrupts(Show):
    """Sends a signal to this process while update `step` is made."""

    step: int
    signal: signal.Signals = signal.SIGINT

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            os.kill(os.getpid(), self.signal)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_stopped_at_any_step_and_resumed(tmp_path: Path, step: int) -> None:
    """Steps 2 and 4 are due for a validation. The bug: a stop just there skipped it for good."""
    config = toy_run.CONFIG.model_copy(update={"log_every": 1})
    train(toy_job(tmp_path / "whole", config), Show())
    stopped = train(toy_job(tmp_path / "run", config), Interrupts(step))
    assert stopped.reason == "interrupted" and stopped.progress.step == step
    assert train(toy_job(tmp_path / "run", config), Show(), resume=True).reason == "steps"
    assert same(tmp_path)


def test_sigterm_stops_like_ctrl_c_and_handlers_come_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    config = toy_run.CONFIG.model_copy(update={"log_every": 1})
    assert train(toy_job(tmp_path, config), Interrupts(3, signal.SIGTERM)).reason == "interrupted"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_ctrl_c_stops_at_once_and_the_run_still_resumes(tmp_path: Path) -> None:
    class Impatient(Interrupts):
        def progress(self, event: Progress) -> None:
            super().progress(event)
            super().progress(event)

    config = toy_run.CONFIG.model_copy(update={"log_every": 1})
    train(toy_job(tmp_path / "whole", config), Show())
    with pytest.raises(KeyboardInterrupt):
        train(toy_job(tmp_path / "run", config), Impatient(3))
    train(toy_job(tmp_path / "run", config), Show(), resume=True)
    assert same(tmp_path)


# -- starved -----------------------------------------------------------------------------------------------------------


class FullDisk:
    """Replaces `open` in `regard.files`: the chosen file to be written takes half of its bytes, then says ENOSPC."""

    def __init__(self, chosen: int) -> None:
        self.chosen, self.written = chosen, 0

    def __call__(self, path: Path, mode: str) -> io.BufferedIOBase:
        file = open(path, mode)  # noqa: SIM115
        if "w" in mode:
            self.written += 1
            if self.written == self.chosen:
                file = _Full(file)  # type: ignore[assignment]
        return file  # type: ignore[return-value]


class _Full:
    def __init__(self, file: io.BufferedWriter) -> None:
        self.file = file

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> int:
        self.file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_any_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    whole, chosen = tmp_path / "whole", 0
    counter = FullDisk(0)
    monkeypatch.setattr(regard.files, "open", counter, raising=False)
    train(toy_job(whole), Show())
    for chosen in range(1, counter.written + 1):
        folder = tmp_path / str(chosen)
        monkeypatch.setattr(regard.files, "open", FullDisk(chosen))
        with pytest.raises(RegardError, match=r"^cannot write .*: No space left on device; nothing was changed$"):
            train(toy_job(folder), Show())
        assert list(folder.rglob("*.tmp")) == []  # the space is given back
        resume_or_start(folder)
        assert Contents.of(whole).unlike(Contents.of(folder)) == []
    assert chosen > 30


def test_a_full_disk_under_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRoom(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    train(toy_job(tmp_path / "whole"), Show())
    openers = {"a": lambda path, **_: NoRoom(), "ab": lambda path: open(path, "ab")}  # noqa: SIM115
    monkeypatch.setattr("regard.training.log.open", lambda path, mode, **_: openers[mode](path), raising=False)
    with pytest.raises(RegardError, match=r"^cannot write .*log.jsonl: No space left on device"):
        train(toy_job(tmp_path / "run"), Show())
    monkeypatch.undo()
    resume_or_start(tmp_path / "run")
    assert same(tmp_path)


def resume_or_start(folder: Path) -> Outcome:
    return train(toy_job(folder), Show(), resume=has_checkpoint(folder / "checkpoints"))


# -- what else can be wrong with a checkpoint --------------------------------------------------------------------------


def test_changed_data_is_refused(tmp_path: Path) -> None:
    train(toy_job(tmp_path), Show())
    job = toy_job(tmp_path)
    job.fingerprint["the training data"] = "other"
    with pytest.raises(RegardError, match="cannot resume: the training data changed since the run started"):
        train(job, Show(), resume=True)


def test_a_checkpoint_that_is_not_whole(tmp_path: Path) -> None:
    train(toy_job(tmp_path), Show())
    inside = tmp_path / "checkpoints" / "step-5"
    weights, state = (inside / "model.safetensors").read_bytes(), (inside / "state.json").read_text()
    (inside / "model.safetensors").write_bytes(weights[:-7])
    with pytest.raises(RegardError, match=r"model\.safetensors is not a whole safetensors file"):
        train(toy_job(tmp_path), Show(), resume=True)
    (inside / "model.safetensors").write_bytes(weights)
    (inside / "state.json").write_text(state[: len(state) // 2])
    with pytest.raises(RegardError, match=r"state\.json is not whole JSON"):
        train(toy_job(tmp_path), Show(), resume=True)
    (inside / "state.json").write_text("{}")
    with pytest.raises(RegardError, match=r"state\.json has no format; the checkpoint is not whole"):
        train(toy_job(tmp_path), Show(), resume=True)
    (inside / "state.json").write_text(state.replace('"format": 1', '"format": 2'))
    with pytest.raises(RegardError, match="has format 2, this Regard reads up to 1; upgrade Regard"):
        train(toy_job(tmp_path), Show(), resume=True)
    (tmp_path / "checkpoints" / "latest.json").unlink()
    with pytest.raises(RegardError, match="holds no checkpoint"):
        train(toy_job(tmp_path), Show(), resume=True)


def same(place: Path) -> bool:
    """Whether the runs `whole` and `run` are equal but for times."""
    unlike = Contents.of(place / "whole").unlike(Contents.of(place / "run"))
    assert unlike == []
    return not unlike


def with_steps(steps: int) -> TrainConfig:
    return toy_run.CONFIG.model_copy(update={"steps": steps})
