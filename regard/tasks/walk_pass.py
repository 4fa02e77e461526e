"""One forward pass of a model in which what goes into some modules and what comes out of them is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.tasks.reading import Reading


@dataclass(eq=False)
class Passed:
    """What was kept, by module; of one that ran several times, the first."""

    result: Tensor | None = None  # of the whole pass
    _given: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    _out: dict[nn.Module, Tensor] = field(default_factory=dict)

    def given(self, module: nn.Module, place: int, name: str) -> Any:
        """What a module was called with, by its place or by its name; None where it was left out."""
        placed, named = self._given[module]
        return placed[place] if place < len(placed) else named.get(name)

    def out(self, module: nn.Module) -> Tensor:
        return self._out[module]

    def ran(self, module: nn.Module) -> bool:
        return module in self._out

    def keep(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Tensor) -> None:
        if not self.ran(module):
            self._given[module], self._out[module] = (given, named), out


def one_pass(reading: Reading, modules: Sequence[nn.Module]) -> Passed:
    """Run the model over the text once more, watching these modules."""
    passed = Passed()
    hooks = [each.register_forward_hook(passed.keep, with_kwargs=True) for each in modules]
    try:
        with torch.inference_mode():
            passed.result = reading.run()
    finally:
        for hook in hooks:
            hook.remove()
    return passed
