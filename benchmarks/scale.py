"""A law of sizes: five small LLaMA-type models on four amounts of enwik8's first 10 MB, in the time of one core.

    REGARD_DATA=... python benchmarks/scale.py --runs runs/scale --image docs/images/scaling.png --out docs/results/scale.json

It is `regard scale generate --data enwik8_first10MB.gz --budget 20m`, and its numbers are kept. One that was stopped goes
on with the same `--runs`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.files import write_json
from regard.look.scaling import Scaling
from regard.scale.family import STATE, Request, begin, go_on, make_place, scale
from regard.scale.law import scaling_of
from regard.tasks.configure import asked_settings, run_config
from regard.tasks.tuning_show import make_trial_show

TEXT = "enwik8/enwik8_first10MB.gz"
SMALL: dict[str, Any] = {"tokens": {"kind": "character"}, "train": {"batch_tokens": 32}}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help=f"a text; without, REGARD_DATA/{TEXT}")
    parser.add_argument("--minutes", type=float, default=20.0, help="of the clock, for all runs together")
    parser.add_argument("--runs", type=Path, default=Path("runs/scale-enwik8"))
    parser.add_argument("--image", type=Path, default=Path("scaling.png"))
    parser.add_argument("--out", type=Path, default=Path("scale.json"))
    parser.add_argument(
        "--tiny", action="store_true", help="two sizes on two amounts of built-in sentences, in seconds"
    )
    options = parser.parse_args(words)
    if options.tiny:
        _tiny()
        return
    data = options.data or Path(os.environ.get("REGARD_DATA", "data")) / TEXT
    found = measured({"data": {"train": [str(data.absolute())]}}, 60 * options.minutes, options.runs)
    print(found.text(150))
    write_json(options.out, kept(found))
    print(f"wrote {found.save(options.image)} and {options.out}")


def measured(over: dict[str, Any], seconds: float, runs: Path) -> Scaling:
    """The family in a folder, begun or gone on with, and what follows from it."""
    show = make_trial_show()
    if (runs / STATE).exists():
        return scaling_of(go_on(runs, show))
    request = Request(run_config("generate", over), asked_settings("generate", over), None, seconds)
    return scaling_of(scale(request, make_place(runs), show, asked_at=time.monotonic()))


def kept(found: Scaling) -> dict[str, Any]:
    """All numbers, and with how many threads they were measured."""
    return {**found.data(), "threads": torch.get_num_threads(), "torch": torch.__version__}


def _tiny() -> None:
    over = {**SMALL, "data": {"train": ["builtin/sentences"], "builtin_size": 3_000, "context": 16}}
    sizes = {
        "8": {"width": 8, "heads": 2, "layers": 1, "feed_forward": 8},
        "16": {"width": 16, "heads": 2, "layers": 1},
    }
    with tempfile.TemporaryDirectory() as place:
        request = Request(run_config("generate", over), asked_settings("generate", over), None, 60.0, sizes, amounts=2)
        family = begin(request, Path(place), make_trial_show(), time.monotonic, time.monotonic())
        family.steps = [2, 4]  # whatever else the machine does
        family.write(Path(place))
        found = measured(over, 60.0, Path(place))
        print(found.text(110))
        found.save(Path(place) / "scaling.png")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
