"""Relative positions: what scores know about the way from a query to a key.

Rotary (Su et al. 2021), linear biases (Press et al. 2022), Shaw et al. 2018, T5's buckets (Raffel et al. 2020), and
distances in a tree (Wang et al. 2019); and those of Transformer-XL (Dai et al. 2019), which the Conformer has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import RegardError, UsageError, nearest


def text_distances(queries: int, keys: int, start: int, device: torch.device | str) -> Tensor:
    """s - t of each query and key, the first query at position `start`: (T, S). Negative is to the left."""
    places = torch.arange(start, start + queries, device=device)
    return torch.arange(keys, device=device) - places[:, None]


def tree_distances(heads: Tensor) -> Tensor:
    """How many edges lie between two tokens of a row: heads (B, S), each token's parent -> (B, S, S).

    A root is its own parent. What two tokens have in common is the way from the lowest of their common ancestors to the
    root, so that of depths counted in tokens, d(i, j) = depth(i) + depth(j) - 2 · common(i, j). Tokens without a common
    ancestor are S apart, farther than any two of one tree.
    """
    _check_heads(heads)
    above = _ancestors(heads).float()  # (B, S, S)
    common = above @ above.mT  # counts, which float32 holds exactly
    depth = common.diagonal(dim1=-2, dim2=-1)  # (B, S)
    apart = depth[:, :, None] + depth[:, None, :] - 2 * common
    return apart.masked_fill(common == 0, heads.size(1)).long()


def _ancestors(heads: Tensor) -> Tensor:
    """Whether token j lies on the way from token i to its root, both ends included: (B, S, S).

    Pointers jump twice as far each time, and what each saw on its way is joined: log2(S) rounds.
    """
    size = heads.size(1)
    above = torch.eye(size, dtype=torch.bool, device=heads.device).repeat(len(heads), 1, 1)
    jump, rows = heads, torch.arange(len(heads), device=heads.device)[:, None]
    for _ in range(max(1, size).bit_length()):
        above = above | above[rows, jump]
        jump = jump.gather(1, jump)
    if bool((heads.gather(1, jump) != jump).any()):
        row = int((heads.gather(1, jump) != jump).any(dim=1).nonzero()[0])
        raise RegardError(f"the heads of row {row} go round in a circle; from each token they must lead to a root")
    return above


def _check_heads(heads: Tensor) -> None:
    if heads.numel() and not 0 <= int(heads.min()) <= int(heads.max()) < heads.size(1):
        raise RegardError(
            f"a head points at token {int(heads.min())} or {int(heads.max())} of a row of {heads.size(1)}; "
            f"heads count from 0, and a root is its own"
        )


class Relative(nn.Module, ABC):
    """Positions that a `MultiHead` asks when it scores."""

    @abstractmethod
    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        """Return the bias that is added to scores that are scaled already: it broadcasts to (B, H, T, S).

        q is (B, H, T, E), its first query at position `start`; the keys stand at 0 .. keys - 1.
        """


class RelativeValues(Relative):
    """Positions that also add to what is seen."""

    @abstractmethod
    def values(self, weights: Tensor, start: int = 0, distances: Tensor | None = None) -> Tensor:
        """Return what is added to the weighted values, for weights (B, H, T, S): (B, H, T, E)."""


def slopes(heads: int) -> list[float]:
    """m of each head: a geometric row if their number is a power of two.

    If not, the row of the next smaller power of two, then every second of the next larger one's, as the paper's code.
    """
    below = 2 ** (heads.bit_length() - 1)
    own = [2 ** (-8 * head / below) for head in range(1, below + 1)]
    between = [2 ** (-4 * head / below) for head in range(1, 2 * below + 1, 2)]
    return own + between[: heads - below]


class ALiBi(Relative):
    """No parameters; slopes are computed from the number of heads."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = slopes(heads)

    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        exact = torch.promote_types(q.dtype, torch.float32)
        apart = text_distances(q.size(-2), keys, start, q.device).abs().to(exact)  # (T, S)
        steep = torch.tensor(self.slopes, dtype=exact, device=q.device)[:, None, None]
        return (-steep * apart).to(q.dtype)[None]  # (1, H, T, S)


SPREAD = 0.02  # of fresh tables


class DistanceTables(RelativeValues):
    """A vector for keys and one for values, for each of `size` distances; a sub-class says which is whose."""

    def __init__(self, head_width: int, size: int) -> None:
        super().__init__()
        self.key_table = nn.Parameter(torch.empty(size, head_width))
        self.value_table = nn.Parameter(torch.empty(size, head_width))
        for table in (self.key_table, self.value_table):
            nn.init.normal_(table, std=SPREAD)

    @abstractmethod
    def rows(self, queries: int, keys: int, start: int, distances: Tensor | None) -> Tensor:
        """Which row of the tables each query and key take: it broadcasts to (B, H, T, S)."""

    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        rows = self.rows(q.size(-2), keys, start, distances)
        products = q @ self.key_table.T / math.sqrt(q.size(-1))  # (B, H, T, size)
        return products.gather(-1, rows.expand(*q.shape[:3], keys))  # (B, H, T, S)

    def values(self, weights: Tensor, start: int = 0, distances: Tensor | None = None) -> Tensor:
        rows = self.rows(weights.size(-2), weights.size(-1), start, distances)
        summed = weights.new_zeros(*weights.shape[:3], len(self.value_table))
        summed = summed.scatter_add(-1, rows.expand(weights.shape), weights)  # (B, H, T, size)
        return summed @ self.value_table.to(summed.dtype)  # (B, H, T, E)


class Shaw(DistanceTables):
    """Distances in the text. A causal one needs no rows for keys to the right."""

    def __init__(self, head_width: int, reach: int, *, causal: bool) -> None:
        super().__init__(head_width, reach + 1 if causal else 2 * reach + 1)
        self.reach, self.right = reach, 0 if causal else reach

    def rows(self, queries: int, keys: int, start: int, distances: Tensor | None) -> Tensor:
        apart = text_distances(queries, keys, start, self.key_table.device)
        return apart.clamp(-self.reach, self.right) + self.reach  # (T, S)


class TransformerXL(Relative):
    """Distances as sinusoids, projected, and compared with each query (Dai et al. 2019, section 3.3):

        score(t, s) = (q_t + u) · k_s + (q_t + v) · W r_(t - s)

    with a bias u and v for each head. A query layer has a bias of its own: with q_t + u for what it gives, the second
    term is (q_t + u + v') · W r, v' = v - u, so that `offset` is v' and nothing else changes.
    """

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.width = heads, heads * head_width
        self.offset = nn.Parameter(torch.zeros(heads, 1, head_width))
        self.project = nn.Linear(self.width, self.width, bias=False)

    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        queries = q.size(-2)
        farthest = start + queries - 1  # from the last query to the first key; then nearer, key by key
        table = self.sinusoids(farthest, queries + keys - 1, q.device).to(q.dtype)  # (L, D)
        r = self.project(table).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)  # (H, E, L)
        products = ((q + self.offset) / math.sqrt(q.size(-1))) @ r  # (B, H, T, L), of distance farthest - l
        return shifted(products)[..., :keys]  # (B, H, T, S)

    def sinusoids(self, first: int, count: int, device: torch.device) -> Tensor:
        """The vectors of distances first, first - 1, ...: (count, D) in float64, sines beside cosines."""
        frequency = 10_000.0 ** (-torch.arange(0, self.width, 2, device=device, dtype=torch.float64) / self.width)
        angle = torch.arange(first, first - count, -1, device=device, dtype=torch.float64)[:, None] * frequency
        return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, : self.width]


def shifted(x: Tensor) -> Tensor:
    """Row t of each matrix (..., T, L) moved to the left by T - 1 - t: y[t, s] = x[t, T - 1 - t + s] (Dai et al., appendix B).

    A column more in front, and the same numbers read as rows of another length: what leaves on the left comes in behind.
    """
    rows, columns = x.shape[-2:]
    wide = torch.nn.functional.pad(x, (1, 0)).reshape(*x.shape[:-2], columns + 1, rows)
    return wide[..., 1:, :].reshape(x.shape)


BUCKETS = 32
FARTHEST = 128  # from here on all is one bucket
T5_SPREAD = 0.02  # of a fresh table


def bucket_of(distance: int, *, causal: bool) -> int:
    """The bucket of s - t: half of the buckets for exact distances, half up to FARTHEST by the logarithm.

    If both sides are seen, each has half of all buckets; if not, what comes later is as the query itself.
    """
    count = BUCKETS if causal else BUCKETS // 2
    first = 0 if causal or distance <= 0 else count
    far = max(0, -distance) if causal else abs(distance)
    exact = count // 2
    if far < exact:
        return first + far
    share = 0  # log(far / exact) / log(FARTHEST / exact) in steps of 1 / exact, rounded down; in integers, so exactly
    while share < exact - 1 and far**exact * exact ** (share + 1) >= FARTHEST ** (share + 1) * exact**exact:
        share += 1
    return first + exact + share


class T5(Relative):
    """A table of one number for each bucket and head."""

    buckets: Tensor

    def __init__(self, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(BUCKETS, heads))
        nn.init.normal_(self.table, std=T5_SPREAD)
        known = range(-FARTHEST, 1 if causal else FARTHEST + 1)
        self.right = 0 if causal else FARTHEST
        found = torch.tensor([bucket_of(distance, causal=causal) for distance in known])
        self.register_buffer("buckets", found, persistent=False)

    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        apart = text_distances(q.size(-2), keys, start, q.device).clamp(-FARTHEST, self.right)  # (T, S)
        each = self.table.T[:, self.buckets].to(q.dtype)  # (H, distances)
        chosen = each.index_select(1, (apart + FARTHEST).flatten())
        return chosen.view(1, -1, *apart.shape)  # (1, H, T, S)


class Tree(DistanceTables):
    """One row for each distance 0 .. reach; what is farther, or in no common tree, is as `reach`."""

    def __init__(self, head_width: int, reach: int) -> None:
        super().__init__(head_width, reach + 1)
        self.reach = reach

    def rows(self, queries: int, keys: int, start: int, distances: Tensor | None) -> Tensor:
        if distances is None:
            raise UsageError(
                'tree positions need the tree of each text: give JSONL rows with a list "heads", each word\'s parent '
                "by its number, the root its own; or choose other positions, as model.positions = shaw"
            )
        if distances.shape[-2:] != (queries, keys):
            given = tuple(distances.shape[-2:])
            raise ValueError(f"the tree has distances for {given} queries and keys, and there are {(queries, keys)}")
        return distances.clamp(max=self.reach)[:, None]  # (B, 1, T, S)


RELATIVE_KINDS: dict[str, Callable[[int, int, bool, int], Relative]] = {
    "shaw": lambda heads, head_width, causal, reach: Shaw(head_width, reach, causal=causal),
    "t5": lambda heads, head_width, causal, reach: T5(heads, causal=causal),
    "alibi": lambda heads, head_width, causal, reach: ALiBi(heads),
    "tree": lambda heads, head_width, causal, reach: Tree(head_width, reach),
}


def make_relative(kind: str, heads: int, head_width: int, *, causal: bool, reach: int) -> Relative:
    """The relative positions of this name: shaw, t5, alibi, tree."""
    if kind not in RELATIVE_KINDS:
        raise UsageError(f"no relative positions {kind}", nearest(kind, RELATIVE_KINDS))
    return RELATIVE_KINDS[kind](heads, head_width, causal, reach)


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn pairs (i, i + E / 2) of the last dimension by the angles whose cosines and sines broadcast to (..., E / 2)."""
    first, second = x.chunk(2, dim=-1)  # each (..., E / 2)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Rotary(nn.Module):
    """Turns (B, H, T, E) whose first position is `start`.

    Tables are kept ready for `size` positions; those beyond are computed when needed.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, head_width: int, base: float = 10_000.0, size: int = 1024, scale: float = 1.0) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(f"rotary positions turn pairs, and a head of width {head_width} has no halves")
        self.head_width, self.base, self.scale = head_width, base, scale
        cosine, sine = self._table(0, size, torch.device("cpu"))
        self.register_buffer("cosine", cosine.to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sine", sine.to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.size(-2)
        if end <= len(self.cosine):
            cosine, sine = self.cosine[start:end], self.sine[start:end]
        else:
            cosine, sine = self._table(start, end, x.device)
        cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
        return turned(x, cosine, sine)

    def rows(self, end: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions 0 .. end - 1: each (end, E / 2)."""
        if end <= len(self.cosine):
            return self.cosine[:end], self.sine[:end]
        cosine, sine = self._table(0, end, self.cosine.device)
        return cosine.to(self.cosine.dtype), sine.to(self.sine.dtype)

    def tables(self, size: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the first positions, (size, E / 2) each, in float64."""
        return self._table(0, size, torch.device("cpu"))

    def _table(self, start: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines of each position and pair, (T, E / 2) in float64."""
        pairs = torch.arange(0, self.head_width, 2, dtype=torch.float64, device=device)
        places = torch.arange(start, end, dtype=torch.float64, device=device)
        angles = places[:, None] / self.scale * self.base ** (-pairs / self.head_width)
        return angles.cos(), angles.sin()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        """Where the model goes to another device or precision, the tables are computed anew, not rounded twice."""
        super()._apply(fn, recurse)
        cosine, sine = self._table(0, len(self.cosine), self.cosine.device)
        self.cosine, self.sine = cosine.to(self.cosine.dtype), sine.to(self.sine.dtype)
        return self
