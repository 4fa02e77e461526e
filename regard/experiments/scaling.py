"""Why scores are divided by √d: their deviation, the gradient through their softmax, and a model trained with and without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.config import merge
from regard.experiments.learning import test_pairs, train_run
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
    spread,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def softmax_gradient(weights: Tensor) -> Tensor:
    """‖∂ softmax / ∂ scores‖: the Frobenius norm of diag(p) - p pᵀ for weights p (..., S), without making the matrix.

    Its square is Σ p² - 2 Σ p³ + (Σ p²)².
    """
    squares, cubes = weights.square().sum(dim=-1), weights.pow(3).sum(dim=-1)
    return (squares - 2 * cubes + squares.square()).clamp(min=0).sqrt()


def score_rows(widths: Sequence[int], queries: int, keys: int, seed: int, report: Report) -> Row:
    """Scores of random queries and keys of variance 1 at each width, as they are and divided by √d."""
    rows = []
    for place, width in enumerate(widths):
        draw = torch.Generator().manual_seed(1000 * seed + width)
        q, k = (torch.randn(count, width, generator=draw, dtype=torch.float64) for count in (queries, keys))
        for scaled in (False, True):
            scores = q @ k.T / (math.sqrt(width) if scaled else 1.0)  # (queries, keys)
            weights = scores.softmax(dim=-1)
            rows.append(
                {
                    "width": width,
                    "scaled": scaled,
                    "deviation": float(scores.std()),
                    "greatest": float(weights.amax(dim=-1).mean()),
                    "gradient": float(softmax_gradient(weights).median()),
                }
            )
        report((place + 1) / len(widths))
    return {"what": "scores", "seed": seed, "rows": rows}


def scaling_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    sizes = settings["widths"], settings["queries"], settings["keys"]
    parts = [Part(f"scores, seed {seed}", partial(score_rows, *sizes, seed), 0.02) for seed in seeds]
    for seed in seeds:
        for heads in settings["heads"]:
            for scaled in (True, False):
                name = f"training, {heads} heads, {'scaled' if scaled else 'unscaled'}, seed {seed}"
                parts.append(Part(name, partial(_learn_scaled, settings, heads, scaled, seed)))
    return parts


def _learn_scaled(settings: Settings, heads: int, scaled: bool, seed: int, report: Report) -> Row:
    values = merge(settings["run"], {"model": {"heads": heads, "scaled": scaled}})
    test = partial(test_pairs, settings["test"], settings["tested"])
    width = settings["run"]["model"]["width"] // heads
    return {"what": "training", "head_width": width, "scaled": scaled, "seed": seed} | train_run(
        "translate", values, seed, test, report
    )


def _head_widths(found: Found) -> list[int]:
    return sorted({row["head_width"] for row in found.where(what="training")})


def scaling_tables(found: Found) -> list[Table]:
    rows = [
        [
            str(width),
            *(
                spread(found.values(key, what="scores", width=width, scaled=scaled))
                for key in ("deviation", "greatest", "gradient")
                for scaled in (False, True)
            ),
        ]
        for width in found.settings["widths"]
    ]
    columns = ["d", "deviation q·k", "q·k/√d", "greatest weight q·k", "q·k/√d", "gradient q·k", "q·k/√d"]
    learned = [
        [
            f"{width}",
            name,
            *(spread(found.values(key, what="training", head_width=width, scaled=scaled)) for key in ("exact", "nll")),
        ]
        for width in _head_widths(found)
        for name, scaled in (("q·k/√d", True), ("q·k", False))
    ]
    return [
        Table(columns, rows, f"Random vectors of variance 1, softmax over {found.settings['keys']} keys"),
        Table(["head width", "score", "exactly right, %", "nll of a token"], learned, "Trained alike"),
    ]


def scaling_checks(found: Found) -> list[Check]:
    narrow, wide = found.settings["widths"][0], found.settings["widths"][-1]

    def group(name: str, key: str, width: int, scaled: bool) -> Group:
        return found.group(name, key, what="scores", width=width, scaled=scaled)

    ratio = Group(
        f"deviation at d = {wide} over √{wide}",
        [value / math.sqrt(wide) for value in found.values("deviation", what="scores", width=wide, scaled=False)],
    )
    kept = Group(
        f"gradient at d = {wide} over that at {narrow}, scaled",
        [
            after / before
            for before, after in zip(
                found.values("gradient", what="scores", width=narrow, scaled=True),
                found.values("gradient", what="scores", width=wide, scaled=True),
                strict=True,
            )
        ],
    )
    widest = _head_widths(found)[-1]
    learned = [
        found.group(name, "exact", what="training", head_width=widest, scaled=scaled)
        for name, scaled in (("scaled", True), ("unscaled", False))
    ]
    checks = [
        Check("The deviation of scores is √d", str(ratio), all(abs(value - 1) < 0.1 for value in ratio.values)),
        at_least(
            "Unscaled, the softmax saturates", group(f"greatest weight at d = {wide}", "greatest", wide, False), 0.9
        ),
        above(
            "Its gradient vanishes without the scale",
            group("scaled", "gradient", wide, True),
            group("unscaled", "gradient", wide, False),
        ),
        at_least("With the scale the gradient does not depend on the width", kept, 0.8),
    ]
    return [*checks, above(f"A model with heads of width {widest} learns better with the scale", *learned)]


def draw_scaling(found: Found) -> Figure:
    from regard.experiments.drawing import by, dots, line, logarithmic, noted, panels, powers, titled
    from regard.look.figures.sheet import COLORS, legend

    figure, axes = panels(2, 2)
    for panel, (key, title, y) in zip(
        axes,
        (
            ("deviation", "deviation of the scores", ""),
            ("greatest", "greatest weight of a softmax", f"mean, {found.settings['keys']} keys"),
            ("gradient", "gradient through the softmax", "median norm"),
        ),
        strict=False,
    ):
        for place, (name, scaled) in enumerate((("q·k", False), ("q·k / √d", True))):
            rows = found.where(what="scores", scaled=scaled)
            line(panel, by([(row["width"], row[key]) for row in rows]), name, place)
        powers(panel, found.settings["widths"])
        titled(panel, title, "width d of queries and keys", y)
    axes[1].set_ylim(0, 1.02)
    for panel in (axes[0], axes[2]):
        logarithmic(panel)
    groups = {
        f"{'q·k / √d' if scaled else 'q·k'}, d = {width}": found.values(
            "exact", what="training", head_width=width, scaled=scaled
        )
        for width in _head_widths(found)
        for scaled in (False, True)
    }
    colors = [COLORS[number % 2] for number in range(len(groups))]
    dots(axes[3], groups, colors, "a small Transformer after equal training", "exactly right, % of unseen dates")
    legend(figure, axes[0])
    noted(figure, f"line: mean of {len(found.seeds)} seeds; band: least to greatest; dots: each seed")
    return figure


DATES = {
    "preset": "demo",
    "data": {"train": "builtin/dates", "builtin_size": 10_000},
    "tokens": {"kind": "character"},
    "model": {"kind": "transformer", "encoder_layers": 1, "decoder_layers": 1, "width": 64, "feed_forward": 128},
    "train": {
        "steps": 300,
        "batch_tokens": 1024,
        "optimiser": "muon",
        "lr": 1e-2,
        "schedule": "linear",
        "warmup": 30,
        "smoothing": 0.0,
        "average": 0,
        "validate_every": 300,
        "patience": 0,
    },
    "validate": {"sentences": 0},
    "decode": {"beam": 1},
}
TINY_DATES = merge(
    DATES,
    {
        "data": {"builtin_size": 60, "hold_out": 10},
        "model": {"width": 16, "feed_forward": 16},
        "train": {"steps": 2, "validate_every": 2, "warmup": 0},
    },
)
SCALING = Study(
    settings={
        "widths": [4, 16, 64, 256, 1024],
        "queries": 512,
        "keys": 64,
        "heads": [4, 1],
        "run": DATES,
        "test": "builtin/dates/test",
        "tested": 300,
    },
    tiny={"widths": [4, 16], "queries": 7, "keys": 5, "heads": [1], "run": TINY_DATES, "tested": 3},
    seeds=(1, 2),
    parts=scaling_parts,
    tables=scaling_tables,
    checks=scaling_checks,
    draw=draw_scaling,
)
