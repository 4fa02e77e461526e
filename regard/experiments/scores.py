"""The six scores of attention, trained on the same sentences; and what one call of each costs over width and length."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attention.scores import SCORES as ALL_SCORES
from regard.attention.scores import Score, make_score
from regard.bench.scout import LiveStorages
from regard.config import merge
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
    spread,
)
from regard.experiments.translators import SMALL, SMALL_TEST, SPANISH, TRANSLATING, learn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIX = ("additive", "general", "dot", "scaled-dot", "cosine", "location")  # in the order in which they are drawn
COSTED = ("additive", "dot")
MIB = 2**20


def weigh(score: Score, q: Tensor, memory: Tensor) -> Tensor:
    """One look of every query (B, T, E) at every position of the memory (B, S, E): scores, softmax, weighted sum."""
    return score(q, score.keys(memory)).softmax(dim=-1) @ memory


def call_cost(name: str, width: int, length: int, rounds: int) -> tuple[float, int]:
    """Processor milliseconds (median) and bytes at the peak of one forward and backward call of `length` queries and keys."""
    torch.manual_seed(1)
    score = make_score(name, width, width, length)
    q, memory = (torch.randn(1, length, width, requires_grad=True) for _ in range(2))

    def call() -> None:
        weigh(score, q, memory).sum().backward()

    call()
    spent = []
    for _ in range(rounds):
        started = time.process_time()
        call()
        spent.append(time.process_time() - started)
    with LiveStorages() as live:
        call()
    return 1000 * statistics.median(spent), live.peak


def cost_rows(settings: Settings, report: Report) -> Row:
    """The cost of a call over width at one length, and over length at one width."""
    costs = settings["costs"]
    sizes = [("width", width, costs["length"]) for width in costs["widths"]]
    sizes += [("length", costs["width"], length) for length in costs["lengths"]]
    rows = []
    for place, (over, width, length) in enumerate(sizes):
        for name in SIX:
            spent, memory = call_cost(name, width, length, costs["rounds"])
            about = {"over": over, "score": name, "width": width, "length": length}
            rows.append({**about, "milliseconds": spent, "bytes": memory})
        report((place + 1) / len(sizes))
    return {"what": "cost", "rows": rows}


def score_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [Part("cost of a call", partial(cost_rows, settings), 1.0)] + [
        Part(f"training, {score}, seed {seed}", partial(_learn, settings, score, seed), 1.0)
        for seed in seeds
        for score in SIX
    ]


def _learn(settings: Settings, score: str, seed: int, report: Report) -> Row:
    change = {"model": {"score": score}}
    return {"what": "training", "score": score, "seed": seed, **learn(settings, change, seed, report)}


def _costs(found: Found, key: str, over: str, score: str) -> dict[int, float]:
    return {row[over]: row[key] for row in found.where(what="cost", over=over, score=score)}


def score_tables(found: Found) -> list[Table]:
    longest = max(found.settings["costs"]["lengths"])
    rows = []
    for score in SIX:
        learned = [
            spread(found.values(key, what="training", score=score)) for key in ("exact", "nll", "milliseconds_a_step")
        ]
        (cost,) = found.where(what="cost", over="length", score=score, length=longest)
        rows.append([score, *learned, f"{cost['milliseconds']:.2f}", f"{cost['bytes'] / MIB:.2f}"])
    columns = ["score", "exactly right, %", "nll of a token", "ms a step", "ms a call", "MiB a call"]
    width = found.settings["costs"]["width"]
    about = f"a call: {longest} queries look at {longest} keys of width {width}, forward and backward"
    return [Table(columns, rows, f"The same recurrent translator of Spanish with each score; {about}")]


def score_checks(found: Found) -> list[Check]:
    def learned(score: str) -> Group:
        return found.group(score, "exact", what="training", score=score)

    def times(key: str, over: str) -> Group:
        additive, dot = (_costs(found, key, over, score) for score in COSTED)
        size = max(dot)
        return Group(f"additive over dot at {over} {size}, times", [additive[size] / dot[size]])

    looking = sorted((learned(score) for score in SIX if score != "location"), key=lambda each: each.mean)
    return [
        above("The best score by what stands there beats that by position alone", looking[-1], learned("location")),
        above("Each of them does, even the least", looking[0], learned("location")),
        at_least("The dot product is faster than the additive score over width", times("milliseconds", "width"), 1.5),
        at_least("The dot product is faster over length", times("milliseconds", "length"), 1.5),
        at_least("The dot product takes less memory over width", times("bytes", "width"), 1.5),
        at_least("The dot product takes less memory over length", times("bytes", "length"), 1.5),
        alike("Scaled dot is as good as additive", learned("scaled-dot"), learned("additive"), 5.0),
    ]


def draw_scores(found: Found) -> Figure:
    from regard.experiments.drawing import dots, line, logarithmic, noted, panels, powers, titled
    from regard.look.figures.sheet import COLORS, legend

    figure, axes = panels(2, 3, width=4.1, height=3.2)
    quality, loss, speed, *costs = axes
    for panel, key, title, x in (
        (quality, "exact", "after equal training", "exactly right, % of unseen sentences"),
        (loss, "nll", "", "negative log-likelihood of a token"),
        (speed, "milliseconds_a_step", "", "processor ms a step of training"),
    ):
        groups = {score: found.values(key, what="training", score=score) for score in SIX}
        dots(panel, groups, COLORS, title, x, named=panel is quality)
    for panel, (key, over, factor, y) in zip(
        costs,
        (
            ("milliseconds", "width", 1.0, "processor ms a call"),
            ("milliseconds", "length", 1.0, "processor ms a call"),
            ("bytes", "length", 1 / MIB, "MiB at the peak of a call"),
        ),
        strict=True,
    ):
        for place, score in enumerate(SIX):
            if score in (*COSTED, "general"):
                curve = {float(size): [factor * cost] for size, cost in _costs(found, key, over, score).items()}
                line(panel, curve, score, place)
        powers(panel, found.settings["costs"][f"{over}s"])
        fixed = "length" if over == "width" else "width"
        titled(panel, f"one call, {fixed} {found.settings['costs'][fixed]}", over, y)
        logarithmic(panel)
    legend(figure, costs[0])
    noted(figure, f"bar: mean; dots: each of {len(found.seeds)} seeds; a call goes forward and backward")
    return figure


RUN = merge(SPANISH, {"model": {"kind": "luong", "width": 64, "hidden": 64, "cell": "gru", "dropout": 0.0}})
SCORES = Study(
    settings={
        **TRANSLATING,
        "run": RUN,
        "costs": {
            "widths": [16, 32, 64, 128, 256],
            "lengths": [16, 32, 64, 128, 256],
            "width": 64,
            "length": 64,
            "rounds": 5,
        },
    },
    tiny={
        "run": merge(RUN, merge(SMALL, {"model": {"width": 8, "hidden": 8}})),
        **SMALL_TEST,
        "costs": {"widths": [4, 8], "lengths": [4, 8], "width": 4, "length": 4, "rounds": 1},
    },
    seeds=(1, 2),
    parts=score_parts,
    tables=score_tables,
    checks=score_checks,
    draw=draw_scores,
)

assert set(SIX) <= set(ALL_SCORES)
