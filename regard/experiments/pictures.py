"""Networks that see, on drawn letters and digits: ViT and ConvNet over the number of pictures, and accuracy over size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.config import merge
from regard.experiments.learning import train_run
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
    number,
    spread,
)
from regard.tasks.evaluate_pictures import evaluate_pictures

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

NAMES = {"vit": "ViT", "convnet": "ConvNet", "mixer": "MLP-Mixer", "convmixer": "ConvMixer", "resnet": "ResNet"}
FEW_AND_MANY = ("vit", "convnet")
BY_SIZE = ("vit", "mixer", "convmixer", "resnet")


def picture_parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
    """Two networks learn from more and more pictures; four of several sizes learn from the same number."""
    wanted = [(kind, settings["middle"], count) for count in settings["counts"] for kind in FEW_AND_MANY]
    for kind in BY_SIZE:
        wanted += [(kind, size, settings["fixed"]) for size in range(len(settings["models"][kind]))]
    return [
        Part(f"{kind}, size {size}, {count} pictures, seed {seed}", partial(_learn, settings, kind, size, count, seed))
        for seed in seeds
        for kind, size, count in dict.fromkeys(wanted)
    ]


def _learn(settings: Settings, kind: str, size: int, count: int, seed: int, report: Report) -> Row:
    model = {"kind": kind, **settings["models"][kind][size]}
    values = merge(settings["run"], {"data": {"builtin_size": count}, "model": model})
    row = train_run("classify-pictures", values, seed, _test, report)
    return {"kind": kind, "size": size, "pictures": count, "seed": seed, **row}


def _test(labeller: Any) -> Row:
    """Accuracy on letters in fonts that were never drawn in training."""
    return {"accuracy": evaluate_pictures(labeller, ["builtin/glyphs/test"]).scores.accuracy}


def _sizes(found: Found, kind: str) -> list[tuple[int, list[float]]]:
    """Parameters and accuracies of each size of a kind, from the same pictures."""
    rows = found.where(kind=kind, pictures=found.settings["fixed"])
    sizes = sorted({(row["parameters"], row["size"]) for row in rows})
    return [(count, [row["accuracy"] for row in rows if row["size"] == size]) for count, size in sizes]


def _number(found: Found, kind: str, count: int) -> Group:
    """Accuracies of the middle size of a kind after so many pictures."""
    return found.group(NAMES[kind], "accuracy", kind=kind, size=found.settings["middle"], pictures=count)


def picture_tables(found: Found) -> list[Table]:
    counts = found.settings["counts"]
    number_rows = [
        [NAMES[kind], *(spread(_number(found, kind, count).values) for count in counts)] for kind in FEW_AND_MANY
    ]
    size_rows = [[NAMES[kind], f"{size:,}", spread(values)] for kind in BY_SIZE for size, values in _sizes(found, kind)]
    columns = ["network", "parameters", "accuracy, %"]
    return [
        Table(
            ["accuracy, %", *(f"{count:,} pictures" for count in counts)], number_rows, "Over the number of pictures"
        ),
        Table(columns, size_rows, f"Over size, {found.settings['fixed']:,} pictures"),
    ]


def picture_checks(found: Found) -> list[Check]:
    few, many = found.settings["counts"][0], found.settings["counts"][-1]

    group = partial(_number, found)

    gaps = [
        Group(
            f"ConvNet over ViT at {count:,}, points",
            [conv - vit for conv, vit in zip(group("convnet", count).values, group("vit", count).values, strict=True)],
        )
        for count in (few, many)
    ]
    largest = {kind: _sizes(found, kind)[-1][1] for kind in BY_SIZE}
    vit_small, vit_large = _sizes(found, "vit")[0], _sizes(found, "vit")[-1]
    others = max((Group(NAMES[kind], largest[kind]) for kind in BY_SIZE if kind != "vit"), key=lambda each: each.mean)
    return [
        above(f"With {few:,} pictures the ConvNet, made for pictures, wins", group("convnet", few), group("vit", few)),
        above("Its lead shrinks with more pictures", *gaps),
        above(f"With {many:,} pictures the ViT wins", group("vit", many), group("convnet", many)),
        above(
            "A larger ViT is better",
            Group(f"{vit_large[0]:,} parameters", vit_large[1]),
            Group(f"{vit_small[0]:,}", vit_small[1]),
        ),
        above(
            "At its largest, the ViT beats the other networks of patches and the ResNet",
            Group("ViT", largest["vit"]),
            others,
        ),
    ]


def draw_pictures(found: Found) -> Figure:
    from regard.experiments.drawing import line, noted, panels, powers, titled

    figure, (left, right) = panels(1, 2, width=5.0, height=3.8)
    places = {kind: place for place, kind in enumerate(NAMES)}
    for kind in FEW_AND_MANY:
        curve = {count: _number(found, kind, count).values for count in found.settings["counts"]}
        line(left, curve, NAMES[kind], places[kind])
    powers(left, found.settings["counts"])
    titled(left, "over the number of training pictures", "pictures", "accuracy on unseen fonts, %")
    for kind in BY_SIZE:
        line(right, {size / 1000: values for size, values in _sizes(found, kind)}, NAMES[kind], places[kind])
    right.set_xscale("log")
    right.xaxis.set_major_formatter(lambda value, _: number(value, 2))
    right.xaxis.set_minor_formatter(lambda value, _: number(value, 2) if str(value)[0] in "25" else "")
    titled(right, f"over size, {found.settings['fixed']:,} pictures", "thousands of parameters", "")
    right.tick_params(axis="x", which="minor", labelsize=8.5)
    _legend(figure, left, right)
    noted(figure, f"line: mean of {len(found.seeds)} seeds; band: least to greatest; equal updates for all")
    return figure


def _legend(figure: Figure, left: Any, right: Any) -> None:
    """One legend for both panels: each network once."""
    from regard.look.figures.sheet import TEXT

    named: dict[str, Artist] = {}
    for axes in (left, right):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(
        list(named.values()),
        list(named),
        loc="outside upper left",
        ncols=len(named),
        frameon=False,
        fontsize=9,
        labelcolor=TEXT,
    )


PICTURES = Study(
    settings={
        "counts": [250, 1000, 4000],
        "fixed": 4000,
        "middle": 1,
        "models": {
            "vit": [
                {"patch": 7, "layers": 2, "width": 32, "heads": 4, "feed_forward": 64, "dropout": 0.0},
                {"patch": 7, "layers": 3, "width": 64, "heads": 4, "feed_forward": 128, "dropout": 0.0},
                {"patch": 7, "layers": 4, "width": 96, "heads": 4, "feed_forward": 192, "dropout": 0.0},
            ],
            "mixer": [
                {"patch": 7, "layers": 2, "width": 32, "places": 16, "feed_forward": 64, "dropout": 0.0},
                {"patch": 7, "layers": 3, "width": 64, "places": 32, "feed_forward": 128, "dropout": 0.0},
                {"patch": 7, "layers": 4, "width": 96, "places": 32, "feed_forward": 192, "dropout": 0.0},
            ],
            "convmixer": [
                {"patch": 4, "layers": 2, "width": 48},
                {"patch": 4, "layers": 3, "width": 96},
                {"patch": 4, "layers": 4, "width": 144},
            ],
            "resnet": [
                {"channels": [8, 16], "blocks": 1, "dropout": 0.0},
                {"channels": [12, 24, 48], "blocks": 1, "dropout": 0.0},
                {"channels": [16, 32, 64], "blocks": 1, "dropout": 0.0},
            ],
            "convnet": [
                {"channels": [8, 16, 32], "layers": 1, "dropout": 0.0},
                {"channels": [16, 32, 96], "layers": 1, "dropout": 0.0},
            ],
        },
        "run": {
            "preset": "demo",
            "data": {"train": "builtin/glyphs"},
            "train": {
                "steps": 150,
                "batch_pictures": 64,
                "lr": 3e-3,
                "schedule": "linear",
                "warmup": 20,
                "smoothing": 0.0,
                "average": 0,
                "validate_every": 150,
                "patience": 0,
            },
        },
    },
    tiny={
        "counts": [20, 30],
        "fixed": 20,
        "middle": 0,
        "models": {
            "vit": [{"patch": 14, "layers": 1, "width": 8, "heads": 2, "feed_forward": 8}],
            "mixer": [{"patch": 14, "layers": 1, "width": 8, "places": 4, "feed_forward": 8}],
            "convmixer": [{"patch": 14, "layers": 1, "width": 8}],
            "resnet": [{"channels": [4], "blocks": 1}],
            "convnet": [{"channels": [4], "layers": 1}],
        },
        "run": {
            "preset": "demo",
            "data": {"train": "builtin/glyphs", "hold_out": 10},
            "train": {"steps": 2, "batch_pictures": 5, "warmup": 0, "average": 0, "validate_every": 2},
        },
    },
    seeds=(1, 2),
    parts=picture_parts,
    tables=picture_tables,
    checks=picture_checks,
    draw=draw_pictures,
)
