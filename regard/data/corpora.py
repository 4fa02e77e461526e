"""Several corpora in one run: what a further one has of held-out data is left out, and what stands in several is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from regard.config import Tables
from regard.data.config import CorporaConfig
from regard.data.held_out import among, in_parts
from regard.data.kept.cache import Keep
from regard.errors import Advice, Setting


class CorpusSets(Protocol):
    """What was read of one corpus: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def unseen(self) -> Any:
        """Hashes of what is validated and tested on."""
        ...

    @property
    def different(self) -> np.ndarray:
        """Hashes of what is learned from, sorted, each once."""
        ...


Config = TypeVar("Config", bound=CorporaConfig)
Sets = TypeVar("Sets", bound=CorpusSets)
Load = Callable[[Config, Keep, Any], Sets]  # of a configuration, how it is kept, and what is to be left out


def further_corpora(
    config: Config, main: Sets, load: Load[Config, Sets], keep: Callable[[int], Keep], what: str
) -> list[Sets]:
    """Load the further corpora, without what the main one validates or tests on; each tells what those before it also have."""
    held: Tables = {name: () for name in ("valid", "test") if name in type(config).model_fields}
    tables = [config.model_copy(update={"train": each.train, **held}) for each in config.further]
    found = [load(table, keep(number), main.unseen) for number, table in enumerate(tables, start=1)]
    names = [", ".join(getattr(table, "train", ())) for table in (config, *tables)]
    notes = shared_notes(names, [each.different for each in (main, *found)], what)
    return [replace(each, notes=(*each.notes, *more)) for each, more in zip(found, notes, strict=True)]


def shared_notes(names: Sequence[str], different: Sequence[np.ndarray], what: str) -> list[list[str]]:
    """For each further corpus a note of what corpora before it also have; `different` are the hashes of each, sorted."""
    counts = [also_in(different[place], different[:place]) for place in range(1, len(names))]
    return [
        [_shared_note(name, count, len(hashes), names[:place], what)] if count else []
        for place, (name, count, hashes) in enumerate(zip(names[1:], counts, different[1:], strict=True), start=1)
    ]


def _shared_note(name: str, count: int, total: int, before: Sequence[str], what: str) -> str:
    told = f"{name}: {count:,} of {total:,} different {what} also stand in {' or '.join(before)}, "
    advice = "and are learned so much more often; take them out of one, or give a corpus less weight, as "
    return Advice(told, advice, Setting("data.weight", "0.5"))


def also_in(hashes: np.ndarray, others: Sequence[np.ndarray]) -> int:
    """How many hashes, sorted and different, are among others that are sorted too; all may be mapped and many."""
    return sum(int(np.any([among(part, each) for each in others], axis=0).sum()) for part in in_parts(hashes))


def apart_note(left_out: int, total: int, name: str, what: str) -> list[str]:
    """A note of what a further corpus has of validation and test."""
    told = f"{name}: left out {left_out:,} of {total:,} {what}, which are validated or tested on"
    return [told] if left_out else []
