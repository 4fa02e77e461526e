"""Beside nanoGPT (Karpathy 2022), in its own CPU configuration on tiny Shakespeare: speed, and loss after equal time.

    git clone https://github.com/karpathy/nanoGPT
    REGARD_DATA=... python benchmarks/nanogpt.py speed --nanogpt nanoGPT [--threads 2] [--rounds 7] [--out FILE]
    REGARD_DATA=... python benchmarks/nanogpt.py race --nanogpt nanoGPT [--threads 2] [--out FILE]

speed   training tokens per second at equal shape: 4 layers, 4 heads, width 128, context 64, batches of 12, no dropout,
        no biases in linear layers, float32. nanoGPT's step is that of its train.py, with its model, its get_batch and its
        optimiser; Regard's is `Trainer.learn`, all its books included. In turns, round by round.
race    nanoGPT trains the CPU command of its README (2,000 iterations, its evaluations left out) in a process of its own;
        then Regard trains `configs/language/tiny-shakespeare-1min.toml` for as many seconds. Both losses are over the
        whole last tenth of the text, in windows of 64 in order, computed by one function from the last weights.

nanoGPT's files are read from where you have them; none of its code is here. Without them `speed` measures Regard alone.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.bundle import load_bundle
from regard.data.stream import TokenStream, Windows
from regard.models.config import GPT2Config
from regard.models.gpt import GPT
from regard.training.config import TrainConfig
from regard.training.job import Job
from regard.training.loop import Trainer
from regard.training.show import Show
from regard.training.validation import Validation

CONFIG = Path(__file__).parent.parent / "configs" / "language" / "tiny-shakespeare-1min.toml"
WHERE = "git clone https://github.com/karpathy/nanoGPT, then name that folder with --nanogpt"
SHAPE = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "dropout": 0.0, "bias": False}
SETTINGS: dict[str, Any] = {  # its config/train_shakespeare_char.py and the CPU command of its README
    "block_size": 64,
    "batch_size": 12,
    "learning_rate": 1e-3,
    "min_lr": 1e-4,
    "warmup_iters": 100,
    "lr_decay_iters": 2000,
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.99,
    "grad_clip": 1.0,
    "device": "cpu",
    "device_type": "cpu",
}
ITERATIONS = 2001  # max_iters = 2000 is from 0 to 2000


def read_text() -> str:
    root = os.environ.get("REGARD_DATA", "")
    path = Path(root) / "tinyshakespeare" / "input.txt"
    if not root or not path.exists():
        sys.exit("set REGARD_DATA to a folder that holds tinyshakespeare/input.txt")
    return path.read_text()


def halves(text: str) -> tuple[str, str]:
    """The first nine tenths and the last, as nanoGPT's data/shakespeare_char/prepare.py splits them."""
    cut = int(len(text) * 0.9)
    return text[:cut], text[cut:]


def encoder(text: str) -> tuple[Callable[[str], np.ndarray], int]:
    """Characters as numbers in their order, and how many there are."""
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    return lambda part: np.array([numbers[character] for character in part], dtype=np.uint16), len(numbers)


class NanoGPT:
    """Its model and optimiser, and an update of the weights as its train.py makes it."""

    def __init__(self, folder: Path, data: Path, vocabulary: int) -> None:
        for name in ("model.py", "train.py"):
            if not (folder / name).exists():
                sys.exit(f"there is no {name} in {folder}: {WHERE}")
        sys.path.insert(0, str(folder))
        model = importlib.import_module("model")
        torch.manual_seed(1337)
        with contextlib.redirect_stdout(sys.stderr):
            self.model = model.GPT(model.GPTConfig(**SHAPE, vocab_size=vocabulary))
            betas = (SETTINGS["beta1"], SETTINGS["beta2"])
            self.optimiser = self.model.configure_optimizers(
                SETTINGS["weight_decay"], SETTINGS["learning_rate"], betas, "cpu"
            )
        self.own = functions_of(folder / "train.py", ("get_batch", "get_lr"), data)
        self.batch = self.own.get_batch("train")
        self.iteration = 0

    def update(self) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.own.get_lr(self.iteration)
        loss = self.model(*self.batch)[1]
        self.batch = self.own.get_batch("train")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), SETTINGS["grad_clip"])
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        loss.item()  # the README's command logs every iteration
        self.iteration += 1

    def logits(self, ids: Tensor) -> Tensor:
        ids = ids.contiguous()
        return self.model(ids, ids)[0]  # (B, T, V); with targets it gives the logits of all positions


def functions_of(path: Path, names: tuple[str, ...], data: Path) -> SimpleNamespace:
    """Functions of a script that cannot be imported, with our settings where it has its own."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    space: dict[str, Any] = {"np": np, "os": os, "torch": torch, "math": math, "data_dir": str(data), **SETTINGS}
    exec(compile(tree, str(path), "exec"), space)
    missing = [name for name in names if name not in space]
    if missing:
        sys.exit(f"{path} has no {' and no '.join(missing)}; it is not nanoGPT's: {WHERE}")
    return SimpleNamespace(**{name: space[name] for name in names})


def write_data(folder: Path, text: str) -> int:
    """train.bin and val.bin as nanoGPT reads them; gives the number of characters."""
    encode, vocabulary = encoder(text)
    for name, part in zip(("train.bin", "val.bin"), halves(text), strict=True):
        encode(part).tofile(folder / name)
    return vocabulary


def regard_trainer(folder: Path, data: Path, vocabulary: int) -> Trainer:
    """The same shape, batch and optimiser in Regard's own loop. Its layer norms have biases: 1,152 of them."""
    shape = {"layers": 4, "heads": 4, "width": 128, "feed_forward": 512, "max_length": 64}
    config = GPT2Config(**shape, activation="gelu", dropout=0.0, bias=False)
    learning = {"lr": 1e-3, "schedule": "cosine", "warmup": 100, "optimiser": "adam", "betas": (0.9, 0.99)}
    rest = {"epsilon": 1e-8, "weight_decay": 0.1, "clip": 1.0, "smoothing": 0.0, "precision": "float32"}
    train = TrainConfig(steps=1_000_000, **learning, **rest)
    torch.manual_seed(1337)
    stream = TokenStream(np.memmap(data / "train.bin", dtype=np.uint16, mode="r"), vocabulary)
    job = Job(
        folder=folder,
        config=train,
        model=GPT(config, vocabulary),
        width=config.width,
        batches=Windows(stream, SETTINGS["block_size"], SETTINGS["batch_size"], seed=1),
        validate=lambda model: Validation({"loss": 0.0}),
        save=lambda model, name, metrics: None,
    )
    return Trainer(job, Show())


def speed(options: argparse.Namespace) -> dict[str, Any]:
    text = (__doc__ or "") * 9 if options.tiny else read_text()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        vocabulary = write_data(folder, text)
        (folder / "run").mkdir()
        ours = regard_trainer(folder / "run", folder, vocabulary)
        ours.checkpoint()  # an update that fails goes back to it
        steps: dict[str, Callable[[], object]] = {"regard": ours.learn}
        if options.nanogpt is None:
            print(f"nanoGPT is not here ({WHERE}); this is Regard alone")
        else:
            steps["nanogpt"] = NanoGPT(options.nanogpt, folder, vocabulary).update
        speeds = in_turns(steps, options.rounds, options.updates)
    beside = speeds.get("nanogpt", [math.nan] * options.rounds)
    ratios = [a / b for a, b in zip(speeds["regard"], beside, strict=True)]
    for name, values in speeds.items():
        print(f"{name:8} {statistics.median(values):9,.0f} tokens/s (from {min(values):,.0f} to {max(values):,.0f})")
    print(f"ratio    {statistics.median(ratios):9.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")
    return {
        "tokens_per_second": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "speeds": {name: [round(value, 1) for value in values] for name, values in speeds.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "rounds": options.rounds,
        "updates_in_a_round": options.updates,
    }


def in_turns(steps: dict[str, Callable[[], object]], rounds: int, updates: int) -> dict[str, list[float]]:
    """Tokens per second of each in each round; the first round warms up and does not count."""
    tokens = updates * SETTINGS["batch_size"] * SETTINGS["block_size"]
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name in steps if turn % 2 else reversed(steps):  # each goes first as often as the other
            started = time.perf_counter()
            for _ in range(updates):
                steps[name]()
            if turn:
                speeds[name].append(tokens / (time.perf_counter() - started))
    return speeds


@torch.inference_mode()
def loss_of(logits: Callable[[Tensor], Tensor], ids: np.ndarray, window: int = 64, rows: int = 64) -> float:
    """Mean loss of all ids but the first, each predicted once, from at most `window` before it."""
    stream = torch.from_numpy(ids.astype(np.int64))
    starts = range(0, len(stream) - 1, window)
    whole = [start for start in starts if start + window < len(stream)]
    groups = [whole[at : at + rows] for at in range(0, len(whole), rows)] + [[s] for s in starts if s not in whole]
    total = 0.0
    for group in groups:
        batch = torch.stack([stream[start : start + window + 1] for start in group])  # (B, T + 1)
        found = logits(batch[:, :-1]).flatten(0, 1).double()  # (B * T, V)
        total += float(cross_entropy(found, batch[:, 1:].flatten(), reduction="sum"))
    return total / (len(stream) - 1)


def train_nanogpt(options: argparse.Namespace) -> None:
    """In a process of its own: train, and tell seconds and loss as JSON."""
    text = read_text()
    with tempfile.TemporaryDirectory() as place:
        theirs = NanoGPT(options.nanogpt, Path(place), write_data(Path(place), text))
        started = time.perf_counter()
        for _ in range(options.iterations):
            theirs.update()
        seconds = time.perf_counter() - started
    theirs.model.eval()
    encode, _ = encoder(text)
    print(json.dumps({"seconds": seconds, "loss": loss_of(theirs.logits, encode(halves(text)[1]))}))


def train_regard(config: Path, seconds: float, folder: Path) -> dict[str, Any]:
    """In a process of its own. It validates once, at its end, and that counts; measuring its pace before does not."""
    started = time.perf_counter()
    once = ("--set", "train.validate_every=1000000", "--budget", f"{seconds:.1f}s", "--json")
    found = run_json("-m", "regard", "train", str(config), "-o", str(folder), *once)
    wall = time.perf_counter() - started
    bundle = load_bundle(folder / "last")
    model: Any = bundle.model.eval()
    held = halves(read_text())[1]
    ids = np.array(bundle.tokenizer.encode(held))
    if len(ids) != len(held):
        sys.exit(f"{config} makes {len(ids):,} tokens of {len(held):,} characters; losses of both compare by character")
    loss = loss_of(lambda rows: model.output(model.read(rows)), ids)
    return {"seconds": found["seconds"], "steps": found["step"], "loss": loss, "seconds_with_everything": wall}


def run_json(*arguments: str) -> dict[str, Any]:
    """The JSON that a Python process prints last."""
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"this failed: python {' '.join(arguments)}")
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def race(options: argparse.Namespace) -> dict[str, Any]:
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    count = ("--threads", str(options.threads), "--iterations", str(options.iterations))
    theirs = run_json(__file__, "train-nanogpt", "--nanogpt", str(options.nanogpt), *count)
    print(
        f"nanogpt  loss {theirs['loss']:.4f} after {theirs['seconds']:.1f} s ({options.iterations:,} updates)",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as place:
        ours = train_regard(options.config, theirs["seconds"], Path(place) / "run")
    everything = f"{ours['seconds_with_everything']:.1f} s with start, measuring its pace and saving"
    print(f"regard   loss {ours['loss']:.4f} after {ours['seconds']:.1f} s ({ours['steps']:,} updates; {everything})")
    return {"nanogpt": {**theirs, "steps": options.iterations}, "regard": ours, "config": options.config.name}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("speed", "race", "train-nanogpt"), default="speed")
    parser.add_argument("--nanogpt", type=Path, metavar="DIR", help="a checkout of nanoGPT")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="speed: rounds in turns")
    parser.add_argument("--updates", type=int, default=60, help="speed: updates in a round")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="race: updates of nanoGPT")
    parser.add_argument("--config", type=Path, default=CONFIG, help="race: what Regard trains")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    if options.tiny:
        options.part, options.rounds, options.updates, options.threads = "speed", 1, 1, 1
    torch.set_num_threads(options.threads)
    if options.nanogpt is None and options.part != "speed":
        parser.error(f"--nanogpt is needed to {options.part}: {WHERE}")
    if options.part == "train-nanogpt":
        train_nanogpt(options)
        return
    found = speed(options) if options.part == "speed" else race(options)
    if options.out:
        conditions = {"threads": options.threads, "torch": torch.__version__}
        options.out.write_text(json.dumps({**conditions, options.part: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
