"""Relative positions by name."""

from __future__ import annotations

from collections.abc import Callable

from regard.attention.alibi import ALiBi
from regard.attention.relative import Relative
from regard.attention.shaw import Shaw
from regard.attention.t5 import T5
from regard.attention.tree import Tree
from regard.errors import UsageError, nearest

RELATIVE_KINDS: dict[str, Callable[[int, int, bool, int], Relative]] = {
    "shaw": lambda heads, head_width, causal, reach: Shaw(head_width, reach, causal=causal),
    "t5": lambda heads, head_width, causal, reach: T5(heads, causal=causal),
    "alibi": lambda heads, head_width, causal, reach: ALiBi(heads),
    "tree": lambda heads, head_width, causal, reach: Tree(head_width, reach),
}


def make_relative(kind: str, heads: int, head_width: int, *, causal: bool, reach: int) -> Relative:
    """The relative positions of this name: shaw, t5, alibi, tree."""
    if kind not in RELATIVE_KINDS:
        raise UsageError(f"no relative positions {kind}{nearest(kind, RELATIVE_KINDS)}")
    return RELATIVE_KINDS[kind](heads, head_width, causal, reach)
