"""Recurrence against attention as a sequence gets longer: chain, gradient and time.

One causal stack of each kind, width 128, fresh weights, made of the package's own parts:

    RNN, LSTM     one layer
    ByteNet       blocks of dilation 1, 2, 4, 8, 16, twice: it sees 125 positions back, and nothing before them
    Transformer   two pre-norm blocks of 4 heads

and of each, for lengths T from 8 to 512:

    chain      the longest chain of matrix products, each of which waits for the one before, between the first input and
               the last output: found by walking the graph that autograd built, not by a formula
    gradient   |d y_T / d x_1| over |d y_T / d x_T|: what reaches the first token of what reaches the last, for a random
               direction of y_T, of several seeds. The weights are fresh: this is what training starts from
    train      time of forward and backward divided by T, 8 sequences at once
    decode     time of one step of decoding at position T, 8 sequences at once, with each family's own cache or state
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.attention import Causal, MultiHead
from regard.blocks import Block, FeedForward
from regard.blocks.block import Residual
from regard.blocks.convolution import CausalConvolution, ConvolutionBlock
from regard.blocks.norm import make_norm
from regard.blocks.recurrent import Recurrent
from regard.embed import positions
from regard.experiments.study import (
    Check,
    Found,
    Group,
    Part,
    Report,
    Row,
    Settings,
    Study,
    Table,
    above,
    at_least,
    at_most,
    number,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, ROWS = 128, 8
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


def gradient(name: str, length: int, seed: int) -> float:
    """|d y_T / d x_1| over |d y_T / d x_T| of fresh weights."""
    torch.manual_seed(seed)
    stack = STACKS[name]().double()
    x = torch.randn(1, length, WIDTH, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(WIDTH, dtype=torch.float64)
    (slope,) = torch.autograd.grad((stack(x)[0, -1] * direction).sum(), x)
    return float(slope[0, 0].norm() / slope[0, -1].norm())


def train_seconds(stack: Any, length: int) -> float:
    """Processor time of one forward and backward pass."""
    x = torch.randn(ROWS, length, WIDTH, requires_grad=True)
    started = time.process_time()
    stack(x).sum().backward()
    return time.process_time() - started


@torch.inference_mode()
def decode_seconds(stack: Any, lengths: Sequence[int]) -> dict[int, float]:
    """Processor time of a step after so many: the median of the eight around it."""
    state, spent = stack.start(ROWS), []
    for _ in range(max(lengths)):
        x = torch.randn(ROWS, 1, WIDTH)
        started = time.process_time()
        state = stack.step(x, state)
        spent.append(time.process_time() - started)
    return {length: statistics.median(spent[length - 8 : length]) for length in lengths}


def chain_row(settings: Settings, report: Report) -> Row:
    torch.manual_seed(1)
    lengths = settings["chain_lengths"]
    rows = [
        {"stack": name, "length": length, "chain": chain(make(), length)}
        for name, make in STACKS.items()
        for length in lengths
    ]
    return {"rows": rows}


def gradient_row(settings: Settings, seed: int, report: Report) -> Row:
    rows = []
    for place, length in enumerate(settings["lengths"]):
        rows += [{"stack": name, "length": length, "gradient": gradient(name, length, seed)} for name in STACKS]
        report((place + 1) / len(settings["lengths"]))
    return {"seed": seed, "rows": rows}


def times_row(settings: Settings, round_: int, report: Report) -> Row:
    """Milliseconds a position in training and of a step of decoding, for every stack in turn; the first pass is not counted."""
    torch.manual_seed(1)
    rows, lengths = [], settings["lengths"]
    for place, (name, make) in enumerate(STACKS.items()):
        stack = make()
        train_seconds(stack, min(lengths))
        decode = decode_seconds(stack, lengths)
        for length in lengths:
            spent = 1000 * train_seconds(stack, length) / length
            rows.append({"stack": name, "length": length, "train": spent, "decode": 1000 * decode[length]})
        report((place + 1) / len(STACKS))
    return {"round": round_, "rows": rows}


def recurrence_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    parts = [Part("chain", partial(chain_row, settings), 1)]
    parts += [Part(f"gradient, seed {seed}", partial(gradient_row, settings, seed), 1) for seed in seeds]
    return parts + [
        Part(f"times, round {each}", partial(times_row, settings, each), 3) for each in range(settings["rounds"])
    ]


def _middle(found: Found, key: str, name: str, length: int) -> float:
    values = found.values(key, stack=name, length=length)
    return statistics.median(values) if values else float("nan")


TITLES = {
    "chain": "matrix products that wait for each other",
    "gradient": "gradient at the first token / at the last",
    "train": f"training: ms a position ({ROWS} sequences)",
    "decode": f"decoding: ms a step ({ROWS} sequences)",
}


def recurrence_tables(found: Found) -> list[Table]:
    lengths = found.settings["lengths"]
    columns = ["", *map(str, lengths)]
    return [
        Table(
            columns,
            [[name, *(number(_middle(found, key, name, each)) for each in lengths)] for name in STACKS],
            f"{title}, median",
        )
        for key, title in TITLES.items()
    ]


def recurrence_checks(found: Found) -> list[Check]:
    chains, lengths = found.settings["chain_lengths"], found.settings["lengths"]
    shortest, longest = lengths[0], lengths[-1]

    def grown(name: str, key: str, first: int, last: int) -> Group:
        before, after = _middle(found, key, name, first), _middle(found, key, name, last)
        return Group(f"{name} from {first} to {last}, times", [after / before])

    def reach(name: str) -> Group:
        return found.group(name, "gradient", stack=name, length=longest)

    return [
        at_least(
            "A recurrent layer takes as many steps as there are tokens",
            grown("LSTM", "chain", chains[0], chains[-1]),
            chains[-1] / chains[0] - 1e-9,
        ),
        at_most("Attention has the same path at every length", grown("Transformer", "chain", chains[0], chains[-1]), 1),
        above(
            f"The gradient over {longest} tokens vanishes in an RNN, and reaches through attention",
            reach("Transformer"),
            reach("RNN"),
        ),
        above("It vanishes more slowly in an LSTM than in an RNN", reach("LSTM"), reach("RNN")),
        at_least(
            "A step of decoding costs attention more the longer the text",
            grown("Transformer", "decode", shortest, longest),
            1.2,
        ),
        at_most(
            "A step of decoding costs a recurrent layer the same everywhere",
            grown("LSTM", "decode", shortest, longest),
            1.2,
        ),
    ]


def draw_recurrence(found: Found) -> Figure:
    from regard.experiments.drawing import by, line, logarithmic, noted, panels, powers, titled
    from regard.look.figures.sheet import QUIET, legend

    figure, axes = panels(2, 2, width=5.0, height=3.3)
    for panel, (key, title) in zip(axes, TITLES.items(), strict=True):
        for place, name in enumerate(STACKS):
            rows = [row for row in found.where(stack=name) if row.get(key)]
            line(panel, by([(row["length"], row[key]) for row in rows]), name, place)
        powers(panel, found.settings["lengths"])
        titled(panel, title, "length of the sequence")
        logarithmic(panel)
    axes[1].set_ylim(bottom=1e-30)  # what is less than this is nothing to a float32
    far = sorted({row["length"] for row in found.where(stack="ByteNet") if row.get("gradient") == 0})
    if far:
        axes[1].annotate(
            f"ByteNet: exactly 0 from {far[0]} on\n(out of its reach)",
            xy=(0.02, 0.04), xycoords="axes fraction", fontsize=8.5, color=QUIET,
        )  # fmt: skip
    legend(figure, axes[0])
    noted(
        figure,
        f"fresh weights; line: mean of {len(found.seeds)} seeds or {found.settings['rounds']} rounds; band: least to greatest",
    )
    return figure


RECURRENCE = Study(
    settings={"lengths": [8, 16, 32, 64, 128, 256, 512], "chain_lengths": [8, 16, 32, 64, 128], "rounds": 5},
    tiny={"lengths": [8, 16], "chain_lengths": [8, 16], "rounds": 1},
    seeds=(0, 1, 2, 3, 4, 5, 6),
    parts=recurrence_parts,
    tables=recurrence_tables,
    checks=recurrence_checks,
    draw=draw_recurrence,
)
