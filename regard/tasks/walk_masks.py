"""Why a query must not look at a key, in words: read from the symbols of its mask."""

from __future__ import annotations

from regard.attention import AttentionCall
from regard.attention.masks import Blocks, Both, Causal, Lengths, Mask, Window
from regard.look.walk.toy import LATER

WORDS = {
    Causal: LATER,
    Lengths: "of padding, behind the text's end",
    Window: "outside the band",
    Blocks: "of another document",
}


def reasons_of(call: AttentionCall, place: int) -> tuple[str, ...]:
    """Of each key of the query in row `place` of the first text; empty where it may be seen."""
    keys = call.k.size(-2)
    why = [""] * keys
    for mask, word in _parts(call.mask):
        seen = mask.dense(call.q.size(-2), keys, call.q.device).expand(*call.q.shape[:3], keys)[0, 0, place].tolist()
        why = [old or ("" if may else word) for old, may in zip(why, seen, strict=True)]
    seen = call.allowed()[0, :, place].any(dim=0).tolist()
    return tuple("" if may else old or "outside the window" for old, may in zip(why, seen, strict=True))


def _parts(mask: Mask | None) -> list[tuple[Mask, str]]:
    """The simple masks that a mask is joined of, each with its word."""
    if mask is None:
        return []
    if isinstance(mask, Both):
        return [*_parts(mask.first), *_parts(mask.second)]
    return [(mask, WORDS.get(type(mask), "outside the window"))]
