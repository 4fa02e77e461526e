"""Rotary positions against complex numbers, and the other parts heads may have: groups, a band, a scale, a cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention import Causal, Dense, Lengths, MultiHead, Rotary, StepCache, Window, record

B, H, T, E = 2, 3, 7, 10
D = 30


def vectors(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def turned(x: Tensor, start: int, base: float = 10_000.0) -> Tensor:
    """Su et al. 2021, section 3.1: a pair is a complex number, multiplied by exp(i p base^(-2i/E)) at position p."""
    half, places = x.size(-1) // 2, start + np.arange(x.size(-2))
    turns = np.exp(1j * places[:, None] * base ** (-2 * np.arange(half) / x.size(-1)))  # (T, E / 2)
    pairs = (x[..., :half].detach().numpy() + 1j * x[..., half:].detach().numpy()) * turns
    return torch.from_numpy(np.concatenate([pairs.real, pairs.imag], axis=-1))


# --- Rotary


@pytest.mark.parametrize("base", [10_000.0, 500.0, 2.5])
@pytest.mark.parametrize("start", [0, 1, 5])
@pytest.mark.parametrize("size", [3, 7, 12, 1024])
def test_pairs_are_multiplied_by_complex_numbers(size: int, start: int, base: float) -> None:
    """Inside the table, at its end, across it and beyond it."""
    rotary, x = Rotary(E, base, size).double(), vectors(B, H, T, E)
    assert torch.allclose(rotary(x, start), turned(x, start, base), rtol=0, atol=1e-13)


def test_far_positions_do_not_lose_their_angle() -> None:
    """At position 100,003 a float32 angle would be wrong by a hundredth."""
    x = vectors(1, 1, 2, E)
    rotary = Rotary(E, size=100_010).double()
    assert torch.allclose(rotary(x, 100_003), turned(x, 100_003), rtol=0, atol=1e-9)
    assert torch.allclose(Rotary(E, size=5)(x, 100_003), turned(x, 100_003), rtol=0, atol=1e-9)
    single = Rotary(E, size=100_010)(x.float(), 100_003)
    assert torch.allclose(single.double(), turned(x.float().double(), 100_003), rtol=0, atol=1e-6)


@pytest.mark.parametrize("start", [0, 1, 500, 1019])
def test_a_product_depends_on_the_distance_alone(start: int) -> None:
    """Su et al. 2021, eq. 11: one query and one key, put at every pair of positions."""
    rotary, (q, k) = Rotary(E).double(), vectors(2, 1, 1, 1, E)
    queries, keys = rotary(q.expand(1, 1, T, E), start), rotary(k.expand(1, 1, T, E), start)
    products = (queries @ keys.mT)[0, 0]  # (T, S)
    fresh = [(rotary(q, 40 + distance) * rotary(k, 40)).sum().item() for distance in range(-T + 1, T)]
    for t in range(T):
        for s in range(T):
            assert products[t, s].item() == pytest.approx(fresh[t - s + T - 1], abs=1e-11)
    assert len({round(product, 6) for product in fresh}) == 2 * T - 1


def test_turning_keeps_lengths_and_position_zero() -> None:
    rotary, x = Rotary(E).double(), vectors(B, H, T, E)
    assert torch.allclose(rotary(x, 19).norm(dim=-1), x.norm(dim=-1), rtol=0, atol=1e-12)
    assert torch.equal(rotary(x[:, :, :1]), x[:, :, :1])


def test_hand_computed_turns() -> None:
    """Width 4, base 100: at position 3 the first pair turns by 3, the second by 0.3."""
    found = Rotary(4, 100.0).double()(torch.tensor([[[[1.0, 0.0, 0.0, 1.0]]]], dtype=torch.float64), 3)
    expected = [math.cos(3), -math.sin(0.3), math.sin(3), math.cos(0.3)]
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-15)


def test_parts_of_a_sequence_are_the_whole() -> None:
    rotary, x = Rotary(E, size=5).double(), vectors(B, H, T, E)
    whole = rotary(x, 3)
    for cut in range(1, T):
        parts = torch.cat([rotary(x[:, :, :cut], 3), rotary(x[:, :, cut:], 3 + cut)], dim=2)
        assert torch.allclose(parts, whole, rtol=0, atol=1e-13)


def test_tables_are_as_exact_as_the_model() -> None:
    """Tables that went through float32 or bfloat16 would differ from NumPy's cosines by 1e-8 or 1e-3."""
    angles = np.arange(11)[:, None] * 500.0 ** (-np.arange(0, E, 2) / E)
    rotary = Rotary(E, 500.0, size=11)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        rotary = rotary.to(dtype)
        assert rotary.cosine.dtype == rotary.sine.dtype == dtype
        assert torch.equal(rotary.cosine, torch.from_numpy(angles).cos().to(dtype))
        assert np.abs(rotary.sine.double().numpy() - np.sin(angles)).max() <= torch.finfo(dtype).eps


def test_tables_are_no_weights() -> None:
    rotary = Rotary(E)
    assert not rotary.state_dict()
    assert not list(rotary.parameters())


def test_a_head_of_odd_width_has_no_pairs() -> None:
    with pytest.raises(ValueError, match="pairs, and a head of width 7"):
        Rotary(7)


# --- Heads: plain loops over batch, heads and positions


def heads(**options: Any) -> MultiHead:
    torch.manual_seed(3)
    return MultiHead(D, H, role="causal", **options).double()


def by_hand(model: MultiHead, x: Tensor, may: np.ndarray, base: float | None = None) -> Tensor:
    """Vaswani et al. 2017, section 3.2.2, one score after another; `may` (T, S) says who sees whom."""
    width, ratio = D // model.heads, model.heads // model.groups
    biases = [0.0 if layer.bias is None else layer.bias for layer in (model.query, model.key_value, model.out)]
    q = x @ model.query.weight.T + biases[0]  # (B, T, D)
    both = x @ model.key_value.weight.T + biases[1]
    k, v = both[..., : model.groups * width], both[..., model.groups * width :]  # keys first, then values
    out = torch.zeros_like(x)
    for head in range(model.heads):
        own, shared = (slice(n * width, (n + 1) * width) for n in (head, head // ratio))
        queries, keys = q[..., own], k[..., shared]
        if base is not None:
            queries, keys = turned(queries, 0, base), turned(keys, 0, base)
        for b in range(len(x)):
            for t in range(x.size(1)):
                seen = np.flatnonzero(may[t])
                scale = 1 / math.sqrt(width) if model.scale is None else model.scale
                shares = np.array([math.exp(float(queries[b, t] @ keys[b, s]) * scale) for s in seen])
                shares /= shares.sum()
                out[b, t, own] = sum(share * v[b, s, shared] for share, s in zip(shares, seen, strict=True))
    return out @ model.out.weight.T + biases[2]


def causal(band: int = 0) -> np.ndarray:
    return np.array([[s <= t and (not band or t - s < band) for s in range(T)] for t in range(T)])


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [{}, {"groups": 1}, {"groups": 3}, {"bias": False}, {"scale": 0.17}, {"scale": 1.0, "groups": 1},
     {"band": 1}, {"band": 2}, {"band": 6}, {"band": 7}, {"band": 100}, {"band": 3, "groups": 1, "bias": False}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("base", [None, 30.0])
def test_heads_are_what_the_loops_say(base: float | None, options: dict[str, Any]) -> None:
    model, x = heads(rotary=None if base is None else Rotary(E, base), **options), vectors(B, T, D)
    expected = by_hand(model, x, causal(options.get("band", 0)), base)
    assert torch.allclose(model(x, x, Causal()), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_band_without_a_mask_looks_back_only() -> None:
    model, x = heads(band=3), vectors(B, T, D)
    assert torch.allclose(model(x, x), by_hand(model, x, causal(3)), rtol=0, atol=1e-12)
    masked = model(x, x, Lengths(torch.tensor([5, T])))
    may = causal(3)
    may[:, 5:] = False
    assert torch.allclose(masked[:1, :5], by_hand(model, x[:1], may | np.eye(T, dtype=bool))[:, :5], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_band_holds_where_the_fused_kernel_is_used() -> None:
    """53 x 53 scores are too many for plain products."""
    model, plain, x = heads(band=5), heads(), vectors(B, 53, D)
    dense = Dense(torch.tensor([[0 <= t - s < 5 for s in range(53)] for t in range(53)]))
    assert torch.allclose(model(x, x, Causal()), plain(x, x, dense), rtol=0, atol=1e-12)
    assert torch.allclose(plain(x, x, Causal() & Window(4, 0)), plain(x, x, dense), rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_grouped_heads_are_full_heads_with_equal_keys(groups: int) -> None:
    """Ainslie et al. 2023, figure 2."""
    torch.manual_seed(5)
    few = MultiHead(60, 6, role="causal", groups=groups, rotary=Rotary(10)).double()
    full = MultiHead(60, 6, role="causal", rotary=Rotary(10)).double()
    weights, biases = few.key_value.weight.view(2, groups, 10, 60), few.key_value.bias.view(2, groups, 10)
    full.load_state_dict(few.state_dict() | {
        "key_value.weight": weights[:, [h * groups // 6 for h in range(6)]].reshape(120, 60),
        "key_value.bias": biases[:, [h * groups // 6 for h in range(6)]].reshape(120),
    })  # fmt: skip
    x = vectors(B, T, 60)
    assert torch.allclose(few(x, x, Causal()), full(x, x, Causal()), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in few.parameters()) == 60 * 61 * 2 + 2 * groups * 10 * 61


# --- Through the cache


def options_of_the_cache() -> list[dict[str, Any]]:
    return [{}, {"groups": 1}, {"band": 1}, {"band": 4}, {"band": 4, "groups": 1, "scale": 0.4}]


@torch.no_grad()
@pytest.mark.parametrize("base", [None, 30.0])
@pytest.mark.parametrize("options", options_of_the_cache(), ids=str)
def test_reading_in_any_parts_and_stepping_is_reading_at_once(options: dict[str, Any], base: float | None) -> None:
    """Every cut of seven positions in three: two are read, the last is stepped through."""
    model, x = heads(rotary=None if base is None else Rotary(E, base, size=5), **options), vectors(B, T, D)
    expected = by_hand(model, x, causal(options.get("band", 0)), base)
    for first in range(1, T + 1):
        for second in range(first, T + 1):
            cache = StepCache.empty(B, model.groups, E, x, room=2)
            found = [model.read(x[:, :first], cache)]
            found += [model.read(x[:, first:second], cache)] if second > first else []
            found += [model.step(x[:, t : t + 1], cache) for t in range(second, T)]
            assert torch.allclose(torch.cat(found, dim=1), expected, rtol=0, atol=1e-12), (first, second)
            assert cache.filled == T


@torch.no_grad()
@pytest.mark.parametrize("options", options_of_the_cache(), ids=str)
def test_hypotheses_step_each_with_its_own_past(options: dict[str, Any]) -> None:
    model, x = heads(rotary=Rotary(E), **options), vectors(B * 5, T, D)
    expected = model(x, x, Causal())
    cache = StepCache.empty(B * 5, model.groups, E, x)
    for t in range(T):
        found = model.step(x[:, t].view(B, 5, D), cache)
        assert torch.allclose(found, expected[:, t].view(B, 5, D), rtol=0, atol=1e-12)


def test_a_cache_gives_its_last_positions() -> None:
    cache, k, v = StepCache.empty(B, H, E, torch.zeros(1).double(), room=2), *vectors(2, B, H, T, E)
    cache.append(k, v)
    for last in range(1, T + 3):
        assert torch.equal(torch.stack(cache.seen(last)), torch.stack([k[:, :, -last:], v[:, :, -last:]]))
    assert torch.equal(torch.stack(cache.seen()), torch.stack([k, v]))


@torch.no_grad()
def test_recorded_weights_are_those_that_were_used() -> None:
    """Turned queries and keys, scale and band are in what the recorder keeps, whole or in steps."""
    model, x = heads(rotary=Rotary(E, 30.0), band=3, scale=0.4, groups=1), vectors(B, T, D)
    cache = StepCache.empty(B, 1, E, x)
    with record(model) as seen:
        model(x, x, Causal())
        model.read(x[:, :4], cache)
        for t in range(4, T):
            model.step(x[:, t : t + 1], cache)
    assert seen.check() < 1e-12
    whole = seen.calls[0].weights()
    assert torch.equal(whole[0, 0] > 0, torch.from_numpy(causal(3)))
    assert torch.allclose(seen.calls[1].weights(), whole[:, :, :4, :4], rtol=0, atol=1e-12)
    for t in range(4, T):
        assert torch.allclose(seen.calls[t - 2].weights(), whole[:, :, t : t + 1, t - 2 : t + 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("groups", [0, 2, 6])
def test_groups_divide_heads(groups: int) -> None:
    with pytest.raises(ValueError, match=f"3 heads cannot share {groups} key-value heads; choose a divisor of 3"):
        heads(groups=groups)
