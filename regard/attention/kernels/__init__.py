"""Attention that does not cost T²: each kernel as its paper has it, behind one interface."""

from regard.attention.kernels.kernel import Kernel, KernelState, Placement, Support, lengths_of
from regard.attention.kernels.linear import Linear, Performer
from regard.attention.kernels.linformer import Linformer
from regard.attention.kernels.reformer import Reformer
from regard.attention.kernels.sparse import BigBird, SlidingWindow, Strided

KERNELS: dict[str, type[Kernel]] = {
    "window": SlidingWindow,
    "strided": Strided,
    "bigbird": BigBird,
    "linformer": Linformer,
    "reformer": Reformer,
    "performer": Performer,
    "linear": Linear,
}


__all__ = ["KERNELS", "Kernel", "KernelState", "Placement", "Support", "lengths_of"]
