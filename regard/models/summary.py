"""A summary of a model, layer by layer in the order in which they run: shapes, parameters and multiply-adds.

    print(summary(model, pixels))

A row stands for a module without parts of its own, or for one that multiplies matrices or owns parameters besides its
parts. Multiply-adds are those that `operations` counts, for one picture (or text) of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from torch import Tensor, nn

from regard.models.operations import Watch, in_evaluation

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
    watch = Watch(model)
    with in_evaluation(model), torch.no_grad(), watch.hooked(), watch:
        run(seen)
    total = sum(parameter.numel() for parameter in model.parameters())
    return Summary(type(model).__name__, tuple(_layers(watch, _rows(seen))), total)


def _layers(watch: Watch, rows: int) -> Iterator[Layer]:
    """A row for each module that has parameters of its own, multiplies, or has no parts."""
    known: set[int] = set()
    for module in [*watch.calls, *([] if watch.model in watch.calls else [watch.model])]:
        parameters = 0
        for parameter in _own(module, watch):
            parameters += 0 if id(parameter) in known else parameter.numel()
            known.add(id(parameter))
        count = watch.counts.get(module, 0)
        if parameters or count or not any(True for _ in module.children()):
            shape, calls = watch.shapes.get(module, ()), watch.calls.get(module, 1)
            kind, detail = type(module).__name__, _detail(module)
            yield Layer(watch.names[module], kind, shape, parameters, count // rows, calls, detail)


def _own(module: nn.Module, watch: Watch) -> Iterator[nn.Parameter]:
    """A module's own parameters, and those of parts that never ran by themselves: it used them in its own way."""
    yield from module.parameters(recurse=False)
    for child in module.children():
        if child not in watch.calls:
            yield from _own(child, watch)


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


def _rows(seen: Any) -> int:
    """How many pictures or texts a batch has."""
    if isinstance(seen, Tensor):
        return len(seen)
    return next(len(value) for field in fields(seen) if isinstance(value := getattr(seen, field.name), Tensor))


def _number(value: int) -> str:
    return f"{value:,}" if value else ""
