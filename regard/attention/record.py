"""The recording channel: every attention of every family passes here, and whoever records sees it.

    with regard.record(model) as seen:
        model(batch)
    seen.calls[0].weights()

Recording keeps queries and keys and computes weights only when asked, so the fast kernel still runs. Off, it costs one
comparison. The recorder lives in a context variable, so threads that record at once do not see each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from regard.attention.attend import attend, attention_weights
from regard.attention.masks import Mask, as_mask

Role = Literal["self", "causal", "cross", "memory", "spatial", "channel"]


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One attention of one forward pass: who looked (module path), in which role, and all it takes to see the weights."""

    path: str
    role: Role
    q: Tensor  # (B, H, T, E)
    k: Tensor  # (B, G, S, E)
    v: Tensor  # (B, G, S, E)
    out: Tensor  # (B, H, T, E)
    mask: Mask | None = None
    bias: Tensor | None = None
    scale: float | None = None

    def weights(self) -> Tensor:
        """Where each query looked: (B, H, T, S), rows sum to one."""
        return attention_weights(self.q, self.k, mask=self.mask, bias=self.bias, scale=self.scale)

    def allowed(self) -> Tensor:
        """Where each query was allowed to look: booleans (B, H, T, S)."""
        shape = (*self.q.shape[:3], self.k.size(-2))
        if self.mask is None:
            return self.q.new_ones(shape).bool()
        return self.mask.dense(shape[-2], shape[-1], self.q.device).expand(shape)

    def check(self) -> float:
        """The largest difference between the output rebuilt from the weights and what the module really gave."""
        v = self.v.repeat_interleave(self.q.size(1) // self.v.size(1), dim=1)  # (B, H, S, E)
        return float((self.weights() @ v - self.out).abs().max())


@dataclass
class Seen:
    """What one recording saw, in the order it happened."""

    names: dict[int, str]
    calls: list[AttentionCall] = field(default_factory=list)

    def only(self, role: Role) -> list[AttentionCall]:
        return [call for call in self.calls if call.role == role]

    def check(self) -> float:
        """The worst `check` of all calls: recorded weights rebuild the outputs."""
        if not self.calls:
            raise ValueError("no attention was seen: the model did not run inside this block, or it has none")
        return max(call.check() for call in self.calls)


_recorder: ContextVar[Seen | None] = ContextVar("recorder", default=None)


@contextmanager
def record(model: nn.Module) -> Iterator[Seen]:
    """See every attention that `model` computes inside this block (in this thread)."""
    seen = Seen({id(module): name for name, module in model.named_modules()})
    token = _recorder.set(seen)
    try:
        yield seen
    finally:
        _recorder.reset(token)


def attend_seen(
    owner: nn.Module,
    role: Role,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    reused: bool = False,
) -> Tensor:
    """`attend`, seen by the recorder if there is one. `reused`: k and v are buffers that the next step overwrites."""
    out = attend(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
    seen = _recorder.get()
    if seen is not None and id(owner) in seen.names:
        q, k, v, kept = (tensor.detach() for tensor in (q, k, v, out))
        if reused:
            k, v = k.clone(), v.clone()
        seen.calls.append(AttentionCall(seen.names[id(owner)], role, q, k, v, kept, as_mask(mask), bias, scale))
    return out
