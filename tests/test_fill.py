"""Filling gaps: guesses and their probabilities by hand, what has no gap, and the vectors of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from regard.bundle import Bundle, BundleConfig
from regard.errors import UsageError
from regard.models.config import BertConfig
from regard.models.table import build
from regard.tasks.fill.predictor import Filler
from regard.tokens import MASK, TokenizerPair, TokensConfig, train_tokenizer

TEXTS = [
    "the old king walked to the sea in the morning",
    "the grey cat looked at the moon at night",
    "日本語 の テキスト 😀",
]
KINDS = ("bpe", "wordpiece", "word", "byte")


def filler_of(kind: str = "bpe", **model: Any) -> Filler:
    """A model with random weights."""
    tokenizer = train_tokenizer(TEXTS, TokensConfig(kind=kind, size=350, min_count=1), mask=True)  # type: ignore[arg-type]
    shape = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 20, "max_length": 31, **model}
    config = BertConfig(**shape)
    torch.manual_seed(7)
    body = build("fill", config, (tokenizer.size,))
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.3)  # biases too, or nobody misses them
    bundle = BundleConfig(task="fill", tokens=TokensConfig(kind=kind), vocabulary=(tokenizer.size,), model=config)  # type: ignore[arg-type]
    return Filler(Bundle(bundle, body.eval(), TokenizerPair(tokenizer, tokenizer), {}))


FILLERS = {kind: filler_of(kind) for kind in KINDS}


def framed(filler: Filler, pieces: list[str | None]) -> list[int]:
    """[CLS] pieces [SEP] as ids; None is a gap."""
    special = filler.tokenizer.specials
    assert special.mask is not None
    inside = [[special.mask] if piece is None else filler.tokenizer.encode(piece) for piece in pieces]
    return [special.begin, *(token for ids in inside for token in ids), special.end]


def shares_by_hand(filler: Filler, ids: list[int], place: int) -> torch.Tensor:
    """The softmax over everything that is no special token (Devlin et al. 2019, section 3.1, task 1)."""
    model = filler.model
    with torch.no_grad():
        vector = model.encoder(torch.tensor([ids]), torch.tensor([len(ids)])).vectors[0, place].double()
        head = {name: value.double() for name, value in model.head.named_parameters()}
        inner = gelu(head["layer.weight"] @ vector + head["layer.bias"])
        inner = layer_norm(inner, inner.shape, head["norm.weight"], head["norm.bias"], 1e-12)
        scores = model.encoder.tokens.table.weight.double() @ inner + head["bias"]
    special = filler.tokenizer.specials
    for token in (special.pad, special.begin, special.end, special.unknown, special.mask):
        assert token is not None
        scores[token] = -torch.inf
    return scores.exp() / scores.exp().sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "pieces",
    [
        [None, "old king walked"],
        ["the grey cat looked at the", None],
        ["the", None, "king walked", None, "the sea"],
        [None],
        [None, None],
    ],
    ids=str,
)
def test_guesses_are_the_softmax_by_hand(kind: str, pieces: list[str | None]) -> None:
    filler = FILLERS[kind]
    text = " ".join(MASK if piece is None else piece for piece in pieces)
    ids = framed(filler, pieces)
    if kind == "byte":  # a gap takes the spaces around it
        ids = framed(filler, [piece if piece is None else piece.strip() for piece in pieces])
    gaps = [place for place, token in enumerate(ids) if token == filler.tokenizer.specials.mask]
    found = filler.fill(text, top=4)
    assert found.source == text and len(found.gaps) == len(gaps) == pieces.count(None)
    best = list(ids)
    for place, guesses in zip(gaps, found.gaps, strict=True):
        shares = shares_by_hand(filler, ids, place)
        values, tokens = shares.topk(4)
        assert [guess.probability for guess in guesses] == pytest.approx(values.tolist(), rel=1e-3)
        assert [guess.token for guess in guesses] == filler.tokenizer.labels(tokens.tolist())
        best[place] = int(tokens[0])
    assert found.text == str(found) == filler.tokenizer.decode(best)


def test_the_probabilities_of_all_guesses_sum_to_one() -> None:
    filler = FILLERS["word"]
    [guesses] = filler.fill(f"the {MASK} cat", top=10_000).gaps
    assert sum(guess.probability for guess in guesses) == pytest.approx(1.0, abs=1e-5)
    likely = [guess for guess in guesses if guess.probability > 0]
    assert len(likely) == filler.tokenizer.size - len(filler.tokenizer.specials.all)


def test_a_text_without_a_gap_is_told_what_to_type() -> None:
    for text in ("the old king", "", "[mask] is not it", "[MASK"):
        with pytest.raises(UsageError, match=r'the text has no gap; mark one: regard fill "Paris is the \[MASK\]'):
            FILLERS["bpe"].fill(text)


def test_a_gap_that_the_model_cannot_read_is_told() -> None:
    """The bug: a text that was cut before its gap was said to have none."""
    filler = FILLERS["byte"]
    for text in ("x" * 40 + MASK, MASK + "x" * 40 + MASK):
        with pytest.raises(UsageError, match=r"a gap lies beyond the 31 tokens that this model reads .* shorten"):
            filler.fill(text)
    assert len(filler.fill(MASK + "x" * 40).gaps) == 1
    assert len(filler.fill("x" * 28 + MASK).gaps) == 1


def test_a_model_without_a_head_gives_vectors_only() -> None:
    filler = filler_of(head=False)
    with pytest.raises(UsageError, match="it has no head that fills gaps; try: regard vectors"):
        filler.fill(f"the {MASK}")
    assert filler.vectors(["the king"]).shape == (1, 12)


# --- vectors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_have_length_one_and_do_not_depend_on_the_others(kind: str, pooling: Any) -> None:
    filler = FILLERS[kind]
    texts = [TEXTS[0], "", "the moon", TEXTS[2], "a", TEXTS[1] * 5, *["the king"] * 40]
    found = filler.vectors(texts, pooling)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0)
    for place in range(8):
        assert found[place] == pytest.approx(filler.vectors([texts[place]], pooling)[0], abs=1e-5)
    assert found[6:] == pytest.approx(np.tile(found[6], (40, 1)), abs=1e-5)


def test_vectors_by_hand() -> None:
    filler = FILLERS["bpe"]
    ids = framed(filler, ["the grey cat"])
    with torch.no_grad():
        vectors = filler.model.encoder(torch.tensor([ids]), torch.tensor([len(ids)])).vectors[0].double().numpy()
    for pooling, vector in (("mean", sum(vectors) / len(ids)), ("cls", vectors[0])):
        hand = vector / np.sqrt((vector**2).sum())
        assert filler.vectors(["the grey cat"], pooling)[0] == pytest.approx(hand, abs=1e-6)  # type: ignore[arg-type]
    assert np.array_equal(filler.vectors(["the cat"]), filler.vectors(["the cat"], "mean"))
    assert filler.vectors([]).shape == (0, 12)


def test_where_each_token_looks() -> None:
    seen = FILLERS["word"].attention(f"the {MASK} cat").map()
    assert seen.rows == seen.columns == ("<s>", "the", MASK, "cat", "</s>")
    assert seen.weights.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
