"""What the walk needs of embeddings and norms, as float64 arrays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from regard.embed import TokenEmbedding
from regard.embed.tokens import LearnedPositions, RandomOffset, SinusoidalPositions
from regard.look.walk.embedding import sinusoid
from regard.look.walk.given import Embedding, Norm
from regard.tasks.walk_pass import Passed


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
