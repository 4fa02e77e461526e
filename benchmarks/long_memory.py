"""Peak memory of a training step with exact attention over the length: it must grow with T, not with T².

    MALLOC_MMAP_THRESHOLD_=65536 python benchmarks/long_memory.py [--lengths 1024 2048 4096 8192]

A language model (one row), and a classifier of two rows of which one is padded to twice its length; each of two blocks of
width 256 with four heads. What the system says is resident, above what was so before the step, in MiB.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
from torch import nn

from regard.bench.scout import peak_memory
from regard.data.batch import label_batch, text_batch
from regard.models.config import BertConfig, LlamaConfig
from regard.models.table import build

SIZES = {"layers": 2, "width": 256, "heads": 4, "feed_forward": 512, "dropout": 0.0}
VOCABULARY = 256


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    lengths = [64, 128] if options.tiny else options.lengths
    random = np.random.default_rng(1)
    writer = build("generate", LlamaConfig(**SIZES), (VOCABULARY,))
    reader_config = BertConfig(**SIZES, positions="rotary", max_length=max(lengths))
    reader = build("classify", reader_config, (VOCABULARY,), labels=2)
    rows = []
    for length in lengths:
        text = text_batch([random.integers(4, VOCABULARY, length + 1)])
        pair = label_batch([random.integers(4, VOCABULARY, each) for each in (length, length // 2)], [0, 1], 0)
        rows.append((length, peak(writer, text), peak(reader, pair)))
        print(f"{length:>6,} {rows[-1][1]:8.1f} {rows[-1][2]:8.1f}", flush=True)
    for column, name in ((1, "language model"), (2, "padded classifier")):
        if min(rows[0][column], rows[-1][column]) <= 0:
            print(f"{name}: too little to be seen")
            continue
        power = math.log(rows[-1][column] / rows[0][column]) / math.log(rows[-1][0] / rows[0][0])
        print(f"{name}: T^{power:.2f}")


def peak(model: nn.Module, batch: object) -> float:
    def step() -> None:
        model(batch).parts["loss"].sum.backward()
        model.zero_grad()

    step()
    return peak_memory(step)[0] / 2**20


if __name__ == "__main__":
    main()
