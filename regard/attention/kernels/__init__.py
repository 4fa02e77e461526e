"""Attention that does not cost T²: each kernel as its paper has it, behind one interface; imported when it is asked for."""

from regard.attention.kernels.kernel import Kernel, KernelState, Placement, Support, lengths_of
from regard.plugins import NamedParts

KERNELS = NamedParts[type[Kernel]](
    {
        "window": "regard.attention.kernels.sparse:SlidingWindow",
        "strided": "regard.attention.kernels.sparse:Strided",
        "bigbird": "regard.attention.kernels.sparse:BigBird",
        "linformer": "regard.attention.kernels.linformer:Linformer",
        "reformer": "regard.attention.kernels.reformer:Reformer",
        "performer": "regard.attention.kernels.linear:Performer",
        "linear": "regard.attention.kernels.linear:Linear",
    }
)


__all__ = ["KERNELS", "Kernel", "KernelState", "Placement", "Support", "lengths_of"]
