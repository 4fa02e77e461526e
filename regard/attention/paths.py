"""Where attentions stand in a model: module paths, and their number among those of one role."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.errors import UsageError


def module_of(model: Any, use: str) -> nn.Module:
    """The module that a person means, who gives one or what `regard.load` gives. `use` is the function that is asked."""
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise UsageError(f"regard.{use} takes a module or what regard.load gives, and this is a {type(model).__name__}")
    return module


def names_of(model: nn.Module) -> dict[int, str]:
    """The path of each module, by its identity."""
    return {id(module): name for name, module in model.named_modules()}


def holds(names: dict[int, str], model: nn.Module) -> bool:
    """Whether the model, or a part of it, is among those named."""
    return id(model) in names or any(id(module) in names for module in model.modules())


@dataclass
class Numbers:
    """Layers by number: of each role, its attentions in the order of their first call.

    A module that a forward pass calls several times, as where layers share their weights, is as many layers.
    """

    known: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # by role: path, and which call in a pass

    def of(self, path: str, role: str, time: int = 0) -> int:
        known = self.known.setdefault(role, [])
        if (path, time) not in known:
            known.append((path, time))
        return known.index((path, time))

    def paths(self, role: str) -> list[str]:
        """The path of each layer of a role, in the order of their numbers."""
        return [path for path, _ in self.known.get(role, ())]

    def sentence(self) -> str:
        """What there was, in words."""
        if not self.known:
            return "no attention ran inside the block"
        each = (
            f"{role} layer{'s 0 to ' + str(len(known) - 1) if len(known) > 1 else ' 0'}"
            for role, known in self.known.items()
        )
        return f"there are {', '.join(each)}"
