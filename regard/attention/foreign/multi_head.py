"""Torch's multi-head attention (Vaswani et al. 2017, section 3.2.2) by its own arguments, with what torch adds to it:
keys that are learned or zero, masks of two kinds that are added, and a hint that spares one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from regard.attention import channel
from regard.attention.attend import attention_scores
from regard.attention.call import AttentionCall, Role
from regard.attention.changes import Changed
from regard.attention.foreign.scaled_dot_product import NotInfinite, divisible, lets_through, role_of
from regard.attention.masks import Causal, Dense, Mask
from regard.errors import UsageError


@dataclass(frozen=True, eq=False)
class HeadsInputs:
    """The arguments of torch.nn.functional.multi_head_attention_forward, by its names and in its order."""

    query: Tensor  # (T, B, D) or (T, D)
    key: Tensor  # (S, B, D) or (S, D)
    value: Tensor
    embed_dim_to_check: int
    num_heads: int
    in_proj_weight: Tensor | None  # (3 D, D)
    in_proj_bias: Tensor | None
    bias_k: Tensor | None  # (1, 1, D): one more key, the same for all
    bias_v: Tensor | None
    add_zero_attn: bool
    dropout_p: float
    out_proj_weight: Tensor
    out_proj_bias: Tensor | None
    training: bool = True
    key_padding_mask: Tensor | None = None  # (B, S) or (S,); True, or minus infinity, is padding
    need_weights: bool = True
    attn_mask: Tensor | None = None  # (T, S) or (B * H, T, S); True, or minus infinity, is hidden
    use_separate_proj_weight: bool = False
    q_proj_weight: Tensor | None = None
    k_proj_weight: Tensor | None = None
    v_proj_weight: Tensor | None = None
    static_k: Tensor | None = None  # (B * H, S, E)
    static_v: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    def projected(self) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, T, E), k and v (B, H, S, E); S counts the keys that torch adds."""
        weights: Sequence[Tensor | None] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if not self.use_separate_proj_weight and self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        batched = [x if x.dim() == 3 else x[:, None] for x in (self.query, self.key, self.value)]  # (T, B, D)
        q, k, v = (linear(x, w, b) for x, w, b in zip(batched, weights, biases, strict=True))  # type: ignore[arg-type]
        more_k, more_v = self.bias_k, self.bias_v
        if more_k is not None and more_v is not None:
            k, v = (torch.cat([x, more.expand(1, *x.shape[1:])]) for x, more in ((k, more_k), (v, more_v)))
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
        k = k if self.static_k is None else self.static_k.unflatten(0, (-1, self.num_heads))
        v = v if self.static_v is None else self.static_v.unflatten(0, (-1, self.num_heads))
        return (q, pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))) if self.add_zero_attn else (q, k, v)

    def finish(self, out: Tensor) -> Tensor:
        """(B, H, T, E) -> (B, T, D)."""
        return linear(out.transpose(1, 2).flatten(2), self.out_proj_weight, self.out_proj_bias)

    def bias(self) -> Tensor | None:
        """Both masks as one, added to scores (B, H, T, S)."""
        parts = []
        if self.attn_mask is not None and not self._by_hint:
            mask = additive(self.attn_mask, self.query)
            parts.append(mask.unflatten(0, (-1, self.num_heads)) if mask.dim() == 3 else mask)
        if self.key_padding_mask is not None:
            parts.append(torch.atleast_2d(additive(self.key_padding_mask, self.query))[:, None, None])
        added = [self.bias_k is not None, self.add_zero_attn].count(True)  # keys that no mask knows
        return pad(sum(parts[1:], parts[0]), (0, added)) if parts else None

    @property
    def _by_hint(self) -> bool:
        """Whether torch believes `is_causal` and does not look at the mask."""
        return self.is_causal and self.key_padding_mask is None and not self.need_weights

    def mask(self, bias: Tensor | None) -> Mask | None:
        """The mask that the bias is. Where torch takes a plain softmax, a query that sees nothing gets NaN, and keeps it."""
        if self._by_hint:
            return Causal()
        return None if bias is None or self.need_weights else NotInfinite(bias)


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask of multi-head attention as what is added to scores; as a boolean it is True where nothing is to be seen."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


Given = tuple[Tensor, Tensor | None]  # what torch returns: the output, and the weights if they are needed


class HeadsCall(HeadsInputs):
    """One call, made of the arguments that torch's function was given."""

    @property
    def readable(self) -> bool:
        return not self.query.is_nested

    @property
    def queries(self) -> int:
        return self.query.size(0)

    @property
    def keys(self) -> int:
        return self.key.size(0)

    @property
    def hint(self) -> Tensor | None:
        """The mask that may tell whether this is causal."""
        return self.attn_mask

    def allowed(self) -> Tensor | None:
        return None if self.attn_mask is None else lets_through(additive(self.attn_mask, self.query))

    def role(self, path: str, owner: nn.Module, causal: bool) -> Role:
        q, k = self.query, self.key
        same = q is k or (q.shape == k.shape and q.data_ptr() == k.data_ptr())  # transposed apart, it is the same still
        return role_of(path, owner, self.queries, self.keys, causal=causal or self.is_causal, same=same)

    def run(
        self, give: Callable[..., Given], owner: nn.Module, role: Role, change: Changed | None, place: int, time: int
    ) -> Given:
        """Return what torch gives, or what a change makes of it, and report it to the recorder."""
        removed = () if change is None else change.removed(self.num_heads)
        weights = None
        if change is not None and change.of_weights:
            weights, given = self._changed(change, place)
        else:
            given = give(**vars(self._without(removed)))
        self._report(owner, role, given[0], weights, removed, time)
        return given

    def _without(self, heads: tuple[int, ...]) -> HeadsCall:
        """The same call with heads whose output is multiplied by zeros."""
        if not heads:
            return self
        kept = torch.ones(self.num_heads, dtype=self.out_proj_weight.dtype, device=self.out_proj_weight.device)
        kept[list(heads)] = 0.0
        width = self.embed_dim_to_check // self.num_heads
        return replace(self, out_proj_weight=self.out_proj_weight * kept.repeat_interleave(width))

    def _changed(self, change: Changed, place: int) -> tuple[Tensor, Given]:
        """Other weights, and what torch would give with them."""
        q, k, v = self.projected()
        bias = self.bias()
        visible = None if bias is None else Dense(lets_through(torch.atleast_2d(bias)))
        scores = attention_scores(q, k, bias=divisible(bias))
        weights = change.weights(scores, self.mask(bias), place, visible=visible).to(v.dtype)
        out = self.finish(change.kept(weights @ v)).transpose(0, 1)  # (T, B, D)
        shown = weights.mean(dim=1) if self.average_attn_weights else weights
        if self.query.dim() == 2:
            out, shown = out.squeeze(1), shown.squeeze(0)
        return weights, (out, shown if self.need_weights else None)

    def _report(
        self, owner: nn.Module, role: Role, out: Tensor, weights: Tensor | None, removed: tuple[int, ...], time: int
    ) -> None:
        """As `record.report`, but the call is made later."""
        seen = channel.recorder.get()
        if seen is None or seen.over or (path := seen.names.get(id(owner))) is None:
            return
        if seen.wants(path, role, self.query.movedim(0, -2), self.key.movedim(0, -2), time):
            out = out.detach()[:, None] if out.dim() == 2 else out.detach()  # (T, B, D)
            reported = None if weights is None else weights.detach()
            given = self._copied()
            named, rows = channel.named_inputs(seen), out.size(1)
            batch = None if named is None else named.of(rows)
            about = {
                "layer": seen.numbers.of(path, role, time),
                "reported": reported,
                "removed": removed,
                "batch": batch,
            }
            seen.keep_later(partial(given._made, path, role, out.transpose(0, 1), _versions(given), **about))

    def _made(self, path: str, role: Role, out: Tensor, versions: list[int], **about: Any) -> AttentionCall:
        """The recorded call, with queries, keys and values projected once more."""
        if _versions(self) != versions:
            raise UsageError(f"the parameters of {path!r} have changed since it was recorded; ask before they do")
        bias = self.bias()
        visible = None if bias is None else partial(lets_through, bias)
        more = {"mask": self.mask(bias), "bias": bias, "visible": visible, "finish": self.finish, **about}
        return AttentionCall(path, role, *self.projected(), out, **more)

    def _copied(self) -> HeadsCall:
        """Without a graph, and with inputs of its own: a model may overwrite them."""
        tensors: dict[str, Any] = {name: each.detach() for name, each in vars(self).items() if isinstance(each, Tensor)}
        query = tensors["query"].clone()
        key = query if self.key is self.query else tensors["key"].clone()
        value = key if self.value is self.key else tensors["value"].clone()
        return replace(self, **{**tensors, "query": query, "key": key, "value": value})


def _versions(call: HeadsInputs) -> list[int]:
    """How often each tensor was written to, as far as torch counts it."""
    return [x._version for x in vars(call).values() if isinstance(x, Tensor) and not x.is_inference()]
