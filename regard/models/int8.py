"""Weights of 8 bits for decoding: large products by torch's own integer kernel (Bhandare et al. 2019, "Efficient 8-bit
quantization of Transformer neural machine language translation model").

Each row of a weight has a scale of its own, the largest of its numbers over 127; what is multiplied by it is rounded in
each call, to 7 bits, for processors that add products of bytes in 16 bits would overflow otherwise. Its scale is that of
the whole call, so the last digits of a text depend on those that are translated beside it.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.models.fast_step import LARGE, MakeProduct, Product, product_of_any


def int8_product(weight: Tensor, bias: Tensor | None) -> Product:
    """About x Wᵀ + b for any number of rows; a weight too small for the kernel's overhead stays as it is."""
    if weight.numel() < LARGE:  # 64 rows by 128 x 384: 119 to 132 microseconds; by 512 x 2,048: 2,343 to 1,201
        return product_of_any(weight, bias)
    packed = _packed(weight, bias)

    def product(x: Tensor, out: Tensor | None = None) -> Tensor:
        found: Tensor = torch.ops.quantized.linear_dynamic(x.contiguous(), packed, True)
        return found if out is None else out.copy_(found)

    return product


def product_of(kind: str, device: torch.device) -> MakeProduct:
    """What makes products of weights of this kind, refused where torch has no kernel for them."""
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
        _packed(torch.eye(2), None)
    except (AttributeError, RuntimeError):  # torch means to give up the tensors that it packs
        return False
    return True


def _packed(weight: Tensor, bias: Tensor | None) -> Any:
    """The weight (O, I) rounded row by row, as the kernel reads it."""
    scales = weight.abs().amax(dim=1).clamp_min(torch.finfo(weight.dtype).tiny) / 127  # (O,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing but this packs for the kernel
        rounded = torch.quantize_per_channel(weight, scales, torch.zeros_like(scales, dtype=torch.long), 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(rounded, bias)
