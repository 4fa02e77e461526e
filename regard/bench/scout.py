"""One attention alone on given queries, keys and values, forward and backward: the unit that `bench_attention` measures.

Vectors lie as `MultiHead`'s projections leave them, (B, T, D) seen as (B, H, T, E); gradients go to queries, keys, values
and whatever the kernel learns. A state-space layer has no queries: its own forward is measured, projections and all.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.attention import Causal, Role, attend, attend_reference
from regard.blocks import Selective, StateSpace
from regard.config import check
from regard.errors import UsageError, nearest
from regard.models.attention import make_attention, make_kernel
from regard.models.configs.attention import (
    KERNEL_KINDS,
    AttentionConfig,
    KernelConfig,
    SelectiveConfig,
    StateSpaceConfig,
)

SUBJECTS = (*KERNEL_KINDS, "naive")  # naive: exact, with all scores in memory
CONFIGS: dict[str, Any] = {
    each.model_fields["kind"].default: each for each in (*get_args(KernelConfig), StateSpaceConfig, SelectiveConfig)
}


@dataclass(frozen=True)
class Sizes:
    """Sizes and settings that all kernels of a benchmark share."""

    width: int = 256
    heads: int = 4
    batch: int = 1
    causal: bool = False
    backward: bool = True
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # of kernels, by their names


@dataclass(frozen=True, eq=False)
class BenchInputs:
    """Random vectors of one length, the same for all."""

    vectors: tuple[Tensor, ...]  # three leaves (B, T, D)
    gradient: Tensor  # of the output, (B, T, D)
    heads: int

    @classmethod
    def of(cls, sizes: Sizes, length: int) -> BenchInputs:
        draw = torch.Generator().manual_seed(length)
        shape = (sizes.batch, length, sizes.width)
        *vectors, gradient = (torch.randn(shape, generator=draw) for _ in range(4))
        return cls(tuple(each.requires_grad_(sizes.backward) for each in vectors), gradient, sizes.heads)

    def in_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, T, D) -> (B, H, T, E)

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in (*self.vectors, self.gradient))


@dataclass(frozen=True, eq=False)
class BenchSubject:
    """An attention of one length, ready to run."""

    name: str
    run: Callable[[BenchInputs], Tensor]  # (B, T, D), or seen as (B, H, T, E)
    module: nn.Module | None = None  # what learns

    @torch.no_grad()
    def forward(self, inputs: BenchInputs) -> None:
        """As in use: nothing is kept for a way back."""
        self._train(False)
        self.run(inputs)

    def there_and_back(self, inputs: BenchInputs) -> None:
        self._train(True)
        out = self.run(inputs)
        out.backward(inputs.gradient if out.dim() == 3 else inputs.in_heads(inputs.gradient))
        for leaf in (*inputs.vectors, *(() if self.module is None else self.module.parameters())):
            leaf.grad = None

    def _train(self, on: bool) -> None:
        if self.module is not None:
            self.module.train(on)


def make_subject(name: str, sizes: Sizes, length: int) -> BenchSubject:
    """The attention of that name; a kernel refuses what it cannot do."""
    if name in ("exact", "naive"):
        whole, mask = attend if name == "exact" else attend_reference, Causal() if sizes.causal else None
        return BenchSubject(name, lambda given: whole(*map(given.in_heads, given.vectors), mask=mask))
    config = config_of(name, sizes, length)
    role: Role = "causal" if sizes.causal else "self"
    if name in ("s4d", "mamba"):
        layer = make_attention(config, sizes.width, sizes.heads, role=role)
        assert isinstance(layer, StateSpace | Selective)
        return BenchSubject(name, lambda given: layer(given.vectors[0], given.vectors[0]), layer)
    kernel = make_kernel(config, sizes.width, sizes.heads, role, longest=length)

    def run(given: BenchInputs) -> Tensor:
        q, k, v = map(given.in_heads, given.vectors)
        return kernel(q, q if kernel.shares_keys else k, v)

    return BenchSubject(name, run, kernel)


def config_of(name: str, sizes: Sizes, length: int) -> AttentionConfig:
    """A kernel as the person wants it, or as its paper has it; the stride of the Sparse Transformer grows as √T."""
    if name not in SUBJECTS:
        raise UsageError(f"no kernel {name}", nearest(name, SUBJECTS))
    over = dict(sizes.settings.get(name, {}))
    if name == "strided":
        over.setdefault("stride", max(2, round(math.sqrt(length))))
    return check(CONFIGS[name], over, f"--set {name}")


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


SHARE = 0.6  # of the machine's memory that one attention may take


@dataclass(frozen=True)
class Scouted:
    """Time and memory of one length, as a child process measured them. `skipped` says why the rest is empty."""

    length: int
    seconds: float = 0.0  # of one pass
    memory: int = 0  # bytes at the peak, beside inputs
    inputs: int = 0  # bytes of queries, keys, values and the gradient of the output
    how: str = ""  # memory was measured
    skipped: str = ""


def scout(name: str, sizes: Sizes, lengths: Iterable[int], limit: float, how: str = "") -> Iterator[Scouted]:
    """Measure one length after another, as long as they can be afforded."""
    found: list[Scouted] = []
    for length in sorted(lengths):
        seconds = predicted([(each.length, each.seconds) for each in found], length)
        memory = predicted([(each.length, float(each.memory)) for each in found], length)
        if seconds > limit:
            yield Scouted(length, skipped=f"it would take about {seconds:.0f} s, more than the limit of {limit:g} s")
            return
        if memory > SHARE * memory_of_machine():
            yield Scouted(length, skipped=f"it would take about {memory / 2**30:.1f} GiB of memory")
            return
        found.append(_measured(make_subject(name, sizes, length), sizes, length, how))
        yield found[-1]


def _measured(subject: BenchSubject, sizes: Sizes, length: int, how: str) -> Scouted:
    inputs = BenchInputs.of(sizes, length)
    run = subject.there_and_back if sizes.backward else subject.forward
    run(inputs)  # whatever is set up once is set up now
    started = time.perf_counter()
    memory, way = peak_memory(lambda: run(inputs), how)
    return Scouted(length, time.perf_counter() - started, memory, inputs.bytes, way)


def predicted(found: list[tuple[int, float]], length: int) -> float:
    """From lengths that were measured to a longer one: as the last two grew, at most with T²; with T² from a single one."""
    if not found:
        return 0.0
    (last, value), exponent = found[-1], 2.0
    if len(found) > 1 and found[-2][1] > 0 and value > 0:
        before, less = found[-2]
        exponent = min(2.0, max(1.0, math.log(value / less) / math.log(last / before)))
    return value * (length / last) ** exponent


def memory_of_machine() -> float:
    """In bytes; without end where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def main() -> None:
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    for found in scout(given["name"], Sizes(**given["sizes"]), given["lengths"], given["limit"], given["how"]):
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
