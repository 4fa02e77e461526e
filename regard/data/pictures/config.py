"""Where pictures come from, with labels, captions or questions, and how they are made to fit. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regard.config import StrictConfig
from regard.data.config import Names
from regard.data.pictures.augment_config import AugmentConfig


class SeenConfig(StrictConfig):
    """What all sets of pictures share."""

    size: int | None = Field(
        None, ge=4, description="Height and width that a model sees; without, those of the pictures if all are small."
    )
    fit: Literal["crop", "pad", "squash"] = Field(
        "crop", description="A photo that is no square: its middle is cut out, borders are added, or it is squeezed."
    )
    augment: AugmentConfig = Field(AugmentConfig(), description="How training pictures are varied.")
    hold_out: int = Field(1000, ge=1, description="Most pictures held out for validation when there is no valid set.")
    builtin_size: int = Field(20_000, ge=10, description="Training pictures drawn for built-in data.")


class PicturesConfig(SeenConfig):
    """Labelled pictures: a folder with a class a folder, MNIST's idx files, CIFAR's rows, or builtin/glyphs."""

    train: Names = Field(
        ("builtin/glyphs",), min_length=1, description="Training pictures: a folder, two idx files, or builtin/glyphs."
    )
    valid: Names = Field((), description="Validation pictures; without them some training pictures are held out.")


class CaptionsConfig(SeenConfig):
    """Pictures with captions: .jsonl, .csv or .tsv (each may be gzipped), or builtin/shapes."""

    train: Names = Field(
        ("builtin/shapes",), min_length=1, description="Pictures and captions to learn from, or builtin/shapes."
    )
    valid: Names = Field((), description="Validation captions; without them some training pictures are held out.")
    max_length: int = Field(64, ge=3, description="Longest training caption, in tokens; longer ones are left out.")


class QuestionsConfig(SeenConfig):
    """Pictures with questions and answers: .jsonl or .csv (each may be gzipped), or builtin/shapes."""

    train: Names = Field(
        ("builtin/shapes",), min_length=1, description="Pictures, questions and answers, or builtin/shapes."
    )
    valid: Names = Field((), description="Validation questions; without them some training pictures are held out.")
    max_length: int = Field(64, ge=2, description="Longest question, in tokens; of longer ones the first are kept.")
