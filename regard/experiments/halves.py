"""Decoder-only against encoder and decoder: the same task, data, width, number of blocks and updates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.config import merge
from regard.experiments.learning import test_pairs, train_run
from regard.experiments.softmax import DATES, TINY_DATES
from regard.experiments.study import Check, Found, Group, Part, Report, Row, Settings, Study, Table, alike, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTH = "encoder and decoder"
MODELS: dict[str, dict[str, Any]] = {
    BOTH: {"kind": "transformer"},
    "decoder-only": {"kind": "decoder-only"},
    "decoder-only, source sees itself": {"kind": "decoder-only", "prefix": True},
}


def half_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [
        Part(f"{task}, {name}, seed {seed}", partial(_learn, settings, task, name, seed))
        for seed in seeds
        for task in settings["tasks"]
        for name in MODELS
    ]


def _learn(settings: Settings, task: str, name: str, seed: int, report: Report) -> Row:
    kind = MODELS[name]
    layers = settings["layers"]
    depth = (
        {"layers": 2 * layers}
        if kind["kind"] == "decoder-only"
        else dict.fromkeys(("encoder_layers", "decoder_layers"), layers)
    )
    about = settings["tasks"][task]
    values = merge(
        settings["run"], {"data": {"train": about["train"]}, "model": {**settings["model"], **kind, **depth}}
    )
    test = partial(test_pairs, about["test"], settings["tested"])
    return {"task": task, "model": name, "seed": seed, **train_run("translate", values, seed, test, report)}


KEYS = {
    "exact": "exactly right, %",
    "nll": "nll of a token",
    "parameters": "parameters",
    "milliseconds_a_step": "ms a step",
}


def half_tables(found: Found) -> list[Table]:
    return [
        Table(
            [task, *KEYS.values()],
            [[name, *(spread(found.values(key, task=task, model=name)) for key in KEYS)] for name in MODELS],
            f"{task}, {2 * found.settings['layers']} blocks each",
        )
        for task in found.settings["tasks"]
    ]


def half_checks(found: Found) -> list[Check]:
    def group(task: str, name: str) -> Group:
        return found.group(name, "exact", task=task, model=name)

    return [
        alike(f"{task}: a decoder alone does as well ({name})", group(task, name), group(task, BOTH), 5)
        for task in found.settings["tasks"]
        for name in MODELS
        if name != BOTH
    ]


def draw_halves(found: Found) -> Figure:
    from regard.experiments.drawing import dots, noted, panels, titled
    from regard.look.figures.sheet import COLORS

    tasks = list(found.settings["tasks"])
    figure, axes = panels(len(tasks), 3, width=4.2, height=1.9)
    for row, task in enumerate(tasks):
        for column, (key, x) in enumerate(
            (
                ("exact", "exactly right, %"),
                ("nll", "negative log-likelihood of a token"),
                ("milliseconds_a_step", "ms a step of training"),
            )
        ):
            panel = axes[3 * row + column]
            dots(panel, {name: found.values(key, task=task, model=name) for name in MODELS}, COLORS)
            titled(panel, task if column == 0 else "", x)
            panel.grid(visible=False, axis="y")
            if column:
                panel.set_yticks(range(len(MODELS)), [""] * len(MODELS))
    noted(figure, f"{2 * found.settings['layers']} blocks each; bar: mean; dots: each of {len(found.seeds)} seeds")
    return figure


RUN = {key: value for key, value in DATES.items() if key != "model"}
DECODER_ONLY = Study(
    settings={
        "layers": 2,
        "model": {"width": 64, "heads": 4, "feed_forward": 128, "dropout": 0.0},
        "run": RUN,
        "tasks": {"dates": {"train": "builtin/dates", "test": "builtin/dates/test"}},
        "tested": 300,
    },
    tiny={
        "layers": 1,
        "model": {"width": 8, "heads": 2, "feed_forward": 8, "dropout": 0.0},
        "run": {key: value for key, value in TINY_DATES.items() if key != "model"},
        "tested": 3,
    },
    seeds=(1, 2),
    parts=half_parts,
    tables=half_tables,
    checks=half_checks,
    draw=draw_halves,
)
