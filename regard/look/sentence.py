"""Where a model looked in one text: all layers and heads of one role, with labels, and beside it the other roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.brief import brief
from regard.errors import UsageError
from regard.files import finite, write_json
from regard.look import rollout
from regard.look.layers import check_choice
from regard.look.map import AttentionMap

if TYPE_CHECKING:
    from regard.look.all_heads import AllHeads
    from regard.look.lines import Lines

NAMES = {
    "cross": "cross-attention",
    "self": "self-attention",
    "causal": "causal self-attention",
    "pool": "attention pooling",
}


@dataclass(frozen=True, eq=False)
class SentenceAttention:
    """The maps of one sentence. `map()` is the mean over every layer and head, `map(layer)` over the heads of one.

    On the built-in dates, where the right alignment is known, the mean of all errs least (docs/results.md).
    """

    source: tuple[str, ...]  # S labels of what is looked at, end token last
    target: tuple[str, ...]  # T labels of who looks; of self-attention the same
    layers: dict[str, np.ndarray]  # module path -> (H, T, S), NaN where masked; empty for a model without attention
    difference: float  # between the outputs rebuilt from these weights and the model's own
    role: str = "cross"
    others: Mapping[str, SentenceAttention] = field(
        default_factory=dict
    )  # by role: what else was seen in the same pass
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return brief(
            self, self.role, f"{len(self.layers)} layers", f"{len(self.target)} x {len(self.source)}", *self.others
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """Which attentions there are: "cross", "self", "causal", "pool"."""
        return tuple(self._every())

    def of(self, role: str | None) -> SentenceAttention:
        """The attention of another role in the same pass, such as a translation's self-attention."""
        if role is None or role == self.role:
            return self
        return self.others[role] if role in self.others else SentenceAttention((), (), {}, 0.0, role, self._every())

    def map(self, layer: int | None = None, head: int | None = None) -> AttentionMap:
        heads = self._heads()
        others = {role: [len(each) for each in found._heads()] for role, found in self.others.items()}
        check_choice(layer, head, [len(each) for each in heads], others=others)
        if layer is None:
            return self._named(np.concatenate(heads), self._all()).mean()
        whole = self._named(heads[layer], "")
        chosen = whole.mean() if head is None else whole.head(head)
        which = f"mean of {len(heads[layer])} heads" if head is None else f"head {head}"
        of = f"of {len(heads)} layers x {len(heads[layer])} heads, counted from 0"
        return self._named(chosen.weights, f"layer {layer}, {which} ({of})")

    def grid(self) -> AllHeads:
        """Every layer and head, small, on one scale."""
        from regard.look.all_heads import AllHeads

        layers, heads = len(self._heads()), len(self._heads()[0])
        title = (
            f"{self._name}, {layers} layers x {heads} heads" if layers * heads > 1 else f"{self._name}, its one head"
        )
        return AllHeads(self.layers, self.source, self.target, title, self.notes)

    def rollout(self) -> AttentionMap:
        """Attention rollout (Abnar & Zuidema 2020): through all layers at once, back to the tokens that were read.

        Of cross-attention: the last layer's look, through the encoder's self-attention.
        """
        heads = self._heads()
        if self.role in ("self", "causal"):
            note = rollout.STACK.format(len(heads))
            found = self._named(rollout.rollout(heads), f"rollout over {len(heads)} layers")
        elif self.role == "cross" and "self" in self.others:
            encoder = self.others["self"]._heads()
            note = rollout.CROSS.format(len(encoder))
            whole = rollout.cross_rollout(heads[-1], encoder)
            found = self._named(whole, f"rollout of the last layer over {len(encoder)} encoder layers")
        else:
            raise UsageError(
                f"rollout goes through layers of self-attention, and behind this {self._name} there are none; "
                "look at the map instead: --as map"
            )
        return AttentionMap(found.weights, found.columns, found.rows, found.title, (*found.notes, note))

    def lines(self, layer: int | None = None, head: int | None = None) -> Lines:
        """`map(layer, head)` as lines between two sentences."""
        return self.map(layer, head).lines()

    def check(self) -> float:
        """The largest difference between the output rebuilt from these weights and what the model computed."""
        return self.difference

    def save(self, path: str | Path) -> Path:
        """By suffix: JSON holds every layer and head; PNG, SVG, HTML and CSV the map of `map()`."""
        if Path(path).suffix.lower() == ".json":
            return write_json(path, finite(self.data()))
        return self.map().save(path)

    def png(self, path: str | Path) -> Path:
        return self.map().png(path)

    def data(self) -> dict[str, object]:
        """As JSON holds it, NaN where a cell is masked."""
        return {
            "source": list(self.source),
            "target": list(self.target),
            "layers": {name: weights.tolist() for name, weights in self.layers.items()},
            "difference": self.difference,
            "role": self.role,
            "notes": list(self.notes),
        }

    def text(self, width: int = 80, color: bool = False) -> str:
        return self.map().text(width, color)

    def _repr_html_(self) -> str:
        return self.map()._repr_html_()

    @property
    def _name(self) -> str:
        return NAMES.get(self.role, self.role)

    def _every(self) -> dict[str, SentenceAttention]:
        """Of each role that there is."""
        return {**({self.role: self} if self.layers else {}), **self.others}

    def _all(self) -> str:
        layers, heads = len(self.layers), len(self._heads()[0])
        return f"mean of {layers} layers x {heads} heads" if layers * heads > 1 else ""

    def _heads(self) -> list[np.ndarray]:
        if not self.layers and self.others:
            raise UsageError(f"there is no {self._name} here; choose a role that there is: {', '.join(self.others)}")
        if not self.layers:
            raise UsageError("this model has no attention to look at; regard summary shows what it is made of")
        return list(self.layers.values())  # each (H, T, S)

    def _named(self, weights: np.ndarray, which: str) -> AttentionMap:
        title = f"{self._name}, {which}" if which else self._name
        return AttentionMap(weights, self.source, self.target, title, self.notes)
