"""Sparse attention patterns: which pairs of query and key each kernel computes.

Only kernels whose pattern is fixed have one: window (Beltagy et al. 2020), strided and fixed (Child et al. 2019), BigBird
(Zaheer et al. 2020). Reformer's depends on the text, and the others see every pair, each in its own way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.attention.kernels import KERNELS, Placement
from regard.errors import Advice, Option, UsageError
from regard.files import JSON

NONE = "reformer's pattern depends on the text; linformer, performer and linear see every pair: they have no pattern"


@dataclass(frozen=True, eq=False)
class Pattern:
    """The pairs that one kernel sees; `pairs` is None where it refuses, and `settings` then says why."""

    name: str
    causal: bool
    settings: str
    pairs: np.ndarray | None  # (T, T) booleans, a row for each query

    @property
    def share(self) -> float:
        """The share of pairs seen, of all or, if causal, of those with what came before."""
        assert self.pairs is not None
        length = len(self.pairs)
        return float(self.pairs.sum()) / (length * (length + 1) / 2 if self.causal else length**2)

    def data(self) -> dict[str, JSON]:
        seen = {} if self.pairs is None else {"share": self.share, "pairs": self.pairs.astype(int).tolist()}
        return {"name": self.name, "causal": self.causal, "settings": self.settings, **seen}


def patterns(length: int) -> list[Pattern]:
    """Every pattern at a length, to both sides and causal, with sizes that fit so small a picture."""
    if length < 2:
        raise UsageError(
            f"a pattern needs two positions or more, not {length}", Advice("choose ", Option("length", "64"))
        )
    root, block = max(2, round(math.sqrt(length))), max(1, length // 16)
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("window", "window", {"reach": root // 2, "globals": 2}),
        ("strided", "strided", {"pattern": "strided", "stride": root}),
        ("fixed", "strided", {"pattern": "fixed", "stride": root, "summary": max(1, root // 4)}),
        ("bigbird", "bigbird", {"block": block, "window": 3, "globals": 1, "random": 2}),
    ]
    return [_pattern(*each, causal=causal, length=length) for causal in (False, True) for each in kinds]


def _pattern(name: str, kind: str, options: dict[str, Any], *, causal: bool, length: int) -> Pattern:
    if kind == "window" and causal:
        options = {"reach": options["reach"]}  # causal windows have no global tokens
    told = ", ".join(f"{key} {value}" for key, value in options.items() if key != "pattern")
    try:
        kernel: Any = KERNELS[kind](Placement(1, 8, causal=causal, longest=length), **options)
    except UsageError as refusal:
        return Pattern(name, causal, str(refusal).partition(";")[0], None)
    pairs = np.asarray(kernel.pattern(length, length).cpu().numpy(), dtype=bool)
    return Pattern(name, causal, told, pairs)
