"""Other people's modules on the recording channel: their recorded weights rebuild what they gave, and can be changed."""

from __future__ import annotations

import copy
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention

import regard
from regard.attention import MultiHead, Pin, Remove, Seen, Temperature, attend, intervene, record
from regard.attention.call import Role
from regard.attention.foreign.scaled_dot_product import hides_later, role_of
from regard.attention.foreign.watch import is_foreign
from regard.data.graphs.config import GraphFormat
from regard.data.pictures.config import PictureFormat
from regard.data.sound.config import SoundFormat
from regard.errors import UsageError
from regard.models.config import KINDS_OF
from regard.models.table import build
from regard.tasks.configure import run_config

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
B, H, T, S, E = 3, 6, 5, 7, 11
INFINITE, LEAST = -torch.inf, torch.finfo(torch.float64).min


class Products(nn.Module):
    """Someone's module: it calls torch's function as it is told."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return scaled_dot_product_attention(q, k, v, **options)


class Stack(nn.Module):
    """Self-attention twice, by a function of someone's own, between two projections."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.eyes = nn.ModuleList(Products() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer, look in zip(self.layers, self.eyes, strict=True):
            q, k, v = layer(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)  # (B, H, T, E) each
            x = x + look(q, k, v).transpose(1, 2).flatten(2)
        return x


def randoms(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def by_hand(q: Tensor, k: Tensor, added: Tensor, scale: float) -> Tensor:
    """Weights of one head: q (T, E), k (S, E), added (T, S). Number by number; zeros for a query that sees nothing."""
    weights = torch.zeros(len(q), len(k), dtype=torch.float64)
    for t in range(len(q)):
        scores = [float(q[t].double() @ k[s].double()) * scale + float(added[t, s]) for s in range(len(k))]
        if max(scores) > -torch.inf:
            exponents = torch.tensor([score - max(scores) for score in scores], dtype=torch.float64).exp()
            weights[t] = exponents / exponents.sum()
    return weights


def looked_at(model: nn.Module, *given: Tensor, **bounds: Any) -> Seen:
    with record(model, **bounds) as seen:
        model(*given)
    return seen


# --- scaled_dot_product_attention

MASK = torch.rand(T, S, generator=torch.Generator().manual_seed(3)) > 0.4
MASK[:, 0] = True
ROWLESS = MASK.clone()
ROWLESS[2] = False
OF_TEXTS = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(5)) > 0.4
OF_TEXTS[..., 0] = True


def added(mask: Tensor, value: float = INFINITE) -> Tensor:
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, value)


FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], Tensor]] = {
    "plain": ((B, H, T, E), (B, H, S, E), {}, torch.zeros(T, S)),
    "grouped heads": ((B, H, T, E), (B, 2, S, E), {"enable_gqa": True}, torch.zeros(T, S)),
    "one key head for all": ((B, H, T, E), (B, 1, S, E), {}, torch.zeros(T, S)),
    "one query head for all": ((B, 1, T, E), (B, H, S, E), {}, torch.zeros(T, S)),
    "keys for the whole batch": ((B, H, T, E), (1, H, S, E), {}, torch.zeros(T, S)),
    "no heads": ((B, T, E), (B, S, E), {"attn_mask": OF_TEXTS[:, 0]}, added(OF_TEXTS)),
    "no heads, no batch": ((T, E), (S, E), {}, torch.zeros(T, S)),
    "heads, no batch": ((H, T, E), (2, S, E), {"enable_gqa": True, "attn_mask": MASK}, added(MASK)),
    "scale": ((B, H, T, E), (B, H, S, E), {"scale": 0.7}, torch.zeros(T, S)),
    "causal": ((B, H, T, E), (B, H, S, E), {"is_causal": True}, added(torch.ones(T, S).bool().tril())),
    "causal, fewer keys": ((B, H, S, E), (B, H, T, E), {"is_causal": True}, added(torch.ones(S, T).bool().tril())),
    "boolean mask": ((B, H, T, E), (B, H, S, E), {"attn_mask": MASK}, added(MASK)),
    "boolean mask of texts": ((B, H, T, E), (B, H, S, E), {"attn_mask": OF_TEXTS}, added(OF_TEXTS)),
    "a query that sees nothing": ((B, H, T, E), (B, H, S, E), {"attn_mask": ROWLESS}, added(ROWLESS)),
    "added": ((B, H, T, E), (B, H, S, E), {"attn_mask": added(MASK) + 0.3}, added(MASK) + 0.3),
    "added for each head": ((B, H, T, E), (B, H, S, E), {"attn_mask": added(OF_TEXTS).expand(B, H, T, S)}, added(OF_TEXTS)),
    "added, infinite": ((B, H, T, E), (B, H, S, E), {"attn_mask": added(ROWLESS)}, added(ROWLESS)),
    "added, -10,000": ((B, H, T, E), (B, H, S, E), {"attn_mask": added(MASK, -1e4)}, added(MASK)),
    "added, least": ((B, H, T, E), (B, H, S, E), {"attn_mask": added(MASK, LEAST)}, added(MASK)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_products_are_recorded_as_they_are_computed(name: str) -> None:
    of_q, of_k, options, bias = FORMS[name]
    q, k, v = randoms(of_q, of_k, of_k)
    module = Products()
    plain = module(q, k, v, **options)
    with record(module) as seen:
        out = module(q, k, v, **options)
    assert torch.equal(out, plain) and out.shape == plain.shape
    (call,) = seen.calls
    assert call.check() < 1e-12
    weights, heads, groups = call.weights(), call.q.size(1), call.k.size(1)
    bias = bias.expand(len(call.q), heads, *bias.shape[-2:])
    scale = options.get("scale", E**-0.5)
    for b in range(len(call.q)):
        for h in range(heads):
            expected = by_hand(call.q[b, h], call.k[b, h * groups // heads], bias[b, h], scale)
            assert torch.allclose(weights[b, h], expected, rtol=0, atol=1e-12)
    assert torch.equal(call.allowed(), bias > -torch.inf)


@pytest.mark.parametrize("masked", [False, True])
def test_more_than_four_dimensions(masked: bool) -> None:
    q, k, v = randoms((2, B, H, T, E), (2, 1, H, S, E), (2, 1, H, S, E))
    mask = torch.stack([OF_TEXTS, ~OF_TEXTS | (torch.arange(S) == 1)]) if masked else None  # (2, B, 1, T, S)
    module = Products()
    plain = module(q, k, v, attn_mask=mask)
    with record(module) as seen:
        out = module(q, k, v, attn_mask=mask)
    (call,) = seen.calls
    assert torch.equal(out, plain)
    assert call.weights().shape == (2 * B, H, T, S) and call.check() < 1e-12
    assert call.allowed().float().mean() == (1.0 if mask is None else mask.float().mean())


def test_rows_that_are_wholly_the_least_number_are_uniform_but_not_allowed() -> None:
    """As torch has it: adding `finfo.min` to every score leaves them equal."""
    q, k, v = randoms((B, H, T, E), (B, H, S, E), (B, H, S, E))
    with record(module := Products()) as seen:
        module(q, k, v, attn_mask=added(ROWLESS, LEAST))
    (call,) = seen.calls
    assert call.check() < 1e-12
    assert torch.allclose(call.weights()[:, :, 2], torch.full((), 1 / S, dtype=torch.float64))
    assert torch.equal(call.allowed(), ROWLESS.expand(B, H, T, S))


def test_float32_is_recorded_to_its_own_rounding() -> None:
    q, k, v = randoms((B, H, 300, 32), (B, H, 300, 32), (B, H, 300, 32), dtype=torch.float32)
    with record(module := Products()) as seen:
        module(q, k, v, is_causal=True)  # long enough for the fused kernel
    assert seen.check() < 1e-5


def test_keys_and_values_that_are_overwritten_later_are_kept() -> None:
    q, k, v = randoms((1, 2, 1, E), (1, 2, S, E), (1, 2, S, E))
    with record(module := Products()) as seen:
        module(q, k, v)
        before = seen.calls[0].weights()
        k.zero_(), v.zero_()
    assert torch.equal(seen.calls[0].weights(), before) and seen.check() < 1e-12


def test_weights_are_those_before_dropout() -> None:
    q, k, v = randoms((B, H, T, E), (B, H, S, E), (B, H, S, E))
    module = Products()
    with record(module) as dropped:
        module(q, k, v, dropout_p=0.5)
    with record(module) as whole:
        module(q, k, v)
    assert torch.equal(dropped.calls[0].weights(), whole.calls[0].weights())
    assert dropped.check() > 0.01


# --- nn.MultiheadAttention


def multihead(dtype: torch.dtype = torch.float64, **options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(7)
    module = nn.MultiheadAttention(24, 6, **options).to(dtype).eval()
    for parameter in module.parameters():  # torch begins with biases of zero
        nn.init.normal_(parameter, std=0.4)
    return module


PADDING = torch.arange(S) >= torch.tensor([S, 4, 1])[:, None]  # (B, S)
HIDDEN = ~MASK  # torch's multi-head attention has it the other way round
OF_HEADS = torch.rand(B * 6, T, S, generator=torch.Generator().manual_seed(11)) > 0.7
OF_HEADS[..., 0] = False
MASKS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "padding": {"key_padding_mask": PADDING},
    "added padding": {"key_padding_mask": PADDING * -2.5},
    "mask": {"attn_mask": HIDDEN},
    "added mask": {"attn_mask": HIDDEN * -1.5},
    "mask of heads": {"attn_mask": OF_HEADS},
    "both": {"attn_mask": OF_HEADS, "key_padding_mask": PADDING},
    "least": {"attn_mask": torch.zeros(T, S).masked_fill(HIDDEN, torch.finfo(torch.float32).min)},
}
KINDS_OF_HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "more keys": {"add_bias_kv": True, "add_zero_attn": True},
    "other widths": {"kdim": 17, "vdim": 19, "add_zero_attn": True},
}


def cast(options: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {name: x.to(dtype) if torch.is_floating_point(x) else x for name, x in options.items()}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("kind", KINDS_OF_HEADS)
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_multi_head_attention_over_its_arguments(kind: str, masks: str, dtype: torch.dtype) -> None:
    module, options = multihead(dtype, **KINDS_OF_HEADS[kind]), cast(MASKS[masks], dtype)
    q, k, v = randoms((B, T, 24), (B, S, module.kdim), (B, S, module.vdim), dtype=dtype)
    given = (q, k, v) if module.batch_first else tuple(x.transpose(0, 1) for x in (q, k, v))
    out, weights = module(*given, **options, average_attn_weights=False)  # torch's own weights are the oracle
    whole = out if module.batch_first else out.transpose(0, 1)
    for need in ({"need_weights": False}, {}, {"average_attn_weights": False}):
        with record(module) as seen:
            got, shown = module(*given, **options, **need)
        (call,) = seen.calls
        assert torch.allclose(got, out, rtol=0, atol=TOLERANCE[dtype])
        assert (shown is None) == (need.get("need_weights") is False)
        assert call.check() < TOLERANCE[dtype]
        assert torch.allclose(call.out, whole, rtol=0, atol=TOLERANCE[dtype])
        assert torch.allclose(call.weights(), weights, rtol=0, atol=TOLERANCE[dtype])
        assert torch.equal(call.allowed(), weights > 0)


@pytest.mark.parametrize("batch_first", [False, True])
def test_multi_head_attention_of_one_text_without_a_batch(batch_first: bool) -> None:
    module = multihead(batch_first=batch_first, add_bias_kv=True)
    q, k = randoms((T, 24), (S, 24))
    options: dict[str, Any] = {"key_padding_mask": PADDING[1], "attn_mask": OF_HEADS[:6]}
    plain, weights = module(q, k, k, **options, average_attn_weights=False)
    with record(module) as seen:
        out, _ = module(q, k, k, **options)
    (call,) = seen.calls
    assert torch.equal(out, plain) and call.check() < 1e-12
    assert torch.allclose(call.weights(), weights[None], rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("need", [False, True])
def test_multi_head_attention_that_is_told_to_be_causal(need: bool, masked: bool) -> None:
    module = multihead(batch_first=True)
    (x,) = randoms((B, S, 24))
    mask = nn.Transformer.generate_square_subsequent_mask(S, dtype=torch.float64)
    padding = added(~PADDING) if masked else None
    plain, weights = module(x, x, x, attn_mask=mask, key_padding_mask=padding, average_attn_weights=False)
    with record(module) as seen:
        out, _ = module(x, x, x, attn_mask=mask, key_padding_mask=padding, is_causal=True, need_weights=need)
    (call,) = seen.calls
    assert call.role == "causal" and call.check() < 1e-12
    assert torch.allclose(out, plain, rtol=0, atol=1e-12)
    assert torch.allclose(call.weights(), weights, rtol=0, atol=1e-12)


def test_a_hint_that_torch_believes_against_the_mask_is_recorded_as_it_was_computed() -> None:
    module = multihead(add_bias_kv=True)
    (x,) = randoms((S, B, 24))
    with record(module) as seen:
        module(x, x, x, attn_mask=torch.zeros(S, S, dtype=torch.float64), is_causal=True, need_weights=False)
    assert seen.check() < 1e-12
    assert not seen.calls[0].weights().triu(1).any()


def test_keys_and_values_that_were_projected_before() -> None:
    module = multihead()
    q, static_k, static_v = randoms((T, B, 24), (B * 6, S, 4), (B * 6, S, 4))
    (x,) = randoms((S, B, 24), seed=2)

    class Static(nn.Module):
        def forward(self) -> Any:
            given = (module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0, module.out_proj.weight)
            more: dict[str, Any] = {"static_k": static_k, "static_v": static_v, "training": False}
            return multi_head_attention_forward(q, x, x, 24, 6, *given, module.out_proj.bias, **more)

    with record(owner := Static()) as seen:
        _, weights = owner()
    assert seen.check() < 1e-12
    assert torch.allclose(seen.calls[0].weights().mean(dim=1), weights, rtol=0, atol=1e-12)


def test_a_query_that_sees_nothing_is_what_torch_makes_of_it() -> None:
    """Not a number with a plain softmax, zeros through scaled_dot_product_attention."""
    module = multihead()
    (x,) = randoms((S, 1, 24))
    nowhere = torch.zeros(S, S, dtype=torch.float64)
    nowhere[3] = -torch.inf
    with record(module) as seen:
        out, _ = module(x, x, x, attn_mask=nowhere)
        zeros, _ = module(x, x, x, attn_mask=nowhere, need_weights=False)
    plain, fused = (call.weights() for call in seen.calls)
    assert out[3].isnan().all() and plain[:, :, 3].isnan().all() and not plain[:, :, :3].isnan().any()
    assert not zeros.isnan().any() and not fused[:, :, 3].any() and seen.calls[1].check() < 1e-12


def test_inputs_that_are_overwritten_later_are_kept() -> None:
    module = multihead(batch_first=True)
    (x,) = randoms((B, T, 24))
    _, weights = module(x, x, x, average_attn_weights=False)
    with record(module) as seen:
        x += module(x, x, x)[0]
    assert seen.check() < 1e-12
    assert torch.allclose(seen.calls[0].weights(), weights, rtol=0, atol=1e-12)


def test_parameters_that_have_changed_since_are_an_error_and_no_wrong_map() -> None:
    module = multihead()
    (x,) = randoms((T, B, 24))
    with record(module) as seen:
        module(x, x, x)
    with torch.no_grad():
        module.in_proj_weight.mul_(1.1)
    with pytest.raises(UsageError, match="have changed since"):
        _ = seen.calls


# --- nn.Transformer


def transformer(norm_first: bool, dtype: torch.dtype, training: bool) -> nn.Transformer:
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 37, "dropout": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its nested tensors
        return nn.Transformer(24, 4, **sizes, batch_first=True, norm_first=norm_first).to(dtype).train(training)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_transformer_of_torch(norm_first: bool, training: bool, dtype: torch.dtype) -> None:
    model = transformer(norm_first, dtype, training)
    source, target = randoms((B, S, 24), (B, T, 24), dtype=dtype)
    later = nn.Transformer.generate_square_subsequent_mask(T, dtype=dtype)
    padding = torch.zeros(B, S, dtype=dtype).masked_fill(PADDING, -torch.inf)
    masks: dict[str, Any] = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": later}
    with torch.set_grad_enabled(training):
        plain = model(source, target, **masks)
        with record(model) as seen:
            out = model(source, target, **masks)
    assert torch.allclose(out, plain, rtol=0, atol=TOLERANCE[dtype])
    assert [(call.path, call.role, call.layer) for call in seen.calls] == [
        ("encoder.layers.0.self_attn", "self", 0),
        ("encoder.layers.1.self_attn", "self", 1),
        ("decoder.layers.0.self_attn", "causal", 0),
        ("decoder.layers.0.multihead_attn", "cross", 0),
        ("decoder.layers.1.self_attn", "causal", 1),
        ("decoder.layers.1.multihead_attn", "cross", 1),
    ]
    assert seen.check() < TOLERANCE[dtype]
    real = ~PADDING[:, None, None]
    allowed = {"self": real, "cross": real, "causal": torch.ones(T, T).bool().tril()}
    for call in seen.calls:
        assert torch.equal(call.allowed(), allowed[call.role].expand(call.weights().shape))
        assert torch.equal(call.weights() > 0, call.allowed())
    assert [seen.axes(call) for call in seen.calls[1:4]] == [
        ("source", "source"), ("prefix", "prefix"), ("target", "source"),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_that_would_take_its_fast_path_with_nested_tensors() -> None:
    """It never calls an attention that can be seen, until someone records; without padding the results agree."""
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(24, 4, 37, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    (x,) = randoms((B, S, 24), dtype=torch.float32)
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=PADDING)
        with record(model) as seen:
            out = model(x, src_key_padding_mask=PADDING)
        after = model(x, src_key_padding_mask=PADDING)
    assert len(seen.calls) == 2 and seen.check() < 1e-5
    assert torch.allclose(out[~PADDING], plain[~PADDING], rtol=0, atol=1e-5)
    assert not plain[PADDING].any() and torch.equal(after, plain)  # nested tensors leave zeros: the fast path ran


@pytest.mark.parametrize("build_one", [nn.TransformerEncoderLayer, nn.MultiheadAttention])
def test_fast_paths_of_single_modules(build_one: Any) -> None:
    module = build_one(24, 4, batch_first=True)
    (x,) = randoms((B, S, 24), dtype=torch.float32)
    given = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x,)
    with torch.inference_mode(), record(module.eval()) as seen:
        module(*given)
    assert len(seen.calls) == 1 and seen.check() < 1e-5


# --- Changes


def test_heads_are_removed_from_products_and_from_multi_head_attention() -> None:
    q, k, v = randoms((B, H, T, E), (B, H, S, E), (B, H, S, E))
    module = Products()
    plain = module(q, k, v)
    with intervene(module, Remove(head=2)), record(module) as seen:
        out = module(q, k, v)
    assert not out[:, 2].any() and torch.equal(out[:, [0, 1, 3, 4, 5]], plain[:, [0, 1, 3, 4, 5]])
    assert len(seen.calls) == 1 and seen.calls[0].removed == (2,) and seen.check() < 1e-12

    heads, (x,) = multihead(), randoms((T, B, 24))
    without = copy.deepcopy(heads)
    without.out_proj.weight.data[:, 8:12] = 0.0  # what head 2 of width 4 gives
    with intervene(heads, Remove(head=2)), record(heads) as seen:
        out, _ = heads(x, x, x)
    assert torch.allclose(out, without(x, x, x)[0], rtol=0, atol=1e-12)
    assert len(seen.calls) == 1 and seen.calls[0].removed == (2,) and seen.check() < 1e-12


@pytest.mark.parametrize("temperature", [0.25, 4.0])
@pytest.mark.parametrize("value", [INFINITE, LEAST])
def test_a_temperature_divides_scores(temperature: float, value: float) -> None:
    q, k, v = randoms((B, H, T, E), (B, H, S, E), (B, H, S, E))
    module, mask = Products(), added(ROWLESS, value)
    with intervene(module, Temperature(value=temperature)), record(module) as seen:
        out = module(q, k, v, attn_mask=mask)
    assert torch.allclose(out, module(q / temperature, k, v, attn_mask=mask), rtol=0, atol=1e-12)
    assert seen.check() < 1e-12

    heads, (x,) = multihead(add_bias_kv=True), randoms((S, B, 24))
    cooler = copy.deepcopy(heads)
    cooler.in_proj_weight.data[:24] /= temperature
    cooler.in_proj_bias.data[:24] /= temperature
    with intervene(heads, Temperature(value=temperature)), record(heads) as seen:
        out, shown = heads(x, x, x, key_padding_mask=PADDING)
    expected, weights = cooler(x, x, x, key_padding_mask=PADDING)
    assert torch.allclose(out, expected, rtol=0, atol=1e-12) and torch.allclose(shown, weights, rtol=0, atol=1e-12)
    assert torch.allclose(seen.calls[0].weights().mean(dim=1), weights, rtol=0, atol=1e-12) and seen.check() < 1e-12


def test_a_pinned_row_looks_where_it_is_told() -> None:
    q, k, v = randoms((B, H, T, E), (B, 2, S, E), (B, 2, S, E))
    module = Products()
    plain = module(q, k, v, enable_gqa=True)
    with intervene(module, Pin(row=3, weights=5, head=4)), record(module) as seen:
        out = module(q, k, v, enable_gqa=True)
    assert torch.equal(out[:, 4, 3], v[:, 1, 5])  # heads 3 to 5 share the second key-value head
    assert torch.allclose(out[:, :4], plain[:, :4], rtol=0, atol=1e-12) and seen.check() < 1e-12

    heads, (x,) = multihead(), randoms((T, 1, 24))
    with intervene(heads, Pin(row=2, weights=1)), record(heads) as seen:
        out, shown = heads(x, x, x, average_attn_weights=False)
    value = x[1, 0] @ heads.in_proj_weight[48:].T + heads.in_proj_bias[48:]
    assert torch.allclose(out[2, 0], heads.out_proj(value), rtol=0, atol=1e-12)
    assert torch.equal(shown[0, :, 2], torch.eye(T, dtype=torch.float64)[1].expand(6, T)) and seen.check() < 1e-12


def test_hard_attention_sees_the_best_key_only() -> None:
    heads, (x,) = multihead(batch_first=True), randoms((B, T, 24))
    _, soft = heads(x, x, x, average_attn_weights=False)
    with intervene(heads, Temperature(hard=True)):
        out, hard = heads(x, x, x, average_attn_weights=False)
    assert torch.equal(hard.argmax(dim=-1), soft.argmax(dim=-1)) and torch.equal(hard.sum(dim=-1), hard.amax(dim=-1))
    with intervene(heads, Temperature(hard=True)):
        one, none = heads(x[0], x[0], x[0], need_weights=False)
    assert none is None and torch.allclose(one, out[0], rtol=0, atol=1e-12)


def test_changes_of_several_models_reach_their_own() -> None:
    torch.manual_seed(1)
    first, second = Stack().double(), Stack().double()
    (x,) = randoms((B, T, 12))
    plain = [first(x), second(x)]
    with intervene(first, Remove(layer=0)), intervene(second, Remove(layer=1, head=0)):
        with record(second) as seen:
            changed = [first(x), second(x)]
        assert [call.removed for call in seen.calls] == [(), (0,)]
    assert not torch.allclose(plain[0], changed[0]) and not torch.allclose(plain[1], changed[1])
    with (
        pytest.raises(UsageError, match="met no attention: there are self layers 0 to 1"),
        intervene(first, Remove(layer=2)),
    ):
        first(x)
    assert torch.equal(first(x), plain[0])


def test_gradients_flow_through_a_change() -> None:
    for module, shapes in ((Products(), [(B, H, T, E)] * 3), (multihead(), [(T, B, 24)] * 3)):
        for change in (Remove(head=1), Temperature(value=2.0)):
            given = [x.requires_grad_() for x in randoms(*shapes)]
            with intervene(module, change), record(module) as seen:
                out = module(*given)
            (out[0] if isinstance(out, tuple) else out).sum().backward()
            assert all(x.grad is not None and x.grad.abs().sum() > 0 for x in given)
            call = seen.calls[0]
            assert not any(x.requires_grad for x in (call.q, call.k, call.v, call.out, call.weights()))


# --- Who is seen, when, and by whom


def test_bounds_hold_for_others_too() -> None:
    model = transformer(False, torch.float64, training=True)
    source, target = randoms((B, S, 24), (B, T, 24))
    with record(model) as whole:
        model(source, target)
    with record(model, only="cross", layers=1, texts=[2, 0], rows=slice(1, 3)) as seen:
        model(source, target)
    (call,) = seen.calls
    assert call.path == "decoder.layers.1.multihead_attn" and call.check() < 1e-12
    assert torch.allclose(call.weights(), whole.only("cross", 1)[0].weights()[[2, 0], :, 1:3], rtol=0, atol=1e-12)
    with record(model, most_tokens=T) as small:
        model(source, target)
    assert [call.role for call in small.calls] == ["self", "self"] and small.left_out == 4


@pytest.mark.parametrize(
    ("bounds", "texts", "rows"),
    [
        ({"texts": [1]}, [1], slice(None)),
        ({"rows": 2}, [0, 1, 2], slice(2, 3)),
        ({"texts": 2, "rows": slice(1, None, 2)}, [0, 1], slice(1, None, 2)),
    ],
)
@pytest.mark.parametrize("name", ["boolean mask of texts", "added for each head", "causal", "added", "grouped heads"])
def test_bounds_of_products(name: str, bounds: dict[str, Any], texts: list[int], rows: slice) -> None:
    of_q, of_k, options, _ = FORMS[name]
    q, k, v = randoms(of_q, of_k, of_k)
    with record(module := Products()) as whole:
        module(q, k, v, **options)
    with record(module, **bounds) as seen:
        module(q, k, v, **options)
    (every,), (call,) = whole.calls, seen.calls
    assert call.check() < 1e-12
    assert torch.equal(call.weights(), every.weights()[texts][:, :, rows])
    assert torch.equal(call.allowed(), every.allowed()[texts][:, :, rows])


@pytest.mark.parametrize("bounds", [{"texts": [1]}, {"rows": 2}])
def test_bounds_of_multi_head_attention_with_masks(bounds: dict[str, Any]) -> None:
    module = multihead(add_bias_kv=True)
    q, k = randoms((T, B, 24), (S, B, 24))
    _, weights = module(q, k, k, **MASKS["both"], average_attn_weights=False)
    with record(module, **bounds) as seen:
        module(q, k, k, **MASKS["both"])
    expected = weights[[1]] if "texts" in bounds else weights[:, :, 2:3]
    assert seen.check() < 1e-12 and torch.allclose(seen.calls[0].weights(), expected, rtol=0, atol=1e-12)
    assert torch.equal(seen.calls[0].allowed(), expected > 0)


def test_blocks_within_blocks_see_a_call_once() -> None:
    model = Stack()
    (x,) = randoms((B, T, 12), dtype=torch.float32)
    with record(model) as outer:
        with record(model) as inner:
            model(x)
        assert len(inner.calls) == 2 and not outer.calls
        with intervene(model, Temperature(value=2.0)), intervene(model.eyes[0], Remove(head=1)):
            model(x)
    assert [(call.path, call.removed) for call in outer.calls] == [("eyes.0", (1,)), ("eyes.1", ())]


def test_blocks_of_generators_may_end_in_any_order() -> None:
    model = Stack()
    (x,) = randoms((B, T, 12), dtype=torch.float32)

    def recording() -> Any:
        with record(model) as seen:
            yield seen

    first, second = recording(), recording()
    next(first)
    inner = next(second)
    with pytest.warns(UserWarning, match="no attention was seen"):
        next(first, None)  # the outer block ends before the inner
    model(x)
    next(second, None)
    model(x)
    assert len(inner.calls) == 2


def test_nothing_is_left_behind_also_after_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an error is in flight: nothing is to be said about what was not seen
        with pytest.raises(RuntimeError, match="someone's"), record(model := Stack()):
            raise RuntimeError("someone's")
    assert not torch.overrides.has_torch_function((torch.zeros(1),))
    (x,) = randoms((B, T, 12), dtype=torch.float32)
    with record(model) as seen:
        model(x)
    model(x)
    assert len(seen.calls) == 2


def test_no_tensor_of_a_pass_outlives_the_block() -> None:
    """The bug: whoever tells shared layers apart held the frames of the last pass, and with them all its tensors."""

    class Doubles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.look = Products()

        def forward(self, x: Tensor) -> Tensor:
            doubled = 2 * x
            kept.append(weakref.ref(doubled))
            return self.look(doubled + 1, doubled + 2, doubled + 3)

    kept: list[weakref.ref[Tensor]] = []
    model = Doubles()
    with record(model) as seen:
        model(torch.ones(B, H, T, E))
    assert len(seen.calls) == 1 and kept[0]() is None


def test_a_model_that_multiplies_by_itself_is_told_to_its_reader() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x.mT).softmax(dim=-1) @ x

    model, (x,) = Own(), randoms((B, T, E))
    with pytest.warns(UserWarning, match="no attention was seen.*multiplies and normalises by itself") as warned:
        seen = looked_at(model, x)
    assert warned[0].filename == __file__  # the reader's own line, not ours
    with pytest.raises(ValueError, match="no attention was seen"):
        seen.check()
    with pytest.warns(UserWarning, match="no attention is within the bounds.*there are self layers 0 to 1"):
        looked_at(Stack(), randoms((B, T, 12), dtype=torch.float32)[0], only="cross")


class Flexible(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(x, x, x)  # type: ignore[return-value]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_cause_is_named_where_nothing_was_seen() -> None:
    (x,) = randoms((B, 1, T, E), dtype=torch.float32)
    products, traced = Products(), torch.jit.trace(Products(), (x, x, x))

    def elsewhere(model: nn.Module) -> None:
        thread = threading.Thread(target=model, args=(x, x, x))
        thread.start()
        thread.join()

    for model, run, words in (
        (products, lambda model: None, r"nothing of torch ran inside this block in this thread"),
        (products, elsewhere, r"nothing of torch ran inside this block in this thread.*another thread"),
        (traced, lambda model: model(x, x, x), r"traced or scripted.*record the module it was made of"),
        (Flexible(), lambda model: model(x), r"calls flex_attention"),
    ):
        with torch.no_grad(), pytest.warns(UserWarning, match=f"no attention was seen: .*{words}"), record(model):
            run(model)


@pytest.mark.parametrize("before", [False, True])
def test_compiled_models_are_seen_and_changed(before: bool) -> None:
    """The bug: Dynamo tried to compile the watch and failed on its frames, whether it was compiled before or inside."""
    torch.manual_seed(0)
    plain, (x,) = Stack(), randoms((B, T, 12), dtype=torch.float32)
    counted, compiled = torch._dynamo.testing.CompileCounter(), Stack()
    compiled.load_state_dict(plain.state_dict())
    model = torch.compile(compiled, backend=counted)
    with torch.no_grad():
        if before:
            model(x)
        seen, expected = looked_at(model, x), looked_at(plain, x)
        assert [call.path for call in seen.calls] == [f"_orig_mod.{call.path}" for call in expected.calls]
        for mine, other in zip(seen.calls, expected.calls, strict=True):
            torch.testing.assert_close(mine.weights(), other.weights())
        with intervene(model, Remove(layer=1)):
            changed = model(x)
        with intervene(plain, Remove(layer=1)):
            torch.testing.assert_close(changed, plain(x))
        frames = counted.frame_count
        assert (frames > 0) == before  # nothing was compiled while someone looked
        torch.testing.assert_close(model(x), plain(x))
        assert counted.frame_count > 0  # and afterwards it runs compiled


def test_what_is_no_model_is_told() -> None:
    for use in (lambda: record("gpt2"), lambda: intervene(3, Remove(layer=0))):
        with (
            pytest.raises(UsageError, match=r"takes a module or what regard\.load gives, and this is a (str|int)"),
            use(),
        ):
            pass


def test_what_is_for_loaded_models_says_so_of_any_other() -> None:
    """An AttributeError told nobody what to do."""
    data = [("a b", "c")]
    for name, use in (
        ("walk", lambda model: regard.walk(model, "a b")),
        ("heads_of", lambda model: regard.heads_of(model, data)),
        ("faithfulness", lambda model: regard.faithfulness(model, data)),
    ):
        with pytest.raises(
            UsageError, match=rf"regard.{name} takes what .* this is a Stack.*regard import.*regard.record"
        ):
            use(Stack())
        with pytest.raises(
            UsageError, match=rf"regard.{name} takes what regard.load gives, with its tokens; .* MultiHead"
        ):
            use(MultiHead(12, 3, role="self"))


def test_a_model_outside_the_recorded_one_is_not_seen() -> None:
    (x,) = randoms((B, T, 12), dtype=torch.float32)
    recorded, other = Stack(), Stack()
    with record(recorded) as seen:
        other(x)
        recorded(x)
        scaled_dot_product_attention(x, x, x)
    assert [call.path for call in seen.calls] == ["eyes.0", "eyes.1"]


def test_our_own_attention_in_someone_elses_model_is_seen_once() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ours, self.theirs = Sub(24, 4, role="self"), nn.MultiheadAttention(24, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            attend(*[x[:, None]] * 3)  # a function, nobody's module
            x = self.ours(x, x)
            return self.theirs(x, x, x)[0]

    class Sub(MultiHead):
        """Of ours, by someone else."""

    model, (x,) = Mixed(), randoms((1, 150, 24), dtype=torch.float32)  # long enough for the fused kernel
    assert is_foreign(model)
    with record(model) as seen:
        model(x)
    assert [call.path for call in seen.calls] == ["ours", "theirs"]


def test_threads_see_only_their_own() -> None:
    (x,) = randoms((B, T, 12), dtype=torch.float32)
    shared, others = Stack(), [Stack() for _ in range(2)]
    meet, seen = threading.Barrier(4), {}

    def look(name: int, model: Stack, rounds: int) -> None:
        with record(model) as mine:
            for _ in range(rounds):
                meet.wait(timeout=20)
                model(x + name)
        seen[name] = mine

    plans = [(0, shared, 5), (1, shared, 5), (2, others[0], 5), (3, others[1], 5)]
    threads = [threading.Thread(target=look, args=plan) for plan in plans]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for name, model, rounds in plans:
        assert len(seen[name].calls) == 2 * rounds
        with record(model) as alone:
            model(x + name)
        assert all(torch.equal(a.q, alone.calls[0].q) for a in seen[name].calls[::2])


# --- Roles


def mask_of(*rows: str) -> Tensor:
    return torch.tensor([[mark == "x" for mark in row] for row in rows])


@pytest.mark.parametrize(
    ("mask", "later"),
    [
        (mask_of("x..", "xx.", "xxx"), True),
        (mask_of("x..", "xx.", ".xx"), True),  # a window that looks back
        (mask_of("...", ".x.", ".xx"), True),  # padding on the left
        (mask_of("xxx...", "xxxx.."), True),  # two places of a cache with free ones
        (mask_of("xx", "xx"), False),
        (mask_of("x..", "x..", "x.."), False),  # one token and padding
        (mask_of("xx.", "xxx", ".xx"), False),  # a window to both sides
        (mask_of("x...x"), False),
    ],
)
def test_which_masks_hide_what_is_later(mask: Tensor, later: bool) -> None:
    assert hides_later(mask) is later
    assert hides_later(mask.expand(2, 1, *mask.shape)) is later


@pytest.mark.parametrize(
    ("path", "queries", "keys", "said", "role"),
    [
        ("layers.0.attn", 5, 5, {}, "self"),
        ("layers.0.attn", 5, 5, {"causal": True}, "causal"),
        ("layers.0.attn", 5, 7, {}, "cross"),
        ("layers.0.attn", 1, 7, {"step": True}, "causal"),
        ("layers.0.attn", 1, 7, {"same": False}, "cross"),
        ("layers.0.attn", 5, 5, {"same": False}, "cross"),
        ("decoder.layers.0.encoder_attn", 1, 7, {"step": True}, "cross"),
        ("decoder.block.0.layer.1.EncDecAttention", 5, 5, {"causal": True}, "cross"),
        ("encoder.layer.0.crossattention.self", 5, 5, {}, "cross"),
        ("crossformer.blocks.0.attn", 5, 5, {}, "self"),  # the name of a model says nothing
        ("layers.0.multihead_attn", 5, 5, {"same": True}, "self"),
        ("layers.0.multihead_attn", 5, 5, {"same": False, "causal": True}, "cross"),
        ("head.attn_pool", 1, 9, {"step": True}, "pool"),
    ],
)
def test_the_rule_for_roles(path: str, queries: int, keys: int, said: dict[str, Any], role: Role) -> None:
    assert role_of(path, nn.Identity(), queries, keys, **{"causal": False} | said) == role


@pytest.mark.parametrize("batch_first", [False, True])
def test_positions_that_only_queries_and_keys_know_make_no_cross_attention(batch_first: bool) -> None:
    """As in DETR (Carion et al. 2020). With `batch_first`, torch has transposed query and key apart."""
    module, (x, positions) = multihead(batch_first=batch_first), randoms((T, T, 24), (T, T, 24))
    both = x + positions
    with record(module) as seen:
        module(both, both, x)
        module(both, x, x)
    assert [call.role for call in seen.calls] == ["self", "cross"]


def test_a_pin_counts_from_the_first_query_where_no_step_stands_beside() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.cross = Products(), Products()

        def forward(self, newest: Tensor, all_keys: Tensor) -> Tensor:
            self.attn(newest, all_keys, all_keys)  # one query behind a cache of T keys: it stands at T - 1
            return self.cross(all_keys, all_keys, all_keys)  # T queries of something else

    model, (x,) = Steps(), randoms((B, H, T, E))
    with intervene(model, Pin("cross", row=1, weights=3)), record(model) as seen:
        model(x[:, :, -1:], x)
    assert [call.role for call in seen.calls] == ["causal", "cross"]
    assert torch.equal(seen.calls[1].weights()[:, :, 1], torch.eye(T, dtype=torch.float64)[3].expand(B, H, T))


# --- Our own


@pytest.mark.parametrize("task", KINDS_OF)
def test_no_family_of_ours_is_foreign(task: str) -> None:
    sees, hears = task in ("classify-pictures", "caption", "answer"), task in ("transcribe", "classify-sounds")
    without = dict.fromkeys(("classify-pictures", "classify-sounds", "classify-graphs"), ())
    words = {"translate": (23, 23), "remember": (10, 8), **without}.get(task, (23,))
    for kind in KINDS_OF[task]:
        config = run_config(task, {"preset": "demo", "model": {"kind": kind}}).model
        seen, heard = PictureFormat(size=32) if sees else None, SoundFormat(mels=13) if hears else None
        nodes = GraphFormat(features=11) if task == "classify-graphs" else None
        model = build(task, config, words, labels=3, pictures=seen, sounds=heard, graphs=nodes)
        assert not is_foreign(model), kind


def test_what_is_foreign() -> None:
    ours, theirs = MultiHead(24, 4, role="self"), nn.MultiheadAttention(24, 4)
    assert not is_foreign(ours) and not is_foreign(nn.Sequential(nn.Linear(3, 5), ours))
    assert is_foreign(theirs) and is_foreign(nn.Sequential(ours, theirs)) and is_foreign(Products())
    assert is_foreign(nn.TransformerEncoderLayer(24, 4))


# --- Layers that share their weights


class Shared(nn.Module):
    """One attention, called several times in a pass (Dehghani et al. 2019; Lan et al. 2020), or over parts of a batch."""

    def __init__(self, times: int, parts: int = 1) -> None:
        super().__init__()
        self.attention = Parts(parts)
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = x + self.attention(x)
        return x


class Parts(nn.Module):
    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([scaled_dot_product_attention(each, each, each) for each in x.chunk(self.parts)])


@torch.no_grad()
def test_layers_that_share_their_weights_are_told_apart() -> None:
    """All were layer 0: none could be recorded, labelled or changed apart. Each pass begins again at 0."""
    model, x = Shared(3), torch.randn(B, 1, T, E, dtype=torch.float64)
    states = [x]
    for _ in range(3):
        weights = (states[-1] @ states[-1].mT / E**0.5).softmax(dim=-1)
        states.append(states[-1] + weights @ states[-1])
    with record(model) as seen:
        assert torch.allclose(model(x), states[-1])
        model(x)
    assert [call.layer for call in seen.calls] == [0, 1, 2, 0, 1, 2]
    assert {call.path for call in seen.calls} == {"attention"}
    for layer in range(3):
        assert [torch.allclose(call.q, states[layer]) for call in seen.only("self", layer)] == [True, True]
    with record(model, layers=1) as one, intervene(model, Remove(layer=1)):
        changed = model(x)
    assert [call.layer for call in one.calls] == [1]
    last = states[1] + (states[1] @ states[1].mT / E**0.5).softmax(dim=-1) @ states[1]  # the second adds nothing
    assert torch.allclose(changed, last)
    with pytest.raises(UsageError, match="there are self layers 0 to 2"), intervene(model, Remove(layer=3)):
        model(x)


@torch.no_grad()
def test_parts_of_one_call_are_one_layer_and_multi_head_attention_may_be_shared() -> None:
    module = Shared(2, parts=3)
    with record(module) as seen:
        module(torch.randn(B, 1, T, E))
    assert [call.layer for call in seen.calls] == [0, 0, 0, 1, 1, 1]
    layer = nn.TransformerEncoderLayer(12, 3, 7, batch_first=True).eval()
    model = nn.Sequential(layer, layer, layer)
    with record(model) as seen:
        model(torch.randn(2, 5, 12))
    assert [call.layer for call in seen.calls] == [0, 1, 2]
