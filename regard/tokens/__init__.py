"""Text <-> ids."""

from regard.tokens.config import TokensConfig
from regard.tokens.pair import TokenizerPair
from regard.tokens.tokenizer import BEGIN, END, PAD, SPECIAL, UNKNOWN, TextTokenizer, as_arrays, train_tokenizer

__all__ = [
    "BEGIN",
    "END",
    "PAD",
    "SPECIAL",
    "UNKNOWN",
    "TextTokenizer",
    "TokenizerPair",
    "TokensConfig",
    "as_arrays",
    "train_tokenizer",
]
