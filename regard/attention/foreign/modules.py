"""Other people's modules on the recording channel: whatever calls `scaled_dot_product_attention` or multi-head attention.

Such modules tell nothing, so while someone records or changes one, a function mode of torch stands between them and
torch (`foreign_watch.py`). It holds for this thread, patches nothing and hooks nothing; when nobody looks it is not there.
The kernels that run are those that would have run, with one exception: torch's encoder layer has a fast path for
evaluation that multiplies out of sight, and it steps aside by itself while a mode is there. The results agree to
rounding, except in the padding of nn.TransformerEncoder with nested tensors: the fast path leaves zeros there.
What torch.compile made runs as the Python it was made of meanwhile: the inside of a compiled graph calls no torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from regard.attention.foreign.watch import Watch

_OURS = ("regard.", "torch.nn.modules.")
_ATTENTIVE = (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
_NO_CODE = (lambda: None).__code__
_HERE = threading.local()  # as torch's stack of modes, which belongs to a thread


def is_foreign(model: nn.Module) -> bool:
    """Whether a model has parts of which it is not known that they tell the channel by themselves."""
    return any(
        isinstance(module, _ATTENTIVE) or not type(module).__module__.startswith(_OURS) for module in model.modules()
    )


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


@contextmanager
def watching() -> Iterator[Watch]:
    """Inside this block, calls of torch's attention by other people's modules reach the channel.

    One watch is enough for blocks within blocks; it stays until the last of them ends.
    """
    from regard.attention.foreign.watch import Watch  # it needs the recorder and the changes, which need this file

    _HERE.blocks = getattr(_HERE, "blocks", 0) + 1
    if _HERE.blocks == 1:
        _HERE.watch = Watch()
        _HERE.watch.__enter__()
        _HERE.eager = _uncompiled()
        _HERE.eager.__enter__()
    try:
        yield _HERE.watch
    finally:
        _HERE.blocks -= 1
        if _HERE.blocks == 0:
            _HERE.eager.__exit__(None, None, None)
            _HERE.watch.__exit__(None, None, None)
            del _HERE.watch  # it holds frames of the last pass, and with them whatever tensors these had


def _uncompiled() -> AbstractContextManager[object]:
    """Inside this block, compiled modules run as they were written. Without Dynamo, which is slow to import, none is."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
