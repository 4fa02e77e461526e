"""The same run on several processes: DDP and a cut of every batch make the updates that one process makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from regard.tensors import read_tensors
from regard.world import ALONE
from tests.drivers.many import CASES_OF, Case, learn

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Found:
    """What `drivers/together.py` found, and the folder in which four processes left what they learned."""

    folder: Path
    kills: int
    unlike: list[str]
    stopped: list[int]
    moved: float


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "tests.drivers.together", str(folder), "3"]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=threads, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    return Found(folder, **json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("size", "case"), [(size, case) for size, cases in CASES_OF.items() for case in cases])
def test_processes_make_the_updates_of_one(size: int, case: Case, found: Found, tmp_path: Path) -> None:
    alone = learn(case, tmp_path, ALONE)
    first, last = (read_tensors(found.folder / f"{case.name}.{rank}.safetensors") for rank in ("first", "last"))
    statistics = {name for name in alone if name.endswith(("norm.mean", "norm.variance"))}
    assert (
        not statistics or case.train.get("accumulate", 1) % size == 0
    )  # batch norm knows its batch: each has whole ones
    for name in alone.keys() - statistics:
        assert torch.equal(first[name], last[name])
        difference = (first[name] - alone[name]).abs().max()
        assert difference <= 1e-10, f"{name}: {difference:.3g}"


def test_a_run_whose_processes_are_killed_ends_as_if_nothing_had_happened(found: Found) -> None:
    assert found.kills == 3 and found.unlike == []


def test_a_run_goes_on_with_other_processes_and_in_another_layout(found: Found) -> None:
    """And these with four that each hold a part of the weights, and those with one. Each hears of the signal of another with the next update."""
    assert found.stopped == [14, 20, 26] and 0 < found.moved <= 1e-6
