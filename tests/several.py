"""Processes that work together, as copies of the one that tests: that spares each the seconds of its imports."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.cli import main
from regard.shards import Shards

NOWHERE = Path(os.devnull)


def free_port() -> str:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return str(each.getsockname()[1])


def processes(
    count: int,
    *words: object,
    deadly: int | None = None,
    said: Path = NOWHERE,
    told: Path = NOWHERE,
    world: int = 0,
) -> list[int]:
    """The exit codes of processes that share a work; who comes to the shard of the number `deadly` is killed at it.

    What goes to stdout is `said`, and to stderr `told`. Of a larger `world` the others are not started. When one has died
    the others are ended, as torchrun does.
    """
    port, started = free_port(), []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world or count), "LOCAL_RANK": str(rank)}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                sys.stdout, sys.stderr = said.open("a"), told.open("a")
                if deadly is not None:
                    die_at(deadly)
                code = main.run([str(word) for word in words])
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        started.append(child)
    codes = [-1] * count
    for _ in range(count):
        child, status = os.wait()
        codes[started.index(child)] = os.waitstatus_to_exitcode(status)
        if os.WIFSIGNALED(status):
            for each, code in zip(started, codes, strict=True):
                if code == -1:
                    os.kill(each, signal.SIGKILL)
    return codes


def die_at(deadly: int) -> None:
    """Have this process killed in the middle of its work on a shard."""
    take = Shards._take

    def dying(self: Shards, number: int, make: Callable[[int], Any], told: Callable[[], None]) -> bool:
        return take(self, number, make if number != deadly else die, told)

    def die(number: int) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    Shards._take = dying  # type: ignore[method-assign]
