"""Every comparison with a peer in one run, each by its own script, in under 25 minutes: `make bench`.

    python benchmarks/bench.py [--nanogpt DIR] [--threads 2] [--minutes 25] [--out docs/results/bench.json]

start       `regard translate` with one sentence beside `python -c "import torch"`, new processes in turns
train       training a small Transformer: Marian, nn.Transformer, x-transformers      (train_speed.py)
decode      translating a file and a sentence: CTranslate2, Marian                    (decode_speed.py)
generate    language models with a cache: transformers' generate                      (generation_speed.py)
nanogpt     training a small GPT beside nanoGPT, where its folder is given            (nanogpt.py)

Each script measures its contenders in turns, round by round; what counts are medians of rounds and of ratios of rounds,
with the least and the greatest. Where a script takes a number of threads, short trials find the one with which the fastest
peer is fastest, and all are measured with it; CTranslate2's workers are searched by its script. Memory is the peak of a
process that has one contender alone. Writes JSON, a table in Markdown beside it, and a figure.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = ("torch", "numpy", "transformers", "ctranslate2", "x-transformers", "regard")
OURS = "regard"


@dataclass
class Row:
    """One comparison: figures of each round of each contender, more being better where `more` says so."""

    comparison: str
    what: str
    unit: str
    rounds: dict[str, list[float]]
    more: bool = True
    memory: dict[str, int] = field(default_factory=dict)  # bytes at most, of a process with one contender
    settings: dict[str, Any] = field(default_factory=dict)  # what was searched, and chosen

    def ratios(self, peer: str) -> list[float]:
        """How many times as good as a peer we were, round by round."""
        pairs = zip(self.rounds[OURS], self.rounds[peer], strict=True)
        return [ours / theirs if self.more else theirs / ours for ours, theirs in pairs]

    def data(self) -> dict[str, Any]:
        peers = [name for name in self.rounds if name != OURS and OURS in self.rounds]
        return {
            "comparison": self.comparison,
            "what": self.what,
            "unit": self.unit,
            "contenders": {name: spread(values) for name, values in self.rounds.items()},
            "times_as_good_as": {name: spread(self.ratios(name)) for name in peers},
            "peak_memory": self.memory,
            "settings": self.settings,
        }


def spread(values: Sequence[float]) -> dict[str, float]:
    named = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: float(f"{value:.4g}") for name, value in named.items()} | {"rounds": len(values)}


class Session:
    """The scripts, run one after another until a time; what could not be run is told and kept."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.deadline = time.monotonic() + 60 * options.minutes
        self.left_out: list[str] = []

    def leave_out(self, what: str) -> None:
        self.left_out.append(what)
        print(f"left out: {what}", flush=True)

    def script(
        self, name: str, *words: str, threads: int, quiet: bool = False, memory: bool = False
    ) -> tuple[dict[str, Any] | None, int]:
        """The JSON that a script writes, and the peak of its memory; None where it is not there, fails or has no time.

        The tiny mode has a process for it only where its memory is asked for: others would spend their time on imports.
        """
        path, out = HERE / f"{name}.py", self.folder / f"{name}.json"
        if not path.exists():
            self.leave_out(f"{name}: there is no benchmarks/{name}.py in this checkout")
            return None, 0
        if time.monotonic() > self.deadline:
            self.leave_out(f"{name} {' '.join(words)}: the {self.options.minutes:g} minutes are over")
            return None, 0
        asked = [*words, "--threads", str(threads), "--out", str(out)]
        if self.options.tiny and not memory:
            code, peak, told = run_here(path, asked)
        else:
            seconds = max(10.0, self.deadline - time.monotonic())
            code, peak, told = run([sys.executable, str(path), *asked], threads, seconds)
        if not quiet:
            print(told, flush=True)
        if code or not out.exists():
            last = (told.strip().splitlines() or ["nothing was said"])[-1]
            self.leave_out(f"{name} {' '.join(words)}: it failed ({last})")
            return None, peak
        found: dict[str, Any] = json.loads(out.read_text())
        out.unlink()
        return found, peak


def run_here(path: Path, words: Sequence[str]) -> tuple[int, int, str]:
    """The same of a script that is run in this process, whose memory says nothing of it."""
    told = io.StringIO()
    with (
        redirect_stdout(told),
        patch.object(sys, "argv", [str(path), *words]),
        patch.object(sys, "path", [str(path.parent), *sys.path]),
    ):
        runpy.run_path(str(path), run_name="__main__")
    return 0, 0, told.getvalue()


def run(command: Sequence[str], threads: int, seconds: float) -> tuple[int, int, str]:
    """The exit code, the peak memory in bytes and what it printed, of a process that is stopped when its time is over."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        end = time.monotonic() + seconds
        while True:
            done, status, usage = os.wait4(child.pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                child.kill()
                end = float("inf")
            time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        unit = 1 if sys.platform == "darwin" else 1024
        return child.returncode, usage.ru_maxrss * unit, output.read().decode("utf-8", "replace")


# --- The comparisons


def start(session: Session) -> list[Row]:
    """A new process that translates one sentence, beside one that only imports torch."""
    tiny, place = session.options.tiny, session.folder / "start"
    train = ["train", "translate", "-o", str(place), "--set", "validate.sentences=0", "--set", "data.builtin_size=500"]
    if tiny:
        sys.path.insert(0, str(HERE))  # where the folder of its parts lies
        from peers.typed import typed_here

        typed_here([*train, "--preset", "demo", "--steps", "2"])
    else:
        words = [sys.executable, "-m", "regard", *train, "--preset", "tiny", "--steps", "20"]
        code, _, told = run(words, 1, 600)
        if code:
            session.leave_out(f"start: no model could be made ({told.strip().splitlines()[-1]})")
            return []
    commands = {
        OURS: [sys.executable, "-m", "regard", "translate", "-m", str(place), "3 mars 1998"],
        "import torch": [sys.executable, "-c", "import torch"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    memory: dict[str, int] = {}
    for turn in range(0 if tiny else -1, 1 if tiny else session.options.rounds + 2):
        for name in commands if turn % 2 else reversed(commands):
            began = time.perf_counter()
            _, memory[name], _ = run(commands[name], 1, 120)
            if turn >= 0:  # the first of all fills the cache of files
                seconds[name].append(time.perf_counter() - began)
    title, settings = "one sentence in a new process", {"threads": 1}
    return [Row("start", title, "s", seconds, more=False, memory=memory, settings=settings)]


def best_threads(
    session: Session, name: str, speeds: Callable[[Mapping[str, Any]], Mapping[str, float]], *words: str
) -> tuple[int, dict[str, Any]]:
    """The number of threads with which the fastest peer is fastest, by a round of each, and what was tried."""
    most = session.options.threads
    if session.options.tiny or most == 1:
        return most, {"threads": most}
    tried: dict[int, float] = {}
    for threads in (1, most):
        found, _ = session.script(name, *words, threads=threads, quiet=True)
        peers = {} if found is None else {peer: speed for peer, speed in speeds(found).items() if peer != OURS}
        if peers:
            tried[threads] = max(peers.values())
    chosen = max(tried, key=lambda count: tried[count]) if tried else most
    return chosen, {"threads": chosen, "searched": {"threads": {str(count): speed for count, speed in tried.items()}}}


def train(session: Session) -> list[Row]:
    tiny = ["--tiny"] if session.options.tiny else []
    short = ["--rounds", "1", "--batches", "2"]
    threads, settings = best_threads(session, "train_speed", lambda found: found["tokens_per_second"], *short)
    found, _ = session.script("train_speed", *(tiny or ["--rounds", str(session.options.rounds)]), threads=threads)
    if found is None:
        return []
    memory = peaks(session, "train_speed", list(found["speeds"]), *(tiny or short), threads=threads)
    settings |= {"shares_of_limit": found["shares_of_limit"], "precision": found["precision"]}
    title, rows = "a small Transformer learns", []
    rows.append(Row("train", title, "target tokens/s", found["speeds"], memory=memory, settings=settings))
    if tiny:  # the same script again would only take time
        return rows
    words = ["--shape", "base", "--rounds", str(session.options.rounds)]
    base, _ = session.script("train_speed", *words, threads=threads)
    if base is not None:
        settings = {
            "threads": threads,
            "shares_of_limit": base["shares_of_limit"],
            "precision": base["precision"],
        }
        rows.append(Row("train", "a base Transformer learns", "target tokens/s", base["speeds"], settings=settings))
    return rows


def generate(session: Session) -> list[Row]:
    tiny = ["--tiny", "--only", "regard"] if session.options.tiny else []  # peers have their own test of tiny modes
    words = tiny or ["--sizes", "4 x 128", "6 x 384", "--rounds", str(session.options.rounds)]

    def fastest(found: Mapping[str, Any]) -> Mapping[str, float]:
        return found["rows"][-1]["tokens_per_second"]

    short = ["--sizes", "4 x 128", "--kinds", "gpt2", "--batches", "16", "--rounds", "1"]
    threads, settings = best_threads(session, "generation_speed", fastest, *short)
    found, _ = session.script("generation_speed", *words, threads=threads)
    if found is None:
        return []
    names = list(found["rows"][0]["speeds"])
    memory = {} if tiny else peaks(session, "generation_speed", names, *short, threads=threads)
    rows = []
    for number, row in enumerate(found["rows"]):
        what = f"{row['kind']} {row['size']}, {row['batch']} together"
        peak = memory if number == 0 else {}
        rows.append(Row("generate", what, "tokens/s", row["speeds"], memory=peak, settings=settings))
    return rows


def decode(session: Session) -> list[Row]:
    """CTranslate2's workers and threads are searched by the script, which prints what it chose."""
    asked = ["--tiny"] if session.options.tiny else ["--rounds", str(session.options.rounds)]
    without = [
        "regard, by modules",
        "regard, in torch",
        "regard, scored",
        *(["ctranslate2", "transformers"] if session.options.tiny else []),
    ]
    found, _ = session.script("decode_speed", *asked, "--without", *without, threads=session.options.threads)
    if found is None:
        return []
    settings = {key: value for key, value in found["conditions"].items() if key != "versions"}
    rows = []
    for row in found["rows"]:
        seconds, memory = ({who: one[key] for who, one in row["measured"].items()} for key in ("seconds", "memory"))
        rows.append(Row("decode", row["what"], "s", seconds, more=False, memory=memory, settings=settings))
    return rows


def nanogpt(session: Session) -> list[Row]:
    options = session.options
    if options.nanogpt is None:
        session.leave_out("nanogpt: its folder is not given (make bench NANOGPT=DIR)")
        return []
    words = ["--tiny"] if options.tiny else ["speed", "--rounds", str(options.rounds)]
    found, _ = session.script("nanogpt", *words, "--nanogpt", str(options.nanogpt), threads=options.threads)
    if found is None:
        return []
    settings = {"threads": options.threads, "updates_in_a_round": found["speed"]["updates_in_a_round"]}
    return [Row("nanogpt", "a small GPT learns", "tokens/s", found["speed"]["speeds"], settings=settings)]


def peaks(session: Session, name: str, contenders: Sequence[str], *words: str, threads: int) -> dict[str, int]:
    """The peak memory of a process that has one contender alone, for each of them."""
    found = {}
    for contender in contenders[:1] if session.options.tiny else contenders:
        figures, peak = session.script(name, *words, "--only", contender, threads=threads, quiet=True, memory=True)
        if figures is not None:
            found[contender] = peak
    return found


COMPARISONS: dict[str, Callable[[Session], list[Row]]] = {
    "start": start, "train": train, "generate": generate, "decode": decode, "nanogpt": nanogpt,
}  # fmt: skip


# --- What is written


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PEERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows in Markdown: each contender's median with the least and the greatest, its memory, and how we compare."""
    lines = ["| comparison | | median (least to most) | peak memory | Regard is |", "|---|---|---|---|---|"]
    for row in rows:
        for number, (name, values) in enumerate(row["contenders"].items()):
            ratio, peak = row["times_as_good_as"].get(name), row["peak_memory"].get(name)
            cells = [
                f"{row['what']}, {row['unit']}" if number == 0 else "",
                name,
                f"{values['median']:,.4g} ({values['least']:,.4g} to {values['most']:,.4g})",
                "" if peak is None else f"{peak / 2**20:,.0f} MiB",
                ""
                if ratio is None
                else f"{ratio['median']:.2f} times as fast ({ratio['least']:.2f} to {ratio['most']:.2f})",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """How many times as fast as each peer Regard is: a point with its spread for each, on a logarithmic scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = [(f"{row['what']}: {peer}", each) for row in rows for peer, each in row["times_as_good_as"].items()]
    figure = Figure(figsize=(8, 1.2 + 0.32 * len(points)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, (_, each) in enumerate(reversed(points)):
        axes.plot([each["least"], each["most"]], [place, place], color="#8aa4c8", linewidth=4, solid_capstyle="round")
        axes.plot([each["median"]], [place], "o", color="#1f3d6b")
    axes.axvline(1.0, color="#888888", linewidth=1)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 4, 8, 16) if points]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(points)), [name for name, _ in reversed(points)])
    axes.set_xlabel("times as fast as the peer (median of rounds, least to most)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="at most, of each contender")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=25.0, help="what does not fit is left out")
    parser.add_argument("--nanogpt", type=Path, metavar="DIR", help="a checkout of nanoGPT")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "bench.json")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "images" / "bench.png")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if options.tiny:
            options.out, options.figure, options.threads = Path(folder) / "bench.json", Path(folder) / "bench.png", 1
        session = Session(options, Path(folder))
        rows = []
        for name in options.only:
            print(f"== {name}", flush=True)
            rows += [row.data() for row in COMPARISONS[name](session)]
        found = {
            "conditions": {
                "machine": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count(),
                "threads_at_most": options.threads, "rounds": options.rounds, "versions": versions(),
            },
            "seconds": round(time.monotonic() - began), "rows": rows, "left_out": session.left_out,
        }  # fmt: skip
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(table(rows))
        draw(rows, options.figure)
        print(table(rows))
        if not options.tiny:
            print(f"wrote {options.out}, {options.out.with_suffix('.md')} and {options.figure} in {found['seconds']} s")


if __name__ == "__main__":
    main()
