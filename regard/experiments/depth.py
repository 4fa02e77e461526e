"""Without feed-forward layers and residual connections, attention averages until all positions are alike (Dong et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.blocks import FeedForward
from regard.blocks.block import Residual
from regard.blocks.initialise import initialise
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
    spread,
)
from regard.experiments.translators import TINY_TRANSLATING, TRANSLATING, learn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What stands around attention: feed-forward layers, residual connections, norms before each.
STACKS = {
    "attention alone": (False, False, "none"),
    "with feed-forward": (True, False, "none"),
    "with residuals": (False, True, "none"),
    "with both": (True, True, "none"),
    "with both and norms": (True, True, "pre"),
}
EARLY = 2  # layers after which the first two can still be told apart from rounding


def apart(x: Tensor) -> float:
    """‖X - 1 x̄ᵀ‖ / ‖X‖ of positions x (T, D): 0 where all are alike (res(X) of Dong et al. 2021, section 2)."""
    return float((x - x.mean(dim=0)).norm() / x.norm())


def rank(x: Tensor, share: float = 0.01) -> int:
    """How many singular values of x (T, D) are above that share of the largest."""
    values = torch.linalg.svdvals(x)
    return int((values > share * values[0]).sum())


class Layers(nn.Module):
    """Attention with fresh weights, layer upon layer; `x` after each layer."""

    def __init__(self, width: int, heads: int, depth: int, feed_forward: bool, residual: bool, order: str) -> None:
        super().__init__()
        self.around = Residual(nn.LayerNorm(width), 0.0, order=order, residual=residual)  # fresh norms are all the same
        self.attention = nn.ModuleList(MultiHead(width, heads, role="self") for _ in range(depth))
        self.feed = nn.ModuleList(FeedForward(width, 4 * width) for _ in range(depth if feed_forward else 0))
        initialise(self)

    def forward(self, x: Tensor) -> list[Tensor]:
        """x (T, D) before the first layer and after each."""
        seen = [x]
        for place, attention in enumerate(self.attention):
            y = self.around(seen[-1][None], lambda z, attention=attention: attention(z, z))
            seen.append((self.around(y, self.feed[place]) if len(self.feed) else y)[0])
        return seen


@torch.no_grad()
def collapse_rows(settings: Settings, seed: int, report: Report) -> Row:
    """How far positions are apart after each layer of each stack."""
    rows, sizes = [], (settings["width"], settings["heads"], settings["depth"])
    for place, (name, around) in enumerate(STACKS.items()):
        torch.manual_seed(seed)
        x = torch.randn(settings["positions"], settings["width"], dtype=torch.float64)
        stack = Layers(*sizes, *around).double()
        rows += [
            {"stack": name, "depth": depth, "apart": apart(each), "rank": rank(each)}
            for depth, each in enumerate(stack(x))
        ]
        report((place + 1) / len(STACKS))
    return {"what": "collapse", "seed": seed, "rows": rows}


def depth_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    parts = [Part(f"positions over depth, seed {seed}", partial(collapse_rows, settings, seed), 0.05) for seed in seeds]
    return parts + [
        Part(f"training, {name}, seed {seed}", partial(_learn, settings, name, seed))
        for seed in seeds
        for name in settings["models"]
    ]


def _learn(settings: Settings, name: str, seed: int, report: Report) -> Row:
    change = {"model": settings["models"][name]}
    return {"what": "training", "model": name, "seed": seed, **learn(settings, change, seed, report)}


def depth_tables(found: Found) -> list[Table]:
    depths = [depth for depth in (0, 1, 2, 4, 8, 16, 24) if depth <= found.settings["depth"]]
    collapse = [
        [name, *(spread(found.values("apart", stack=name, depth=depth), 2) for depth in depths)] for name in STACKS
    ]
    ranks = [[name, *(spread(found.values("rank", stack=name, depth=depth), 2) for depth in depths)] for name in STACKS]
    learned = [
        [name, *(spread(found.values(key, what="training", model=name)) for key in ("exact", "nll", "parameters"))]
        for name in found.settings["models"]
    ]
    return [
        Table(
            ["after layer", *map(str, depths)],
            collapse,
            "How far positions are from their mean, as a share of their size",
        ),
        Table(
            ["after layer", *map(str, depths)],
            ranks,
            f"Rank: singular values above 1% of the largest, of {found.settings['positions']}",
        ),
        Table(
            ["trained", "exactly right, %", "nll of a token", "parameters"],
            learned,
            "Translators of Spanish, trained alike",
        ),
    ]


def depth_checks(found: Found) -> list[Check]:
    deepest, half = found.settings["depth"], min(found.settings["positions"], found.settings["width"]) / 2

    def group(key: str, stack: str, depth: int = deepest) -> Group:
        return found.group(f"{stack} after {depth} layers", key, stack=stack, depth=depth)

    alone, feed, residual, _, whole = STACKS
    full, *without = found.settings["models"]
    checks = [
        at_most("Attention alone makes all positions alike", group("apart", alone), 1e-3),
        at_most("Attention alone makes their rank one", group("rank", alone), 1),
        above("Feed-forward layers slow this down", group("apart", feed, EARLY), group("apart", alone, EARLY)),
        above("Residual connections slow it down", group("apart", residual), group("apart", alone)),
        at_least("Residual connections alone prevent it (rank)", group("rank", residual), half),
        at_least("A whole block, with norms, prevents it (rank)", group("rank", whole), half),
    ]
    return checks + [
        above(
            f"A model {name} learns worse",
            found.group(full, "exact", what="training", model=full),
            found.group(name, "exact", what="training", model=name),
        )
        for name in without
    ]


def draw_depth(found: Found) -> Figure:
    from regard.experiments.drawing import by, dots, line, noted, panels, titled
    from regard.look.figures.sheet import COLORS, legend

    figure, axes = panels(1, 3, width=4.3)
    for panel, key, title in (
        (axes[0], "apart", "distance of positions from their mean"),
        (axes[1], "rank", "rank"),
    ):
        for place, name in enumerate(STACKS):
            line(panel, by([(row["depth"], row[key]) for row in found.where(stack=name)]), name, place, markersize=3.5)
        titled(
            panel,
            title,
            "layers of fresh weights",
            "share of their size" if key == "apart" else "singular values above 1%",
        )
    axes[0].set_yscale("log")
    axes[0].set_ylim(bottom=1e-16)
    groups = {name: found.values("exact", what="training", model=name) for name in found.settings["models"]}
    colors = [COLORS[5]] * len(groups)
    dots(axes[2], groups, colors, "translators of Spanish, trained alike", "exactly right, % of unseen sentences")
    legend(figure, axes[0])
    noted(figure, f"line: mean of {len(found.seeds)} seeds; band: least to greatest; dots: each trained seed")
    return figure


FEED_FORWARD = Study(
    settings={
        "width": 64,
        "heads": 4,
        "positions": 32,
        "depth": 24,
        "models": {
            "with feed-forward": {},
            "without feed-forward": {"feed_forward": 0},
            "without residuals": {"residual": False},
        },
        **TRANSLATING,
    },
    tiny={"width": 8, "heads": 2, "positions": 5, "depth": 3, **TINY_TRANSLATING},
    seeds=(1, 2),
    parts=depth_parts,
    tables=depth_tables,
    checks=depth_checks,
    draw=draw_depth,
)
