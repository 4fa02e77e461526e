"""The recording channel: every attention of every family passes here, and whoever records sees it.

    with regard.record(model) as seen:
        model(batch)
    seen.calls[0].weights()

Recording keeps queries and keys and computes weights only when asked, so the fast kernel still runs; an attention that
has its weights at hand anyway tells them. Off, it costs one comparison. The recorder lives in a context variable, so
threads that record at once do not see each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from regard.attention.attend import attend, attention_scores, attention_weights, for_each_head
from regard.attention.masks import Mask, as_mask
from regard.attention.softness import softness_of

Role = Literal["self", "causal", "cross", "pool", "memory", "spatial", "channel"]
Told = Tensor | Callable[[], Tensor]  # (B, H, T, S), or what computes it when asked
Lazy = Callable[[], Tensor | None] | None


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
    told: Told | None = None  # weights that are no softmax of products of q and k
    sums_to_one: bool = True  # each row of the weights, unless the paper has it otherwise
    gates: bool = False  # weights (B, H, 1, S) do not add values up, each multiplies its own: out (B, H, S, E)
    plus: Tensor | None = None  # (B, H, T, E): what was added to the weighted values
    visible: Lazy = None  # which pairs a kernel sees, if it leaves out some by their places
    stands_for: Lazy = None  # the map that a kernel approximates, if that is not softmax(q kᵀ)
    has_exact: bool = True  # q and k are queries and keys; False: what was mixed is all there is

    def weights(self) -> Tensor:
        """Where each query looked: (B, H, T, S); rows sum to one, unless `sums_to_one` says otherwise."""
        if self.told is not None:
            return self.told().detach() if callable(self.told) else self.told
        return self.exact()

    def exact(self) -> Tensor:
        """Where exact attention would have looked, whatever was computed instead: (B, H, T, S)."""
        other = self.stands_for() if self.stands_for is not None else None
        if other is not None:
            return other
        return attention_weights(self.q, self.k, mask=self.mask, bias=self.bias, scale=self.scale)

    def permitted(self) -> Tensor:
        """Where the mask lets each query look: booleans (B, H, T, S)."""
        shape = (*self.q.shape[:3], self.k.size(-2))
        if self.mask is None:
            return self.q.new_ones(shape).bool()
        return self.mask.dense(shape[-2], shape[-1], self.q.device).expand(shape)

    def allowed(self) -> Tensor:
        """Where each query could look: what the mask permits, and of that what a kernel sees. Booleans (B, H, T, S)."""
        visible = self.visible() if self.visible is not None else None
        return self.permitted() if visible is None else self.permitted() & visible

    def check(self) -> float:
        """The largest difference between the output rebuilt from the weights and what the module really gave."""
        if self.gates:
            return float((self.weights().mT * self.v - self.out).abs().max())
        v = self.v.repeat_interleave(self.q.size(1) // self.v.size(1), dim=1)  # (B, H, S, E)
        rebuilt = self.weights() @ v
        return float(((rebuilt if self.plus is None else rebuilt + self.plus) - self.out).abs().max())


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


def is_recorded(model: nn.Module) -> bool:
    """Whether someone records this model now (in this thread)."""
    seen = _recorder.get()
    return seen is not None and id(model) in seen.names


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
    softness = softness_of(role)
    if softness is not None:
        weights = softness.weights(attention_scores(q, k, bias=bias, scale=scale), as_mask(mask))
        out = weights @ for_each_head(v, q.size(1))
    else:
        weights, out = None, attend(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
    tell(owner, role, q, k, v, out, mask=mask, bias=bias, scale=scale, told=weights, reused=reused)
    return out


def tell(
    owner: nn.Module,
    role: Role,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    told: Told | None = None,
    sums_to_one: bool = True,
    gates: bool = False,
    plus: Tensor | None = None,
    visible: Lazy = None,
    stands_for: Lazy = None,
    has_exact: bool = True,
    reused: bool = False,
) -> None:
    """Let the recorder see an attention that was computed, if there is a recorder. See `AttentionCall`."""
    seen = _recorder.get()
    if seen is None or id(owner) not in seen.names:
        return
    q, k, v, out = (tensor.detach() for tensor in (q, k, v, out))
    if reused:
        k, v = k.clone(), v.clone()
    told = told.detach() if isinstance(told, Tensor) else told
    plus = None if plus is None else plus.detach()
    name, mask = seen.names[id(owner)], as_mask(mask)
    more = (bias, scale, told, sums_to_one, gates, plus, visible, stands_for, has_exact)
    seen.calls.append(AttentionCall(name, role, q, k, v, out, mask, *more))
