"""Which files are pictures, where they come from, with labels, captions or questions, and how they fit. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field

from regard.config import StrictConfig
from regard.data.config import MIX, OLD, Names, OldData

_COMMON = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".webp", ".tif", ".tiff", ".avif")
SUFFIXES = frozenset((*_COMMON, ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm"))
LOOKED_AT = 50  # files of a folder that are looked at to tell what it holds


def is_picture(path: Path | str) -> bool:
    return Path(path).suffix.lower() in SUFFIXES


def are_pictures(names: Sequence[str]) -> bool:
    """Whether these are sets of pictures with labels: built-in ones, files of MNIST's or CIFAR's kind, folders of pictures."""
    return any(name == "builtin/glyphs" or _packs_pictures(Path(name)) or _holds_pictures(Path(name)) for name in names)


def _packs_pictures(file: Path) -> bool:
    return "-ubyte" in file.name or file.suffix == ".bin"


def _holds_pictures(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    if any(folder.glob("*-idx3-ubyte*")):
        return True
    return any(is_picture(file) for file in islice(folder.glob("*/*"), LOOKED_AT))


class PictureFormat(StrictConfig):
    """Pictures of `size` x `size` pixels as bytes 0 .. 255; a model sees (byte / 255 - mean) / deviation, by channel."""

    size: int = Field(32, ge=1, description="Height and width in pixels.")
    channels: Literal[1, 3] = Field(3, description="1: grey, 3: red, green and blue.")
    fit: Literal["crop", "pad", "squash"] = Field(
        "crop", description="A photo that is no square: its middle is cut out, borders are added, or it is squeezed."
    )
    resample: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = Field(
        "bicubic", description="How pixels are computed when a photo is made smaller or larger."
    )
    mean: tuple[float, ...] = Field((0.5,), description="Mean of each channel (or of all), from 0 to 1.")
    deviation: tuple[float, ...] = Field((0.25,), description="Standard deviation of each channel (or of all).")


class AugmentConfig(StrictConfig):
    """Every picture of a batch is changed in its own way, in this order; with the defaults it stays as it is."""

    crop: int = Field(
        0, ge=0, le=256, description="Pixels added on every side by reflection, of which a random window is cut."
    )
    flip: bool = Field(
        False, description="Left and right are swapped, half of the time; not for letters, nor where words tell sides."
    )
    colour: float = Field(
        0.0, ge=0, le=1, description="Brightness, contrast and saturation change by factors of 1 - c to 1 + c."
    )
    erase: float = Field(
        0.0, ge=0, le=1, description="Probability that a rectangle is filled with noise (Zhong et al. 2020)."
    )
    mixup: float = Field(
        0.0, ge=0, le=16, description="α: pictures and labels are mixed, by shares from Beta(α, α) (Zhang et al. 2018)."
    )


class SeenConfig(StrictConfig):
    """The base of every configuration of a set of pictures."""

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
    old: OldData = Field((), description=OLD)
    mix: float = Field(0.5, ge=0, lt=1, description=MIX)


class QuestionsConfig(SeenConfig):
    """Pictures with questions and answers: .jsonl or .csv (each may be gzipped), or builtin/shapes."""

    train: Names = Field(
        ("builtin/shapes",), min_length=1, description="Pictures, questions and answers, or builtin/shapes."
    )
    valid: Names = Field((), description="Validation questions; without them some training pictures are held out.")
    max_length: int = Field(64, ge=2, description="Longest question, in tokens; of longer ones the first are kept.")
    together: int = Field(
        1, ge=1, description="Questions about one picture that come in one batch, so that it is looked at once for all."
    )
