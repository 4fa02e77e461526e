"""Commands as a person types them: what they print, their exit codes, and the files that they write."""

from __future__ import annotations

import io
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from snapshots.contents import content, lasting, lines_of, numberless, placeless, timeless


def sections() -> dict[str, list[str]]:
    """The lines of commands.txt, by heading."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in Path(__file__).with_name("commands.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


def commands(runs: Sequence[Any], kept: Sequence[str], tiny: bool) -> dict[str, str]:
    """Every command to type, by a name for its file."""
    told, lines = sections(), []
    for run in runs:
        lines += [line.replace("RUN", f"models/{run.name}") for line in told[f"every {run.task}"]]
    for run in runs:
        if run.name in kept:
            lines += [line.replace("RUN", f"models/{run.name}") for line in told["kept"]]
    here = told["here"]
    if tiny:
        known = {f"models/{run.name}" for run in runs}
        here = [line for line in here if set(re.findall(r"models/[a-z0-9-]+", line)) <= known][::12]
    return {name: line for line, name in zip([*lines, *here], names([*lines, *here]), strict=True)}


def names(lines: Sequence[str]) -> list[str]:
    """A name for each command, none twice."""
    found: list[str] = []
    for line in lines:
        name = re.sub(r"[^a-z0-9.]+", "-", line.lower().replace("models/", "")).strip("-.")[:100]
        again = sum(each.partition("~")[0] == name for each in found)
        found.append(f"{name}~{again + 1}" if again else name)
    return found


def typed(line: str) -> dict[str, Any]:
    """A command as a person types it: what it printed, its exit code, and the files that it wrote."""
    Path("out").mkdir()
    if "import exported" in line and not Path("exported").exists():
        shell("export models/generate-gpt2 -o exported")
    code, out, err = shell(line)
    files = {str(file.relative_to("out")): content(file) for file in sorted(Path("out").rglob("*")) if file.is_file()}
    shutil.rmtree("out")
    measures = line in ("doctor", "doctor --json") or line.startswith("bench attention --kernels exact,window ")
    clean = str.rstrip if "--help" in line else numberless if measures else timeless
    said, told = (lines_of(placeless(text), clean) for text in (out, err))
    if measures and "bench" in line:  # below the head of its table there is what only a clock knows
        said, told = said[:2], told[:1]
    return {"typed": line, "exit": code, "stdout": said, "stderr": lasting(told), "files": files}


def shell(line: str) -> tuple[int, str, str]:
    """Run `python -m regard` in this process, since each new one would wait seconds for torch."""
    words, _, read = line.partition(" < ")
    given = Path(read).read_text(encoding="utf-8") if read else ""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2))
    into = io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8")
    argv = ["regard", *shlex.split(words)]
    with patch.multiple(sys, argv=argv, stdin=into, stdout=out, stderr=err):
        code: Any = 0
        try:
            runpy.run_module("regard", run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        for stream in (out, err):
            stream.flush()
    said, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return code, said, told
