"""What a recording sees: every attention by name and role, with weights that rebuild what the module really gave."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import AttentionCall, Causal, Lengths, MultiHead, record
from regard.attention.record import attend_seen
from regard.data.batch import PairBatch
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

B, S, T, HEADS = 3, 7, 5, 3
SOURCE_LENGTHS = torch.tensor([4, 7, 2])
TARGET_LENGTHS = torch.tensor([5, 3, 4])


def build(dtype: torch.dtype = torch.float64, **changes: Any) -> Transformer:
    torch.manual_seed(5)
    config: dict[str, Any] = {
        "encoder_layers": 2, "decoder_layers": 2, "width": 15, "heads": HEADS, "feed_forward": 23, "tied": "none",
    }  # fmt: skip
    return Transformer(TransformerConfig(**config | changes), 19, 31).to(dtype).eval()


def batch() -> PairBatch:
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(3, 19, (B, S), generator=generator)
    target = torch.randint(3, 31, (B, T + 1), generator=generator)
    return PairBatch(source, SOURCE_LENGTHS, target, TARGET_LENGTHS, int(TARGET_LENGTHS.sum()))


def softmax_by_hand(call: AttentionCall, allowed: Tensor) -> Tensor:
    """Weights from queries and keys, head by head, without the package's mathematics."""
    share = call.q.size(1) // call.k.size(1)
    heads = []
    for h in range(call.q.size(1)):
        exponents = (call.q[:, h] @ call.k[:, h // share].mT / call.q.size(-1) ** 0.5).exp() * allowed[:, h]
        heads.append(exponents / exponents.sum(dim=-1, keepdim=True))
    return torch.stack(heads, dim=1)


def test_every_call_is_seen_in_order_with_its_path_and_role() -> None:
    model = build()
    with regard.record(model) as seen:
        model(batch())
    assert [(call.path, call.role) for call in seen.calls] == [
        ("encoder.0.attention", "self"),
        ("encoder.1.attention", "self"),
        ("decoder.0.attention", "causal"),
        ("decoder.0.cross", "cross"),
        ("decoder.1.attention", "causal"),
        ("decoder.1.cross", "cross"),
    ]
    assert [call.path for call in seen.only("cross")] == ["decoder.0.cross", "decoder.1.cross"]
    shapes = {"self": (B, HEADS, S, S), "causal": (B, HEADS, T, T), "cross": (B, HEADS, T, S)}
    assert all(call.weights().shape == shapes[call.role] for call in seen.calls)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_weights_rebuild_outputs(norm: str, dtype: torch.dtype, tolerance: float) -> None:
    model = build(dtype, norm=norm)
    with record(model) as seen:
        model(batch())
    assert seen.check() < tolerance
    for call in seen.calls:
        assert (call.weights() @ call.v - call.out).abs().max() < tolerance  # as many key-value heads as heads here
        assert call.check() < tolerance


def test_rows_sum_to_one_and_what_is_masked_is_zero() -> None:
    model = build()
    with record(model) as seen:
        model(batch())
    real = (torch.arange(S) < SOURCE_LENGTHS[:, None])[:, None, None]  # (B, 1, 1, S)
    allowed = {
        "self": real.expand(B, HEADS, S, S),
        "causal": torch.ones(T, T, dtype=torch.bool).tril().expand(B, HEADS, T, T),
        "cross": real.expand(B, HEADS, T, S),
    }
    for call in seen.calls:
        weights = call.weights()
        assert torch.equal(call.allowed(), allowed[call.role])
        assert torch.equal(weights > 0, allowed[call.role])
        assert torch.allclose(weights.sum(dim=-1), torch.ones(weights.shape[:-1], dtype=torch.float64), rtol=1e-14)
        assert torch.allclose(weights, softmax_by_hand(call, allowed[call.role]), rtol=0, atol=1e-12)


def test_a_check_notices_wrong_weights() -> None:
    """`check` compares with what the module really gave, so it can fail."""
    model = build()
    with record(model) as seen:
        model(batch())
    call = seen.calls[0]
    wrong = AttentionCall(call.path, call.role, call.q, call.k + 0.1 * call.k.sin(), call.v, call.out, call.mask)
    unmasked = AttentionCall(call.path, call.role, call.q, call.k, call.v, call.out)
    assert wrong.check() > 1e-4
    assert unmasked.check() > 1e-4


def test_recording_changes_nothing_and_keeps_no_graph() -> None:
    model = build().train()
    plain = model.hidden(batch())
    torch.manual_seed(1)
    first = model(batch()).parts["loss"].sum
    torch.manual_seed(1)
    with record(model) as seen:
        second = model(batch()).parts["loss"].sum
    second.backward()
    assert torch.equal(first, second)
    assert plain.requires_grad
    assert not any(tensor.requires_grad for call in seen.calls for tensor in (call.q, call.k, call.v, call.out))


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_grouped_heads(groups: int) -> None:
    torch.manual_seed(groups)
    module, mask = MultiHead(66, 6, role="self", groups=groups).double(), Lengths(SOURCE_LENGTHS)
    x = torch.randn(B, S, 66, dtype=torch.float64)
    with record(module) as seen:
        module(x, x, mask)
    (call,) = seen.calls
    assert call.path == ""  # the recorded module itself
    assert call.k.shape == (B, groups, S, 11)
    allowed = (torch.arange(S) < SOURCE_LENGTHS[:, None])[:, None, None].expand(B, 6, S, S)
    assert torch.allclose(call.weights(), softmax_by_hand(call, allowed), rtol=0, atol=1e-12)
    assert seen.check() < 1e-12


def test_biases_and_scales_are_recorded_too() -> None:
    owner = MultiHead(15, 3, role="self")
    q, k, v = (torch.randn(2, 3, T, 5, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(T, T, dtype=torch.float64)
    with record(owner) as seen:
        attend_seen(owner, "self", q, k, v, mask=Causal(), bias=bias, scale=0.7)
    expected = (q @ k.mT * 0.7 + bias).exp().tril()
    expected = expected / expected.sum(dim=-1, keepdim=True)
    assert torch.allclose(seen.calls[0].weights(), expected, rtol=0, atol=1e-12)
    assert seen.check() < 1e-12


# --- Step by step


@torch.inference_mode()
def test_weights_of_steps_are_those_of_the_whole_sequence() -> None:
    """Caches are overwritten, and grow (33 positions do not fit the first room), after a step was seen: it stays."""
    model, length = build(), 37
    ids, target = batch().source, torch.randint(31, (B, length), generator=torch.Generator().manual_seed(4))
    with record(model) as whole:
        model.decode(target, model.encode(ids, SOURCE_LENGTHS))
    with record(model) as steps:
        _, state = model.start((ids, SOURCE_LENGTHS), target[:, :1])
        for t in range(1, length):
            state = model.reorder(state, torch.zeros(B, 1, dtype=torch.long))
            _, state = model.step(target[:, t : t + 1], state)
    assert steps.check() < 1e-12
    for call in whole.calls[2:]:
        rows = [step for step in steps.calls if step.path == call.path]
        assert len(rows) == length
        for t, step in enumerate(rows):
            weights, expected = step.weights(), call.weights()[:, :, t : t + 1]
            assert torch.allclose(weights, expected[..., : weights.size(-1)], rtol=0, atol=1e-12)
            assert step.role == call.role
            assert weights.size(-1) == (S if call.role == "cross" else t + 1)


def test_keys_are_copied_out_of_a_buffer_that_is_written_again() -> None:
    owner = MultiHead(15, 3, role="causal")
    q, buffer = torch.randn(2, 3, 1, 5), torch.randn(2, 2, 3, T, 5)
    with record(owner) as seen:
        attend_seen(owner, "causal", q, buffer[0], buffer[1], reused=True)
    before = seen.calls[0].weights()
    buffer.zero_()
    assert torch.equal(seen.calls[0].weights(), before)
    assert seen.check() < 1e-5


@torch.inference_mode()
def test_steps_of_a_beam_have_a_row_for_each_hypothesis() -> None:
    """Three hypotheses that differ in their last token; one source leaves, and its row leaves the maps."""
    model, ids = build(), batch().source
    with record(model) as seen:
        _, state = model.start((ids, SOURCE_LENGTHS), torch.ones(B, 1, dtype=torch.long))
        state = model.reorder(state, torch.zeros(B, 3, dtype=torch.long))
        state = model.keep(state, torch.tensor([0, 2]))
        model.step(torch.tensor([[3, 4, 5], [6, 7, 8]]), state)
    own, cross = seen.calls[-4:-2]
    assert own.weights().shape == (2 * 3, HEADS, 1, 2)
    assert cross.weights().shape == (2, HEADS, 3, S)
    assert not cross.weights()[1, :, :, 2:].any()  # the third source is two tokens long
    assert seen.check() < 1e-12


# --- On, off, and side by side


def test_nothing_is_seen_outside_the_block_or_of_another_model() -> None:
    model, other = build(), build()
    model(batch())
    with record(model) as seen:
        other(batch())
    model(batch())
    assert seen.calls == []
    with pytest.raises(ValueError, match="no attention was seen"):
        seen.check()
    with pytest.raises(KeyError), record(model) as seen:
        raise KeyError
    model(batch())
    assert seen.calls == []


def test_part_of_a_model_can_be_recorded() -> None:
    model = build()
    with record(model.encoder) as seen:
        model(batch())
    assert [call.path for call in seen.calls] == ["0.attention", "1.attention"]


def test_an_inner_recording_has_its_own_and_the_outer_goes_on() -> None:
    model = build()
    with record(model) as outer:
        model.encode(batch().source, SOURCE_LENGTHS)
        with record(model) as inner:
            model(batch())
        model.encode(batch().source, SOURCE_LENGTHS)
    assert len(inner.calls) == 6
    assert len(outer.calls) == 4


def test_threads_do_not_see_each_other() -> None:
    """Two threads record one model in turn, each its own inputs; a third, without a recording, runs in between."""
    model, barrier = build(), threading.Barrier(3, timeout=20)
    found: dict[int, list[AttentionCall]] = {}

    def run(key: int) -> None:
        ids = torch.full((1, key + 2), key + 3)
        with record(model) as seen:
            for _ in range(3):
                barrier.wait()
                model.encode(ids, torch.tensor([key + 2]))
        found[key] = seen.calls

    def silent() -> None:
        for _ in range(3):
            barrier.wait()
            model.encode(torch.full((1, 13), 9), torch.tensor([13]))

    threads = [threading.Thread(target=run, args=(key,)) for key in (1, 2)] + [threading.Thread(target=silent)]
    with record(model) as outside:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outside.calls == []
    for key in (1, 2):
        assert len(found[key]) == 6
        assert all(call.q.size(2) == key + 2 for call in found[key])
