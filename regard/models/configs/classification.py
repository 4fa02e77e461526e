"""Configurations of the ladder of attention in text classification, from fixed weights to learned ones. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig
from regard.models.configs.attention import ScoreName


class RungConfig(StrictConfig):
    """What the rungs below BERT share: embeddings, one vector for a text, one linear layer."""

    width: int = Field(128, ge=1, description="Width D of token embeddings.")
    dropout: float = Field(0.3, ge=0, lt=1, description="Dropout on embeddings and before the last layer.")

    @property
    def longest(self) -> int | None:
        return None


class TfidfConfig(StrictConfig):
    """Static attention: a word weighs what its frequency here and its rarity elsewhere say (Spärck Jones 1972)."""

    kind: Literal["tfidf"] = "tfidf"
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on the words of a text.")

    @property
    def width(self) -> int:
        """There are no vectors for a rate to be scaled by."""
        return 1

    @property
    def longest(self) -> int | None:
        return None


class TokenWeightsConfig(RungConfig):
    """Adaptive attention: every token of the vocabulary has a learned weight, the same wherever it stands."""

    kind: Literal["token-weights"] = "token-weights"


class PlainAttentionConfig(RungConfig):
    """Self-attention without parameters: each token becomes the mean of all, weighed by softmax(x · x)."""

    kind: Literal["plain-attention"] = "plain-attention"
    likeness: Literal["like", "unlike", "learned"] = Field(
        "like", description="Look at what is like a token, at what is unlike it (softmax(-x · x)), or learn which."
    )


class AdditiveConfig(RungConfig):
    """Additive attention pooling over a recurrent encoder (Yang et al. 2016)."""

    kind: Literal["additive"] = "additive"
    cell: Literal["rnn", "gru", "lstm"] = Field("gru", description="The recurrent cell.")
    layers: int = Field(1, ge=1, description="Recurrent layers.")
    hidden: int = Field(128, ge=2, multiple_of=2, description="Width of a state; each of two directions has half.")


class SelfAttentionConfig(RungConfig):
    """Query-key-value self-attention of several heads, or with one score, over embeddings with positions; then the mean."""

    kind: Literal["self-attention"] = "self-attention"
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    positions: Literal["sinusoidal", "none"] = Field("sinusoidal", description="How positions are told.")
    score: Literal["heads"] | ScoreName = Field(
        "heads", description="Learned queries and keys of several heads, or one score of each pair of tokens."
    )
    max_length: int = Field(256, ge=1, description="Positions that the location score knows; later are unseen.")
    back: float = Field(0.0, description="How far before its own place a token looks with the offset score.")
    back_learned: bool = Field(True, description="Learn from there how far back; false: always exactly so far.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> SelfAttentionConfig:
        if self.score == "heads" and self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self
