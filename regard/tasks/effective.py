"""What a trained model of text really mixed, layer by layer, beside exact attention on the same input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regard.attention import AttentionCall, Role, Seen, record
from regard.data.batches import TokenPairs
from regard.errors import UsageError
from regard.look.effective import EffectiveAttention, effective
from regard.tasks.rows import as_row, label_batches
from regard.tokens import PAD, as_arrays


def effective_attention(
    user: Any, text: str, second: str | None = None, layer: int | None = None, head: int | None = None
) -> EffectiveAttention:
    """Of a model to generate, fill, classify or translate."""
    ways = {"generate": _generate, "fill": _fill, "classify": _classify, "translate": _translate}
    if user.config.task not in ways:
        raise UsageError(f"--exact is for models of text; this is a model to {user.config.task}")
    with torch.inference_mode():
        columns, rows, calls = ways[user.config.task](user, text, second)
        layers = tuple(effective(call) for call in calls)
    return EffectiveAttention(tuple(columns), tuple(rows), layers, layer, head)


Found = tuple[Sequence[str], Sequence[str], list[AttentionCall]]


def _generate(user: Any, text: str, second: str | None) -> Found:
    ids = [user.tokenizer.specials.begin, *user.tokenizer.encode(text)][: user.context]
    with record(user.model) as seen:
        user.model.read(torch.tensor([ids], device=user.device))
    return _alike(user, ids, seen, "causal")


def _fill(user: Any, text: str, second: str | None) -> Found:
    special = user.tokenizer.specials
    ids = [special.begin, *user.tokenizer.encode_gaps(text)[: user.longest - 2], special.end]
    with record(user.model) as seen:
        user.model.encoder(torch.tensor([ids], device=user.device), torch.tensor([len(ids)], device=user.device))
    return _alike(user, ids, seen, "self")


def _classify(user: Any, text: str, second: str | None) -> Found:
    row = as_row(user.tokenizer, text, second, user.longest)
    batch = label_batches([row], np.zeros(1, dtype=np.int64), user.tokenizer, max(1, len(row[0])), seed=0).take([0])
    with record(user.model) as seen:
        user.model.logits(batch.to(user.device))
    return _alike(user, [int(each) for each in row[0]], seen, "self" if seen.only("self") else "causal")


def _alike(user: Any, ids: Sequence[int], seen: Seen, role: Role) -> Found:
    labels = user.tokenizer.labels(ids)
    return labels, labels, seen.only(role)


def _translate(user: Any, text: str, second: str | None) -> Found:
    """Of the three attentions, the one with a kernel; where none or several have one, what looks at the source."""
    reads = as_arrays([user.tokenizers.source.encode(text)], begin=False)
    writes = as_arrays([list(user.translate(text).ids)], begin=True)
    with record(user.model) as seen:
        user.model.hidden(TokenPairs(reads, writes, PAD).take([0]).to(user.device))
    source, target = user.tokenizers.source.labels(reads[0]), user.tokenizers.target.labels(writes[0][1:])
    with_kernels = [
        role for role in ("cross", "self", "causal") if any(callable(call.told) for call in _of(seen, role))
    ]
    role = (with_kernels or ["cross"])[0]
    before = user.tokenizers.target.labels(writes[0][:-1])  # what the decoder reads
    columns, rows = {"cross": (source, target), "self": (source, source), "causal": (before, before)}[role]
    return columns, rows, _of(seen, role)


def _of(seen: Seen, role: str) -> list[AttentionCall]:
    return [call for call in seen.calls if call.role == role]
