"""Other people's modules on the recording channel: whatever calls `scaled_dot_product_attention` or multi-head attention.

Such modules tell nothing, so while someone records or changes one, a function mode of torch stands between them and
torch (`foreign_watch.py`). It holds for this thread, patches nothing and hooks nothing; when nobody looks it is not there.
The kernels that run are those that would have run, with one exception: torch's encoder layer has a fast path for
evaluation that multiplies out of sight, and it steps aside by itself while a mode is there. The results agree to
rounding, except in the padding of nn.TransformerEncoder with nested tensors: the fast path leaves zeros there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_OURS = ("regard.", "torch.nn.modules.")
_ATTENTIVE = (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
_HERE = threading.local()  # as torch's stack of modes, which belongs to a thread


def is_foreign(model: nn.Module) -> bool:
    """Whether a model has parts of which it is not known that they tell the channel by themselves."""
    return any(
        isinstance(module, _ATTENTIVE) or not type(module).__module__.startswith(_OURS) for module in model.modules()
    )


@contextmanager
def watching() -> Iterator[None]:
    """Inside this block, calls of torch's attention by other people's modules reach the channel.

    One watch is enough for blocks within blocks; it stays until the last of them ends.
    """
    from regard.attention.foreign_watch import Watch  # it needs the recorder and the changes, which need this file

    _HERE.blocks = getattr(_HERE, "blocks", 0) + 1
    if _HERE.blocks == 1:
        _HERE.watch = Watch()
        _HERE.watch.__enter__()
    try:
        yield
    finally:
        _HERE.blocks -= 1
        if _HERE.blocks == 0:
            _HERE.watch.__exit__(None, None, None)
