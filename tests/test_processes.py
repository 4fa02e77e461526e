"""`regard train --processes N`: several processes from one command, what they say, and when they are not started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli import main
from regard.cli.processes import launch, own_words
from regard.errors import UsageError
from regard.training.history import RunLog
from regard.world import ENDED, ended_for_good
from tests.several import processes

SMALL = {
    "preset": "demo",
    "data.train": "builtin/dates",
    "data.builtin_size": 60,
    "train.batch_tokens": 128,
    "train.warmup": 1,
    "train.validate_every": 2,
    "train.log_every": 1,
    "train.precision": "float32",
    "validate.sentences": 5,
}
WORDS = ["train", "translate", "--steps", "3", *(f"--set={key}={value}" for key, value in SMALL.items() if "." in key)]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("OMP_NUM_THREADS", "1"), ("TORCH_CPP_LOG_LEVEL", "FATAL")):
        monkeypatch.setenv(name, value)


def test_two_processes_do_what_one_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only the first one speaks, and the log has the figures of one process."""
    words = [*WORDS, "--preset", "demo", "-o"]
    assert main.run([*words, str(tmp_path / "one")]) == 0
    alone = capfd.readouterr()
    assert main.run([*words, str(tmp_path / "two"), "--processes", "2", "--restarts", "0"]) == 0
    together = capfd.readouterr()
    assert together.out.count("ended ") == alone.out.count("ended ") == 1
    assert together.err.count("parameters") == 1 and "Warning" not in together.err
    for one, two in zip(*(RunLog(tmp_path / name).rows() for name in ("one", "two")), strict=True):
        assert one.keys() == two.keys() and one["kind"] == two["kind"]
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
    assert (tmp_path / "two/best/model.safetensors").exists()


def test_a_run_whose_weights_are_cut_looks_and_validates_on_its_way(tmp_path: Path) -> None:
    """It failed before the first update, where it looked at what the model sees; and waited for ever behind a validation,
    where each process had translated other sentences and gathered its blocks in another order.
    """
    words = [*WORDS, "--preset", "demo", "--steps", "5", "-o"]
    assert main.run([*words, str(tmp_path / "one")]) == 0
    told = tmp_path / "told"
    codes = processes(2, *words, tmp_path / "two", "--set=train.shard=true", "--timeout=30s", told=told)
    assert codes == [0, 0], told.read_text()
    rows = [RunLog(tmp_path / name).rows() for name in ("one", "two")]
    assert [row["kind"] for row in rows[0]].count("valid") == 3
    assert [row["loss"] for row in rows[1]] == pytest.approx([row["loss"] for row in rows[0]], rel=1e-5)


def test_what_cannot_be_is_told_before_any_process_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.run([*WORDS, "--processes", "0", "-o", str(tmp_path / "run")]) == 2
    assert "--processes 0: at least one trains" in capsys.readouterr().err
    assert main.run(["train", "--repeat", str(tmp_path), "--processes", "2"]) == 2
    assert "leave out one of them" in capsys.readouterr().err
    assert main.run([*WORDS, "--timeout", "soon", "-o", str(tmp_path / "run")]) == 2
    assert "is not a duration" in capsys.readouterr().err
    assert main.run([*WORDS, "--go-on"]) == 2
    assert "name it with --out" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main.run([*WORDS, "--processes", "2"]) == 2
    assert "2 processes were started already: leave out --processes" in capsys.readouterr().err
    with pytest.raises(UsageError, match="at least one"):
        launch(-1, 0, [])


def test_a_run_goes_on_where_its_folder_has_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever starts the same words again, as a cluster does, gets the same run, and not a refusal."""
    words = [*WORDS, "-o", str(tmp_path / "run"), "--go-on"]
    assert main.run([*words, "--preset", "demo"]) == 0  # nothing is there yet
    capsys.readouterr()
    assert main.run([*words, "--preset", "demo"]) == 0
    assert "goes on from its last checkpoint" in capsys.readouterr().err
    assert len([row for row in RunLog(tmp_path / "run").rows() if row["kind"] == "train"]) == 3


def test_what_would_fail_again_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended_for_good(2) == 2
    monkeypatch.setenv(ENDED, str(tmp_path / "ended"))
    assert ended_for_good(2) == 0 and (tmp_path / "ended").read_text() == "2"


def test_processes_are_not_told_how_many_they_are() -> None:
    words = ["train", "a.toml", "--processes", "2", "--restarts=5", "-o", "run"]
    assert own_words(words, "--processes", "--restarts") == ["train", "a.toml", "-o", "run"]
