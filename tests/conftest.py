"""What several test files share: one small run, trained once."""

from __future__ import annotations

import copy
import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.tasks.configure import run_config
from regard.tasks.run import RunResult, start_run

CACHE = tempfile.TemporaryDirectory(prefix="regard-cache-")  # of data that are large enough to be kept
os.environ["REGARD_CACHE"] = CACHE.name
torch.set_num_threads(1)  # the sums of a matrix product come in one order only

LONG = ("test_benchmarks", "test_resume", "test_syllabus", "test_docs", "test_course", "test_compare")  # files

TINY: dict[str, Any] = {
    "data": {"builtin_size": 97},
    "tokens": {"size": 300},
    "model": {"encoder_layers": 2, "decoder_layers": 2, "width": 24, "heads": 3, "feed_forward": 37, "dropout": 0.1},
    "train": {"steps": 4, "validate_every": 2, "batch_tokens": 512, "warmup": 2, "precision": "float32"},
    "validate": {"sentences": 2},
}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """No garbage is sought among the 800,000 objects that imports and collection make: not while they grow, nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests come first: one that began last would have the other worker wait for its end."""
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Nothing here outlives its test, so nothing has to survive a power failure; syncs are asked for, and take no time.

    What a run leaves behind that is killed has nothing to do with them (drivers/train_short.py).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def curves_painted_once() -> Iterator[None]:
    """The figure of every run's curves is made, but only one of those with the same panels is painted.

    Painting is a third of a small run's time. `test_look.py` paints them all.
    """
    from regard.look.figures import curves, sheet

    painted: dict[tuple[str, ...], bytes] = {}

    def render(figure: Any, kind: str) -> bytes:
        panels = (kind, *(axes.get_ylabel() for axes in figure.axes))
        if panels not in painted:
            painted[panels] = sheet.render(figure, kind)
        return painted[panels]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "render", render)
        yield


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
