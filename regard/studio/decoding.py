"""The one place between routes and a search: sources of many clients of a model go on together in one running batch.

Each model that is asked to write has an engine (`regard.decode.engine`). A request waits in a thread of its own, which does
nothing else; when its client leaves or its time is over, its rows are free before the next step. Nobody's answer depends on
who else asks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from regard.config import Tables
from regard.decode.engine import Statistics
from regard.studio.catalog import Catalog, Loaded, as_task
from regard.studio.visit import Visit
from regard.studio.work import Asked, Work
from regard.tasks.generate.pieces import TextPiece
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.results import Generated
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.results import Translation

P = TypeVar("P", Translator, Generator)
T = TypeVar("T")


class Decoding:
    """Translations and texts for all who ask."""

    def __init__(self, work: Work, catalog: Callable[[], Catalog]) -> None:
        self.work, self.catalog = work, catalog
        self.lock = threading.Lock()
        self.served: dict[str, tuple[Loaded, Translator | Generator]] = {}  # by the name of the model
        self.steps_before: dict[str, Counter[int]] = {}  # steps by size, of engines that are closed

    async def translate(self, visit: Visit, name: str, texts: Sequence[str], options: Tables) -> list[Translation]:
        def compute(asked: Asked) -> list[Translation]:
            translator = self._served(visit, name, Translator, "translate")
            visit.read += sum(map(len, translator.tokenizers.source.encode_all(list(texts))))
            found = translator.translate(list(texts), cancel=asked.cancelled, **options)
            visit.written += sum(len(each.ids) for each in found)
            return found

        return await self.work.run(visit, compute, self.work.waiting)

    async def generate(
        self, visit: Visit, name: str, prompts: Sequence[str], stop: Sequence[str], options: Tables
    ) -> list[Generated]:
        def compute(asked: Asked) -> list[Generated]:
            generator = self.generator(visit, name)
            visit.read += sum(map(len, generator.tokenizer.encode_all(list(prompts))))
            found = generator.generate(list(prompts), stop=stop, cancel=asked.cancelled, **options)
            visit.written += sum(len(one.ids) for each in found for one in each.each())
            return found

        return await self.work.run(visit, compute, self.work.waiting)

    def generator(self, visit: Visit, name: str) -> Generator:
        """A language model whose texts are written together with those of others; in a thread."""
        return self._served(visit, name, Generator, "generate")

    def stream(
        self, generator: Generator, prompt: str, stop: Sequence[str], options: Tables, asked: Asked
    ) -> Iterator[TextPiece | Generated]:
        """One text as it is written, in a thread that waits for it."""
        return generator.stream(prompt, stop=stop, cancel=asked.cancelled, **options)

    def forget(self, loaded: Loaded) -> None:
        """A model was dropped: who waits for it is served, nobody new."""
        with self.lock:
            known = self.served.get(loaded.entry.name)
            if known is None or known[0] is not loaded:
                return
            _, predictor = self.served.pop(loaded.entry.name)
            steps = self.steps_before.setdefault(loaded.entry.name, Counter())
            steps.update(predictor.statistics().batch_sizes)
        threading.Thread(target=predictor.close, name="regard-close", daemon=True).start()

    def close(self) -> None:
        """Drop whatever is still under way."""
        with self.lock:
            left = [predictor for _, predictor in self.served.values()]
            self.served.clear()
        for predictor in left:
            predictor.close(drop=True)

    def statistics(self) -> list[Statistics]:
        """The counts of each engine, done and running."""
        with self.lock:
            return [predictor.statistics() for _, predictor in self.served.values()]

    def steps(self) -> dict[str, Counter[int]]:
        """How many steps had so many sources, model by model."""
        with self.lock:
            found = {name: steps.copy() for name, steps in self.steps_before.items()}
            for name, (_, predictor) in self.served.items():
                found.setdefault(name, Counter()).update(predictor.statistics().batch_sizes)
        return found

    def _served(self, visit: Visit, name: str, kind: type[P], does: str) -> P:
        """The model as this request sees it: its searches are its engine's, and end with the request's time."""
        loaded = self.catalog().load(name)
        visit.model = loaded.entry.name
        plain = as_task(loaded, kind, does)
        with self.lock:
            known = self.served.get(name)
            if known is None or known[0] is not loaded:
                known = self.served[name] = (loaded, plain.served())
        served = known[1]
        assert isinstance(served, kind)
        return served.for_caller(None, seconds=visit.left())
