"""Blocks whose feed-forward layer is left out: in every family, decoded right, and refused where it cannot be said."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from test_verify import BLOCKS, make, make_bundle
from torch import Tensor

from regard.blocks import FeedForward
from regard.errors import RegardError, UsageError
from regard.interop.family import must_be_usual
from regard.models.config import BertConfig, GPT2Config, LlamaConfig, TransformerConfig, ViTConfig
from regard.models.fast.language import FastLanguage
from regard.models.fast.stepper import LaidOut
from regard.models.fast.translation import FastDecoder
from regard.models.table import build
from regard.verify import verify

NONE = BLOCKS | {"feed_forward": 0}


def broken(bundle: Any) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in verify(bundle) if check.passed is False]


def attention_by_hand(heads: Any, x: Tensor, *, causal: bool) -> Tensor:
    """(T, D) -> (T, D), one head after another."""
    q, (k, v) = heads.query(x), heads.key_value(x).chunk(2, dim=-1)
    width, found = heads.head_width, []
    for head in range(heads.heads):
        mine = slice(head * width, (head + 1) * width)
        scores = q[:, mine] @ k[:, mine].T / math.sqrt(width)
        if causal:
            scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -math.inf)
        found.append(scores.softmax(dim=-1) @ v[:, mine])
    return heads.out(torch.cat(found, dim=-1))


@torch.no_grad()
def test_a_language_model_without_is_attention_and_residuals_alone() -> None:
    torch.manual_seed(0)
    config = GPT2Config(layers=3, width=14, heads=2, feed_forward=0, max_length=32)
    model: Any = build("generate", config, (23,)).double().eval()
    ids = torch.arange(4, 17)
    x = model.tokens(ids[None])[0]
    for block in model.blocks:
        x = x + attention_by_hand(block.attention, block.around_attention.norm(x), causal=True)
    assert torch.allclose(model.read(ids[None])[0], model.norm(x), atol=1e-12)
    names = [name for name, _ in model.named_parameters()]
    assert names and not any("feed_forward" in name for name in names)


def test_every_family_without_keeps_every_invariant() -> None:
    assert broken(make("generate", "gpt2", **NONE)) == []
    assert broken(make("fill", "bert", **NONE)) == []
    assert broken(make_bundle({"feed_forward": 0, "norm": "post"})) == []


def test_a_state_space_without_is_the_whole_block_of_its_paper() -> None:
    assert broken(make("generate", "llama", **NONE, attention="mamba", positions="none")) == []


def test_decoding_goes_by_modules() -> None:
    language = build("generate", LlamaConfig(layers=1, width=8, heads=2, feed_forward=0), (23,)).eval()
    assert LaidOut(language, FastLanguage.of).stepper() is language
    translator = build("translate", TransformerConfig(width=8, heads=2, feed_forward=0), (23, 23)).eval()
    assert LaidOut(translator, FastDecoder.of).stepper() is translator


def test_a_vit_without_has_none() -> None:
    from regard.data.pictures.config import PictureFormat

    config = ViTConfig(layers=2, width=12, heads=3, feed_forward=0)
    model = build("classify-pictures", config, labels=3, pictures=PictureFormat(size=16, channels=1))
    assert not any(isinstance(each, FeedForward) for each in model.modules())


def test_what_has_no_place_without_it_is_refused() -> None:
    with pytest.raises(UsageError, match="two halves"):
        build("fill", BertConfig(norm="pre", feed_forward=0, reversible=True), (23,))
    with pytest.raises(ValueError, match="experts are feed-forward layers"):
        LlamaConfig(feed_forward=0, experts=2)
    with pytest.raises(RegardError, match="without feed-forward"):
        must_be_usual("transformers", LlamaConfig(feed_forward=0))
