"""How much of each token is in each vector above a stack of attentions: attention rollout.

Abnar & Zuidema 2020, "Quantifying attention flow in transformers", eq. 1, with the residual connection of section 3:

    R_l = ½ (A_l + I) R_{l-1},   R_0 = I,   A_l the mean of the heads of layer l

`regard.models.classifier.rollout` is the same for recorded batches; this one is for maps, and knows which cells no path
reaches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PAPER = "attention rollout (Abnar & Zuidema 2020, eq. 1)"
STACK = PAPER + ": the product over {} layers of (A + I)/2, A the mean of a layer's heads"
CROSS = (
    PAPER + ": the last layer's cross-attention times the product over {} encoder layers of (A + I)/2; heads averaged"
)


def rollout(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Of self-attentions (H, T, T), from the first to the last: (T, T), NaN where nothing can come from."""
    size = layers[0].shape[-1]
    mixed = reached = np.eye(size)
    for heads in layers:
        mixed = (mean_of_heads(heads) @ mixed + mixed) / 2
        reached = np.minimum((~np.isnan(heads)).any(axis=0) @ reached + reached, 1.0)
    return np.where(reached > 0, mixed, np.nan)


def cross_rollout(cross: np.ndarray, encoder: Sequence[np.ndarray]) -> np.ndarray:
    """Of a decoder's look (H, T, S) at an encoder of self-attentions (H, S, S): (T, S)."""
    inside = rollout(encoder)
    reached = (~np.isnan(cross)).any(axis=0) @ (~np.isnan(inside)).astype(float) > 0
    return np.where(reached, mean_of_heads(cross) @ np.nan_to_num(inside), np.nan)


def mean_of_heads(heads: np.ndarray) -> np.ndarray:
    """The mean (T, S) of heads (H, T, S). Rows of any sums and signs are taken by their size, so that each sums to one."""
    sizes = np.abs(np.nan_to_num(heads))
    sums = sizes.sum(axis=-1, keepdims=True)
    return (sizes / np.where(sums > 0, sums, 1.0)).mean(axis=0)
