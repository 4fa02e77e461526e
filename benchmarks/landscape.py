"""Loss landscapes of the same small Transformer and ResNet, with and without residual connections (Li et al. 2018).

    python benchmarks/landscape.py [transformer resnet] --runs runs/landscape --image docs/images/landscape --out landscape.json

Each model is trained twice on built-in data, with the same settings, seed and number of updates; only `model.residual`
differs. Each run lies in a folder of its own under `--runs`, and one that was stopped goes on. Then `regard landscape` of both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from regard.config import merge
from regard.files import write_json
from regard.tasks.configure import run_config
from regard.tasks.run import resume_run, start_run
from regard.training.state import has_checkpoint

Settings = dict[str, Any]
BOTH = {"with residuals": True, "without residuals": False}
TRAIN: Settings = {"lr": 2e-3, "warmup": 50, "schedule": "linear", "smoothing": 0.0, "validate_every": 50, "average": 0,
                   "patience": 0}  # fmt: skip
TRANSFORMER: Settings = {
    "data": {"train": ["builtin/copy/8"], "builtin_size": 8_000, "hold_out": 200},
    "tokens": {"kind": "character"},
    "model": {
        "kind": "transformer", "encoder_layers": 3, "decoder_layers": 3, "width": 48, "heads": 4, "feed_forward": 96,
        "dropout": 0.0,
    },
    "train": {**TRAIN, "steps": 500, "batch_tokens": 768},
    "validate": {"sentences": 50},
}  # fmt: skip
RESNET: Settings = {
    "data": {"train": ["builtin/glyphs"], "builtin_size": 4_000, "hold_out": 300, "size": 16},
    "model": {"kind": "resnet", "channels": [8, 16], "blocks": 6, "dropout": 0.0},
    "train": {**TRAIN, "steps": 1200, "lr": 4e-3, "validate_every": 200, "batch_pictures": 32},
}
MODELS = {"transformer": ("translate", TRANSFORMER), "resnet": ("classify", RESNET)}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--runs", type=Path, default=Path("runs/landscape"))
    parser.add_argument("--image", type=Path, default=Path("landscape"), help="beginning of the figures' names")
    parser.add_argument("--out", type=Path, default=Path("landscape.json"))
    parser.add_argument("--tiny", action="store_true", help="a few updates of small models, and a coarse landscape")
    options = parser.parse_args(words)
    if options.tiny:
        _tiny()
        return
    found = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    for name in options.what:
        task, settings = MODELS[name]
        runs = [trained(task, settings, residual, options.runs / f"{name}-{residual}") for residual in BOTH.values()]
        found[name] = drawn(runs, options.image.with_name(f"{options.image.name}-{name}.png"))
        write_json(options.out, found)


def trained(task: str, settings: Settings, residual: bool, folder: Path) -> Path:
    """The folder of a run with or without residual connections, trained now if it has not ended."""
    if has_checkpoint(folder / "checkpoints"):
        resume_run(folder)
    else:
        start_run(run_config(task, merge(settings, {"model": {"residual": residual}})), folder=folder)
    return folder


def drawn(runs: Sequence[Path], image: Path, **options: Any) -> Settings:
    """The landscape of some runs side by side, as a picture; and its numbers, without those of the maps."""
    found = regard.landscape_of(runs, names=list(BOTH), **options)
    found.save(image)
    print(found.text(110), flush=True)
    print(f"wrote {image}", flush=True)
    return {each.name: each.summary() for each in found.surfaces}


def _tiny() -> None:
    small = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 16}
    data = {"builtin_size": 60, "hold_out": 7}
    train = {"steps": 4, "warmup": 1, "validate_every": 2}
    parts = {
        "translate": merge(TRANSFORMER, {"model": small, "data": data, "train": train, "validate": {"sentences": 0}}),
        "classify": merge(RESNET, {"model": {"channels": [4, 8], "blocks": 1}, "data": data, "train": train}),
    }
    with tempfile.TemporaryDirectory() as place:
        for task, settings in parts.items():
            runs = [trained(task, settings, residual, Path(place) / f"{task}-{residual}") for residual in BOTH.values()]
            drawn(runs, Path(place) / f"{task}.png", points=3, directions=2, iterations=2, examples=5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
