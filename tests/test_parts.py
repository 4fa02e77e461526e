"""A batch that several processes share: the gradients of its parts add up to that of the whole, with the noise of training.

One process stands for several here, so that every kind of model can be held against itself; `test_world.py` has processes.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.blocks import recompute
from regard.blocks.norm import BatchNorm
from regard.data.batch import ByRows
from regard.errors import UsageError
from regard.noise import Noise, Picked, RowsOf, for_rows, noise
from regard.tasks.configure import run_config
from regard.training.shares import Share, share_of, shares_of
from regard.world import World
from tests.test_kinds import EVERY, PARTS, fresh, whatever

ROWS, DROPOUT = 5, 0.25
MORE: list[tuple[str, str, dict[str, Any]]] = [
    ("generate", "llama", {"experts": 3, "dropout": DROPOUT, "balance": 0.0})
]


def dropping(task: str, kind: str, values: dict[str, Any]) -> nn.Module:
    """A model in float64 that drops wherever its kind can. Statistics of batch norm stand still, for they know the batch."""
    known = run_config(task, {"preset": "demo", "model": {"kind": kind, **values}}).model.model_dump()
    drops = [name for name in ("dropout", "activation_dropout", "token_dropout") if name in known]
    model = fresh(task, kind, **{**dict.fromkeys(drops, DROPOUT), **values}).double().train()
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.eval()
    return model


def exact(batch: Any) -> Any:
    """The batch with numbers in float64."""
    found = {each.name: getattr(batch, each.name) for each in fields(batch)}
    numbers = {name: x for name, x in found.items() if isinstance(x, Tensor) and x.is_floating_point()}
    return replace(batch, **{name: x.double() for name, x in numbers.items()})


def gradients(model: nn.Module, shares: list[Share], totals: dict[str, int]) -> dict[str, Tensor]:
    """The gradient of each parameter over these shares of one batch, whose buffers are put back."""
    buffers = {name: tensor.clone() for name, tensor in model.named_buffers()}
    model.zero_grad(set_to_none=True)
    for share in shares:
        with noise(1, 2, share.number, place=share.place):
            (model(share.batch).objective(totals) * float(share.counts)).backward()
        for name, tensor in model.named_buffers():
            tensor.copy_(buffers[name])
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("task", "kind", "values"), [*((*each, {}) for each in EVERY), *PARTS, *MORE])
def test_the_parts_of_a_batch_add_up_to_the_whole(task: str, kind: str, values: dict[str, Any]) -> None:
    """Of three processes, and of seven, two of which get no row."""
    batch = exact(whatever(task, ROWS))
    model = dropping(task, kind, {**values, **({"balance": 0.0} if "experts" in values else {})})
    whole = gradients(model, [Share(batch, 0)], batch.counts)
    for size in (3, 7):
        found = gradients(model, [share_of(batch, 0, World(rank, size)) for rank in range(size)], batch.counts)
        assert found.keys() == whole.keys()
        for name, gradient in whole.items():
            close = torch.allclose(found[name], gradient, rtol=1e-9, atol=1e-12 * float(gradient.abs().max()) + 1e-15)
            assert close, f"{name} of {size}: {(found[name] - gradient).abs().max():.3g}"


def test_questions_of_shared_pictures_are_cut() -> None:
    """Each part has only the pictures that its questions are about, and their noise."""
    batch = replace(exact(whatever("answer", ROWS)), pictures=torch.tensor([1, 0, 1, 2, 0]))
    batch = replace(batch, pixels=batch.pixels[:3])
    model = dropping("answer", "answerer", {})
    whole = gradients(model, [Share(batch, 0)], batch.counts)
    shares = [share_of(batch, 0, World(rank, 2)) for rank in range(2)]
    assert [len(share.batch.pixels) for share in shares] == [2, 3]  # type: ignore[attr-defined]
    for name, gradient in gradients(model, shares, batch.counts).items():
        torch.testing.assert_close(gradient, whole[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("task", "kind", "values"),
    [
        ("translate", "transformer", {}),
        ("generate", "llama", {}),
        ("fill", "bert", {"attention": "performer"}),
    ],
)
def test_what_is_computed_again_is_the_same_to_the_bit(task: str, kind: str, values: dict[str, Any]) -> None:
    """And less is kept for it, as torch's own hooks see."""
    batch, kept = exact(whatever(task, ROWS)), [0, 0]

    def keep(x: Tensor) -> Tensor:
        kept[0] += x.numel()
        return x

    model = dropping(task, kind, values)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        plain = gradients(model, [Share(batch, 0)], batch.counts)
    kept.reverse()
    recompute(model)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        again = gradients(model, [Share(batch, 0)], batch.counts)
    assert plain.keys() == again.keys() and all(torch.equal(plain[name], again[name]) for name in plain)
    assert kept[0] < 0.6 * kept[1]


@pytest.mark.parametrize(
    ("task", "kind", "values", "told"),
    [
        ("classify-pictures", "convnet", {}, "no stack of blocks"),
        ("generate", "gpt2", {"reversible": True}, "keep nothing already"),
        ("translate", "transformer", {"norm_kind": "batch"}, "count a batch twice"),
        ("generate", "llama", {"experts": 3}, "count a batch twice"),
    ],
)
def test_what_cannot_be_computed_again_is_refused(task: str, kind: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        recompute(fresh(task, kind, **values))


@pytest.mark.parametrize("task", sorted({task for task, _ in EVERY}))
def test_counts_of_parts_add_up(task: str) -> None:
    batch = whatever(task, 11)
    assert isinstance(batch, ByRows)
    parts = [share_of(batch, 0, World(rank, 3)).batch for rank in range(3)]
    for name, count in batch.counts.items():
        assert sum(part.counts[name] for part in parts) == count


def test_the_bytes_of_rows_are_those_of_the_whole() -> None:
    """Rows of 7, 13 and 1 elements, in a stream whose words are of eight bytes; and rows that were picked."""
    whole = Noise(3, 1)
    drawn = [whole.bytes(11 * each) for each in (7, 13, 1)]
    for first, end in ((0, 4), (4, 5), (5, 11)):
        ours = Noise(3, 1, place=RowsOf(first, end - first, 11))
        for each, expected in zip((7, 13, 1), drawn, strict=True):
            assert torch.equal(ours.bytes((end - first) * each), expected[first * each : end * each])
    picked = Noise(3, 1, place=Picked(torch.tensor([3, 0]), 4, RowsOf(4, 4, 11)))
    for each, expected in zip((7, 13, 1), drawn, strict=True):
        assert torch.equal(picked.bytes(2 * each), expected.view(11, each)[[7, 4]].flatten())


def test_draws_of_torchs_generator_are_those_of_the_whole() -> None:
    with noise(5):
        whole = [for_rows(torch.rand, 11, 3), for_rows(torch.rand, 22)]
    with noise(5, place=RowsOf(4, 3, 11)):
        assert torch.equal(for_rows(torch.rand, 3, 3), whole[0][4:7])
        assert torch.equal(for_rows(torch.rand, 6), whole[1][8:14])


def test_whole_batches_are_shared_out_where_that_comes_out_even() -> None:
    batches = [whatever("classify", 5, seed) for seed in range(6)]
    shares = [shares_of(batches, World(rank, 3)) for rank in range(3)]
    assert [[share.number for share in each] for each in shares] == [[0, 1], [2, 3], [4, 5]]
    assert all(share.batch is batches[share.number] and share.place is None for each in shares for share in each)
    assert [len(shares_of(batches, World(rank, 4))) for rank in range(4)] == [6] * 4  # rows of each
