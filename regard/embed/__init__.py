"""Ids -> vectors that know their place."""

from regard.embed.tokens import TokenEmbedding, embedding_table, positions, sinusoid

__all__ = ["TokenEmbedding", "embedding_table", "positions", "sinusoid"]
