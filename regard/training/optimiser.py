"""Optimiser, learning rate and gradient clipping of a run, as its configuration asks for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.models.operations import layer_of
from regard.models.protocols import HasDepths
from regard.training.config import TrainConfig
from regard.training.cut import like, whole
from regard.training.muon import Muon, hidden_matrices, parts_of
from regard.training.precision import half_of
from regard.training.sharded import Pieces


def learning_rate(step: int, config: TrainConfig, width: int) -> float:
    """The rate of update `step`.

    noam: lr · D^-0.5 · min(step^-0.5, step · warmup^-1.5) (Vaswani et al. 2017, eq. 3), where lr is a factor.
    The others rise linearly to lr during the warm-up, then
    inverse_sqrt: lr · √(warmup / step);  cosine and linear: down to lr · last at the last step;  constant: lr;
    wsd: lr, and in the last share `fall` of the steps linearly down to lr · last.
    """
    warmup = max(1, config.warmup)
    if config.schedule == "noam":
        return config.lr * width**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step < warmup:
        return config.lr * step / warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(warmup / step)
    progress = min(1.0, (step - warmup) / max(1, config.steps - warmup))
    if config.schedule == "wsd":
        falling = (step - (1 - config.fall) * config.steps) / (config.fall * config.steps)
        return config.lr * (1 - (1 - config.last) * min(1.0, max(0.0, falling)))
    if config.schedule == "cosine":
        return config.lr * (config.last + (1 - config.last) * 0.5 * (1 + math.cos(math.pi * progress)))
    return config.lr * (config.last + (1 - config.last) * (1 - progress)) if config.schedule == "linear" else config.lr


def depths_of(model: nn.Module, config: TrainConfig) -> dict[str, int]:
    """The depth of each parameter by its name; all alike where the configuration does not tell them apart.

    A model tells them in `depths()`: 0 for embeddings, 1 for the first block, the most for what is above the last one.
    """
    names = [name for name, _ in model.named_parameters()]
    if config.layer_decay == 1.0 and (config.freeze == 0 or not isinstance(config.freeze, int)):
        return dict.fromkeys(names, 0)
    if not isinstance(model, HasDepths):
        raise UsageError(
            f"train.layer_decay and train.freeze need a model that tells how deep its layers are, and "
            f"{type(model).__name__} does not",
            "leave them at 1.0 and 0",
        )
    depths = model.depths()
    return {name: depths[name] for name in names}


def freeze(model: nn.Module, depths: dict[str, int], below: int) -> None:
    """Parameters whose depth is less than `below` stay as they are, and cost neither gradients nor memory for them."""
    deepest = max(depths.values(), default=0)
    if below > deepest:
        raise UsageError(
            f"train.freeze = {below} leaves nothing to train: the deepest parameters have depth {deepest}",
            f"set train.freeze to {deepest} or less",
        )
    for name, parameter in model.named_parameters():
        if depths[name] < below:
            parameter.requires_grad_(False)


def freeze_parts(model: nn.Module, parts: Sequence[str]) -> None:
    """Parameters of the named parts stay as they are: `encoder` also means `encoder_norm`, `encoder.0` its first block.

    `embeddings` are all tables of tokens and positions, also where the output shares them.
    """
    tables = {id(table.weight) for table in model.modules() if isinstance(table, nn.Embedding)}
    parameters = dict(model.named_parameters())
    for part in parts:
        inside = [
            name
            for name, parameter in parameters.items()
            if (part == "embeddings" and id(parameter) in tables) or f"{name}.".startswith((f"{part}.", f"{part}_"))
        ]
        if not inside:
            known = [*sorted({name.split(".")[0] for name in parameters}), "embeddings"]
            raise UsageError(f"train.freeze: the model has no part {part}", f"there is {', '.join(known)}")
        for name in inside:
            parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise UsageError(f"train.freeze = {list(parts)} leaves nothing to train", "name fewer parts")
    for module in model.modules():
        is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if is_norm and not any(parameter.requires_grad for parameter in module.parameters()):
            _keep_statistics(module)


def _keep_statistics(module: nn.Module) -> None:
    """Let a frozen batch norm use the statistics that it has, and leave them, also while the rest of the model learns."""
    module.eval()
    module.train = lambda mode=True: module  # type: ignore[method-assign]


def rate_scales(depths: dict[str, int], decay: float) -> dict[str, float]:
    """By what each parameter's learning rate is multiplied."""
    deepest = max(depths.values(), default=0)
    return {name: decay ** (deepest - depth) for name, depth in depths.items()}


def embedding_names(model: nn.Module) -> set[str]:
    """Names of the tables of tokens and of the output layers: a row of these learns only where its token is met."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return {
        name for name, weight in model.named_parameters() if id(weight) in tables or name.endswith(OUTPUTS)
    }  # shared ones have one name


OUTPUTS = ("output.weight", "head.weight")
MOMENTS = ("exp_avg", "exp_avg_sq", "step", "momentum")


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Matrices decay, vectors (biases, norms) do not. Below `train.freeze` nothing learns."""
    depths = depths_of(model, config)
    if isinstance(config.freeze, int):
        freeze(model, depths, config.freeze)
    else:
        freeze_parts(model, config.freeze)
    scales = rate_scales(depths, config.layer_decay)
    for name in embedding_names(model):
        scales[name] *= config.embedding_rate
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    if config.optimiser == "sgd":
        return torch.optim.SGD(_groups(model, names, scales, config), lr=0.0)
    hidden = set(hidden_matrices(model)) if config.optimiser == "muon" else set()
    others = [name for name in names if name not in hidden]
    groups, how = _groups(model, others, scales, config), {"betas": config.betas, "eps": config.epsilon, "fused": True}
    if config.decay == "l2" and config.optimiser == "adam":
        return torch.optim.Adam(groups, lr=0.0, **how)  # type: ignore[arg-type]
    adam = torch.optim.AdamW(groups, lr=0.0, **how)  # type: ignore[arg-type]
    if config.optimiser == "adam":
        return adam
    groups = _muon_groups(model, [name for name in names if name in hidden], scales, config)
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    return Muon(groups, adam, half=half_of(config.precision, device) is torch.bfloat16)


def _groups(model: nn.Module, names: list[str], scales: dict[str, float], config: TrainConfig) -> list[dict[str, Any]]:
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
    length = float(norm := whole(norm))
    if limit and not length < 0.99 * limit:  # below, a factor of 1 would cost another pass over the gradient
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return length


def layer_norms(model: nn.Module, limit: float, norm: float) -> dict[str, float]:
    """The norm of each layer's gradient as it was before it was clipped from `norm` to `limit`; to six digits."""
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    squares: dict[str, float] = {}
    for name, each in zip(found, torch._foreach_norm(list(found.values())), strict=True):
        layer = layer_of(name)
        squares[layer] = squares.get(layer, 0.0) + float(whole(each)) ** 2
    clipped = limit and not norm < 0.99 * limit
    factor = min(1.0, limit / (norm + 1e-6)) if clipped else 1.0  # as torch clips
    return {layer: float(f"{math.sqrt(square) / factor:.6g}") for layer, square in squares.items()}


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's memory, named after the parameters: `encoder.0...weight.exp_avg`."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for moment, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{name}.{moment}"] = value
    return tensors


def load_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: Pieces | Mapping[str, Tensor]) -> None:
    """Put back what `optimiser_tensors` gave; nothing at all means an optimiser that has not stepped yet."""
    optimiser.state.clear()
    for name, parameter in model.named_parameters():
        found = {moment: f"{name}.{moment}" for moment in MOMENTS if f"{name}.{moment}" in tensors}
        state = {}
        for moment, key in found.items():  # the step too: a fused kernel reads it where the parameter is
            target = None if moment == "step" else parameter
            part = tensors.for_(key, target) if isinstance(tensors, Pieces) else tensors[key]
            part = part.to(parameter.device, copy=True)
            state[moment] = part if target is None else like(target, part)
        if state:
            optimiser.state[parameter] = state
