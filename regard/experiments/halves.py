"""Decoder-only against encoder and decoder: the same task, data, width, number of blocks and updates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.config import merge
from regard.experiments.study import Check, Found, Group, Part, Report, Row, Settings, Study, Table, alike, spread
from regard.experiments.translators import SMALL, SMALL_TEST, SPANISH, TRANSLATING, learn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTH = "encoder and decoder"
MODELS: dict[str, dict[str, Any]] = {
    BOTH: {"kind": "transformer"},
    "decoder-only": {"kind": "decoder-only"},
    "decoder-only, source sees itself": {"kind": "decoder-only", "prefix": True},
}


def half_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    return [Part(f"{name}, seed {seed}", partial(_learn, settings, name, seed)) for seed in seeds for name in MODELS]


def _learn(settings: Settings, name: str, seed: int, report: Report) -> Row:
    kind, layers = MODELS[name], settings["layers"]
    alone = kind["kind"] == "decoder-only"
    depth = {"layers": 2 * layers} if alone else {"encoder_layers": layers, "decoder_layers": layers}
    change = {"model": {**settings["model"], **kind, **depth}}
    return {"model": name, "seed": seed, **learn(settings, change, seed, report)}


KEYS = {
    "exact": "exactly right, %",
    "nll": "nll of a token",
    "parameters": "parameters",
    "milliseconds_a_step": "ms a step",
}


def half_tables(found: Found) -> list[Table]:
    rows = [[name, *(spread(found.values(key, model=name)) for key in KEYS)] for name in MODELS]
    return [Table(["model", *KEYS.values()], rows, f"Spanish to English, {2 * found.settings['layers']} blocks each")]


def half_checks(found: Found) -> list[Check]:
    def group(name: str) -> Group:
        return found.group(name, "exact", model=name)

    return [
        alike(f"A decoder alone does as well ({name})", group(name), group(BOTH), 5) for name in MODELS if name != BOTH
    ]


def draw_halves(found: Found) -> Figure:
    from regard.experiments.drawing import dots, noted, panels
    from regard.look.figures.sheet import COLORS

    keys = {**KEYS, "exact": "exactly right, % of unseen sentences", "nll": "negative log-likelihood of a token"}
    figure, axes = panels(1, 3, width=4.2, height=2.1)
    for panel, key in zip(axes, ("exact", "nll", "milliseconds_a_step"), strict=True):
        groups = {name: found.values(key, model=name) for name in MODELS}
        dots(panel, groups, COLORS, "", keys[key], named=panel is axes[0])
    noted(figure, f"{2 * found.settings['layers']} blocks each; bar: mean; dots: each of {len(found.seeds)} seeds")
    return figure


SIZE = {"width": 64, "heads": 4, "feed_forward": 128, "dropout": 0.0}
DECODER_ONLY = Study(
    settings={**TRANSLATING, "run": SPANISH, "layers": 2, "model": SIZE},
    tiny={
        "layers": 1,
        "model": {**SIZE, "width": 8, "feed_forward": 8},
        "run": merge(SPANISH, SMALL),
        **SMALL_TEST,
    },
    seeds=(1, 2),
    parts=half_parts,
    tables=half_tables,
    checks=half_checks,
    draw=draw_halves,
)
