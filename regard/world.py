"""The processes that train one model together. One process is a world of size 1, and nothing below asks whether it is.

A world is joined from what `torchrun` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or SLURM leaves in the
environment. The rest of the package knows of ranks only what this file gives it: its share of a batch, sums over all, a
decision that the first one made for all, and rows put together in order. What passes between processes is tensors and JSON;
nothing is pickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import RegardError

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar("Item")
TIMEOUT = 600.0  # seconds for which the others are waited for


@dataclass(frozen=True)
class World:
    """This process among those that work together."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes of this machine

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes what is written once."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def part(self, items: Sequence[Item]) -> Sequence[Item]:
        """This process's share: neighbours, as many as each other process has, or one more."""
        low, high = self.bounds(len(items))
        return items[low:high]

    def bounds(self, count: int) -> tuple[int, int]:
        """The first of this process's share of `count` items, and the one behind its last."""
        return self.rank * count // self.size, (self.rank + 1) * count // self.size

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if not self.is_alone:
            import torch.distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def agree(self, value: Any) -> Any:
        """What the first process says, in every process: a value that JSON can write."""
        if self.is_alone:
            return value
        return self.gather(value if self.is_first else None)[0]

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        return flag if self.is_alone else any(self.gather(flag))

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, by rank: values that JSON can write."""
        if self.is_alone:
            return [value]
        import torch
        import torch.distributed as dist

        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(mine)]))
        longest = int(max(sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(mine)] = mine
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(found, padded)
        parts = zip(found, sizes, strict=True)
        return [json.loads(bytes(part[: int(size)].numpy())) for part, size in parts]

    def wait(self) -> None:
        """Go on when every process is here."""
        if not self.is_alone:
            import torch.distributed as dist

            dist.barrier()


ALONE = World()
_current: ContextVar[World] = ContextVar("world", default=ALONE)


def world() -> World:
    """The world that this process is in."""
    return _current.get()


def world_of(environment: Mapping[str, str]) -> World:
    """The place that the environment gives this process: by torchrun, else SLURM's, else alone."""
    for rank, size, local in (("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")):
        if rank in environment and size in environment:
            try:
                place = World(int(environment[rank]), int(environment[size]), int(environment.get(local, 0)))
            except ValueError as error:
                raise RegardError(f"{rank} and {size} of the environment are not numbers: {error}") from error
            if not 0 <= place.rank < place.size:
                raise RegardError(f"{rank} is {place.rank} and {size} is {place.size}", "ranks go from 0 to one less")
            return place
    return ALONE


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[World]:
    """Inside this block this process is in the world of its environment; a world of one joins nothing."""
    place = world_of(os.environ)
    if place.is_alone:
        yield place
        return
    import torch
    import torch.distributed as dist

    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=place.rank, world_size=place.size, timeout=timedelta(seconds=timeout))
    token = _current.set(place)
    try:
        yield place
    finally:
        _current.reset(token)
        dist.destroy_process_group()
