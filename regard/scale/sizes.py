"""The sizes of a family: settings that follow from a width, and widths whose parameters are evenly apart in the logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from regard.config import Tables
from regard.errors import Advice, Option, UsageError
from regard.models.kinds import CONFIGS
from regard.models.presets import PRESETS, preset
from regard.models.table import build
from regard.tasks.choose import with_values
from regard.tasks.config import RunConfig

STEP, NARROWEST, WIDEST = 8, 16, 2048  # widths that are thought of
HEAD = 32  # width of a head, and width for each layer
FEWEST_LAYERS = 2
BETWEEN = 32.0  # times as many parameters as the smallest, at most
EACH = 5.0  # tokens a parameter of the largest: few enough for it to be too large, so that the best is not the largest


@dataclass(frozen=True)
class Size:
    """One size of a family."""

    name: str
    settings: Tables  # of the model
    parameters: int
    embedding: int  # of these, in tables of the vocabulary


def named_sizes(words: Sequence[str], kind: str) -> dict[str, Tables]:
    """The settings of sizes that a person names: widths, as 32, or presets, as small."""
    return {word: settings_of(kind, int(word)) if word.isdecimal() else _of_preset(word, kind) for word in words}


def _of_preset(name: str, kind: str) -> Tables:
    if name not in PRESETS:
        raise UsageError(f"--sizes {name} is neither a width nor a preset", f"presets are {', '.join(PRESETS)}")
    return {setting: value for setting, value in preset(name, kind).items() if setting != "kind"}


def settings_of(kind: str, width: int) -> Tables:
    """The settings of a kind at a width: a layer, and a head, for each 32 of it.

    Depth and width grow together, as in the sizes that the rules choose from; feed-forward layers are 4 times as wide, those
    with a gate 8/3, a recurrent state twice.
    """
    if width < 1:
        raise UsageError("a width of 0 holds nothing", "name sizes such as 32,64,128")
    fields = CONFIGS[kind].model_fields
    if "heads" in fields and "layers" in fields:
        depth = max(FEWEST_LAYERS, round(width / HEAD))
        gated = "activation" in fields and fields["activation"].default == "swiglu"
        wide = STEP * math.ceil(width * 8 / 3 / STEP) if gated else 4 * width
        return {"width": width, "layers": depth, "heads": _heads(width), "feed_forward": wide}
    if "hidden" in fields:
        return {"width": width, "hidden": 2 * width}
    presets = ",".join(name for name, kinds in PRESETS.items() if kind in kinds)
    raise UsageError(
        f"how a {kind} grows with its width is not known", Advice("name presets: ", Option("sizes", presets))
    )


def _heads(width: int) -> int:
    """As many heads of an even width as come nearest to one for each 32."""
    most = max(1, round(width / HEAD))
    return next((heads for heads in range(most, 0, -1) if width % heads == 0 and width // heads % 2 == 0), 1)


def size_of(name: str, settings: Tables, config: RunConfig, vocabulary: int) -> Size:
    """A size with its parameters, counted on a model without numbers."""
    candidate = with_values(config, {"model": settings})
    with torch.device("meta"):
        model = build("generate", candidate.model, (vocabulary,))
    shapes = [parameter.shape for parameter in model.parameters()]
    tables = sum(shape.numel() for shape in shapes if len(shape) == 2 and shape[0] == vocabulary)
    return Size(name, settings, sum(shape.numel() for shape in shapes), tables)


def family(count: int, largest: int, measure: Callable[[int], Size]) -> list[Size]:
    """So many sizes up to a width, evenly apart in the logarithm of their parameters as nearly as whole widths allow."""
    widths = range(NARROWEST, largest + 1, STEP)
    known = {width: math.log(measure(width).parameters) for width in widths}
    last = known[largest]
    first = max(known[NARROWEST], last - math.log(BETWEEN))
    chosen: list[int] = []
    for number in range(count):
        wanted = first + (last - first) * number / max(1, count - 1)
        others = [width for width in widths if width not in chosen]
        chosen.append(min(others, key=lambda width: abs(known[width] - wanted)))
    return [measure(width) for width in sorted(chosen)]


def largest_family(count: int, measure: Callable[[int], Size], tokens: Callable[[Sequence[Size]], float]) -> list[Size]:
    """The family with the largest model of which each still learns from 5 tokens a parameter, by the `tokens` that fit."""
    width = NARROWEST + STEP * (count - 1)
    found = family(count, width, measure)
    while width < WIDEST:
        width += STEP
        larger = family(count, width, measure)
        if tokens(larger) < EACH * larger[-1].parameters:
            break
        found = larger
    return found
