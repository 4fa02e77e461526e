"""Where the pairs come from and which are left out. No torch here."""

from __future__ import annotations

from pydantic import Field, field_validator

from regard.config import StrictConfig


class PairsConfig(StrictConfig):
    """Pairs of texts. A set is one file of pairs (.tsv, .jsonl) or two parallel files; each may be gzipped."""

    train: tuple[str, ...] = Field(
        ("builtin/dates",), min_length=1, description="Training pairs: one file, two, or builtin/dates."
    )
    valid: tuple[str, ...] = Field(
        (), description="Validation pairs; without them some of the training pairs are held out."
    )
    test: tuple[str, ...] = Field((), description="Test pairs, only looked at to warn when training holds them.")
    fields: tuple[str, str] = Field(("source", "target"), description="Keys of source and target in JSONL.")
    languages: tuple[str, str] | None = Field(None, description="Language codes of source and target, such as en, de.")
    hold_out: int = Field(1000, ge=1, description="Most pairs held out for validation when there is no valid set.")
    max_length: int = Field(
        256, ge=2, description="Longest side of a training pair, in tokens; longer pairs are dropped."
    )
    max_ratio: float = Field(
        9.0, ge=1, description="Largest ratio of the two lengths in tokens, for pairs over 10 tokens."
    )
    builtin_size: int = Field(40_000, ge=1, description="Training pairs generated for builtin/dates.")

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _one_or_two(cls, value: object) -> object:
        names = (value,) if isinstance(value, str) else value
        if isinstance(names, (list, tuple)) and len(names) > 2:
            raise ValueError(f"name one file of pairs or two parallel files, not {len(names)}")
        return names
