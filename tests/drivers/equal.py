"""Every kind that trains, by one process, by 2 and by 4: ten updates in float64, whose weights must be alike to 1e-10.

    python -m tests.drivers.equal FOLDER [KIND ...]

On standard output a JSON table: for each kind, number of processes and layout the largest difference of a weight, and whether
all ranks have the same bits, and so have two runs of the same size. `rows`: each process learns some rows of a batch; `whole`:
of four batches of an update each learns as many; `cut`: all weights are cut as well (FSDP2). What has batch norm, which takes
its statistics from the rows of a process, learns whole batches only.

Adam divides by the size of a gradient, so that one that is zero but for rounding, as that of a bias of all scores, moves its
weight by rounding alone: its epsilon is 1e-6 here. The processes of a size are started once and go through all kinds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.blocks.norm import BatchNorm
from regard.errors import UsageError
from regard.tensors import read_tensors, write_tensors
from regard.world import ALONE, World, joined
from tests.drivers.many import Case, learn
from tests.drivers.together import launch
from tests.test_kinds import EVERY, fresh

SIZES, BOUND = (2, 4), 1e-10
LAYOUTS: dict[str, dict[str, Any]] = {"rows": {}, "whole": {"accumulate": 4}, "cut": {"shard": True}}
EPSILON = 1e-6
STATISTICS = ("norm.mean", "norm.variance", "running_mean", "running_var")


def case_of(task: str, kind: str, layout: str) -> Case:
    batches = LAYOUTS["whole"] if knows_its_batch(task, kind) and layout == "cut" else {}
    return Case(task, kind, {}, {"epsilon": EPSILON, **batches, **LAYOUTS[layout]})


@cache
def knows_its_batch(task: str, kind: str) -> bool:
    """Whether a model has batch norm."""
    return any(isinstance(each, BatchNorm) for each in fresh(task, kind).modules())


def work(folder: Path, kinds: Sequence[tuple[str, str]]) -> None:
    """One process of those that go through all kinds; the first one writes what was found."""
    torch.set_num_threads(1)
    with joined(timeout=300) as world:
        rows = [row for task, kind in kinds for row in rows_of(task, kind, folder, world)]
        if world.is_first:
            (folder / f"{world.size}.json").write_text(json.dumps(rows))
        world.wait()


def rows_of(task: str, kind: str, folder: Path, world: World) -> list[dict[str, Any]]:
    """What is found of one kind, in every layout."""
    rows = []
    for layout in LAYOUTS:
        case, row = case_of(task, kind, layout), {"task": task, "kind": kind, "processes": world.size, "layout": layout}
        if layout == "rows" and knows_its_batch(task, kind):
            rows.append(row | {"told": "batch norm takes its statistics from the rows of a process"})
            continue
        try:
            found = learn(case, folder, world)
        except UsageError as error:
            rows.append(row | {"told": str(error)})
            continue
        digests = world.gather([digest_of(found), digest_of(learn(case, folder, world)) if layout == "rows" else ""])
        same = len({first for first, _ in digests}) == 1 and digests[0][1] in ("", digests[0][0])
        like = "whole" if "accumulate" in case.train else "rows"
        one = read_tensors(folder / f"{task}-{kind}-{like}.safetensors")
        rows.append(row | {"difference": difference(found, one), "same_bits": same})
    return rows


def difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest difference of a weight. Running statistics are means over processes, and are left out."""
    assert found.keys() == expected.keys()
    names = [name for name in found if not name.endswith(STATISTICS) and found[name].is_floating_point()]
    return max(float((found[name].detach() - expected[name]).abs().max()) for name in names)


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name].detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def alone(folder: Path, kinds: Sequence[tuple[str, str]]) -> None:
    """What one process learns of each kind: from one batch an update, and from four."""
    torch.set_num_threads(1)
    for task, kind in kinds:
        for layout in ("rows", "whole"):
            found = learn(case_of(task, kind, layout), folder, ALONE)
            write_tensors(folder / f"{task}-{kind}-{layout}.safetensors", found)


def table(folder: Path, kinds: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """All rows, by kind."""
    launch(1, 0, alone, folder, kinds)
    for size in SIZES:
        launch(size, 0, work, folder, kinds)
    rows = [row for size in SIZES for row in json.loads((folder / f"{size}.json").read_text())]
    order = [list(kind) for kind in kinds]
    return sorted(rows, key=lambda row: order.index([row["task"], row["kind"]]))


if __name__ == "__main__":
    asked = sys.argv[2:]
    print(json.dumps(table(Path(sys.argv[1]), [each for each in EVERY if not asked or "/".join(each) in asked])))
