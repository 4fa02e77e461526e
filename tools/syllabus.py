"""Run every command of docs/syllabus.md, one after the other, in a folder of its own: ✓ or ✗, and how long it took.

    python tools/syllabus.py                      all of it, for about an hour of one core
    python tools/syllabus.py --tiny               in its shortest form: a few updates, few texts, experiments in their tiny mode
    python tools/syllabus.py --only walk tokens   only commands that hold one of these words
    python tools/syllabus.py --without experiment
    python tools/syllabus.py --processor          budgets are processor time, on a machine that other programs use as well

The page is the list: its blocks of Python and its indented lines that begin with `regard` are run in their order, for later
ones use what earlier ones have trained. The exit code is 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from regard.cli.main import run

PAGE = Path(__file__).resolve().parent.parent / "docs" / "syllabus.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^    (regard .*?)(?: {2,}.*)?$", re.MULTILINE)
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)

# What a command gets in the tiny mode: few examples, a small model, hardly any updates.
UPDATES = "--steps 2"
SMALL = {
    "translate": "--preset demo --set data.builtin_size=200 --set validate.sentences=2 --set tokens.size=300",
    "generate": "--preset demo --set data.builtin_size=60000 --set tokens.size=300 --set data.context=32",
    "align": "--set data.builtin_size=60 --set data.hold_out=6 --set align.supervised_steps=2 --set align.reward_steps=2 "
    "--set align.rollouts=8 --set align.answers=4 --set align.longest=8",
    "fill": "--preset demo --set data.builtin_size=60000 --set tokens.size=300 --set data.context=32",
    "classify": "--preset demo --data few.tsv",
    "ask": "--preset demo --set data.builtin_size=60",
    "remember": "--preset demo --set data.size=32 --set data.width=2",
    "compute": "--preset demo --set data.builtin_size=60",
    "transcribe": "--preset demo --set data.builtin_size=60",
}
BY_DATA = {  # where the data, and not the verb, tell what is trained
    "builtin/glyphs": "--preset demo --set data.builtin_size=64 --set data.hold_out=8",
    "builtin/communities": "--preset demo",
    "builtin/canon": "--preset demo --set data.builtin_size=60",
    "builtin/tones": "--preset demo --set data.builtin_size=60",
    "builtin/figures": "--preset demo --set data.builtin_size=2560 --set data.side=8",
}
FEW = "".join(f"{'die Stadt' if n % 2 else 'la ville'} {n}\t{'de' if n % 2 else 'fr'}\n" for n in range(80))  # few.tsv
BY_PROCESSOR = """
import time
time.monotonic = time.perf_counter = time.process_time
import sys
from regard.cli.main import run
sys.exit(run())
"""
LEFT_OUT = {  # in the tiny mode, and why
    "regard compare": "its models share a time, and not a number of updates",
    "regard scale": "its runs share a time, and not a number of updates",
    "regard bench attention": "it measures memory in processes of their own",
}


@dataclass(frozen=True)
class Line:
    """Something on the page that can be run, and the section that it stands in."""

    section: str
    text: str
    is_python: bool = False

    @property
    def name(self) -> str:
        return "the Python at the top of the page" if self.is_python else self.text


@dataclass(frozen=True)
class Outcome:
    """What came of a line; `failed` has the end of its output, and is empty where all went well."""

    line: Line
    seconds: float
    failed: str = ""
    left_out: str = ""

    @property
    def mark(self) -> str:
        return "✗" if self.failed else "–" if self.left_out else "✓"


def lines_of(page: str) -> list[Line]:
    """Everything on the page that can be run, in its order."""
    sections = [(found.start(), found[1]) for found in SECTION.finditer(page)]
    found = [(each.start(), Line("", each[1], is_python=True)) for each in PYTHON.finditer(page)]
    found += [(each.start(), Line("", each[1])) for each in COMMAND.finditer(page)]
    lines = []
    for start, line in sorted(found, key=lambda each: each[0]):
        above = [title for place, title in sections if place < start]
        lines.append(Line(above[-1] if above else "", line.text, line.is_python))
    return lines


def shortened(command: str) -> str:
    """A command in its shortest form: the same way through the code, with next to nothing to do."""
    words = shlex.split(command)
    if words[1] == "experiment":
        return f"{command} --tiny"
    if words[1] == "tokens" and "--merges" not in words:
        return f"{command} --merges 20"
    if words[-2:] == ["--as", "states"]:
        return f"{command} --on few.tsv"
    if words[1] == "heads":
        return command.replace("--texts 20", "--texts 3")
    if words[1] == "landscape":
        return command.replace("--points 11", "--points 3 --examples 3 --directions 1 --iterations 1")
    if words[1] == "remember":
        return f"{command} --count 4"
    if words[1] != "train":
        return command
    kept = re.sub(r" (--budget|--steps|--preset) \S+", "", command)
    small = next((BY_DATA[word] for word in words if word in BY_DATA), SMALL[words[2]])
    if "--from" in words:  # its size is that of the other
        small = small.replace("--preset demo ", "")
    return f"{kept} {UPDATES} {small}"


def run_lines(lines: Sequence[Line], folder: Path, tiny: bool = False, processor: bool = False) -> Iterator[Outcome]:
    """Run each line in the folder: commands as a person types them, their shortest form in this process."""
    if tiny:
        (folder / "few.tsv").write_text(FEW, encoding="utf-8")
    for line in lines:
        why = next((why for start, why in LEFT_OUT.items() if tiny and line.text.startswith(start)), "")
        if why:
            yield Outcome(line, 0.0, left_out=why)
            continue
        began = time.perf_counter()
        if line.is_python:
            failed = _python(line.text, folder)
        else:
            failed = _in_this_process(shortened(line.text), folder) if tiny else _as_typed(line.text, folder, processor)
        yield Outcome(line, time.perf_counter() - began, failed)


def _as_typed(command: str, folder: Path, processor: bool) -> str:
    """Run a command in a process of its own, whose time begins with it; return the end of its output if it failed."""
    begin = ["-c", BY_PROCESSOR] if processor else ["-m", "regard"]
    words = [sys.executable, *begin, *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return _told(done.returncode, done.stdout)


def _in_this_process(command: str, folder: Path) -> str:
    out = io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(out):
        code = run(shlex.split(command)[1:])
    return _told(code, out.getvalue())


def _told(code: int, printed: str) -> str:
    return "" if code == 0 else f"exit code {code}: {printed.strip()[-600:]}"


def _python(text: str, folder: Path) -> str:
    try:
        with chdir(folder):
            exec(compile(text, str(PAGE), "exec"), {})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def table_of(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as text, section by section, with a last line that counts them."""
    rows, section = [], ""
    for each in outcomes:
        if each.line.section != section:
            section = each.line.section
            rows.append(f"\n{section}")
        rows.append(f"  {each.mark} {each.seconds:7.1f} s  {each.line.name}")
        rows += [f"      {part}" for part in each.failed.splitlines()]
        rows += [f"      left out: {each.left_out}"] if each.left_out else []
    marks = [each.mark for each in outcomes]
    seconds = sum(each.seconds for each in outcomes)
    told = f"{marks.count('✓')} ran, {marks.count('✗')} failed, {marks.count('–')} left out, {seconds:.0f} s"
    return "\n".join([*rows, "", told])


def _asked_for(text: str, only: Sequence[str], without: Sequence[str]) -> bool:
    return (not only or any(word in text for word in only)) and not any(word in text for word in without)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run every command of docs/syllabus.md.")
    parser.add_argument("--tiny", action="store_true", help="the shortest form of each")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="commands that hold one of these")
    parser.add_argument("--without", nargs="+", default=[], metavar="WORD", help="and none of these")
    parser.add_argument("--processor", action="store_true", help="budgets are of processor time")
    asked = parser.parse_args(arguments)
    lines = [
        line
        for line in lines_of(PAGE.read_text(encoding="utf-8"))
        if line.is_python or _asked_for(line.text, asked.only, asked.without)
    ]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="syllabus-") as folder:
        for outcome in run_lines(lines, Path(folder), asked.tiny, asked.processor):
            print(f"{outcome.mark} {outcome.seconds:7.1f} s  {outcome.line.name}", file=sys.stderr, flush=True)
            if outcome.failed:  # at once: the rest may take an hour
                print(f"      {outcome.failed}", file=sys.stderr, flush=True)
            outcomes.append(outcome)
    print(table_of(outcomes))
    return 1 if any(each.failed for each in outcomes) else 0


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "100")
    sys.exit(main())
