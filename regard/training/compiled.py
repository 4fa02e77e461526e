"""Blocks compiled with torch.compile, where there is a compiler and the run is one whose noise that leaves as it is."""

from __future__ import annotations

import torch
from torch import nn

from regard.blocks import compile_blocks
from regard.errors import UsageError
from regard.training.config import TrainConfig
from regard.world import World


def compile_as_asked(model: nn.Module, config: TrainConfig, world: World, device: torch.device) -> None:
    """Compile the blocks of a model if `train.compile` says so; a UsageError where that cannot be."""
    if not config.compile:
        return
    if config.shard and not world.is_alone:
        raise UsageError("train.compile was never tried with train.shard", "leave out one of them")
    if not world.is_alone and device.type == "cpu":
        raise UsageError(
            "compiled blocks drop by torch's own noise, which on a processor is the same in all parts of a batch",
            "leave out train.compile, or train with one process",
        )
    if config.compile == "reduce-overhead" and device.type != "cuda":
        raise UsageError(
            f"train.compile = reduce-overhead replays CUDA graphs, and this is a {device.type}",
            "set train.compile = true",
        )
    _check_compiler(device)
    compile_blocks(model, "default" if config.compile is True else config.compile)


def _check_compiler(device: torch.device) -> None:
    """Whether there is what torch.compile makes its code with: Triton on a GPU, else a C++ compiler."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise UsageError("train.compile needs Triton on a GPU, and there is none", "install triton")
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise UsageError(
            "train.compile needs a C++ compiler, and there is none", "install g++, or name one in CXX"
        ) from error
