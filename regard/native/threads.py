"""Rows of one call on several threads: kernels compute on one and let others run meanwhile, and rows do not see each other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch

from regard.threads import only_waits

LEAST = 16  # rows for which another thread is worth waking

Share = tuple[int, int]  # the first row, and the one behind the last


def shares_of(rows: int) -> list[Share]:
    """The rows in about equal shares, one for each of torch's threads, or fewer where they are few."""
    threads = max(1, min(torch.get_num_threads(), rows // LEAST))
    return list(pairwise(rows * number // threads for number in range(threads + 1)))


def on_threads(calls: Sequence[Callable[[], object]]) -> None:
    """Make several calls at the same time, the first of them in this thread."""
    own, *others = calls
    waiting = [_pool().submit(call) for call in others]
    own()
    for each in waiting:
        each.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        max_workers=os.cpu_count(),
        thread_name_prefix="regard-kernels",
        initializer=lambda: only_waits(
            threading.current_thread()
        ),  # but for calls, which end before who made them goes on
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay with the parent
