"""Models of Hugging Face on the recording channel, random weights, with the attention that they take by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import Pin, Remove, Seen, Temperature, intervene, record

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

VOCABULARY, LAYERS, HEADS, WIDTH = 31, 2, 3, 24
ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "attention_dropout": 0.0, **ENDS}


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=37,
        max_position_embeddings=41,
    )
    return config, transformers.BertModel


def gpt2() -> Any:
    sizes = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 41}
    return transformers.GPT2Config(vocab_size=VOCABULARY, **sizes, **ENDS), transformers.GPT2LMHeadModel


def llama() -> Any:
    config = transformers.LlamaConfig(
        **COMMON,
        hidden_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=37,
        max_position_embeddings=41,
    )
    return config, transformers.LlamaForCausalLM


def bart() -> Any:
    half = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": 37}
    both = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in half.items()}
    config = transformers.BartConfig(
        **COMMON, **both, d_model=WIDTH, max_position_embeddings=41, decoder_start_token_id=1, forced_eos_token_id=None
    )
    return config, transformers.BartForConditionalGeneration


FAMILIES: dict[str, Callable[[], Any]] = {"bert": bert, "gpt2": gpt2, "llama": llama, "bart": bart}
WRITERS = ["gpt2", "llama"]


def build(family: str, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """With weights large enough that attention is not flat."""
    config, kind = FAMILIES[family]()
    torch.manual_seed(9)
    model = kind._from_config(config, **options).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


IDS = torch.randint(1, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(4))
LEFT = torch.tensor([[1] * 7, [0] * 3 + [1] * 4])  # padding before the second text
RIGHT = LEFT.flip(1)
PASSES: dict[str, dict[str, Any]] = {
    "whole": {"input_ids": IDS},
    "padded": {"input_ids": IDS, "attention_mask": RIGHT},
    "padded before": {"input_ids": IDS, "attention_mask": LEFT},
}


TOLD = {  # under which key transformers tells the weights of each role
    "bert": {"self": "attentions"},
    "gpt2": {"causal": "attentions"},
    "llama": {"causal": "attentions"},
    "bart": {"self": "encoder_attentions", "causal": "decoder_attentions", "cross": "cross_attentions"},
}


@pytest.mark.parametrize("given", PASSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_that_the_eager_implementation_gives(family: str, given: str) -> None:
    dtype = torch.float32 if family == "llama" else torch.float64  # its eager softmax is in float32 whatever comes in
    near = 1e-5 if family == "llama" else 1e-12
    model, eager = build(family, dtype), build(family, dtype, attn_implementation="eager")
    with torch.no_grad():
        plain = model(**PASSES[given])[0]
        with record(model) as seen:
            out = model(**PASSES[given])[0]
        told = eager(**PASSES[given], output_attentions=True)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(out, plain)
    assert seen.check() < near
    assert {call.role for call in seen.calls} == set(TOLD[family])
    for role, key in TOLD[family].items():
        assert [call.layer for call in seen.only(role)] == list(range(LAYERS))
        for call, weights in zip(seen.only(role), told[key], strict=True):
            sees = call.allowed().any(dim=-1)  # of a query that sees nothing, implementations have their own ideas
            assert torch.allclose(call.weights()[sees], weights[sees], rtol=0, atol=near)
            assert torch.equal(call.allowed()[sees], weights[sees] > 0)


def test_roles_and_paths() -> None:
    model = build("bart")
    with torch.no_grad(), record(model) as seen:
        model(IDS, decoder_input_ids=IDS[:, :5])
    assert [(call.path, call.role) for call in seen.calls] == [
        ("model.encoder.layers.0.self_attn", "self"),
        ("model.encoder.layers.1.self_attn", "self"),
        ("model.decoder.layers.0.self_attn", "causal"),
        ("model.decoder.layers.0.encoder_attn", "cross"),
        ("model.decoder.layers.1.self_attn", "causal"),
        ("model.decoder.layers.1.encoder_attn", "cross"),
    ]
    assert [seen.axes(call) for call in seen.calls[1:4]] == [
        ("source", "source"), ("prefix", "prefix"), ("target", "source"),
    ]  # fmt: skip


def test_grouped_heads_are_recorded_as_groups() -> None:
    model = build("llama")
    with torch.no_grad(), record(model) as seen:
        model(IDS)
    assert [(call.path, call.q.size(1), call.k.size(1)) for call in seen.calls] == [
        (f"model.layers.{layer}.self_attn", 6, 2) for layer in range(LAYERS)
    ]


def generated(model: Any, prompt: Tensor, tokens: int = 4, **options: Any) -> Tensor:
    with torch.no_grad():
        return model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **options)


def rows_by_layer(seen: Seen, role: str, length: int) -> list[Tensor]:
    """All steps of each layer as one map, filled up to `length` keys."""
    maps = []
    for layer in range(LAYERS):
        steps = [
            torch.nn.functional.pad(w, (0, length - w.size(-1))) for w in (c.weights() for c in seen.only(role, layer))
        ]
        maps.append(torch.cat([step[..., :length] for step in steps], dim=-2))
    return maps


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("start", [1, 5])
@pytest.mark.parametrize("family", WRITERS)
def test_steps_of_generation_are_rows_of_the_whole_pass(family: str, start: int, cache: str) -> None:
    """Also of the first step from a single token, and with a cache that is overwritten in place."""
    model = build(family)
    options: dict[str, Any] = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    plain = generated(model, IDS[:, :start], **options)
    with record(model) as steps:
        written = generated(model, IDS[:, :start], **options)
    assert torch.equal(written, plain)
    with torch.no_grad(), record(model) as whole:
        model(written[:, :-1])
    assert len(steps.calls) == 4 * LAYERS and steps.check() < 1e-12
    assert {call.role for call in steps.calls} == {"causal"}
    for got, call in zip(rows_by_layer(steps, "causal", start + 3), whole.calls, strict=True):
        assert torch.allclose(got, call.weights(), rtol=0, atol=1e-10)


def test_steps_of_an_encoder_and_decoder_are_rows_of_the_whole_pass() -> None:
    model = build("bart")
    options: dict[str, Any] = {"attention_mask": RIGHT, "num_beams": 1}
    with record(model) as steps:
        written = generated(model, IDS, **options)
    with torch.no_grad(), record(model) as whole:
        model(IDS, attention_mask=RIGHT, decoder_input_ids=written[:, :-1])
    assert steps.check() < 1e-12
    for role, length in (("causal", written.size(1) - 1), ("cross", IDS.size(1))):
        for got, call in zip(rows_by_layer(steps, role, length), whole.only(role), strict=True):
            assert torch.allclose(got, call.weights(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "cache", [{}, {"use_cache": False}, {"cache_implementation": "static", "disable_compile": True}]
)
@pytest.mark.parametrize("family", WRITERS)
def test_changes_hold_in_every_step(family: str, cache: dict[str, Any]) -> None:
    """Decoding with a cache under a change is decoding without a cache under the same change."""
    model, changes = build(family), (Temperature(layer=0, value=3.0), Remove(layer=1, head=2))
    expected = IDS[:, :5]
    with torch.no_grad(), intervene(model, *changes):
        for _ in range(4):
            expected = torch.cat([expected, model(expected).logits[:, -1:].argmax(dim=-1)], dim=1)
    with intervene(model, *changes), record(model) as seen:
        assert torch.equal(generated(model, IDS[:, :5], **cache), expected)
    assert seen.check() < 1e-12 and {call.removed for call in seen.only("causal", 1)} == {(2,)}


@pytest.mark.parametrize("static", [False, True])
def test_a_pin_meets_its_query_in_steps(static: bool) -> None:
    model = build("gpt2")
    options: dict[str, Any] = {"cache_implementation": "static", "disable_compile": True} if static else {}
    with record(model) as free:
        generated(model, IDS[:1, :5], **options)
    width = {call.k.size(-2) for call in free.calls}
    row = [1.0] + [0.0] * ((max(width) if static else 7) - 1)
    with intervene(model, Pin(layer=0, row=6, weights=row)), record(model) as seen:
        generated(model, IDS[:1, :5], **options)
    pinned = [bool((call.weights()[..., 0] == 1.0).all()) for call in seen.only("causal", 0)]
    assert pinned == [False, False, True, False]  # the prompt of 5, then places 5, 6 and 7
    assert seen.check() < 1e-12


def test_a_pin_meets_its_query_in_steps_of_cross_attention() -> None:
    """The call does not say where the query stands; the attention before it, which looks back, does."""
    model = build("bart")
    with intervene(model, Pin("cross", layer=1, row=2, weights=4)), record(model, only="cross", layers=1) as seen:
        generated(model, IDS[:1], num_beams=1)
    pinned = [bool((call.weights()[..., 4] == 1.0).all()) for call in seen.calls]
    assert pinned == [False, False, True, False]


def test_eager_attention_cannot_be_seen_and_that_is_said() -> None:
    model = build("bert", attn_implementation="eager")
    with (
        pytest.warns(UserWarning, match="attends by 'eager'.*attn_implementation=\"sdpa\"") as warned,
        record(model) as seen,
    ):
        model(IDS)
    assert not seen.calls and len(warned) == 1
    with pytest.raises(Exception, match="met no attention"), intervene(model, Remove(head=0)):
        model(IDS)


@torch.no_grad()
def test_layers_of_albert_share_their_weights_and_are_told_apart() -> None:
    sizes = {"embedding_size": 7, "hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 37}
    config = transformers.AlbertConfig(vocab_size=VOCABULARY, num_hidden_layers=5, num_hidden_groups=2, **sizes)
    model = transformers.AlbertModel(config).double().eval()
    with record(model) as seen:
        states = model(IDS, output_hidden_states=True).hidden_states
    assert [call.layer for call in seen.calls] == [0, 1, 2, 3, 4]
    assert len({call.path for call in seen.calls}) == 2  # groups of layers with the same weights
    for call in seen.calls:
        query = model.get_submodule(call.path).query(states[call.layer])
        assert torch.allclose(call.q.transpose(1, 2).flatten(2), query, rtol=0, atol=1e-12)
    with intervene(model, Remove(layer=3)):
        changed = model(IDS, output_hidden_states=True).hidden_states
    same = [torch.equal(one, other) for one, other in zip(states, changed, strict=True)]
    assert same == [True, True, True, True, False, False]
