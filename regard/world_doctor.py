"""A checkup of several processes that are to work together: who they are, what differs, and how fast sums pass between them."""

from __future__ import annotations

import math
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import __version__
from regard.bench.hardware import Link, all_reduce
from regard.doctor import cores
from regard.errors import RegardError
from regard.runs import bundle_folder
from regard.world import World, joined, world_of

if TYPE_CHECKING:
    import torch

    from regard.bench.exchange import Exchange

TIMEOUT = 60.0  # seconds in which a rank answers
LOOK = 0.05  # seconds between two looks for those that have not answered
SAME = ("regard", "python", "torch", "backend", "threads")  # what should be the same in every rank


@dataclass(frozen=True)
class RankFacts:
    """One process: where it is, what it computes on, with what."""

    rank: int
    host: str
    device: str
    cores: int
    regard: str
    python: str
    torch: str
    backend: str
    threads: int


@dataclass(frozen=True)
class WorldCheckup:
    """Findings about processes that are joined, and advice that a person can act on."""

    ranks: tuple[RankFacts, ...]
    exchanges: tuple[Exchange, ...]
    link: Link  # whose ring explains them
    gradient: tuple[str, int] | None  # a model and its parameters
    warnings: tuple[str, ...]

    @property
    def gradient_seconds(self) -> float | None:
        """The sum of a model's gradients, in float32."""
        return None if self.gradient is None else all_reduce(4 * self.gradient[1], len(self.ranks), self.link)

    def data(self) -> dict[str, object]:
        """For JSON."""
        count = len(self.ranks)
        model = self.gradient and {"name": self.gradient[0], "parameters": self.gradient[1]}
        return {
            "ranks": [asdict(each) for each in self.ranks],
            "exchanges": [{**asdict(each), "bytes_per_second": each.rate(count)} for each in self.exchanges],
            "latency": self.link.latency,
            "bandwidth": self.link.bytes,
            "model": model and {**model, "seconds": self.gradient_seconds},
            "warnings": list(self.warnings),
        }


def examine(gradient: tuple[str, int] | None = None, timeout: float = TIMEOUT) -> WorldCheckup | None:
    """Look at all processes of this world together; None in all but the first. One that does not answer is named."""
    with all_present(world_of(os.environ), timeout), joined(timeout) as world:
        from regard.bench.exchange import fitted, measure

        device = own_device(world)
        ranks = tuple(RankFacts(**each) for each in world.gather(asdict(facts_of(world, device))))
        exchanges = measure(world, device)
        if not world.is_first:
            return None
        link = fitted(exchanges, world.size)
        return WorldCheckup(ranks, tuple(exchanges), link, gradient, tuple(differences(ranks) + crowded(ranks)))


def own_device(world: World) -> torch.device:
    import torch

    return torch.device("cuda", world.local_rank) if torch.cuda.is_available() else torch.device("cpu")


def facts_of(world: World, device: torch.device) -> RankFacts:
    """This process."""
    import torch
    import torch.distributed as dist

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return RankFacts(
        world.rank, socket.gethostname(), f"{device} ({name})" if device.type == "cuda" else name, cores(), __version__,
        platform.python_version(), torch.__version__, dist.get_backend(), torch.get_num_threads(),
    )  # fmt: skip


def differences(ranks: Sequence[RankFacts]) -> list[str]:
    """What is not the same in all ranks, and who has what."""
    found = []
    for name in SAME:
        values: dict[object, list[int]] = {}
        for each in ranks:
            values.setdefault(getattr(each, name), []).append(each.rank)
        if len(values) > 1:
            told = ", ".join(f"{value} ({ranks_in_words(who)})" for value, who in values.items())
            found.append(f"{name} differs between ranks: {told}; sums may round otherwise, or not fit each other")
    return found


def crowded(ranks: Sequence[RankFacts]) -> list[str]:
    """Hosts whose processes have more threads than the host has cores."""
    found = []
    for host in dict.fromkeys(each.host for each in ranks):
        here = [each for each in ranks if each.host == host and each.device == "cpu"]
        threads = sum(each.threads for each in here)
        if here and threads > here[0].cores:
            found.append(
                f"{len(here)} processes of {threads} threads share the {here[0].cores} cores of {host}: each computes "
                "slower than it would alone"
            )
    return found


def ranks_in_words(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


@contextmanager
def all_present(world: World, timeout: float) -> Iterator[Any]:
    """Every rank says that it is there; those that do not in time are named, in every rank that is.

    The store is open while the block lasts: it is in the first process, and others may be slower to read it.
    """
    store, keys = _store(world, timeout), f"regard/doctor/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/"
    store.set(f"{keys}{world.rank}", socket.gethostname())
    if world.is_first:
        missing = _missing(world, timeout, lambda rank: bool(store.check([f"{keys}{rank}"])))
        store.set(f"{keys}missing", " ".join(map(str, missing)))
    else:
        store.wait([f"{keys}missing"], timedelta(seconds=timeout + 10))
        missing = [int(rank) for rank in store.get(f"{keys}missing").decode().split()]
    if missing:
        here = {rank: store.get(f"{keys}{rank}").decode() for rank in range(world.size) if rank not in missing}
        told = ", ".join(f"{rank} on {host}" for rank, host in here.items())
        time.sleep(4 * LOOK if world.is_first else 0)  # who keeps the store leaves last
        raise RegardError(
            f"{ranks_in_words(missing)} of {world.size} did not answer within {timeout:g} s (there are {told})",
            "look whether that process was started, and whether it reaches MASTER_ADDR",
        )
    yield store


def _missing(world: World, timeout: float, is_here: Callable[[int], bool]) -> list[int]:
    """The ranks that are not there when the time is over."""
    ends = time.monotonic() + timeout
    while missing := [rank for rank in range(world.size) if not is_here(rank)]:
        if time.monotonic() > ends:
            return missing
        time.sleep(LOOK)
    return []


def _store(world: World, timeout: float) -> Any:
    """The store that torch keeps for this world: torchrun's, or one that the first rank opens; `joined` uses the same."""
    from torch.distributed import TCPStore

    host, port = _address(os.environ)
    opens = world.is_first and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        return TCPStore(
            host, port, None, opens, timedelta(seconds=timeout), wait_for_workers=False, multi_tenant=True
        )  # fmt: skip
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise RegardError(f"cannot reach rank 0 at {host}:{port} ({first})", "look whether it was started") from error


def _address(environment: Mapping[str, str]) -> tuple[str, int]:
    try:
        return environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    except KeyError as error:
        raise RegardError(f"{error} is not set", "torchrun sets it; SLURM's srun alone does not") from error


def parameters_of(run: str | Path) -> int:
    """The parameters of the bundle in a folder, by the header of its weights."""
    from safetensors import safe_open

    with safe_open(bundle_folder(run) / "model.safetensors", framework="numpy") as file:
        names: list[str] = file.keys()
        return sum(math.prod(file.get_slice(name).get_shape()) for name in names)
