"""Threads that only wait: this process can be copied beside them.

A copy of a process (`fork`) has one thread. A lock that another thread held stays locked in it for ever, so that whoever
copies must know that no other thread does more than wait, read or draw.
"""

from __future__ import annotations

import threading
from weakref import WeakSet

_waiting: WeakSet[threading.Thread] = WeakSet()


def only_waits(*threads: threading.Thread) -> None:
    """Say of threads that they compute nothing, and that what they do is not needed in a copy of this process."""
    _waiting.update(threads)


def is_alone() -> bool:
    """Whether this is the only thread of Python that may be computing."""
    return all(thread in _waiting or thread is threading.current_thread() for thread in threading.enumerate())
