"""What a translator gains from 500 pairs of another kind, and what it forgets: mixed, averaged, frozen, or new pairs alone.

    REGARD_DATA=... python benchmarks/fine_tuning.py prepare FOLDER
    python benchmarks/fine_tuning.py run FOLDER --processor --keep RUNS --out docs/results/fine_tuning.json
    python benchmarks/fine_tuning.py table --out docs/results/fine_tuning.json

The old data is Multi30k, English to French. The new is what Tatoeba's pairs (`fra_eng/fra-eng.zip`) say of food and drink: one
translation of each English sentence that has a word of `THEME`, 500 to train on, 100 to validate, 800 to test. Each way is a
command of `regard train translate` that is typed in FOLDER (`list` prints them). Both test sets are scored with the model's
own beam, cased, and compared with the model before by a paired bootstrap. What is in RUNS is not trained again. `--processor`
counts the processor's time of one thread, as `benchmarks/in_time.py` does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the folder of its parts lies

from peers.typed import typed_here

import regard
from regard.data.pairs import Pair, read_pairs
from regard.evaluate.translation import paired_bootstrap, score_translations
from regard.files import write_json
from regard.tasks.translate.predictor import Translator
from regard.training.finetune import read_table
from regard.training.history import RunLog

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
WORDS = """
apple apples ate beer bread breakfast cake cheese coffee cook cooked cooking delicious dinner drink eat eaten egg eggs fish food
fruit hungry kitchen lunch meal meat milk restaurant rice soup taste tastes tea wine
"""
THEME = frozenset(WORDS.split())
SIZES = {"train": 500, "valid": 100, "test": 800}  # different English sentences
BEFORE = "before"  # name of the model that the others go on from
SETS = {"food": ("food.test.tsv",), "multi30k": ("test.en", "test.fr")}  # test sets, new and old
BY_PROCESSOR = """
import time
time.monotonic = time.perf_counter = time.process_time
import sys
from regard.cli.main import run
sys.exit(run())
"""


@dataclass(frozen=True)
class Way:
    """A way to a model: the words after `regard train translate`, in which BEFORE is the run of the model before."""

    name: str
    words: str


NEW = "--data food.train.tsv --valid food.valid.tsv"
TUNED = f"--from BEFORE {NEW} --budget 1m"
ALONE = f"{TUNED} --set data.mix=0"
WAYS = (
    Way(BEFORE, "--data train.en train.fr --valid val.en val.fr --languages en,fr --budget 10m"),
    Way("mixed and averaged", TUNED),
    Way("mixed", f"{TUNED} --set train.blend=0"),
    Way("new data alone", ALONE),
    Way("alone, encoder frozen", f'{ALONE} --set train.freeze=["encoder"]'),
    Way("from scratch", f"{NEW} --languages en,fr --budget 1m"),
)
FEW = "--steps 2 --set validate.sentences=2 --set decode.max_length=8 --set probes=0"
TINY = (
    Way(BEFORE, f"--data train.en train.fr --valid val.en val.fr --languages en,fr --preset demo {FEW}"),
    Way("mixed and averaged", f"--from BEFORE {NEW} {FEW} --set train.blend=0.3"),
)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("list", "prepare", "run", "table"), default="list")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processor", action="store_true", help="by the processor's time, one thread")
    parser.add_argument("--keep", type=Path, default=Path("fine-tuning"), help="folder for the runs")
    parser.add_argument("--out", type=Path, default=Path("fine_tuning.json"))
    parser.add_argument("--tiny", action="store_true", help="two updates on a few made pairs")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            options.folder, options.keep, options.out = Path(place), Path(place) / "runs", Path(place) / "rows.json"
            made = [(f"a man eats {n} apples .", f"un homme mange {n} pommes .") for n in range(30)]
            write_sets(made, made[:10], dict.fromkeys(SIZES, 10), options.folder)
            run(options, TINY)
            print("\n".join(table(found(options.out))))
    elif options.verb == "prepare" and options.folder and os.environ.get("REGARD_DATA"):
        prepare(Path(os.environ["REGARD_DATA"]), options.folder)
    elif options.verb == "run" and options.folder:
        run(options, WAYS)
    elif options.verb == "table":
        print("\n".join(table(found(options.out))))
    else:
        print("\n".join(f"{way.name:22} regard train translate {way.words}" for way in WAYS))


# --- Data


def prepare(data: Path, out: Path) -> None:
    """Write Multi30k as parallel files, and Tatoeba's pairs of the theme as tables."""
    out.mkdir(parents=True, exist_ok=True)
    for part, name in (("train", "train"), ("val", "val"), ("test_2016_flickr", "test")):
        for side in ("en", "fr"):
            packed = (data / "multi30k" / f"{part}.{side}.gz").read_bytes()
            (out / f"{name}.{side}").write_bytes(gzip.decompress(packed))
    write_theme(read_pairs([str(data / "fra_eng" / "fra-eng.zip")]), SIZES, out)


def write_theme(pairs: Iterable[Pair], sizes: dict[str, int], out: Path) -> None:
    """Draw the sets of the theme: of each English sentence one translation, so that none stands in two sets."""
    about: dict[str, str] = {}
    for source, target in pairs:
        if THEME & set(re.findall(r"[a-z]+", source.lower())):
            about.setdefault(source, target)
    drawn = iter(random.Random(1).sample(sorted(about.items()), sum(sizes.values())))
    for part, count in sizes.items():
        rows = [next(drawn) for _ in range(count)]
        (out / f"food.{part}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")


def write_sets(theme: Sequence[Pair], other: Sequence[Pair], sizes: dict[str, int], out: Path) -> None:
    """Write made pairs as `prepare` does, to try the benchmark."""
    write_theme(theme, sizes, out)
    for name in ("train", "val", "test"):
        for place, side in enumerate(("en", "fr")):
            (out / f"{name}.{side}").write_text("".join(f"{pair[place]}\n" for pair in other), encoding="utf-8")


# --- Runs


def run(options: argparse.Namespace, ways: Sequence[Way]) -> None:
    """Train each way that is not there yet, translate both test sets, and write its row."""
    options.keep.mkdir(parents=True, exist_ok=True)
    sets = {name: read_pairs(files, data_root=options.folder) for name, files in SETS.items()}
    for way in ways:
        folder = options.keep.resolve() / way.name.replace(", ", "-").replace(" ", "-")
        if not (folder / "best").exists():
            train(way, folder, options)
        row: Row = {"command": f"regard train translate {way.words}"}
        row["steps"] = max(each["step"] for each in RunLog(folder).rows())
        row["old_weights"] = (read_table(folder) or {}).get("blend", 0.0)  # their share, where weights are averaged
        for name, pairs in sets.items():
            row[name] = scored(folder, options.keep.resolve() / BEFORE, name, pairs)
        write_json(options.out, {**found(options.out), way.name: row})
        print(way.name, json.dumps(row), flush=True)


def train(way: Way, folder: Path, options: argparse.Namespace) -> None:
    """Type the command in the folder of the data."""
    words = way.words.replace("BEFORE", str(folder.parent / BEFORE)).split()
    words = ["train", "translate", *words, "--seed", str(options.seed), "-o", str(folder)]
    if options.tiny:
        typed_here(words, options.folder)
        return
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    alone = {"OMP_NUM_THREADS": "1"} if options.processor else {}
    typed = [sys.executable, *(["-c", BY_PROCESSOR] if options.processor else ["-m", "regard"])]
    with folder.with_suffix(".log").open("w") as log:
        subprocess.run(
            [*typed, *words],
            cwd=options.folder,
            env={**os.environ, **alone, "PYTHONPATH": path},
            check=True,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def scored(run: Path, before: Path, name: str, pairs: Sequence[Pair]) -> Row:
    """BLEU of a run on a test set with its interval, and how it changed from the model before."""
    references = [target for _, target in pairs]
    outputs, old = (translated(each, name, pairs) for each in (run, before))
    score = score_translations(outputs, references, metrics=("bleu",))["bleu"]
    change = paired_bootstrap(old, outputs, references)
    figures = {"value": change.difference, "low": change.low, "high": change.high}
    return {key: value for key, value in asdict(score).items() if key != "name"} | {"change": figures}


def translated(run: Path, name: str, pairs: Sequence[Pair]) -> list[str]:
    """Translate the sources of a test set, once: the outputs are kept in the run's folder."""
    place = run / f"{name}.outputs.json"
    if not place.exists():
        translator = regard.load(run)
        assert isinstance(translator, Translator)
        found = translator.translate([source for source, _ in pairs], n_best=1, scores=False)
        write_json(place, [each.text for each in found])
    outputs: list[str] = json.loads(place.read_text(encoding="utf-8"))
    return outputs


# --- Results


def found(path: Path) -> Row:
    rows: Row = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return rows


def table(rows: Row) -> list[str]:
    """The results as Markdown: both test sets, and what changed against the model before."""
    lines = ["| | food: BLEU | gained | Multi30k: BLEU | lost or gained | updates |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        cells = []
        for test in SETS:
            cells.append(figure(row[test]))
            cells.append("" if name == BEFORE else figure(row[test]["change"], "+"))
        lines.append(f"| {name} | {' | '.join(cells)} | {row['steps']:,} |")
    return lines


def figure(score: Row, sign: str = "") -> str:
    value, low, high = (f"{score[key]:{sign}.1f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()
