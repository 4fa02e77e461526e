"""The chunked output layer against torch's cross-entropy: loss, gradients, memory; and sums that add up to a batch."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax
from torch.profiler import ProfilerActivity, profile

from regard.data.batch import PairBatch, pair_batch
from regard.models import loss as output
from regard.models.config import TransformerConfig
from regard.models.loss import Loss, Part, output_loss, output_loss_reference, target_log_probabilities
from regard.models.transformer import Transformer

N, D, V = 13, 7, 29
SMOOTHING = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])


def inputs(dtype: torch.dtype = torch.float64, scale: float = 1.0, rows: int = N) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(rows, D, generator=generator, dtype=torch.float64).mul(scale)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64)
    target = torch.randint(V, (rows,), generator=generator)
    return h.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), target


def torch_loss(h: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    logits = h @ weight.T
    smooth = cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    return smooth, cross_entropy(logits, target, reduction="sum")


def by_hand(h: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> tuple[float, float]:
    """Szegedy et al. 2016, section 7: the cross-entropy with (1 - ε) one_hot + ε / V, in Python floats."""
    smooth = plain = 0.0
    for vector, wanted in zip(h.tolist(), target.tolist(), strict=True):
        logits = [sum(x * w for x, w in zip(vector, row, strict=True)) for row in weight.tolist()]
        norm = math.log(sum(math.exp(logit) for logit in logits))
        for token, logit in enumerate(logits):
            truth = (1 - smoothing) * (token == wanted) + smoothing / len(logits)
            smooth -= truth * (logit - norm)
        plain -= logits[wanted] - norm
    return smooth, plain


@SMOOTHING
def test_the_loss_is_its_formula(smoothing: float) -> None:
    h, weight, target = inputs()
    expected = by_hand(h, weight, target, smoothing)
    for function in (output_loss, output_loss_reference):
        found = function(h, weight, target, smoothing)
        assert [part.item() for part in found] == pytest.approx(expected, rel=1e-12)


@SMOOTHING
@pytest.mark.parametrize("elements", [1, V, V + 1, 2 * V, 5 * V - 1, 5 * V, 12 * V, 13 * V, 14 * V, 2**22])
def test_every_size_of_chunk_gives_torch_s_loss_and_gradients(
    elements: int, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 1, 2, 4, 5, 12 and all of the 13 rows; even fewer elements than a row still make chunks of one row."""
    monkeypatch.setattr(output, "CHUNK_ELEMENTS", elements)
    h, weight, target = inputs()
    results = []
    for function in (output_loss, output_loss_reference, torch_loss):
        smooth, plain = function(h, weight, target, smoothing)
        gradients = torch.autograd.grad(smooth * 0.7, (h, weight))  # a factor, as from division by the token count
        results.append([smooth, plain, *gradients])
    for other in results[1:]:
        for found, expected in zip(results[0], other, strict=True):
            assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_a_second_backward_pass_is_never_silently_wrong() -> None:
    """The gradients were computed forwards and are scaled in place: a retained graph is right again, or refused."""
    h, weight, target = inputs()
    loss = output_loss(h, weight, target, 0.1)[0] * 0.7
    first = torch.autograd.grad(loss, weight, retain_graph=True)[0].clone()
    try:
        second = torch.autograd.grad(loss, weight)[0]
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        assert torch.equal(first, second)


def test_only_the_trained_loss_has_a_gradient() -> None:
    smooth, plain = output_loss(*inputs(), 0.1)
    assert smooth.requires_grad
    assert not plain.requires_grad


def test_only_the_gradients_asked_for() -> None:
    for frozen in (0, 1):
        h, weight, target = inputs()
        (h, weight)[frozen].requires_grad_(False)
        open_one = (h, weight)[1 - frozen]
        (found,) = torch.autograd.grad(output_loss(h, weight, target, 0.1)[0], open_one)
        (expected,) = torch.autograd.grad(torch_loss(h, weight, target, 0.1)[0], open_one)
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10)


@SMOOTHING
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_do_not_overflow(dtype: torch.dtype, smoothing: float) -> None:
    """Logits of thousands: exp would overflow at 89 in float32."""
    h, weight, target = inputs(dtype, scale=2000.0)
    assert (h @ weight.T).abs().max() > 5000
    results = []
    for function in (output_loss, torch_loss):
        smooth, plain = function(h, weight, target, smoothing)
        results.append([smooth, plain, *torch.autograd.grad(smooth, (h, weight))])
    for found, expected in zip(*results, strict=True):
        assert torch.isfinite(found).all()
        tolerance = 1e-10 if dtype == torch.float64 else 2e-5
        assert torch.allclose(found, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


def test_a_certain_model_has_no_loss() -> None:
    """The target's logit 60 above the others: the loss is 0 to the last bit that matters, never below."""
    weight = torch.eye(7) * 60
    smooth, plain = output_loss(torch.eye(7), weight, torch.arange(7), 0.0)
    assert 0 <= plain.item() < 1e-6
    assert 0 <= smooth.item() < 1e-6


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_only_the_logits_are_computed(mode: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression: weights that can learn asked for their gradient in validation too, at twice the cost."""
    monkeypatch.setattr(output, "CHUNK_ELEMENTS", 5 * V)
    h, weight, target = inputs()
    expected = torch_loss(h, weight, target, 0.1)
    with mode(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        found = output_loss(h, weight, target, 0.1)
    products = [event for event in profiler.events() if event.name.startswith(("aten::mm", "aten::addmm"))]
    assert len(products) == 3  # the logits of chunks of 5, 5 and 3 rows
    for part, other in zip(found, expected, strict=True):
        assert not part.requires_grad
        assert torch.allclose(part, other, rtol=1e-10)


@SMOOTHING
def test_with_bf16_layers_the_loss_is_exact_and_gradients_are_rounded(
    smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each factor of a gradient's product is rounded to 8 bits, and so is the product: the bound adds these up."""
    monkeypatch.setattr(output, "CHUNK_ELEMENTS", 5 * V)
    expected, found = inputs(torch.float32), inputs(torch.float32)
    losses = torch_loss(*expected, smoothing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = output_loss(*found, smoothing)
    assert [part.item() for part in rounded] == pytest.approx([part.item() for part in losses], rel=1e-6)
    losses[0].backward()
    rounded[0].backward()
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        assert ours.grad is not None and theirs.grad is not None and ours.grad.dtype is torch.float32
        apart = (ours.grad - theirs.grad).norm() / theirs.grad.norm()
        assert 1e-5 < apart < 3 * 2**-8


def test_log_probabilities_of_given_tokens() -> None:
    h, weight, target = inputs()
    expected = log_softmax(h @ weight.T, dim=-1)[torch.arange(N), target]
    assert torch.allclose(target_log_probabilities(h, weight, target), expected, rtol=1e-12)


# --- Memory


def peak_bytes(function, tokens: int, vocabulary: int) -> int:  # type: ignore[no-untyped-def]
    """Most bytes that forward and backward hold at once, beyond inputs and the gradient of the weights."""
    h, weight = torch.randn(tokens, 5, requires_grad=True), torch.randn(vocabulary, 5, requires_grad=True)
    target = torch.randint(vocabulary, (tokens,))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function(h, weight, target, 0.1)[0].backward()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak - 4 * weight.numel()


def test_memory_grows_neither_with_the_vocabulary_nor_with_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """One buffer of `CHUNK_ELEMENTS` logits, whatever the sizes; the reference needs several (tokens, V) matrices."""
    elements = 2**18
    monkeypatch.setattr(output, "CHUNK_ELEMENTS", elements)
    peaks = [peak_bytes(output_loss, *sizes) for sizes in ((211, 10_007), (211, 40_009), (1709, 10_007))]
    for peak in peaks:
        assert 0.9 * 4 * elements < peak < 1.5 * 4 * elements
    assert peak_bytes(output_loss_reference, 211, 40_009) > 2 * 4 * 211 * 40_009  # the measure does see such matrices


# --- Sums: micro-batches add up to one large batch


def small_model(smoothing: float) -> Transformer:
    torch.manual_seed(3)
    config = TransformerConfig(
        encoder_layers=1, decoder_layers=2, width=15, heads=3, feed_forward=23, dropout=0.0, tied="target"
    )
    return Transformer(config, 19, V, smoothing).double().train()


def some_batch(rows: slice) -> PairBatch:
    generator = np.random.default_rng(5)
    sources = [generator.integers(0, 19, size) for size in (2, 7, 3, 5, 5, 1, 4)]
    targets = [generator.integers(0, V, size) for size in (3, 2, 11, 5, 7, 2, 6)]
    return pair_batch(sources[rows], targets[rows], fill=0)


@pytest.mark.parametrize("cuts", [(0, 7), (0, 3, 7), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_accumulated_micro_batches_are_the_large_batch(cuts: tuple[int, ...]) -> None:
    """Micro-batches of different token counts: dividing each by its own count would give another gradient."""
    model, whole = small_model(0.1), some_batch(slice(None))
    loss = model(whole)
    assert whole.counts == {"loss": 29, "nll": 29}
    assert loss.parts["loss"].count == 29
    loss.objective(whole.counts).backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    total = 0.0
    for start, end in pairwise(cuts):
        objective = model(some_batch(slice(start, end))).objective(whole.counts)
        objective.backward()
        total += objective.item()
    assert total == pytest.approx(loss.objective(whole.counts).item(), rel=1e-12)
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], rtol=1e-10, atol=1e-12), name


def test_the_objective_weighs_its_parts() -> None:
    parts = {
        "loss": Part(torch.tensor(6.0), 3),
        "other": Part(torch.tensor(10.0), 2, weight=0.5),
        "seen": Part(torch.tensor(math.nan), 1, weight=0.0),
    }
    assert Loss(parts).objective({"loss": 4, "other": 5, "seen": 1}).item() == 6 / 4 + 0.5 * 10 / 5


def test_smoothing_is_for_training_only() -> None:
    model, batch = small_model(0.1), some_batch(slice(None))
    trained, judged = model.train()(batch).parts, model.eval()(batch).parts
    assert trained["loss"].sum.item() != pytest.approx(trained["nll"].sum.item(), rel=1e-4)
    assert judged["loss"].sum.item() == pytest.approx(judged["nll"].sum.item(), rel=1e-12)
    assert judged["nll"].sum.item() == pytest.approx(trained["nll"].sum.item(), rel=1e-12)
