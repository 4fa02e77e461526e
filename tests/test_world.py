"""The same run on several processes: DDP and a cut of every batch make the updates that one process makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import RegardError, UsageError
from regard.tensors import read_tensors
from regard.training.config import TrainConfig
from regard.training.sharded import shard
from regard.world import ALONE, World, joined, world_of
from tests.drivers.many import CASES_OF, HALVES, LARGE, Case, learn, learn_in_half
from tests.test_kinds import fresh

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Found:
    """What `drivers/together.py` found, and the folder in which four processes left what they learned."""

    folder: Path
    unlike: dict[str, list[Any]]  # kills, and files that came out unlike, by the layout
    stopped: list[int]
    moved: float
    said: str
    seconds: float
    resumed: list[str]


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
    """What has batch norm, which knows its batch, has whole batches."""
    alone = learn(case, tmp_path, ALONE)
    first, last = (read_tensors(found.folder / f"{case.name}.{rank}.safetensors") for rank in ("first", "last"))
    statistics = {name for name in alone if name.endswith(("norm.mean", "norm.variance"))}
    assert not statistics or case.train.get("accumulate", 1) % size == 0
    for name in alone.keys() - statistics:
        assert torch.equal(first[name], last[name])
        difference = (first[name] - alone[name]).abs().max()
        assert difference <= 1e-10, f"{name}: {difference:.3g}"


@pytest.mark.parametrize(("number", "precision", "cut"), [(number, *each) for number, each in enumerate(HALVES)])
def test_in_half_precision_too(number: int, precision: str, cut: bool, found: Found, tmp_path: Path) -> None:
    """Two processes are as near to one as that one is to float32; all leave out the same updates, whoever saw an overflow.

    A sum over fewer rows overflows later, so that one process may leave out one more. Where weights are cut, bf16 is what
    is gathered of a block, and float32 what is kept.
    """
    first, last = (rank[number] for rank in json.loads((found.folder / "halves.json").read_text()))
    assert first == last and first["exact"]
    assert first["products"] == ["torch.bfloat16" if (precision, cut) == ("bf16", True) else "torch.float32"]
    alone, full = (learn_in_half(each, False, tmp_path, ALONE) for each in (precision, "float32"))
    assert 0 <= alone["skipped"] - first["skipped"] <= 1 and (alone["skipped"] > 10) is (precision == "fp16")
    assert first["scale"] == (LARGE * 2.0 ** -first["skipped"] if precision == "fp16" else 1.0)
    weights = [torch.tensor(each["weights"]) for each in (first, alone, full)]
    assert (weights[0] - weights[1]).norm() <= 2 * (weights[1] - weights[2]).norm()


def test_a_run_whose_processes_are_killed_ends_as_if_nothing_had_happened(found: Found) -> None:
    """Also where each writes its part of a checkpoint."""
    assert found.unlike == {"rows": [3, []], "cut": [3, []]}


def test_a_run_goes_on_with_other_processes_and_in_another_layout(found: Found) -> None:
    """Four, then two, then four that each hold a part of the weights, then one. A signal to all stops them at one step."""
    assert found.stopped == [14, 20, 26] and 0 < found.moved <= 1e-6


def test_a_process_that_hangs_is_named_in_time_and_the_run_resumes(found: Found) -> None:
    assert found.said.startswith("rank 1 of 2 processes is gone or did not answer for 3 s")
    assert 3.0 <= found.seconds < 15.0 and found.resumed == []


def test_a_rank_that_cannot_be_is_told() -> None:
    with pytest.raises(RegardError, match="RANK is 4 and WORLD_SIZE is 4"):
        world_of({"RANK": "4", "WORLD_SIZE": "4"})
    with pytest.raises(RegardError, match="are not numbers"):
        world_of({"RANK": "first", "WORLD_SIZE": "4"})
    assert world_of({"SLURM_PROCID": "3", "SLURM_NTASKS": "7", "SLURM_LOCALID": "1"}) == World(3, 7, 1)
    assert world_of({}) == ALONE


def test_who_does_not_find_the_others_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under srun, when nobody has said where the first one is."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    with pytest.raises(RegardError, match=r"rank 1 of 2 processes did not find the others .* MASTER_ADDR"), joined(1):
        pass


def test_shares_cover_everything_once() -> None:
    for size in (1, 2, 3, 7):
        shares = [World(rank, size).part(range(11)) for rank in range(size)]
        assert [item for share in shares for item in share] == list(range(11))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("train", "model", "told"),
    [
        ({"optimiser": "muon"}, {}, "Muon needs them whole"),
        ({}, {"reversible": True}, "model.reversible"),
        ({}, {"experts": 3}, "does not use all of its experts"),
    ],
)
def test_what_cannot_be_cut_is_refused(train: dict[str, Any], model: dict[str, Any], told: str) -> None:
    kind = "llama" if "experts" in model else "gpt2"
    with pytest.raises(UsageError, match=told):
        shard(fresh("generate", kind, **model), World(0, 2), torch.device("cpu"), TrainConfig(shard=True, **train))
