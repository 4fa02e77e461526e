"""The centre: scores, masks, heads, caches, and the channel through which every attention can be seen."""

from regard.attention.attend import attend, attend_reference, attention_weights
from regard.attention.cache import MemoryKeys, StepCache
from regard.attention.heads import MultiHead
from regard.attention.masks import Blocks, Both, Causal, Dense, Lengths, Mask, Window
from regard.attention.record import AttentionCall, Role, Seen, is_recorded, record
from regard.attention.rotary import Rotary
from regard.attention.scores import SCORES, Score, make_score
from regard.attention.soft import AttentionPool, Look, SoftAttention
from regard.attention.softness import softness

__all__ = [
    "SCORES",
    "AttentionCall",
    "AttentionPool",
    "Blocks",
    "Both",
    "Causal",
    "Dense",
    "Lengths",
    "Look",
    "Mask",
    "MemoryKeys",
    "MultiHead",
    "Role",
    "Rotary",
    "Score",
    "Seen",
    "SoftAttention",
    "StepCache",
    "Window",
    "attend",
    "attend_reference",
    "attention_weights",
    "is_recorded",
    "make_score",
    "record",
    "softness",
]
