"""Other people's modules on the recording channel: whatever calls `scaled_dot_product_attention` or multi-head attention.

Such modules report nothing, so while someone records or changes one, a function mode of torch stands between them and
torch. It sees every call of torch's Python interface in this thread. All pass but two: `scaled_dot_product_attention` and
`multi_head_attention_forward`, behind which are nn.MultiheadAttention, nn.Transformer and most of Hugging Face. Whose call
it is, the frames above it tell: the nearest whose `self` (or `module`) is a module that someone asked to see.

It patches nothing and hooks nothing; when nobody looks it is not there. The kernels that run are those that would have
run, with one exception: torch's encoder layer has a fast path for evaluation that multiplies out of sight, and it steps
aside by itself while a mode is there. The results agree to rounding, except in the padding of nn.TransformerEncoder with
nested tensors: the fast path leaves zeros there. What torch.compile made runs as the Python it was made of meanwhile:
the inside of a compiled graph calls no torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
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
_OURS = ("regard.", "torch.nn.modules.")
_ATTENTIVE = (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
_NO_CODE = (lambda: None).__code__
_HERE = threading.local()  # as torch's stack of modes, which belongs to a thread


def is_foreign(model: nn.Module) -> bool:
    """Whether a model has parts of which it is not known that they report to the channel by themselves."""
    return any(
        isinstance(module, _ATTENTIVE) or not type(module).__module__.startswith(_OURS) for module in model.modules()
    )


@dataclass(frozen=True)
class WatchedModule:
    """A module of other people, watched since the watch had seen so many calls."""

    module: nn.Module
    watch: Watch
    ran: int
    normalised: int

    def why_nothing(self) -> str:
        return why_nothing(self.module, self.watch.ran - self.ran, self.watch.normalised - self.normalised)


def watch_foreign(module: nn.Module) -> AbstractContextManager[channel.Watched] | None:
    """A block in which calls of torch's attention by this module reach the channel; None for a module of our own."""
    return _watching(module) if is_foreign(module) else None


@contextmanager
def _watching(module: nn.Module) -> Iterator[WatchedModule]:
    """One watch is enough for blocks within blocks; it stays until the last of them ends."""
    _HERE.blocks = getattr(_HERE, "blocks", 0) + 1
    if _HERE.blocks == 1:
        _HERE.watch = Watch()
        _HERE.watch.__enter__()
        _HERE.eager = _uncompiled()
        _HERE.eager.__enter__()
    try:
        yield WatchedModule(module, _HERE.watch, _HERE.watch.ran, _HERE.watch.normalised)
    finally:
        _HERE.blocks -= 1
        if _HERE.blocks == 0:
            _HERE.eager.__exit__(None, None, None)
            _HERE.watch.__exit__(None, None, None)
            del _HERE.watch  # it holds frames of the last pass, and with them whatever tensors these had


def _uncompiled() -> AbstractContextManager[object]:
    """Inside this block, compiled modules run as they were written. Without Dynamo, which is slow to import, none is."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


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
        if func in _SOFTMAX:
            self.normalised += 1
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
        if last is not own:
            time += 1
        self._calls[id(owner)] = (own, time)
        return time


def _asked_for() -> list[Names]:
    """The models that someone records or changes now."""
    active = [channel.recorder.get(), *channel.interventions.get()]
    return [each.names for each in active if each is not None and not each.over and each.names is not None]


def owner_of(frame: FrameType | None, known: Sequence[Names]) -> tuple[nn.Module, str] | None:
    """Whose call it is, and the path of that module; None if it is nobody's of these, or our own, which reports by itself."""
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


def why_nothing(model: nn.Module, ran: int, normalised: int) -> str:
    """Why nothing was seen of a model, as far as it can be told.

    ran         calls of torch inside the block, in this thread
    normalised  those of them that were a softmax
    """
    parts = list(model.modules())
    if any(isinstance(each, torch.jit.ScriptModule) for each in parts):
        return "the model is traced or scripted, and runs out of Python's sight; record the module it was made of"
    if not ran:
        return (
            "nothing of torch ran inside this block in this thread; call the model in the block, and in the same thread "
            "(what another thread, a data loader or another process runs is not seen)"
        )
    chosen = {getattr(getattr(each, "config", None), "_attn_implementation", None) for each in parts}
    named = sorted(each for each in chosen if isinstance(each, str) and each != "sdpa")
    if named:
        return (
            f"this Hugging Face model attends by {', '.join(map(repr, named))}, which is not seen; load it with "
            'attn_implementation="sdpa", or call model.set_attn_implementation("sdpa")'
        )
    if any("flex_attention" in getattr(type(each).forward, "__code__", _NO_CODE).co_names for each in parts):
        return "the model calls flex_attention, which is not seen; what can be seen calls scaled_dot_product_attention"
    by_itself = (
        "it multiplies and normalises by itself" if normalised else "it has no attention, or computes it by itself"
    )
    return (
        f"{by_itself}. What can be seen calls scaled_dot_product_attention or nn.MultiheadAttention; a Hugging Face model "
        'does with attn_implementation="sdpa", the default of most'
    )
