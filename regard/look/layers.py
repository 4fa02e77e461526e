"""What the layers of a network do that has no map of places: weights of channels, or matrices that mix places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import UsageError
from regard.files import write_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

MOST = 8  # channels named in a terminal


@dataclass(frozen=True, eq=False)
class ChannelWeights:
    """How much channel attention lets through of each channel, layer by layer, for one picture."""

    layers: dict[str, np.ndarray]  # module path -> (C,)
    title: str = ""

    def save(self, path: str | Path) -> Path:
        """By suffix: JSON has every layer; PNG and SVG the last one."""
        if Path(path).suffix.lower() == ".json":
            return write_text(path, json.dumps(self.data()) + "\n")
        from regard.look.channels import save_bars

        name, values = list(self.layers.items())[-1]
        return save_bars(values, path, f"{self.title}: channel attention of {name}")

    def data(self) -> dict[str, Any]:
        return {"title": self.title, "layers": {name: values.tolist() for name, values in self.layers.items()}}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[str]:
        for name, values in self.layers.items():
            best = np.argsort(-values, kind="stable")[:MOST]
            told = ", ".join(f"{channel}: {values[channel]:.2f}" for channel in best)
            yield f"{name}: mean {values.mean():.2f} of {len(values)} channels; most {told}"


@dataclass(frozen=True, eq=False)
class MixingMatrices:
    """How each layer of an MLP-Mixer makes new places of all places: the product of its two matrices, without the GELU."""

    matrices: tuple[np.ndarray, ...]  # each (P, P)
    grid: tuple[int, int]
    title: str = ""

    def save(self, path: str | Path) -> Path:
        if Path(path).suffix.lower() == ".json":
            return write_text(path, json.dumps(self.data()) + "\n")
        from regard.look.mixing import save_mixing

        return save_mixing(list(self.matrices), self.grid, path, self.title)

    def data(self) -> dict[str, Any]:
        return {"title": self.title, "grid": list(self.grid), "matrices": [each.tolist() for each in self.matrices]}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[str]:
        for number, matrix in enumerate(self.matrices, 1):
            own = np.abs(np.diag(matrix)).sum() / np.abs(matrix).sum()
            yield f"layer {number}: {own:.1%} of what is mixed into a place is its own (uniform: {1 / len(matrix):.1%})"
        yield "the matrices as small pictures: -o mixing.png"


def one_layer(count: int, layer: int | None) -> int:
    """The layer a person means, counted from 0; the last unless named."""
    if layer is None:
        return count - 1
    if not 0 <= layer < count:
        raise UsageError(f"no layer {layer}; there are {count}, numbered from 0 to {count - 1}")
    return layer
