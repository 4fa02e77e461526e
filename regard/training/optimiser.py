"""Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019), and its state as named tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.training.config import TrainConfig

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Matrices decay, vectors (biases, norms) do not."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=config.betas, eps=config.epsilon, fused=True)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's memory, named after the parameters: `encoder.0...weight.exp_avg`."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for moment, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{name}.{moment}"] = value
    return tensors


def load_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimiser_tensors` gave; nothing at all means an optimiser that has not stepped yet."""
    optimiser.state.clear()
    for name, parameter in model.named_parameters():
        values = {moment: tensors[f"{name}.{moment}"] for moment in MOMENTS if f"{name}.{moment}" in tensors}
        if values:
            optimiser.state[parameter] = {
                moment: value.clone() if moment == "step" else value.to(parameter.device, copy=True)
                for moment, value in values.items()
            }
