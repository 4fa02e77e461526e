"""Runs of several processes, started by torch's elastic agent: many kinds of models, kills, and other processes that go on.

    python -m tests.drivers.together FOLDER [KILLS]

On standard output: what came out unlike, as JSON. Importing torch takes seconds, and what it imports when it is first used as
long again in each process, so the processes are forked from this one, which has it all and computes nothing with it.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # before torch is imported

import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.tensor  # noqa: F401
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from regard.tensors import read_tensors
from regard.training.events import Event, Progress
from regard.training.show import Show
from regard.training.state import has_checkpoint, progress_in
from regard.training.timed import train
from regard.world import LostError, joined
from tests.drivers.many import CASES_OF, learn_all
from tests.toy_run import CONFIG, Contents, ToyBatch, ToyBatches, toy_job

STEPS = 30  # of a run that is killed a few times
HANGS = 3.0  # seconds for which a process is waited for that hangs
SLOWLY = 0.01  # seconds a batch, so that there is time to be killed


class SlowBatches(ToyBatches):
    def get(self, epoch: int, index: int) -> ToyBatch:
        time.sleep(SLOWLY)
        return super().get(epoch, index)


class StopAt(Show):
    """Asks its own process to stop at some step, as a person would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and event.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def work(folder: Path, train_over: dict[str, Any], stop_at: int, timeout: float = 60.0) -> None:
    """One process of a run that goes on from its last checkpoint, if there is one."""
    with joined(timeout) as here:
        (folder / "pids").mkdir(parents=True, exist_ok=True)
        (folder / "pids" / str(here.rank)).write_text(str(os.getpid()))
        config = CONFIG.model_copy(update={"steps": STEPS, "log_every": 1, **train_over})
        resume = here.agree(has_checkpoint(folder / "run" / "checkpoints"))
        show = StopAt(stop_at) if stop_at else Show()
        train(toy_job(folder / "run", config, world=here, batches=SlowBatches()), show, resume=resume)


def launched(size: int, folder: Path, restarts: int = 0, stop_at: int = 0, **train_over: Any) -> Contents:
    """What a run of so many processes leaves."""
    launch(size, restarts, work, folder, train_over, stop_at)
    return Contents.of(folder / "run")


def launch(size: int, restarts: int, function: Callable[..., None], *words: Any) -> None:
    """Call a function in so many processes; in new ones, where one fails."""
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=size, run_id=secrets.token_hex(8), rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", local_addr="localhost", max_restarts=restarts, monitor_interval=0.05,
        start_method="fork",
    )  # fmt: skip
    elastic_launch(config, function)(*words)


def hung(folder: Path) -> tuple[str, float]:
    """What the first of two processes says when the second one hangs, and after how many seconds."""
    fork, said = multiprocessing.get_context("fork"), folder / "said"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [fork.Process(target=_saying, args=(folder, said, {**common, "RANK": str(rank)})) for rank in range(2)]
    for each in ranks:
        each.start()
    while not (folder / "run/log.jsonl").exists():
        time.sleep(0.01)
    began = time.monotonic()
    os.kill(ranks[1].pid or 0, signal.SIGSTOP)
    ranks[0].join(60)
    seconds = time.monotonic() - began
    ranks[1].kill()
    return said.read_text(), seconds


def _saying(folder: Path, said: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        work(folder, {}, 0, timeout=HANGS)
    except LostError as error:
        said.write_text(str(error))


class Killer(threading.Thread):
    """Kills a random process of a run at random moments; every other time while a checkpoint is being written."""

    def __init__(self, folder: Path, size: int, kills: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.size, self.kills, self.done = folder, size, kills, 0
        self.random, self.killed = random.Random(5), set[str]()

    def run(self) -> None:
        while self.done < self.kills:
            pid = self._fresh(self.random.randrange(self.size))
            if self.done % 2:
                self._until(lambda: any((self.folder / "run" / "checkpoints").glob("*.tmp")))
            else:
                time.sleep(self.random.uniform(0.0, 0.5))
            os.kill(int(pid), signal.SIGKILL)
            self.done += 1

    def _fresh(self, rank: int) -> str:
        """The process of that rank since the last kill."""
        file = self.folder / "pids" / str(rank)
        self._until(lambda: file.exists() and (text := file.read_text()) != "" and text not in self.killed)
        time.sleep(0.1)  # the others write theirs
        self.killed |= {each.read_text() for each in (self.folder / "pids").iterdir()}
        return file.read_text()

    def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            time.sleep(0.0005)


def killed(folder: Path, kills: int, **train_over: Any) -> tuple[int, list[str]]:
    """How often a process of a run was killed, and which of its files are unlike those of a run that nobody disturbed."""
    train_over["steps"] = max(STEPS, 20 * (kills - 2))  # so that it does not end before
    killer = Killer(folder / "killed", 2, kills)
    killer.start()
    found = launched(2, folder / "killed", restarts=kills, **train_over)
    return killer.done, launched(2, folder / "whole", **train_over).unlike(found)


def main(folder: Path, kills: int) -> None:
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    for size, cases in CASES_OF.items():
        launch(size, 0, learn_all, folder, cases)
    whole = launched(2, folder / "whole")
    unlike = {name: killed(folder / name, kills, **over) for name, over in (("rows", {}), ("cut", {"shard": True}))}
    said, seconds = hung(folder / "hung")
    resumed = whole.unlike(launched(2, folder / "hung"))
    stopped = []
    for size, step, shard in ((4, 13, False), (2, 19, False), (4, 25, True)):
        launched(size, folder / "moved", stop_at=step, shard=shard)
        stopped.append(progress_in(folder / "moved/run/checkpoints").step)
    launched(1, folder / "moved")
    ends = [read_tensors(folder / name / "run/last/model.safetensors") for name in ("whole", "moved")]
    moved = max(float((ends[0][name] - ends[1][name]).abs().max()) for name in ends[0])
    told = {"unlike": unlike, "stopped": stopped, "moved": moved}
    print(json.dumps({**told, "said": said, "seconds": seconds, "resumed": resumed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
