"""How text becomes tokens. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regard.config import StrictConfig

LABELS_FROM = 260  # of samples: behind 4 special ids and 256 levels stand labels


class TokensConfig(StrictConfig):
    """The tokenizer of a run; it is trained on the training data and saved in the bundle."""

    kind: Literal["bpe", "wordpiece", "word", "space", "character", "byte", "notes", "samples", "imported"] = Field(
        "bpe",
        description="What a token is; space: what stands between white space, and line ends; notes: events of music; "
        "samples: of sound.",
    )
    size: int = Field(10_000, ge=8, description="Most tokens in a vocabulary (bpe and word).")
    joint: bool = Field(True, description="One vocabulary for both sides, or one each.")
    lowercase: bool = Field(False, description="Fold the text to lower case first (it cannot be undone).")
    normalise: Literal["none", "nfc", "nfkc"] = Field("none", description="Unicode normalisation applied first.")
    min_count: int = Field(2, ge=1, description="A merge (bpe) or a word (word) occurs at least so often.")
    sample: int = Field(
        32_000_000, ge=1000, description="Most characters that it learns from; of more text, a seeded sample."
    )
    rate: int | None = Field(None, ge=1, description="Samples a second (samples); the data say it (data.rate).")
