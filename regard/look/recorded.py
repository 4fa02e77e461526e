"""From what a recording saw to maps with labels: of one call, or of all layers and heads of a text.

tokens = tokenizer("A man rides a bike.", return_tensors="pt")
names = tokenizer.convert_ids_to_tokens(tokens["input_ids"][0])
with regard.record(bert, labels={"text": [names]}) as seen:      # a Hugging Face model, as it is
    bert(**tokens)
map_of(seen, seen.calls[0]).words().save("first.png")
sentence_of(seen).grid().save("heads.html")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import UsageError
from regard.look.map import AttentionMap
from regard.look.sentence import NAMES, SentenceAttention

if TYPE_CHECKING:  # whoever records has torch; who only draws need not wait for it
    from regard.attention import AttentionCall, Seen


def map_of(seen: Seen, call: AttentionCall, text: int = 0) -> AttentionMap:
    """All heads of one recorded call, for one text of the batch: (H, T, S), NaN where a query must not look.

    Labels are those given to `regard.record(model, labels=...)`, numbers where none were: {"text": [tokens]} for a model
    that reads one text, {"source": ..., "target": ..., "prefix": ...} for one that reads and writes.
    """
    if not 0 <= text < len(call.q):
        raise UsageError(f"no text {text}; {len(call.q)} were recorded, numbered from 0")
    weights = masked_weights(call, text)
    rows, columns = seen.labelled(call, text)
    title = f"{NAMES.get(call.role, call.role)}, layer {call.layer}, {call.path}".rstrip(", ")
    return AttentionMap(weights, columns, rows, title)


def sentence_of(seen: Seen, role: str | None = None, text: int = 0) -> SentenceAttention:
    """Everything that one pass over a text showed: the attention of `role` (None: the first there is), and the others."""
    roles = list(dict.fromkeys(call.role for call in seen.calls if call.role in NAMES))
    difference = seen.check() if seen.calls else 0.0  # a family without attention has nothing to rebuild
    found: dict[str, SentenceAttention] = {each: _of_role(seen, each, text, difference) for each in roles}
    first = role or next(iter(found), "cross")
    main = found.pop(first, None)
    if main is None:
        rows, columns = _sides(seen, text)
        return SentenceAttention(columns, rows, {}, difference, first, found)
    return replace(main, others=found)


def masked_weights(call: AttentionCall, text: int = 0) -> np.ndarray:
    """The weights (H, T, S) of one text of a call; NaN where a query could not look, for whatever reason."""
    allowed = call.allowed()[text].cpu().numpy()
    return np.where(allowed, call.weights()[text].detach().double().cpu().numpy(), np.nan)


def _of_role(seen: Seen, role: str, text: int, difference: float) -> SentenceAttention:
    layers = layers_of(seen.only(role), text)
    shape = next(iter(layers.values())).shape[1:]
    if any(each.shape[1:] != shape for each in layers.values()):
        raise UsageError(
            f"the {NAMES[role]} was recorded over several lengths; record one pass over one text at a time"
        )
    rows, columns = seen.labelled(seen.only(role)[0], text)
    return SentenceAttention(columns, rows, layers, difference, role)


def layers_of(calls: Sequence[AttentionCall], text: int = 0) -> dict[str, np.ndarray]:
    """The weights of each call by its path; a module that was called again has its count behind its path."""
    found: dict[str, np.ndarray] = {}
    for call in calls:
        times = sum(name.split(" ")[0] == call.path for name in found)
        found[f"{call.path} {times + 1}" if times else call.path] = masked_weights(call, text)
    return found


def _sides(seen: Seen, text: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows and columns where nothing looked."""
    sides = ("target", "source") if "source" in seen.labels else ("text", "text")
    rows, columns = (tuple(seen.labels[side][text]) if side in seen.labels else () for side in sides)
    return rows, columns
