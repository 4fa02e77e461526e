"""Ids -> vectors that know their place."""

from regard.embed.tokens import (
    ConcatenatedPositions,
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
    "ConcatenatedPositions",
    "LearnedPositions",
    "NoPositions",
    "RandomOffset",
    "SinusoidalPositions",
    "TokenEmbedding",
    "embedding_table",
    "positions",
    "sinusoid",
]
