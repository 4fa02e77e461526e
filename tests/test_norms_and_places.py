"""Batch norm where layer norm stands, against torch's; positions beside embeddings and inside blocks, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_verify import BLOCKS, make, make_bundle
from torch import nn

from regard.attention import MultiHead
from regard.blocks.norm import SequenceBatchNorm, make_norm, reading_rows
from regard.data.batch import text_batch
from regard.embed import ConcatenatedPositions, positions, sinusoid
from regard.errors import RegardError, UsageError
from regard.interop.family import must_be_usual
from regard.models.config import BertConfig, GPT2Config, TransformerConfig
from regard.models.fast.language import FastLanguage
from regard.models.fast.stepper import LaidOut
from regard.models.fast.translation import FastDecoder
from regard.models.table import build
from regard.verify import verify

B, T, D = 3, 7, 5
LENGTHS = [7, 3, 1]


def outcomes(bundle: Any) -> dict[str, Any]:
    return {check.name: check for check in verify(bundle)}


def broken(bundle: Any) -> list[str]:
    return [f"{name}: {check.detail}" for name, check in outcomes(bundle).items() if check.passed is False]


# --- Batch norm


def test_batch_norm_is_torchs_over_the_real_positions() -> None:
    torch.manual_seed(0)
    ours, theirs = SequenceBatchNorm(D).double(), nn.BatchNorm1d(D).double()
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(torch.linspace(0.5, 2, D)), norm.bias.copy_(torch.linspace(-1, 1, D))
    for step in range(3):
        x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
        with reading_rows(torch.tensor(LENGTHS)):
            found = ours(x * (step + 1))[real]
        wanted = theirs((x * (step + 1))[real])
        assert torch.allclose(found, wanted, atol=1e-10)
        pairs = (torch.autograd.grad(each.sin().sum(), x, retain_graph=True)[0] for each in (found, wanted))
        assert torch.allclose(*pairs, atol=1e-9)
    assert torch.allclose(ours.mean.double(), theirs.running_mean, atol=1e-6)
    assert torch.allclose(ours.variance.double(), theirs.running_var, atol=1e-6)
    x = torch.randn(B, T, D, dtype=torch.float64)
    assert torch.allclose(ours.eval()(x), theirs.eval()(x.flatten(0, 1)).view_as(x), atol=1e-6)


def test_what_stands_in_padding_moves_no_statistics() -> None:
    one, other = SequenceBatchNorm(D), SequenceBatchNorm(D)
    x = torch.randn(B, T, D)
    bad = x.masked_fill((torch.arange(T) >= torch.tensor(LENGTHS)[:, None])[..., None], 1e9)
    with reading_rows(torch.tensor(LENGTHS)):
        first, second = one(x), other(bad)
    assert torch.equal(one.mean, other.mean) and torch.equal(one.variance, other.variance)
    assert torch.allclose(first[1, :3], second[1, :3])
    with pytest.raises(RegardError, match="one token"):
        one(x[:1, :1])


def test_a_models_batches_count_their_real_tokens_only() -> None:
    """The same texts in one padded batch, and one behind the other without padding, leave the same mean."""
    texts = [np.arange(4, 4 + length) for length in (9, 5, 2)]
    config = GPT2Config(layers=1, width=6, heads=2, feed_forward=5, norm_kind="batch", positions="none")
    torch.manual_seed(1)
    model: Any = build("generate", config, (23,)).double().train()
    model(text_batch(texts, 0))
    norm = model.blocks[0].around_attention.norm
    read = torch.cat([model.tokens(torch.from_numpy(text[:-1])[None])[0] for text in texts])
    assert torch.allclose(norm.mean.double(), 0.1 * read.mean(dim=0), atol=1e-6)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_models_with_batch_norm_keep_every_invariant(order: str) -> None:
    named = {"norm": order, "norm_kind": "batch"}
    families = {"pre": (make("generate", "gpt2", **BLOCKS, **named), make_bundle(named))}
    for found in map(outcomes, families.get(order) or [make("fill", "bert", **BLOCKS, **named)]):
        assert [f"{name}: {check.detail}" for name, check in found.items() if check.passed is False] == []
        skipped = [check.detail for check in found.values() if check.passed is None]
        assert any("batch norm takes its statistics from each micro-batch" in detail for detail in skipped)


def test_batch_norm_in_a_laid_out_decoder_is_the_modules() -> None:
    torch.manual_seed(0)
    model: Any = build("translate", TransformerConfig(width=8, heads=2, norm_kind="batch"), (23, 23)).eval()
    for module in model.modules():
        if isinstance(module, SequenceBatchNorm):
            module.mean.normal_(), module.variance.uniform_(0.5, 2)
    source = (torch.arange(4, 13)[None], torch.tensor([9]))
    fast = LaidOut(model, FastDecoder.of).stepper()
    assert fast is not model
    with torch.no_grad():
        ours, state = model.start(source, torch.tensor([[1]]))
        theirs, other = fast.start(source, torch.tensor([[1]]))
        assert torch.allclose(ours, theirs, atol=1e-4)
        ours, theirs = model.step(torch.tensor([[7]]), state)[0], fast.step(torch.tensor([[7]]), other)[0]
    assert torch.allclose(ours, theirs, atol=1e-4)


# --- Positions


def test_positions_beside_embeddings_meet_in_a_matrix() -> None:
    torch.manual_seed(0)
    found = positions("sinusoidal", D, 16, where="concatenate").double()
    assert isinstance(found, ConcatenatedPositions)
    x = torch.randn(B, T, D, dtype=torch.float64)
    assert torch.allclose(found(x, 3), x + sinusoid(T, D, 3))  # at first it is as if they were added
    nn.init.normal_(found.join)
    for t in range(T):
        both = torch.cat([x[1, t], sinusoid(1, D, 3 + t)[0]])
        assert torch.allclose(found(x, 3)[1, t], both @ found.join)


@torch.no_grad()
def test_positions_in_queries_keys_and_values_are_in_the_input_of_every_attention() -> None:
    torch.manual_seed(0)
    config = GPT2Config(layers=2, width=8, heads=2, feed_forward=5, positions="sinusoidal", positions_where="qkv")
    model: Any = build("generate", config, (23,)).double().eval()
    ids, seen = torch.arange(4, 15)[None], []
    hooks = [
        each.register_forward_pre_hook(lambda _, given: seen.append(given))
        for each in model.modules()
        if isinstance(each, MultiHead)
    ]
    x, places = model.tokens.table(ids), sinusoid(11, 8)
    model.read(ids)
    for hook in hooks:
        hook.remove()
    assert len(seen) == 2 and torch.allclose(seen[0][0], model.blocks[0].around_attention.norm(x) + places)
    block = model.blocks[0]
    x = x + block.attention(seen[0][0], seen[0][0], seen[0][2])
    x = x + block.feed_forward(block.around_feed_forward.norm(x))
    assert torch.allclose(seen[1][0], model.blocks[1].around_attention.norm(x) + places)


@pytest.mark.parametrize(("kind", "where"), [("learned", "concatenate"), ("sinusoidal", "qkv")])
def test_positions_elsewhere_keep_every_invariant(kind: str, where: str) -> None:
    named = {"positions": kind, "positions_where": where}
    assert broken(make("generate", "gpt2", **BLOCKS, **named)) == []
    assert broken(make_bundle({**named, "max_length": 64})) == []


@pytest.mark.parametrize("where", ["concatenate", "qkv"])
def test_decoding_with_positions_elsewhere_goes_by_modules(where: str) -> None:
    model = build("generate", GPT2Config(layers=1, width=8, heads=2, positions_where=where), (23,)).eval()
    assert LaidOut(model, FastLanguage.of).stepper() is model
    translator = build("translate", TransformerConfig(width=8, heads=2, positions_where=where), (23, 23)).eval()
    assert LaidOut(translator, FastDecoder.of).stepper() is translator


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="positions_where is for sinusoidal and learned"):
        GPT2Config(positions="rotary", positions_where="qkv")
    with pytest.raises(ValueError, match="positions_where = add or concatenate"):
        TransformerConfig(random_offset=5, positions_where="qkv")
    with pytest.raises(UsageError, match="norm_kind = layer"):
        build("fill", BertConfig(norm="pre", norm_kind="batch", reversible=True), (23,))
    with pytest.raises(UsageError, match="positions_where = add"):
        build("fill", BertConfig(norm="pre", positions_where="qkv", reversible=True), (23,))
    for config in (GPT2Config(norm_kind="batch"), TransformerConfig(positions_where="qkv")):
        with pytest.raises(RegardError, match="has no equal for model"):
            must_be_usual("CTranslate2", config)
    assert isinstance(make_norm("batch", D), SequenceBatchNorm)
