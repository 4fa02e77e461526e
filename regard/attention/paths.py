"""Where attentions stand in a model: module paths, and their number among those of one role."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn


def names_of(model: nn.Module) -> dict[int, str]:
    """The path of each module, by its identity."""
    return {id(module): name for name, module in model.named_modules()}


def holds(names: dict[int, str], model: nn.Module) -> bool:
    """Whether the model, or a part of it, is among those named."""
    return id(model) in names or any(id(module) in names for module in model.modules())


@dataclass
class Numbers:
    """Layers by number: of each role, its attentions in the order of their first call."""

    paths: dict[str, list[str]] = field(default_factory=dict)

    def of(self, path: str, role: str) -> int:
        known = self.paths.setdefault(role, [])
        if path not in known:
            known.append(path)
        return known.index(path)

    def sentence(self) -> str:
        """What there was, in words."""
        if not any(self.paths.values()):
            return "no attention ran inside the block"
        each = (
            f"{role} layer{'s 0 to ' + str(len(paths) - 1) if len(paths) > 1 else ' 0'}"
            for role, paths in self.paths.items()
        )
        return f"there are {', '.join(each)}"
