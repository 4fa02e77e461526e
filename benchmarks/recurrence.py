"""Recurrence against attention, measured as a sequence gets longer: chain, gradient and time.

    python benchmarks/recurrence.py [--threads 1] [--json docs/results/recurrence.json] [--figure docs/images/recurrence.png]

One causal stack of each kind, width 128, fresh weights, made of the package's own parts:

    RNN, LSTM     one layer
    ByteNet       blocks of dilation 1, 2, 4, 8, 16, twice: it sees 125 positions back, and nothing before them
    Transformer   two pre-norm blocks of 4 heads

and of each, for lengths T from 8 to 512:

    chain      the longest chain of matrix products, each of which waits for the one before, between the first input and
               the last output: found by walking the graph that autograd built, not by a formula
    gradient   |d y_T / d x_1| over |d y_T / d x_T|: what reaches the first token of what reaches the last, for a random
               direction of y_T; the median of several seeds. The weights are fresh: this is what training starts from
    train      time of forward and backward divided by T, 8 sequences at once
    decode     time of one step of decoding at position T, 8 sequences at once, with each family's own cache or state
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Causal, MultiHead
from regard.blocks import Block, FeedForward
from regard.blocks.block import Residual
from regard.blocks.convolution import CausalConvolution, ConvolutionBlock
from regard.blocks.norm import make_norm
from regard.blocks.recurrent import Recurrent
from regard.embed import positions
from regard.files import write_json

WIDTH, ROWS, SEEDS = 128, 8, 7
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
CHAIN_LENGTHS = (8, 16, 32, 64, 128)
PRODUCTS = ("AddmmBackward0", "MmBackward0", "BmmBackward0", "LinearBackward0")
FUSED = "ScaledDotProduct"  # torch's attention kernel: two products, q kᵀ and then weights v


class RecurrentStack(nn.Module):
    """One layer of a cell."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.layers = Recurrent(cell, WIDTH, WIDTH, 1, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x, self.layers.zeros(len(x)))[0]

    def stepped(self, x: Tensor) -> Tensor:
        """The same, cell by cell, so that every product has its own node in the graph."""
        states, out = self.layers.zeros(len(x)), []
        for gates in self.layers.gates(x).unbind(1):
            y, states = self.layers.step(gates, states)
            out.append(y)
        return torch.stack(out, dim=1)

    def start(self, rows: int) -> Any:
        return self.layers.zeros(rows)

    def step(self, x: Tensor, state: Any) -> Any:
        return self.layers.step(self.layers.gates(x[:, 0]), state)[1]


class ByteNetStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        half = WIDTH // 2
        self.blocks = nn.ModuleList(
            ConvolutionBlock(WIDTH, CausalConvolution(half, half, 3, dilation), rate=0.0)
            for dilation in (1, 2, 4, 8, 16) * 2
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    stepped = forward

    def start(self, rows: int) -> Any:
        return [block.start(rows, torch.zeros(1)) for block in self.blocks]  # type: ignore[operator]

    def step(self, x: Tensor, state: Any) -> Any:
        for block, past in zip(self.blocks, state, strict=True):
            x = block.step(x, past)  # type: ignore[operator]
        return state


class TransformerStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = positions("sinusoidal", WIDTH, 1024)
        self.blocks = nn.ModuleList(
            Block(
                MultiHead(WIDTH, 4, role="causal"),
                None,
                FeedForward(WIDTH, 2 * WIDTH),
                lambda: Residual(make_norm("layer", WIDTH), 0.0, order="pre"),
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.places(x, 0)
        for block in self.blocks:
            x = block(x, Causal())
        return x

    stepped = forward

    def start(self, rows: int) -> Any:
        return [block.start(None, None, torch.zeros(rows, 1)) for block in self.blocks]  # type: ignore[operator]

    def step(self, x: Tensor, state: Any) -> Any:
        for block, past in zip(self.blocks, state, strict=True):
            x = block.step(x, past)  # type: ignore[operator]
        return state


STACKS: dict[str, Callable[[], Any]] = {
    "RNN": lambda: RecurrentStack("rnn"),
    "LSTM": lambda: RecurrentStack("lstm"),
    "ByteNet": ByteNetStack,
    "Transformer": TransformerStack,
}


def chain(stack: Any, length: int) -> int:
    """The longest chain of products in the graph from the last output back to the input."""
    x = torch.randn(1, length, WIDTH, requires_grad=True)
    longest: dict[Any, int] = {}
    todo = [stack.stepped(x)[0, -1].sum().grad_fn]
    while todo:  # depth first, without recursion: a recurrent graph is deep
        node = todo[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        unknown = [each for each in before if each not in longest]
        if unknown:
            todo.extend(unknown)
            continue
        todo.pop()
        products = 2 if node.name().startswith(FUSED) else int(node.name() in PRODUCTS)
        longest[node] = max((longest[each] for each in before), default=0) + products
    return max(longest.values())


def gradient(name: str, length: int, seeds: int) -> float:
    """The median over fresh weights of |d y_T / d x_1| over |d y_T / d x_T|."""
    found = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        stack = STACKS[name]().double()
        x = torch.randn(1, length, WIDTH, dtype=torch.float64, requires_grad=True)
        direction = torch.randn(WIDTH, dtype=torch.float64)
        (slope,) = torch.autograd.grad((stack(x)[0, -1] * direction).sum(), x)
        found.append(float(slope[0, 0].norm() / slope[0, -1].norm()))
    return statistics.median(found)


def train_seconds(stack: Any, length: int) -> float:
    """One forward and backward pass."""
    x = torch.randn(ROWS, length, WIDTH, requires_grad=True)
    started = time.perf_counter()
    stack(x).sum().backward()
    return time.perf_counter() - started


@torch.inference_mode()
def decode_seconds(stack: Any, lengths: tuple[int, ...]) -> dict[int, float]:
    """The time of a step after so many: the median of the eight around it."""
    state, spent = stack.start(ROWS), []
    for _ in range(max(lengths)):
        x = torch.randn(ROWS, 1, WIDTH)
        started = time.perf_counter()
        state = stack.step(x, state)
        spent.append(time.perf_counter() - started)
    return {length: statistics.median(spent[length - 8 : length]) for length in lengths}


def times(rounds: int, lengths: tuple[int, ...]) -> dict[str, dict[str, dict[int, float]]]:
    """Of every stack, in turns: milliseconds a position in training, and of a step of decoding."""
    stacks = {name: make() for name, make in STACKS.items()}
    train: dict[str, dict[int, list[float]]] = {name: {length: [] for length in lengths} for name in stacks}
    decode: dict[str, dict[int, list[float]]] = {name: {length: [] for length in lengths} for name in stacks}
    for number in range(rounds + 1):
        for name, stack in stacks.items():
            for length in lengths:
                spent = train_seconds(stack, length) / length
                if number:
                    train[name][length].append(spent)
            for length, spent in decode_seconds(stack, lengths).items():
                if number:
                    decode[name][length].append(spent)

    def middle(found: dict[str, dict[int, list[float]]]) -> dict[str, dict[int, float]]:
        return {
            name: {length: 1000 * statistics.median(each) for length, each in of.items()} for name, of in found.items()
        }

    return {"train": middle(train), "decode": middle(decode)}


def draw(found: dict[str, dict[str, dict[int, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    from regard.look.figures.sheet import legend, style, tidy

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = figure.subplots(2, 2).flatten()
    titles = {
        "chain": "matrix products that wait for each other",
        "gradient": "gradient at the first token / at the last",
        "train": "training: ms a position (8 sequences)",
        "decode": "decoding: ms a step (8 sequences)",
    }
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        for number, name in enumerate(STACKS):
            points = {length: value for length, value in found[key][name].items() if value > 0}
            axes.plot(list(points), list(points.values()), label=name, markersize=9 - 1.5 * number, **style(number))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
        axes.minorticks_off()
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("length of the sequence")
        tidy(axes)
    panels[1].set_ylim(bottom=1e-30)  # what is less than this is nothing to a float32
    far = [length for length, value in found["gradient"]["ByteNet"].items() if value == 0]
    if far:
        panels[1].annotate(
            f"ByteNet: exactly 0 from {far[0]} on\n(out of its reach)",
            xy=(0.02, 0.04), xycoords="axes fraction", fontsize=8.5, color="#5b646c",
        )  # fmt: skip
    legend(figure, panels[0])
    figure.savefig(path, dpi=130)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    lengths, chains, seeds = ((8, 16), (8,), 1) if options.tiny else (LENGTHS, CHAIN_LENGTHS, SEEDS)
    options.rounds = 1 if options.tiny else options.rounds
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    found: dict[str, dict[str, dict[int, float]]] = {
        "chain": {name: {length: chain(make(), length) for length in chains} for name, make in STACKS.items()},
        "gradient": {name: {length: gradient(name, length, seeds) for length in lengths} for name in STACKS},
        **times(options.rounds, lengths),
    }
    for key, rows in found.items():
        print(f"{key:12}" + "".join(f"{length:>11}" for length in lengths))
        for name, values in rows.items():
            cells = "".join(f"{values.get(length, math.nan):11.3g}" for length in lengths)
            print(f"{name:12}{cells}")
    if options.json:
        write_json(options.json, found)
        print(f"wrote {options.json}")
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            draw(found, Path(folder) / "recurrence.png")
    if options.figure:
        draw(found, options.figure)
        print(f"wrote {options.figure}")


if __name__ == "__main__":
    main()
