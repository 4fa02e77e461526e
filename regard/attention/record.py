"""The recording channel: every attention of every family passes here, and whoever records sees it.

    with regard.record(model) as seen:
        model(batch)
    seen.calls[0].weights()

Recording keeps queries and keys and computes weights only when asked, so the fast kernel still runs; an attention that
has its weights at hand anyway reports them. Off, it costs one comparison. The recorder lives in a context variable, so
threads that record at once do not see each other. Other people's modules are seen through `foreign/`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Unpack

from torch import Tensor, nn

from regard.attention import channel
from regard.attention.call import AttentionCall, Bounds, Role, ShownWeights, holds, module_of, names_of
from regard.attention.changes import changed
from regard.attention.masks import Mask, as_mask
from regard.attention.mechanisms import Exact, Mechanism
from regard.attention.seen import Labels, Seen
from regard.errors import UsageError

__all__ = [
    "AttentionCall",
    "Labels",
    "Role",
    "Seen",
    "attend_by",
    "attend_seen",
    "is_recorded",
    "record",
    "report",
    "report_no_weights",
]


@contextmanager
def record(
    model: object,
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
) -> Tensor:
    """softmax(q kᵀ · scale + bias) v, for whoever can be changed and recorded: (B, H, T, E). See `attend_by`."""
    return attend_by(Exact(mask, scale, dropout, bias), owner, role, q, k, v, reused=reused)


def attend_by(
    mechanism: Mechanism, owner: nn.Module, role: Role, q: Tensor, k: Tensor, v: Tensor, *, reused: bool = False
) -> Tensor:
    """Attend by a mechanism: changed if someone intervenes, and seen by the recorder if there is one: (B, H, T, E).

    `reused`: k and v are buffers that the next step overwrites.
    """
    if not channel.blocks:
        return mechanism.attend(q, k, v)
    change = changed(owner, role)
    out, shown = mechanism.attend_changed(q, k, v, change)
    out = out if change is None else change.kept(out)
    if shown is None:
        report_no_weights(owner)
    else:
        removed = () if change is None else change.removed(q.size(1))
        report(owner, role, q, k, v, out, reused=reused, removed=removed, **shown)
    return out


def report(
    owner: nn.Module,
    role: Role,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    *,
    reused: bool = False,
    removed: tuple[int, ...] = (),
    time: int = 0,
    **shown: Unpack[ShownWeights],
) -> None:
    """Let the recorder see an attention that was computed, if there is a recorder. See `AttentionCall`.

    time   which call of its module in this forward pass, from 0
    shown  how its weights are shown, where they are not softmax(q kᵀ / √E)
    """
    seen = channel.recorder.get()
    if seen is None or seen.over or (path := seen.names.get(id(owner))) is None:
        return
    if not seen.wants(path, role, q, k, time):
        return
    q, k, v, out = (tensor.detach() for tensor in (q, k, v, out))
    if reused:
        k, v = k.clone(), v.clone()
    fields = {name: each.detach() if isinstance(each, Tensor) else each for name, each in shown.items()}
    fields["mask"] = as_mask(shown.get("mask"))
    named = channel.named_inputs(seen)
    batch = None if named is None else named.of(len(q))
    layer = seen.numbers.of(path, role, time)
    seen.keep(AttentionCall(path, role, q, k, v, out, layer=layer, removed=removed, batch=batch, **fields))  # type: ignore[arg-type]


def report_no_weights(owner: nn.Module) -> None:
    """An attention ran that has no weights to show: a step of a kernel. A recorder counts it."""
    seen = channel.recorder.get()
    if seen is not None and not seen.over and id(owner) in seen.names:
        seen.unseen += 1
