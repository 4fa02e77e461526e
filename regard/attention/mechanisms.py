"""Mechanisms: how heads look from queries at keys and values, with everything but these three given beforehand.

    Exact       softmax(q kᵀ · scale + bias) v: all pairs (Vaswani et al. 2017, eq. 1), with relative positions or without
    KernelPass  a kernel over whole sequences: fewer pairs, or none
    KernelStep  a kernel that goes on from its own state, token by token

Each computes in two ways. `attend` is for when nobody looks on: only the output, as fast as can be. `attend_changed` is for
when somebody records or intervenes: the output with what is changed in the weights, and what a recorder has to know to
show it. `record.attend_by` chooses between them, and is the only caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from torch import Tensor

from regard.attention.attend import attend, attention_scores, for_each_head, masked_softmax
from regard.attention.call import ShownWeights
from regard.attention.changes import Changed
from regard.attention.edges import at_edges, edge_matrix, edge_softmax, mix_edges
from regard.attention.kernels.kernel import Kernel, KernelState, lengths_of
from regard.attention.masks import Edges, Mask, as_mask
from regard.attention.relative import Relative, RelativeValues
from regard.errors import UsageError
from regard.noise import dropout as drop


class Mechanism(Protocol):
    """One way to attend: q (B, H, T, E), k and v (B, G, S, E) -> (B, H, T, E)."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend, nobody looking on."""
        ...

    def attend_changed(
        self, q: Tensor, k: Tensor, v: Tensor, change: Changed | None
    ) -> tuple[Tensor, ShownWeights | None]:
        """Attend with changed weights, and how to show it; None: there are no weights to show."""
        ...


@dataclass(frozen=True, eq=False)
class Exact:
    """softmax(q kᵀ · scale + bias) v over what the mask lets through; relative positions bring their own bias."""

    mask: Mask | Tensor | None = None
    scale: float | None = None  # None: 1 / √E
    dropout: float = 0.0  # of weights
    bias: Tensor | None = None  # it broadcasts to (B, H, T, S)
    relative: Relative | None = None
    distances: Tensor | None = None  # (B, T, S), for relative positions that the data give
    start: int = 0  # of the first query among the keys
    place: int = 0  # of the first query among all queries that there will be
    together: bool = False  # every query stands at `place`, as those of hypotheses of one step

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.relative is not None:
            return self.attend_changed(q, k, v, None)[0]
        return attend(q, k, v, mask=self.mask, bias=self.bias, scale=self.scale, dropout=self.dropout)

    def attend_changed(self, q: Tensor, k: Tensor, v: Tensor, change: Changed | None) -> tuple[Tensor, ShownWeights]:
        bias, adds = self.bias, self.relative if isinstance(self.relative, RelativeValues) else None
        if self.relative is not None:
            bias = self.relative.bias(q, k.size(-2), self.start, self.distances)
        shown: ShownWeights = {"mask": self.mask, "bias": bias, "scale": self.scale}
        if adds is None and (change is None or not change.of_weights):
            return attend(q, k, v, mask=self.mask, bias=bias, scale=self.scale, dropout=self.dropout), shown
        weights = self._weights(q, k, bias, change).to(v.dtype)  # (B, H, T, S)
        if adds is None:
            return weights @ for_each_head(v, q.size(1)), {**shown, "reported": weights}
        weights = drop(weights, self.dropout)
        plus = adds.values(weights, self.start, self.distances)  # (B, H, T, E)
        return weights @ for_each_head(v, q.size(1)) + plus, {**shown, "reported": weights, "plus": plus}

    def _weights(self, q: Tensor, k: Tensor, bias: Tensor | None, change: Changed | None) -> Tensor:
        scores, mask = attention_scores(q, k, bias=bias, scale=self.scale), as_mask(self.mask)
        if change is None:
            return masked_softmax(scores, mask)
        return change.weights(scores, mask, self.place, self.together)


@dataclass(frozen=True, eq=False)
class KernelPass:
    """A kernel over whole sequences. Its effective map is computed only when someone asks the recording for it."""

    kernel: Kernel
    mask: Mask | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = for_each_head(k, q.size(1)), for_each_head(v, q.size(1))
        return self.kernel(q, k, v, lengths_of(self.mask, self.kernel))

    def attend_changed(self, q: Tensor, k: Tensor, v: Tensor, change: Changed | None) -> tuple[Tensor, ShownWeights]:
        kernel, lengths = self.kernel, lengths_of(self.mask, self.kernel)
        refuse_other_weights(kernel, change)
        out = self.attend(q, k, v)
        given = (q.detach(), for_each_head(k, q.size(1)).detach(), lengths)
        return out, {
            "mask": self.mask,
            "reported": partial(kernel.weights, *given),
            "sums_to_one": kernel.sums_to_one,
            "visible": partial(kernel.visible, q.size(-2), k.size(-2), lengths, q.device),
            "stands_for": partial(kernel.exact, *given),
        }


@dataclass(frozen=True, eq=False)
class KernelStep:
    """A kernel that goes on from its state: `go_on` is its `read` or its `step`, which has no weights to show."""

    kernel: Kernel
    go_on: Callable[[Tensor, Tensor, Tensor, KernelState], Tensor]
    state: KernelState

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.go_on(q, for_each_head(k, q.size(1)), for_each_head(v, q.size(1)), self.state)

    def attend_changed(self, q: Tensor, k: Tensor, v: Tensor, change: Changed | None) -> tuple[Tensor, None]:
        refuse_other_weights(self.kernel, change)
        return self.attend(q, k, v), None


EdgeScore = Callable[[Tensor, Tensor], Tensor]  # of each edge: queries and keys, both (E, H, e) -> (E, H)


def scaled_products(scale: float | None = None) -> EdgeScore:
    """The score of a Transformer, edge by edge: q · k · scale, 1 / √e if None."""
    return lambda q, k: (q * k).sum(dim=-1) * (q.size(-1) ** -0.5 if scale is None else scale)


@dataclass(frozen=True, eq=False)
class OnEdges:
    """Attention over the edges of a graph: softmax over the edges into each node, in time and memory of E, never N².

    Who changes weights changes them in the matrix of all pairs, which is made then and only then.
    """

    edges: Edges
    score: EdgeScore
    dropout: float = 0.0  # of weights

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return mix_edges(drop(self._weights(self._scores(q, k)), self.dropout), v, self.edges)

    def attend_changed(self, q: Tensor, k: Tensor, v: Tensor, change: Changed | None) -> tuple[Tensor, ShownWeights]:
        scores = self._scores(q, k)
        if change is None or not change.of_weights:
            weights = self._weights(scores)
            return mix_edges(drop(weights, self.dropout), v, self.edges), {"mask": self.edges, "on_edges": weights}
        every = change.weights(edge_matrix(scores, self.edges, k.size(-2))[None], self.edges, 0)  # (1, H, T, S)
        return every.to(v.dtype) @ v, {"mask": self.edges, "reported": every}

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        return self.score(at_edges(q, self.edges.target), at_edges(k, self.edges.source))  # (E, H)

    def _weights(self, scores: Tensor) -> Tensor:
        return edge_softmax(scores, self.edges.target, self.edges.queries)


@dataclass(frozen=True, eq=False)
class FixedOnEdges:
    """A sum over the edges of a graph with weights (E,) that the graph itself gives: convolution, not attention."""

    edges: Edges
    weights: Tensor

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return mix_edges(self.weights[:, None], v, self.edges)

    def attend_changed(self, q: Tensor, k: Tensor, v: Tensor, change: Changed | None) -> tuple[Tensor, ShownWeights]:
        if change is not None and change.of_weights:
            raise UsageError("the weights of a graph convolution are those of its graph: they cannot be changed")
        shown: ShownWeights = {"mask": self.edges, "on_edges": self.weights[:, None]}
        return self.attend(q, k, v), {**shown, "sums_to_one": False, "has_exact": False}


def refuse_other_weights(kernel: Kernel, change: Changed | None) -> None:
    """The heads of a kernel can be removed; weights that it never has cannot be changed."""
    if change is not None and change.of_weights:
        kernel.refuse("be made softer or harder, or have its weights pinned")
