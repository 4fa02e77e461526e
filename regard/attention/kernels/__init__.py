"""Attention that does not cost T²: each kernel as its paper has it, behind one interface."""

from regard.attention.kernels.kernel import Can, Kernel, KernelState, Setting, lengths_of
from regard.attention.kernels.linear import Linear, Performer
from regard.attention.kernels.linformer import Linformer
from regard.attention.kernels.reformer import Reformer
from regard.attention.kernels.sparse import BigBird, SlidingWindow, Strided
from regard.errors import UsageError

KERNELS: dict[str, type[Kernel]] = {
    "window": SlidingWindow,
    "strided": Strided,
    "bigbird": BigBird,
    "linformer": Linformer,
    "reformer": Reformer,
    "performer": Performer,
    "linear": Linear,
}


def add_kernel(name: str, kernel: type[Kernel]) -> None:
    """Add a kernel of your own to those that a configuration can name; a name that is taken is refused."""
    if name in KERNELS:
        raise UsageError(f"there is a kernel {name} already", f"choose another name than {', '.join(KERNELS)}")
    KERNELS[name] = kernel


__all__ = ["KERNELS", "Can", "Kernel", "KernelState", "Setting", "add_kernel", "lengths_of"]
