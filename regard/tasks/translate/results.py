"""What a translator gives: a translation, and how probable a given one is."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from regard.brief import brief, quoted
from regard.files import JSON
from regard.look import SentenceAttention
from regard.predictor import Result, text_data


@dataclass(frozen=True)
class Translation(Result):
    """One translation. `score` ranks (length penalty included), `log_probability` is the model's own."""

    source: str
    text: str
    score: float
    log_probability: float
    ids: tuple[int, ...]
    tokens: tuple[str, ...]  # what each id reads as
    token_log_probabilities: tuple[float, ...]  # one for each token, then that of the end
    alternatives: tuple[Translation, ...] = ()
    attention: SentenceAttention | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return brief(self, quoted(self.text), score=self.score)

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {
            "source": self.source,
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
            "token_log_probabilities": self.token_log_probabilities,
        }
        return text_data(found, self.alternatives, self.attention)


@dataclass(frozen=True)
class PairScore(Result):
    """The probability that a model gives to a given translation."""

    source: str
    target: str
    log_probability: float
    tokens: int  # end included

    @property
    def perplexity(self) -> float:
        return float(torch.tensor(-self.log_probability / self.tokens).exp())

    def data(self) -> dict[str, JSON]:
        return {
            "source": self.source,
            "target": self.target,
            "log_probability": self.log_probability,
            "token_count": self.tokens,
            "perplexity": self.perplexity,
        }
