"""Pictures written pixel by pixel: MNIST in two and in four levels, and drawn figures, in nats a picture.

    REGARD_DATA=... python benchmarks/pixels.py mnist --minutes 12 --out docs/results/pixels.json [--images docs/images/pixels]
    REGARD_DATA=... python benchmarks/pixels.py mnist --models llama image-transformer pixelrnn --minutes 4 --out ...
    REGARD_DATA=... python benchmarks/pixels.py mnist-4 --minutes 4 --out ...
    python benchmarks/pixels.py figures --minutes 2 --out ...
    REGARD_DATA=... python benchmarks/pixels.py pace
    python benchmarks/pixels.py table --out docs/results/pixels.json

Every run is what `regard train generate --data DATA --budget TIME` does, but for its clock: that is the processor's own time,
so that other programs cost nothing. `mnist` has no labels, and each pixel is black or white; `mnist-4` has labels and four grey
levels; 1,000 training pictures of MNIST are held out. Figures are of the 10,000 test pictures.
`pace` times updates of the recipe beside a plain loop over the same pictures, in turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from regard.bundle import load_bundle
from regard.config import find_file
from regard.data.form import Form
from regard.data.notation import NOTATIONS
from regard.data.stream import Windows
from regard.files import write_json
from regard.models.configs.pixels import PixelCNNConfig
from regard.models.pixelcnn import PixelCNN
from regard.tasks.choose import Chooser
from regard.tasks.configure import asked_settings, run_config
from regard.tasks.generate.evaluate import evaluate_text
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.streams import stream_of
from regard.tasks.run import start_run
from regard.tokens.config import TokensConfig
from regard.tokens.tokenizer import train_tokenizer
from regard.training.config import TrainConfig
from regard.training.history import RunLog
from regard.training.optimiser import autocast, clip_gradient, make_optimiser

Row = dict[str, Any]
ROWS = 16  # pictures of a batch
HELD_OUT = {"share": 1 / 60}
DATA: dict[str, Row] = {  # the data of each experiment, and what it is tested on
    "mnist": {"train": ["mnist/train-images-idx3-ubyte.gz"], **HELD_OUT},
    "mnist-4": {
        "train": ["mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"],
        "levels": 4,
        **HELD_OUT,
    },
    "figures": {"train": ["builtin/figures"]},
}
LARGE = {"layers": 7, "channels": 24, "kernel": 5}  # the largest that the recipe takes where there is time
MODELS: dict[str, Row] = {  # other sizes than the recipe's: it measures by the clock, and we do not
    "pixelcnn": LARGE,
    "pixelrnn": {},
    "image-transformer": {},
    "llama": {"layers": 4, "width": 128, "heads": 4, "feed_forward": 344},
    "gpt2": {},
    "lstm": {},
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="mnist", choices=(*DATA, "pace", "table"))
    parser.add_argument("--models", nargs="+", default=["pixelcnn"], choices=list(MODELS))
    parser.add_argument("--minutes", type=float, default=12.0, help="of the processor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/pixels"))
    parser.add_argument("--out", type=Path, default=Path("pixels.json"))
    parser.add_argument("--images", type=Path, help="a folder for the sheets")
    parser.add_argument("--tiny", action="store_true", help="some updates of small models on drawn figures")
    options = parser.parse_args(words)
    if options.tiny:
        _tiny()
        return
    if options.what == "pace":
        print(json.dumps(pace(_mnist())))
        return
    rows: list[Row] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    for kind in options.models if options.what in DATA else ():
        place = options.runs / f"{options.what}-{kind}-{options.seed}"
        row = measured(options.what, kind, place, 60 * options.minutes, options.seed)
        rows = [each for each in rows if _run_of(each) != _run_of(row)] + [row]
        write_json(options.out, rows)
        if options.images:
            draw_sheet(Generator.load(place), options.images / f"{options.what}-{kind}.png")
    print(table(rows))


def _run_of(row: Row) -> tuple[Any, ...]:
    return row["data"], row["model"], row["seed"]


def measured(data: str, kind: str, folder: Path, seconds: float, seed: int, **small: Any) -> Row:
    """One kind of model on one set by the recipe, in so much time of the processor; nats of the test pictures."""
    train = {"seed": seed} if seconds else {"seed": seed, "steps": 3, "warmup": 0, "batch_tokens": 1}
    values = {
        "data": {**DATA[data], **small.pop("data", {})},
        "model": {"kind": kind, **(MODELS[kind] | small)},
        "train": train,
    }
    if not (folder / "best").exists():
        chooser = Chooser(asked_settings("generate", values), seconds, time.process_time(), time.process_time)
        start_run(run_config("generate", values), folder=folder, chooser=chooser if seconds else None)
    found = evaluate_text(Generator.load(folder), _test(data)).pictures
    assert found is not None
    bundle = load_bundle(folder / "best")
    updates = max(row["step"] for row in RunLog(folder).rows())
    return {
        "data": data, "model": kind, "seed": seed, "minutes": seconds / 60, "updates": updates,
        "parameters": sum(each.numel() for each in bundle.model.parameters()),
        "settings": bundle.config.model.model_dump(mode="json"),
        "test_pictures": found.count, "dimensions": found.dimensions,
        "test_nats": round(found.nats, 2), "test_bits_per_dimension": round(found.bits_per_dimension, 4),
    }  # fmt: skip


def _test(data: str) -> list[str]:
    train: list[str] = DATA[data]["train"]
    return [f"{train[0]}/test"] if train[0].startswith("builtin/") else [n.replace("train-", "t10k-") for n in train]


def draw_sheet(generator: Generator, path: Path, count: int = 64) -> None:
    """A sheet of pictures written from nothing, not chosen."""
    from regard.tasks.generate.paint import beginnings, painted

    path.parent.mkdir(parents=True, exist_ok=True)
    painted(generator, beginnings(generator, count), seed=1).save(path)


# --- Updates beside a plain loop


def _mnist() -> list[str]:
    place = find_file(DATA["mnist"]["train"][0].replace("train-", "t10k-"))
    return list(islice(NOTATIONS["pixels"].unpack([place], Form(side=28)), 20 * ROWS))


def pace(texts: Sequence[str], side: int = 28, turns: int = 5, updates: int = 4, **small: Any) -> Row:
    """Processor seconds of an update: by the product's batches and loss, and by a plain loop, in turns; the medians."""
    tokens = TokensConfig(kind="pixels", side=side, levels=2)
    tokenizer = train_tokenizer(texts, tokens)
    stream = stream_of(tokenizer, texts, tokens, tokenizer.size)
    windows = Windows(stream, stream.counted, ROWS, 1)
    ids = torch.from_numpy(stream.ids.astype("int64")).view(-1, 2 + side**2)
    config = PixelCNNConfig(**{"layers": 7, "channels": 24, "kernel": 5, **small}, rows=side, columns=side)
    ways, found = ("float32", "auto", "plain"), dict[str, list[float]]()
    models = {way: PixelCNN(config, tokenizer.size).train() for way in ways}
    how = {
        way: TrainConfig(optimiser="muon", lr=8e-3, precision="auto" if way == "auto" else "float32") for way in ways
    }
    optimisers = {way: make_optimiser(models[way], how[way]) for way in ways}
    for turn in range(turns):
        for way in ways:
            model, began = models[way], time.process_time()
            for number in range(updates):
                place = (turn * updates + number) % windows.count(0)
                if way == "plain":
                    batch = ids[ROWS * place : ROWS * (place + 1)]
                    logits = model.output(model.read(batch[:, :-1]))[:, 1:]
                    loss = cross_entropy(logits.flatten(0, 1), batch[:, 2:].flatten())
                else:
                    pictures = windows.get(0, place)
                    with autocast(how[way].precision, torch.device("cpu")):
                        loss = model(pictures).objective(dict(pictures.counts))
                loss.backward()  # type: ignore[no-untyped-call]
                clip_gradient(list(model.parameters()), 1.0)
                optimisers[way].step()
                optimisers[way].zero_grad(set_to_none=True)
            found.setdefault(way, []).append((time.process_time() - began) / updates)
    return {way: round(sorted(each)[len(each) // 2], 4) for way, each in found.items()}


def table(rows: list[Row]) -> str:
    """The results as a table in Markdown."""
    lines = ["| data | model | parameters | processor minutes | updates | nats a picture, test | bits per dimension |"]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [
        f"| {row['data']} | {row['model']} | {row['parameters']:,} | {row['minutes']:.1f} | {row['updates']:,} "
        f"| {row['test_nats']:.2f} | {row['test_bits_per_dimension']:.4f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _tiny() -> None:
    models: Row = {
        "pixelcnn": {"layers": 2, "channels": 4, "width": 8},
        "pixelrnn": {"layers": 1, "width": 8, "hidden": 4},
        "image-transformer": {"layers": 1, "width": 8, "heads": 2, "feed_forward": 8, "memory": 8},
    }
    with TemporaryDirectory() as place:
        small = {"data": {"side": 8, "builtin_size": 4000}}
        rows = [measured("figures", kind, Path(place) / kind, 0, 1, **model, **small) for kind, model in models.items()]
        draw_sheet(Generator.load(Path(place) / "pixelcnn"), Path(place) / "sheet.png", 3)
    print(table(rows))
    texts = list(islice(NOTATIONS["pixels"].documents("builtin/figures", 40 * 64, Form(side=8)), 2 * ROWS))
    print(json.dumps(pace(texts, 8, 1, 1, layers=2, channels=4, kernel=3)))


if __name__ == "__main__":
    main()
