"""Training speed of the recurrent line: the fast path of each model against the same model stepped in Python.

    python benchmarks/recurrent_speed.py [--threads 1] [--rounds 7] [--json FILE]

The fast path is what training runs: torch's fused cells over whole sequences, and attention and projections outside the
loop over time wherever the mathematics allows it. Stepped, the same weights are run as decoding runs them: one token
after the other through `model.step`, the logits of every step kept and one cross-entropy at the end, as tutorials write
it. Both do forward and backward on the same batches, in turns; both losses are checked to be equal first. Sizes are
those of the Multi30k comparison (`configs/lineage/`, batches of 1,024 tokens, vocabulary of 8,000) and of the built-in
dates (`preset = "demo"`, a hundred characters).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.data.batch import PairBatch, pair_batch
from regard.models.table import build_model
from regard.noise import noise
from regard.tasks.configure import run_config

MODELS: dict[str, dict[str, Any]] = {
    "seq2seq": {"kind": "seq2seq"},
    "luong": {"kind": "luong"},
    "luong, input feeding": {"kind": "luong", "input_feeding": True},
    "bahdanau": {"kind": "bahdanau"},
    "bytenet": {"kind": "bytenet"},
}
Shape = tuple[str, int, int, int, int]
SIZES: dict[str, Shape] = {  # preset, vocabulary, rows, source and target length
    "Multi30k": ("tiny", 8000, 64, 16, 16),
    "dates": ("demo", 100, 64, 20, 11),
}
TINY: dict[str, Shape] = {"tiny": ("demo", 30, 3, 5, 5)}


def random_batch(vocabulary: int, rows: int, source: int, target: int, seed: int) -> PairBatch:
    """Rows of nearly one length, as bucketed batches are."""
    random = np.random.default_rng(seed)
    sources = [random.integers(4, vocabulary, source - random.integers(0, 2)) for _ in range(rows)]
    targets = [random.integers(4, vocabulary, target + 1 - random.integers(0, 4)) for _ in range(rows)]
    return pair_batch(sources, targets, 0)


def whole(model: Any, batch: PairBatch) -> Tensor:
    return model(batch).objective(batch.counts)


def stepped(model: Any, batch: PairBatch) -> Tensor:
    """The mean loss of the batch through the steps of decoding."""
    logits, state = model.start((batch.source, batch.source_lengths), batch.target[:, :1])
    steps = [logits]
    for column in batch.target[:, 1:-1].split(1, dim=1):
        logits, state = model.step(column, state)
        steps.append(logits)
    places = torch.arange(len(steps))
    wanted = batch.target[:, 1:].masked_fill(places >= batch.target_lengths[:, None], -100)
    return cross_entropy(torch.cat(steps, dim=1).flatten(0, 1), wanted.flatten(), label_smoothing=model.smoothing)


def seconds(run: Callable[[Any, PairBatch], Tensor], model: Any, batch: PairBatch, key: int) -> float:
    model.zero_grad(set_to_none=True)
    started = time.perf_counter()
    with noise(1, key):
        run(model, batch).backward()
    return time.perf_counter() - started


def measure(over: dict[str, Any], size: Shape, rounds: int) -> dict[str, float]:
    preset, vocabulary, rows, source, target = size
    torch.manual_seed(1)
    config = run_config("translate", {"preset": preset, "model": over}).model
    model = build_model(config, vocabulary, vocabulary, smoothing=0.1).train()
    check(model, random_batch(vocabulary, rows, source, target, seed=0))
    times: dict[str, list[float]] = {"whole": [], "stepped": []}
    tokens = 0
    for number in range(rounds + 1):
        batch = random_batch(vocabulary, rows, source, target, seed=number)
        for name, run in (("whole", whole), ("stepped", stepped)):
            spent = seconds(run, model, batch, number)
            if number:  # the first round warms up
                times[name].append(spent)
        tokens = batch.target_tokens
    ratios = [slow / fast for slow, fast in zip(times["stepped"], times["whole"], strict=True)]
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "whole_ms": 1000 * statistics.median(times["whole"]),
        "stepped_ms": 1000 * statistics.median(times["stepped"]),
        "tokens_per_second": tokens / statistics.median(times["whole"]),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


@torch.no_grad()
def check(model: Any, batch: PairBatch) -> None:
    """Both ways compute one loss (without dropout, and without the smoothing that only training has)."""
    smoothing, model.smoothing = model.smoothing, 0.0
    model.eval()
    torch.testing.assert_close(whole(model, batch), stepped(model, batch), rtol=1e-4, atol=1e-4)
    model.train()
    model.smoothing = smoothing


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    sizes, options.rounds = (TINY, 1) if options.tiny else (SIZES, options.rounds)
    torch.set_num_threads(options.threads)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for size, shape in sizes.items():
        print(f"{size}, {options.threads} thread{'s' if options.threads > 1 else ''}")
        print(f"{'':24}{'whole':>10}{'stepped':>10}{'ratio':>8}   {'from .. to':14}{'tokens/s':>10}")
        for name, over in MODELS.items():
            found = measure(over, shape, options.rounds)
            results.setdefault(size, {})[name] = found
            span = f"{found['least']:.2f} .. {found['most']:.2f}"
            print(
                f"{name:24}{found['whole_ms']:7.0f} ms{found['stepped_ms']:7.0f} ms{found['ratio']:8.2f}   {span:14}"
                f"{found['tokens_per_second']:10,.0f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
