"""Models that a person sends to the studio as a ZIP file: checked like those of `regard import`, and kept as bundles."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.requests import ClientDisconnect, Request

from regard.interop import import_archive
from regard.predictor import Cancel, check_cancel
from regard.studio.catalog import BEING_WRITTEN, Catalog, Entry, told_as_refusal
from regard.studio.config import ServeConfig
from regard.studio.refusals import Refusal, full
from regard.studio.work import gone

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # no path, no option, nothing to quote


class Imports:
    """What is sent now: one model at a time."""

    def __init__(self, config: ServeConfig, catalog: Catalog) -> None:
        self.config, self.limits, self.catalog = config, config.limits, catalog
        self.lock = threading.Lock()

    @contextmanager
    def begin(self, name: str) -> Iterator[None]:
        """Inside this block a model of that name is taken in, and no other; refused where it cannot be."""
        if not self.config.page:
            raise Refusal(403, "this service takes in no models", "regard studio does, and so does regard import")
        if not NAME.fullmatch(name) or name.endswith(BEING_WRITTEN):
            told = "letters, digits, points and dashes, 64 at most"
            raise Refusal(422, f"{name[:100]!r} is no name of a model", told, param="name")
        if not self.lock.acquire(blocking=False):
            raise full()
        try:
            self._check_free(name)
            yield
        finally:
            self.lock.release()

    def _check_free(self, name: str) -> None:
        if name in self.catalog.entries() or (self.config.imported / name).exists():
            raise Refusal(409, f"there is a model {name} already", "choose another name", param="name")

    async def receive(self, request: Request, archive: Path) -> None:
        """Write what is sent into a file, within the limits of its size and of time."""
        most, size = self.limits.archive_bytes, 0
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > most:
            raise _too_large(most)
        pieces = request.stream()
        try:
            with open(archive, "xb") as file:
                while piece := await self._next(pieces):
                    size += len(piece)
                    if size > most:
                        raise _too_large(most)
                    file.write(piece)
        except TimeoutError:
            raise Refusal(408, f"nothing came for {self.limits.read_seconds:g} s", "send it again") from None
        except ClientDisconnect:
            raise gone() from None

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes:
        async with asyncio.timeout(self.limits.read_seconds):
            return await anext(pieces, b"")  # the last piece of a stream is empty, too

    def take(self, archive: Path, name: str, cancel: Cancel) -> Entry:
        """Make a bundle of a file that came in, in a thread; it is listed from now on."""
        folder = self.config.imported / name
        with told_as_refusal(name):
            import_archive(archive, folder, most=self.limits.archive_bytes, check=lambda: check_cancel(cancel))
        return self.catalog.in_folder(folder)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"the file is larger than {most:,} bytes", "regard import takes larger ones")
