"""Where a model looks: attention maps as text, figures and data, and the curves of a training run."""

from regard.look.map import AttentionMap
from regard.look.recorded import map_of, sentence_of
from regard.look.sentence import SentenceAttention

__all__ = ["AttentionMap", "SentenceAttention", "map_of", "sentence_of"]
