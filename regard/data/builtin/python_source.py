"""The built-in text: the source of Python's own standard library, read where it is installed."""

from __future__ import annotations

import os
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from regard.data.held_out import hash_of
from regard.errors import RegardError

# Not the library's own source: its tests, what was installed beside it, and tables that programs wrote.
_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data"}
_PREFIXES = ("config-", "_sysconfigdata")  # how this one Python was built


def python_documents(limit: int = 4_000_000, library: Path | None = None) -> list[str]:
    """Modules of the standard library, at most `limit` characters in all, sorted by path.

    Which ones is decided by a hash of their paths: a broad sample, and the same one wherever the library is the same.
    """
    library = library or Path(sysconfig.get_paths()["stdlib"])
    names = sorted(_modules(library))
    if not names:
        raise RegardError(
            f"builtin/python: there is no Python source in {library} (this Python may keep its library in a zip file)",
            "name text files of your own (data.train)",
        )
    chosen: dict[str, str] = {}
    room = limit
    for name in sorted(names, key=hash_of):
        text = _source(library / name)
        if text and len(text) <= room:
            chosen[name] = text
            room -= len(text)
    if not chosen:
        raise RegardError(f"builtin/python: no module has {limit:,} characters or fewer", "raise data.builtin_size")
    return [chosen[name] for name in sorted(chosen)]


def _modules(library: Path) -> Iterator[str]:
    """Paths of modules below the library, with forward slashes."""
    for folder, folders, files in os.walk(library):
        folders[:] = [name for name in folders if name not in _FOLDERS and not name.startswith(_PREFIXES)]
        for name in files:
            if name.endswith(".py") and not name.startswith(_PREFIXES):
                yield (Path(folder) / name).relative_to(library).as_posix()


def _source(path: Path) -> str:
    """The text of a module in the encoding that it declares, or "" if it cannot be read so."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):  # SyntaxError: an unknown encoding is declared
        return ""
