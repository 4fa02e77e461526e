"""Parts of laid-out models: products with weights laid out as few rows read them best, norms, feed-forward, attention.

At a batch of a few, a step is hundreds of small operations, and calling modules takes longer than computing. Here weights are
laid out once (transposed, or as oneDNN packs them; queries, keys and values side by side), and what a module computes is a
plain function over them. Modules are the reference, and are what runs when a recorder looks on.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, scaled_dot_product_attention, silu

from regard.attention import MultiHead
from regard.blocks import FeedForward, GatedFeedForward
from regard.errors import UsageError

Function = Callable[[Tensor], Tensor]


class Product(Protocol):
    """x Wᵀ + b of rows x (N, I), into `out` (N, O) where one is given."""

    def __call__(self, x: Tensor, out: Tensor | None = None, /) -> Tensor: ...


MakeProduct = Callable[[Tensor, Tensor | None], Product]  # of a weight and a bias

NEVER = 2**62  # rows
PACKED_FROM = 4  # rows from which on oneDNN's own layout is faster (16 x 384 by 384 x 1,536: 0.58 to 0.32 ms)
SMALL_PACKED_FROM = (
    32  # rows from which on it is faster for small weights, too, with AVX-512 (64 x 128 by 128 x 384: 59 to 33 us)
)
IN_PLACE_FROM = (
    256  # rows from which on, without AVX-512, plain layout is as fast (480 x 128 by 128 x 10,000: 17.2 to 16.5 ms)
)
MANY, SOME = 16, 8  # queries and keys from which on attention by products of all heads is faster
LARGE = 2**17  # elements of a weight below which its overhead is not worth it


def norm_function(module: nn.Module) -> Function:
    if isinstance(module, nn.LayerNorm):
        shape, weight, bias, epsilon = list(module.normalized_shape), module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    if isinstance(module, nn.RMSNorm):
        return _rms_function(module)
    return (lambda x: x) if isinstance(module, nn.Identity) else module


def _rms_function(module: nn.RMSNorm) -> Function:
    """x / √(mean(x²) + ε) · g as x / √(‖x‖² + D ε) · √D g: four operations of torch's ten (16 x 128: 34 to 14 us)."""
    width = module.normalized_shape[0]
    epsilon = torch.finfo(module.weight.dtype).eps if module.eps is None else module.eps
    least, gain = module.weight.new_tensor(math.sqrt(width * epsilon)), module.weight * math.sqrt(width)
    return lambda x: (x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), least)).mul_(gain)


def product_for(weight: Tensor, bias: Tensor | None, rows: int) -> Product:
    """x Wᵀ + b for so many rows x (N, I) or more, with the weight (O, I) laid out beforehand."""
    if rows >= packed_from(weight) and (packed := _packed(weight, rows)) is not None:
        linear_of = torch.ops.mkldnn._linear_pointwise

        def product(x: Tensor, out: Tensor | None = None) -> Tensor:
            found: Tensor = linear_of(x, packed, bias, "none", [], "")
            return found if out is None else out.copy_(found)

        return product
    turned = weight.T if weight.size(0) < weight.size(1) else weight.T.contiguous()  # pays where it makes rows longer
    if bias is None:
        return lambda x, out=None: torch.mm(x, turned, out=out)
    return lambda x, out=None: torch.addmm(bias, x, turned, out=out)


def packed_from(weight: Tensor) -> int:
    """Rows from which on oneDNN's layout of a weight is the faster one.

    With AVX-512 also of a small weight: MKL leaves half of such vectors unused on processors that are not Intel's.
    """
    if weight.numel() >= LARGE:
        return PACKED_FROM
    return SMALL_PACKED_FROM if torch.backends.cpu.get_cpu_capability() == "AVX512" else NEVER


def product_of_any(weight: Tensor, bias: Tensor | None) -> Product:
    """x Wᵀ + b for any number of rows. A weight is kept in two layouts where that pays, for few rows and for many.

    Of very many rows both are as fast where `writes_in_place` says so, and only the first writes where it is told to.
    """
    alone = product_for(weight, bias, 1)
    least = packed_from(weight)
    if least == NEVER:
        return alone
    several, few = product_for(weight, bias, least), 1 if weight.numel() >= LARGE else least - 1

    def product(x: Tensor, out: Tensor | None = None) -> Tensor:
        first = len(x) <= few or (out is not None and writes_in_place(len(x)))
        return alone(x, out) if first else several(x, out)

    return product


def writes_in_place(rows: int) -> bool:
    """Whether a product of so many rows is best by the plain layout, into a place that is given.

    With AVX-512 oneDNN's is faster also of many rows (480 x 128 by 128 x 10,000, AMD: 15.2 to 13.3 ms).
    """
    return rows >= IN_PLACE_FROM and torch.backends.cpu.get_cpu_capability() != "AVX512"


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


def is_exact(heads: nn.Module | None) -> bool:
    """Whether heads attend to all pairs, each with its own keys and values, and know no relative positions."""
    if not isinstance(heads, MultiHead) or heads.kernel is not None or heads.relative is not None:
        return False
    return not heads.band and heads.groups == heads.heads


def scale_of(heads: MultiHead) -> float:
    """The factor of products of queries and keys."""
    return heads.head_width**-0.5 if heads.scale is None else heads.scale


def joined(linears: list[nn.Linear], product: MakeProduct, scale: float = 1.0) -> Product:
    """Several products of the same vectors as one, the first of them scaled."""
    first, *others = linears
    weight = torch.cat([first.weight * scale, *(each.weight for each in others)])
    bias = None if first.bias is None else torch.cat([first.bias * scale, *(each.bias for each in others)])
    return product(weight, bias)


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


# --- Weights of 8 bits, by torch's own integer kernel (Bhandare et al. 2019, "Efficient 8-bit quantization of Transformer
# neural machine language translation model"). Each row of a weight has a scale of its own, the largest of its numbers over
# 127; what is multiplied by it is rounded in each call, to 7 bits, for processors that add products of bytes in 16 bits
# would overflow otherwise. Its scale is that of the whole call, so the last digits of a text depend on those that are
# translated beside it.


def int8_product(weight: Tensor, bias: Tensor | None) -> Product:
    """About x Wᵀ + b for any number of rows; a weight too small for the kernel's overhead stays as it is."""
    if weight.numel() < LARGE:  # 64 rows by 128 x 384: 119 to 132 microseconds; by 512 x 2,048: 2,343 to 1,201
        return product_of_any(weight, bias)
    packed = _rounded(weight, bias)

    def product(x: Tensor, out: Tensor | None = None) -> Tensor:
        found: Tensor = torch.ops.quantized.linear_dynamic(x.contiguous(), packed, True)
        return found if out is None else out.copy_(found)

    return product


def product_of(kind: str, device: torch.device) -> MakeProduct:
    """How to make products of weights of this kind, refused where torch has no kernel for them."""
    if kind == "float32":
        return product_of_any
    if device.type != "cpu" or not has_kernel():
        where = "this torch has none" if device.type == "cpu" else f"there is none on {device.type}"
        raise UsageError(
            f"weights of 8 bits need torch's integer kernel for x86 processors, and {where}", "leave them out"
        )
    return int8_product


def has_kernel() -> bool:
    """Whether torch has the kernel here, and would choose it."""
    if torch.backends.quantized.engine not in ("x86", "fbgemm"):
        return False
    try:
        _rounded(torch.eye(2), None)
    except (AttributeError, RuntimeError):  # torch means to give up the tensors that it packs
        return False
    return True


def _rounded(weight: Tensor, bias: Tensor | None) -> Any:
    """The weight (O, I) rounded row by row, as the kernel reads it."""
    scales = weight.abs().amax(dim=1).clamp_min(torch.finfo(weight.dtype).tiny) / 127  # (O,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing but this packs for the kernel
        rounded = torch.quantize_per_channel(weight, scales, torch.zeros_like(scales, dtype=torch.long), 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(rounded, bias)
