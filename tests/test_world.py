"""The same run on several processes: DDP and a cut of every batch make the updates that one process makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.tensors import read_tensors
from regard.world import ALONE
from tests.drivers.many import Case, learn, start

DROPS: dict[str, Any] = {"dropout": 0.25}
CASES = [
    Case("translate", "transformer", {**DROPS, "activation_dropout": 0.2, "token_dropout": 0.1}, {"accumulate": 2}),
    Case("translate", "luong", {**DROPS, "layers": 2, "cell": "lstm"}, {"ema": 0.9}),
    Case("translate", "bytenet", DROPS),
    Case("generate", "gpt2", {"reversible": True, **DROPS}),
    Case("generate", "gpt2", {"attention": "performer", **DROPS}, {"optimiser": "muon"}),
    Case("generate", "llama", {"experts": 3, "groups": 2, "balance": 0.0, **DROPS}, {"weight_decay": 0.1}),
    Case("generate", "lstm", {"layers": 2, **DROPS}),
    Case("fill", "bert", DROPS, {"optimiser": "muon"}),
    Case("classify", "additive", DROPS, {}, 2),  # fewer rows than processes
    Case("classify-pictures", "vit", DROPS),
    Case("classify-pictures", "resnet", {}, {"accumulate": 4}),
    Case("caption", "show-attend-tell", DROPS, {"accumulate": 4}),
    Case("answer", "answerer", DROPS, {"accumulate": 4}),
    Case("ask", "memory-network", {"noise": 0.5}),
    Case("ask", "lstm", DROPS),
    Case("remember", "turing-machine"),
    Case("compute", "programmer"),
    Case("transcribe", "conformer", DROPS),
    Case("classify-sounds", "conformer", DROPS),
    Case("classify-graphs", "gat"),
]
SIZE = 4


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which four processes left what they learned."""
    folder = tmp_path_factory.mktemp("many")
    processes = start("tests.drivers.many", SIZE, str(folder))
    told = [process.communicate(timeout=300)[1] for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(told)[-4000:]
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_processes_make_the_updates_of_one(case: Case, learned: Path, tmp_path: Path) -> None:
    alone = learn(case, tmp_path, ALONE)
    found, last = (read_tensors(learned / f"{case.name}-{which}of{SIZE}.safetensors") for which in ("0", "last"))
    statistics = {name for name in alone if name.endswith(("norm.mean", "norm.variance"))}
    assert not statistics or case.train.get("accumulate") == SIZE  # batch norm knows its batch: each has whole ones
    for name in alone.keys() - statistics:
        assert torch.equal(found[name], last[name])
        difference = (found[name] - alone[name]).abs().max()
        assert difference <= 1e-10, f"{name}: {difference:.3g}"


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `drivers/killed.py` found, after three kills."""
    command = [sys.executable, "-m", "tests.drivers.killed", str(tmp_path_factory.mktemp("killed")), "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_run_whose_processes_are_killed_ends_as_if_nothing_had_happened(survived: dict[str, Any]) -> None:
    assert survived["kills"] == 3 and survived["unlike"] == []


def test_a_run_of_four_goes_on_with_two(survived: dict[str, Any]) -> None:
    """It was stopped by a signal to all of them, at a step on which they agreed."""
    assert survived["stopped"] in ("step-13", "step-14") and 0 < survived["moved"] <= 1e-6
