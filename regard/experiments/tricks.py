"""What each training trick of the Transformer is worth: each taken away in turn from a small one that translates Spanish.

Few sentences, so that dropout, label smoothing and weight decay have something to do; equal updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.config import merge
from regard.experiments.study import Check, Found, Group, Part, Report, Row, Settings, Study, Table, above, spread
from regard.experiments.translators import TINY_TRANSLATING, TRANSLATING, learn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all of them (norm before)"
WITHOUT: dict[str, dict[str, Any]] = {
    ALL: {},
    "no residuals": {"model": {"residual": False}},
    "no norm": {"model": {"norm": "none"}},
    "batch norm": {"model": {"norm_kind": "batch"}},
    "norm after (post)": {"model": {"norm": "post"}},
    "no warm-up": {"train": {"warmup": 0}},
    "norm after, no warm-up": {"model": {"norm": "post"}, "train": {"warmup": 0}},
    "no label smoothing": {"train": {"smoothing": 0.0}},
    "no dropout": {"model": {"dropout": 0.0}},
    "no weight decay": {"train": {"weight_decay": 0.0}},
}
"""Name of a row -> what is changed; the first is what the others are held against."""


def trick_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [
        Part(f"{name}, seed {seed}", partial(_learn, settings, name, change, seed))
        for seed in seeds
        for name, change in WITHOUT.items()
    ]


def _learn(settings: Settings, name: str, change: dict[str, Any], seed: int, report: Report) -> Row:
    return {"without": name, "seed": seed, **learn(settings, change, seed, report)}


def _values(found: Found, name: str, key: str) -> list[float]:
    """One number of each seed; what diverged got nothing right."""
    rows = found.where(without=name)
    return [0.0 if "failed" in row and key == "exact" else float(row.get(key, "nan")) for row in rows]


def trick_tables(found: Found) -> list[Table]:
    rows = [[name, *(spread(_values(found, name, key)) for key in ("exact", "nll"))] for name in WITHOUT]
    return [
        Table(
            ["without", "exactly right, %", "nll of a token"], rows, "Spanish, each trick taken away from the first row"
        )
    ]


def trick_checks(found: Found) -> list[Check]:
    def group(name: str) -> Group:
        return Group(name, _values(found, name, "exact"))

    says = {
        "no residuals": "Without residuals a model hardly learns",
        "no norm": "Layer norm helps",
        "batch norm": "Layer norm is better than batch norm",
        "norm after, no warm-up": "Without warm-up the norm after each residual fails",
        "no warm-up": "Warm-up helps",
        "no label smoothing": "Label smoothing helps",
        "no dropout": "Dropout helps",
        "no weight decay": "Weight decay helps",
    }
    checks = [
        above(says[name], group(ALL), group(name))
        for name in WITHOUT
        if name in says and name != "norm after, no warm-up"
    ]
    checks.insert(2, above(says["norm after, no warm-up"], group("norm after (post)"), group("norm after, no warm-up")))
    return checks


def draw_tricks(found: Found) -> Figure:
    from regard.experiments.drawing import dots, noted, panels
    from regard.look.figures.sheet import COLORS, QUIET

    figure, (left, right) = panels(1, 2, width=4.8, height=0.34 * len(WITHOUT) + 0.9)
    colors = [COLORS[1], *[COLORS[0]] * (len(WITHOUT) - 1)]
    for panel, key, title in (
        (left, "exact", "exactly right, % of unseen sentences"),
        (right, "nll", "negative log-likelihood of a token"),
    ):
        groups = {name: _values(found, name, key) for name in WITHOUT}
        dots(panel, groups, colors, "", title, named=panel is left)
        panel.axvline(Group("", groups[ALL]).mean, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
    noted(figure, f"bar: mean; dots: each of {len(found.seeds)} seeds; dashed: with all of them")
    return figure


FULL: dict[str, Any] = {
    "data": {"builtin_size": 2000},
    "model": {"norm": "pre", "dropout": 0.1},
    "train": {
        "steps": 600,
        "optimiser": "adam",
        "lr": 5e-3,
        "warmup": 30,
        "smoothing": 0.1,
        "weight_decay": 0.1,
    },
}
TINY: dict[str, Any] = {"data": {"builtin_size": 60}, "train": {"steps": 2, "warmup": 0}}
TRICKS = Study(
    settings={**TRANSLATING, "run": merge(TRANSLATING["run"], FULL)},
    tiny={**TINY_TRANSLATING, "run": merge(TINY_TRANSLATING["run"], merge(FULL, TINY))},
    seeds=(1, 2),
    parts=trick_parts,
    tables=trick_tables,
    checks=trick_checks,
    draw=draw_tricks,
)
