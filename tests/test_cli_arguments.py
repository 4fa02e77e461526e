"""What people type, and what the doctor says, without a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard import doctor
from regard.cli.arguments import spread_files, take_debug
from regard.cli.model import choose_device
from regard.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("train translate --data a.en a.de --steps 3", "train translate --data a.en --data a.de --steps 3"),
        ("train --data a.tsv translate", "train --data a.tsv translate"),
        ("train --data a.tsv b.toml", "train --data a.tsv b.toml"),
        ("train translate --data a.tsv --valid v.en v.de", "train translate --data a.tsv --valid v.en --valid v.de"),
        ("train translate --data a.en --data a.de", "train translate --data a.en --data a.de"),
        ("eval run --on a.en a.de", "eval run --on a.en --on a.de"),
        ("eval --on a.tsv folder", "eval --on a.tsv folder"),
        ("compare --on a.en a.de folder folder", "compare --on a.en --on a.de folder folder"),
        ("compare --data a.tsv seq2seq luong", "compare --data a.tsv seq2seq luong"),
        ("compare --join 2 3 4 a.toml -o x", "compare --join 2 --join 3 --join 4 a.toml -o x"),
        ("translate -- --on a b", "translate -- --on a b"),
    ],
)
def test_two_files_after_one_option(typed: str, read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert spread_files(typed.split()) == read.split()


def test_debug_anywhere_but_in_a_text() -> None:
    assert take_debug(["train", "x", "--debug"]) == (True, ["train", "x"])
    assert take_debug(["translate", "--", "--debug"]) == (False, ["translate", "--", "--debug"])


def test_auto_takes_the_best_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    with pytest.raises(UsageError, match="torch finds no cuda"):
        choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (choose_device("auto"), choose_device("cuda:1"), choose_device("cpu")) == ("cuda", "cuda:1", "cpu")


@pytest.mark.parametrize(
    ("cores", "threads", "load", "advice"),
    [
        (2, 2, 0.3, None),
        (2, 2, 1.1, "OMP_NUM_THREADS=1"),
        (16, 16, 5.0, "OMP_NUM_THREADS=11"),
        (16, 4, 5.0, None),
        (2, 1, 1.0, None),
        (2, 1, 4.0, "everything is slower"),
    ],
)
def test_a_busy_machine(
    cores: int, threads: int, load: float, advice: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found = doctor._busy(load)
    assert (advice in found[0]) if advice else not found


def test_versions_are_held_against_the_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "pinned_versions", lambda: {"torch": "2.13.0", "rich": "15.0.0", "mypy": "1.0"})
    assert doctor._mismatched({"torch": "2.13.0+cpu", "rich": "15.0.0", "numpy": "2.0"}) == []
    missing, other = doctor._mismatched({"torch": "2.6.0", "rich": "missing"})
    assert "rich" in missing and "torch 2.6.0 (not 2.13.0)" in other and "rich" not in other


def test_what_is_installed_is_found() -> None:
    assert doctor.installed_versions()["torch"] == torch.__version__
    assert (
        doctor.installed_versions().keys() >= {"numpy", "typer", "rich"} and "pytest" not in doctor.installed_versions()
    )
    total, free = doctor.memory()
    assert total >= free >= 0


def test_wrong_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert doctor._wrong_data() == []
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    assert "nowhere" in doctor._wrong_data()[0]
