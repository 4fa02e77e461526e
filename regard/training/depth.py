"""Fine-tuning by depth: lower layers learn more slowly, or not at all.

The first layers of a trained model know what most tasks share, so they should change least: the rate of a parameter at
depth d is lr · layer_decay^(deepest - d) (Howard & Ruder 2018, section 3.2; Clark et al. 2020, appendix B).
"""

from __future__ import annotations

from torch import nn

from regard.errors import UsageError
from regard.training.config import TrainConfig


def depths_of(model: nn.Module, config: TrainConfig) -> dict[str, int]:
    """The depth of each parameter by its name; all alike where the configuration does not tell them apart.

    A model tells them in `depths()`: 0 for embeddings, 1 for the first block, the most for what is above the last one.
    """
    names = [name for name, _ in model.named_parameters()]
    if config.layer_decay == 1.0 and config.freeze == 0:
        return dict.fromkeys(names, 0)
    if not hasattr(model, "depths"):
        raise UsageError(
            f"train.layer_decay and train.freeze need a model that tells how deep its layers are, and "
            f"{type(model).__name__} does not; leave them at 1.0 and 0"
        )
    depths: dict[str, int] = model.depths()  # type: ignore[operator]
    return {name: depths[name] for name in names}


def freeze(model: nn.Module, depths: dict[str, int], below: int) -> None:
    """Parameters whose depth is less than `below` stay as they are, and cost neither gradients nor memory for them."""
    deepest = max(depths.values(), default=0)
    if below > deepest:
        raise UsageError(
            f"train.freeze = {below} leaves nothing to train: the deepest parameters have depth {deepest}; "
            f"set train.freeze to {deepest} or less"
        )
    for name, parameter in model.named_parameters():
        if depths[name] < below:
            parameter.requires_grad_(False)


def rate_scales(depths: dict[str, int], decay: float) -> dict[str, float]:
    """By what each parameter's learning rate is multiplied."""
    deepest = max(depths.values(), default=0)
    return {name: decay ** (deepest - depth) for name, depth in depths.items()}
