"""Ctrl-C and SIGTERM ask a run to stop after the current update; a second Ctrl-C stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def stop_requests() -> Iterator[list[str]]:
    """A list that stays empty until the person asks to stop, then holds the name of the signal."""
    asked: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may install handlers; elsewhere the caller stops the run
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(signal.Signals(number).name)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
