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
from regard.tokens.tokenizer import as_read

if TYPE_CHECKING:  # whoever records has torch; who only draws need not wait for it
    from regard.attention import AttentionCall, Seen


def map_of(seen: Seen, call: AttentionCall, text: int | None = None, hypothesis: int = 0) -> AttentionMap:
    """All heads of one recorded call, for one of the inputs: (H, T, S), NaN where a query must not look.

    `text` counts the inputs from 0 as they were given, however they were batched (None: the first that the call holds).
    Labels are those given to `regard.record(model, labels=...)`, the tokens of what `regard.load` gives, or numbers:
    {"text": [tokens]} for a model that reads one text, {"source": ..., "target": ..., "prefix": ...} for one that reads
    and writes.
    """
    weights = masked_weights(call, call.row(text, hypothesis))
    rows, columns = (as_read(labels) for labels in seen.labelled(call, text, hypothesis))
    title = f"{NAMES.get(call.role, call.role)}, layer {call.layer}, {call.path}".rstrip(", ")
    return AttentionMap(weights, columns, rows, title)


def sentence_of(seen: Seen, role: str | None = None, text: int | None = None) -> SentenceAttention:
    """Everything that one pass over a text showed: the attention of `role` (None: the first there is), and the others.

    `text` counts the inputs as they were given; None is the first that was recorded.
    """
    texts = sorted({each for call in seen.calls for each in call.texts})
    if text is not None and texts and text not in texts:
        raise UsageError(f"no text {text}; recorded were {', '.join(map(str, texts))}, counted from 0")
    text = texts[0] if text is None and texts else text or 0
    roles = list(dict.fromkeys(call.role for call in seen.calls if call.role in NAMES and text in call.texts))
    difference = seen.check() if seen.calls else 0.0  # a family without attention has nothing to rebuild
    found: dict[str, SentenceAttention] = {each: _of_role(seen, each, text, difference) for each in roles}
    first = role or next(iter(found), "cross")
    main = found.pop(first, None)
    if main is None:
        rows, columns = _sides(seen, text)
        return SentenceAttention(columns, rows, {}, difference, first, found)
    return replace(main, others=found)


def masked_weights(call: AttentionCall, row: int = 0) -> np.ndarray:
    """The weights (H, T, S) of one row of the batch; NaN where a query could not look, for whatever reason."""
    allowed = call.allowed()[row].cpu().numpy()
    return np.where(allowed, call.weights()[row].detach().double().cpu().numpy(), np.nan)


def _of_role(seen: Seen, role: str, text: int, difference: float) -> SentenceAttention:
    calls = [call for call in seen.only(role) if text in call.texts]
    layers = layers_of(calls, text)
    shape = next(iter(layers.values())).shape[1:]
    if any(each.shape[1:] != shape for each in layers.values()):
        raise UsageError(
            f"the {NAMES[role]} was recorded over several lengths; record one pass over one text at a time"
        )
    rows, columns = (as_read(labels) for labels in seen.labelled(calls[0], text))
    return SentenceAttention(columns, rows, layers, difference, role)


def layers_of(calls: Sequence[AttentionCall], text: int | None = None) -> dict[str, np.ndarray]:
    """The weights of each call by its path; a module that was called again has its count behind its path."""
    found: dict[str, np.ndarray] = {}
    for call in calls:
        times = sum(name.split(" ")[0] == call.path for name in found)
        found[f"{call.path} {times + 1}" if times else call.path] = masked_weights(call, call.row(text))
    return found


def _sides(seen: Seen, text: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows and columns where nothing looked."""
    sides = ("target", "source") if "source" in seen.labels else ("text", "text")
    rows, columns = (tuple(seen.labels[side][text]) if side in seen.labels else () for side in sides)
    return rows, columns
