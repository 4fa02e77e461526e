"""How text becomes tokens. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regard.config import StrictConfig

SPECIALS = 4  # special ids, before all others
LABELS_FROM = SPECIALS + 256  # of samples: behind special ids and levels stand labels; of pixels too, see `labels_from`


class TokensConfig(StrictConfig):
    """The tokenizer of a run; it is trained on the training data and saved in the bundle."""

    kind: Literal[
        "bpe", "wordpiece", "word", "space", "character", "byte", "notes", "samples", "pixels", "imported"
    ] = Field(
        "bpe",
        description="What a token is; space: what stands between white space, and line ends; notes: events of music; "
        "samples: of sound; pixels: of pictures.",
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
    side: int | None = Field(None, ge=1, description="Pixels of a row (pixels); the data say it (data.side).")
    levels: int | None = Field(
        None, ge=2, description="Grey levels of a pixel (pixels); the data say it (data.levels)."
    )

    @property
    def labels_from(self) -> int | None:
        """From which id on tokens are labels of what they stand before; None: there are none."""
        if self.kind == "samples":
            return LABELS_FROM
        return None if self.kind != "pixels" or self.levels is None else SPECIALS + self.levels
