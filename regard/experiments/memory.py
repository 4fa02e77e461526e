"""Recall and copying over length: what a state of fixed size remembers, and what attention looks up.

    recall   n items of a key and a value, then the n keys in another order: the value of each is wanted
    copy     n letters, then n blanks: the letters are wanted in their order

Every network has the same shape: embeddings, two layers, an output; only what mixes positions differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.attention import Causal
from regard.blocks import Block, FeedForward
from regard.blocks.block import Residual
from regard.blocks.initialise import initialise
from regard.blocks.norm import make_norm
from regard.blocks.recurrent import Recurrent
from regard.embed import positions
from regard.experiments.learning import Examples, train_network
from regard.experiments.study import Check, Found, Group, Part, Report, Row, Settings, Study, Table, above, spread
from regard.models.attention import make_attention
from regard.models.configs.attention import (
    AttentionConfig,
    ExactConfig,
    LinearConfig,
    SelectiveConfig,
    StateSpaceConfig,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS, LAYERS = 2, 2


class RecurrentLayers(nn.Module):
    """Layers of a cell, as wide as the vectors that they read."""

    def __init__(self, cell: str, width: int) -> None:
        super().__init__()
        self.layers = Recurrent(cell, width, width, LAYERS, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x, self.layers.zeros(len(x)))[0]


class Blocks(nn.Module):
    """Causal pre-norm blocks with any attention, or a state-space layer in its place; only attention is told positions."""

    def __init__(self, attention: AttentionConfig, width: int) -> None:
        super().__init__()
        told = isinstance(attention, ExactConfig | LinearConfig)
        self.places = positions("sinusoidal" if told else "none", width, 1024)
        self.blocks = nn.ModuleList(
            Block(
                make_attention(attention, width, HEADS, role="causal", number=number),
                None,
                FeedForward(width, 2 * width),
                lambda: Residual(make_norm("layer", width), 0.0, order="pre"),
            )
            for number in range(LAYERS)
        )
        self.norm = make_norm("layer", width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.places(x, 0)
        for block in self.blocks:
            x = block(x, Causal())
        return self.norm(x)


KINDS: dict[str, Callable[[int], nn.Module]] = {
    "RNN": partial(RecurrentLayers, "rnn"),
    "LSTM": partial(RecurrentLayers, "lstm"),
    "S4D": partial(Blocks, StateSpaceConfig(state=16)),
    "selective (Mamba)": partial(Blocks, SelectiveConfig(state=8, expand=1)),
    "linear attention": partial(Blocks, LinearConfig()),
    "exact attention": partial(Blocks, ExactConfig()),
}


class Remembering(nn.Module):
    """Pairs of ids (B, T, 2), of a key and a value, as sums of embeddings; logits of a value at every place."""

    def __init__(self, mix: nn.Module, keys: int, values: int, width: int) -> None:
        super().__init__()
        self.key, self.value = nn.Embedding(keys + 1, width), nn.Embedding(values + 1, width)
        self.mix, self.output = mix, nn.Linear(width, values)
        initialise(self.mix)

    def forward(self, items: Tensor) -> Tensor:
        x = self.key(items[..., 0]) + self.value(items[..., 1])  # (B, T, D)
        return self.output(self.mix(x))


def draw_recall(rows: int, length: int, keys: int, values: int, draw: torch.Generator) -> Examples:
    """Items with distinct keys, then their keys in another order (with the value that is none)."""
    key = torch.rand(rows, keys, generator=draw).argsort(dim=-1)[:, :length]  # (rows, length), distinct
    value = torch.randint(values, (rows, length), generator=draw)
    order = torch.rand(rows, length, generator=draw).argsort(dim=-1)
    none = torch.full((rows, length), values)
    asked = torch.stack([key.gather(1, order), none], dim=-1)
    wanted = torch.cat([torch.full((rows, length), -1), value.gather(1, order)], dim=1)
    return Examples(torch.cat([torch.stack([key, value], dim=-1), asked], dim=1), wanted)


def draw_copy(rows: int, length: int, keys: int, values: int, draw: torch.Generator) -> Examples:
    """Letters without keys, then as many blanks."""
    value = torch.randint(values, (rows, length), generator=draw)
    none = torch.full((rows, length), values)
    told = torch.cat([value, none], dim=1)
    wanted = torch.cat([torch.full((rows, length), -1), value], dim=1)
    return Examples(torch.stack([torch.full_like(told, keys), told], dim=-1), wanted)


TASKS = {"recall": draw_recall, "copy": draw_copy}


def recall_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [
        Part(
            f"{task}, {kind}, length {length}, seed {seed}", partial(_learn, settings, task, kind, length, seed), length
        )
        for seed in seeds
        for task in TASKS
        for kind in KINDS
        for length in settings["lengths"]
    ]


def _learn(settings: Settings, task: str, kind: str, length: int, seed: int, report: Report) -> Row:
    keys, values, width = settings["keys"], settings["values"], settings["width"]
    rows = max(1, settings["asked"] // length)
    draw = partial(TASKS[task], rows, length, keys, values)
    _, row = train_network(
        lambda: Remembering(KINDS[kind](width), keys, values, width), draw, settings["train"], seed, report
    )
    return {"task": task, "kind": kind, "length": length, "seed": seed, **row}


def recall_tables(found: Found) -> list[Table]:
    lengths = found.settings["lengths"]
    return [
        Table(
            [f"{task}, % right", *(f"{length}" for length in lengths)],
            [
                [kind, *(spread(found.values("accuracy", task=task, kind=kind, length=length)) for length in lengths)]
                for kind in KINDS
            ],
            f"{task} of so many; chance {100 / found.settings['values']:g}%",
        )
        for task in TASKS
    ]


def recall_checks(found: Found) -> list[Check]:
    longest = found.settings["lengths"][-1]

    def group(task: str, kind: str) -> Group:
        return found.group(kind, "accuracy", task=task, kind=kind, length=longest)

    checks = []
    for task in TASKS:
        states = [group(task, kind) for kind in KINDS if kind != "exact attention"]
        best = max(states, key=lambda each: each.mean)
        checks.append(
            above(f"At length {longest} exact attention is best at {task}", group(task, "exact attention"), best)
        )
    return [
        *checks,
        above("An LSTM remembers more than an RNN (recall)", group("recall", "LSTM"), group("recall", "RNN")),
        above("An LSTM remembers more than an RNN (copying)", group("copy", "LSTM"), group("copy", "RNN")),
    ]


def draw_recalled(found: Found) -> Figure:
    from regard.experiments.drawing import by, line, noted, panels, percent, powers, titled
    from regard.look.figures.sheet import QUIET, legend

    figure, axes = panels(1, 2, width=5.0)
    told = {"recall": "recall: the value of each key", "copy": "copying: all letters in their order"}
    for panel, task in zip(axes, TASKS, strict=True):
        for place, kind in enumerate(KINDS):
            rows = found.where(task=task, kind=kind)
            curve = by([(row["length"], math.nan if row["accuracy"] is None else row["accuracy"]) for row in rows])
            line(panel, curve, kind, place)
        powers(panel, found.settings["lengths"])
        titled(panel, told[task], "items to remember", "right, %")
        percent(panel)
        panel.axhline(100 / found.settings["values"], color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
    legend(figure, axes[0])
    noted(figure, f"two layers each; line: mean of {len(found.seeds)} seeds; band: least to greatest; dashed: chance")
    return figure


RECALL = Study(
    settings={
        "lengths": [4, 16, 64],
        "keys": 64,
        "values": 8,
        "width": 64,
        "asked": 256,
        "train": {"steps": 200, "optimiser": "muon", "lr": 1e-2, "warmup": 20},
    },
    tiny={"lengths": [2, 4], "keys": 5, "width": 8, "asked": 8, "train": {"steps": 1, "lr": 1e-3, "warmup": 0}},
    seeds=(1, 2),
    parts=recall_parts,
    tables=recall_tables,
    checks=recall_checks,
    draw=draw_recalled,
)
