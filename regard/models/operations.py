"""Multiply-adds of a model, counted where they happen: in all, and layer by layer, forward and with the backward pass.

Those of matrix products, convolutions, recurrent layers and attention are counted, as torch's own counter does (which
leaves out recurrent layers, the attention of a CPU, and products that are added in place); what adds, compares or
normalises is not. A multiply-add is two floating-point operations.

    with Watch(model) as watch, watch.hooked():
        model(batch).objective(dict(batch.counts)).backward()
    watch.counts  # of each module, its parts not included
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

OPERATIONS = 2  # of a multiply-add
_IN_PLACE = {torch.ops.aten.addmm_: torch.ops.aten.addmm, torch.ops.aten.baddbmm_: torch.ops.aten.baddbmm}


def multiply_adds(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """The multiply-adds of one call of torch's: 0 for what is not counted."""
    aten, called = torch.ops.aten, func._overloadpacket
    if called is aten._scaled_dot_product_flash_attention_for_cpu:
        q, k, v = args[:3]  # (B, H, T, E), (B, H, S, E), (B, H, S, E)
        return prod(q.shape[:3]) * k.size(-2) * (k.size(-1) + v.size(-1))
    if called is aten._scaled_dot_product_flash_attention_for_cpu_backward:
        q, k, v = args[1:4]  # the scores again, then the gradients of weights, values, queries and keys
        return prod(q.shape[:3]) * k.size(-2) * (3 * k.size(-1) + 2 * v.size(-1))
    if called in (aten.mkldnn_rnn_layer, aten.mkldnn_rnn_layer_backward):  # of x and of the state, at each step and row
        once = prod(args[0].shape[:2]) * (args[1].numel() + args[2].numel())
        return once if called is aten.mkldnn_rnn_layer else 2 * once
    formula = flop_registry.get(_IN_PLACE.get(called, called))
    return 0 if formula is None else formula(*args, **kwargs, out_val=out) // OPERATIONS


class _Counter(TorchDispatchMode):
    """Counts the multiply-adds of all that runs inside, there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += multiply_adds(func, args, kwargs or {}, out)
        return out


def multiply_adds_of(work: Callable[[], object]) -> int:
    """Multiply-adds of matrix products, convolutions, recurrent layers and attention while `work` runs, backward included."""
    with _Counter() as counter:
        work()
    return counter.count


class Watch(TorchDispatchMode):
    """Counts multiply-adds for the module that is running, the innermost one.

    What a backward pass computes belongs to the module that was running when its node of autograd's graph was made:
    nodes are numbered as they are made, and each entry to a module and each return from one notes the next number.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.names = {module: name for name, module in model.named_modules()}
        self.running: list[nn.Module] = []
        self.calls: dict[nn.Module, int] = {}  # in the order in which they began first
        self.counts: dict[nn.Module, int] = {}
        self.shapes: dict[nn.Module, tuple[int, ...]] = {}
        self._numbers: list[int] = []  # of the next node, whenever the module that runs changed
        self._owners: list[nn.Module] = []  # which ran from then on

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = multiply_adds(func, args, kwargs or {}, out)
        if count:
            owner = self._owner()
            self.counts[owner] = self.counts.get(owner, 0) + count
        return out

    @contextmanager
    def hooked(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self.names:
                stack.callback(module.register_forward_pre_hook(self._enter).remove)
                stack.callback(module.register_forward_hook(self._leave).remove)
            yield

    def _owner(self) -> nn.Module:
        if self.running:
            return self.running[-1]
        node = torch._C._current_autograd_node()
        place = 0 if node is None else bisect_right(self._numbers, node._sequence_nr())
        return self._owners[place - 1] if place else self.model

    def _enter(self, module: nn.Module, inputs: object) -> None:
        self.running.append(module)
        self.calls[module] = self.calls.get(module, 0) + 1
        self._note()

    def _leave(self, module: nn.Module, inputs: object, out: object) -> None:
        self.running.pop()
        self.shapes[module] = tuple(out.shape) if isinstance(out, Tensor) else ()
        self._note()

    def _note(self) -> None:
        self._numbers.append(torch._C._autograd._get_sequence_nr())
        self._owners.append(self.running[-1] if self.running else self.model)


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Every part as in evaluation; afterwards each as it was."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


@dataclass(frozen=True)
class LayerOperations:
    """Floating-point operations of one layer, on all the batches that were counted."""

    path: str
    kind: str
    forward: int
    training: int  # forward and backward


def operations_of(model: nn.Module, batches: Iterable[Any]) -> list[LayerOperations]:
    """The operations of each layer in the order in which they run: to predict, and to learn from these batches.

    Nothing of the model changes but the gradients, which are gone afterwards.
    """
    forward, training, order = dict[str, int](), dict[str, int](), dict[str, str]()
    for batch in batches:
        with torch.no_grad():
            _count(model, lambda batch=batch: model(batch), forward, order)  # type: ignore[misc]
        _count(model, lambda batch=batch: _learn(model, batch), training, order)  # type: ignore[misc]
    return [
        LayerOperations(path, kind, OPERATIONS * forward.get(path, 0), OPERATIONS * training.get(path, 0))
        for path, kind in order.items()
        if path in training
    ]


def _learn(model: nn.Module, batch: Any) -> None:
    model(batch).objective(dict(batch.counts)).backward()
    model.zero_grad(set_to_none=True)


def _count(model: nn.Module, work: Callable[[], object], sums: dict[str, int], order: dict[str, str]) -> None:
    """Add up what each module multiplies while `work` runs; `order` has the kind of each that ran, by its path."""
    watch = Watch(model)
    with in_evaluation(model), watch.hooked(), watch:
        work()
    for module in [*watch.calls, model]:
        order.setdefault(watch.names[module], type(module).__name__)
    for module, count in watch.counts.items():
        sums[watch.names[module]] = sums.get(watch.names[module], 0) + count


def layer_of(path: str) -> str:
    """The layer of a model that a module or a parameter is in: its block, or the part where there are no numbers.

    encoder.0.attention.query.weight -> encoder.0     stages.1.0.first.norm -> stages.1.0     embedding.weight -> embedding
    """
    block = re.match(r"(?:[^.\d][^.]*\.)*\d+(?:\.\d+)*(?=\.|$)", path)
    return block[0] if block else path.split(".")[0]


def by_layer(rows: Sequence[LayerOperations]) -> list[LayerOperations]:
    """The sums of each block, in the order in which they first run."""
    groups: dict[str, list[LayerOperations]] = {}
    for row in rows:
        groups.setdefault(layer_of(row.path), []).append(row)
    return [
        LayerOperations(path, each[0].kind, sum(row.forward for row in each), sum(row.training for row in each))
        for path, each in groups.items()
    ]
