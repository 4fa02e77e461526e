"""What a language model gives: a text that goes on, and how probable a given text is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from regard.brief import brief, quoted
from regard.files import JSON
from regard.look import SentenceAttention
from regard.predictor import Result, text_data


@dataclass(frozen=True)
class Generated(Result):
    """A text that was added to a prompt."""

    prompt: str
    text: str  # what was added to it
    score: float
    log_probability: float
    tokens: tuple[str, ...]  # what each new id reads as
    token_log_probabilities: tuple[float, ...]
    finished: bool  # False: the length limit ended it
    ids: tuple[int, ...] = ()  # of what was added
    alternatives: tuple[Generated, ...] = ()
    attention: SentenceAttention | None = None  # of the prompt and what was added to it
    answers: bool = False  # whether the text answers the prompt, and does not go on with it

    def __str__(self) -> str:
        return self.text if self.answers else self.prompt + self.text

    def __repr__(self) -> str:
        return brief(self, quoted(str(self)), score=self.score)

    def each(self) -> tuple[Generated, ...]:
        """This and the alternatives, the best first, each by itself."""
        return replace(self, alternatives=()), *self.alternatives

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {
            "prompt": self.prompt,
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
            "token_log_probabilities": self.token_log_probabilities,
            "finished": self.finished,
        }
        return text_data(found, self.alternatives, self.attention)


@dataclass(frozen=True)
class TextScore(Result):
    """The probability that a model gives to a given text."""

    text: str
    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return math.exp(-self.log_probability / max(1, self.tokens))

    @property
    def bits_per_byte(self) -> float:
        return -self.log_probability / math.log(2) / max(1, len(self.text.encode()))

    def data(self) -> dict[str, JSON]:
        return {
            "text": self.text,
            "log_probability": self.log_probability,
            "token_count": self.tokens,
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits_per_byte,
        }
