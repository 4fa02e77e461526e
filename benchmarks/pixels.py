"""Pictures written pixel by pixel: MNIST in two and in four levels, and drawn figures, in nats a picture.

    REGARD_DATA=... python benchmarks/pixels.py mnist --minutes 12 --out docs/results/pixels.json [--images docs/images/pixels]
    REGARD_DATA=... python benchmarks/pixels.py mnist --models llama image-transformer pixelrnn --minutes 4 --out ...
    REGARD_DATA=... python benchmarks/pixels.py mnist-4 --minutes 4 --out ...
    python benchmarks/pixels.py figures --minutes 2 --out ...
    REGARD_DATA=... python benchmarks/pixels.py loop --minutes 27.6 --out ...
    REGARD_DATA=... python benchmarks/pixels.py pace
    python benchmarks/pixels.py table --out docs/results/pixels.json

Every run is what `regard train generate --data DATA --budget TIME` does, but for its clock: that is the processor's own time,
so that other programs cost nothing. `mnist` has no labels, and each pixel is black or white; `mnist-4` has labels and four grey
levels; 1,000 training pictures of MNIST are held out. Figures are of the 10,000 test pictures.
`loop` trains by a plain loop of its own in place of the recipe: Muon in float32 at a rate that falls to zero from the first
update on. `pace` times updates of the recipe beside those of this loop, in turns.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
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
from regard.data.stream import TokenStream, Windows
from regard.files import write_json
from regard.models.configs.pixels import PixelCNNConfig
from regard.models.language import LanguageModel
from regard.models.pixelcnn import PixelCNN
from regard.tasks.choose import Chooser
from regard.tasks.configure import asked_settings, run_config
from regard.tasks.generate.evaluate import evaluate_text
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.streams import stream_of
from regard.tasks.run import start_run
from regard.tokens.config import SPECIALS, TokensConfig
from regard.tokens.tokenizer import train_tokenizer
from regard.training.config import TrainConfig
from regard.training.history import RunLog
from regard.training.optimiser import clip_gradient, make_optimiser, set_rate
from regard.training.precision import autocast

Row = dict[str, Any]
ROWS = 16  # pictures of a batch
RATE, WARMUP = 8e-3, 100
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
    "llama": {"layers": 3, "width": 64, "heads": 4, "feed_forward": 172},
    "gpt2": {},
    "lstm": {},
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="mnist", choices=(*DATA, "loop", "pace", "table"))
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
        print(json.dumps(pace(_mnist(20 * ROWS))))
        return
    rows: list[Row] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    for kind in options.models if options.what in DATA else ():
        place = options.runs / f"{options.what}-{kind}-{options.seed}"
        row = measured(options.what, kind, place, 60 * options.minutes, options.seed)
        rows = [each for each in rows if _run_of(each) != _run_of(row)] + [row]
        write_json(options.out, rows)
        if options.images:
            draw_sheet(Generator.load(place), options.images / f"{options.what}-{kind}.png")
    if options.what == "loop":
        row = by_plain_loop(*map(_mnist, (None, None), ("train-", "t10k-")), 60 * options.minutes, options.seed)
        rows = [each for each in rows if _run_of(each) != _run_of(row)] + [row]
        write_json(options.out, rows)
    print(table(rows))


def _run_of(row: Row) -> tuple[Any, ...]:
    return row["data"], row["model"], row["seed"]


def measured(what: str, kind: str, folder: Path, seconds: float, seed: int, **small: Any) -> Row:
    """One kind of model on one set by the recipe, in so much time of the processor; nats of the test pictures."""
    train = {"seed": seed} if seconds else {"seed": seed, "steps": 3, "warmup": 0, "batch_tokens": 1}
    values = {
        "data": {**DATA[what], **small.pop("data", {})},
        "model": {"kind": kind, **(MODELS[kind] | small)},
        "train": train,
    }
    if not (folder / "best").exists():
        chooser = Chooser(asked_settings("generate", values), seconds, time.process_time(), time.process_time)
        start_run(run_config("generate", values), folder=folder, chooser=chooser if seconds else None)
    found = evaluate_text(Generator.load(folder), _test(what)).pictures
    assert found is not None
    bundle = load_bundle(folder / "best")
    updates = max(row["step"] for row in RunLog(folder).rows())
    return {
        "data": what, "model": kind, "seed": seed, "minutes": seconds / 60, "updates": updates,
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


# --- A plain loop, and updates beside it


def _mnist(most: int | None, part: str = "t10k-") -> list[str]:
    place = find_file(DATA["mnist"]["train"][0].replace("train-", part))
    return list(islice(NOTATIONS["pixels"].unpack([place], Form(side=28)), most))


def as_ids(texts: Sequence[str], side: int) -> tuple[TokenStream, torch.Tensor]:
    """Pictures as the product's stream of tokens, and as rows (pictures, 2 + pixels)."""
    tokens = TokensConfig(kind="pixels", side=side, levels=2)
    tokenizer = train_tokenizer(texts, tokens)
    stream = stream_of(tokenizer, texts, tokens, tokenizer.size)
    return stream, torch.from_numpy(stream.ids.astype("int64")).view(-1, 2 + side**2)


def plain_loss(model: LanguageModel, ids: torch.Tensor) -> torch.Tensor:
    """Nats a pixel; neither the label nor an end is predicted."""
    logits = model.output(model.read(ids[:, :-1]))[:, 1:]  # (B, pixels, V)
    return cross_entropy(logits.flatten(0, 1), ids[:, 2:].flatten())


def by_plain_loop(
    learned: Sequence[str], test: Sequence[str], seconds: float, seed: int, side: int = 28, **small: Any
) -> Row:
    """PixelCNN on pictures without labels, all but the last 1,000, for so much time of the processor."""
    torch.manual_seed(seed)
    (stream, ids), (_, unseen) = as_ids(learned, side), as_ids(test, side)
    ids = ids[: len(ids) - min(1000, len(ids) // 5)]
    config = PixelCNNConfig(**{**LARGE, **small}, rows=side, columns=side, labels_from=SPECIALS + 2)
    model = PixelCNN(config, stream.vocabulary).train()
    optimiser = make_optimiser(model, TrainConfig(optimiser="muon", lr=RATE, weight_decay=0.0, precision="float32"))
    random, order, updates = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long), 0
    began = time.process_time()
    while (share := (time.process_time() - began) / max(seconds, 1e-9)) < 1 or updates < 1:
        set_rate(optimiser, RATE * min(1, (updates + 1) / WARMUP) * max(0.0, 1 - share))
        order = torch.randperm(len(ids), generator=random) if len(order) < ROWS else order
        _update(model, optimiser, partial(plain_loss, model, ids[order[:ROWS]]))
        order, updates = order[ROWS:], updates + 1
    model.eval()
    with torch.inference_mode():
        total = sum(float(plain_loss(model, part)) * len(part) for part in unseen.split(50))
    nats = side**2 * total / len(unseen)
    return {
        "data": "mnist", "model": "pixelcnn, plain loop", "seed": seed, "minutes": seconds / 60, "updates": updates,
        "parameters": sum(each.numel() for each in model.parameters()), "settings": config.model_dump(mode="json"),
        "test_pictures": len(unseen), "dimensions": side**2, "test_nats": round(nats, 2),
        "test_bits_per_dimension": round(nats / side**2 / math.log(2), 4),
    }  # fmt: skip


def _update(model: LanguageModel, optimiser: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> None:
    loss().backward()  # type: ignore[no-untyped-call]
    clip_gradient(list(model.parameters()), 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def pace(texts: Sequence[str], side: int = 28, turns: int = 5, updates: int = 4, **small: Any) -> Row:
    """Processor seconds of an update: by the product's batches and loss, and by the plain loop, in turns; the medians."""
    stream, ids = as_ids(texts, side)
    windows = Windows(stream, side**2, ROWS, 1)
    config = PixelCNNConfig(**{**LARGE, **small}, rows=side, columns=side, labels_from=SPECIALS + 2)
    found: dict[str, list[float]] = {"plain loop": [], "float32": [], "auto": []}
    models = {way: PixelCNN(config, stream.vocabulary).train() for way in found}
    precision: dict[str, Any] = {way: "auto" if way == "auto" else "float32" for way in found}
    how = {way: TrainConfig(optimiser="muon", lr=RATE, precision=precision[way]) for way in found}
    optimisers = {way: make_optimiser(models[way], how[way]) for way in found}

    def product_loss(way: str, place: int) -> torch.Tensor:
        pictures = windows.get(0, place)
        with autocast(precision[way], torch.device("cpu")):
            return models[way](pictures).objective(dict(pictures.counts))

    for turn in range(turns):
        for way, model in models.items():
            began = time.process_time()
            for place in range(turn * updates, (turn + 1) * updates):
                place %= windows.count(0)
                rows = ids[ROWS * place : ROWS * (place + 1)]
                loss = partial(plain_loss, model, rows) if way == "plain loop" else partial(product_loss, way, place)
                _update(model, optimisers[way], loss)
            found[way].append((time.process_time() - began) / updates)
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
    small = {"layers": 2, "channels": 4, "kernel": 3}
    print(table([by_plain_loop(texts, texts, 0, 1, 8, **small)]))
    print(json.dumps(pace(texts, 8, 1, 1, **small)))


if __name__ == "__main__":
    main()
