"""What each training trick of the Transformer is worth: each taken away from a small one that reads dates.

    python benchmarks/ablation.py --out docs/results/ablation.json

Few pairs (so that dropout and label smoothing have something to do), equal steps, two seeds. Results are kept in the
file as they come, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.compare.conditions import conditions
from regard.config import merge
from regard.data.pairs import read_pairs
from regard.errors import RegardError
from regard.tasks.configure import run_config
from regard.tasks.run import start_run
from regard.tasks.translate.evaluate import evaluate
from regard.training.history import read_history

BASE: dict[str, Any] = {
    "preset": "demo",
    "data": {"train": "builtin/dates", "builtin_size": 4000},
    "tokens": {"kind": "character"},
    "model": {"norm": "pre", "dropout": 0.1},
    "train": {
        "steps": 400,
        "batch_tokens": 1024,
        "lr": 3e-3,
        "schedule": "linear",
        "warmup": 60,
        "smoothing": 0.1,
        "average": 0,
        "select": "loss",
        "validate_every": 200,
        "patience": 0,
    },
    "validate": {"sentences": 0},
    "decode": {"beam": 1},
}
TINY = merge(BASE, {"data": {"builtin_size": 60}, "model": {"width": 32, "feed_forward": 64}, "train": {"warmup": 0}})
WITHOUT: dict[str, dict[str, Any]] = {
    "nothing taken away (norm before)": {},
    "norm after the residual (post)": {"model": {"norm": "post"}},
    "no layer norm": {"model": {"norm": "none"}},
    "no residuals": {"model": {"residual": False}},
    "no scaling by √E": {"model": {"scaled": False}},
    "no positions": {"model": {"positions": "none"}},
    "no warm-up": {"train": {"warmup": 0}},
    "no warm-up, norm after": {"model": {"norm": "post"}, "train": {"warmup": 0}},
    "no label smoothing": {"train": {"smoothing": 0.0}},
    "no dropout": {"model": {"dropout": 0.0}},
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=BASE["train"]["steps"])
    parser.add_argument("--out", type=Path, default=Path("ablation.json"))
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    arguments = parser.parse_args(words)
    base, rows_of, tested = (TINY, dict(list(WITHOUT.items())[:2]), 7) if arguments.tiny else (BASE, WITHOUT, 1000)
    if arguments.tiny:
        arguments.seeds, arguments.steps = [1], 2
        arguments.out = Path(tempfile.mkdtemp()) / arguments.out.name  # not among real results
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    found.setdefault("conditions", conditions("cpu").data())
    found.setdefault("base", base)
    table = found.setdefault("without", {})
    for seed in arguments.seeds:
        for name, change in rows_of.items():
            rows = table.setdefault(name, {})
            if str(seed) not in rows:
                rows[str(seed)] = measure(merge(base, change), seed, arguments.steps, tested)
                arguments.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            print(name, seed, json.dumps(rows[str(seed)]), flush=True)


def measure(values: dict[str, Any], seed: int, steps: int, tested: int) -> dict[str, Any]:
    """Train with these values; loss and exactly right answers on unseen dates."""
    folder = Path(tempfile.mkdtemp()) / "run"
    started = time.monotonic()
    values = merge(values, {"train": {"seed": seed, "steps": steps}})
    try:
        result = start_run(run_config("translate", values), folder=folder)
    except RegardError as error:
        return {"failed": str(error)}
    pairs = read_pairs(["builtin/dates/test"], ("source", "target"))[:tested]
    model = result.load()
    scores = model.score(pairs)
    history = read_history(folder)
    assert history is not None
    shutil.rmtree(folder.parent)
    return {
        "exact": evaluate(model, pairs, one_answer=True, metrics=("bleu",)).exact,
        "nll": -sum(each.log_probability for each in scores) / sum(each.tokens for each in scores),
        "validation": [round(look.metrics["loss"], 4) for look in history.looks if math.isfinite(look.metrics["loss"])],
        "seconds": round(time.monotonic() - started, 1),
    }


if __name__ == "__main__":
    main()
