"""The state of the channel: who records and what is changed, in this thread; and how many blocks are open in any.

Where none is open an attention asks nothing more: `blocks` is the one comparison that the channel costs when it is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.attention.changes import Intervention
    from regard.attention.seen import Seen

recorder: ContextVar[Seen | None] = ContextVar("recorder", default=None)
interventions: ContextVar[tuple[Intervention, ...]] = ContextVar("interventions", default=())

blocks = 0  # of `record` and `intervene` that are open, in all threads
_lock = Lock()


@contextmanager
def block() -> Iterator[None]:
    """Inside, attentions ask who records and what is changed."""
    global blocks
    with _lock:
        blocks += 1
    try:
        yield
    finally:
        with _lock:
            blocks -= 1
