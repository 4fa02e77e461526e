"""States of a model over a text: what recurrent layers keep and let through, how far gradients reach, what is still known.

Of a Transformer the vectors between its blocks: how long they are, and how alike positions become.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.files import JSON
from regard.look.panels import Chart, HeatMap, OnePanel, Panels, liveliest, numbers

UNITS = 24  # of a layer that are shown: those that change most
NAMES = {
    "state": "state h", "cell": "cell c", "input": "input gate i", "forget": "forget gate f", "output": "output gate o",
    "update": "update gate z", "reset": "reset gate r", "candidate": "candidate",
}  # fmt: skip
BOUNDED = ("input", "forget", "output", "update", "reset")  # gates, between 0 and 1


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One recurrent layer over a text: its state, gates and cell at each token, in the order of the text."""

    name: str  # such as "encoder, layer 0, forwards"
    layer: int
    labels: tuple[str, ...]  # T
    parts: Mapping[str, np.ndarray]  # state, cell, update, ...: each (T, units)
    backwards: bool = False  # whether it reads the last token first

    def panels(self) -> list[HeatMap]:
        """A heat map of each part but the candidate; all of the same units."""
        units = liveliest(self.parts["state"], UNITS)
        said = " (reads from the end)" if self.backwards else ""
        return [
            HeatMap(
                f"{self.name}: {NAMES[part]}{said}",
                values[:, units].T,
                rows=tuple(map(str, units)),
                columns=self.labels,
                meaning=NAMES[part],
                top=1.0 if part != "cell" else None,
            )
            for part, values in self.parts.items()
            if part != "candidate"
        ]

    def data(self) -> dict[str, JSON]:
        parts = {name: numbers(values) for name, values in self.parts.items()}
        return {"name": self.name, "layer": self.layer, "labels": list(self.labels), "backwards": self.backwards,
                "parts": parts}  # fmt: skip


@dataclass(frozen=True, eq=False)
class BlockTrace:
    """Vectors behind each block of a stack, and before the first, over a text."""

    name: str  # such as "encoder"
    labels: tuple[str, ...]
    vectors: np.ndarray  # (blocks + 1, T, D)

    @property
    def norms(self) -> np.ndarray:
        """‖x‖ of each depth and token: (blocks + 1, T)."""
        found: np.ndarray = np.linalg.norm(self.vectors, axis=-1)
        return found

    def cosines(self, depth: int = -1) -> np.ndarray:
        """The cosine between each two tokens at a depth: (T, T)."""
        x = self.vectors[depth] / np.maximum(self.norms[depth][:, None], 1e-30)
        found: np.ndarray = x @ x.T
        return found

    def mean_cosines(self) -> np.ndarray:
        """The mean cosine between two different tokens at each depth: 1 where all have become alike."""
        count = len(self.labels)
        return np.array(
            [(self.cosines(depth).sum() - count) / max(1, count * (count - 1)) for depth in range(len(self.vectors))]
        )

    def panels(self) -> list[OnePanel]:
        depths = tuple("embedding" if depth == 0 else f"block {depth - 1}" for depth in range(len(self.vectors)))
        before = f"{self.name}: " if self.name else ""
        return [
            HeatMap(f"{before}length of each vector", self.norms, depths, self.labels, "‖x‖"),
            HeatMap(f"{before}cosine between positions, behind the last block", self.cosines(), self.labels, self.labels,
                    "cosine", top=1.0, row_tokens=True),
            Chart(f"{before}mean cosine between positions", np.arange(len(depths)), {"": self.mean_cosines()},
                  y_label="cosine", ticks=depths),
        ]  # fmt: skip

    def data(self) -> dict[str, JSON]:
        return {"name": self.name, "labels": list(self.labels), "norms": numbers(self.norms),
                "cosines": numbers(self.cosines()), "mean_cosines": numbers(self.mean_cosines())}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Gradients:
    """How much what stands so many tokens back still moves the last state, or the loss: a mean over texts."""

    measure: str  # what is differentiated: "last state" or "loss of the last token"
    trained: np.ndarray  # (distances,), by distance from 0
    fresh: np.ndarray  # of the same model before it learned anything
    texts: int

    def panel(self) -> Chart:
        far = np.arange(len(self.trained))
        what = "Frobenius norm of ∂ state / ∂ input" if self.measure == "last state" else "norm of ∂ loss / ∂ input"
        texts = "this text" if self.texts == 1 else f"mean of {self.texts} texts"
        return Chart(
            f"gradient of the {self.measure}, by distance",
            far,
            {"trained": self.trained, "fresh weights": self.fresh},
            x_label="tokens back",
            y_label=what,
            logarithmic=True,
            note=texts,
        )

    def data(self) -> dict[str, JSON]:
        return {"measure": self.measure, "texts": self.texts, "trained": numbers(self.trained),
                "fresh": numbers(self.fresh)}  # fmt: skip


@dataclass(frozen=True)
class Knowledge:
    """How often a linear probe reads the first token from the last state, by length, on texts that it was not fitted on."""

    lengths: tuple[int, ...]  # tokens that were read
    trained: tuple[float, ...]  # share that is right
    fresh: tuple[float, ...]  # with the states of the same model before it learned anything
    majority: tuple[float, ...]  # of whoever always says the most frequent first token
    held_out: tuple[int, ...]  # texts on which it is counted
    classes: int  # tokens among which the probe chooses, at most

    def panel(self) -> Chart:
        return Chart(
            "what the last state still knows: the first token, by length",
            np.arange(len(self.lengths)),
            {"trained": np.array(self.trained), "fresh weights": np.array(self.fresh),
             "majority": np.array(self.majority)},
            x_label="tokens read",
            y_label="first token read right",
            ticks=tuple(map(str, self.lengths)),
            note=f"a linear probe of the state, on {min(self.held_out):,} to {max(self.held_out):,} texts held out",
        )  # fmt: skip

    def data(self) -> dict[str, JSON]:
        return {"lengths": list(self.lengths), "trained": list(self.trained), "fresh": list(self.fresh),
                "majority": list(self.majority), "held_out": list(self.held_out), "classes": self.classes}  # fmt: skip


@dataclass(frozen=True, eq=False)
class States(Panels):
    """All states of one text, with gradients and knowledge where they were measured."""

    traces: tuple[LayerTrace, ...] = ()
    blocks: tuple[BlockTrace, ...] = ()
    gradients: tuple[Gradients, ...] = ()
    knowledge: Knowledge | None = None
    layer: int | None = None  # which recurrent layer is shown; None: the last

    def panels(self) -> Sequence[OnePanel]:
        shown = max((each.layer for each in self.traces), default=0) if self.layer is None else self.layer
        found: list[OnePanel] = [panel for each in self.traces if each.layer == shown for panel in each.panels()]
        found += [panel for each in self.blocks for panel in each.panels()]
        found += [each.panel() for each in self.gradients]
        return [*found, *([] if self.knowledge is None else [self.knowledge.panel()])]

    def data(self) -> dict[str, JSON]:
        return {
            "title": self.title,
            "notes": list(self.notes),
            "layers": [each.data() for each in self.traces],
            "blocks": [each.data() for each in self.blocks],
            "gradients": [each.data() for each in self.gradients],
            "knowledge": None if self.knowledge is None else self.knowledge.data(),
        }
