"""How far it is from one token to another: positions in the text, or edges in a tree that is given with the data."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import RegardError


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
