"""Two passes over the vocabulary that every step needs, made fast on a CPU: the k greatest, and the log-sum-exp."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK = 64  # elements that one maximum stands for: a row of 10,000 becomes 156 maxima
SMALL = 2**15  # elements up to which `torch.topk` itself is faster than blocks
CACHED = 2**17  # elements whose exponentials stay in a processor's cache, and are not fresh memory each time


def log_norm(logits: Tensor) -> Tensor:
    """The log-sum-exp of the last dimension, (..., V) -> (...), some rows at a time on a CPU."""
    if logits.device.type != "cpu" or logits.numel() <= CACHED:
        return _log_sum_exp(logits)
    rows = logits.reshape(-1, logits.size(-1))  # (N, V)
    blocks = rows.split(max(1, CACHED // rows.size(1)))
    return torch.cat([_log_sum_exp(block) for block in blocks]).view(logits.shape[:-1])


def _log_sum_exp(logits: Tensor) -> Tensor:
    """The largest logit minus its log-probability: `log_softmax` makes one pass where `logsumexp` makes several."""
    return logits.amax(dim=-1) - logits.log_softmax(dim=-1).amax(dim=-1)


def top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and ids of the k greatest in the last dimension, greatest first; of equals, the lower id first.

    `torch.topk` does not say which of equals it takes, nor in which order; a search must, to be repeatable.
    """
    if k >= scores.size(-1):
        return torch.sort(scores, dim=-1, descending=True, stable=True)
    if k == 1 and scores.device.type == "cpu":
        ids = torch.from_numpy(scores.detach().numpy().argmax(axis=-1))[..., None]  # the first of equals, as below
        return scores.gather(-1, ids), ids
    if k == 1:
        return torch.max(scores, dim=-1, keepdim=True)  # the first of equals
    rows = scores.reshape(-1, scores.size(-1))  # (N, V)
    long = rows.numel() > SMALL and rows.size(1) > 3 * k * BLOCK
    values, ids, at_least = _finalists(rows, k) if long else _plain(rows, k)
    tied = (at_least > k) & (values[:, -1] > -math.inf)  # equals stand on both sides of the cut
    if tied.any():
        ids[tied] = _lowest_of_equals(rows[tied], values[tied, -1:], k)
    ids = ids.sort(dim=-1).values
    values, order = rows.gather(1, ids).sort(dim=-1, descending=True, stable=True)  # (N, k)
    shape = (*scores.shape[:-1], k)
    return values.view(shape), ids.gather(1, order).view(shape)


def _plain(rows: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k greatest of each row, and how many elements reach the least of them."""
    values, ids = rows.topk(k)  # (N, k)
    return values, ids, (rows >= values[:, -1:]).sum(dim=-1)


def _finalists(rows: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `_plain`, in one pass: the k greatest stand in the k blocks with the greatest maxima, or in the rest."""
    whole = rows.size(1) // BLOCK * BLOCK
    blocks = rows[:, :whole].unflatten(1, (-1, BLOCK))  # (N, V / BLOCK, BLOCK)
    maxima = blocks.amax(dim=-1)  # (N, V / BLOCK)
    chosen = maxima.topk(k).indices  # (N, k)
    inside = (chosen[..., None] * BLOCK + torch.arange(BLOCK, device=rows.device)).flatten(1)  # (N, k * BLOCK)
    rest = torch.arange(whole, rows.size(1), device=rows.device).expand(len(rows), -1)
    candidates = torch.cat([inside, rest], dim=1)
    finalists = rows.gather(1, candidates)
    values, places = finalists.topk(k)  # (N, k)
    cut = values[:, -1:]
    # More than k blocks that reach the cut: more than k elements do. Otherwise all that reach it are finalists.
    at_least = torch.maximum((maxima >= cut).sum(dim=-1), (finalists >= cut).sum(dim=-1))
    return values, candidates.gather(1, places), at_least


def _lowest_of_equals(rows: Tensor, cut: Tensor, k: int) -> Tensor:
    """The ids, increasing, of all that exceed the cut and of the first that equal it, k in all."""
    above, equal = rows > cut, rows == cut
    room = k - above.sum(dim=-1, keepdim=True)
    taken = above | (equal & (equal.cumsum(dim=-1) <= room))
    return taken.nonzero()[:, 1].view(len(rows), k)
