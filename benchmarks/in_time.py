"""The shortest commands under a budget of time, by the clock from Enter to prompt, and what their models score on test sets.

    REGARD_DATA=... python benchmarks/in_time.py prepare FOLDER
    python benchmarks/in_time.py run FOLDER shakespeare-60s multi30k-5000-3m --seeds 1 2 --out docs/results/in_time.json

    python benchmarks/in_time.py run FOLDER dates-60s --times 5 --out docs/results/in_time.json      how far one command spreads

`prepare` lays the public texts out as a person would have them (pictures: `benchmarks/prepare_pictures.py`, into
FOLDER/pictures). Each case is a command of `regard train` with no options but its data and its time; a test set is scored
once, at the end. What is in the file is not run again.

By the clock, nothing else may run on the machine. With `--processor` a run has one thread, and its budget is of the
processor's time from the start of the program: as if it ran alone on a machine of one core, whatever runs beside it. With
`how-much` as a case, all those that `docs/how-much.md` is drawn from; with `held-out`, three sets that no rule was chosen by,
each also searched for better settings (`regard tune`) in as much time. Cases: `list`. What came: `table --out FILE`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
from PIL import Image

from regard.files import write_json
from regard.training.history import RunLog

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What a person types, and how the model is scored."""

    name: str
    train: str  # the words after `regard train`
    test: str  # the words after `regard eval RUN --on`
    scores: Callable[[Row], Row]
    verb: str = "train"  # or tune, whose best run is scored

    def run_in(self, out: Path) -> Path:
        """The folder of the run that is scored."""
        return out if self.verb == "train" else out / "best"


def bleu(row: Row) -> Row:
    return {name: row["scores"]["bleu"][name] for name in ("value", "low", "high")}


def nats(row: Row) -> Row:
    return {"value": row["bits_per_byte"] * math.log(2)}  # of a character, where each is a byte


def perplexity(row: Row) -> Row:
    return {"value": row["perplexity"]}


def accuracy(row: Row) -> Row:
    return {"value": row["accuracy"], "low": row["low"], "high": row["high"]}


def captions(row: Row) -> Row:
    return {"value": row["bleu4"], **{name: row[name] for name in ("bleu1", "bleu2", "bleu3", "cider_d")}}


def exact(row: Row) -> Row:
    return {"value": row["exact"]}


def translation(pairs: int, budget: str, way: str = "en-de") -> Case:
    first, second = way.split("-")
    data = f"--data m{pairs}.{first} m{pairs}.{second} --valid val.{first} val.{second} --languages {first},{second}"
    turned = "" if way == "en-de" else f"{way}-"
    asked = f" --budget {budget}" if budget else ""
    name = f"multi30k-{turned}{pairs}-{budget or 'default'}"
    return Case(name, f"translate {data}{asked}", f"test.{first} test.{second} --lowercase", bleu)


def shakespeare(budget: str) -> Case:
    train = f"generate --data tinyshakespeare.txt --budget {budget}"
    return Case(f"shakespeare-{budget}", train, "tinyshakespeare.last.txt", nats)


def opinions(texts: int, budget: str) -> Case:
    train = f"classify --data sst2.{texts}.tsv --valid sst2.valid.tsv --budget {budget}"
    return Case(f"sst2-{texts}-{budget}", train, "sst2.test.tsv", accuracy)


def beginning(characters: int, budget: str) -> Case:
    data = f"--data tinyshakespeare.{characters}.txt --valid tinyshakespeare.last.txt"
    return Case(
        f"shakespeare-{characters}-{budget}", f"generate {data} --budget {budget}", "tinyshakespeare.last.txt", nats
    )


def held_out(name: str, train: str, test: str, scores: Callable[[Row], Row]) -> tuple[Case, Case]:
    """A set that no rule was chosen by: the shortest command, and a search around its settings, in as much time."""
    words = f"{train} --budget 20m"
    return Case(f"{name}-20m", words, test, scores), Case(f"{name}-tune-20m", words, test, scores, "tune")


PTB = "generate --data ptb.train.txt --valid ptb.valid.txt --set tokens.kind=space --set tokens.size=10004"
MNIST = "mnist/{0}-images-idx3-ubyte.gz mnist/{0}-labels-idx1-ubyte.gz"
IMDB = "classify --data imdb.train.jsonl --text text --label label --budget 3m"
HOW_MUCH = (
    *(translation(pairs, budget) for pairs in (1000, 5000, 29000) for budget in ("1m", "3m", "10m")),
    *(translation(29000, budget) for budget in ("30m", "60m")),
    *(beginning(characters, budget) for characters in (100_000, 300_000, 1_000_000) for budget in ("1m", "3m", "10m")),
    *(opinions(texts, budget) for texts in (300, 1400, 6920) for budget in ("20s", "60s", "3m")),
)
HELD_OUT = (
    *held_out("sst5", "classify --data sst5.train.tsv --valid sst5.valid.tsv", "sst5.test.tsv", accuracy),
    *held_out("cmudict", "translate --data cmudict.train.tsv --valid cmudict.valid.tsv", "cmudict.test.tsv", bleu),
    *held_out("fsdd", "classify --data fsdd/train --valid fsdd/valid", "fsdd/test", accuracy),
)
CASES = (
    *(shakespeare(budget) for budget in ("60s", "3m", "10m")),
    *HOW_MUCH,
    translation(5000, ""),
    translation(29000, "90m"),
    translation(29000, "30m", "de-en"),
    Case("ptb-20m", f"{PTB} --budget 20m", "ptb.test.txt --overlap 64", perplexity),
    Case("sst2-3m", "classify --data sst2.train.tsv --valid sst2.valid.tsv --budget 3m", "sst2.test.tsv", accuracy),
    Case("trec-3m", "classify --data trec.train.tsv --budget 3m", "trec.test.tsv", accuracy),
    Case("agnews-3m", "classify --data agnews.train.tsv --budget 3m", "agnews.test.tsv", accuracy),
    Case("imdb-3m", IMDB, "imdb.test.jsonl --text text --label label", accuracy),
    Case("names-3m", "classify --budget 3m", "builtin/names/test/5", accuracy),
    Case("mnist-230s", f"classify --data {MNIST.format('train')} --budget 230s", MNIST.format("t10k"), accuracy),
    Case(
        "cifar10-10m", "classify --data pictures/cifar10/train.bin --budget 10m", "pictures/cifar10/test.bin", accuracy
    ),
    Case(
        "flickr8k-15m",
        "caption --data pictures/flickr8k/train.jsonl --valid pictures/flickr8k/valid.jsonl --budget 15m",
        "pictures/flickr8k/test.jsonl",
        captions,
    ),
    Case(
        "easy-vqa-5m",
        "answer --data pictures/easy_vqa/train.jsonl --budget 5m",
        "pictures/easy_vqa/test.jsonl",
        accuracy,
    ),
    Case("dates-60s", "translate --model bahdanau --budget 60s", "builtin/dates/test", exact),
    Case("scenes-200s", "caption --budget 200s", "builtin/shapes/test", exact),
    Case("questions-230s", "answer --budget 230s", "builtin/shapes/test", accuracy),
    *HELD_OUT,
)
GROUPS = {"how-much": HOW_MUCH, "held-out": HELD_OUT}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("list", "prepare", "run", "table"), default="list")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--times", type=int, default=1, help="the same command, with the same seed, so many times")
    parser.add_argument(
        "--processor", action="store_true", help="one core, by the processor's time: others may run beside"
    )
    parser.add_argument("--out", type=Path, default=Path("in_time.json"))
    parser.add_argument("--keep", type=Path, help="folder for the runs")
    parser.add_argument("--tiny", action="store_true", help="names for a few seconds")
    options = parser.parse_intermixed_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            case = Case("tiny", "classify --budget 12s", "builtin/names/test/5", accuracy)
            print(json.dumps(measure(case, 1, True, Path(place), Path(place) / "run")))
    elif options.verb == "prepare" and options.folder and os.environ.get("REGARD_DATA"):
        prepare(Path(os.environ["REGARD_DATA"]), options.folder)
    elif options.verb == "run" and options.folder:
        grouped = [case.name for name in options.cases for case in GROUPS.get(name, ())]
        wanted = [*options.cases, *grouped]
        run(options, [case for case in CASES if case.name in wanted or not wanted])
    elif options.verb == "table":
        print("\n".join(table(found(options.out))))
    else:
        print("\n".join(f"{case.name:28} regard {case.verb} {case.train}" for case in CASES))


def run(options: argparse.Namespace, cases: Sequence[Case]) -> None:
    """Every case with every seed that the file does not have."""
    kept = options.keep or Path(tempfile.mkdtemp())
    kept.mkdir(parents=True, exist_ok=True)
    by = "processor" if options.processor else "clock"
    for seed, time_of, case in product(options.seeds, range(1, options.times + 1), cases):
        key = f"{case.name}/{seed}{AGAIN}{time_of}/{by}" if options.times > 1 else f"{case.name}/{seed}/{by}"
        if key not in found(options.out):
            row = measure(case, seed, options.processor, options.folder, kept / key.replace("/", "-"))
            write_json(options.out, {**found(options.out), key: row})
            print(key, json.dumps(row), flush=True)


AGAIN = "#"  # between the seed of a command that is run several times and which time it was


def table(results: Row) -> list[str]:
    """The results as Markdown: a line for each case and way of counting time, its seeds side by side with their mean."""
    lines = ["| case | by | seeds | mean | seconds | updates |", "|---|---|---|---|---|---|"]
    for case in CASES:
        for by, cores in (("clock", "clock, two cores"), ("processor", "one core")):
            several = [row for key, row in sorted(results.items()) if is_of(key, case, by)]
            if several:
                digits = 3 if case.scores is nats else 1
                values = [row["value"] for row in several]
                seeds = ", ".join(f"{value:.{digits}f}" for value in values)
                times, steps = (", ".join(f"{row[name]:,.0f}" for row in several) for name in ("seconds", "steps"))
                mean = f"{sum(values) / len(values):.{digits}f}"
                lines.append(f"| `{case.name}` | {cores} | {seeds} | {mean} | {times} | {steps} |")
    return [
        *lines,
        *(repeated(case, results) for case in CASES if any(f"{case.name}/1{AGAIN}1/" in key for key in results)),
    ]


def is_of(key: str, case: Case, by: str) -> bool:
    """Whether a row is of this case, one of its seeds, counted so."""
    name, seed, counted = key.split("/")
    return (name, counted) == (case.name, by) and AGAIN not in seed


def repeated(case: Case, results: Row) -> str:
    """What the same command with the same seed came to, time after time, with the standard deviation."""
    values = [row["value"] for key, row in sorted(results.items()) if key.startswith(f"{case.name}/") and AGAIN in key]
    told = ", ".join(f"{value:.2f}" for value in values)
    return f"`regard {case.verb} {case.train}`, {len(values)} times: {told}; standard deviation {stdev(values):.2f}"


def found(path: Path) -> Row:
    rows: Row = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return rows


BY_PROCESSOR = """
import time
time.monotonic = time.perf_counter = time.process_time
import sys
from regard.cli.main import run
sys.exit(run())
"""


def measure(case: Case, seed: int, processor: bool, data: Path, out: Path) -> Row:
    """Train as a person would, in so much time, into the folder `out`; then score the test set."""
    out = out.resolve()
    path = os.pathsep.join([str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")])
    alone = {"OMP_NUM_THREADS": "1"} if processor else {}
    cache = tempfile.mkdtemp(dir=out.parent)  # what was computed before does not help
    environment = {**os.environ, **alone, "PYTHONPATH": path, "REGARD_CACHE": cache}
    regard = [sys.executable, *(["-c", BY_PROCESSOR] if processor else ["-m", "regard"])]
    before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with out.with_name(f"{out.name}.log").open("w") as log:
        train = [*regard, case.verb, *case.train.split(), "--seed", str(seed), "-o", str(out)]
        subprocess.run(train, cwd=data, env=environment, check=True, stdout=log, stderr=subprocess.STDOUT)
    by_clock = time.monotonic() - before[0]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_processor = used.ru_utime + used.ru_stime - before[1].ru_utime - before[1].ru_stime
    test = [sys.executable, "-m", "regard", "eval", str(case.run_in(out)), "--on", *case.test.split(), "--json"]
    told = subprocess.run(test, cwd=data, env=environment, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(cache)
    return {
        **case.scores(json.loads(told)),
        "by": "processor" if processor else "clock",
        "seconds": round(of_processor if processor else by_clock, 1),
        "cores": 1 if processor else os.cpu_count(),
        "steps": max(row["step"] for row in RunLog(case.run_in(out)).rows()),
    }


def prepare(data: Path, out: Path) -> None:
    """The texts as files of lines and columns, Multi30k also cut to its first pairs."""
    out.mkdir(parents=True, exist_ok=True)
    for side in ("en", "de"):
        for part, name in (("train", "m29000"), ("val", "val"), ("test_2016_flickr", "test")):
            (out / f"{name}.{side}").write_bytes(unpacked(data / "multi30k" / f"{part}.{side}.gz"))
        lines = (out / f"m29000.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        for pairs in (1000, 5000):
            (out / f"m{pairs}.{side}").write_text("".join(lines[:pairs]), encoding="utf-8")
    text = (data / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    (out / "tinyshakespeare.txt").write_text(text, encoding="utf-8")
    (out / "tinyshakespeare.last.txt").write_text(text[int(len(text) * 0.9) :], encoding="utf-8")
    for characters in (100_000, 300_000, 1_000_000):
        (out / f"tinyshakespeare.{characters}.txt").write_text(text[:characters], encoding="utf-8")
    for part in ("train", "valid", "test"):
        (out / f"ptb.{part}.txt").write_bytes(unpacked(data / "ptb" / f"ptb.{part}.txt.gz"))
        (out / f"sst2.{part}.tsv").write_bytes(
            (data / "sst2" / f"{'dev' if part == 'valid' else part}.tsv").read_bytes()
        )
    reviews = (out / "sst2.train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    for count in (300, 1400, 6920):
        (out / f"sst2.{count}.tsv").write_text("".join(reviews[:count]), encoding="utf-8")
    for part in ("train", "test"):
        (out / f"imdb.{part}.jsonl").write_bytes(unpacked(data / "imdb" / f"{part}_half.jsonl.gz"))
        asked = (data / "trec" / f"TREC.{part}.all").read_text(encoding="latin1").splitlines()
        rows(out / f"trec.{part}.tsv", [line.partition(" ")[::-2] for line in asked])
    news = list(csv.reader(unpacked(data / "agnews" / "train_10k.csv.gz").decode("utf-8").splitlines()))
    told = [(" ".join(texts).replace("\t", " "), label) for label, *texts in news if label.isdigit()]
    shutil.copytree(data / "mnist", out / "mnist", dirs_exist_ok=True)
    rows(out / "agnews.train.tsv", told[:-1000])
    rows(out / "agnews.test.tsv", told[-1000:])
    prepare_held_out(data, out)


def prepare_held_out(data: Path, out: Path) -> None:
    """Opinions in five degrees, words with how they are spoken, and spoken digits as pictures of their sound."""
    for part, name in (("train", "train"), ("valid", "dev"), ("test", "test")):
        told = (data / "sst2" / f"stsa.fine.{name}").read_text(encoding="utf-8").splitlines()
        rows(out / f"sst5.{part}.tsv", [line.partition(" ")[::-2] for line in told])
    with zipfile.ZipFile(data / "cmudict" / "cmudict.zip") as archive:
        spoken = [line.split(" ", 2) for line in archive.read("cmudict/cmudict").decode("latin1").splitlines()]
    words = [(word.lower(), sounds) for word, number, sounds in spoken if number == "1" and word.isalpha()]
    random.Random(1).shuffle(words)
    for part, chosen in (("test", words[:2000]), ("valid", words[2000:3000]), ("train", words[3000:])):
        rows(out / f"cmudict.{part}.tsv", chosen)
    with np.load(data / "fsdd" / "fsdd.npz") as archive:
        digits = dict(archive)  # each is unpacked when it is asked for, so once
    for place, (begin, end) in enumerate(pairwise(digits["offset"].tolist())):
        number = int(digits["index"][place])
        part = "test" if number < 5 else "valid" if number < 10 else "train"
        folder = out / "fsdd" / part / str(digits["digit"][place])
        folder.mkdir(parents=True, exist_ok=True)
        spectrogram(digits["audio"][begin:end]).save(folder / f"{digits['speaker'][place]}-{number}.png")


def spectrogram(wave: np.ndarray) -> Image.Image:
    """The loudness of each frequency over time, in decibels of the loudest, as a picture of 64 x 64."""
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(wave / 32768.0, 128), 256)[::64]
    power = np.abs(np.fft.rfft(frames * np.hanning(256), axis=1)) ** 2  # (frames, 129)
    decibels = 10 * np.log10(np.maximum(power, 1e-10) / max(1e-10, float(power.max())))
    grey = np.uint8(np.clip(1 + decibels.T[::-1] / 80, 0, 1) * 255)  # low frequencies below
    return Image.fromarray(grey).resize((64, 64), Image.Resampling.BILINEAR)


def unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def rows(path: Path, texts: Sequence[Sequence[str]]) -> None:
    path.write_text("".join(f"{text}\t{label}\n" for text, label in texts), encoding="utf-8")


if __name__ == "__main__":
    main()
