"""How finely files that are no text are read: samples of sounds, pixels and grey levels of pictures. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.tokens.config import TokensConfig

RATE = 8000  # samples a second


@dataclass(frozen=True)
class Form:
    """What a reader of files is told of how it should read them."""

    rate: int = RATE  # samples a second of sounds
    side: int | None = None  # pixels of a picture's height and width; None: as many as the pictures have
    levels: int = 2  # grey levels of a pixel


def form_of(tokens: TokensConfig | None) -> Form:
    """The form of the files that a model was made for."""
    if tokens is None:
        return Form()
    return Form(tokens.rate or RATE, tokens.side, tokens.levels or 2)


def is_packed(path: Path) -> bool:
    """Whether it is MNIST's or CIFAR's kind of file, or a folder of MNIST's: many pictures in one file."""
    if path.is_dir():
        return any(path.glob("*-idx3-ubyte*"))
    return "-ubyte" in path.name or ("_batch" in path.stem and path.suffix in (".bin", ".png"))


def in_sets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Names of data, those together that are read together: packed pictures and what has their labels; else each alone."""
    held: tuple[str, ...] = ()
    for name in names:
        if held and _goes_with(Path(held[-1]), Path(name)):
            held = (*held, name)
            continue
        if held:
            yield held
        held = (name,)
    if held:
        yield held


def _goes_with(before: Path, file: Path) -> bool:
    if "idx3-ubyte" in before.name:
        return "idx1-ubyte" in file.name
    return is_packed(before) and (
        file.suffix == ".json" if before.suffix == ".png" else before.suffix == file.suffix == ".bin"
    )
