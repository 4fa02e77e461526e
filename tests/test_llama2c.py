"""llama2.c's files: a made model against a forward pass in NumPy, a made tokenizer against the plain algorithm."""

from __future__ import annotations

import importlib.util
import math
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.bundle import load_bundle, save_bundle
from regard.errors import RegardError
from regard.interop import import_llama2c
from regard.interop.llama2c import read_tokens

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "stories260k.py"
DIM, HIDDEN, LAYERS, HEADS, GROUPS, LENGTH = 24, 37, 3, 6, 2, 31
PLAIN = 259  # tokens that are no text: unknown, begin, end, and the bytes


def reference() -> Any:
    """The benchmark's own llama2.c in NumPy, which shares nothing with the package."""
    spec = importlib.util.spec_from_file_location("stories260k", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_tokens(path: Path, texts: list[str], scores: list[float]) -> Path:
    special = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
    rows = [(0.0, name) for name in special] + [
        (score, text.encode()) for score, text in zip(scores, texts, strict=True)
    ]
    longest = max(len(name) for _, name in rows)
    path.write_bytes(
        struct.pack("<i", longest) + b"".join(struct.pack("<fi", score, len(name)) + name for score, name in rows)
    )
    return path


def made_tokens(seed: int, size: int, letters: str) -> tuple[list[str], list[float]]:
    """Letters, and tokens each made of two others; the scores come in any order."""
    draw = random.Random(seed)
    texts = list(dict.fromkeys(letters))
    while len(texts) < size:
        token = draw.choice(texts) + draw.choice(texts)
        if token not in texts and len(token) < 7:
            texts.append(token)
    scores = [-float(number) for number in range(size)]
    draw.shuffle(scores)
    return texts, scores


def write_model(path: Path, *, shared: bool = True, vocabulary: int = PLAIN + 14) -> Path:
    e = DIM // HEADS
    angles = np.arange(LENGTH)[:, None] * 10000.0 ** (-np.arange(0, e, 2) / e)
    n, kv = LAYERS, GROUPS * e
    shapes = [(vocabulary, DIM), (n, DIM), (n, DIM, DIM), (n, kv, DIM), (n, kv, DIM), (n, DIM, DIM), (n, DIM)]
    shapes += [(n, HIDDEN, DIM), (n, DIM, HIDDEN), (n, HIDDEN, DIM), (DIM,)]
    draw = np.random.default_rng(3)
    parts = [0.4 * draw.standard_normal(math.prod(shape)) for shape in shapes] + [np.cos(angles), np.sin(angles)]
    if not shared:
        parts.append(draw.standard_normal(vocabulary * DIM))
    header = struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, GROUPS, vocabulary if shared else -vocabulary, LENGTH)
    path.write_bytes(header + b"".join(part.astype("<f4").tobytes() for part in parts))
    write_tokens(path.with_name("tokenizer.bin"), *made_tokens(1, vocabulary - PLAIN, "abc é"))
    return path


@pytest.mark.parametrize("shared", [True, False])
@torch.inference_mode()
def test_logits_are_those_of_llama2c(shared: bool, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.bin", shared=shared)
    theirs, bundle = reference().Reference(path), import_llama2c(path)
    model: Any = bundle.model
    assert bundle.config.task == "generate" and model.config.tied is shared
    ids = [1, 263, 7, 270, 260, 5, 271, 265, 259, 2, 264]
    wanted = np.stack([theirs.logits(ids[:end]) for end in range(1, len(ids) + 1)])
    whole = model.output(model.read(torch.tensor([ids])))[0].numpy()
    np.testing.assert_allclose(whole, wanted, atol=1e-4)
    logits, state = model.start(None, torch.tensor([ids[:4]]))
    for place in range(4, len(ids)):
        np.testing.assert_allclose(logits[0, 0].numpy(), wanted[place - 1], atol=1e-4)
        logits, state = model.step(torch.tensor([ids[place : place + 1]]), state)


def test_it_is_a_bundle(tmp_path: Path) -> None:
    bundle = import_llama2c(write_model(tmp_path / "model.bin"))
    again = load_bundle(save_bundle(tmp_path / "bundle", bundle))
    assert again.tokenizer.encode("abcab  é日") == bundle.tokenizer.encode("abcab  é日")
    specials = again.tokenizer.specials
    assert (specials.unknown, specials.begin, specials.end) == (0, 1, 2)


@pytest.mark.parametrize("seed", range(8))
def test_tokens_are_those_of_the_plain_algorithm(seed: int, tmp_path: Path) -> None:
    texts, scores = made_tokens(seed, 41, "abcdeé “x")
    path = write_tokens(tmp_path / "tokenizer.bin", texts, scores)
    plain, draw = reference().ReferenceTokens(path), random.Random(seed)
    from regard.tokens import TextTokenizer

    ours = TextTokenizer(read_tokens(path, PLAIN + 41))
    odd = ["", " ", "   ", "<s>", "<unk></s><0x41>", "\n", "日本 👩‍👧", "a\tb"]
    for text in odd + ["".join(draw.choices("abcdeé “x\n日", k=draw.randrange(40))) for _ in range(100)]:
        assert ours.encode(text) == plain.encode(text), text
        assert ours.decode(ours.encode(text)) == text


def test_hand_computed_merges(tmp_path: Path) -> None:
    """ab scores over bc, so that abc is [ab, c]; bcd needs bc, which is never made before ab."""
    texts = [" ", "a", "b", "c", "d", "ab", "bc", "bcd"]
    path = write_tokens(tmp_path / "t.bin", texts, [-9, -9.5, -10, -11, -12, -1, -2, -3])
    tokenizer = read_tokens(path, PLAIN + len(texts))
    names = {text: PLAIN + number for number, text in enumerate(texts)}
    assert tokenizer.encode("abc", add_special_tokens=False).ids == [names[" "], names["ab"], names["c"]]
    assert tokenizer.encode("bcd", add_special_tokens=False).ids == [names[" "], names["bcd"]]
    assert tokenizer.encode("\x01é").ids == [1, names[" "], 3 + 1, 3 + 0xC3, 3 + 0xA9]


def patched(start: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda old: old[:start] + data + old[start + len(data) :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda old: old[:-4], "asks for"),
        (lambda old: old + b"\0\0\0\0", "asks for"),
        (lambda old: old[:20], "too few for the header"),
        (patched(0, struct.pack("<ii", 0x616B3432, 1)), "version 1; only 0 is read"),
        (patched(8, struct.pack("<i", 2**31 - 1)), "asks for"),
        (patched(12, struct.pack("<i", 0)), "is not a file of llama2.c"),
        (patched(12, struct.pack("<i", 5)), "is not a file of llama2.c"),
        (patched(16, struct.pack("<i", 4)), "is not a file of llama2.c"),
        (patched(4, struct.pack("<i", -37)), "is not a file of llama2.c"),
        (patched(20, struct.pack("<i", 0)), "is not a file of llama2.c"),
    ],
)
def test_damaged_weights(damage: Callable[[bytes], bytes], words: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.bin")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RegardError, match=words):
        import_llama2c(path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda old: old[:-1], "has 1 bytes|is not a tokenizer of llama2.c"),
        (lambda old: old + b"\0\0\0", "ends in the middle of token 273"),
        (lambda old: old + struct.pack("<fi", -99.0, 1) + b"q", "has 274 tokens, and the model knows 273"),
        (patched(8, struct.pack("<i", -1)), "token 0 has -1 bytes"),
        (patched(8, struct.pack("<i", 2**30)), "token 0 has 1073741824 bytes"),
    ],
)
def test_damaged_tokens(damage: Callable[[bytes], bytes], words: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.bin")
    beside = tmp_path / "tokenizer.bin"
    beside.write_bytes(damage(beside.read_bytes()))
    with pytest.raises(RegardError, match=words):
        import_llama2c(path)


def test_tokens_that_cannot_be_kept(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "t.bin", ["a", "b", "ab", "ba"], [-3, -4, -1, -1])
    with pytest.raises(RegardError, match="equal score"):
        read_tokens(path, PLAIN + 4)
    with pytest.raises(RegardError, match="a token twice"):
        read_tokens(write_tokens(tmp_path / "t.bin", ["a", "a"], [-3, -4]), PLAIN + 2)
    (tmp_path / "model").mkdir()
    alone = write_model(tmp_path / "model" / "m.bin")
    (tmp_path / "model" / "tokenizer.bin").unlink()
    with pytest.raises(RegardError, match=r"put tok273\.bin or tokenizer\.bin there"):
        import_llama2c(alone)
