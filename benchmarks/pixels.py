"""Binary MNIST pixel by pixel: a gated PixelCNN, a row LSTM or an Image Transformer, in nats a picture.

    REGARD_DATA=... python benchmarks/pixels.py mnist --minutes 30 --out docs/results/pixels.json [--images docs/images/pixels]
    python benchmarks/pixels.py table --out docs/results/pixels.json

The pictures are REGARD_DATA/mnist/{train,t10k}-images-idx3-ubyte.gz. Each pixel is drawn once, white with probability
grey / 255, by a generator whose key is SEED and the SHA-256 of the picture: it is always drawn
the same way, in the test set too.
All but the last 1,000 training pictures are learned from; minutes are those of the clock, or of the processor with --processor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from regard.data.pictures.sets import read_idx
from regard.files import write_json
from regard.models.configs.pixels import ImageTransformerConfig, PixelCNNConfig, PixelRNNConfig
from regard.models.image_transformer import ImageTransformer
from regard.models.language import LanguageModel
from regard.models.pixelcnn import PixelCNN
from regard.models.pixelrnn import PixelRNN
from regard.training.config import TrainConfig
from regard.training.optimiser import clip_gradient, make_optimiser, set_rate

Row = dict[str, Any]
SEED = 2008
BEGIN, FIRST, NO_LABEL, VOCABULARY = 1, 4, 6, 7  # ids: begin, black (white is 5), no label; how many there are
VALIDATED = 1000  # pictures
ROWS = 16  # pictures of a batch
RATE, WARMUP = 8e-3, 100
MODELS: dict[str, Callable[[], LanguageModel]] = {
    "pixelcnn": lambda: PixelCNN(PixelCNNConfig(layers=7, channels=24, kernel=5, labels_from=NO_LABEL), VOCABULARY),
    "pixelrnn": lambda: PixelRNN(PixelRNNConfig(labels_from=NO_LABEL), VOCABULARY),
    "image-transformer": lambda: ImageTransformer(ImageTransformerConfig(), VOCABULARY),
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="mnist", choices=("mnist", "table"))
    parser.add_argument("--models", nargs="+", default=["pixelcnn"], choices=list(MODELS))
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--processor", action="store_true", help="minutes of the processor, not of the clock")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("pixels.json"))
    parser.add_argument("--images", type=Path, help="a folder for the sheets")
    parser.add_argument("--weights", type=Path, help="a folder for the weights")
    parser.add_argument("--tiny", action="store_true", help="some updates of small models on made-up pictures")
    options = parser.parse_args(words)
    if options.tiny:
        _tiny()
        return
    rows: list[Row] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    for name in options.models if options.what == "mnist" else ():
        torch.manual_seed(options.seed)
        model = MODELS[name]()
        train, test = (mnist(part) for part in ("train", "t10k"))
        clock = time.process_time if options.processor else time.monotonic
        row = trained(model, train, test, 60 * options.minutes, options.seed, clock)
        rows = [each for each in rows if (each["model"], each["seed"]) != (name, options.seed)]
        rows.append({"model": name, "seed": options.seed, **row})
        write_json(options.out, rows)
        if options.weights:
            options.weights.mkdir(parents=True, exist_ok=True)
            save_file(model.state_dict(), options.weights / f"{name}.safetensors")
        if options.images:
            options.images.mkdir(parents=True, exist_ok=True)
            sheet(written(model, 64, 28 * 28), 28).save(options.images / f"{name}.png")
    print(table(rows))


# --- Pictures


def mnist(part: str) -> Tensor:
    """The pictures of a part, drawn in black and white: (N, pixels), 0 and 1."""
    folder = Path(os.environ.get("REGARD_DATA", "data")) / "mnist"
    found = read_idx(folder / f"{part}-images-idx3-ubyte.gz").arrays
    assert found is not None
    return torch.from_numpy(np.stack([drawn(picture.reshape(-1)) for picture in found]))


def drawn(grey: np.ndarray) -> np.ndarray:
    """One picture (pixels,) of bytes in black and white: each pixel is white with probability grey / 255."""
    key = int.from_bytes(hashlib.sha256(np.ascontiguousarray(grey).tobytes()).digest()[:8], "big")
    random = np.random.Generator(np.random.SFC64(np.random.SeedSequence((SEED, key))))
    return (random.random(len(grey)) * 255 < grey).astype(np.int64)


def as_tokens(pictures: Tensor) -> Tensor:
    """Pictures (B, pixels) as begin, no label, and their pixels: (B, 2 + pixels)."""
    return torch.cat([torch.tensor([[BEGIN, NO_LABEL]]).expand(len(pictures), 2), pictures + FIRST], dim=1)


# --- Learning and writing


def loss_of(model: LanguageModel, pictures: Tensor) -> Tensor:
    """Nats a pixel; neither the label nor an end is predicted."""
    ids = as_tokens(pictures)
    logits = model.output(model.read(ids[:, :-1]))[:, 1:]  # (B, pixels, V)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 2:].flatten())


@torch.inference_mode()
def nats(model: LanguageModel, pictures: Tensor) -> float:
    """Nats a picture."""
    model.eval()
    total = sum(float(loss_of(model, part)) * part.numel() for part in pictures.split(50))
    return total / len(pictures)


def trained(
    model: LanguageModel,
    train: Tensor,
    test: Tensor,
    seconds: float,
    seed: int,
    clock: Callable[[], float],
    most: float = math.inf,
) -> Row:
    """Train for so long, with Muon at a rate that falls to zero with the time; what came of it."""
    held = min(VALIDATED, len(train) // 5)
    learned, valid = train[:-held], train[-held:]
    optimiser = make_optimiser(model, TrainConfig(optimiser="muon", lr=RATE, weight_decay=0.0))
    parameters, random = list(model.parameters()), torch.Generator().manual_seed(seed)
    order, updates, began, spent = torch.empty(0, dtype=torch.long), 0, clock(), time.process_time()
    model.train()
    while (share := (clock() - began) / seconds) < 1 and updates < most:
        set_rate(optimiser, RATE * min(1, (updates + 1) / WARMUP) * (1 - share))
        order = torch.randperm(len(learned), generator=random) if len(order) < ROWS else order
        batch, order = learned[order[:ROWS]], order[ROWS:]
        optimiser.zero_grad(set_to_none=True)
        loss_of(model, batch).backward()
        clip_gradient(parameters, 1.0)
        optimiser.step()
        updates += 1
    spent = time.process_time() - spent
    found = nats(model, test)
    return {
        "parameters": sum(each.numel() for each in parameters), "updates": updates, "pictures": updates * ROWS,
        "processor_minutes": round(spent / 60, 1), "validation_nats": round(nats(model, valid), 2),
        "test_nats": round(found, 2), "test_bits_per_dimension": round(found / math.log(2) / test.size(1), 4),
    }  # fmt: skip


@torch.inference_mode()
def written(model: Any, count: int, pixels: int, seed: int = 1) -> Tensor:
    """Pictures that a model writes from nothing, pixel by pixel with what is kept of the ones before: (count, pixels)."""
    model.eval()
    random, found = torch.Generator().manual_seed(seed), list[Tensor]()
    logits, state = model.start(None, torch.tensor([[BEGIN, NO_LABEL]]).expand(count, 2))
    for number in range(pixels):
        shares = logits[:, 0, FIRST:NO_LABEL].softmax(dim=-1)
        found.append(torch.multinomial(shares, 1, generator=random))
        if number < pixels - 1:
            logits, state = model.step(found[-1] + FIRST, state)
    return torch.cat(found, dim=1)


def sheet(pictures: Tensor, side: int, across: int = 8, scale: int = 3) -> Image.Image:
    """Pictures beside and below each other, dark on light."""
    gap, rows = 2, -(-len(pictures) // across)
    out = np.full((rows * (side + gap) + gap, across * (side + gap) + gap), 160, dtype=np.uint8)
    for number, picture in enumerate(pictures.view(-1, side, side).numpy()):
        top, left = gap + number // across * (side + gap), gap + number % across * (side + gap)
        out[top : top + side, left : left + side] = 255 * (1 - picture)
    image = Image.fromarray(out)
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)


def table(rows: list[Row]) -> str:
    """The results as a table in Markdown."""
    lines = ["| model | parameters | pictures seen | processor minutes | nats a picture, test | bits per dimension |"]
    lines.append("|---|---|---|---|---|---|")
    lines += [
        f"| {row['model']} | {row['parameters']:,} | {row['pictures']:,} | {row['processor_minutes']:.1f} "
        f"| {row['test_nats']:.2f} | {row['test_bits_per_dimension']:.4f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _tiny() -> None:
    grid = {"rows": 7, "columns": 7}
    models: dict[str, LanguageModel] = {
        "pixelcnn": PixelCNN(PixelCNNConfig(layers=2, channels=4, width=8, labels_from=NO_LABEL, **grid), VOCABULARY),
        "pixelrnn": PixelRNN(PixelRNNConfig(layers=1, width=8, hidden=4, **grid), VOCABULARY),
        "image-transformer": ImageTransformer(
            ImageTransformerConfig(layers=1, width=8, heads=2, feed_forward=8, memory=8, **grid), VOCABULARY
        ),
    }
    grey = np.random.default_rng(SEED).integers(256, size=(40, 49))
    pictures = torch.from_numpy(np.stack([drawn(each.astype(np.uint8)) for each in grey]))
    rows = []
    for name, model in models.items():
        row = trained(model, pictures, pictures[:5], 600.0, 1, time.monotonic, most=3)
        rows.append({"model": name, "seed": 1, **row})
        sheet(written(model, 3, 49), 7)
    print(table(rows))


if __name__ == "__main__":
    main()
