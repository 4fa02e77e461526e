"""llama2.c's files: weights of version 0, one float32 after another behind a header of seven integers.

Its rotary positions turn neighbours (2i, 2i + 1) of a head; ours turn (i, i + E/2), so the rows of queries and keys are
put in that order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from torch import Tensor

from regard.bundle import Bundle
from regard.config import check
from regard.errors import RegardError, UsageError
from regard.interop import llama
from regard.interop.family import assemble
from regard.models.config import LlamaConfig
from regard.tokens import TextTokenizer

HEADER = np.dtype("<i4")
NUMBERS = 7
LATER = 0x616B3432  # "ak42", with which files of version 1 and later begin
EPSILON = 1e-5  # what its norms add


@dataclass(frozen=True)
class Header:
    width: int
    feed_forward: int
    layers: int
    heads: int
    groups: int
    vocabulary: int
    length: int
    tied: bool

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor of the file, in its order; layers are stacked."""
        d, f, n, e = self.width, self.feed_forward, self.layers, self.head_width
        shapes = {
            "table": (self.vocabulary, d),
            "input_layernorm": (n, d),
            "self_attn.q_proj": (n, d, d),
            "self_attn.k_proj": (n, self.groups * e, d),
            "self_attn.v_proj": (n, self.groups * e, d),
            "self_attn.o_proj": (n, d, d),
            "post_attention_layernorm": (n, d),
            "mlp.gate_proj": (n, f, d),
            "mlp.down_proj": (n, d, f),
            "mlp.up_proj": (n, f, d),
            "norm": (d,),
            "cosines": (self.length, e // 2),
            "sines": (self.length, e // 2),
        }
        return shapes if self.tied else shapes | {"output": (self.vocabulary, d)}


def import_llama2c(weights: str | Path, tokens: str | Path | None = None) -> Bundle:
    """The model of a .bin file, with the tokenizer beside it (tok512.bin for 512 tokens, or tokenizer.bin) or as named."""
    path = Path(weights)
    header = _read_header(path)
    config = check(
        LlamaConfig,
        {
            "layers": header.layers,
            "width": header.width,
            "heads": header.heads,
            "groups": 0 if header.groups == header.heads else header.groups,
            "feed_forward": header.feed_forward,
            "max_length": header.length,
            "dropout": 0.0,
            "epsilon": EPSILON,
            "tied": header.tied,
        },
        str(path),
    )
    tokenizer = read_tokens(_beside(path, header) if tokens is None else Path(tokens), header.vocabulary)
    tensors = dict(_tensors(path, header))
    return assemble(llama.FAMILY, config, header.vocabulary, tensors, TextTokenizer(tokenizer), str(path))


def halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head (2i, 2i + 1) -> (i, i + E/2): (H E, D) -> (H E, D)."""
    pairs = weight.unflatten(0, (heads, -1, 2))  # (H, E / 2, 2, D)
    return pairs.transpose(1, 2).reshape(weight.shape)


def _read_header(path: Path) -> Header:
    """The sizes, checked against each other and against the length of the file before anything else is read."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    size = path.stat().st_size
    if size < NUMBERS * HEADER.itemsize:
        raise RegardError(f"{path} has {size} bytes, too few for the header of llama2.c", "copy it again")
    numbers = [int(number) for number in np.fromfile(path, HEADER, NUMBERS)]
    if numbers[0] == LATER:
        raise RegardError(
            f"{path} is of llama2.c's version {numbers[1]}", "only 0 is read: python export.py --version 0"
        )
    width, feed_forward, layers, heads, groups, vocabulary, length = numbers
    header = Header(width, feed_forward, layers, heads, groups, abs(vocabulary), length, tied=vocabulary > 0)
    if (
        min(width, feed_forward, layers, heads, groups, abs(vocabulary), length) < 1
        or width % (2 * heads)
        or heads % groups
    ):
        raise RegardError(f"{path} is not a file of llama2.c: its header says {numbers}")
    wanted = NUMBERS * HEADER.itemsize + 4 * sum(math.prod(shape) for shape in header.shapes.values())
    if size != wanted:
        raise RegardError(f"{path} has {size:,} bytes, and its header {numbers} asks for {wanted:,}", "copy it again")
    return header


def _tensors(path: Path, header: Header) -> Iterator[tuple[str, Tensor]]:
    """Every tensor under the name that the table of LLaMA has."""
    numbers, start = np.fromfile(path, "<f4", offset=NUMBERS * HEADER.itemsize), 0
    names = {"table": llama.TABLE, "norm": "model.norm.weight", "output": "lm_head.weight"}
    turned = {"self_attn.q_proj": header.heads, "self_attn.k_proj": header.groups}
    for name, shape in header.shapes.items():
        end = start + math.prod(shape)
        whole = torch.from_numpy(numbers[start:end]).view(shape)
        start = end
        if name in names:
            yield names[name], whole
        elif name not in ("cosines", "sines"):
            for number, weight in enumerate(whole):
                weight = halves(weight, turned[name]) if name in turned else weight
                yield f"model.layers.{number}.{name}.weight", weight


def _beside(path: Path, header: Header) -> Path:
    names = (f"tok{header.vocabulary}.bin", "tokenizer.bin")
    found = [path.with_name(name) for name in names if path.with_name(name).is_file()]
    if not found:
        raise RegardError(f"there is no tokenizer beside {path}: put {' or '.join(names)} there")
    return found[0]


UNKNOWN, BEGIN, END, FIRST_BYTE = 0, 1, 2, 3
PLAIN = FIRST_BYTE + 256  # tokens from here on are text
NAMES = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)))


def read_tokens(path: Path, vocabulary: int) -> Tokenizer:
    """The tokenizer of a file that holds exactly `vocabulary` tokens."""
    scores, texts = _read(path, vocabulary)
    names = [*NAMES, *texts]
    ids = {name: number for number, name in enumerate(names)}
    if len(ids) != len(names):
        raise RegardError(f"{path} names a token twice", "copy it again")
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
        raise RegardError(
            f"{path} has merged tokens of equal score, whose order cannot be kept", "it is not of llama2.c"
        )
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
            raise RegardError(f"{path} ends in the middle of token {len(tokens)}", "copy it again")
        score, length = struct.unpack_from("<fi", data, place)
        place += 8
        if length < 0 or place + length > len(data) or score != score:
            raise RegardError(f"{path} is not a tokenizer of llama2.c: token {len(tokens)} has {length} bytes")
        scores.append(score)
        tokens.append(data[place : place + length])
        place += length
    if len(tokens) != vocabulary:
        raise RegardError(
            f"{path} has {len(tokens)} tokens, and the model knows {vocabulary}", "they do not belong together"
        )
    try:
        return scores[PLAIN:], [token.decode("utf-8") for token in tokens[PLAIN:]]
    except UnicodeDecodeError as error:
        raise RegardError(f"{path} holds a token that is not UTF-8 ({error})", "it is not of llama2.c") from error
