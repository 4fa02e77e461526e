"""What all routes share: the models, the threads that compute, what is kept for later questions, and the limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from starlette.requests import Request

from regard.config import Tables
from regard.predictor import Predictor
from regard.studio.catalog import Catalog, Loaded, as_task
from regard.studio.config import ServeConfig
from regard.studio.decoding import Decoding
from regard.studio.importing import Imports
from regard.studio.jobs import Jobs
from regard.studio.looks import Looks
from regard.studio.metrics import Metrics
from regard.studio.refusals import Refusal
from regard.studio.visit import Visit, visit_of
from regard.studio.work import Asked, Work
from regard.tasks.generate.results import Generated
from regard.tasks.translate.results import Translation

THREADS = max(4, os.cpu_count() or 1)  # some of them only wait for a lock or the disk
P = TypeVar("P", bound=Predictor)
T = TypeVar("T")


class Service:
    """The state of one running service."""

    def __init__(self, config: ServeConfig) -> None:
        self.config, self.limits, self.metrics = config, config.limits, Metrics()
        self.work = Work(config.limits, THREADS)
        self.decoding = Decoding(self.work, lambda: self.catalog)
        self.catalog = Catalog(config, self.metrics, self.decoding.forget)
        self.looks, self.jobs = Looks(), Jobs(config.limits.jobs)
        self.imports = Imports(config, self.catalog)
        self.stopping = False
        gauge = self.metrics.gauge
        gauge("regard_queue_depth", "Requests that wait or are computed.", lambda: self.work.pending)
        gauge("regard_queue_limit", "Requests that may wait or be computed.", lambda: self.limits.queue)
        gauge("regard_models_loaded", "Models that are loaded.", lambda: len(self.catalog.loaded_names()))
        gauge("regard_model_bytes", "Bytes of the weights that are loaded.", self.catalog.loaded_bytes)
        self.metrics.batches.ask = self.decoding.steps
        gauge("regard_engine_waiting", "Sources that wait to be read.", lambda: self._sum("waiting"))
        gauge("regard_engine_rows", "Hypotheses that are read side by side.", lambda: self._sum("rows"))
        gauge("regard_jobs", "Long jobs that wait or run.", lambda: self.jobs.count())
        gauge("process_resident_memory_bytes", "Resident memory of the process.", resident_bytes)

    def close(self) -> None:
        self.stopping = True
        self.jobs.close()
        self.decoding.close()
        self.work.close()

    def _sum(self, name: str) -> int:
        return sum(getattr(each, name) for each in self.decoding.statistics())

    # --- Computing

    async def run(self, request: Request, compute: Callable[[Asked], T]) -> T:
        """Compute something that needs no model."""
        return await self.work.run(visit_of(request), compute)

    async def ask(self, request: Request, name: str, kind: type[P], does: str, compute: Callable[[P, Asked], T]) -> T:
        """Compute something with a model of one class, in a thread."""
        visit = visit_of(request)

        def asked_of_model(asked: Asked) -> T:
            loaded = self.load(visit, name)
            return compute(as_task(loaded, kind, does), asked)

        return await self.work.run(visit, asked_of_model)

    def load(self, visit: Visit, name: str) -> Loaded:
        """Load a model, in a thread, and write its name into the log."""
        loaded = self.catalog.load(name)
        visit.model = loaded.entry.name
        return loaded

    async def translate(self, request: Request, name: str, texts: Sequence[str], options: Tables) -> list[Translation]:
        self.check_texts(texts)
        self.check_options(options)
        return await self.decoding.translate(visit_of(request), name, texts, options)

    async def generate(
        self, request: Request, name: str, prompts: Sequence[str], stop: Sequence[str], options: Tables
    ) -> list[Generated]:
        self.check_texts(prompts)
        self.check_options(options)
        return await self.decoding.generate(visit_of(request), name, prompts, stop, options)

    # --- Limits

    def check_texts(self, texts: Sequence[str | None]) -> None:
        """Refuse too many texts, and a text that is too long."""
        if len(texts) > self.limits.texts:
            raise Refusal(413, f"{len(texts):,} texts are more than {self.limits.texts:,}", "send fewer at once")
        longest = max((len(text) for text in texts if text is not None), default=0)
        if longest > self.limits.characters:
            most = self.limits.characters
            raise Refusal(413, f"a text of {longest:,} characters is longer than {most:,}", "split it")

    def check_options(self, options: Tables) -> None:
        """Refuse searches that are too wide or too long."""
        for name, most in (
            ("beam", self.limits.beam),
            ("n_best", self.limits.beam),
            ("max_length", self.limits.tokens),
        ):
            value = options.get(name)
            if isinstance(value, int) and value > most:
                raise Refusal(422, f"{name} {value:,} is more than {most:,}", param=name)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def resident_bytes() -> float:
    """Resident memory now, where the system tells it; elsewhere the most that there was, or 0."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
