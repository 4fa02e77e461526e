"""Documents of ids as a stream: what stands around each, and how the stream is cut into what a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from regard.data.stream import TokenStream
from regard.models.configs.pixels import BEFORE
from regard.tokens import TextTokenizer
from regard.tokens.config import TokensConfig
from regard.tokens.pixels import NO_LABEL, with_label


def are_pictures(tokens: TokensConfig | None) -> bool:
    """Whether tokens are pixels."""
    return tokens is not None and tokens.kind == "pixels"


def around(tokenizer: TextTokenizer, tokens: TokensConfig | None) -> tuple[list[int], list[int]]:
    """The ids before and behind each document; a picture ends where its pixels do."""
    return [tokenizer.specials.begin], [] if are_pictures(tokens) else [tokenizer.specials.end]


def as_written(stream: TokenStream, tokens: TokensConfig | None) -> TokenStream:
    """The stream, which knows where labels of sounds stand, or which of its tokens are a picture."""
    if tokens is not None and tokens.kind == "samples":
        return replace(stream, labels_from=tokens.labels_from)
    if tokens is not None and tokens.kind == "pixels" and tokens.side is not None:
        return replace(stream, whole=BEFORE + tokens.side**2, given=BEFORE - 1)
    return stream


def encode_texts(tokenizer: TextTokenizer, texts: Sequence[str], tokens: TokensConfig | None) -> list[list[int]]:
    """The ids of texts; a picture has a label before its pixels: none, if it has none or one that the model does not know."""
    if not are_pictures(tokens):
        return tokenizer.encode_all(texts)
    nothing = tokenizer.encode(NO_LABEL)
    found = tokenizer.encode_all([with_label(text) for text in texts])
    return [nothing + ids[1:] if ids[0] == tokenizer.specials.unknown else ids for ids in found]


def stream_of(
    tokenizer: TextTokenizer, texts: Sequence[str], tokens: TokensConfig | None, vocabulary: int
) -> TokenStream:
    """Texts one after the other, as in training."""
    before, behind = around(tokenizer, tokens)
    ids = [np.array([*before, *each, *behind]) for each in encode_texts(tokenizer, texts, tokens)]
    return as_written(TokenStream(np.concatenate(ids), vocabulary), tokens)
