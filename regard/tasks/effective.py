"""What a trained model of text really mixed, layer by layer, beside exact attention on the same input."""

from __future__ import annotations

from typing import Any

import torch

from regard.attention import AttentionCall, Seen
from regard.look.effective import EffectiveAttention, effective
from regard.tasks.reading import Reading, read_text


def effective_attention(
    user: Any, text: str, second: str | None = None, layer: int | None = None, head: int | None = None
) -> EffectiveAttention:
    """Of a model to generate, fill, classify or translate."""
    reading = read_text(user, text, second)
    seen = reading.look()
    calls = _chosen(reading, seen)
    with torch.inference_mode():
        layers = tuple(effective(call) for call in calls)
    rows, columns = seen.labelled(calls[0]) if calls else ((), ())
    return EffectiveAttention(columns, rows, layers, layer, head)


def _chosen(reading: Reading, seen: Seen) -> list[AttentionCall]:
    """Of a translation's three attentions, the one with a kernel; where none or several have one, the look at the source."""
    if reading.user.config.task != "translate":
        return seen.only(reading.role)
    with_kernels = [
        role for role in ("cross", "self", "causal") if any(callable(each.told) for each in seen.only(role))
    ]
    return seen.only((with_kernels or ["cross"])[0])
