"""The centre: scores, masks, heads, caches, and the channel through which every attention can be seen."""

from regard.attention import channel
from regard.attention.attend import attend, attend_reference, attention_weights
from regard.attention.cache import MemoryKeys, StepCache
from regard.attention.call import AttentionCall, Role
from regard.attention.changes import Change, Pin, Remove, Temperature, intervene, is_changed, is_softened, softness
from regard.attention.heads import MultiHead
from regard.attention.masks import Blocks, Both, Causal, Dense, Edges, Lengths, Mask, Window
from regard.attention.record import Seen, is_recorded, record
from regard.attention.relative import Rotary
from regard.attention.scores import SCORES, Score, add_score, make_score
from regard.attention.soft import AttentionPool, Look, SoftAttention

channel.watchers.append("regard.attention.foreign.watch:watch_foreign")

__all__ = [
    "SCORES",
    "AttentionCall",
    "AttentionPool",
    "Blocks",
    "Both",
    "Causal",
    "Change",
    "Dense",
    "Edges",
    "Lengths",
    "Look",
    "Mask",
    "MemoryKeys",
    "MultiHead",
    "Pin",
    "Remove",
    "Role",
    "Rotary",
    "Score",
    "Seen",
    "SoftAttention",
    "StepCache",
    "Temperature",
    "Window",
    "add_score",
    "attend",
    "attend_reference",
    "attention_weights",
    "intervene",
    "is_changed",
    "is_recorded",
    "is_softened",
    "make_score",
    "record",
    "softness",
]
