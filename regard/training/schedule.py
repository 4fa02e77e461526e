"""The learning rate as a pure function of the step, which counts from 1."""

from __future__ import annotations

import math

from regard.training.config import TrainConfig


def learning_rate(step: int, config: TrainConfig, width: int) -> float:
    """The rate of update `step`.

    noam: lr · D^-0.5 · min(step^-0.5, step · warmup^-1.5) (Vaswani et al. 2017, eq. 3), where lr is a factor.
    The others rise linearly to lr during the warm-up, then
    inverse_sqrt: lr · √(warmup / step);  cosine and linear: down to lr · last at the last step;  constant: lr.
    """
    warmup = max(1, config.warmup)
    if config.schedule == "noam":
        return config.lr * width**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step < warmup:
        return config.lr * step / warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(warmup / step)
    progress = min(1.0, (step - warmup) / max(1, config.steps - warmup))
    if config.schedule == "cosine":
        return config.lr * (config.last + (1 - config.last) * 0.5 * (1 + math.cos(math.pi * progress)))
    return config.lr * (config.last + (1 - config.last) * (1 - progress)) if config.schedule == "linear" else config.lr
