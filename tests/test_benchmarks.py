"""Every benchmark and tool runs: each has a tiny mode, on built-in or made data, that needs nothing from outside."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
OWN_TESTS = ("build_site", "mathml", "reference", "site_check", "syllabus")  # test_site.py and test_syllabus.py
SCRIPTS = sorted(
    path for path in [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tools/*.py")] if path.stem not in OWN_TESTS
)
BESIDE_TRANSFORMERS = ("decode_speed", "generation_speed", "minilm", "recording", "train_speed")


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def run_tiny(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The exit code of `main(["--tiny"])`, in a folder of its own and without anybody's data."""
    for name in ("here", "temporary"):
        (folder / name).mkdir()
    monkeypatch.chdir(folder / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    monkeypatch.setenv("REGARD_CACHE", str(folder / "cache"))
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    threads = torch.get_num_threads()
    try:
        code: int | None = loaded(path, monkeypatch).main(["--tiny"])
        return code
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_and_tool_has_a_tiny_mode(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two did not start any more, since what they import had moved or changed its arguments."""
    assert not run_tiny(path, tmp_path, monkeypatch)
    assert capsys.readouterr().out.strip()
    assert list((tmp_path / "here").iterdir()) == []  # it leaves nothing where a person stands


@pytest.mark.parametrize("name", BESIDE_TRANSFORMERS)
def test_without_the_library_beside_them_they_run_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert not run_tiny(ROOT / "benchmarks" / f"{name}.py", tmp_path, monkeypatch)
    assert "transformers is not installed" in capsys.readouterr().out


def test_the_table_of_equal_processes_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded(ROOT / "benchmarks" / "processes.py", monkeypatch).main(["equal", "--tiny"])
    found = json.loads(capsys.readouterr().out.splitlines()[0])
    assert found["compared"] > 5 and found["same_bits"] and 0 < found["largest"] < 1e-10
