"""Networks that see, side by side: MNIST, CIFAR-10, Flickr8k, easy-VQA and the built-in drawn scenes.

    python benchmarks/prepare_pictures.py FOLDER     (once, with REGARD_DATA naming the public sets)
    REGARD_DATA=FOLDER python benchmarks/seeing.py cifar10 --budget 10m --out docs/results/seeing.json [--rows vit mixer]

Each row is trained for the same time and scored on the test set, once. Results are kept in the file as they come, and what
is there is not run again. `shapes` and `answers` need no data. One thread unless OMP_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from regard.compare.conditions import conditions
from regard.config import merge
from regard.data.builtin.scenes import area_share, scenes, share_on
from regard.tasks.budget import fit
from regard.tasks.configure import data_folder, run_config
from regard.tasks.evaluate_pictures import evaluate_answers, evaluate_captions, evaluate_pictures
from regard.tasks.run import start_run
from regard.tasks.see import as_pixels, see
from regard.training.config import seconds

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "pictures"
MNIST_TEST = ["mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"]
MUON = {"optimiser": "muon", "lr": 1e-2, "batch_pictures": 64}  # three times fewer updates for networks of matrices
CNN = {"channels": (32, 64, 128, 192), "layers": 1}
ONCE = {"data": {"builtin_size": 10}, "train": {"steps": 1, "validate_every": 1, "warmup": 0}}
TABLES: dict[str, dict[str, Any]] = {
    "mnist": {
        "config": str(CONFIGS / "mnist.toml"),
        "test": MNIST_TEST,
        "rows": {
            "convnet": {"model": {"kind": "convnet", "channels": (16, 32, 64)}},
            "vit": {
                "model": {"kind": "vit", "patch": 7, "layers": 4, "width": 96, "feed_forward": 192, "dropout": 0.0},
                "train": MUON,
            },
            "mixer": {
                "model": {"kind": "mixer", "patch": 4, "layers": 4, "width": 64, "feed_forward": 128, "dropout": 0.0},
                "train": MUON,
            },
            "convmixer": {"model": {"kind": "convmixer", "patch": 4, "layers": 4, "width": 64}},
        },
    },
    "cifar10": {  # all have 290 to 330 thousand parameters
        "config": str(CONFIGS / "cifar10.toml"),
        "test": ["cifar10/test.bin"],
        "rows": {
            "convnet": {"model": {"kind": "convnet", **CNN}},
            "convnet + se": {"model": {"kind": "convnet", **CNN, "attention": "se"}},
            "convnet + cbam": {"model": {"kind": "convnet", **CNN, "attention": "cbam"}},
            "resnet": {"model": {"kind": "resnet", "channels": (32, 64, 128), "blocks": 1}},
            "vit": {"model": {"kind": "vit", "layers": 4, "width": 96, "feed_forward": 192}, "train": MUON},
            "mixer": {
                "model": {"kind": "mixer", "layers": 5, "width": 112, "places": 64, "feed_forward": 224},
                "train": MUON,
            },
            "convmixer": {"model": {"kind": "convmixer", "layers": 6, "width": 200, "kernel": 5, "patch": 4}},
        },
    },
    "flickr8k": {
        "config": str(CONFIGS / "flickr8k.toml"),
        "test": ["flickr8k/test.jsonl"],
        "rows": {
            "show-and-tell": {"model": {"kind": "show-and-tell", "hidden": 384}},
            "show-attend-tell": {"model": {"kind": "show-attend-tell", "hidden": 384}},
            "caption-transformer": {
                "model": {"kind": "caption-transformer", "layers": 2, "heads": 8, "feed_forward": 1024}
            },
        },
    },
    "easy-vqa": {"config": str(CONFIGS / "easy-vqa.toml"), "test": ["easy_vqa/test.jsonl"], "rows": {"answerer": {}}},
    "shapes": {
        "config": "caption",
        "test": ["builtin/shapes/test"],
        "rows": {
            kind: {"preset": "demo", "model": {"kind": kind}}
            for kind in ("show-and-tell", "show-attend-tell", "caption-transformer")
        }
        | {"show-attend-tell, λ = 0": {"preset": "demo", "model": {"kind": "show-attend-tell", "spread": 0.0}}},
    },
    "answers": {
        "config": "answer",
        "test": ["builtin/shapes/test"],
        "rows": {"answerer": {"preset": "demo", "train": {"optimiser": "muon", "lr": 5e-3}}},
    },
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=TABLES)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--rows", nargs="+")
    parser.add_argument("--runs", type=Path, default=Path("runs/seeing"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("seeing.json"))
    parser.add_argument("--tiny", action="store_true", help="one step on a few drawn scenes, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            for name, row in (("shapes", "show-attend-tell"), ("answers", "answerer")):
                test = write_scenes(Path(folder) / f"{name}.jsonl", name == "answers")
                print(name, row, json.dumps(measured(name, row, 0.0, Path(folder) / name, test)), flush=True)
        return
    if options.table is None:
        parser.error(f"name one of {', '.join(TABLES)} (or --tiny)")
    table = TABLES[options.table]
    for row in options.rows or table["rows"]:
        found = read(options.out)
        if row in found.get(options.table, {}):
            continue
        entry = measured(options.table, row, float(seconds(options.budget)), options.runs / options.table / row)
        found = read(options.out)
        found.setdefault(options.table, {})[row] = {"budget": options.budget, **entry}
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        print(options.table, row, json.dumps(entry), flush=True)


def write_scenes(path: Path, asked: bool) -> Path:
    """Two drawn scenes as files, with a caption or a question each."""
    rows = []
    for number, picture in enumerate(scenes(2, 3).pictures):
        Image.fromarray(picture).save(path.with_name(f"{number}.png"))
        said = {"question": "is there a circle?", "answer": "yes"} if asked else {"captions": ["a circle"]}
        rows.append(json.dumps({"picture": f"{number}.png", **said}))
    path.write_text("\n".join(rows) + "\n")
    return path


def read(path: Path) -> dict[str, Any]:
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {"conditions": conditions("cpu").data()}


def measured(name: str, row: str, budget: float, folder: Path, tiny: Path | None = None) -> dict[str, Any]:
    """Train a row and score it; with `tiny`, for one step, on this test set."""
    table = TABLES[name]
    what = table["config"]
    config = run_config(what, table["rows"][row] if tiny is None else merge(table["rows"][row], ONCE))
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    data_root = data_folder(what)
    shutil.rmtree(folder, ignore_errors=True)
    if tiny is None:
        trial = folder.with_name(f"{folder.name}-m")
        config = fit(f"{name} {row}", config, data_root, budget, trial, "cpu", say)
    result = start_run(config, data_root=data_root, folder=folder)
    user = result.load()
    size = sum(p.numel() for p in user.model.parameters() if p.requires_grad)
    progress = result.outcome.progress
    entry = {
        "parameters": size,
        "steps": progress.step,
        "seconds": progress.seconds,
        "validation": result.outcome.metrics,
    }
    return entry | (scored(user, table["test"], 300) if tiny is None else scored(user, [str(tiny)], 2, tiny=True))


def scored(user: Any, test: list[str], looked: int, tiny: bool = False) -> dict[str, Any]:
    task = user.config.task
    if task == "caption":
        found = evaluate_captions(user, test).data()
        drawn = test[0].startswith("builtin") or tiny
        looks = drawn and user.config.model.kind != "show-and-tell"
        return {"test": found, **({"on the shape": shares(user, looked)} if looks else {})}
    found = (evaluate_answers if task == "answer" else evaluate_pictures)(user, test)
    scores = found.scores
    return {
        "test": {
            "accuracy": scores.accuracy,
            "interval": [scores.low, scores.high],
            "top_5": found.top_5,
            "items": len(found.wanted),
            "per_second": len(found.wanted) / found.seconds,
        }
    }


def shares(user: Any, count: int) -> dict[str, float]:
    """Of the map of a shape's word, the share of its weight on the patches that the shape touches; and of an even map.

    Of all heads together, and of the best one: chosen on the first half of the scenes, measured on the second.
    """
    drawn = scenes(count, 3)
    on, even, scene = [], [], []
    for number, (picture, things) in enumerate(zip(drawn.pictures, drawn.things, strict=True)):
        seen = see(picture, user.format)
        caption = user.caption(picture)
        layers = user.weights(as_pixels([seen], user.format, user.device), caption.ids)
        weights, grid = np.concatenate(layers), user.model.encoder.grid  # (layers x heads, T, P)
        for thing in things:
            if caption.tokens.count(thing.kind) == 1 and sum(other.kind == thing.kind for other in things) == 1:
                place = caption.tokens.index(thing.kind)
                on.append([share_on(head[place], grid, thing.mask) for head in weights])
                even.append(area_share(grid, thing.mask))
                scene.append(number)
    if not on:
        return {"words": 0}  # it has not yet learned to name a shape
    each, first = np.array(on), np.array(scene) < count // 2  # (words, layers x heads), (words,)
    best = int(each[first].mean(axis=0).argmax())
    found = {"words": len(on), "share": float(each.mean()), "best head": float(each[~first, best].mean())}
    return found | {"heads": each.shape[1], "random map": float(np.mean(even))}


if __name__ == "__main__":
    torch.set_num_threads(max(1, torch.get_num_threads()))
    main()
