"""Networks over the edges of a graph: graph attention, graph convolution, and a Transformer whose mask is the graph.

With N_i the neighbours of node i and itself, h_i its vector, and ‖ for vectors side by side:

    GAT    (Velickovic et al. 2018)  e_ij = LeakyReLU(aᵀ [W h_i ‖ W h_j])                          (eq. 1 and 3)
                                     α_ij = exp(e_ij) / Σ_{k in N_i} exp(e_ik)                      (eq. 2)
                                     h'_i = σ(Σ_{j in N_i} α_ij W h_j)                              (eq. 4)
                                     of K heads side by side (eq. 5), in the last layer their mean  (eq. 6)
    GATv2  (Brody et al. 2022)       e_ij = aᵀ LeakyReLU(W [h_i ‖ h_j])                             (eq. 7)
    GCN    (Kipf & Welling 2017)     H' = σ(D̃^-1/2 (A + I) D̃^-1/2 H W)                              (eq. 2)

GAT's aᵀ [x ‖ y] is a sum of a part of i and a part of j, so that all i rank their neighbours alike; GATv2's is not. All sums go
over edges and pass the recording channel: no matrix of all pairs is made. The label of a node is read from the last
layer; that of a whole graph from the mean of its nodes, or from what a learned query finds in them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import elu, embedding_bag, leaky_relu

from regard.attention import AttentionCall, Dense, Edges, Mask, MultiHead
from regard.attention.mechanisms import FixedOnEdges, OnEdges, scaled_products
from regard.attention.record import attend_by
from regard.blocks.block import Block, Residual
from regard.blocks.feed_forward import FeedForward
from regard.data.graphs.batch import GraphBatch, SparseRows
from regard.data.graphs.config import GraphFormat
from regard.models.classifier import Classifier
from regard.models.configs.graphs import GATConfig, GATv2Config, GCNConfig, GraphNetConfig, GraphTransformerConfig
from regard.noise import dropout

Nodes = Tensor | SparseRows  # (N, F)


def product(x: Nodes, weight: Tensor) -> Tensor:
    """x W for x (N, F), of which only what is not zero is multiplied, if it is sparse, and W (F, K): (N, K)."""
    if isinstance(x, Tensor):
        return x @ weight
    found: Tensor = _SparseProduct.apply(weight, x)
    return found


class _SparseProduct(torch.autograd.Function):
    """Sparse rows times a matrix. Its gradient is a product with the columns, which torch's own goes through one by one."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: SparseRows) -> Tensor:
        ctx.rows, ctx.width = x, len(weight)
        values = x.values.to(weight.dtype)
        return embedding_bag(x.columns, weight, offsets=x.starts, per_sample_weights=values, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        order, rows, starts = ctx.rows.by_column
        values = ctx.rows.values.to(grad.dtype)[order]
        return embedding_bag(rows, grad.contiguous(), offsets=starts, per_sample_weights=values, mode="sum"), None


def dropped(x: Nodes, rate: float) -> Nodes:
    """Dropout on features; what is zero stays zero, so that of sparse ones only the others are drawn for."""
    if isinstance(x, Tensor):
        return dropout(x, rate)
    return x.with_values(dropout(x.values, rate))


def glorot(*shape: int) -> nn.Parameter:
    """A matrix of fresh weights (Glorot & Bengio 2010)."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(*shape)))


def by_head(x: Tensor) -> Tensor:
    """(N, H, e) -> (1, H, N, e), a view: of each node, heads stay together."""
    return x.transpose(0, 1)[None]


def heads_together(x: Tensor) -> Tensor:
    """(1, H, N, e) -> (N, H, e)."""
    return x[0].transpose(0, 1)


def sum_score(slope: float, q: Tensor, k: Tensor) -> Tensor:
    """GAT's score of each edge, whose two parts are products with a already: (E, H, 1) each -> (E, H)."""
    return leaky_relu(q + k, slope).squeeze(-1)


def joint_score(a: Tensor, slope: float, q: Tensor, k: Tensor) -> Tensor:
    """GATv2's score of each edge: aᵀ LeakyReLU(q + k), a (H, e), q and k (E, H, e) -> (E, H)."""
    return (leaky_relu(q + k, slope) * a).sum(dim=-1)


class GATLayer(nn.Module):
    """One layer of graph attention: (N, F) -> (N, H, e)."""

    def __init__(self, inputs: int, heads: int, width: int, slope: float, rate: float) -> None:
        super().__init__()
        self.heads, self.slope, self.rate = heads, slope, rate
        self.weight = glorot(inputs, heads * width)
        self.looks, self.is_seen = glorot(heads, width), glorot(heads, width)  # the two halves of a
        self.bias = nn.Parameter(torch.zeros(heads * width))

    def forward(self, x: Nodes, edges: Edges) -> Tensor:
        h = product(x, self.weight).unflatten(-1, (self.heads, -1))  # (N, H, e)
        q = by_head((h * self.looks).sum(dim=-1, keepdim=True))  # (1, H, N, 1)
        k = by_head((h * self.is_seen).sum(dim=-1, keepdim=True))
        how = OnEdges(edges, partial(sum_score, self.slope), self.rate if self.training else 0.0)
        return heads_together(attend_by(how, self, "self", q, k, by_head(h))) + self.bias.view(self.heads, -1)


class GATv2Layer(nn.Module):
    """One layer of graph attention whose score mixes both ends before it is made: (N, F) -> (N, H, e)."""

    def __init__(self, inputs: int, heads: int, width: int, slope: float, rate: float, shared: bool = False) -> None:
        super().__init__()
        self.heads, self.slope, self.rate = heads, slope, rate
        self.weight = glorot(inputs, heads * width)  # of who is looked at
        self.looks = None if shared else glorot(inputs, heads * width)
        self.a = glorot(heads, width)
        self.bias = nn.Parameter(torch.zeros(heads * width))

    def forward(self, x: Nodes, edges: Edges) -> Tensor:
        k = by_head(product(x, self.weight).unflatten(-1, (self.heads, -1)))  # (1, H, N, e)
        q = k if self.looks is None else by_head(product(x, self.looks).unflatten(-1, (self.heads, -1)))
        how = OnEdges(edges, partial(joint_score, self.a, self.slope), self.rate if self.training else 0.0)
        return heads_together(attend_by(how, self, "self", q, k, k)) + self.bias.view(self.heads, -1)


class GCNLayer(nn.Module):
    """One graph convolution: (N, F) -> (N, 1, e)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = glorot(inputs, width), nn.Parameter(torch.zeros(width))

    def forward(self, x: Nodes, edges: Edges) -> Tensor:
        h = by_head(product(x, self.weight)[:, None])  # (1, 1, N, e)
        return heads_together(attend_by(FixedOnEdges(edges, gcn_weights(edges, h)), self, "self", h, h, h)) + self.bias


def gcn_weights(edges: Edges, like: Tensor) -> Tensor:
    """1 / √(d̃_i d̃_j) of each edge, where d̃ counts edges with those of nodes to themselves: (E,)."""
    counts = torch.bincount(edges.target, minlength=edges.queries).to(like.dtype)
    return (counts[edges.target] * counts[edges.source]).clamp(min=1).rsqrt()


class Readout(nn.Module):
    """One vector of each graph, of the vectors (N, D) of its nodes: (G, D)."""

    @abstractmethod
    def forward(self, x: Tensor, members: Edges) -> Tensor:
        """`members` leads from each node to its graph."""


class MeanReadout(Readout):
    """The mean of a graph's nodes."""

    def forward(self, x: Tensor, members: Edges) -> Tensor:
        counts = torch.bincount(members.target, minlength=members.queries).clamp(min=1)
        return x.new_zeros(members.queries, x.size(1)).index_add(0, members.target, x) / counts[:, None]


class AttentionReadout(Readout):
    """What a learned query finds among a graph's nodes: softmax(u · tanh(W x)) x, over the nodes of each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key, self.query = nn.Linear(width, width), nn.Parameter(torch.randn(width) / width**0.5)

    def forward(self, x: Tensor, members: Edges) -> Tensor:
        q = self.query.expand(1, 1, members.queries, -1)  # every graph asks the same
        k = self.key(x).tanh()[None, None]
        return attend_by(OnEdges(members, scaled_products(1.0)), self, "pool", q, k, x[None, None])[0, 0]


class GraphClassifier(Classifier):
    """The base of networks over graphs: layers, then the labels of nodes, or a readout and the labels of graphs.

    A family adds `vectors`, which gives each node's vector of the width that the base was made for.
    """

    def __init__(self, config: GraphNetConfig, shown: GraphFormat, width: int, labels: int, smoothing: float) -> None:
        head = nn.Linear(width, labels) if shown.whole else nn.Identity()
        super().__init__(head, 0.0, smoothing)
        self.config, self.whole = config, shown.whole
        self.readout = (
            (AttentionReadout(width) if config.readout == "attention" else MeanReadout()) if shown.whole else None
        )

    @abstractmethod
    def vectors(self, x: Nodes, edges: Edges) -> Tensor:
        """The vector of each node, or the scores of its labels: (N, F) -> (N, D)."""

    def features(self, batch: GraphBatch) -> Tensor:  # type: ignore[override]
        """The vector of each graph, or the scores of each node's labels, for what is scored: (M, D)."""
        edges = Edges(batch.edges[0], batch.edges[1], batch.nodes)
        x = self.vectors(self._turned(batch.features), edges)  # (N, D)
        if self.readout is not None:
            members = Edges(torch.arange(batch.nodes, device=x.device), batch.graph_of, batch.graphs)
            x = self.readout(elu(x), members)  # (G, D)
        return x.index_select(0, batch.scored)

    def _turned(self, x: Nodes) -> Nodes:
        """In training, each Laplacian position of all nodes with a sign at random: eigenvectors have none of their own."""
        count = self.config.laplacian
        if not (self.training and count):
            return x
        values = x.values if isinstance(x, SparseRows) else x
        signs = values.new_ones(x.width if isinstance(x, SparseRows) else x.size(1))
        signs[-count:] = torch.randint(0, 2, (count,), device=signs.device).to(signs.dtype) * 2 - 1
        if isinstance(x, Tensor):
            return x * signs
        return x.with_values(x.values * signs[x.columns])

    def _dropped(self, x: Nodes) -> Nodes:
        return dropped(x, self.config.dropout) if self.training else x

    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        raise ValueError("a network over a graph has no tokens to count")


class GAT(GraphClassifier):
    """A graph attention network, of either score."""

    def __init__(self, config: GATConfig, shown: GraphFormat, labels: int, smoothing: float = 0.0) -> None:
        outputs = config.width if shown.whole else labels
        super().__init__(config, shown, outputs, labels, smoothing)
        self.config: GATConfig
        inputs = [shown.features + config.laplacian, *[config.width] * (config.layers - 1)]
        inner = [(config.heads, config.width // config.heads)] * (config.layers - 1)
        sizes = [*inner, (config.last_heads, outputs)]
        self.layers = nn.ModuleList(self._layer(each, *size) for each, size in zip(inputs, sizes, strict=True))
        pairs = [(each, heads * width) for each, (heads, width) in zip(inputs, inner, strict=False)]
        self.around = nn.ParameterList(glorot(*pair) for pair in pairs) if config.residual else None

    def _layer(self, inputs: int, heads: int, width: int) -> nn.Module:
        config = self.config
        rest = (config.slope, config.attention_dropout)
        if isinstance(config, GATv2Config):
            return GATv2Layer(inputs, heads, width, *rest, config.shared)
        return GATLayer(inputs, heads, width, *rest)

    def vectors(self, x: Nodes, edges: Edges) -> Tensor:
        for number, layer in enumerate(self.layers[:-1]):
            x = self._dropped(x)
            y = layer(x, edges).flatten(1)  # heads side by side: (N, D)
            x = elu(y if self.around is None else y + product(x, self.around[number]))
        return self.layers[-1](self._dropped(x), edges).mean(dim=1)  # (N, D)


class GCN(GraphClassifier):
    """A graph convolutional network."""

    def __init__(self, config: GCNConfig, shown: GraphFormat, labels: int, smoothing: float = 0.0) -> None:
        outputs = config.width if shown.whole else labels
        super().__init__(config, shown, outputs, labels, smoothing)
        widths = [shown.features + config.laplacian, *[config.width] * (config.layers - 1), outputs]
        self.layers = nn.ModuleList(GCNLayer(*pair) for pair in pairwise(widths))

    def vectors(self, x: Nodes, edges: Edges) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(self._dropped(x), edges).flatten(1).relu()
        return self.layers[-1](self._dropped(x), edges).flatten(1)


class GraphTransformer(GraphClassifier):
    """A Transformer encoder over nodes whose mask is the graph: each node looks at its neighbours and itself."""

    def __init__(self, config: GraphTransformerConfig, shown: GraphFormat, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(config, shown, config.width if shown.whole else labels, labels, smoothing)
        self.mask = config.mask
        self.weight = glorot(shown.features + config.laplacian, config.width)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.scores_of = None if shown.whole else nn.Linear(config.width, labels)

    def vectors(self, x: Nodes, edges: Edges) -> Tensor:
        h = product(self._dropped(x), self.weight)[None]  # (1, N, D)
        mask: Mask = edges if self.mask == "edges" else Dense(edges.dense(edges.queries, edges.queries, h.device))
        for block in self.blocks:
            h = block(h, mask)
        found = self.norm(h)[0]  # (N, D)
        return found if self.scores_of is None else self.scores_of(found)


def _block(config: GraphTransformerConfig) -> Block:
    attention = MultiHead(config.width, config.heads, role="self", dropout=config.attention_dropout)
    forward = FeedForward(config.width, config.feed_forward, activation="gelu", rate=config.dropout)
    return Block(attention, None, forward, lambda: Residual(nn.LayerNorm(config.width), config.dropout, order="pre"))
