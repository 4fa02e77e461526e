"""Without what only Unix has (fcntl, resource): the command line, a run, and its lock, in a process that cannot import them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from regard.files import LOCK, alone_in, is_bare, is_taken

PROGRAM = """
import builtins, sys
real = builtins.__import__
def hiding(name, globals=None, *rest, **more):
    who = (globals or {}).get("__name__", "").partition(".")[0]
    if name in ("fcntl", "resource") and who in ("regard", "filelock"):  # torch for Linux may have them
        raise ImportError(f"no module named {name}")
    return real(name, globals, *rest, **more)
builtins.__import__ = hiding

import contextlib, io
from pathlib import Path
from regard.cli import main
with contextlib.redirect_stdout(io.StringIO()) as shown:
    assert main.run(["--help"]) == 0 and "translate" in shown.getvalue()
    small = "--preset demo --steps 1 --set validate.sentences=0 --set data.builtin_size=50 --set tokens.kind=character"
    words = f"train translate --device cpu -o run --set train.select=loss --set train.warmup=0 {small}".split()
    assert main.run(words) == 0
    assert main.run(["runs", "."]) == 0 and "all steps done" in shown.getvalue()
assert Path("run/best/config.json").exists()
from regard.errors import RegardError
from regard.files import alone_in, is_taken
with alone_in(Path("run")):
    assert is_taken(Path("run"))
    try:
        with alone_in(Path("run")):
            raise SystemExit("two were alone")
    except RegardError:
        pass
assert not is_taken(Path("run"))
import filelock
assert filelock.FileLock is filelock.SoftFileLock
"""


def test_without_fcntl_and_resource(tmp_path: Path) -> None:
    """`import fcntl` at the top of files.py once kept the whole command line from starting on Windows."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_lock_is_a_file_that_says_nothing_by_being_there(tmp_path: Path) -> None:
    """A killed process leaves it behind; a folder that nobody is in is not written to by who asks."""
    assert not is_taken(tmp_path) and not (tmp_path / LOCK).exists()
    with alone_in(tmp_path):
        assert is_taken(tmp_path) and is_bare(tmp_path) and (tmp_path / LOCK).exists()
    assert not (tmp_path / LOCK).exists()
    (tmp_path / LOCK).touch()
    assert not is_taken(tmp_path) and is_bare(tmp_path)
    (tmp_path / "log.jsonl").touch()
    assert not is_bare(tmp_path)
