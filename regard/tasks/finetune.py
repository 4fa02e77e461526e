"""A run that goes on from a model of its own task: the old data that is mixed in, and what old and new are compared on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from regard.bundle import WEIGHTS
from regard.config import StrictConfig, check
from regard.data.mixed import MixedBatches
from regard.errors import Advice, Setting
from regard.runs import bundle_folder
from regard.tasks.config import RunConfig
from regard.tensors import read_tensors, write_tensors
from regard.training.feed import Source
from regard.training.finetune import START, FineTuning, Side

Data = TypeVar("Data", bound=StrictConfig)
Batch = TypeVar("Batch")
FEW, ENOUGH = 8, 30  # examples of a batch in which the error of a loss is measured, at most; batches, at least
LAID_OVER = (
    "train",
    "valid",
    "test",
    "old",
    "mix",
    "also",
    "weight",
    "temperature",
)  # keys of a data table that other files do not share


def old_data(config: RunConfig, data: Data) -> Data | None:
    """The configuration of the old data, if some is to be mixed in: files are read as the new ones, a table as it says."""
    old = getattr(data, "old", ())
    if config.start is None or not old:
        return None
    alike = {key: value for key, value in data.model_dump(mode="json").items() if key not in LAID_OVER}
    languages = {"languages": alike["languages"]} if "languages" in alike else {}
    table = {**languages, **old} if isinstance(old, dict) else {**alike, "train": old}
    return check(type(data), table, "data.old")


def mixed(config: RunConfig, new: Any, old: Source | None) -> Any:
    """The batches of a run: new ones, with old ones among them if there are any."""
    share = getattr(config.data, "mix", 0.0)
    return new if old is None or not share else MixedBatches(new, old, share, config.train.seed)


def mixing_note(config: RunConfig, old: StrictConfig | None, count: str = "") -> tuple[str, ...]:
    """A note of the old data that is mixed in, or that none is; nothing to say of a run that starts from nothing."""
    if config.start is None:
        return ()
    if old is None:
        hint = Setting("data.old", '["old.tsv"]')
        return (Advice("no old data is mixed in, and what the model knew may be forgotten; ", hint, " names some"),)
    files, share = ", ".join(getattr(old, "train", ())), getattr(config.data, "mix", 0.0)
    told = f"old data: {files}{f' ({count})' if count else ''}"
    if not share:
        return (f"{told}, only to be validated on (data.mix is 0)",)
    return (Advice(f"{told}, {share:.0%} of the batches; ", Setting("data.mix", "0.3"), " mixes in less"),)


def few_at_once(take: Callable[[range], Batch], count: int) -> Iterator[Batch]:
    """Examples 0 to `count` in batches of a few, whose losses tell how much of their mean is chance."""
    few = max(1, min(FEW, count // ENOUGH))
    return (take(range(start, min(start + few, count))) for start in range(0, count, few))


def fine_tuning(config: RunConfig, folder: Path, resume: bool, sides: Sequence[Side]) -> FineTuning | None:
    """The sides on which a run is compared with the model that it started from, if it did.

    The weights of that model are kept in the run's folder, so that the run can end wherever and whenever it is resumed.
    """
    if config.start is None:
        return None
    kept = folder / START
    if not (resume and kept.exists()):
        write_tensors(kept, read_tensors(bundle_folder(config.start) / WEIGHTS))
    return FineTuning(config.start, lambda: read_tensors(kept), tuple(sides))
