"""Attention made visible: maps, texts, pictures and reports as data, figures, pages and terminal text."""

from regard.look.map import AttentionMap
from regard.look.recorded import map_of, sentence_of
from regard.look.sentence import SentenceAttention

__all__ = ["AttentionMap", "SentenceAttention", "map_of", "sentence_of"]
