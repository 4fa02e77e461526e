"""How sequences are searched. No torch here."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from pydantic import Field, model_validator

from regard.config import StrictConfig
from regard.errors import UsageError, nearest

Engine = Literal["regard", "ctranslate2"]  # what computes a search
ENGINES: tuple[Engine, ...] = ("regard", "ctranslate2")
Weights = Literal["float32", "int8"]  # what a search multiplies by
WEIGHTS: tuple[Weights, ...] = ("float32", "int8")
LEAST_TEMPERATURE = 0.01  # below, a sample is the greedy choice in all but name, and 1 / temperature overflows


def check_engine(name: str) -> None:
    """Refuse a name that no engine has."""
    if name not in ENGINES:
        raise UsageError(f"no engine {name}", nearest(name, ENGINES))


def check_weights(name: str) -> None:
    """Refuse a name that no kind of weights has."""
    if name not in WEIGHTS:
        raise UsageError(f"no weights {name}", nearest(name, WEIGHTS))


class DecodeOptions(TypedDict, total=False):
    """The keys of `DecodeConfig` as keyword arguments of predictors: those that are given lie over the bundle's own."""

    beam: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    length_penalty: Literal["gnmt", "power", "none"]
    alpha: float
    stopping: Literal["exact", "early"]
    n_best: int
    min_length: int
    max_length: int | None
    max_ratio: float
    max_extra: int
    softness: float
    scores: bool
    batch_sentences: int
    batch_tokens: int


class DecodeConfig(StrictConfig):
    """Options of `regard.decode.search.generate`: which sequences are looked for, how long, and how many at once."""

    beam: int = Field(5, ge=1, description="Hypotheses kept for each source; 1 is greedy search; unused when sampling.")
    sample: bool = Field(False, description="Draw tokens at random instead of searching for the most likely ones.")
    temperature: float = Field(
        1.0, description="Logits are divided by it before a draw; under 1 is more cautious, 0 is greedy."
    )
    top_k: int = Field(0, ge=0, description="Draw among this many of the most likely tokens; 0 is all of them.")
    top_p: float = Field(1.0, gt=0, le=1, description="Draw among the fewest tokens that have this probability in all.")
    min_p: float = Field(
        0.0, ge=0, lt=1, description="Draw among the tokens at least so likely as this share of the likeliest."
    )
    seed: int = Field(0, ge=0, description="Seed of the draws; each source has its own stream of numbers under it.")
    length_penalty: Literal["gnmt", "power", "none"] = Field(
        "gnmt",
        description="What log-probability is divided by in ranking: ((5 + length) / 6)^alpha, length^alpha, or 1.",
    )
    alpha: float = Field(0.6, ge=0, le=10, description="Exponent of the length penalty; more favours long sequences.")
    stopping: Literal["exact", "early"] = Field(
        "exact",
        description="End a beam search when nothing unfinished can still win, or early, once `beam` sequences ended.",
    )
    n_best: int = Field(1, ge=1, description="Sequences returned for each source (when sampling: how many are drawn).")
    min_length: int = Field(0, ge=0, description="Tokens before the end token is allowed.")
    max_length: int | None = Field(None, ge=0, description="Most tokens, end not counted; unset: the two keys below.")
    max_ratio: float = Field(2.0, ge=0, description="Without max_length, most tokens for each token of the source.")
    max_extra: int = Field(20, ge=0, description="Without max_length, tokens allowed beyond that ratio.")
    softness: float = Field(
        1.0, ge=0, description="Temperature of each look at the source; 0 is hard: only the best position is seen."
    )
    scores: bool = Field(
        True, description="How likely what is written is; who does not ask gets it faster by greedy search (NaN then)."
    )
    batch_sentences: int = Field(64, ge=1, description="Most sources decoded together.")
    batch_tokens: int = Field(4096, ge=1, description="Most source positions decoded together, padding included.")

    @model_validator(mode="before")
    @classmethod
    def _cold_is_greedy(cls, values: Any) -> Any:
        """A temperature of 0 is the most likely token at each step, whatever else would shape a draw."""
        if not isinstance(values, dict) or values.get("temperature") not in (0, 0.0):
            return values
        if isinstance(count := values.get("n_best"), int) and count > 1:
            raise ValueError(
                f"temperature 0 is greedy and finds one sequence, not n_best {count}; leave temperature out for the "
                f"{count} best of a beam, or make it more than 0 for {count} samples"
            )
        return {**values, "sample": False, "beam": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}

    @model_validator(mode="after")
    def _options_agree(self) -> DecodeConfig:
        if self.temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature {self.temperature:g} is under {LEAST_TEMPERATURE}; for the most likely token at each "
                "step use greedy search: temperature 0, or sample = false and beam = 1"
            )
        if not self.sample and (self.temperature != 1 or self.top_k or self.top_p != 1 or self.min_p):
            raise ValueError(
                "temperature, top_k, top_p and min_p shape random draws; set sample = true, or leave them out"
            )
        if not self.sample and self.n_best > self.beam:
            raise ValueError(f"n_best {self.n_best} is more than beam {self.beam}; set beam = {self.n_best} or more")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is more than max_length {self.max_length}")
        return self

    def limit_for(self, source_length: int) -> int:
        """Most tokens to produce for a source of this many tokens, the end token not counted."""
        if self.max_length is not None:
            return self.max_length
        return max(self.min_length, int(self.max_ratio * source_length) + self.max_extra)
