"""Ids -> vectors that know their place."""

from regard.embed.tokens import (
    LearnedPositions,
    NoPositions,
    RandomOffset,
    SinusoidalPositions,
    TokenEmbedding,
    embedding_table,
    positions,
    sinusoid,
)

__all__ = [
    "LearnedPositions",
    "NoPositions",
    "RandomOffset",
    "SinusoidalPositions",
    "TokenEmbedding",
    "embedding_table",
    "positions",
    "sinusoid",
]
