"""A long piece of work in shards: each is whole on disk or absent, skipped when the work goes on, and joined in order.

    out.txt.parts/
      job.json     the model, the options and the input, by digest; another job is refused in words
      00007.json   a shard that is finished
      00007.lock   held by the process that works on it, and gone with that process

How the work is cut is said by the caller and does not depend on the number of processes: another number of them can go on
with what some have begun. Whoever is free takes the next shard that nobody has, so that a slow process holds up no other.
The first process waits for all, takes over what a dead one left, and joins. All that processes share is the folder: they
are of one machine, or of several that see the same disk. No torch here.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files import JSON, alone_in, read_json, write_json
from regard.world import ALONE, World, joined

JOB, SHARD = "job.json", "*[0-9].json"
PAUSE = 0.1  # seconds between two looks at what others do
LEAST = 256  # items of a shard, at the least: few enough to lose, enough to be worth a file


class Elsewhere(Exception):
    """Raised in a process that has done its shards of work whose end another process sees."""


def parts_of(out: Path) -> Path:
    """The folder of a file's shards, beside it."""
    return out.with_name(f"{out.name}.parts")


def cut(sizes: Sequence[int], least: int | None = None) -> list[Sequence[int]]:
    """Neighbours of these sizes in shards, each of at least so many items; the last may have fewer."""
    least = LEAST if least is None else least
    shards: list[list[int]] = [[]]
    for size in sizes:
        if sum(shards[-1]) >= least:
            shards.append([])
        shards[-1].append(size)
    return [shard for shard in shards if shard]


@dataclass(frozen=True)
class Shards:
    """The folder of one job, as one of its processes sees it."""

    folder: Path
    world: World = ALONE
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what the job chose where nobody asked, such as a seed

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05}.json"

    def finished(self) -> set[int]:
        """The numbers of the shards that are there."""
        return {int(path.stem) for path in self.folder.glob(SHARD)}

    def read(self, number: int) -> Any:
        return read_json(self.path(number))

    def work(self, count: int, make: Callable[[int], JSON], told: Callable[[int], None] = lambda done: None) -> bool:
        """Make what is missing. True in the first process, when all is there; others leave when nothing is left to take."""
        while missing := set(range(count)) - self.finished():
            taken = [
                number for number in sorted(missing) if self._take(number, make, lambda: told(len(self.finished())))
            ]
            if not (self.folder / JOB).exists():  # the first has joined all, and a claim may have made it anew
                self.remove()
                break
            if not self.world.is_first:
                break
            if not taken:
                told(count - len(missing))
                time.sleep(PAUSE)
        return self.world.is_first

    def _take(self, number: int, make: Callable[[int], JSON], told: Callable[[], None]) -> bool:
        """Make a shard, unless it is there by now or another process is at it."""
        with self._claimed(number) as mine:
            if not mine or self.path(number).exists() or not (self.folder / JOB).exists():
                return False
            write_json(self.path(number), make(number))
        told()
        return True

    @contextmanager
    def _claimed(self, number: int) -> Iterator[bool]:
        """Whether a shard is this process's inside this block. A disk without locks lets all have it: the same twice."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder / f"{number:05}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        except (OSError, NotImplementedError):
            pass
        try:
            yield True
        finally:
            lock.release()

    def remove(self) -> None:
        """Remove all shards, the job first: who still looks for one sees that there is nothing more to do."""
        with suppress(OSError):
            (self.folder / JOB).unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def opened(
    out: Path, job: Mapping[str, JSON], chosen: Mapping[str, JSON] | None = None, told: Callable[[str], None] = print
) -> Iterator[Shards]:
    """The shards of a file that is to be written, old ones of the same job included, once every process is here.

    `chosen` is kept from the first time on: it is no part of what makes two jobs the same. What went before, and what
    stays when the work ends early, is `told` to the person.
    """
    folder = parts_of(out)
    with ExitStack() as stack:
        refused: RegardError | None = None
        with joined() as world:
            if world.is_first:
                try:
                    stack.enter_context(_begun(folder, job, chosen or {}))
                except RegardError as error:
                    refused = error
            wrong = world.agree([refused.wrong, refused.hint] if refused else None)
        if wrong:
            raise RegardError(*wrong)
        shards = Shards(folder, world, read_json(folder / JOB)["chosen"])
        if world.is_first and (done := len(shards.finished())):
            told(f"{in_words(done)} finished in {folder}; going on")
        try:
            yield shards
        except BaseException:
            if world.is_first and (done := len(shards.finished())):
                told(f"{in_words(done)} finished in {folder}; the same command goes on")
            raise


def in_words(count: int) -> str:
    return "1 shard is" if count == 1 else f"{count:,} shards are"


@contextmanager
def _begun(folder: Path, job: Mapping[str, JSON], chosen: Mapping[str, JSON]) -> Iterator[None]:
    """A folder with this job, and nobody else's: written, or found and held against this one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"cannot write {folder}: {error.strerror or error}") from error
    with alone_in(folder, "working"):
        if not (folder / JOB).exists():
            write_json(folder / JOB, {"job": job, "chosen": chosen})
        before = read_json(folder / JOB)["job"]
        if other := sorted(name for name in {*job, *before} if before.get(name) != job.get(name)):
            raise RegardError(
                f"{folder} holds shards of another {' and another '.join(other)}",
                "remove that folder to begin anew, or give what it was begun with",
            )
        yield
