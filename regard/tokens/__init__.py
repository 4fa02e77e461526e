"""Text <-> ids. Only the configuration is imported at once; what needs the library tokenizers, when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

from regard.tokens.config import TokensConfig

if TYPE_CHECKING:
    from regard.tokens.pair import TokenizerPair
    from regard.tokens.tokenizer import (
        BEGIN,
        END,
        MASK,
        PAD,
        SPECIAL,
        UNKNOWN,
        Specials,
        TextTokenizer,
        as_arrays,
        named_special,
        specials_of,
        train_tokenizer,
    )

__all__ = [
    "BEGIN",
    "END",
    "MASK",
    "PAD",
    "SPECIAL",
    "UNKNOWN",
    "Specials",
    "TextTokenizer",
    "TokenizerPair",
    "TokensConfig",
    "as_arrays",
    "named_special",
    "specials_of",
    "train_tokenizer",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"regard.tokens has no {name}")
    home = "pair" if name == "TokenizerPair" else "tokenizer"
    return getattr(import_module(f"regard.tokens.{home}"), name)
