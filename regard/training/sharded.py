"""Models that do not fit into one process: each holds a part of every tensor (FSDP2), and writes that part to checkpoints.

Zhao et al. 2023, "PyTorch FSDP: experiences on scaling fully sharded data parallel". A block's weights are gathered when it
computes and dropped behind it; gradients are summed and scattered, so that each process updates what it holds. Tensors are cut
between the rows of their first axis, in the order of the ranks.

In a checkpoint the part of a process is a file of its own, `model.0-of-4.safetensors`; what is not cut (buffers, the number of
steps) is in the first one's. Any number of processes, in any layout, reads the rows that it needs from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.blocks import Experts, Stack
from regard.errors import RegardError, UsageError
from regard.tensors import open_tensors, write_tensors
from regard.training.config import TrainConfig
from regard.training.cut import is_cut, ours, rows_here, whole
from regard.training.precision import half_of
from regard.world import World


def shard(model: nn.Module, world: World, device: torch.device, config: TrainConfig) -> None:
    """Cut the parameters of a model: those of each block of a stack are gathered together, and all others."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    _refuse(model, config)
    mesh = init_device_mesh(device.type, (world.size,))
    policy = MixedPrecisionPolicy()
    if half_of(config.precision, device) is torch.bfloat16:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    for stack in [module for module in model.modules() if isinstance(module, Stack)]:
        for block in stack:
            norms: list[nn.Module] = [each for each in block.modules() if isinstance(each, nn.LayerNorm | nn.RMSNorm)]
            if policy.param_dtype is not None and norms:
                fully_shard(norms, mesh=mesh)  # which compute in float32
            fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)
    model._get_fsdp_state()._lazy_init()  # type: ignore[operator]  # a validation may call a part before the whole is
    for part in _parts(model):
        part.set_gradient_divide_factor(1.0)  # each has divided by the counts of the whole batch
        part.set_force_sum_reduction_for_comms(True)  # Gloo has no other


def _refuse(model: nn.Module, config: TrainConfig) -> None:
    if config.optimiser == "muon":
        raise UsageError(
            "train.shard cuts matrices between their rows, and Muon needs them whole", "set train.optimiser = adam"
        )
    if any(isinstance(module, Experts) for module in model.modules()):
        raise UsageError(
            "train.shard gathers a block at once, and a mixture does not use all of its experts", "leave it out"
        )
    if any(isinstance(module, Stack) and module.reversible for module in model.modules()):
        raise UsageError(
            "train.shard and model.reversible both save memory, each in its own way", "leave out one of them"
        )
    if any(parameter.dim() == 0 for parameter in model.parameters()):
        raise UsageError("train.shard cuts tensors between their rows, and this model has a parameter without any")


def _parts(model: nn.Module) -> list[Any]:
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Inside this block every process has all weights, as an ordinary model; changes of them are forgotten behind it.

    They are copies, as precise as they are kept (blocks may learn with rounded ones): NumPy may look at them, after which
    torch could not give back the memory of its own.
    """
    parts = _parts(model)
    copies = {name: whole(parameter.data) for name, parameter in model.named_parameters()}
    for part in parts:
        part.set_reshard_after_forward(False)
        part.unshard()
    before = {name: parameter.data for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.data = copies.pop(name)
    try:
        yield
    finally:
        for name, parameter in model.named_parameters():
            parameter.data = before[name]
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(True)
        _forget_order(parts)


def _forget_order(parts: Sequence[Any]) -> None:
    """Forget in which order blocks ran: torch gathers them ahead in that order, which must be the same in all processes.

    Each validates something else, and the next backward pass waited for ever for a process that gathered another block.
    """
    for state in (part._get_fsdp_state() for part in parts):
        state._comm_ctx.post_forward_order.clear()
        for group in state._fsdp_param_groups:
            group._post_forward_indices.clear()


# --- Files


def write_part(folder: Path, name: str, tensors: Mapping[str, Tensor], world: World) -> None:
    """Write this process's part of tensors as one of the files that make `name`."""
    kept = {key: ours(tensor) for key, tensor in tensors.items() if is_cut(tensor) or world.is_first}
    write_tensors(folder / f"{name}.{world.rank}-of-{world.size}.safetensors", kept)


class Pieces:
    """Tensors in one safetensors file or in several, each of which has some rows of them."""

    def __init__(self, folder: Path, name: str) -> None:
        whole, parts = folder / f"{name}.safetensors", sorted(folder.glob(f"{name}.*-of-*.safetensors"), key=_rank)
        files = [whole] if whole.exists() else parts
        if not files or (parts and len(parts) != _size(parts[0])):
            raise RegardError(f"{folder} has not all parts of {name}", "restore it from where you copied it")
        self._stack, self._where = ExitStack(), dict[str, list[Any]]()
        for file in files:
            opened = self._stack.enter_context(open_tensors(file))
            for key in opened.keys():  # noqa: SIM118
                self._where.setdefault(key, []).append(opened)

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __contains__(self, key: str) -> bool:
        return key in self._where

    def for_(self, key: str, target: Tensor | None = None) -> Tensor:
        """A tensor, or the rows of it that this process holds of `target`."""
        rows = None if target is None else rows_here(target)
        if rows is None:
            found = [each.get_tensor(key) for each in self._where[key]]
            return found[0] if len(found) == 1 else torch.cat(found)
        first, end = rows
        taken, start = [], 0
        for each in self._where[key]:
            piece = each.get_slice(key)
            count = piece.get_shape()[0]
            taken.append(piece[max(0, min(first - start, count)) : max(0, min(end - start, count))])
            start += count
        return torch.cat(taken)


def _rank(file: Path) -> int:
    return int(file.name.split(".")[-2].split("-")[0])


def _size(file: Path) -> int:
    return int(file.name.split(".")[-2].split("-")[2])
