"""Memory that the output layer's loss needs beyond its inputs and gradients, for two vocabularies.

    python benchmarks/output_memory.py

Each case runs in a process of its own: 4,096 tokens of width 128 against a vocabulary of 10,000 or 40,000, forward and
backward, through the chunked loss and through the plain one that keeps all logits. The gradient of the weights (V x D)
has to exist in either and is taken off; what is left are the activations. Reads /proc, so it runs on Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from regard.models.loss import output_loss, output_loss_reference

TOKENS, WIDTH = 4096, 128
LOSSES = {"chunked": output_loss, "plain": output_loss_reference}


def measure(kind: str, vocabulary: int, tokens: int = TOKENS) -> float:
    """Peak activations in MiB."""
    torch.manual_seed(0)
    h = torch.randn(tokens, WIDTH, requires_grad=True)
    weight = torch.randn(vocabulary, WIDTH, requires_grad=True)
    target = torch.randint(0, vocabulary, (tokens,))
    small = LOSSES[kind](h[:8], weight[:64], target[:8] % 64, 0.1)[0]
    small.backward()  # whatever torch sets up once is set up now
    h.grad = weight.grad = None
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = resident("VmRSS")
    LOSSES[kind](h, weight, target, 0.1)[0].backward()
    gradients = 4 * (h.numel() + weight.numel())
    return (resident("VmHWM") - before - gradients) / 2**20


def resident(name: str) -> int:
    """Memory of this process in bytes: VmRSS now, VmHWM at its highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="few tokens, in this process: to see that it runs")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.case:
        print(f"{measure(options.case[0], int(options.case[1])):.1f}")
        return
    if options.tiny:
        for kind in LOSSES:
            print(f"{kind:8} {measure(kind, 500, 128):8.1f} at 500, 128 tokens")
        return
    print(f"{TOKENS:,} tokens, width {WIDTH}, float32: peak activations of the output layer in MiB")
    for kind in LOSSES:
        found = []
        for vocabulary in (10_000, 40_000):
            command = [sys.executable, __file__, "--case", kind, str(vocabulary)]
            found.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        print(f"{kind:8} {found[0]:8.1f} at 10,000   {found[1]:8.1f} at 40,000")


if __name__ == "__main__":
    main()
