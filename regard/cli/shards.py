"""The answers of a verb in shards: a long file that was begun goes on where it was, by one process or by many.

    torchrun --nproc-per-node=8 -m regard translate big.txt -o out.txt

A shard is some neighbouring chunks of items that the verb asks together anyway, so that what is joined is, to the byte, what
one process writes that knows no shards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from regard import __version__
from regard.cli.inputs import (
    Answered,
    InputReader,
    Item,
    Unanswered,
    ask_together,
    check_answered,
    named,
    output_to,
    sizes_of,
)
from regard.cli.output import Advance, progress, say
from regard.errors import UsageError
from regard.files import JSON, is_stream, sha256
from regard.runs import bundle_folder
from regard.shards import Shards, cut, opened
from regard.world import world_of

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Batch:
    """Work on a file that can be read again: where it is written, and what makes it this work and no other."""

    out: Path
    job: Mapping[str, JSON]
    asked: InputReader
    most: int  # items that are asked together
    chosen: Mapping[str, JSON] = field(default_factory=dict)
    counts: tuple[int, ...] = ()  # chunks of each shard

    @contextmanager
    def opened(self) -> Iterator[Shards]:
        with opened(self.out, self.job, self.chosen, say) as shards:
            yield shards

    def items(self) -> Callable[[int], list[list[Item]]]:
        """The chunks of a shard by its number: the input is read on, or again from its beginning."""
        place, chunks = 0, self.asked.chunks(self.most)

        def of(number: int) -> list[list[Item]]:
            nonlocal place, chunks
            if number < place:
                place, chunks = 0, self.asked.chunks(self.most)
            for skipped in range(place, number):
                for _ in range(self.counts[skipped]):
                    next(chunks)
            place = number + 1
            return [next(chunks) for _ in range(self.counts[number])]

        return of


def is_alone() -> bool:
    """Whether the environment names no other process that works on the same."""
    return world_of(os.environ).is_alone


def check_alone(what: str, help_: str) -> None:
    """Refuse work that several processes cannot share, in words that say what they can."""
    if not is_alone():
        raise UsageError(f"several processes cannot share {what}; {help_}")


def batch_of(
    out: Path | None,
    asked: InputReader,
    most: int,
    *,
    verb: str,
    run: str | Path,
    options: Mapping[str, Any],
    chosen: Mapping[str, JSON] | None = None,
) -> Batch | None:
    """The work of writing answers into a file, where it is to be shared or long enough to go on; else None."""
    counts = tuple(len(shard) for shard in cut([*sizes_of(asked.total, most)]))
    if out is None or asked.digest is None or is_stream(out):
        check_alone("what is printed, or comes through a pipe", f"name files: regard {verb} FILE -o OUT")
        return None
    if len(counts) < 2 and is_alone():
        return None
    return Batch(
        out, job_of(verb, run, asked.digest(), {**options, "together": most}), asked, most, chosen or {}, counts
    )


def job_of(verb: str, run: str | Path, digest: str, options: Mapping[str, Any]) -> dict[str, JSON]:
    """Name the work so that two of one name give the same bytes."""
    settings = {name: value for name, value in options.items() if value is not None}
    model = sha256(bundle_folder(run) / "config.json")  # which has the digests of all other files
    return {"verb": verb, "version": __version__, "model": model, "input": digest, "set of options": settings}


@contextmanager
def rows_in_shards(
    batch: Batch,
    shards: Shards,
    ask: Callable[..., Iterable[Answer]],
    keep: Callable[[Answered[Answer]], JSON],
    what: str,
) -> Iterator[Iterator[Any] | None]:
    """What is kept of each answer, in order, in the process that joins; None in all others. `ask` also gets what was chosen.

    What is wrong with an item is said where all is joined. When the block has written all, the shards go, and an error
    counts the items that had no answer; of several processes a line does.
    """
    items, count = batch.items(), {"done": 0, "bad": 0}

    def make(number: int) -> JSON:
        answered = [each for chunk in items(number) for each in ask_together(chunk, partial(ask, **shards.chosen))]
        bad = [named(each.item.where, str(each.error)) for each in answered if each.error is not None]
        return {"rows": [keep(each) for each in answered], "bad": bad}

    def rows() -> Iterator[Any]:
        for number in range(len(batch.counts)):
            shard = shards.read(number)
            for problem in shard["bad"]:
                say(problem)
            count["done"] += len(shard["rows"])
            count["bad"] += len(shard["bad"])
            yield from shard["rows"]

    with told_by_first(what) as advance:
        mine = shards.work(len(batch.counts), make, lambda done: advance(done, len(batch.counts)))
    yield rows() if mine else None
    if mine:
        shards.remove()
    try:
        check_answered(count["bad"], count["done"])
    except Unanswered as error:
        if shards.world.is_alone:
            raise
        say(str(error))  # who starts several processes starts them again where one fails, and this would fail again


@contextmanager
def told_by_first(what: str) -> Iterator[Advance]:
    """A progress line in the first process."""
    if not world_of(os.environ).is_first:
        yield lambda done, total: None
        return
    with progress(f"{what}, in shards") as advance:
        yield advance


def write_in_shards(
    batch: Batch,
    ask: Callable[..., Iterable[Answer]],
    lines: Callable[[Answered[Answer]], list[str]],
    what: str,
) -> None:
    """Write the lines of each answer into the file of this work."""
    with batch.opened() as shards, rows_in_shards(batch, shards, ask, lines, what) as rows:
        if rows is not None:
            with output_to(batch.out):
                for row in rows:
                    for line in row:
                        print(line)
