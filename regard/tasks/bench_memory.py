"""How much memory a computation needs at its peak beyond what was there before, measured in one of two ways.

resident  what the system says of this process (Linux): the high-water mark is reset, then read. It sees everything, also
          what kernels take inside. Freed memory must go back to the system at once, or what was freed before hides what is
          taken now: start the process with `AT_ONCE` in its environment.
storages  the bytes of all tensors that live at a time, counted operation by operation: anywhere, and blind to what an
          operation takes inside itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "16384"}  # glibc's malloc; others do not mind
CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def peak_memory(work: Callable[[], object], how: str = "") -> tuple[int, str]:
    """Bytes that `work` takes at its peak, and the way they were measured."""
    how = how or ("resident" if can_read_resident() else "storages")
    return (_resident_peak if how == "resident" else _storages_peak)(work), how


def can_read_resident() -> bool:
    try:
        CLEAR.write_text("5")
        return _resident("VmHWM") > 0
    except (OSError, StopIteration):
        return False


def _resident_peak(work: Callable[[], object]) -> int:
    CLEAR.write_text("5")  # proc(5): resets the peak to what is resident now
    before = _resident("VmHWM")
    work()
    return max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    """Memory of this process in bytes: VmRSS now, VmHWM at its highest."""
    lines = STATUS.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def _storages_peak(work: Callable[[], object]) -> int:
    with LiveStorages() as live:
        work()
    return live.peak


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of tensors that operations make under it, as long as they live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(each.untyped_storage()) for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, torch.Tensor) and id(each.untyped_storage()) not in given:
                self._count(each.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return

        def gone(_: object) -> None:
            self.now -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)
