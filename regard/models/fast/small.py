"""A step of one sentence in NumPy: a call of it costs a third of one of torch, and such a step is nothing but calls.

One source with a few hypotheses, in a small model: the blocks of a step, 4 of width 128, took 0.23 ms in a sketch of this
beside 0.57 ms in torch (`layer.py`). The state is the same, and its tensors are seen as arrays.

Norms that stand before a sub-layer nearly vanish. Layer normalisation is (x - mean) / deviation * γ + β, followed by a
product W: γ goes into W, and Wβ into its bias. Nothing but norms reads the residual stream, so its mean may be taken out
where it is written, once for all: from the rows of every product that adds to it (Jiang et al. 2023, Pre-RMSNorm
Transformers, section 3). What is left is x / √(mean square + ε).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import relu, silu

from regard.attention import MultiHead
from regard.blocks import Block, FeedForward, GatedFeedForward
from regard.models.fast.products import LARGE, scale_of

Array = NDArray[Any]
FEW = 8  # hypotheses up to which NumPy's products are as fast as torch's


@dataclass(frozen=True)
class Affine:
    """x W + b."""

    weight: Array  # (I, O)
    bias: Array | None  # (O,)

    def __call__(self, x: Array) -> Array:
        found = x.dot(self.weight)
        if self.bias is not None:
            found += self.bias
        return found


@dataclass(frozen=True)
class Heads:
    """One attention: products of queries (and keys and values, where it looks back), and of what its heads saw."""

    epsilon: float
    project: Affine
    join: Affine
    heads: int
    groups: int

    def at(self, queries: Array, keys: Array, values: Array, visible: Array | None) -> Array:
        """Attend from (W, H E), scaled, to keys and values (G, S, E); `visible` (W, S) is added to scores."""
        count, (groups, length, each) = len(queries), keys.shape
        by_head = queries.reshape(count, groups, -1, each).transpose(1, 2, 0, 3)  # (G, R, W, E)
        scores = np.matmul(by_head.reshape(groups, -1, each), keys.transpose(0, 2, 1))  # (G, R W, S)
        if visible is not None:
            by_row = scores.reshape(groups, -1, count, length)
            by_row += visible
        scores -= np.maximum.reduce(scores, axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= np.add.reduce(scores, axis=2, keepdims=True)
        seen = np.matmul(scores, values)  # (G, R W, E)
        if count > 1:
            seen = seen.reshape(groups, -1, count, each).transpose(2, 0, 1, 3)  # (W, G, R, E)
        return self.join(seen.reshape(count, -1))


@dataclass(frozen=True)
class SmallLayer:
    """One block of a decoder with norms before its sub-layers."""

    own: Heads
    cross: Heads | None
    epsilon: float
    up: Affine
    activation: Callable[[Array], Array]
    down: Affine

    def __call__(self, x: Array, look: Look, past: Array, memory: Array | None) -> None:
        """Vectors (W, D), in place; keys and values join the past (2, G, room, E); the memory's are (2, H, S, E)."""
        parts = self.own.project(unit(x, self.own.epsilon))  # (W, (H + 2 G) E)
        x += self.own.at(
            look.joined(parts, past, self.own), past[0][:, : look.end], past[1][:, : look.end], look.visible
        )
        if self.cross is not None and memory is not None:
            asked = self.cross.project(unit(x, self.cross.epsilon))  # (W, D)
            x += self.cross.at(asked, memory[0], memory[1], look.padding)
        x += self.down(self.activation(self.up(unit(x, self.epsilon))))


@dataclass(frozen=True)
class Look:
    """Where the newest tokens go, and what they see."""

    first: int  # slot
    end: int
    visible: Array  # (W, end) 0 where a hypothesis sees a slot, else -inf
    turn: tuple[Array, Array] | None  # cosines and sines of the newest position, (1, E / 2), where positions turn
    padding: Array | None  # (1, S) 0 where the memory has a token, else -inf

    def joined(self, parts: Array, past: Array, heads: Heads) -> Array:
        """The queries (W, H E), after keys and values have joined the past."""
        count, each = len(parts), past[0].shape[2]
        by_head = parts.reshape(count, -1, each)  # (W, H + 2 G, E)
        behind = heads.heads + heads.groups
        if self.turn is not None:
            _turn(by_head[:, :behind], *self.turn)
        past[0][:, self.first : self.end] = by_head[:, heads.heads : behind].transpose(1, 0, 2)
        past[1][:, self.first : self.end] = by_head[:, behind:].transpose(1, 0, 2)
        return by_head[:, : heads.heads]


def _turn(x: Array, cosine: Array, sine: Array) -> None:
    """As `regard.attention.relative.turned`, in place."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    turned = second * cosine + first * sine
    first *= cosine
    first -= second * sine
    second[...] = turned


def unit(x: Array, epsilon: float) -> Array:
    """x (W, D) divided by the root of its mean square."""
    if len(x) == 1:
        row = x[0]
        return x * (1 / math.sqrt(float(row.dot(row)) / len(row) + epsilon))
    squares = np.einsum("nd,nd->n", x, x)
    squares /= x.shape[1]
    squares += epsilon
    return x / np.sqrt(squares)[:, None]


class SmallSteps:
    """The blocks of a decoder, and its last norm."""

    def __init__(self, blocks: Sequence[Block], norm: nn.LayerNorm | nn.RMSNorm) -> None:
        self.centred, self.epsilon = isinstance(norm, nn.LayerNorm), _epsilon(norm)
        self.layers = [_layer(block, self.centred) for block in blocks]
        self.weight, self.bias = (
            None if each is None else _array(each) for each in (norm.weight, getattr(norm, "bias", None))
        )

    def __call__(self, x: Array, look: Look, past: Array, memory: Array | None) -> Tensor:
        """Vectors (W, D) of tokens with their positions -> what the output layer takes; x is written over.

        past (L, 2, G, room, E), memory (L, 2, H, S, E).
        """
        if self.centred:
            x -= np.add.reduce(x, axis=1, keepdims=True) / x.shape[1]
        for number, layer in enumerate(self.layers):
            layer(x, look, past[number], None if memory is None else memory[number])
        found = unit(x, self.epsilon)
        if self.weight is not None:
            found *= self.weight
        if self.bias is not None:
            found += self.bias
        return torch.from_numpy(found)


# --- Laying out


def small_steps(blocks: Sequence[Block], norm: nn.Module) -> SmallSteps | None:
    """The blocks in NumPy; None where norms stand elsewhere, where products are large, or for another device."""
    kinds = {type(each) for block in blocks for each in _norms(block)} | {type(norm)}
    weights = [weight for block in blocks for weight in block.parameters()]
    pre = all(block.around_attention.order == "pre" for block in blocks)
    known = all(each.device.type == "cpu" and each.dtype in (torch.float32, torch.float64) for each in weights)
    small = max(each.numel() for each in weights) < LARGE
    if not isinstance(norm, nn.LayerNorm | nn.RMSNorm) or len(kinds) > 1 or not (pre and known and small):
        return None
    return SmallSteps(blocks, norm)


def _norms(block: Block) -> list[nn.Module]:
    arounds = (block.around_attention, block.around_cross, block.around_feed_forward)
    return [around.norm for around in arounds if around is not None]


def _layer(block: Block, centred: bool) -> SmallLayer:
    own, cross, around, forward = block.attention, block.cross, block.around_cross, block.feed_forward
    assert isinstance(own, MultiHead) and isinstance(forward, FeedForward | GatedFeedForward)
    last = block.around_feed_forward.norm
    looks_at = None
    if cross is not None and around is not None:
        looks_at = _heads(cross, around.norm, [cross.query], centred)
    activation: Callable[[Array], Array] = _gate
    if isinstance(forward, FeedForward):
        activation = _activation(forward.activation)
    up = forward.up if isinstance(forward, FeedForward) else forward.gate_up
    return SmallLayer(
        own=_heads(own, block.around_attention.norm, [own.query, own.key_value], centred),
        cross=looks_at,
        epsilon=_epsilon(last),
        up=_reading(last, [up]),
        activation=activation,
        down=_writing(forward.down, centred),
    )


def _heads(heads: MultiHead, norm: nn.Module, linears: list[nn.Linear], centred: bool) -> Heads:
    project, scale = _reading(norm, linears), scale_of(heads)
    queries = heads.heads * heads.head_width
    project.weight[:, :queries] *= scale
    if project.bias is not None:
        project.bias[:queries] *= scale
    return Heads(_epsilon(norm), project, _writing(heads.out, centred), heads.heads, heads.groups)


def _reading(norm: nn.Module, linears: list[nn.Linear]) -> Affine:
    """Products of what a norm gives, as one product of what is left of the norm."""
    weight = torch.cat([each.weight.detach() for each in linears]).double()  # (O, I)
    bias = None if linears[0].bias is None else torch.cat([each.bias.detach() for each in linears]).double()
    scale, shift = (getattr(norm, name, None) for name in ("weight", "bias"))
    if shift is not None:
        bias = weight @ shift.detach().double() + (0.0 if bias is None else bias)
    if scale is not None:
        weight = weight * scale.detach().double()
    return _affine(weight, bias, linears[0].weight.dtype)


def _writing(linear: nn.Linear, centred: bool) -> Affine:
    """A product that is added to the residual stream; without its mean, where norms take that out."""
    weight = linear.weight.detach().double()  # (O, I)
    bias = None if linear.bias is None else linear.bias.detach().double()
    if centred:
        weight = weight - weight.mean(dim=0)
        bias = None if bias is None else bias - bias.mean()
    return _affine(weight, bias, linear.weight.dtype)


def _affine(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Affine:
    return Affine(_array(weight.T.contiguous().to(dtype)), None if bias is None else _array(bias.to(dtype)))


def _array(tensor: Tensor) -> Array:
    found: Array = tensor.detach().clone().numpy()
    return found


def _epsilon(norm: nn.Module) -> float:
    """The epsilon of a norm; root mean square norms have that of their numbers where none is given."""
    given: Any = norm.eps
    return float(torch.finfo(next(norm.parameters()).dtype).eps if given is None else given)


def _activation(function: Callable[[Tensor], Tensor]) -> Callable[[Array], Array]:
    if function is relu:
        return lambda x: np.maximum(x, 0, out=x)
    return lambda x: function(torch.from_numpy(x)).numpy()


def _gate(x: Array) -> Array:
    gate, up = np.split(x, 2, axis=1)  # each (W, F)
    found: Array = silu(torch.from_numpy(gate)).numpy()
    found *= up
    return found
