"""What each training trick of the Transformer is worth: each taken away in turn from a small one that learns to read dates.

Few pairs, so that dropout, label smoothing and weight decay have something to do; equal updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.config import merge
from regard.experiments.learning import test_pairs, train_run
from regard.experiments.softmax import TINY_DATES
from regard.experiments.study import Check, Found, Group, Part, Report, Row, Settings, Study, Table, above, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all of them (norm before)"
WITHOUT: dict[str, dict[str, Any]] = {
    ALL: {},
    "no residuals": {"model": {"residual": False}},
    "no norm": {"model": {"norm": "none"}},
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
    test = partial(test_pairs, settings["test"], settings["tested"])
    return {"without": name, "seed": seed, **train_run("translate", merge(settings["run"], change), seed, test, report)}


def _values(found: Found, name: str, key: str) -> list[float]:
    """One number of each seed; what diverged got nothing right."""
    rows = found.where(without=name)
    return [0.0 if "failed" in row and key == "exact" else float(row.get(key, "nan")) for row in rows]


def trick_tables(found: Found) -> list[Table]:
    rows = [[name, *(spread(_values(found, name, key)) for key in ("exact", "nll"))] for name in WITHOUT]
    return [
        Table(
            ["without", "exactly right, %", "nll of a token"], rows, "Dates, each trick taken away from the first row"
        )
    ]


def trick_checks(found: Found) -> list[Check]:
    def group(name: str) -> Group:
        return Group(name, _values(found, name, "exact"))

    says = {
        "no residuals": "Without residuals a model hardly learns",
        "no norm": "Layer norm helps",
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
    from regard.experiments.drawing import dots, noted, panels, titled
    from regard.look.figures.sheet import COLORS, QUIET

    figure, (left, right) = panels(1, 2, width=4.8, height=0.34 * len(WITHOUT) + 0.9)
    colors = [COLORS[1], *[COLORS[0]] * (len(WITHOUT) - 1)]
    for panel, key, title in (
        (left, "exact", "exactly right, % of unseen dates"),
        (right, "nll", "negative log-likelihood of a token"),
    ):
        groups = {name: _values(found, name, key) for name in WITHOUT}
        dots(panel, groups, colors)
        titled(panel, "", title)
        panel.grid(visible=False, axis="y")
        panel.axvline(Group("", groups[ALL]).mean, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
    right.set_yticks(range(len(WITHOUT)), [""] * len(WITHOUT))
    noted(figure, f"bar: mean; dots: each of {len(found.seeds)} seeds; dashed: with all of them")
    return figure


RUN: dict[str, Any] = {
    "preset": "demo",
    "data": {"train": "builtin/dates", "builtin_size": 4000},
    "tokens": {"kind": "character"},
    "model": {"kind": "transformer", "norm": "pre", "dropout": 0.1},
    "train": {
        "steps": 400,
        "batch_tokens": 1024,
        "lr": 3e-3,
        "schedule": "linear",
        "warmup": 60,
        "smoothing": 0.1,
        "weight_decay": 0.1,
        "average": 0,
        "select": "loss",
        "validate_every": 400,
        "patience": 0,
    },
    "validate": {"sentences": 0},
    "decode": {"beam": 1},
}
TRICKS = Study(
    settings={"run": RUN, "test": "builtin/dates/test", "tested": 300},
    tiny={
        "run": merge(TINY_DATES, {"model": {"dropout": 0.1}, "train": {"smoothing": 0.1, "weight_decay": 0.1}}),
        "tested": 3,
    },
    seeds=(1, 2),
    parts=trick_parts,
    tables=trick_tables,
    checks=trick_checks,
    draw=draw_tricks,
)
