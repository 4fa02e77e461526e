"""A summary of a model, layer by layer in the order in which they run: shapes, parameters and multiply-adds.

    print(summary(model, pixels))

A row stands for a module without parts of its own, or for one that multiplies matrices or owns parameters besides its
parts. Multiply-adds are those of matrix products, convolutions and attention, counted where they happen, for one picture
(or text) of the batch; what adds, compares or normalises is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

COLUMNS = ("layer", "kind", "output", "parameters", "multiply-adds")  # of the table that a person reads
COUNTS = COLUMNS[3:]


@dataclass(frozen=True)
class Layer:
    """One row."""

    path: str
    kind: str
    shape: tuple[int, ...]  # of what it gave (the last time); empty if that was no tensor
    parameters: int  # its own; shared ones stand in the first row that has them
    multiply_adds: int  # for one picture or text
    calls: int = 1
    detail: str = ""  # of a convolution or a pooling: its kernel, and what of the rest is not as usual

    @property
    def name(self) -> str:
        return self.path or "(itself)"

    @property
    def does(self) -> str:
        kind = f"{self.kind} {self.detail}".rstrip()
        return kind if self.calls == 1 else f"{kind} ({self.calls} times)"

    @property
    def gives(self) -> str:
        return " x ".join(map(str, self.shape))


@dataclass(frozen=True)
class Summary:
    """All rows in the order in which they ran first. `parameters` is of the whole model."""

    name: str
    layers: tuple[Layer, ...]
    parameters: int

    @property
    def multiply_adds(self) -> int:
        return sum(layer.multiply_adds for layer in self.layers)

    def data(self) -> dict[str, object]:
        """For JSON."""
        rows = [{field.name: getattr(layer, field.name) for field in fields(layer)} for layer in self.layers]
        rows = [row | {"shape": list(row["shape"])} for row in rows]
        return {
            "name": self.name, "parameters": self.parameters, "multiply_adds": self.multiply_adds, "layers": rows,
        }  # fmt: skip

    def rows(self) -> list[tuple[str, ...]]:
        """Cells of a table with `COLUMNS`: a row for each layer, and the last for all of them."""
        rows = [
            (each.name, each.does, each.gives, _number(each.parameters), _number(each.multiply_adds))
            for each in self.layers
        ]
        return [*rows, ("in all", "", "", _number(self.parameters), _number(self.multiply_adds))]

    def __str__(self) -> str:
        console = Console(width=120, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(title=self.name, title_justify="left", show_footer=True, box=None, pad_edge=False)
        *rows, in_all = self.rows()
        for name, whole in zip(COLUMNS, in_all, strict=True):
            table.add_column(
                name,
                whole,
                justify="right" if name in COUNTS else "left",
                overflow="fold" if name in ("layer", "kind") else "ellipsis",
            )
        for row in rows:
            table.add_row(*row)
        yield table


def summary(model: nn.Module, seen: Any) -> Summary:
    """Run the model once on a batch, or on pixels, in evaluation mode; nothing of it changes."""
    run: Callable[[Any], Any] = getattr(model, "logits", model) if isinstance(seen, Tensor) else model
    watch = _Watch(model)
    with _in_evaluation(model), torch.no_grad(), watch.hooked(), watch:
        run(seen)
    total = sum(parameter.numel() for parameter in model.parameters())
    return Summary(type(model).__name__, tuple(watch.layers(_rows(seen))), total)


class _Watch(TorchDispatchMode):
    """Counts multiply-adds for the module that is running, the innermost one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.names = {module: name for name, module in model.named_modules()}
        self.running: list[nn.Module] = []
        self.calls: dict[nn.Module, int] = {}  # in the order in which they began first
        self.counts: dict[nn.Module | None, int] = {}
        self.shapes: dict[nn.Module, tuple[int, ...]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = _multiply_adds(func, args, kwargs or {}, out)
        if count:
            owner = self.running[-1] if self.running else self.model
            self.counts[owner] = self.counts.get(owner, 0) + count
        return out

    @contextmanager
    def hooked(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self.names:
                stack.callback(module.register_forward_pre_hook(self._enter).remove)
                stack.callback(module.register_forward_hook(self._leave).remove)
            yield

    def _enter(self, module: nn.Module, inputs: object) -> None:
        self.running.append(module)
        self.calls[module] = self.calls.get(module, 0) + 1

    def _leave(self, module: nn.Module, inputs: object, out: object) -> None:
        self.running.pop()
        self.shapes[module] = tuple(out.shape) if isinstance(out, Tensor) else ()

    def layers(self, rows: int) -> Iterator[Layer]:
        known: set[int] = set()
        for module in [*self.calls, *([] if self.model in self.calls else [self.model])]:
            parameters = 0
            for parameter in self._own(module):
                parameters += 0 if id(parameter) in known else parameter.numel()
                known.add(id(parameter))
            count = self.counts.get(module, 0)
            if parameters or count or not any(True for _ in module.children()):
                shape, calls = self.shapes.get(module, ()), self.calls.get(module, 1)
                kind, detail = type(module).__name__, _detail(module)
                yield Layer(self.names[module], kind, shape, parameters, count // rows, calls, detail)

    def _own(self, module: nn.Module) -> Iterator[nn.Parameter]:
        """A module's own parameters, and those of parts that never ran by themselves: it used them in its own way."""
        yield from module.parameters(recurse=False)
        for child in module.children():
            if child not in self.calls:
                yield from self._own(child)


def _detail(module: nn.Module) -> str:
    """The window of a convolution or a pooling: "3 x 3, stride 2, padding 1"."""
    if not isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
        return ""
    usual = {"stride": 1, "padding": 0, "dilation": 1}
    values = {name: _side(getattr(module, name)) for name in usual if hasattr(module, name)}
    own = getattr(module, "window", None)  # ours says what it does where it does it in two steps
    values |= {} if own is None else {name: getattr(own, name) for name in usual}
    kernel = _side(module.kernel_size)
    return ", ".join(
        [f"{kernel} x {kernel}", *(f"{name} {value}" for name, value in values.items() if value != usual[name])]
    )


def _side(value: Any) -> Any:
    """One number for both sides of a window, which are equal in ours."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


class _Counter(TorchDispatchMode):
    """Counts the multiply-adds of all that runs inside, there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += _multiply_adds(func, args, kwargs or {}, out)
        return out


def multiply_adds_of(work: Callable[[], object]) -> int:
    """Multiply-adds of matrix products, convolutions, recurrent layers and attention while `work` runs, backward included."""
    with _Counter() as counter:
        work()
    return counter.count


def _multiply_adds(func: Any, args: Any, kwargs: Any, out: Any) -> int:
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
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else formula(*args, **kwargs, out_val=out) // 2  # a multiply-add is two operations


@contextmanager
def _in_evaluation(model: nn.Module) -> Iterator[None]:
    """Every part as in evaluation; afterwards each as it was."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def _rows(seen: Any) -> int:
    """How many pictures or texts a batch has."""
    if isinstance(seen, Tensor):
        return len(seen)
    return next(len(value) for field in fields(seen) if isinstance(value := getattr(seen, field.name), Tensor))


def _number(value: int) -> str:
    return f"{value:,}" if value else ""
