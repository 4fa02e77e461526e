"""How far positions reach: language models on longer windows than they learned from, and sums of longer numbers.

    REGARD_DATA=... python benchmarks/positions.py extrapolate --out docs/results/positions.json [--rows rotary alibi]
    python benchmarks/positions.py addition --out docs/results/positions.json

`extrapolate`: tiny Shakespeare by characters, windows of 128, then of 1, 2, 4 and 8 times that. `addition`: sums of numbers
with up to 5 digits in the forms of Shen et al. 2023, then with 1 to 10 digits each. All rows of a table have the same
steps, one thread. Results are kept in the file as they come, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.bench.extrapolate import extrapolate
from regard.compare.conditions import conditions
from regard.config import merge
from regard.evaluate.translation import exact_match
from regard.runs import CONFIG
from regard.tasks.configure import data_folder, run_config
from regard.tasks.run import resume_run, start_run
from regard.tasks.translate.evaluate import read_test_set
from regard.training.show import Show

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "long"
CONTEXT = 128
POSITIONS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"positions": "sinusoidal"},
    "sinusoidal, random offset": {"positions": "sinusoidal", "random_offset": 7 * CONTEXT},
    "learned": {"positions": "learned", "max_length": CONTEXT},
    "learned, random offset": {"positions": "learned", "max_length": CONTEXT, "random_offset": 7 * CONTEXT},
    "rotary": {"positions": "rotary"},
    "shaw": {"positions": "shaw"},
    "t5": {"positions": "t5"},
    "alibi": {"positions": "alibi"},
    "none": {"positions": "none"},
}
ONCE = {"steps": 1, "validate_every": 1, "warmup": 0}
SMALL = {"width": 16, "heads": 2, "feed_forward": 32}
TINY_REACH = {
    "data": {"train": ["builtin/python"], "builtin_size": 9000, "context": 16},
    "model": {"layers": 1, "max_length": 16, **SMALL},
    "train": ONCE,
}
TINY_SUMS = {
    "data": {"builtin_size": 50},
    "model": {"encoder_layers": 1, "decoder_layers": 1, **SMALL},
    "train": ONCE,
    "validate": {"sentences": 2},
}
DIGITS = 5  # of training
TESTED = 300  # sums of each number of digits
FORMS = ("addition", "addition-reversed", "addition-padded", "addition-reversed-padded")
SUMS: dict[str, dict[str, Any]] = {form: {"form": form, "model": {}} for form in FORMS} | {
    f"{form}, {name}": {"form": form, "model": model}
    for form in ("addition", "addition-reversed")
    for name, model in {
        "random offset": {"random_offset": 24},
        "rotary": {"positions": "rotary"},
        "shaw": {"positions": "shaw"},
        "alibi": {"positions": "alibi"},
        "none": {"positions": "none"},
    }.items()
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=("extrapolate", "addition"))
    parser.add_argument("--rows", nargs="+")
    parser.add_argument("--runs", type=Path, default=Path("runs/positions"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("positions.json"))
    parser.add_argument("--tiny", action="store_true", help="one step on built-in data, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(reach("rotary", Path(folder) / "reach", TINY_REACH)), flush=True)
            print(json.dumps(sums("addition", Path(folder) / "sums", TINY_SUMS)), flush=True)
        return
    if options.table is None:
        parser.error("name extrapolate or addition (or --tiny)")
    rows, measure = (POSITIONS, reach) if options.table == "extrapolate" else (SUMS, sums)
    for row in options.rows or rows:
        if row in read(options.out).get(options.table, {}):
            continue
        entry = measure(row, options.runs / options.table / row.replace(", ", "-").replace(" ", "-"))
        found = read(options.out)
        found.setdefault(options.table, {})[row] = entry
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        print(options.table, row, json.dumps(entry), flush=True)


def read(path: Path) -> dict[str, Any]:
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {"conditions": conditions("cpu").data()}


def trained(file: str, over: dict[str, Any], folder: Path) -> Any:
    """A run that has ended, whether it was started now or before."""
    if (folder / CONFIG).exists():
        return resume_run(folder, show=Show())
    what = str(CONFIGS / file)
    return start_run(run_config(what, over), data_root=data_folder(what), folder=folder, show=Show())


def reach(row: str, folder: Path, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """A language model with these positions, at each length."""
    over = {"data": {"context": CONTEXT}, "model": POSITIONS[row], "train": {"steps": 600, "validate_every": 150}}
    result = trained("shakespeare-512.toml", merge(over, more or {}), folder)
    found = extrapolate([folder], interpolate=row == "rotary")
    return {
        "steps": result.outcome.progress.step,
        "seconds": result.outcome.progress.seconds,
        "validation": result.outcome.metrics,
        "lengths": {"interpolated" if each.interpolated else "as trained": each.data()["lengths"] for each in found},
    }


def sums(row: str, folder: Path, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """A model that learned to add, at each number of digits."""
    form, model = SUMS[row]["form"], SUMS[row]["model"]
    over = {"data": {"train": [f"builtin/{form}/{DIGITS}"]}, "model": model}
    result = trained("addition.toml", merge(over, more or {}), folder)
    user = result.load()
    scores = {}
    for digits in range(1, 2 * DIGITS + 1) if more is None else (1, 2):
        tested = TESTED if more is None else 3
        pairs = read_test_set([f"builtin/{form}/{DIGITS}/test/{digits}"], folder)[:tested]
        outputs = [each.text for each in user.translate([source for source, _ in pairs])]
        scores[digits] = exact_match(outputs, [target for _, target in pairs])
    return {"steps": result.outcome.progress.step, "seconds": result.outcome.progress.seconds, "exact": scores}


if __name__ == "__main__":
    torch.set_num_threads(max(1, torch.get_num_threads()))
    main()
