"""Under which conditions numbers were measured, so that another person can judge them."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass

import numpy
import sacrebleu
import torch

from regard import __version__


@dataclass(frozen=True)
class Conditions:
    """The machine and the software."""

    device: str
    cores: int  # that this process may use
    threads: int  # that torch uses
    machine: str
    versions: dict[str, str]

    def data(self) -> dict[str, object]:
        return asdict(self)


def conditions(device: str) -> Conditions:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    versions = {
        "regard": __version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "sacrebleu": sacrebleu.__version__,
        "python": platform.python_version(),
    }
    return Conditions(device, cores, torch.get_num_threads(), f"{platform.system()} {platform.machine()}", versions)
