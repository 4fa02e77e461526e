"""Several processes for one run: started here with torchrun's elastic agent, or joined where something else started them."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from regard.cli.model import choose_device
from regard.errors import RegardError, UsageError
from regard.world import ENDED, RESTARTED, TIMEOUT, World, joined, world_of

RESTARTS = 3


def place_here() -> World:
    """This process's place among those that were started together; torch is not needed to know it."""
    here = world_of(os.environ)
    if not here.is_alone:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # what goes wrong between processes we say ourselves
    return here


def restarts_so_far() -> int:
    """How often torchrun has started this process's group again."""
    return int(os.environ.get(RESTARTED, 0))


def device_of(name: str) -> str:
    """The device of this process: of several processes on one machine each has a GPU of its own."""
    found = choose_device(name)
    here = place_here()
    if found != "cuda" or here.is_alone:
        return found
    import torch

    if here.local_rank >= torch.cuda.device_count():
        raise UsageError(
            f"{here.local_rank + 1} processes on this machine and {torch.cuda.device_count()} GPUs",
            "start one process for each GPU",
        )
    torch.cuda.set_device(here.local_rank)
    return f"cuda:{here.local_rank}"


@contextmanager
def taking_part(timeout: float | None) -> Iterator[None]:
    """Inside this block this process trains with those that were started with it, if any."""
    with joined(TIMEOUT if timeout is None else timeout):
        yield


def follow(device: str, timeout: float | None) -> None:
    """Take part in the run of the first process, which alone writes and speaks."""
    with taking_part(timeout):
        from regard.tasks.run import follow_run

        outcome = follow_run(device_of(device)).outcome
    if outcome.reason == "interrupted":
        raise typer.Exit(130)


def launch(count: int, restarts: int, words: Sequence[str]) -> int:
    """Start `regard WORDS` in so many processes on this machine, all again where one fails; the exit code of the run."""
    if count < 1:
        raise UsageError(f"--processes {count}: at least one trains")
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what went wrong we say ourselves
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=secrets.token_hex(8),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=restarts,
        monitor_interval=0.2,
    )
    with tempfile.TemporaryDirectory() as folder:
        ended = Path(folder) / "ended"
        os.environ[ENDED] = str(ended)
        try:
            elastic_launch(config, entrypoint=sys.executable)("-m", "regard", *words)
        except SignalException:
            return 130
        except ChildFailedError as error:
            failed = min(error.failures.values(), key=lambda each: each.timestamp)
            again = f", the last of {restarts + 1} times" if restarts else ""
            raise RegardError(f"process {failed.local_rank} {_end(failed.exitcode)}{again}") from error
        finally:
            del os.environ[ENDED]
        return int(ended.read_text()) if ended.exists() else 0


def _end(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def own_words(words: Sequence[str], *options: str) -> list[str]:
    """What was typed without some options that have a value."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if word in options:
            next(left, None)
        elif not word.startswith(tuple(f"{option}=" for option in options)):
            kept.append(word)
    return kept
