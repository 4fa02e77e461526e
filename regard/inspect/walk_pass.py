"""One forward pass of a model in which what goes into some modules and what comes out of them is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import AttentionCall
from regard.attention.masks import Blocks, Both, Causal, Lengths, Mask, Window
from regard.embed import TokenEmbedding
from regard.embed.tokens import LearnedPositions, RandomOffset, SinusoidalPositions
from regard.look.walk.embedding import Embedding, Norm, sinusoid
from regard.look.walk.toy import LATER
from regard.predictor import Reading


@dataclass(eq=False)
class Passed:
    """What was kept, by module; of one that ran several times, the first."""

    result: Tensor | None = None  # of the whole pass
    _given: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    _out: dict[nn.Module, Tensor] = field(default_factory=dict)

    def given(self, module: nn.Module, place: int, name: str) -> Any:
        """What a module was called with, by its place or by its name; None where it was left out."""
        placed, named = self._given[module]
        return placed[place] if place < len(placed) else named.get(name)

    def out(self, module: nn.Module) -> Tensor:
        return self._out[module]

    def ran(self, module: nn.Module) -> bool:
        return module in self._out

    def keep(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Tensor) -> None:
        if not self.ran(module):
            self._given[module], self._out[module] = (given, named), out


def one_pass(reading: Reading, modules: Sequence[nn.Module]) -> Passed:
    """Run the model over the text once more, watching these modules."""
    passed = Passed()
    hooks = [each.register_forward_hook(passed.keep, with_kwargs=True) for each in modules]
    try:
        with torch.inference_mode():
            passed.result = reading.run()
    finally:
        for hook in hooks:
            hook.remove()
    return passed


def array(x: Tensor) -> np.ndarray:
    """A tensor of any kind and place as float64."""
    found: np.ndarray = x.detach().double().cpu().numpy()
    return found


def norm_of(norm: nn.Module) -> Norm | None:
    """None for no norm."""
    if isinstance(norm, nn.LayerNorm):
        return Norm("layer", array(norm.weight), array(norm.bias), norm.eps)
    if isinstance(norm, nn.RMSNorm):
        epsilon = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
        return Norm("rms", array(norm.weight), None, epsilon)
    return None


def embedding_of(passed: Passed, module: TokenEmbedding, labels: tuple[str, ...], otherwise: str) -> Embedding:
    """How a text was embedded; `otherwise`: how positions are told if they are not added."""
    ids = passed.given(module, 0, "ids")[0].tolist()
    segments = passed.given(module, 2, "segments")
    inner = module.positions.inner if isinstance(module.positions, RandomOffset) else module.positions
    kind, added = otherwise, None
    if isinstance(inner, SinusoidalPositions):
        kind, added = "sinusoidal", sinusoid(len(ids), inner.width)
    elif isinstance(inner, LearnedPositions):
        kind, added = "learned", array(inner.table)[: len(ids)]
    return Embedding(
        labels,
        array(module.table.weight)[ids],
        module.scale,
        kind,
        added,
        _segments(module, segments, len(ids)),
        None if module.norm is None else norm_of(module.norm),
    )


def _segments(module: TokenEmbedding, segments: Tensor | None, count: int) -> np.ndarray | None:
    if module.segments is None:
        return None
    numbers = [0] * count if segments is None else segments[0].tolist()
    return array(module.segments.weight)[numbers]


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
