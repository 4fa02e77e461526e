"""The stepper of a search over a model: a laid-out one where there is one, the model's modules where someone looks on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.attention import is_changed, is_recorded, is_softened
from regard.models.fast_stepper import FastStepper


class LaidOut:
    """Choose the stepper of a search over a model.

    Weights are laid out when they are first needed, and again when they have changed: each tensor counts its changes.
    """

    def __init__(self, model: nn.Module, lay_out: Callable[[nn.Module], FastStepper | None]) -> None:
        """`lay_out` gives the laid-out stepper of a model, or None where the model has parts that only modules know."""
        self.model, self.lay_out, self.weights = model, lay_out, list(model.parameters())
        self._laid_out: tuple[FastStepper, list[tuple[Tensor, int]]] | None = None  # with the weights as they stood

    def stepper(self) -> nn.Module | FastStepper:
        """The stepper for a search that begins now, in this thread."""
        model = self.model
        if model.training or is_recorded(model) or is_changed(model) or is_softened():
            return model
        known = self._laid_out  # one assignment: several threads may ask at once
        if known is not None and all(map(_is_as_it_stood, self.weights, known[1])):
            return known[0]
        with torch.inference_mode():
            found = self.lay_out(model)
            if found is None:
                return model
            self._laid_out = (found, [(each.detach(), _changes(each)) for each in self.weights])
        return found


def _is_as_it_stood(weight: Tensor, stood: tuple[Tensor, int]) -> bool:
    before, changes = stood
    same = weight.data_ptr() == before.data_ptr() and weight.dtype == before.dtype
    return same and _changes(weight) == changes


def _changes(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
