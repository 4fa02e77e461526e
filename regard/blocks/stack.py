"""Stacks of blocks: whole, step by step, or reversible (Gomez et al. 2017; Kitaev et al. 2020), computed anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from regard.attention import Mask, record
from regard.blocks.block import Block, BlockState, Unchanged
from regard.blocks.feed_forward import Experts
from regard.blocks.norm import BatchNorm
from regard.errors import UsageError
from regard.noise import NoisePlace

Half = Callable[[Tensor], Tensor]


def make_reversible(block: Block) -> None:
    """Take the block's residual connections off: whoever runs it adds what each half gives to the other stream."""
    arounds = (block.around_attention, block.around_feed_forward)
    if block.cross is not None:
        raise UsageError("reversible blocks have no attention to a memory; set model.reversible = false")
    if isinstance(block.around_feed_forward, Unchanged):
        raise UsageError(
            "reversible blocks have two halves, and this one has no feed-forward; set model.reversible = false"
        )
    if block.places is not None:
        raise UsageError("reversible blocks take no positions of their own; set model.positions_where = add")
    if any(isinstance(around.norm, BatchNorm) for around in arounds):
        raise UsageError("reversible blocks compute twice, and batch norm counts once; set model.norm_kind = layer")
    if any(around.order != "pre" for around in arounds):
        raise UsageError("reversible blocks have their norms before each sub-layer; set model.norm = pre")
    if not all(around.residual for around in arounds):
        raise UsageError("reversible blocks are made of residual connections; set model.residual = true")
    if isinstance(block.feed_forward, Experts):
        raise UsageError("reversible blocks compute twice, and experts are counted once; set model.experts = 0")
    for around in arounds:
        around.residual = False


def in_two_streams(x: Tensor, blocks: Sequence[Block], attend: Sequence[Half]) -> Tensor:
    """The equations, written to be read; `attend` is the attention of each block: x (B, T, D) -> (B, T, D)."""
    first = second = x
    for block, look in zip(blocks, attend, strict=True):
        first = first + block.around_attention(second, look)
        second = second + block.around_feed_forward(first, block.feed_forward)
    return (first + second) / 2


def keeping_little(blocks: Sequence[Block], x: Tensor, mask: Mask | None, distances: Tensor | None) -> Tensor:
    """Whole sequences (B, T, D) in two streams, keeping no activations but the last."""
    halves = [_Again(half(block), mask, distances) for block in blocks for half in (_Attention, _FeedForward)]
    parameters = list({id(p): p for half in halves for p in half.parameters.values()}.values())
    first, second = _Reversible.apply(halves, parameters, x, *parameters)
    return (first + second) / 2


class _Attention(nn.Module):
    """F of a block, as a module of its own."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.around, self.layer = block.around_attention, block.attention

    def forward(self, x: Tensor, mask: Mask | None, distances: Tensor | None) -> Tensor:
        return self.around(x, lambda y: self.layer(y, y, mask, distances))


class _FeedForward(nn.Module):
    """G of a block, as a module of its own."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.around, self.layer = block.around_feed_forward, block.feed_forward

    def forward(self, x: Tensor, mask: Mask | None, distances: Tensor | None) -> Tensor:
        return self.around(x, self.layer)


class _Again:
    """Half a block that can be computed a second time just as the first."""

    def __init__(self, half: nn.Module, mask: Mask | None, distances: Tensor | None) -> None:
        self.half, self.given = half, (mask, distances)
        self.parameters = {name: p for name, p in half.named_parameters() if p.requires_grad}
        self.context = copy_context()
        self.noise: NoisePlace | None = None

    def first(self, x: Tensor) -> Tensor:
        self.noise = NoisePlace(x.device)
        return self.half(x, *self.given)

    def again(self, x: Tensor, y: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """y less what x gives, and from the gradient of the result those of x and, by id, of the parameters.

        The parameters are stood in for, so that their hooks see the whole gradient once.
        """
        x = x.detach().requires_grad_()
        stand_in = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        result = self.context.copy().run(self._replay, x, stand_in)
        found = torch.autograd.grad(result, [x, *stand_in.values()], gradient.to(result.dtype), allow_unused=True)
        pairs = zip(self.parameters.values(), found[1:], strict=True)
        return y - result.detach(), found[0], {id(p): each for p, each in pairs if each is not None}

    def _replay(self, x: Tensor, stand_in: dict[str, Tensor]) -> Tensor:
        assert self.noise is not None
        with torch.enable_grad(), self.noise.replayed(), record(nn.Identity()):  # that recorder knows no one
            return functional_call(self.half, stand_in, (x, *self.given))


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, halves: list[_Again], parameters: list[nn.Parameter], x: Tensor, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        first = second = x
        for f, g in zip(halves[::2], halves[1::2], strict=True):
            first = first + f.first(second)
            second = second + g.first(first)
        ctx.halves, ctx.parameters = halves, parameters
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        first, second = ctx.saved_tensors
        of_first, of_second = gradients
        of: dict[int, Tensor] = {}
        for f, g in zip(ctx.halves[-2::-2], ctx.halves[::-2], strict=True):
            second, more, of_g = g.again(first, second, of_second)
            of_first = of_first + more
            first, more, of_f = f.again(second, first, of_first)
            of_second = of_second + more
            for found in (of_g, of_f):
                for each, gradient in found.items():
                    of[each] = of[each] + gradient if each in of else gradient
        return None, None, of_first + of_second, *(of.get(id(p)) for p in ctx.parameters)


class Stack(nn.ModuleList):
    """x (B, T, D) -> (B, T, D) through all blocks. `reversible`: they keep no activations for the gradient.

    `recomputes`: of each block only its input is kept, and the rest computed again (see `recompute`). `compiled`: what runs
    in the place of each block while it learns (see `compile_blocks`).
    """

    recomputes = False
    compiled: tuple[Callable[..., Tensor], ...] = ()

    def __init__(self, blocks: Iterable[Block], *, reversible: bool = False) -> None:
        super().__init__(blocks)
        self.reversible = reversible
        if reversible:
            for block in self.each():
                make_reversible(block)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        if self.reversible:
            return self._reversibly(x, mask, distances)
        if self.compiled and self.training and torch.is_grad_enabled():
            for compiled in self.compiled:
                x = compiled(x, mask, memory, memory_mask, distances)
            return x
        for block in self.each():
            if self.recomputes and torch.is_grad_enabled():
                x = _recomputed(block, x, mask, memory, memory_mask, distances)
            else:
                x = block(x, mask, memory, memory_mask, distances)
        return x

    def start(self, memory: Tensor | None, memory_mask: Mask | None, like: Tensor) -> list[BlockState]:
        """An empty past for each row of `like`, in each block."""
        return [block.start(memory, memory_mask, like) for block in self.each()]

    def read(self, x: Tensor, states: list[BlockState], mask: Mask | None = None) -> Tensor:
        """The next positions (N, T, D) -> (N, T, D); `mask` says what heads see, where that is not all before."""
        if self.reversible:
            pairs = zip(self.each(), states, strict=True)
            return in_two_streams(x, list(self.each()), [partial(b.attention.read, past=s.own) for b, s in pairs])
        for block, state in zip(self.each(), states, strict=True):
            x = block.read(x, state, mask)
        return x

    def step(self, x: Tensor, states: list[BlockState]) -> Tensor:
        """The newest position of each hypothesis, (B, W, D) -> (B, W, D)."""
        if self.reversible:
            pairs = zip(self.each(), states, strict=True)
            return in_two_streams(x, list(self.each()), [partial(b.attention.step, past=s.own) for b, s in pairs])
        for block, state in zip(self.each(), states, strict=True):
            x = block.step(x, state)
        return x

    def each(self) -> Iterator[Block]:
        return cast(Iterator[Block], iter(self))

    def _reversibly(self, x: Tensor, mask: Mask | None, distances: Tensor | None) -> Tensor:
        blocks = list(self.each())
        if torch.is_grad_enabled():
            return keeping_little(blocks, x, mask, distances)
        return in_two_streams(x, blocks, [partial(_to_itself, b.attention, mask, distances) for b in blocks])


def recompute(model: nn.Module) -> None:
    """Let every stack of a model compute its blocks a second time in the backward pass, and keep no more than their inputs.

    Chen et al. 2016, "Training deep nets with sublinear memory cost". Unlike reversible blocks these are the same model.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if not stacks:
        raise UsageError(f"train.recompute: a {type(model).__name__} is no stack of blocks", "leave it out")
    for stack in stacks:
        if stack.reversible:
            raise UsageError("train.recompute: reversible blocks keep nothing already", "leave it out")
        if any(isinstance(module, BatchNorm | Experts) for module in stack.modules()):
            raise UsageError("train.recompute: batch norm and experts would count a batch twice", "leave it out")
        stack.recomputes = True


def compile_blocks(model: nn.Module, mode: str) -> None:
    """Let every stack of a model compile its blocks with torch.compile for learning; names of parameters stay.

    Validations, and whoever looks into the model, run the modules themselves. `mode` is torch's: "default", or
    "reduce-overhead", which replays CUDA graphs. Dropout in compiled blocks is torch's own.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if not stacks:
        raise UsageError(f"train.compile: a {type(model).__name__} is no stack of blocks", "leave it out")
    if any(stack.reversible or stack.recomputes for stack in stacks):
        raise UsageError("train.compile: blocks that are computed again are not compiled", "leave out one of them")
    for stack in stacks:  # in a tuple, so that they are no modules of the stack
        how: dict[str, Any] = {"mode": mode} if mode == "reduce-overhead" else {"dynamic": True}
        stack.compiled = tuple(torch.compile(block, **how) for block in stack.each())


def _recomputed(block: Block, x: Tensor, *given: Any) -> Tensor:
    """A block's output, whose inside is computed again with the same noise where the gradient needs it; nobody sees that."""

    @contextmanager
    def again(place: NoisePlace) -> Iterator[None]:
        with place.replayed(), record(nn.Identity()):
            yield

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), again(NoisePlace(x.device))

    out: Tensor = checkpoint(block, x, *given, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
    return out


def _to_itself(attention: nn.Module, mask: Mask | None, distances: Tensor | None, x: Tensor) -> Tensor:
    return attention(x, x, mask, distances)
