"""Routing of experts over a text: one pass, in which each mixture is asked again what it chose for what it was given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.blocks.feed_forward import Experts
from regard.errors import Advice, Setting, UsageError
from regard.look.routing import LayerRouting, Routing
from regard.predictor import Predictor


def has_experts(predictor: Predictor) -> bool:
    """Whether a model of text has experts to choose from."""
    return predictor.config.pictures is None and any(isinstance(each, Experts) for each in predictor.model.modules())


@torch.inference_mode()
def routing_of(predictor: Predictor, text: str, second: str | None = None) -> Routing:
    """Which token of a text goes to which expert of each layer, with which weight."""
    if not has_experts(predictor):
        raise UsageError(
            f"this {predictor.config.model.kind} has no experts to choose from",
            Advice("train one with ", Setting("model.experts", "4")),
        )
    reading = predictor.read(text, second)
    given: dict[Experts, Tensor] = {}

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(module, Experts)
        given[module] = inputs[0]

    hooks = [each.register_forward_pre_hook(keep) for each in predictor.model.modules() if isinstance(each, Experts)]
    try:
        reading.run()
    finally:
        for hook in hooks:
            hook.remove()
    layers = tuple(_layer(module, x, number) for number, (module, x) in enumerate(given.items()))
    used = next(iter(given)).used
    labels = reading.labels.get("text", reading.labels.get("prefix", ()))
    notes = (*reading.notes, f"{used} of {layers[0].weights.shape[1]} experts see each token")
    return Routing(f"routing: {text}", notes, labels, layers, used)


def _layer(module: Experts, x: Tensor, number: int) -> LayerRouting:
    every, chosen, shares = module.route(x[0])  # of x (1, T, D)
    weights = torch.zeros_like(every).scatter(1, chosen, shares.to(every.dtype))  # (T, experts)
    return LayerRouting(f"layer {number}", *(each.double().cpu().numpy() for each in (weights, every)))
