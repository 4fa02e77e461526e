"""Items worked on in order by all processes of a world: the first one prepares a run, and the others, who wait for it, help.

Who prepares says what to do in an `Order`, which is JSON: from it every process makes the same items and the same work. Of n
processes number k does items k, k + n, ... and sends their arrays to the first, which takes them in the order of the items:
what is written does not depend on how many worked, nor where. A process that does not see what the order names says so, and
one whose work fails leaves its items to the first. If one is gone, all end and are started again, and the first goes on from
what it had written down.

Each message is answered before the next is sent, so that a process is never more than one item ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Any

from regard.data.kept.copies import FEW, Arrays, Item, Items, Work, in_order, read_arrays, worker_count, write_arrays
from regard.plugins import NamedParts
from regard.world import ALONE, World

Again = Callable[..., "tuple[Items[Any], Work[Any]] | None"]  # the words of an order -> items and work

WORKS: NamedParts[Again] = NamedParts(
    {
        "read pairs": "regard.data.pairs:reading_again",
        "encode pairs": "regard.data.kept.encoded_pairs:encoding_again",
        "encode labelled": "regard.data.kept.encoded_labelled:encoding_again",
        "encode documents": "regard.data.kept.encoded_documents:encoding_again",
    }
)


@dataclass(frozen=True)
class Order:
    """What to do, in words that JSON can write."""

    work: str  # of `WORKS`
    words: tuple[Any, ...]


_waiting: ContextVar[World] = ContextVar("the world whose other processes wait, and help", default=ALONE)


@contextmanager
def helped_by(world: World) -> Iterator[None]:
    """Inside this block the other processes of the world are in `help_until_told`, and do a share of every large work."""
    token = _waiting.set(world)
    try:
        yield
    finally:
        _waiting.reset(token)


def shared_out(
    items: Items[Item], work: Work[Item], count: int, order: Callable[[], Order] | None
) -> Iterator[tuple[Item, Arrays]]:
    """Each of about `count` items with what `work` makes of it, in order: by all processes that can, else by copies of this.

    `order` is None of what no other process sees.
    """
    here = _waiting.get()
    if here.is_alone or order is None or count < FEW * here.size:
        return in_order(items, work, worker_count(count))
    return _with_others(here, items, work, order())


def _with_others(here: World, items: Items[Item], work: Work[Item], order: Order) -> Iterator[tuple[Item, Arrays]]:
    here.tell({"work": order.work, "words": order.words})
    ranks = _workers(here, True)
    left = set(ranks) - {0}
    try:
        for number, item in enumerate(items()):
            rank = ranks[number % len(ranks)]
            found = _received(here, rank, left, True) if rank in left else None
            yield item, work(item) if found is None else found
    finally:
        for rank in sorted(left):
            _received(here, rank, left, False)  # its last message; that it goes no further is the answer
            left.discard(rank)


def _received(here: World, rank: int, left: set[int], goes_on: bool) -> Arrays | None:
    """What a process sends for its next item; None if its work failed, after which it sends nothing more."""
    data = here.receive(rank)
    here.send(rank, b"1" if goes_on and data else b"")
    if not data:
        left.discard(rank)
        return None
    return read_arrays(BytesIO(data[1:]))


def _workers(here: World, can: bool) -> list[int]:
    """The ranks that do a share: those that can."""
    return [rank for rank, able in enumerate(here.gather_long(can)) if able]


def help_until_told(here: World) -> Any:
    """Do what the first process orders, until it tells something else, which is returned."""
    while "work" in (told := here.hear()):
        made = WORKS[told["work"]](*told["words"])
        ranks = _workers(here, made is not None)
        if made is not None:
            _help(here, *made, ranks)
    return told


def _help(here: World, items: Items[Any], work: Work[Any], ranks: Sequence[int]) -> None:
    for item in islice(items(), ranks.index(here.rank), None, len(ranks)):
        file = BytesIO(b"1")
        file.seek(1)
        try:
            write_arrays(file, work(item))
        except Exception:  # whoever asked does it again, and says what is wrong
            here.send(0, b"")
            here.receive(0)
            return
        here.send(0, file.getvalue())
        if not here.receive(0):
            return
    here.send(0, b"")  # nothing more comes
    here.receive(0)
