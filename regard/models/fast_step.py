"""One token at a time, fast: what `Block.step` computes for each block of a language model, without its modules.

At a batch of a few, a step is hundreds of small operations, and calling modules takes longer than computing. Here the
weights are gathered once for a whole text, laid out as a product with so few rows reads them best (transposed, or as
oneDNN packs them; queries, keys and values side by side), and a step is plain functions over them. `Block.step` is the
reference, and is what runs when a recorder looks on. A test holds them equal. `fast_decoder.py` has the same for the
decoder of a Transformer, which also looks at a memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, rms_norm, scaled_dot_product_attention, silu

from regard.attention import MultiHead, StepCache
from regard.blocks import Block, FeedForward, GatedFeedForward

Function = Callable[[Tensor], Tensor]


class Product(Protocol):
    """x Wᵀ + b of rows x (N, I), into `out` (N, O) where one is given."""

    def __call__(self, x: Tensor, out: Tensor | None = None, /) -> Tensor: ...


MakeProduct = Callable[[Tensor, Tensor | None], Product]  # of a weight and a bias

PACKED_FROM = 4  # rows from which on oneDNN's own layout is faster (16 x 384 by 384 x 1,536: 0.58 to 0.32 ms)
MANY, SOME = 16, 8  # queries and keys from which on attention by products of all heads is faster
LARGE = 2**17  # elements of a weight below which its overhead is not worth it


@dataclass(frozen=True)
class BlockWeights:
    """One block as functions of (N, D) and of its cache."""

    order: str  # where norms stand: pre, post, none
    norms: tuple[Function, Function]
    attend: Callable[[Tensor, StepCache], Tensor]
    feed_forward: Function

    def step(self, x: Tensor, cache: StepCache) -> Tensor:
        first, second = self.norms
        if self.order == "pre":
            x = x + self.attend(first(x), cache)
            return x + self.feed_forward(second(x))
        x = first(x + self.attend(x, cache))  # without norms, these are the identity
        return second(x + self.feed_forward(x))


@dataclass(frozen=True)
class StepWeights:
    """A whole model as functions of one token of each hypothesis."""

    blocks: tuple[BlockWeights, ...]
    norm: Function
    output: Function

    def step(self, x: Tensor, caches: Sequence[StepCache]) -> Tensor:
        """Embeddings (N, D) -> logits (N, V); keys and values join the caches."""
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block.step(x, cache)
        return self.output(self.norm(x))


def step_weights(blocks: Sequence[Block], norm: nn.Module, output: nn.Linear, rows: int) -> StepWeights | None:
    """The weights of a model, laid out for steps of so many rows; None where a block has parts that only modules know."""
    if not all(_is_plain(block) for block in blocks):
        return None
    product = partial(product_for, rows=rows)
    steps = tuple(_block(block, product) for block in blocks)
    return StepWeights(steps, norm_function(norm), product(output.weight, None))


def _is_plain(block: Block) -> bool:
    known = isinstance(block.feed_forward, FeedForward | GatedFeedForward)
    heads = block.attention
    exact = isinstance(heads, MultiHead) and heads.kernel is None and heads.relative is None
    return known and exact and block.cross is None and block.around_attention.residual


def _block(block: Block, product: MakeProduct) -> BlockWeights:
    around = block.around_attention
    norms = (norm_function(around.norm), norm_function(block.around_feed_forward.norm))
    assert isinstance(block.attention, MultiHead)
    attend, feed_forward = _attention(block.attention, product), feed_forward_function(block.feed_forward, product)
    return BlockWeights(around.order, norms, attend, feed_forward)


def norm_function(module: nn.Module) -> Function:
    if isinstance(module, nn.LayerNorm):
        shape, weight, bias, epsilon = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    if isinstance(module, nn.RMSNorm):
        rms_shape, rms_weight, rms_epsilon = list(module.normalized_shape), module.weight, module.eps
        return lambda x: rms_norm(x, rms_shape, rms_weight, rms_epsilon)
    return lambda x: x


def product_for(weight: Tensor, bias: Tensor | None, rows: int) -> Product:
    """x Wᵀ + b for so many rows x (N, I) or more, with the weight (O, I) laid out beforehand."""
    if rows >= PACKED_FROM and weight.numel() >= LARGE and (packed := _packed(weight, rows)) is not None:
        linear_of = torch.ops.mkldnn._linear_pointwise

        def product(x: Tensor, out: Tensor | None = None) -> Tensor:
            found: Tensor = linear_of(x, packed, bias, "none", [], "")
            return found if out is None else out.copy_(found)

        return product
    turned = weight.T if weight.size(0) < weight.size(1) else weight.T.contiguous()  # pays where it makes rows longer
    if bias is None:
        return lambda x, out=None: torch.mm(x, turned, out=out)
    return lambda x, out=None: torch.addmm(bias, x, turned, out=out)


def product_of_any(weight: Tensor, bias: Tensor | None) -> Product:
    """x Wᵀ + b for any number of rows. A large weight is kept in two layouts, for one row and for several."""
    alone = product_for(weight, bias, 1)
    if weight.numel() < LARGE:
        return alone
    several = product_for(weight, bias, PACKED_FROM)
    return lambda x, out=None: alone(x, out) if len(x) == 1 else several(x, out)


def _packed(weight: Tensor, rows: int) -> Tensor | None:
    """The weight as oneDNN reads it best; None where torch has no oneDNN or it does not know such numbers."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return None
    try:
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
    except (AttributeError, RuntimeError):  # torch's own tools use it, but it is not promised to users
        return None


def feed_forward_function(module: nn.Module, product: MakeProduct) -> Function:
    assert isinstance(module, FeedForward | GatedFeedForward)
    down = product(module.down.weight, module.down.bias)
    if isinstance(module, GatedFeedForward):
        both = product(module.gate_up.weight, module.gate_up.bias)

        def gated(x: Tensor) -> Tensor:
            gate, up = both(x).chunk(2, dim=-1)  # each (N, F)
            return down(silu(gate).mul_(up))

        return gated
    up = product(module.up.weight, module.up.bias)
    activation = torch.relu_ if module.activation is relu else module.activation  # its argument is fresh
    return lambda x: down(activation(up(x)))


def _attention(module: MultiHead, product: MakeProduct) -> Callable[[Tensor, StepCache], Tensor]:
    heads, groups, width, rotary = module.heads, module.groups, module.head_width, module.rotary
    bias = None if module.query.bias is None else torch.cat([module.query.bias, module.key_value.bias])
    project = product(torch.cat([module.query.weight, module.key_value.weight]), bias)
    out, scale, band = product(module.out.weight, module.out.bias), module.scale, module.band

    def attend(x: Tensor, cache: StepCache) -> Tensor:
        parts = project(x).view(len(x), heads + 2 * groups, 1, width)  # (N, H + 2 G, 1, E)
        if rotary is None:
            q, k = parts[:, :heads], parts[:, heads : heads + groups]
        else:
            q, k = rotary(parts[:, : heads + groups], cache.filled).split([heads, groups], dim=1)
        cache.append(k, parts[:, heads + groups :])
        # Heads that share keys and values are queries side by side of one head.
        seen = scaled_dot_product_attention(q.reshape(len(x), groups, -1, width), *cache.seen(band), scale=scale)
        return out(seen.reshape(len(x), -1))

    return attend


# --- Parts of the Transformer's encoder and decoder


def is_exact(heads: nn.Module | None) -> bool:
    """Whether heads attend to all pairs, each with its own keys and values, and know no relative positions."""
    if not isinstance(heads, MultiHead) or heads.kernel is not None or heads.relative is not None:
        return False
    return not heads.band and heads.groups == heads.heads


def scale_of(heads: MultiHead) -> float:
    """The factor of products of queries and keys."""
    return heads.head_width**-0.5 if heads.scale is None else heads.scale


def joined(linears: list[nn.Linear]) -> Product:
    """Several products of the same vectors as one."""
    weight = torch.cat([each.weight for each in linears])
    bias = None if linears[0].bias is None else torch.cat([each.bias for each in linears])
    return product_of_any(weight, bias)


def added_to_scores(allowed: Tensor, like: Tensor) -> Tensor:
    """A mask as what is added to scores: 0 where a query may look, else -inf."""
    return torch.zeros_like(allowed, dtype=like.dtype).masked_fill_(~allowed, -math.inf)


def attend_heads(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Attend from (B, H, W, E) to (B, H, S, E), with what is added to scores (B, H, W or 1, S): (B * W, H * E).

    Torch's own attention costs least for few queries or keys; two products of all heads do for more (64 sources, one
    query each, 13 keys: 118 to 67 microseconds; with five queries 345 to 236).
    """
    rows, heads, width, _ = queries.shape
    if rows * width < MANY or keys.size(2) < SOME:
        seen = scaled_dot_product_attention(queries, keys, values, bias, scale=scale)
    else:
        flat = queries.reshape(rows * heads, width, -1)
        turned_keys = keys.flatten(0, 1).transpose(1, 2)  # (B * H, E, S)
        if bias is None:
            scores = torch.bmm(flat, turned_keys).mul_(scale)
        else:
            scores = torch.baddbmm(bias.flatten(0, 1), flat, turned_keys, alpha=scale)  # (B * H, W, S)
        seen = torch.bmm(scores.softmax(dim=-1), values.flatten(0, 1)).view(queries.shape)
    return seen.transpose(1, 2).reshape(rows * width, -1)
