"""Pictures a second in training: Regard's loop beside a plain torch loop of the same network, in turns.

    python benchmarks/picture_speed.py [--threads 2] [--rounds 7] [--out FILE]

A ConvNet (32, 64, 128, 192 channels, one 3 x 3 convolution each, batch norm, ReLU, max-pooling) on 32 x 32 pictures, batches
of 64, crops and flips, AdamW, clipping. The plain loop is what one writes with torch alone: nn.Conv2d, nn.BatchNorm2d, pictures
in memory, crops and flips batch by batch. Regard's is `Trainer.learn`, all its books included. Both networks get the same
weights and must give the same logits. Random pictures: only time counts here. Also prints how much of Regard's time goes into
making batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from regard.data.pictures.batches import PictureBatches
from regard.data.pictures.config import AugmentConfig, PictureFormat
from regard.data.pictures.store import ArrayStore
from regard.models.config import ConvNetConfig
from regard.models.pictures.classifier import PictureClassifier
from regard.training.config import TrainConfig
from regard.training.job import Job
from regard.training.loop import Trainer
from regard.training.show import Show
from regard.training.validation import Validation

CHANNELS, BATCH, CLASSES, CROP = (32, 64, 128, 192), 64, 10, 4


class Plain(nn.Module):
    """The same network as one writes it with torch."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(zip((3, *CHANNELS), CHANNELS, strict=False)):
            if number:
                layers.append(nn.MaxPool2d(2))
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(CHANNELS[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean(dim=(2, 3)))


class PlainLoop:
    """What one writes around it."""

    def __init__(self, pictures: np.ndarray, labels: np.ndarray) -> None:
        self.model = Plain()
        self.pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
        self.labels = torch.from_numpy(labels)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.05, betas=(0.9, 0.99))
        self.order, self.place = torch.randperm(len(labels)), 0

    def batch(self) -> tuple[Tensor, Tensor]:
        if self.place + BATCH > len(self.order):
            self.order, self.place = torch.randperm(len(self.order)), 0
        rows = self.order[self.place : self.place + BATCH]
        self.place += BATCH
        x = (self.pixels[rows].float() / 255 - 0.5) / 0.25
        x = pad(x, (CROP,) * 4, mode="reflect")
        corners = torch.randint(0, 2 * CROP + 1, (BATCH, 2)).tolist()
        x = torch.stack([each[:, i : i + 32, j : j + 32] for each, (i, j) in zip(x, corners, strict=True)])
        flipped = torch.rand(BATCH) < 0.5
        x[flipped] = x[flipped].flip(-1)
        return x, self.labels[rows]

    def update(self) -> None:
        x, labels = self.batch()
        loss = cross_entropy(self.model(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        loss.item()


def regard_trainer(folder: Path, pictures: np.ndarray, labels: np.ndarray) -> Trainer:
    config = ConvNetConfig(channels=CHANNELS, layers=1, dropout=0.0)
    format = PictureFormat(size=32)
    rest = {
        "lr": 1e-3,
        "schedule": "constant",
        "warmup": 0,
        "weight_decay": 0.05,
        "betas": (0.9, 0.99),
        "epsilon": 1e-8,
    }
    train = TrainConfig(steps=1_000_000, smoothing=0.0, precision="float32", **rest)
    augment = AugmentConfig(crop=CROP, flip=True)
    job = Job(
        folder=folder,
        config=train,
        model=PictureClassifier(config, format, CLASSES),
        width=config.width,
        batches=PictureBatches(ArrayStore(pictures), labels, np.arange(len(labels)), format, BATCH, 1, augment),
        validate=lambda model: Validation({"loss": 0.0}),
        save=lambda model, name, metrics: None,
    )
    return Trainer(job, Show())


def same_weights(ours: Any, theirs: Plain) -> float:
    """Copy ours into theirs, in order; the largest difference of the logits."""
    own = [p for name, p in ours.named_parameters() if not name.startswith("head")]
    with torch.no_grad():
        for mine, other in zip(own, theirs.features.parameters(), strict=True):
            other.copy_(mine)
        theirs.head.weight.copy_(ours.head.weight)
        theirs.head.bias.copy_(ours.head.bias)
        x = torch.randn(8, 3, 32, 32)
        return float((ours.train().logits(x) - theirs.train()(x)).abs().max())


def in_turns(steps: dict[str, Callable[[], None]], rounds: int, updates: int) -> dict[str, list[float]]:
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name in steps if turn % 2 else reversed(steps):
            started = time.perf_counter()
            for _ in range(updates):
                steps[name]()
            if turn:
                speeds[name].append(updates * BATCH / (time.perf_counter() - started))
    return speeds


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    if options.tiny:
        options.rounds = options.updates = options.threads = 1
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    count = 2 * BATCH if options.tiny else 10_000
    pictures = random.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    labels = random.integers(0, CLASSES, count)
    with tempfile.TemporaryDirectory() as place:
        ours, theirs = regard_trainer(Path(place), pictures, labels), PlainLoop(pictures, labels)
        print(f"largest difference of the logits {same_weights(ours.model, theirs.model):.1e}")
        ours.checkpoint()
        speeds = in_turns({"regard": ours.learn, "plain torch": theirs.update}, options.rounds, options.updates)
        began = time.perf_counter()
        made = min(20, ours.job.batches.count(0))
        for index in range(made):
            ours.job.batches.get(0, index)
        share = (time.perf_counter() - began) / made / (BATCH / statistics.median(speeds["regard"]))
    ratios = [a / b for a, b in zip(speeds["regard"], speeds["plain torch"], strict=True)]
    for name, values in speeds.items():
        print(f"{name:12} {statistics.median(values):7,.0f} pictures/s (from {min(values):,.0f} to {max(values):,.0f})")
    print(f"ratio        {statistics.median(ratios):7.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")
    print(f"making batches takes {share:.1%} of an update")
    if options.out:
        found = {
            "threads": options.threads,
            "torch": torch.__version__,
            "pictures_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
            "ratio": round(statistics.median(ratios), 3),
            "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
            "share_of_batches": round(share, 4),
        }
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
