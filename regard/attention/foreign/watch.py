"""What stands between other people's modules and torch while someone records or changes them.

A function mode sees every call of torch's Python interface in this thread. All pass but two: `scaled_dot_product_attention`
and `multi_head_attention_forward`, behind which are nn.MultiheadAttention, nn.Transformer and most of Hugging Face. Whose
call it is, the frames above it tell: the nearest whose `self` (or `module`) is a module that someone asked to see.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention, softmax
from torch.overrides import TorchFunctionMode

from regard.attention import channel
from regard.attention.call import Role
from regard.attention.changes import changed
from regard.attention.foreign.multi_head import HeadsCall
from regard.attention.foreign.scaled_dot_product import ProductsCall, hides_later, place_of_step

Names = Mapping[int, str]  # paths of modules by their identity
ForeignCall = ProductsCall | HeadsCall
_SOFTMAX = (softmax, torch.softmax, Tensor.softmax)


class Watch(TorchFunctionMode):
    """Calls of attention by modules that someone records or changes reach the channel; all else passes."""

    def __init__(self) -> None:
        super().__init__()
        self._judged: tuple[Tensor | None, bool] = (None, False)  # the last mask, and whether it is causal
        self._stood = (0, 0)  # how many queries the last causal attention had, and where the first stood
        self._times = Times()
        self.ran = self.normalised = 0  # calls of torch, and of its softmax

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.ran += 1
        self.normalised += func in _SOFTMAX
        if func is scaled_dot_product_attention:
            return self._seen(func, ProductsCall(*args, **(kwargs or {})))
        if func is multi_head_attention_forward:
            return self._seen(func, HeadsCall(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))

    def _seen(self, func: Callable[..., Any], call: ForeignCall) -> Any:
        known = _asked_for()
        found = owner_of(sys._getframe(2), known) if call.readable else None
        if found is None:
            return func(**vars(call))
        owner, path = found
        time = self._times.of(owner, sys._getframe(2), known)
        role = call.role(path, owner, self._is_causal(call.hint, call))
        place = self._place(role, call) if channel.interventions.get() else 0
        return call.run(func, owner, role, changed(owner, role, time), place, time)

    def _is_causal(self, mask: Tensor | None, call: ForeignCall) -> bool:
        """Layers share a mask, so that one judgement holds for many."""
        if mask is None:
            return False
        if mask is not self._judged[0]:
            allowed = call.allowed()
            self._judged = (mask, allowed is not None and hides_later(allowed))
        return self._judged[1]

    def _place(self, role: Role, call: ForeignCall) -> int:
        """Where the first query stands. One that looks elsewhere stands where the last that looked back stood."""
        if role == "causal":
            inside = call.is_causal or call.queries >= call.keys
            self._stood = (call.queries, 0 if inside else place_of_step(call.allowed(), call.queries, call.keys))
        queries, place = self._stood
        return place if role in ("causal", "cross") and queries == call.queries else 0


class Times:
    """How often each module has been called in the forward pass that runs: of shared layers, which one this is.

    A pass is the outermost `forward` of a known module that is on the stack; its frame is held, so that no other can be
    taken for it. Several attentions of one call of a module, as over parts of a batch, are one layer.
    """

    def __init__(self) -> None:
        self._pass: FrameType | None = None
        self._calls: dict[int, tuple[FrameType, int]] = {}

    def of(self, owner: nn.Module, frame: FrameType | None, known: Sequence[Names]) -> int:
        whole: FrameType | None = None
        own = frame
        while frame is not None:
            module = _module(frame, known)
            if module is not None and frame.f_code.co_name == "forward":
                whole = frame
            if module is owner:
                own = frame
            frame = frame.f_back
        if whole is None or own is None:
            return 0
        if whole is not self._pass:
            self._pass, self._calls = whole, {}
        last, time = self._calls.get(id(owner), (None, -1))
        time += last is not own
        self._calls[id(owner)] = (own, time)
        return time


def _asked_for() -> list[Names]:
    """The models that someone records or changes now."""
    active = [channel.recorder.get(), *channel.interventions.get()]
    return [each.names for each in active if each is not None and not each.over and each.names is not None]


def owner_of(frame: FrameType | None, known: Sequence[Names]) -> tuple[nn.Module, str] | None:
    """Whose call it is, and the path of that module; None if it is nobody's of these, or our own, who told it."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("regard."):
            return None
        module = _module(frame, known)
        if module is not None:
            return module, next(names[id(module)] for names in known if id(module) in names)
        frame = frame.f_back
    return None


def _module(frame: FrameType, known: Sequence[Names]) -> nn.Module | None:
    """The module whose frame this is, if someone asked to see it."""
    names = (*frame.f_code.co_varnames, *frame.f_code.co_freevars)
    for name in ("self", "module"):
        module = frame.f_locals.get(name) if name in names else None
        if isinstance(module, nn.Module) and any(id(module) in names for names in known):
            return module
    return None
