"""Guards of the loop: a loss that is no longer a number, where it happened and what to do, and requests to stop."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from torch import Tensor, nn

EXPLODED = 3.0  # a loss this many times the first one is not coming back
FEW = 8  # a batch of so few examples may have twice that: one hard example is no explosion


class Diverged(Exception):
    """The loss or its gradient is not finite, or the loss exploded; the message says where."""


def check_update(loss: float, norm: float, first_loss: float | None, count: int) -> str:
    """Say what is wrong with this update, whose loss is a mean over `count`; empty if nothing is."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(norm):
        return f"the gradient's norm is {norm}"
    bound = EXPLODED * (1 + FEW / max(count, 1))
    if first_loss is not None and loss > bound * max(first_loss, 1.0):
        return f"the loss is {loss:.3g}, more than {bound:.3g} times the first ({first_loss:.3g})"
    return ""


ALL_FINITE = "every module's output is finite"


def locate(model: nn.Module, forwards: Iterable[Callable[[], object]]) -> str:
    """The first module whose output is not finite in these forward passes, or the first parameter whose gradient is not."""
    found: list[str] = []
    names = {module: name for name, module in model.named_modules()}

    def check_output(module: nn.Module, _: object, output: object) -> None:
        if not found and isinstance(output, Tensor) and not torch.isfinite(output).all():
            found.append(f"first seen in the output of {names[module]}")

    hooks = [module.register_forward_hook(check_output) for module in model.modules() if not list(module.children())]
    try:
        with torch.no_grad():
            for forward in forwards:
                forward()
    finally:
        for hook in hooks:
            hook.remove()
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the weights {name} are not finite"
        if not found and parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            found.append(f"first seen in the gradient of {name}")
    return found[0] if found else ALL_FINITE


ADVICE = (
    "lower train.lr (a third of it is a good try), lengthen train.warmup, or set train.clip = 1.0; "
    'with model.norm = "post" try "pre"'
)


Handler = Callable[[int, FrameType | None], None]


@contextmanager
def stop_requests(patient: bool = False) -> Iterator[list[str]]:
    """A list that stays empty until the person asks to stop, then holds the name of the signal.

    A second signal interrupts at once; not a `patient` one, which hears of it from the terminal and from who started it.
    """
    asked: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may install handlers; elsewhere the caller stops the run
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked and not patient:
            raise KeyboardInterrupt
        asked.append(signal.Signals(number).name)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
