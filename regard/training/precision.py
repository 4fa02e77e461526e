"""In which precision a run computes: float32, TF32, bf16, or fp16 with a loss that is scaled.

fp16 has no numbers below 6e-8, and small gradients would be zero: the loss is multiplied by a scale, and the gradients are
divided by it before they are clipped (Micikevicius et al. 2018, "Mixed precision training", section 3.2). Where a gradient
overflows, the update is left out and the scale is halved; after 2,000 updates without, it is doubled. The scale is torch's
`GradScaler`, and part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from regard.training.cut import ours
from regard.world import World

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LEAST = 1.0  # a scale below it helps no gradient: it is not the scale that makes them overflow


def has_fast_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported())


def half_of(precision: str, device: torch.device) -> torch.dtype | None:
    """The type of products in half precision; None: they are float32 (or TF32).

    `auto` is bf16 on hardware that has it; `bf16` and `fp16` force it (slow elsewhere).
    """
    if precision == "auto":
        return torch.bfloat16 if has_fast_bf16(device) else None
    return HALVES.get(precision)


def precision_here(precision: str, device: torch.device) -> str:
    """In which precision products are made on this device, by its name."""
    half = half_of(precision, device)
    if half is None:
        return "tf32" if precision == "tf32" and device.type == "cuda" else "float32"
    return next(name for name, kind in HALVES.items() if kind is half)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    half = half_of(precision, device)
    return nullcontext() if half is None else torch.autocast(device.type, dtype=half)


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Inside this block products of float32 matrices are TF32 where that is asked for and a GPU has it.

    Convolutions and recurrent layers of cuDNN are so in any case, by torch's own default.
    """
    if precision != "tf32":
        yield
        return
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = "tf32"
    try:
        yield
    finally:
        products.fp32_precision = before


class Scaling(torch.amp.GradScaler):
    """The scale of the loss, which all processes agree on; in other precisions than fp16 it does nothing.

    Where tensors are cut, each process sees only its part of a gradient, and what any of them saw counts.
    """

    def __init__(self, precision: str, device: torch.device, world: World) -> None:
        super().__init__(device.type, enabled=precision == "fp16")
        self.world, self.place = world, device

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool = True
    ) -> dict[torch.device, Tensor]:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        parts = [ours(parameter.grad) for parameter in parameters if parameter.grad is not None]
        torch._amp_foreach_non_finite_check_and_unscale_([each for each in parts if each.numel()], found_inf, inv_scale)
        return {self.place: self.world.sum_(found_inf)}

    def overflows(self, optimiser: torch.optim.Optimizer) -> bool:
        """Divide the gradients by the scale; whether one of them is not finite, though a smaller scale may help."""
        if not self.is_enabled():
            return False
        self.unscale_(optimiser)
        found = self._per_optimizer_states[id(optimiser)]["found_inf_per_device"]
        return any(float(each) for each in found.values()) and self.get_scale() > LEAST
