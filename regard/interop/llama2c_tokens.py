"""llama2.c's tokenizer file as a tokenizer of ours: a BPE that merges whatever has the highest score.

The file: the longest token's length, then of each token its score (float32), its length (int32) and its bytes. A text
begins with a space that is not there; characters that are no tokens fall back to the bytes <0x00> .. <0xFF>.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, processors

from regard.errors import RegardError

UNKNOWN, BEGIN, END, FIRST_BYTE = 0, 1, 2, 3
PLAIN = FIRST_BYTE + 256  # tokens from here on are text
NAMES = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)))


def read_tokens(path: Path, vocabulary: int) -> Tokenizer:
    """The tokenizer of a file that holds exactly `vocabulary` tokens."""
    scores, texts = _read(path, vocabulary)
    names = [*NAMES, *texts]
    ids = {name: number for number, name in enumerate(names)}
    if len(ids) != len(names):
        raise RegardError(f"{path} names a token twice; copy it again")
    pairs = _merges(path, dict(zip(texts, scores, strict=True)))
    tokenizer = Tokenizer(
        models.BPE(vocab=ids, merges=pairs, unk_token=NAMES[UNKNOWN], byte_fallback=True, fuse_unk=False)
    )
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(list(NAMES[:FIRST_BYTE]))
    begin = NAMES[BEGIN]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[begin, "$A"], pair=[begin, "$A", begin, "$B"], special_tokens=[(begin, BEGIN)]
    )
    return tokenizer


def _merges(path: Path, scores: dict[str, float]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the token with the highest score first.

    Of two places for tokens of equal score llama2.c takes the left one, and a list of merges cannot say that.
    """
    made = {token: list(_halves(token, scores)) for token in scores}
    made = {token: pairs for token, pairs in made.items() if pairs}
    ranked = sorted(made, key=lambda token: -scores[token])
    if len({scores[token] for token in made}) != len(made):
        raise RegardError(f"{path} has merged tokens of equal score, whose order cannot be kept; it is not of llama2.c")
    return [pair for token in ranked for pair in made[token]]


def _halves(token: str, known: dict[str, float]) -> Iterator[tuple[str, str]]:
    for cut in range(1, len(token)):
        if token[:cut] in known and token[cut:] in known:
            yield token[:cut], token[cut:]


def _read(path: Path, vocabulary: int) -> tuple[list[float], list[str]]:
    """Score and text of every token that is text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
    if vocabulary < PLAIN:
        raise RegardError(f"{path}: a model of {vocabulary} tokens has no room for {PLAIN} special tokens and bytes")
    scores: list[float] = []
    tokens: list[bytes] = []
    place = 4
    while place < len(data):
        if place + 8 > len(data):
            raise RegardError(f"{path} ends in the middle of token {len(tokens)}; copy it again")
        score, length = struct.unpack_from("<fi", data, place)
        place += 8
        if length < 0 or place + length > len(data) or score != score:
            raise RegardError(f"{path} is not a tokenizer of llama2.c: token {len(tokens)} has {length} bytes")
        scores.append(score)
        tokens.append(data[place : place + length])
        place += length
    if len(tokens) != vocabulary:
        raise RegardError(
            f"{path} has {len(tokens)} tokens, and the model knows {vocabulary}; they do not belong together"
        )
    try:
        return scores[PLAIN:], [token.decode("utf-8") for token in tokens[PLAIN:]]
    except UnicodeDecodeError as error:
        raise RegardError(f"{path} holds a token that is not UTF-8 ({error}); it is not of llama2.c") from error
