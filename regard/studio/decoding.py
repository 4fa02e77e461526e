"""The one place between routes and a search: texts of many clients for one model are decoded together.

Who asks with the same options while a search is running is searched for in the next one, whoever it is. A sample depends on
its seed and its place in its own request alone, so that each gets what it would get by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

from regard.config import Tables
from regard.errors import RegardError
from regard.predictor import Cancelled
from regard.studio.catalog import Catalog, Loaded, as_task
from regard.studio.metrics import Metrics
from regard.studio.visit import Visit
from regard.studio.work import Asked, Work
from regard.tasks.generate.pieces import TextPiece
from regard.tasks.generate.predictor import Generated, Generator
from regard.tasks.translate.predictor import Translation, Translator

MOST = 128  # texts that are searched for together


class Decoding:
    """Translations and texts for all who ask."""

    def __init__(self, work: Work, metrics: Metrics) -> None:
        self.work, self.metrics = work, metrics
        self.lock = threading.Lock()
        self.gathered: dict[str, _Gathering] = {}  # by the name of the model

    async def translate(
        self, visit: Visit, catalog: Catalog, name: str, texts: Sequence[str], options: Tables
    ) -> list[Translation]:
        loaded = await self._loaded(visit, catalog, name)
        translator = as_task(loaded, Translator, "translate")
        translator.options(options)  # what is wrong is told before anyone waits

        def search(asked: list[str], places: list[int], cancel: Callable[[], bool]) -> list[Any]:
            return translator.translate(asked, places=places, cancel=cancel, **options)

        found = await self._ask(visit, loaded, texts, ("translate", repr(sorted(options.items()))), search)
        tokenizer = translator.tokenizers.source
        visit.read += sum(map(len, tokenizer.encode_all(list(texts))))
        visit.written += sum(len(each.ids) for each in found)
        return cast("list[Translation]", found)

    async def generate(
        self, visit: Visit, catalog: Catalog, name: str, prompts: Sequence[str], stop: Sequence[str], options: Tables
    ) -> list[Generated]:
        loaded = await self._loaded(visit, catalog, name)
        generator = as_task(loaded, Generator, "generate")
        generator.check(stop, **options)

        def search(asked: list[str], places: list[int], cancel: Callable[[], bool]) -> list[Any]:
            return generator.generate(asked, places=places, stop=stop, cancel=cancel, **options)

        key = ("generate", repr((sorted(options.items()), tuple(stop))))
        found = cast("list[Generated]", await self._ask(visit, loaded, prompts, key, search))
        visit.read += sum(map(len, generator.tokenizer.encode_all(list(prompts))))
        visit.written += sum(len(one.tokens) for each in found for one in each.each())
        return found

    def stream(
        self, generator: Generator, prompt: str, stop: Sequence[str], options: Tables, asked: Asked
    ) -> Iterator[TextPiece | Generated]:
        """One text as it is written, in the thread that asks."""
        return generator.stream(prompt, stop=stop, cancel=asked.cancelled, **options)

    def forget(self, loaded: Loaded) -> None:
        """A model was dropped: whoever still waits for it is served, and nobody new."""
        with self.lock:
            self.gathered.pop(loaded.entry.name, None)

    async def _loaded(self, visit: Visit, catalog: Catalog, name: str) -> Loaded:
        loaded = await self.work.run(visit, lambda _: catalog.load(name))
        visit.model = loaded.entry.name
        return loaded

    async def _ask(
        self, visit: Visit, loaded: Loaded, texts: Sequence[str], key: tuple[str, str], search: _Search
    ) -> list[Any]:
        with self.lock:
            gathering = self.gathered.setdefault(
                loaded.entry.name, _Gathering(self.work, self.metrics, loaded.entry.name)
            )
        return await self.work.wait(visit, lambda asked: gathering.add(_Job(list(texts), key, search, asked)))


_Search = Callable[[list[str], list[int], Callable[[], bool]], list[Any]]


@dataclass(eq=False)
class _Job:
    """The texts of one request."""

    texts: list[str]
    key: tuple[str, str]  # jobs with the same can be searched for together
    search: _Search
    asked: Asked
    future: Future[list[Any]] = field(default_factory=Future)

    def done(self, found: list[Any]) -> None:
        self.future.set_result(found)

    def failed(self, error: BaseException) -> None:
        self.future.set_exception(error)


class _Gathering:
    """The jobs that wait for one model. While there are any, one thread searches for those that can go together."""

    def __init__(self, work: Work, metrics: Metrics, name: str) -> None:
        self.work, self.metrics, self.name = work, metrics, name
        self.lock, self.waiting, self.running = threading.Lock(), list[_Job](), False

    def add(self, job: _Job) -> Future[list[Any]]:
        with self.lock:
            self.waiting.append(job)
            begin, self.running = not self.running, True
        if begin:
            self.work.pool.submit(self._drain)
        return job.future

    def _drain(self) -> None:
        while jobs := self._next():
            self._search(jobs)

    def _next(self) -> list[_Job]:
        """The first job and those behind it that can go with it; nobody else searches for them then."""
        with self.lock:
            for job in [each for each in self.waiting if each.asked.cancelled()]:
                self.waiting.remove(job)
                job.failed(Cancelled("cancelled"))
            taken: list[_Job] = []
            for job in self.waiting:
                room = MOST - sum(len(each.texts) for each in taken)
                if not taken or (job.key == taken[0].key and len(job.texts) <= room):
                    taken.append(job)
            self.waiting = [job for job in self.waiting if job not in taken]
            self.running = bool(taken)
            return taken

    def _search(self, jobs: list[_Job]) -> None:
        """Search for several jobs at once; where that is refused, for each by itself, so that only one is at fault."""
        texts = [text for job in jobs for text in job.texts]
        places = [place for job in jobs for place in range(len(job.texts))]
        self.metrics.batches.observe(len(texts), self.name)
        try:
            found = jobs[0].search(texts, places, lambda: all(job.asked.cancelled() for job in jobs))
        except (RegardError, Cancelled) as error:
            if len(jobs) == 1:
                jobs[0].failed(error)
                return
            for job in jobs:
                self._search([job])
            return
        except BaseException as error:
            for job in jobs:
                job.failed(error)
            return
        start = 0
        for job in jobs:
            job.done(found[start : start + len(job.texts)])
            start += len(job.texts)
