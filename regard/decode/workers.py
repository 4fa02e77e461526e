"""Groups of sources searched side by side: as many workers as torch has threads, each with one of them.

The operations of a step are small, and threads that share one operation gain little by it. Threads that search a group each
compute side by side only while they are inside an operation; between operations Python runs one of them at a time, so that
two were not shown to be faster than one so far (docs/results.md). Which sources make a group does not depend on the number of
workers, so neither do the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from typing import TypeVar

import torch

from regard.attention import channel

R = TypeVar("R")


def worker_count(device: torch.device) -> int:
    """How many groups to search at once: one where someone looks on, or where a device of its own computes."""
    return 1 if channel.blocks or device.type != "cpu" else torch.get_num_threads()


def side_by_side(
    groups: Sequence[list[int]], search: Callable[[list[int]], R], workers: int
) -> Iterator[tuple[list[int], R]]:
    """Each group with what `search` finds for it, as they are done. The first error ends all."""
    workers = min(workers, len(groups))
    if workers < 2:
        yield from ((group, search(group)) for group in groups)
        return
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        running = {pool.submit(copy_context().run, search, group): group for group in groups}
        for each in as_completed(running):
            yield running[each], each.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # a worker's number is also that of threads which begin later
