"""Attention on one text: all layers and heads of one role, the other roles beside it, and all heads at a glance.

Attention rollout (Abnar & Zuidema 2020, "Quantifying attention flow in transformers", eq. 1, with the residual connection
of section 3) tells how much of each token is in each vector above a stack of attentions:

    R_l = ½ (A_l + I) R_{l-1},   R_0 = I,   A_l the mean of the heads of layer l

`regard.models.classifier.rollout` is the same for recorded batches; this one is for maps, and knows which cells no path
reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from regard.brief import brief, quoted
from regard.errors import Advice, Option, RegardError, UsageError, Verb
from regard.files import JSON, finite, write_json
from regard.look.layers import check_choice
from regard.look.lines import Lines
from regard.look.map import AttentionMap, layers_as_csv
from regard.look.shown import Shown

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
        """The roles of attention that there are: "cross", "self", "causal", "pool"."""
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
            note = STACK.format(len(heads))
            found = self._named(rollout(heads), f"rollout over {len(heads)} layers")
        elif self.role == "cross" and "self" in self.others:
            encoder = self.others["self"]._heads()
            note = CROSS.format(len(encoder))
            whole = cross_rollout(heads[-1], encoder)
            found = self._named(whole, f"rollout of the last layer over {len(encoder)} encoder layers")
        else:
            raise UsageError(
                f"rollout goes through layers of self-attention, and behind this {self._name} there are none",
                Advice("look at the map instead: ", Option("as", "map")),
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

    def data(self) -> dict[str, JSON]:
        """Everything as JSON holds it, NaN where a cell is masked."""
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
        """This attention and the others, by role."""
        return {**({self.role: self} if self.layers else {}), **self.others}

    def _all(self) -> str:
        layers, heads = len(self.layers), len(self._heads()[0])
        return f"mean of {layers} layers x {heads} heads" if layers * heads > 1 else ""

    def _heads(self) -> list[np.ndarray]:
        if not self.layers and self.others:
            raise UsageError(f"there is no {self._name} here", f"choose a role that there is: {', '.join(self.others)}")
        if not self.layers:
            raise UsageError(
                "this model has no attention to look at", Advice(Verb("summary"), " shows what it is made of")
            )
        return list(self.layers.values())  # each (H, T, S)

    def _named(self, weights: np.ndarray, which: str) -> AttentionMap:
        title = f"{self._name}, {which}" if which else self._name
        return AttentionMap(weights, self.source, self.target, title, self.notes)


@dataclass(frozen=True, eq=False)
class AllHeads(Shown):
    """Every layer and head on one text, on one scale of colour."""

    called = "heads"

    layers: dict[str, np.ndarray]  # module path -> (H, T, S), NaN where masked
    columns: tuple[str, ...]  # S labels: what is looked at
    rows: tuple[str, ...]  # T labels: who looks
    title: str = ""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shape = f"{len(self.rows)} x {len(self.columns)}"
        return brief(self, quoted(self.title) if self.title else "", f"{len(self.layers)} layers", shape)

    def __post_init__(self) -> None:
        if not self.layers:
            raise RegardError("a grid of heads without layers: there is nothing to show")
        for name, weights in self.layers.items():
            if weights.ndim != 3 or weights.shape[1:] != (len(self.rows), len(self.columns)):
                raise RegardError(
                    f"{name} has weights of shape {weights.shape}, but there are {len(self.rows)} rows and "
                    f"{len(self.columns)} columns; give (heads, rows, columns)"
                )

    @property
    def heads(self) -> int:
        """The number of heads of the layer that has most."""
        return max(len(each) for each in self.layers.values())

    def words(self) -> AllHeads:
        """Join pieces into words, as `AttentionMap.words`."""
        return self._split(self._whole().words())

    def hide(self, specials: bool = True, labels: Sequence[str] = ()) -> AllHeads:
        """Hide tokens, as `AttentionMap.hide`; what the hidden tokens had is told of all heads together."""
        return self._split(self._whole().hide(specials, labels))

    def _whole(self) -> AttentionMap:
        weights = np.concatenate(list(self.layers.values()))  # (L H, T, S)
        return AttentionMap(weights, self.columns, self.rows, self.title, self.notes)

    def _split(self, attention: AttentionMap) -> AllHeads:
        ends = np.cumsum([len(each) for each in self.layers.values()])[:-1]
        layers = dict(zip(self.layers, np.split(attention.weights, ends), strict=True))
        return AllHeads(layers, attention.columns, attention.rows, attention.title, attention.notes)

    def data(self) -> dict[str, JSON]:
        """Everything as strict JSON holds it; a masked cell is null."""
        layers = {name: weights.tolist() for name, weights in self.layers.items()}
        return finite(
            {"title": self.title, "notes": self.notes, "columns": self.columns, "rows": self.rows, "layers": layers}
        )

    def csv(self) -> str:
        return layers_as_csv(list(self.layers.values()), self.columns, self.rows)

    def html(self) -> str:
        """A whole page: all heads small, and the one that is clicked large, with every number under the pointer."""
        page: str = self._draw("page")
        return page

    def text(self, width: int = 80, color: bool = False) -> str:
        """The heads for a terminal of that width: with ANSI colours, or with the shades ░▒▓█."""
        return self._terminal(width, color)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json, ".csv": self.csv}

    def _alternative(self) -> str:
        return "; ".join((self.title or "all heads", *self.notes))


PAPER = "attention rollout (Abnar & Zuidema 2020, eq. 1)"
STACK = PAPER + ": the product over {} layers of (A + I)/2, A the mean of a layer's heads"
CROSS = (
    PAPER + ": the last layer's cross-attention times the product over {} encoder layers of (A + I)/2; heads averaged"
)


def rollout(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Attention rollout of self-attentions (H, T, T), from the first to the last: (T, T), NaN where nothing can come from."""
    size = layers[0].shape[-1]
    mixed = reached = np.eye(size)
    for heads in layers:
        mixed = (mean_of_heads(heads) @ mixed + mixed) / 2
        reached = np.minimum((~np.isnan(heads)).any(axis=0) @ reached + reached, 1.0)
    return np.where(reached > 0, mixed, np.nan)


def cross_rollout(cross: np.ndarray, encoder: Sequence[np.ndarray]) -> np.ndarray:
    """Attention rollout of a decoder's look (H, T, S) through an encoder's self-attentions (H, S, S): (T, S)."""
    inside = rollout(encoder)
    reached = (~np.isnan(cross)).any(axis=0) @ (~np.isnan(inside)).astype(float) > 0
    return np.where(reached, mean_of_heads(cross) @ np.nan_to_num(inside), np.nan)


def mean_of_heads(heads: np.ndarray) -> np.ndarray:
    """The mean (T, S) of heads (H, T, S). Rows of any sums and signs are taken by their size, so that each sums to one."""
    sizes = np.abs(np.nan_to_num(heads))
    sums = sizes.sum(axis=-1, keepdims=True)
    return (sizes / np.where(sums > 0, sums, 1.0)).mean(axis=0)
