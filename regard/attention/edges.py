"""Attention over the edges of a graph: node i looks at node j where there is an edge from j to i, and nowhere else.

    weights_e = exp(score_e) / Σ exp(score_e'),   out_i = Σ weights_e · value_j   (sums over the edges e' = (j, i) into i)

Graphs are lists of edges: nothing here is as large as all pairs of nodes but `edge_matrix`, which is made when someone asks a
recording for a map. A node without an edge into it gets zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.masks import Edges


def at_edges(x: Tensor, nodes: Tensor) -> Tensor:
    """The vectors of one end of each edge: (1, H, N, e) and nodes (E,) -> (E, H, e)."""
    return x[0].transpose(0, 1).index_select(0, nodes)


def edge_softmax(scores: Tensor, target: Tensor, queries: int) -> Tensor:
    """Softmax of scores (E, H) over the edges that end in the same node."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # of half precision, sums are too coarse
    places, shape = target[:, None].expand_as(scores), (queries, scores.size(1))
    top = scores.detach().new_full(shape, -torch.inf).scatter_reduce(0, places, scores.detach(), "amax")  # (N, H)
    parts = (scores - top.index_select(0, target)).exp()
    sums = parts.new_zeros(shape).index_add(0, target, parts)
    return parts / sums.index_select(0, target)


def mix_edges(weights: Tensor, v: Tensor, edges: Edges) -> Tensor:
    """Sum the values (1, H, S, D) at the sources of edges by weights (E, H), at their targets: (1, H, T, D)."""
    values = v[0].transpose(0, 1)  # (S, H, D)
    out: Tensor = _Mixed.apply(weights.to(v.dtype).expand(-1, v.size(1)), values, edges)  # (T, H, D)
    return out.transpose(0, 1)[None]


class _Mixed(torch.autograd.Function):
    """The sum over edges, and its gradient: rows of heads stay together, and of vectors at edges one copy is kept at a time."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.edges = edges
        return _summed(weights, values, edges.source, edges.target, edges.queries)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weights, values = ctx.saved_tensors
        edges, at_weights, at_values = ctx.edges, None, None
        if ctx.needs_input_grad[0]:
            ends = grad.flatten(1).index_select(0, edges.target).view(-1, *values.shape[1:])  # (E, H, D)
            at_weights = ends.mul_(values.flatten(1).index_select(0, edges.source).view_as(ends)).sum(dim=-1)
        if ctx.needs_input_grad[1]:
            at_values = _summed(weights, grad, edges.target, edges.source, len(values))
        return at_weights, at_values, None


def _summed(weights: Tensor, values: Tensor, source: Tensor, target: Tensor, queries: int) -> Tensor:
    """Weights (E, H) times values (S, H, D) at `source`, summed at `target`: (queries, H, D)."""
    parts = values.flatten(1).index_select(0, source).view(-1, *values.shape[1:]).mul_(weights[..., None])  # (E, H, D)
    out = parts.new_zeros(queries, values[0].numel())
    return out.index_add_(0, target, parts.flatten(1)).view(queries, *values.shape[1:])


def edge_matrix(weights: Tensor, edges: Edges, keys: int) -> Tensor:
    """Weights (E, H) on edges as a matrix of all pairs, zero where there is no edge: (H, T, S)."""
    found = weights.new_zeros(edges.queries, keys, weights.size(1))
    found.index_put_((edges.target, edges.source), weights, accumulate=True)
    return found.permute(2, 0, 1)
