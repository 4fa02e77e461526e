"""Where a model looked while it wrote one sentence: all layers and heads of its cross-attention, with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.attention import AttentionCall
from regard.errors import UsageError
from regard.files import write_json
from regard.look.map import AttentionMap


def layers_of(calls: Sequence[AttentionCall]) -> dict[str, np.ndarray]:
    """The weights of the first text of each recorded call, (H, T, S); NaN where it was not allowed to look."""
    found = {}
    for call in calls:
        weights = call.weights()[0].double().cpu().numpy()
        masked = call.role == "causal"
        found[call.path] = np.where(call.allowed()[0].cpu().numpy(), weights, np.nan) if masked else weights
    return found


@dataclass(frozen=True, eq=False)
class SentenceAttention:
    """The maps of one sentence. `map()` is the mean over every layer and head, `map(layer)` over the heads of one.

    On the built-in dates, where the right alignment is known, the mean of all errs least (docs/results.md).
    """

    source: tuple[str, ...]  # S labels, end token last
    target: tuple[str, ...]  # T labels, end token last
    layers: dict[str, np.ndarray]  # module path -> (H, T, S); empty for a model without attention
    difference: float  # between the outputs rebuilt from these weights and the model's own

    def map(self, layer: int | None = None, head: int | None = None) -> AttentionMap:
        heads = list(self.layers.values())  # each (H, T, S)
        if not heads:
            raise UsageError("this model has no attention to look at")
        if layer is None and head is not None:
            raise UsageError(f"head {head} of which layer? name one from 0 to {len(heads) - 1}")
        if layer is None:
            many = len(heads) * len(heads[0]) > 1
            title = f"mean of {len(heads)} layers x {len(heads[0])} heads" if many else "attention"
            return AttentionMap(np.concatenate(heads), self.source, self.target, title).mean()
        if not 0 <= layer < len(heads):
            raise UsageError(f"no layer {layer}; there are {len(heads)}, numbered from 0 to {len(heads) - 1}")
        whole = AttentionMap(heads[layer], self.source, self.target, f"layer {layer + 1} of {len(heads)}")
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
