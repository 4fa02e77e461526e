"""Performer (Choromanski et al. 2021, "Rethinking attention with Performers"): softmax attention by random features.

FAVOR+: positive features (lemma 1) along orthogonal random directions (section 3.3), the same for all heads of a layer.
Their products are exp(q·k / √E) on average, and the error falls as 1/√M. Directions are drawn anew now and then in
training, so that the model learns to do with any.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.kernels.features import Exponentials, Features, directions, usual_count
from regard.attention.kernels.kernel import Setting
from regard.attention.kernels.linear import ByFeatures
from regard.noise import step_of_training


class Performer(ByFeatures):
    """`features`: M, 0 for the paper's order of E ln E. `redraw`: after how many steps of training, 0 for never.

    Directions are a function of the block's seed and of `draw`, a number that is saved with the weights.
    """

    name = "performer"
    draw: Tensor

    def __init__(self, setting: Setting, features: int = 0, redraw: int = 1000) -> None:
        super().__init__(setting)
        self.count, self.redraw = features or usual_count(setting.head_width), redraw
        self.register_buffer("draw", torch.zeros((), dtype=torch.int64))
        self._drawn: dict[tuple[int, torch.dtype, torch.device], Features] = {}

    def features(self, like: Tensor) -> Features:
        step = step_of_training()
        if self.training and self.redraw and step is not None:
            self.draw.fill_(step // self.redraw)
        key = (int(self.draw), like.dtype, like.device)
        if key not in self._drawn:
            drawn = directions(self.count, self.setting.head_width, self.setting.seed, key[0])
            self._drawn = {known: kept for known, kept in self._drawn.items() if known[0] == key[0]}
            self._drawn[key] = Exponentials(drawn.to(like))
        return self._drawn[key]
