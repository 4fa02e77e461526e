"""The processes that train one model together. One process is a world of size 1, and nothing below asks whether it is.

A world is joined from what `torchrun` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or SLURM leaves in the
environment. The rest of the package knows of ranks only what this file gives it: its share of a batch, sums over all, a
decision that the first one made for all, and rows put together in order. What passes between processes is tensors and JSON;
nothing is pickled.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import RegardError

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar("Item")
TIMEOUT = 600.0  # seconds for which the others are waited for
SIGNS = (  # of an error between processes, in torch's words and gloo's
    "gloo/", "NCCL", "TCPStore", "Application timeout", "pair closure", "error when running the callback",
    "Connection closed", "Connection reset", "Broken pipe", "Timed out waiting", "Socket",
)  # fmt: skip
HERE, ASKING = "regard/here/", 2.0  # what those that are left tell each other, and for how many seconds they ask
ENDED = "REGARD_ENDED"  # names the file in which a launched process says that starting it again would not help
RESTARTED = "TORCHELASTIC_RESTART_COUNT"  # how often torchrun has started this group again
LONG = 7  # days that a preparation may take


class LostError(RegardError):
    """Another process is gone, or does not answer."""


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
        return [value] if self.is_alone else self._gathered(value, None)

    def gather_long(self, value: Any) -> list[Any]:
        """The same, however long the others take."""
        return [value] if self.is_alone else self._gathered(value, _patient.get())

    def _gathered(self, value: Any, group: Any) -> list[Any]:
        import torch
        import torch.distributed as dist

        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(mine)]), group=group)
        longest = int(max(sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(mine)] = mine
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(found, padded, group=group)
        parts = zip(found, sizes, strict=True)
        return [json.loads(bytes(part[: int(size)].numpy())) for part, size in parts]

    def share_out(self, items: Iterable[Item], work: Callable[[Item], Any]) -> list[Any]:
        """What `work` makes of each item, in order; each is done by one process. It makes values that JSON can write.

        Of a sequence each process looks only at the items that are its own.
        """
        if self.is_alone:
            return [work(item) for item in items]
        count = len(items) if isinstance(items, Sequence) else 0
        if isinstance(items, Sequence):
            mine = [work(items[number]) for number in range(self.rank, count, self.size)]
        else:
            mine = []
            for number, item in enumerate(items):
                if number % self.size == self.rank:
                    mine.append(work(item))
                count = number + 1
        parts = self.gather(mine)
        return [parts[number % self.size][number // self.size] for number in range(count)]

    def in_parts(self, items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Any]]) -> list[Any]:
        """What `work` makes of all items, one each and in order; each process does a stretch of them."""
        mine = self.part(items)
        parts = self.gather(list(work(mine)) if len(mine) else [])
        return [each for part in parts for each in part]

    def wait(self) -> None:
        """Go on when every process is here."""
        if not self.is_alone:
            import torch.distributed as dist

            dist.barrier()

    def wait_long(self) -> None:
        """Go on when every process is here, however long that takes: another may be reading the data."""
        if not self.is_alone:
            import torch
            import torch.distributed as dist

            dist.all_reduce(torch.zeros(1), group=_patient.get())

    # --- From one process to others, however long these take

    def tell(self, value: Any) -> None:
        """Tell all others, who `hear` it: a value that JSON can write."""
        if not self.is_alone:
            self.gather_long(value)

    def hear(self) -> Any:
        """What the first process tells."""
        return self.gather_long(None)[0]

    def send(self, rank: int, data: bytes) -> None:
        """Give bytes to another process, which waits for them."""
        import torch
        import torch.distributed as dist

        dist.send(torch.tensor([len(data)]), rank, group=_patient.get())
        if data:
            dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), rank, group=_patient.get())

    def receive(self, rank: int) -> bytes:
        """The bytes that another process sends."""
        import torch
        import torch.distributed as dist

        size = torch.zeros(1, dtype=torch.int64)
        dist.recv(size, rank, group=_patient.get())
        data = torch.zeros(int(size), dtype=torch.uint8)
        if len(data):
            dist.recv(data, rank, group=_patient.get())
        return data.numpy().tobytes()


ALONE = World()
_current: ContextVar[World] = ContextVar("world", default=ALONE)
_patient: ContextVar[Any] = ContextVar("group of all processes that waits for long", default=None)


def world() -> World:
    """The world that this process is in."""
    return _current.get()


@contextmanager
def alone() -> Iterator[None]:
    """Inside this block this process does by itself whatever it does."""
    token = _current.set(ALONE)
    try:
        yield
    finally:
        _current.reset(token)


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

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    waits = timedelta(seconds=timeout)
    try:
        dist.init_process_group(
            backend, store=_fresh_store(place, waits), rank=place.rank, world_size=place.size, timeout=waits
        )
    except (RuntimeError, ValueError) as error:  # torch's are of many kinds here, and all mean one thing
        raise LostError(
            f"rank {place.rank} of {place.size} processes did not find the others within {timeout:g} s",
            "check that all were started, and that MASTER_ADDR and MASTER_PORT name the first one's machine and a port",
        ) from error
    token, patient = _current.set(place), _patient.set(dist.new_group(backend="gloo", timeout=timedelta(days=LONG)))
    try:
        yield place
    except RuntimeError as error:
        if not any(sign in str(error) for sign in SIGNS):
            raise
        raise _lost(place, timeout) from error
    finally:
        _patient.reset(patient)
        _current.reset(token)
        dist.destroy_process_group()


def _fresh_store(place: World, timeout: timedelta) -> Any:
    """Where the processes find each other, apart from what an earlier attempt of the same group left there."""
    import torch.distributed as dist

    store, *_ = next(dist.rendezvous("env://", place.rank, place.size, timeout=timeout))
    return dist.PrefixStore(f"regard/{os.environ.get(RESTARTED, 0)}/{place.size}", store)


def _lost(place: World, timeout: float) -> BaseException:
    """The error of a process that lost contact: who did not answer, told by the first of those who still do."""
    if ENDED in os.environ and Path(os.environ[ENDED]).exists():  # one has said why it ends
        return SystemExit(0)
    silent = _silent(place)
    if silent is not None and any(rank not in silent for rank in range(place.rank)):
        return SystemExit(1)  # another one tells
    names = "rank 0" if silent is None else f"rank {', '.join(map(str, silent))}" if silent else "another process"
    return LostError(
        f"{names} of {place.size} processes is gone or did not answer for {timeout:g} s",
        "the run goes on from its last checkpoint: torchrun starts it again by itself (--restarts), or regard train --resume",
    )


def _silent(place: World) -> list[int] | None:
    """Ranks that say nothing while all who lost contact tell that they are there; None: there is nobody to tell it to."""
    from torch.distributed.distributed_c10d import _get_default_store

    with suppress(RuntimeError):
        store = _get_default_store()
        store.set(f"{HERE}{place.rank}", "1")
        waits = time.monotonic() + ASKING
        while time.monotonic() < waits:
            missing = [rank for rank in range(place.size) if not store.check([f"{HERE}{rank}"])]
            if not missing:
                return missing
            time.sleep(0.1)
        return missing
    return None


def ended_for_good(code: int) -> int:
    """The exit code of a process whose run cannot go on: who launched it is told not to start it again."""
    name = os.environ.get(ENDED)
    if name is None:
        return code
    Path(name).write_text(str(code))
    return 0
