"""Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019) or Muon, and its state as named tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.config import TrainConfig
from regard.training.depth import depths_of, freeze, rate_scales
from regard.training.muon import Muon, hidden_matrices, parts_of

MOMENTS = ("exp_avg", "exp_avg_sq", "step", "momentum")


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Matrices decay, vectors (biases, norms) do not. Below `train.freeze` nothing learns."""
    depths = depths_of(model, config)
    freeze(model, depths, config.freeze)
    scales = rate_scales(depths, config.layer_decay)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    hidden = set(hidden_matrices(model)) if config.optimiser == "muon" else set()
    others = [name for name in names if name not in hidden]
    adam = torch.optim.AdamW(
        _adam_groups(model, others, scales, config), lr=0.0, betas=config.betas, eps=config.epsilon, fused=True
    )
    if config.optimiser == "adam":
        return adam
    return Muon(_muon_groups(model, [name for name in names if name in hidden], scales, config), adam)


def _adam_groups(
    model: nn.Module, names: list[str], scales: dict[str, float], config: TrainConfig
) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = []
    for scale in sorted(set(scales.values())):
        here = [model.get_parameter(name) for name in names if scales[name] == scale]
        matrices, vectors = [p for p in here if p.dim() > 1], [p for p in here if p.dim() <= 1]
        groups.append({"params": matrices, "weight_decay": config.weight_decay, "scale": scale})
        groups.append({"params": vectors, "weight_decay": 0.0, "scale": scale})
    return groups


def _muon_groups(
    model: nn.Module, names: list[str], scales: dict[str, float], config: TrainConfig
) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = []
    for scale in sorted({scales[name] for name in names}):
        here = [name for name in names if scales[name] == scale]
        group = {"params": [model.get_parameter(name) for name in here], "parts": [parts_of(name) for name in here]}
        groups.append({**group, "weight_decay": config.weight_decay, "scale": scale})
    return groups


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"]


def clip_gradient(parameters: Sequence[nn.Parameter], limit: float) -> float:
    """The norm of the gradient, which is shortened to `limit` where it is longer (0: never)."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    length = float(norm)
    if limit and not length < 0.99 * limit:  # below, a factor of 1 would cost another pass over the gradient
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return length


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
                moment: value.to(parameter.device, copy=True) for moment, value in values.items()
            }  # the step too: a fused kernel reads it where the parameter is
