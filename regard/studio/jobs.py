"""Long work that a client asks for and comes back for: one job at a time, with how far it is, and a way to stop it."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from regard.errors import Cancelled
from regard.files import JSON
from regard.predictor import Cancel, Progress
from regard.studio.refusals import Refusal, as_refusal, full

KEPT = 32  # jobs that have ended, whose results can still be asked for
Compute = Callable[[Progress, Cancel], JSON]
State = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(eq=False)
class Job:
    """One job."""

    id: str
    state: State = "waiting"
    done: int = 0
    total: int = 0
    result: JSON = None
    error: Refusal | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {"job": self.id, "state": self.state, "done": self.done, "total": self.total}
        if self.state == "done":
            found["result"] = self.result
        if self.error is not None:
            found["error"] = {"message": self.error.message, "hint": self.error.hint}
        return found

    def run(self, compute: Compute) -> None:
        if self.stop.is_set():
            self.state = "cancelled"
            return
        self.state = "running"
        try:
            self.result = compute(self._progress, self.stop.is_set)
            self.state = "done"
        except Cancelled:
            self.state = "cancelled"
        except Exception as error:
            self.error, self.state = as_refusal(error), "failed"

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total


class Jobs:
    """All jobs by their number, which nobody can guess."""

    def __init__(self, most: int) -> None:
        self.most, self.lock = most, threading.Lock()
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="regard-jobs")

    def start(self, compute: Compute) -> Job:
        with self.lock:
            if sum(not job.is_over for job in self.jobs.values()) >= self.most:
                raise full()
            job = Job(secrets.token_urlsafe(9))
            self.jobs[job.id] = job
            for old in [each for each in self.jobs.values() if each.is_over][: max(0, len(self.jobs) - KEPT)]:
                del self.jobs[old.id]
        self.pool.submit(job.run, compute)
        return job

    def find(self, number: str) -> Job:
        with self.lock:
            job = self.jobs.get(number)
        if job is None:
            raise Refusal(404, "there is no such job", "those that ended long ago are forgotten")
        return job

    def count(self) -> int:
        with self.lock:
            return sum(not job.is_over for job in self.jobs.values())

    def close(self) -> None:
        with self.lock:
            for job in self.jobs.values():
                job.stop.set()
        self.pool.shutdown(wait=False, cancel_futures=True)
