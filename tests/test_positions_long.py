"""Positions that reach: rotary ones divided by a scale, and added ones that start at random places in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention import Rotary
from regard.embed.tokens import LearnedPositions, RandomOffset, SinusoidalPositions, positions, sinusoid
from regard.errors import RegardError
from regard.models.config import BertConfig, GPT2Config, LlamaConfig, TransformerConfig
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from regard.noise import noise

B, H, T, E, D, V = 2, 3, 7, 10, 12, 17


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- Rotary positions, interpolated


@pytest.mark.parametrize("scale", [1.0, 2.0, 2.5, 0.5])
@pytest.mark.parametrize("size", [3, 1024])
def test_a_position_is_divided_by_the_scale(scale: float, size: int) -> None:
    """Chen et al. 2023, eq. 3: f'(x, p) = f(x, p / scale), inside the kept table and beyond it."""
    x, places = drawn(B, H, T, E), (5 + np.arange(T)) / scale
    turns = np.exp(1j * places[:, None] * 10_000.0 ** (-2 * np.arange(E // 2) / E))  # (T, E / 2)
    pairs = (x[..., : E // 2].numpy() + 1j * x[..., E // 2 :].numpy()) * turns
    expected = torch.from_numpy(np.concatenate([pairs.real, pairs.imag], axis=-1))
    found = Rotary(E, size=size, scale=scale).double()(x, 5)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_a_text_four_times_as_long_turns_no_farther() -> None:
    """Every fourth position at a scale of four is where the positions of training were."""
    x = drawn(1, 1, T, E)
    spread = torch.zeros(1, 1, 4 * T, E, dtype=torch.float64)
    spread[:, :, ::4] = x
    assert torch.allclose(Rotary(E, scale=4.0).double()(spread)[:, :, ::4], Rotary(E).double()(x), rtol=0, atol=1e-13)


def test_the_scale_survives_another_precision() -> None:
    x = drawn(1, 1, T, E)
    moved = Rotary(E, scale=3.0).to(torch.bfloat16).double()
    assert torch.equal(moved(x), Rotary(E, scale=3.0).double()(x))
    assert not torch.equal(moved(x), Rotary(E).double()(x))


@torch.no_grad()
def test_a_model_takes_its_scale_from_its_configuration_in_steps_too() -> None:
    sizes: dict[str, Any] = {"layers": 2, "width": D, "heads": 3, "feed_forward": 11}
    torch.manual_seed(5)
    plain, scaled = (GPT(LlamaConfig(**sizes, rotary_scale=scale), V).double().eval() for scale in (1.0, 4.0))
    for parameter in plain.parameters():
        parameter.data = drawn(*parameter.shape, seed=parameter.numel())
    scaled.load_state_dict(plain.state_dict())
    ids = torch.randint(V, (2, 9), generator=torch.Generator().manual_seed(3))
    whole = scaled.output(scaled.read(ids))
    assert not torch.allclose(whole, plain.output(plain.read(ids)), rtol=0, atol=1e-3)
    logits, state = scaled.start(None, ids[:, :5])
    found = [logits]
    for t in range(5, 9):
        logits, state = scaled.step(ids[:, t : t + 1], state)
        found.append(logits)
    assert torch.allclose(torch.cat(found, dim=1), whole[:, 4:], rtol=0, atol=1e-9)


# --- Random offsets


def offsets_of(module: RandomOffset, rows: int) -> list[int]:
    """Where each row of zeros was put, read from what was added to its first token."""
    table = module.inner.rows(module.most + T).double()  # (positions, D)
    added = module(torch.zeros(rows, T, D, dtype=torch.float64))
    found = [int((table - first).abs().sum(dim=1).argmin()) for first in added[:, 0]]
    for row, offset in zip(added, found, strict=True):
        assert torch.allclose(row, table[offset : offset + T], rtol=0, atol=1e-12)  # the others follow
    return found


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_in_training_each_row_starts_somewhere_and_goes_on_from_there(kind: str) -> None:
    module = positions(kind, D, T, random_offset=5).double().train()
    assert isinstance(module, RandomOffset)
    with noise(3, 0, 0):
        found = offsets_of(module, 120)
    assert set(found) == set(range(6))
    assert max(found.count(offset) for offset in range(6)) < 45  # 20 of each are expected


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_afterwards_all_rows_start_at_zero(kind: str) -> None:
    module = positions(kind, D, T, random_offset=5).double().eval()
    assert isinstance(module, RandomOffset)
    x = drawn(B, T, D)
    assert torch.equal(module(x, 2), module.inner(x, 2))
    assert offsets_of(module, 7) == [0] * 7


def test_offsets_are_a_function_of_the_step() -> None:
    """So that a run that was stopped and goes on is equal to the bit."""
    module = RandomOffset(SinusoidalPositions(D), 100).train()
    found = []
    for step in (4, 4, 5):
        torch.rand(step)  # whatever else was drawn before
        with noise(1, step, 0):
            found.append(offsets_of(module, 9))
    assert found[0] == found[1] != found[2]


def test_learned_positions_have_rows_for_all_offsets_and_learn_them() -> None:
    module = positions("learned", D, T, random_offset=5).train()
    with noise(1, 0, 0):
        module(torch.zeros(200, T, D)).sum().backward()
    assert isinstance(module, RandomOffset) and isinstance(module.inner, LearnedPositions)
    table = module.inner.table
    assert len(table) == T + 5 and table.grad is not None
    assert bool((table.grad.abs().sum(dim=1) > 0).all())
    with pytest.raises(RegardError, match="longer than the 12 learned positions"):
        module(torch.zeros(1, T + 6, D))


def test_a_row_that_needs_almost_all_learned_positions_starts_where_it_fits() -> None:
    """`longest` lets texts be longer than model.max_length by the offset; training on these broke off."""
    module = positions("learned", D, T, random_offset=5).double().train()
    assert isinstance(module, RandomOffset)
    table = module.inner.rows(T + 5)
    for length, latest in ((T + 5, 0), (T + 2, 3)):
        with noise(1, 0, 0):
            found = module(torch.zeros(200, length, D, dtype=torch.float64))
        starts = {
            start
            for start in range(latest + 1)
            if any(torch.equal(row, table[start : start + length]) for row in found)
        }
        assert starts == set(range(latest + 1))


def test_sinusoids_beyond_the_kept_table_are_computed() -> None:
    module = RandomOffset(SinusoidalPositions(D, size=3), 50).double().train()
    with noise(1, 0, 0):
        found = offsets_of(module, 30)
    assert max(found) > 20
    assert torch.allclose(module.inner.rows(60)[59], sinusoid(1, D, 59)[0], rtol=0, atol=1e-12)


def test_no_offset_and_other_kinds_need_no_wrapper() -> None:
    assert isinstance(positions("sinusoidal", D, T), SinusoidalPositions)
    assert not isinstance(positions("rotary", D, T, random_offset=5), RandomOffset)


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(layers=1, width=D, heads=3, feed_forward=7, max_length=T, random_offset=4),
        TransformerConfig(encoder_layers=1, decoder_layers=1, width=D, heads=3, feed_forward=7, random_offset=4),
        BertConfig(layers=1, width=D, heads=3, feed_forward=7, max_length=T, random_offset=4),
    ],
    ids=lambda config: config.kind,
)
def test_models_take_their_offset_from_the_configuration(config: Any) -> None:
    from regard.models.bert import BertEncoder

    torch.manual_seed(1)
    makers: dict[str, Any] = {
        "gpt2": lambda: GPT(config, V),
        "transformer": lambda: Transformer(config, V, V),
        "bert": lambda: BertEncoder(config, V),
    }
    model = makers[config.kind]().train()
    found = [each for each in model.modules() if isinstance(each, RandomOffset)]
    assert found and all(each.most == 4 for each in found)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"positions": "rotary", "random_offset": 4}, "random_offset is for positions that are added"),
        ({"positions": "alibi", "rotary_scale": 2.0}, "rotary_scale is for rotary positions"),
        ({"positions": "learned", "reach": 3}, "reach is for shaw and tree positions"),
    ],
)
def test_options_of_other_positions_are_refused_not_ignored(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LlamaConfig(**settings)
    if "rotary_scale" not in settings:
        with pytest.raises(ValueError, match=words):
            TransformerConfig(**settings)
