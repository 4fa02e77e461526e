"""Where a model looked while it wrote one sentence: all layers and heads of its cross-attention, with labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.errors import UsageError
from regard.files import write_json
from regard.look.map import AttentionMap


@dataclass(frozen=True, eq=False)
class SentenceAttention:
    """The maps of one sentence. `map()` is the mean of a layer's heads: of the last but one layer unless told, where
    heads align best (Garg et al. 2019)."""

    source: tuple[str, ...]  # S labels, end token last
    target: tuple[str, ...]  # T labels, end token last
    layers: dict[str, np.ndarray]  # module path -> (H, T, S)
    difference: float  # between the outputs rebuilt from these weights and the model's own

    def map(self, layer: int | None = None, head: int | None = None) -> AttentionMap:
        names = list(self.layers)
        if layer is None:
            layer = max(0, len(names) - 2)
        if not 0 <= layer < len(names):
            raise UsageError(f"no layer {layer}; there are {len(names)}, numbered from 0 to {len(names) - 1}")
        title = f"layer {layer + 1} of {len(names)}"
        whole = AttentionMap(self.layers[names[layer]], self.source, self.target, title)
        return whole.mean() if head is None else whole.head(head)

    def check(self) -> float:
        """The largest difference between the output rebuilt from these weights and what the model computed."""
        return self.difference

    def save(self, path: str | Path) -> Path:
        """By suffix: JSON holds every layer and head; PNG, SVG and CSV the map of `map()`."""
        if Path(path).suffix.lower() == ".json":
            return write_json(path, self.data())
        return self.map().save(path)

    def png(self, path: str | Path) -> Path:
        return self.map().png(path)

    def data(self) -> dict[str, object]:
        return {
            "source": list(self.source),
            "target": list(self.target),
            "layers": {name: weights.tolist() for name, weights in self.layers.items()},
            "difference": self.difference,
        }

    def text(self, width: int = 80, color: bool = False) -> str:
        return self.map().text(width, color)

    def _repr_html_(self) -> str:
        return self.map()._repr_html_()
