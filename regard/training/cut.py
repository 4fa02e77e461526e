"""Tensors of which each process holds a part, cut between the rows of their first axis (torch's DTensor), and ordinary ones."""

from __future__ import annotations

from torch import Tensor


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes, of which each must ask for it."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def ours(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_cut(tensor: Tensor) -> bool:
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def like(target: Tensor, part: Tensor) -> Tensor:
    """A tensor that is cut as `target` is, whose part here is `part`."""
    from torch.distributed.tensor import DTensor

    if not isinstance(target, DTensor):
        return part
    return DTensor.from_local(
        part, target.device_mesh, target.placements, run_check=False, shape=target.shape, stride=target.stride()
    )


def rows_here(tensor: Tensor) -> tuple[int, int] | None:
    """The rows of a tensor that this process holds; None: all."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not isinstance(tensor, DTensor):
        return None
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return offset[0], offset[0] + shape[0]
