"""The centre: scores, masks, heads, caches, and the channel through which every attention can be seen."""

from regard.attention.attend import attend, attend_reference, attention_weights
from regard.attention.cache import MemoryKeys, StepCache
from regard.attention.heads import MultiHead
from regard.attention.masks import Blocks, Both, Causal, Dense, Lengths, Mask, Window
from regard.attention.record import AttentionCall, Role, Seen, record

__all__ = [
    "AttentionCall",
    "Blocks",
    "Both",
    "Causal",
    "Dense",
    "Lengths",
    "Mask",
    "MemoryKeys",
    "MultiHead",
    "Role",
    "Seen",
    "StepCache",
    "Window",
    "attend",
    "attend_reference",
    "attention_weights",
    "record",
]
