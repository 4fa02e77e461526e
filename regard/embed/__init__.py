"""Ids -> vectors that know their place."""

from regard.embed.positions import positions, sinusoid
from regard.embed.tokens import TokenEmbedding, embedding_table

__all__ = ["TokenEmbedding", "embedding_table", "positions", "sinusoid"]
