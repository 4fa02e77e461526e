"""A call of torch's multi-head attention by someone else's module: run, changed, and told to the recorder.

nn.MultiheadAttention projects, attends and projects again in one function, so queries, keys and values are made once
more from its inputs, and only when someone asks to see them. Weights are those before dropout: in training, with
dropout, they do not rebuild the output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import channel
from regard.attention.attend import attention_scores
from regard.attention.call import AttentionCall, Role
from regard.attention.changes import Changed
from regard.attention.foreign_inputs import HeadsInputs, additive
from regard.attention.foreign_roles import divisible, lets_through, role_of
from regard.attention.masks import Dense
from regard.errors import UsageError

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
        """What torch gives, or what a change makes of it; the recorder is told."""
        removed = () if change is None else change.removed(self.num_heads)
        weights = None
        if change is not None and change.of_weights:
            weights, given = self._changed(change, place)
        else:
            given = give(**vars(self._without(removed)))
        self._tell(owner, role, given[0], weights, removed, time)
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

    def _tell(
        self, owner: nn.Module, role: Role, out: Tensor, weights: Tensor | None, removed: tuple[int, ...], time: int
    ) -> None:
        """As `record.tell`, but the call is made later."""
        seen = channel.recorder.get()
        if seen is None or seen.over or (path := seen.names.get(id(owner))) is None:
            return
        if seen.wants(path, role, self.query.movedim(0, -2), self.key.movedim(0, -2), time):
            out = out.detach()[:, None] if out.dim() == 2 else out.detach()  # (T, B, D)
            told = None if weights is None else weights.detach()
            given = self._copied()
            named, rows = channel.told(seen), out.size(1)
            batch = None if named is None else named.of(rows)
            about = {"layer": seen.numbers.of(path, role, time), "told": told, "removed": removed, "batch": batch}
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


def _versions(call: Any) -> list[int]:
    """How often each tensor was written to, as far as torch counts it."""
    return [x._version for x in vars(call).values() if isinstance(x, Tensor) and not x.is_inference()]
