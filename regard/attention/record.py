"""The recording channel: every attention of every family passes here, and whoever records sees it.

    with regard.record(model) as seen:
        model(batch)
    seen.calls[0].weights()

Recording keeps queries and keys and computes weights only when asked, so the fast kernel still runs; an attention that
has its weights at hand anyway tells them. Off, it costs one comparison. The recorder lives in a context variable, so
threads that record at once do not see each other. Other people's modules are seen through `foreign/`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from regard.attention import channel
from regard.attention.attend import attend, attention_scores, for_each_head
from regard.attention.call import AttentionCall, Bounds, Lazy, Role, Told, holds, module_of, names_of
from regard.attention.changes import changed
from regard.attention.masks import Mask, as_mask
from regard.attention.seen import Labels, Seen
from regard.errors import UsageError

__all__ = ["AttentionCall", "Labels", "Role", "Seen", "attend_seen", "is_recorded", "record", "tell", "tell_nothing"]


@contextmanager
def record(
    model: Any,
    *,
    only: Role | Sequence[Role] | None = None,
    layers: int | Sequence[int] | None = None,
    texts: int | Sequence[int] | None = None,
    rows: int | slice | None = None,
    most_tokens: int | None = None,
    labels: Labels | None = None,
) -> Iterator[Seen]:
    """See every attention that `model` computes inside this block (in this thread), or what the bounds leave of them.

    only         a role, or some: "cross", "causal", "self", ...
    layers       by number, from 0, among the attentions of each role
    texts        of the inputs as they were given, however they are batched: the first so many, or these
    rows         of each map: one query, or a slice of them
    most_tokens  attentions over more queries or keys are left out (and counted in `left_out`)
    labels       of each input's tokens, as in {"source": [["a", "man"]], "target": [...]}, or {"text": ...}; what
                 `regard.load` gives says its own

    `model` is a module, ours or anyone's, or what `regard.load` gives. Of blocks within blocks the innermost sees; what
    runs in it is not seen by those around. A task of asyncio that is begun inside sees until the block ends; a
    generator that stops inside lends its recording to whoever asked it. Someone else's model of which nothing was seen
    gets a warning that says why.
    """
    module = module_of(model, "record")
    if labels is not None and not isinstance(labels, Mapping):
        raise UsageError(
            'labels name their axis, with a list for each text: {"text": [["a", "man"]]}, or source and target'
        )
    bounds = Bounds.of(only, layers, texts, rows, most_tokens)
    around = channel.recorder.get()
    seen = Seen(names_of(module), bounds, labels or {}, outer=around)
    channel.recorder.set(seen)
    try:
        with channel.block(), channel.watching(module) as watched:
            yield seen
        if watched is not None and seen.empty:
            seen.why = watched.why_nothing()
            warnings.warn(seen.nothing(), stacklevel=3)
    finally:
        seen.over, last = True, channel.recorder.get()
        channel.recorder.set(None if last is None else last.still())  # blocks of generators may end in any order
        seen.outer = None if last is seen else seen.outer  # what others saw can be forgotten


def is_recorded(model: nn.Module) -> bool:
    """Whether someone records this model, or a part of it, now (in this thread)."""
    seen = channel.recorder.get()
    return seen is not None and not seen.over and holds(seen.names, model)


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
    place: int = 0,
    together: bool = False,
) -> Tensor:
    """`attend`, changed if someone intervenes, and seen by the recorder if there is one.

    reused    k and v are buffers that the next step overwrites
    place     of the first query among all queries; `together`: of every query, as of hypotheses of one step
    """
    if not channel.blocks:
        return attend(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
    change, weights = changed(owner, role), None
    if change is not None and change.of_weights:
        scores = attention_scores(q, k, bias=bias, scale=scale)
        weights = change.weights(scores, as_mask(mask), place, together).to(v.dtype)
        out = weights @ for_each_head(v, q.size(1))
    else:
        out = attend(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
    removed = () if change is None else change.removed(q.size(1))
    out = out if change is None else change.kept(out)
    tell(owner, role, q, k, v, out, mask=mask, bias=bias, scale=scale, told=weights, reused=reused, removed=removed)
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
    removed: tuple[int, ...] = (),
    time: int = 0,
) -> None:
    """Let the recorder see an attention that was computed, if there is a recorder. See `AttentionCall`.

    time  which call of its module in this forward pass, from 0
    """
    seen = channel.recorder.get()
    if seen is None or seen.over or (path := seen.names.get(id(owner))) is None:
        return
    if not seen.wants(path, role, q, k, time):
        return
    q, k, v, out = (tensor.detach() for tensor in (q, k, v, out))
    if reused:
        k, v = k.clone(), v.clone()
    told = told.detach() if isinstance(told, Tensor) else told
    plus, bias = (None if each is None else each.detach() for each in (plus, bias))
    more = (bias, scale, told, sums_to_one, gates, plus, visible, stands_for, has_exact)
    layer = seen.numbers.of(path, role, time)
    named = channel.told(seen)
    batch = None if named is None else named.of(len(q))
    seen.keep(AttentionCall(path, role, q, k, v, out, as_mask(mask), *more, layer, removed, batch=batch))


def tell_nothing(owner: nn.Module) -> None:
    """An attention ran that has no weights to show: a step of a kernel. A recorder counts it."""
    seen = channel.recorder.get()
    if seen is not None and not seen.over and id(owner) in seen.names:
        seen.unseen += 1
