"""Every kernel and every position in every family: all that `regard verify` proves holds, and the rest is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_verify import BLOCKS, make, make_bundle

from regard.attention import MultiHead, record
from regard.attention.kernels import KERNELS, Placement
from regard.data.batch import label_batch
from regard.data.pictures.config import PictureFormat
from regard.errors import UsageError
from regard.models.config import BertConfig, GPT2Config, LlamaConfig, TransformerConfig, ViTConfig
from regard.models.configs.attention import KERNEL_KINDS
from regard.models.table import build
from regard.verify import verify

KERNEL: dict[str, dict[str, Any]] = {
    "window": {"reach": 2},
    "strided": {"stride": 3},
    "bigbird": {"block": 2, "globals": 1, "random": 1},
    "linformer": {"size": 4},
    "reformer": {"chunk": 3, "buckets": 4},
    "performer": {"features": 8},
    "linear": {},
    "s4d": {"state": 4},
    "mamba": {"state": 3},
}
CAUSAL = ("window", "strided", "reformer", "performer", "linear", "s4d", "mamba")
RELATIVE = ("shaw", "t5", "alibi")


def broken(bundle: Any) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in verify(bundle) if check.passed is False]


def named(kind: str) -> dict[str, Any]:
    return {"kind": kind, **KERNEL.get(kind, {})}


def test_no_kernel_is_forgotten() -> None:
    assert {"exact", *KERNELS, "s4d", "mamba"} == set(KERNEL_KINDS) == {"exact", *KERNEL}


@pytest.mark.parametrize("kind", CAUSAL)
def test_language_models_keep_every_invariant(kind: str) -> None:
    positions = "none" if kind in ("s4d", "mamba") else "rotary"
    blocks = BLOCKS | {"width": 24}  # heads of even width
    assert broken(make("generate", "llama", **blocks, attention=named(kind), positions=positions)) == []


@pytest.mark.parametrize("kind", KERNEL)
def test_models_that_fill_gaps_keep_every_invariant(kind: str) -> None:
    assert broken(make("fill", "bert", **BLOCKS, attention=named(kind), max_length=64)) == []


@pytest.mark.parametrize("kind", KERNEL)
def test_classifiers_keep_every_invariant(kind: str) -> None:
    assert broken(make("classify", "bert", **BLOCKS, attention=named(kind), max_length=64, labels_from="max")) == []


@pytest.mark.parametrize("kind", KERNEL)
def test_translators_keep_every_invariant(kind: str) -> None:
    decoder = named(kind) if kind in CAUSAL else "exact"
    cross = named(kind) if kind in ("linformer", "performer", "linear") else "exact"
    model = {"encoder_attention": named(kind), "decoder_attention": decoder, "cross_attention": cross}
    assert broken(make_bundle({**model, "max_length": 64})) == []


@pytest.mark.parametrize("positions", RELATIVE)
def test_positions_that_scores_know_keep_every_invariant(positions: str) -> None:
    given = {"positions": positions} | ({"reach": 3} if positions == "shaw" else {})
    assert broken(make("generate", "gpt2", **BLOCKS, **given)) == []
    assert broken(make("fill", "bert", **BLOCKS, **given)) == []
    assert broken(make_bundle(given)) == []


def test_positions_of_trees_keep_every_invariant() -> None:
    assert broken(make("classify", "bert", **BLOCKS, positions="tree", reach=3)) == []


@pytest.mark.parametrize("model", [{"positions": "sinusoidal", "random_offset": 5}, {"reversible": True}])
def test_random_offsets_and_reversible_blocks_keep_every_invariant(model: dict[str, Any]) -> None:
    assert broken(make("generate", "gpt2", **BLOCKS, **model)) == []
    assert broken(make("fill", "bert", **BLOCKS | {"norm": "pre"}, **model)) == []


@pytest.mark.parametrize("kind", KERNEL)
def test_a_vit_sees_through_every_kernel(kind: str) -> None:
    config = ViTConfig(layers=1, width=24, heads=2, feed_forward=8, patch=4, attention=named(kind))
    format = PictureFormat(size=16, channels=1)
    model = build("classify-pictures", config, labels=3, pictures=format).eval().double()
    with record(model) as seen, torch.no_grad():
        model.encoder(torch.randn(2, 1, 16, 16).double())
        assert len(seen.calls) == 1 and seen.check() < 1e-9


ODD = {"kind": "bigbird", "window": 2}


@pytest.mark.parametrize(
    ("config", "task", "words"),
    [
        (LlamaConfig(attention="linformer"), "generate", "cannot be causal"),
        (LlamaConfig(attention="bigbird"), "generate", "cannot be causal"),
        (GPT2Config(attention="performer", positions="alibi"), "generate", "positions that add to scores"),
        (GPT2Config(attention="window", attention_dropout=0.1), "generate", "attention_dropout = 0"),
        (GPT2Config(attention="window", band=4), "generate", "band = 0"),
        (LlamaConfig(attention="s4d"), "generate", "positions = none"),
        (BertConfig(attention="performer", positions="shaw"), "fill", "positions that add to scores"),
        (LlamaConfig(attention="s4d", positions="none", attention_dropout=0.1), "generate", "attention_dropout = 0"),
        (LlamaConfig(attention="s4d", positions="none", band=4), "generate", "band = 0"),
        (LlamaConfig(attention="s4d", positions="none", groups=2), "generate", "groups = 0"),
        (LlamaConfig(attention="mamba"), "generate", "mamba knows its place"),
        (
            TransformerConfig(decoder_attention="linformer"),
            "translate",
            "causal; choose model.decoder_attention.kind = exact",
        ),
        (
            TransformerConfig(cross_attention="window"),
            "translate",
            "another; choose model.cross_attention.kind = exact",
        ),
        (TransformerConfig(encoder_attention=ODD), "translate", "set model.encoder_attention.window = 3"),
        (TransformerConfig(cross_attention="s4d"), "translate", "from one sequence at another"),
        (TransformerConfig(cross_attention="mamba"), "translate", "from one sequence at another"),
        (TransformerConfig(encoder_attention="linear", scaled=False), "translate", "unscaled"),
        (BertConfig(reversible=True), "fill", "norm = pre"),
    ],
)
def test_what_a_kernel_cannot_do_is_refused_in_words_when_the_model_is_built(
    config: Any, task: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        build(task, config, (20, 20) if task == "translate" else (20,))


def test_a_kernel_is_named_in_one_word_or_as_a_table() -> None:
    assert LlamaConfig(attention="window") == LlamaConfig(attention={"kind": "window"})
    assert LlamaConfig.model_validate(LlamaConfig(attention="window").model_dump()) == LlamaConfig(attention="window")


def test_effective_maps_are_told_and_the_exact_one_beside() -> None:
    heads = MultiHead(8, 2, role="self", kernel=KERNELS["linear"](Placement(2, 4)))
    x = torch.randn(2, 5, 8)
    with record(heads) as seen:
        heads(x, x)
    call = seen.calls[0]
    assert call.check() < 1e-5
    torch.testing.assert_close(call.exact(), (call.q @ call.k.mT / 2).softmax(dim=-1))
    assert not torch.allclose(call.exact(), call.weights())


def test_reformer_stands_for_attention_of_its_own_kind() -> None:
    """When one bucket holds all, what it mixes is what it stands for, and that is not softmax(q qᵀ)."""
    heads = MultiHead(8, 2, role="self", kernel=KERNELS["reformer"](Placement(2, 4), chunk=9, buckets=1)).double()
    x = torch.randn(2, 5, 8).double()
    with record(heads) as seen:
        heads(x, x)
    call = seen.calls[0]
    torch.testing.assert_close(call.exact(), call.weights())
    assert float(call.exact().diagonal(dim1=-2, dim2=-1).max()) == 0


def test_what_counted_is_a_share_whatever_the_kernel_sums_to() -> None:
    for kind in ("linformer", "s4d", "mamba"):
        model: Any = make("classify", "bert", **BLOCKS, attention=named(kind), max_length=64).model
        lengths = torch.tensor([6, 4])
        batch = label_batch([np.arange(4, 10), np.arange(5, 9)], [0, 1], 0)
        with record(model) as seen, torch.no_grad():
            model.logits(batch)
        counted = model.looked(seen, lengths)
        assert float(counted.min()) >= 0 and float(counted[1, 4:].max()) < 1e-6
        torch.testing.assert_close(counted.sum(dim=-1), torch.ones(2))
