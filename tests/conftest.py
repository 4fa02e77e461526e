"""What several test files share: one small run, trained once."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.tasks.configure import run_config
from regard.tasks.run import RunResult, start_run

CACHE = tempfile.TemporaryDirectory(prefix="regard-cache-")  # of data that are large enough to be kept
os.environ["REGARD_CACHE"] = CACHE.name
torch.set_num_threads(1)  # the sums of a matrix product come in one order only

TINY: dict[str, Any] = {
    "data": {"builtin_size": 97},
    "tokens": {"size": 300},
    "model": {"encoder_layers": 2, "decoder_layers": 2, "width": 24, "heads": 3, "feed_forward": 37, "dropout": 0.1},
    "train": {"steps": 4, "validate_every": 2, "batch_tokens": 512, "warmup": 2, "precision": "float32"},
    "validate": {"sentences": 2},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A test that left torch more threads would make the small operations of those after it many times slower."""
    yield
    left = torch.get_num_threads()
    torch.set_num_threads(1)
    assert left == 1


@pytest.fixture
def tiny_settings() -> dict[str, Any]:
    """The tables of a run of four updates; a test may change its copy."""
    return copy.deepcopy(TINY)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run that has ended, not to be written to."""
    return start_run(run_config("translate", copy.deepcopy(TINY)), folder=tmp_path_factory.mktemp("tiny") / "run")


@pytest.fixture
def tiny_bundle(tiny_run: RunResult, tmp_path: Path) -> Path:
    """A copy of its best bundle, to be damaged at will."""
    return shutil.copytree(tiny_run.best, tmp_path / "bundle")
