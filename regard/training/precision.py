"""bf16 autocast where the hardware multiplies it faster than float32; elsewhere nothing changes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def has_fast_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported())


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """`auto` is bf16 on hardware that has it; `bf16` forces it (slow elsewhere); `float32` never."""
    if precision == "bf16" or (precision == "auto" and has_fast_bf16(device)):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
