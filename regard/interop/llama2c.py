"""llama2.c's files: weights of version 0, one float32 after another behind a header of seven integers.

Its rotary positions turn neighbours (2i, 2i + 1) of a head; ours turn (i, i + E/2), so the rows of queries and keys are
put in that order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.config import check
from regard.errors import RegardError, UsageError
from regard.interop import llama
from regard.interop.family import assemble
from regard.interop.llama2c_tokens import read_tokens
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
        """Of every stretch of the file, in its order; layers are stacked."""
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
        raise RegardError(f"{path} has {size} bytes, too few for the header of llama2.c; copy it again")
    numbers = [int(number) for number in np.fromfile(path, HEADER, NUMBERS)]
    if numbers[0] == LATER:
        raise RegardError(f"{path} is of llama2.c's version {numbers[1]}; only 0 is read: python export.py --version 0")
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
        raise RegardError(f"{path} has {size:,} bytes, and its header {numbers} asks for {wanted:,}; copy it again")
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
