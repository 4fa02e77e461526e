"""Text <-> ids."""

from regard.tokens.config import TokensConfig
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
