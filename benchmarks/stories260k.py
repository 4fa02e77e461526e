"""The llama2.c model stories260K, imported, against a forward pass in NumPy that shares nothing with the package.

    REGARD_DATA=... python benchmarks/stories260k.py [--tokens 200]

`REGARD_DATA` holds stories260k/stories260K.bin and stories260k/tok512.bin. The reference is written from the description
of llama2.c: weights as they lie in the file, rotary positions of neighbours (2i, 2i + 1), float32, keys and values of all
positions computed anew at every step. Regard's model decodes with its cache, token by token.
Prints the story, whether all tokens are equal, and the largest difference of logits; and whether the tokenizer encodes as
the plain algorithm does, on many texts. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import find_file
from regard.interop import import_llama2c

BEGIN = 1
ALLOWED = 1e-3  # of logits, in float32

Array = np.ndarray[Any, np.dtype[np.float32]]


class Reference:
    """llama2.c in NumPy."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        self.dim, self.hidden, self.layers, self.heads, self.kv_heads, vocab, self.length = struct.unpack(
            "<7i", data[:28]
        )
        self.values, self.at = np.frombuffer(data, "<f4", offset=28), 0
        n, d, h, size = self.layers, self.dim, self.hidden, self.dim // self.heads
        self.size = size
        self.table = self.take(abs(vocab), d)
        self.norm_attention = self.take(n, d)
        self.wq, self.wk = self.take(n, d, d), self.take(n, self.kv_heads * size, d)
        self.wv, self.wo = self.take(n, self.kv_heads * size, d), self.take(n, d, d)
        self.norm_feed_forward = self.take(n, d)
        self.w1, self.w2, self.w3 = self.take(n, h, d), self.take(n, d, h), self.take(n, h, d)
        self.norm_last = self.take(d)
        self.cosine, self.sine = self.take(self.length, size // 2), self.take(self.length, size // 2)
        self.output = self.table if vocab > 0 else self.take(abs(vocab), d)
        assert self.at == len(self.values)

    def take(self, *shape: int) -> Array:
        start, self.at = self.at, self.at + int(np.prod(shape))
        return self.values[start : self.at].reshape(shape)

    def logits(self, ids: list[int]) -> Array:
        """Of the token after the last: (V,)."""
        x = self.table[ids]  # (T, D)
        for n in range(self.layers):
            x = x + self.attention(rms(x, self.norm_attention[n]), n) @ self.wo[n].T
            y = rms(x, self.norm_feed_forward[n])
            gate = y @ self.w1[n].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ self.w3[n].T)) @ self.w2[n].T
        return rms(x[-1], self.norm_last) @ self.output.T

    def attention(self, y: Array, n: int) -> Array:
        rows = len(y)
        q = self.turn((y @ self.wq[n].T).reshape(rows, self.heads, self.size))
        k = self.turn((y @ self.wk[n].T).reshape(rows, self.kv_heads, self.size))
        v = (y @ self.wv[n].T).reshape(rows, self.kv_heads, self.size)
        out = np.empty_like(q)
        later = np.triu(np.ones((rows, rows), dtype=bool), 1)
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(np.float32(self.size))
            scores[later] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, shared]
        return out.reshape(rows, -1)

    def turn(self, x: Array) -> Array:
        """Neighbours (2i, 2i + 1) of each head, by the tables of the file."""
        cosine, sine = self.cosine[: len(x), None], self.sine[: len(x), None]
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = np.empty_like(x)
        turned[..., 0::2], turned[..., 1::2] = even * cosine - odd * sine, even * sine + odd * cosine
        return turned


def rms(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * weight


class ReferenceTokens:
    """llama2.c's encoder: characters or bytes, then the best-scoring neighbours, again and again."""

    def __init__(self, path: Path) -> None:
        data, at = path.read_bytes(), 4
        self.scores: list[float] = []
        self.tokens: list[bytes] = []
        while at < len(data):
            score, length = struct.unpack_from("<fi", data, at)
            self.scores.append(score)
            self.tokens.append(data[at + 8 : at + 8 + length])
            at += 8 + length
        self.ids = {token: number for number, token in enumerate(self.tokens)}

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for character in " " + text if text else "":
            encoded = character.encode()
            ids += [self.ids[encoded]] if encoded in self.ids else [byte + 3 for byte in encoded]
        while True:
            best, place = -1e10, -1
            for at in range(len(ids) - 1):
                merged = self.ids.get(self.tokens[ids[at]] + self.tokens[ids[at + 1]])
                if merged is not None and self.scores[merged] > best:
                    best, place = self.scores[merged], at
            if place < 0:
                return ids
            ids[place : place + 2] = [self.ids[self.tokens[ids[place]] + self.tokens[ids[place + 1]]]]


def odd_texts(count: int) -> list[str]:
    draw = random.Random(5)
    letters = "aeiouthsndlry  .,!?'\"\n\t“”’é日👩‍🇫🇮ABT" + "the and Lily was "
    made = ["".join(draw.choices(letters, k=draw.randrange(60))) for _ in range(count)]
    return ["", " ", "  two  spaces  ", "Once upon a time, there was a little girl.", "<s> </s> <unk> <0x0A>", *made]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--tiny", action="store_true", help="a model with random weights, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            return compare(*made(Path(folder)), 9, 20)
    if not os.environ.get("REGARD_DATA"):
        print("REGARD_DATA names no folder; it should hold stories260k/stories260K.bin", file=sys.stderr)
        return 2
    weights, tokens = find_file("stories260k/stories260K.bin"), find_file("stories260k/tok512.bin")
    return compare(weights, tokens, options.tokens, options.texts)


def made(folder: Path) -> tuple[Path, Path]:
    """Files of a model with random weights, and of its tokenizer: bytes, letters, and some pairs of them."""
    draw = np.random.default_rng(3)
    letters = [*"abcdefghilnorstuwy .,", " a", "th", "the", " the", "an", "and"]
    tokens = [
        b"<unk>",
        b"<s>",
        b"</s>",
        *(f"<0x{byte:02X}>".encode() for byte in range(256)),
        *map(str.encode, letters),
    ]
    dim, hidden, layers, heads, groups, vocabulary, length = 16, 24, 2, 4, 2, len(tokens), 32
    with (folder / "tok.bin").open("wb") as file:
        file.write(struct.pack("<i", 8))
        for number, token in enumerate(tokens):
            file.write(struct.pack("<fi", -float(number), len(token)) + token)
    turns = np.arange(length)[:, None] / 10_000 ** (np.arange(0, dim // heads, 2) / (dim // heads))  # (length, E / 2)
    key_width = groups * dim // heads
    sizes = vocabulary * dim + layers * (2 * dim + 2 * dim * dim + 2 * key_width * dim + 3 * dim * hidden) + dim
    values = np.concatenate([draw.normal(0, 0.3, sizes), np.cos(turns).ravel(), np.sin(turns).ravel()]).astype("<f4")
    header = struct.pack("<7i", dim, hidden, layers, heads, groups, vocabulary, length)
    (folder / "model.bin").write_bytes(header + values.tobytes())
    return folder / "model.bin", folder / "tok.bin"


@torch.inference_mode()
def compare(weights: Path, tokens: Path, count: int, many: int) -> int:
    """Both on `count` tokens and `many` texts; the exit code."""
    reference, bundle = Reference(weights), import_llama2c(weights, tokens)
    model: Any = bundle.model
    logits, state = model.start(None, torch.tensor([[BEGIN]]))
    theirs, ours, apart = [BEGIN], [BEGIN], 0.0
    for _ in range(count):
        wanted, found = reference.logits(theirs), logits[0, 0].numpy()
        apart = max(apart, float(np.abs(wanted - found).max()))
        theirs.append(int(wanted.argmax()))
        ours.append(int(found.argmax()))
        logits, state = model.step(torch.tensor([ours[-1:]]), state)
    print(bundle.tokenizer.decode(ours))
    same = ours == theirs and apart < ALLOWED
    print(f"{count} tokens, equal: {same}, largest difference of logits: {apart:.2g}")
    plain, texts = ReferenceTokens(tokens), odd_texts(many)
    wrong = [text for text in texts if plain.encode(text) != bundle.tokenizer.encode(text)]
    lost = [text for text in texts if bundle.tokenizer.decode(bundle.tokenizer.encode(text)) != text]
    print(
        f"{len(texts)} texts, encoded otherwise: {len(wrong)}, not given back: {len(lost)} {(wrong + lost)[:1] or ''}"
    )
    return 0 if same and not wrong and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
