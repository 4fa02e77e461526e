"""What `regard bench attention` measures: an attention alone on given queries, keys and values, there and back.

Vectors lie as `MultiHead`'s projections leave them, (B, T, D) seen as (B, H, T, E); gradients go to queries, keys, values
and whatever the kernel learns. A state-space layer has no queries: its own forward is measured, projections and all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor, nn

from regard.attention import Causal, Role, attend, attend_reference
from regard.blocks.state_space import StateSpace
from regard.config import check
from regard.errors import UsageError, nearest
from regard.models.attention import make_attention, make_kernel
from regard.models.configs.attention import KERNEL_KINDS, AttentionConfig, KernelConfig, StateSpaceConfig

SUBJECTS = (*KERNEL_KINDS, "naive")  # naive: exact, with all scores in memory
CONFIGS: dict[str, Any] = {
    each.model_fields["kind"].default: each for each in (*get_args(KernelConfig), StateSpaceConfig)
}


@dataclass(frozen=True)
class Sizes:
    """What is equal for everything that is measured."""

    width: int = 256
    heads: int = 4
    batch: int = 1
    causal: bool = False
    backward: bool = True
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of kernels, by their names


@dataclass(frozen=True, eq=False)
class Inputs:
    """Random vectors of one length, the same for all."""

    vectors: tuple[Tensor, ...]  # three leaves (B, T, D)
    gradient: Tensor  # of the output, (B, T, D)
    heads: int

    @classmethod
    def of(cls, sizes: Sizes, length: int) -> Inputs:
        draw = torch.Generator().manual_seed(length)
        shape = (sizes.batch, length, sizes.width)
        *vectors, gradient = (torch.randn(shape, generator=draw) for _ in range(4))
        return cls(tuple(each.requires_grad_(sizes.backward) for each in vectors), gradient, sizes.heads)

    def in_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, T, D) -> (B, H, T, E)

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in (*self.vectors, self.gradient))


@dataclass(frozen=True, eq=False)
class Subject:
    """An attention of one length, ready to run."""

    name: str
    run: Callable[[Inputs], Tensor]  # (B, T, D), or seen as (B, H, T, E)
    module: nn.Module | None = None  # what learns

    @torch.no_grad()
    def forward(self, inputs: Inputs) -> None:
        """As in use: nothing is kept for a way back."""
        self._train(False)
        self.run(inputs)

    def there_and_back(self, inputs: Inputs) -> None:
        self._train(True)
        out = self.run(inputs)
        out.backward(inputs.gradient if out.dim() == 3 else inputs.in_heads(inputs.gradient))
        for leaf in (*inputs.vectors, *(() if self.module is None else self.module.parameters())):
            leaf.grad = None

    def _train(self, on: bool) -> None:
        if self.module is not None:
            self.module.train(on)


def make_subject(name: str, sizes: Sizes, length: int) -> Subject:
    """The attention of that name; a kernel refuses what it cannot do."""
    if name in ("exact", "naive"):
        whole, mask = attend if name == "exact" else attend_reference, Causal() if sizes.causal else None
        return Subject(name, lambda given: whole(*map(given.in_heads, given.vectors), mask=mask))
    config = config_of(name, sizes, length)
    role: Role = "causal" if sizes.causal else "self"
    if name == "s4d":
        layer = make_attention(config, sizes.width, sizes.heads, role=role)
        assert isinstance(layer, StateSpace)
        return Subject(name, lambda given: layer(given.vectors[0], given.vectors[0]), layer)
    kernel = make_kernel(config, sizes.width, sizes.heads, role, longest=length)

    def run(given: Inputs) -> Tensor:
        q, k, v = map(given.in_heads, given.vectors)
        return kernel(q, q if kernel.shares_keys else k, v)

    return Subject(name, run, kernel)


def config_of(name: str, sizes: Sizes, length: int) -> AttentionConfig:
    """A kernel as the person wants it, or as its paper has it; the stride of the Sparse Transformer grows as √T."""
    if name not in SUBJECTS:
        raise UsageError(f"no kernel {name}{nearest(name, SUBJECTS)}")
    over = dict(sizes.settings.get(name, {}))
    if name == "strided":
        over.setdefault("stride", max(2, round(math.sqrt(length))))
    return check(CONFIGS[name], over, f"--set {name}")
