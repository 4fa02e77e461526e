"""Positions: what attention knows of order without them, and where they can be told: added, beside, in q, k and v."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

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
    alike,
    at_least,
    at_most,
    spread,
)
from regard.experiments.translators import TINY_TRANSLATING, TRANSLATING, learn
from regard.models.configs.translation import TransformerConfig
from regard.models.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCE = ("man", "eats", "small", "dinosaur")
PLACES: dict[str, dict[str, Any]] = {
    "none": {"positions": "none"},
    "added": {"positions": "sinusoidal"},
    "concatenated": {"positions": "sinusoidal", "positions_where": "concatenate"},
    "in q, k and v": {"positions": "sinusoidal", "positions_where": "qkv"},
}


def distinct(vectors: Tensor, within: float = 1e-6) -> int:
    """How many of the vectors (N, D) differ, by more than a share `within` of their mean length."""
    apart = torch.cdist(vectors, vectors) > within * vectors.norm(dim=-1).mean()  # (N, N)
    return sum(bool(apart[row, :row].all()) for row in range(len(vectors)))


@torch.no_grad()
def order_rows(settings: Settings, seed: int, report: Report) -> Row:
    """Encode all orders of a sentence with fresh weights, and compare the means of their vectors, for each kind."""
    orders = torch.tensor(list(permutations(range(len(SENTENCE)))))  # (24, 4)
    lengths = torch.full((len(orders),), len(SENTENCE))
    rows = []
    for place, (name, change) in enumerate(PLACES.items()):
        torch.manual_seed(seed)
        config = TransformerConfig.model_validate({**settings["encoder"], **change})
        model = Transformer(config, len(SENTENCE), len(SENTENCE)).double().eval()
        sentences = model.encode(orders, lengths).vectors.mean(dim=1)  # (24, D)
        length = float(sentences.norm(dim=-1).mean())
        farthest = float(torch.pdist(sentences).max()) / length
        rows.append({"positions": name, "distinct": distinct(sentences), "farthest": farthest})
        report((place + 1) / len(PLACES))
    return {"what": "orders", "seed": seed, "rows": rows}


def position_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    parts = [Part(f"orders, seed {seed}", partial(order_rows, settings, seed), 0.05) for seed in seeds]
    return parts + [
        Part(f"training, {name}, seed {seed}", partial(_learn, settings, name, seed))
        for seed in seeds
        for name in PLACES
    ]


def _learn(settings: Settings, name: str, seed: int, report: Report) -> Row:
    change = {"model": PLACES[name]}
    return {"what": "training", "positions": name, "seed": seed, **learn(settings, change, seed, report)}


def position_tables(found: Found) -> list[Table]:
    rows = [
        [
            name,
            *(spread(found.values(key, what="orders", positions=name), 2) for key in ("distinct", "farthest")),
            *(spread(found.values(key, what="training", positions=name)) for key in ("exact", "nll", "parameters")),
        ]
        for name in PLACES
    ]
    columns = [
        "positions",
        "distinct of 24 orders",
        "farthest apart",
        "exactly right, %",
        "nll of a token",
        "parameters",
    ]
    return [Table(columns, rows, f"All orders of {' '.join(SENTENCE)!r} with fresh weights; Spanish after training")]


def position_checks(found: Found) -> list[Check]:
    def orders(name: str) -> Group:
        return found.group(f"{name}: distinct", "distinct", what="orders", positions=name)

    def learned(name: str) -> Group:
        return found.group(name, "exact", what="training", positions=name)

    told = Group(
        "least of all kinds: distinct",
        [
            min(
                found.values("distinct", what="orders", positions=name, seed=seed)[0]
                for name in PLACES
                if name != "none"
            )
            for seed in found.seeds
        ],
    )
    return [
        at_most("Without positions a sentence is a bag of words: all 24 orders are one", orders("none"), 1),
        at_least("With positions, however told, each order is another", told, 24),
        above("Without positions a model learns worse", learned("added"), learned("none")),
        alike(
            "Beside the embeddings positions are worth as much as added", learned("concatenated"), learned("added"), 5
        ),
        alike("In q, k and v they are worth as much as added", learned("in q, k and v"), learned("added"), 5),
    ]


def draw_positions(found: Found) -> Figure:
    from regard.experiments.drawing import dots, noted, panels
    from regard.look.figures.sheet import COLORS

    figure, axes = panels(1, 3, width=4.1, height=0.36 * len(PLACES) + 0.9)
    shown = (
        ("orders", "distinct", f"“{' '.join(SENTENCE)}”", "distinct of 24 orders"),
        ("training", "exact", "translators of Spanish, trained alike", "exactly right, % of unseen sentences"),
        ("training", "nll", "", "negative log-likelihood of a token"),
    )
    for panel, (what, key, title, x) in zip(axes, shown, strict=True):
        groups = {name: found.values(key, what=what, positions=name) for name in PLACES}
        colors = [COLORS[1], *[COLORS[0]] * (len(PLACES) - 1)]
        dots(panel, groups, colors, title, x, named=panel is axes[0])
    axes[0].set_xlim(0, 25)
    noted(figure, f"bar: mean; dots: each of {len(found.seeds)} seeds")
    return figure


POSITIONS = Study(
    settings={
        "encoder": {
            "encoder_layers": 2,
            "decoder_layers": 1,
            "width": 32,
            "heads": 4,
            "feed_forward": 64,
            "dropout": 0.0,
        },
        **TRANSLATING,
    },
    tiny=TINY_TRANSLATING,
    seeds=(1, 2),
    parts=position_parts,
    tables=position_tables,
    checks=position_checks,
    draw=draw_positions,
)
