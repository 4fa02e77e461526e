"""Attention of a block as a configuration names it: heads with a kernel and positions, or a state space."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.attention import MultiHead, Role, Rotary
from regard.attention.kernels import KERNELS, Kernel, Placement
from regard.attention.relative import Relative, make_relative
from regard.blocks.selective import Selective
from regard.blocks.state_space import StateSpace
from regard.config import StrictConfig
from regard.embed import positions
from regard.errors import UsageError, nearest
from regard.models.configs.attention import (
    ADDED_KERNELS,
    AttentionConfig,
    ExactConfig,
    SelectiveConfig,
    StateSpaceConfig,
    kernel_kinds,
)
from regard.plugins import adding

if TYPE_CHECKING:
    from regard.models.configs.language import BertConfig, GPTConfig

RELATIVE = ("shaw", "t5", "alibi", "tree")  # positions that scores know of


def make_attention(
    config: AttentionConfig,
    width: int,
    heads: int,
    *,
    role: Role,
    number: int = 0,
    longest: int = 1024,
    relative: Relative | None = None,
    **parts: Any,
) -> MultiHead | StateSpace | Selective:
    """Build the attention of block `number`. `parts` are further arguments of `MultiHead`."""
    if isinstance(config, StateSpaceConfig | SelectiveConfig):
        return _state_space(config, width, role, relative, parts)
    kernel = None if isinstance(config, ExactConfig) else make_kernel(config, width, heads, role, number, longest)
    return MultiHead(width, heads, role=role, kernel=kernel, relative=relative, **parts)


def make_cross_attention(
    config: AttentionConfig, width: int, heads: int, *, number: int = 0, longest: int = 1024, **parts: Any
) -> MultiHead:
    """Build the attention from the decoder's block `number` to the encoder's memory."""
    found = make_attention(config, width, heads, role="cross", number=number, longest=longest, **parts)
    assert isinstance(found, MultiHead)
    return found


@contextmanager
def called(name: str) -> Iterator[None]:
    """Refusals inside this block name the setting by this name, where a model has several attentions."""
    try:
        yield
    except UsageError as error:
        raise UsageError(str(error).replace("model.attention.", f"model.{name}.")) from error


def add_kernel(name: str, config: type[StrictConfig], kernel: type[Kernel]) -> None:
    """Put a kernel of one's own beside ours; it is made of where it stands and of the fields of its configuration."""
    adding("kernel", name, kernel_kinds())
    ADDED_KERNELS[name], KERNELS[name] = config, kernel


def make_kernel(
    config: AttentionConfig, width: int, heads: int, role: Role, number: int = 0, longest: int = 1024
) -> Kernel:
    """Build the kernel that a configuration names; it refuses what it cannot do."""
    placement = Placement(heads, width // heads, role == "causal", role == "cross", longest, number)
    if config.kind not in KERNELS:
        raise UsageError(f"no kernel {config.kind}", nearest(config.kind, KERNELS))
    return KERNELS[config.kind](placement, **config.model_dump(exclude={"kind"}))


def _state_space(
    config: StateSpaceConfig | SelectiveConfig, width: int, role: Role, relative: Relative | None, parts: dict[str, Any]
) -> StateSpace | Selective:
    kind = config.kind
    if role == "cross":
        raise UsageError(f"{kind} cannot look from one sequence at another; choose model.cross_attention.kind = exact")
    if relative is not None or parts.get("rotary") is not None:
        raise UsageError(
            f"{kind} knows its place by itself and takes no relative positions; choose model.positions = none"
        )
    if parts.get("dropout"):
        raise UsageError(f"{kind} has no weights of attention to drop; set model.attention_dropout = 0")
    if parts.get("band"):
        raise UsageError(f"{kind} cannot be banded besides; set model.band = 0")
    if parts.get("groups") is not None:
        raise UsageError(f"{kind} has no key-value heads; set model.groups = 0")
    layer = StateSpace if isinstance(config, StateSpaceConfig) else Selective
    return layer(width, causal=role == "causal", **config.model_dump(exclude={"kind"}))


def places_of(config: GPTConfig | BertConfig, *, causal: bool) -> dict[str, Any]:
    """Build the positions that blocks need, for `make_attention`: one table for all of them, or none."""
    sizes, reach = (config.width, config.heads), config.reach
    return {
        "rotary": rotary_positions(
            config.positions, *sizes, config.rotary_base, config.max_length, config.rotary_scale
        ),
        "relative": relative_positions(config.positions, *sizes, causal=causal, reach=reach),
    }


def block_positions(kind: str, where: str, width: int, size: int) -> nn.Module | None:
    """Positions that join queries, keys and values in every block, one table for all; None where they go elsewhere."""
    return positions(kind, width, size) if where == "qkv" else None


def relative_positions(kind: str, width: int, heads: int, *, causal: bool, reach: int) -> Relative | None:
    """Positions that scores know of; None for kinds that are told otherwise."""
    if kind not in RELATIVE:
        return None
    return make_relative(kind, heads, width // heads, causal=causal, reach=reach)


def rotary_positions(kind: str, width: int, heads: int, base: float, size: int, scale: float = 1.0) -> Rotary | None:
    """Positions that turn queries and keys, one table for all blocks; None for kinds that are told otherwise."""
    return Rotary(width // heads, base, size, scale) if kind == "rotary" else None
