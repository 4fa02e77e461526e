"""A command of Regard in this process, for tiny modes: what they prove is the script, and a process begins with imports."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from regard.cli.main import run


def typed_here(words: Sequence[str], folder: Path | str = ".") -> str:
    """What a command prints in a folder; one that fails ends the script."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = run(words)
    if code:
        sys.exit(f"regard {' '.join(words)} failed: {err.getvalue()}")
    return out.getvalue()
