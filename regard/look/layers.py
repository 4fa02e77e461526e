"""Layers of networks that have no map of places: weights of channels, or matrices that mix places."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import Advice, Option, UsageError
from regard.files import JSON
from regard.look.shown import Shown


@dataclass(frozen=True, eq=False)
class ChannelWeights(Shown):
    """Weights that channel attention gives each channel, layer by layer, for one picture. The figure has the last layer."""

    called = "bars"

    layers: dict[str, np.ndarray]  # module path -> (C,)
    title: str = ""

    def json(self) -> str:
        return json.dumps(self.data()) + "\n"

    def data(self) -> dict[str, JSON]:
        return {"title": self.title, "layers": {name: values.tolist() for name, values in self.layers.items()}}


@dataclass(frozen=True, eq=False)
class MixingMatrices(Shown):
    """Matrices by which the layers of an MLP-Mixer mix places: each the product of two, without the GELU between."""

    called = "matrices"

    matrices: tuple[np.ndarray, ...]  # each (P, P)
    grid: tuple[int, int]
    title: str = ""

    def json(self) -> str:
        return json.dumps(self.data()) + "\n"

    def data(self) -> dict[str, JSON]:
        return {"title": self.title, "grid": list(self.grid), "matrices": [each.tolist() for each in self.matrices]}


def one_layer(count: int, layer: int | None, head: int | None = None, heads: int = 0) -> int:
    """The layer a person means, counted from 0; the last unless named. `heads`: of each, if they have any."""
    check_choice(layer, head, [heads] * count)
    return count - 1 if layer is None else layer


def check_choice(
    layer: int | None,
    head: int | None,
    heads: Sequence[int],
    of: str = "",
    others: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Refuse a layer or a head that is not there, counted from 0, and say what is.

    heads   how many each layer has; 0: layers without heads
    of      what has these layers
    others  the same of other roles, which may be meant
    """
    count, also = len(heads), f"; other roles: {in_words(others)}" if others else ""
    if layer is None and head is not None:
        hint = Advice(f"name one from 0 to {count - 1} with ", Option("layer"), also)
        raise UsageError(f"head {head} of which layer?", hint)
    if layer is not None and not 0 <= layer < count:
        each = f", with {_number(heads)}{' each' if count > 1 else ''}" if any(heads) else ""
        has = f"{of} has" if of else "there are" if count > 1 else "there is"
        there = f"{count}, numbered from 0 to {count - 1}" if count > 1 else "one, number 0"
        raise UsageError(f"no layer {layer}; {has} {there}{each}{also}")
    if layer is not None and head is not None and not 0 <= head < heads[layer]:
        raise UsageError(
            f"no head {head}; layer {layer} has {heads[layer]}, numbered from 0 to {heads[layer] - 1} "
            f"(and there are {count} layers, from 0){also}"
        )


def in_words(roles: Mapping[str, Sequence[int]]) -> str:
    """Count the layers and heads of each role: "self 2 layers x 3 heads, cross 1 layer x 3 heads"."""
    return ", ".join(
        f"{role} {len(heads)} layer{'s' if len(heads) > 1 else ''} x {_number(heads)}" for role, heads in roles.items()
    )


def _number(heads: Sequence[int]) -> str:
    least, most = min(heads), max(heads)
    return f"{most} head{'s' if most > 1 else ''}" if least == most else f"{least} to {most} heads"
