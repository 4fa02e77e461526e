"""Sparse kernels: each is dense attention with the mask that its paper defines, there, back, in batches and step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import pytest
import torch
from torch import Tensor

from regard.attention import Causal, Lengths, MultiHead, record
from regard.attention.kernels import KernelState, Placement
from regard.attention.kernels import block_sparse as layout
from regard.attention.kernels.block_sparse import attend_parts
from regard.attention.kernels.sparse import BigBird, SlidingWindow, Sparse, Strided, random_blocks
from regard.errors import UsageError

B, H, E = 3, 2, 5
BOTH, BACK = Placement(H, E, seed=11), Placement(H, E, causal=True)
Rule = Callable[[int, int, int], bool]  # query, key and length of the row -> may it be seen?


def big_bird(block: int, window: int, globals: int, random: int) -> tuple[BigBird, Rule]:
    kernel = BigBird(BOTH, block, window, globals, random)
    table = cache(lambda length: dict(enumerate(kernel.drawn(length).tolist())))

    def rule(t: int, s: int, length: int) -> bool:
        near = abs(t // block - s // block) <= (window - 1) / 2
        drawn = s // block in table(length).get(t // block, ())
        return near or drawn or t < globals * block or s < globals * block

    return kernel, rule


def fixed(t: int, s: int, stride: int, summary: int) -> bool:
    return t // stride == s // stride or s % stride in range(stride - summary, stride)


CASES: dict[str, tuple[Sparse, Rule]] = {
    "window": (SlidingWindow(BOTH, 7), lambda t, s, _: -7 <= t - s <= 7),
    "window of one": (SlidingWindow(BOTH, 1), lambda t, s, _: abs(t - s) < 2),
    "causal window": (SlidingWindow(BACK, 13), lambda t, s, _: 0 <= t - s <= 13),
    "wide causal window": (SlidingWindow(BACK, 101), lambda t, s, _: 0 <= t - s <= 101),
    "window with globals": (SlidingWindow(BOTH, 5, 3), lambda t, s, _: abs(t - s) <= 5 or min(t, s) < 3),
    "strided": (Strided(BOTH, "strided", 7), lambda t, s, _: abs(t - s) < 7 or (t - s) % 7 == 0),
    "causal strided": (Strided(BACK, "strided", 7), lambda t, s, _: s <= t and (t - s < 7 or (t - s) % 7 == 0)),
    "long causal strided": (Strided(BACK, "strided", 37), lambda t, s, _: s <= t and (t - s < 37 or (t - s) % 37 == 0)),
    "fixed": (Strided(BOTH, "fixed", 11, 2), lambda t, s, _: fixed(t, s, 11, 2)),
    "causal fixed": (Strided(BACK, "fixed", 11, 2), lambda t, s, _: s <= t and fixed(t, s, 11, 2)),
    "fixed, all summary": (Strided(BOTH, "fixed", 3, 3), lambda t, s, _: True),
    "big bird": big_bird(8, 3, 1, 2),
    "big bird without globals": big_bird(5, 1, 0, 3),
    "big bird without random": big_bird(7, 5, 2, 0),
}
CAUSAL = [name for name, (kernel, _) in CASES.items() if kernel.causal]
LONG = 149  # positions at which all of them but the widest are computed by parts


@pytest.fixture(autouse=True)
def several_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few scores in a span that a row of the tests has several."""
    monkeypatch.setattr(layout, "SCORES", 1500)


def drawn(length: int, dtype: torch.dtype = torch.float64, seed: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, B, H, length, E, generator=generator, dtype=dtype)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


@cache
def may_see(name: str, places: int, length: int) -> Tensor:
    """(T, T) of a row with so many real keys, pair by pair."""
    rule = CASES[name][1]
    return torch.tensor([[s < length and rule(t, s, length) for s in range(places)] for t in range(places)])


def mask(name: str, length: int, lengths: Tensor | None = None) -> Tensor:
    """(B, 1, T, T)."""
    ends = [length] * B if lengths is None else lengths.tolist()
    return torch.stack([may_see(name, length, end) for end in ends])[:, None]


def dense(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Attention from the definition of softmax; who sees nothing gets zeros."""
    powers = torch.exp(q @ k.mT / math.sqrt(q.size(-1))) * allowed
    return powers @ v / powers.sum(dim=-1, keepdim=True).clamp(min=1e-30)


def ragged(length: int) -> Tensor:
    return torch.tensor([length, length * 2 // 3, 0])


def difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [1, 2, 31, LONG])
def test_the_pattern_is_the_papers_definition(name: str, length: int) -> None:
    kernel, _ = CASES[name]
    assert torch.equal(kernel.pattern(length, length), mask(name, length)[0, 0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [1, 3, 64, LONG])
@pytest.mark.parametrize("ends", [None, ragged])
def test_output_and_gradients_are_those_of_dense_attention(
    name: str, length: int, ends: Callable[[int], Tensor] | None
) -> None:
    kernel, _ = CASES[name]
    lengths = None if ends is None else ends(length)
    allowed, wanted = mask(name, length, lengths), drawn(length, seed=3)[0].detach()
    inputs = drawn(length)
    found, expected = kernel(*inputs, lengths), dense(*inputs, allowed)
    gradients = [torch.autograd.grad(out, inputs, wanted) for out in (found, expected)]
    assert difference([found], [expected]) < 1e-9
    assert difference(*gradients) < 1e-9
    q, k, v = inputs
    assert difference([kernel.weights(q, k, lengths) @ v], [found]) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_long_texts_are_computed_by_parts(name: str) -> None:
    """Otherwise the tests above would compare dense attention with itself."""
    kernel, _ = CASES[name]
    laid_out = kernel.layout(torch.zeros(1))
    by_parts = laid_out.pairs(LONG) < LONG**2
    assert by_parts == (name not in ("wide causal window", "fixed, all summary"))
    assert len(list(laid_out.spans(LONG, LONG))) > 1


@pytest.mark.parametrize("name", ["wide causal window", "fixed, all summary"])
def test_parts_are_right_where_they_do_not_pay(name: str) -> None:
    kernel, _ = CASES[name]
    q, k, v = drawn(83)
    found = attend_parts(q, k, v, kernel.layout(q), ragged(83))
    assert difference([found], [dense(q, k, v, mask(name, 83, ragged(83)))]) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_single_precision_is_good_to_five_places(name: str) -> None:
    kernel, _ = CASES[name]
    inputs = drawn(LONG, torch.float32)
    found, expected = kernel(*inputs), dense(*inputs, mask(name, LONG))
    wanted = torch.ones_like(found).cumsum(2) / LONG
    gradients = [torch.autograd.grad(out, inputs, wanted) for out in (found, expected)]
    assert difference([found], [expected]) < 1e-5
    assert difference(*gradients) < 1e-5


@pytest.mark.parametrize("name", CASES)
def test_half_precision_runs_and_is_computed_in_single(name: str) -> None:
    kernel, _ = CASES[name]
    inputs = [x.detach().bfloat16().requires_grad_() for x in drawn(LONG, torch.float32)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = kernel(*inputs, ragged(LONG))
    found.float().square().sum().backward()
    exact = kernel(*(x.detach().float() for x in inputs), ragged(LONG))
    assert found.dtype == torch.bfloat16
    assert difference([found.float()], [exact]) < 2e-2
    assert all(x.grad is not None and x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [29, LONG])
def test_what_is_behind_a_rows_length_changes_nothing_that_is_real(name: str, length: int) -> None:
    kernel, _ = CASES[name]
    lengths = ragged(length)
    real = (torch.arange(length) < lengths[:, None])[:, None, :, None]  # (B, 1, T, 1)
    results = []
    for noise in (0.0, 300.0):
        inputs = [torch.where(real, x.detach(), noise * x.detach()).requires_grad_() for x in drawn(length)]
        out = kernel(*inputs, lengths)
        assert out.isfinite().all()
        gradients = torch.autograd.grad(out, inputs, real.double().expand_as(out))
        assert all((x.masked_select(~real) == 0).all() for x in gradients)
        results.append([x.masked_fill(~real, 0.0) for x in (out, *gradients)])
    assert difference(*results) < 1e-12


@pytest.mark.parametrize("name", CASES)
def test_a_row_sees_in_a_batch_what_it_sees_alone(name: str) -> None:
    kernel, _ = CASES[name]
    lengths = torch.tensor([LONG, 83, 37])
    q, k, v = (x.detach() for x in drawn(LONG))
    together = kernel(q, k, v, lengths)
    for row, length in enumerate(lengths.tolist()):
        one = slice(row, row + 1), slice(None), slice(0, length)
        assert difference([together[one]], [kernel(q[one], k[one], v[one])]) < 1e-12


@pytest.mark.parametrize("name", CASES)
def test_a_nan_stays_in_its_row(name: str) -> None:
    kernel, _ = CASES[name]
    inputs = [x.detach() for x in drawn(LONG)]
    for x in inputs:
        x[1] = math.nan
    inputs = [x.requires_grad_() for x in inputs]
    out = kernel(*inputs)
    gradients = torch.autograd.grad(out.sum(), inputs)
    assert out[1].isnan().all()
    assert all(x[[0, 2]].isfinite().all() for x in (out, *gradients))


@pytest.mark.parametrize("name", CAUSAL)
def test_step_by_step_gives_what_the_whole_gives(name: str) -> None:
    kernel, _ = CASES[name]
    q, k, v = (x.detach() for x in drawn(LONG))
    whole = kernel(q, k, v)
    for pieces in ([1] * LONG, [0, 61, 1, 1, 45, 1, 40], [LONG - 1, 1]):
        state = kernel.start(B, q)
        seen = []
        for queries, keys, values in zip(*(x.split(pieces, dim=2) for x in (q, k, v)), strict=True):
            go_on = kernel.step if queries.size(2) == 1 else kernel.read
            seen.append(go_on(queries, keys, values, state))
        assert state.filled == LONG
        assert difference([torch.cat(seen, dim=2)], [whole]) < 1e-12


@pytest.mark.parametrize("name", CAUSAL)
def test_hypotheses_are_reordered_with_their_past(name: str) -> None:
    kernel, _ = CASES[name]
    q, k, v = (x.detach() for x in drawn(71))
    state = kernel.start(B, q)
    kernel.read(q[:, :, :67], k[:, :, :67], v[:, :, :67], state)
    rows = torch.tensor([2, 0, 2, 1])
    chosen: KernelState = state.select(rows)
    steps = ([x[rows, :, t : t + 1] for x in (q, k, v)] for t in range(67, 71))
    found = [kernel.step(q1, k1, v1, chosen) for q1, k1, v1 in steps]
    assert difference([torch.cat(found, dim=2)], [kernel(q, k, v)[rows, :, 67:]]) < 1e-12
    assert state.filled == 67  # the old state is not written to
    again = kernel.step(q[:, :, 67:68], k[:, :, 67:68], v[:, :, 67:68], state)
    assert difference([again], [kernel(q, k, v)[:, :, 67:68]]) < 1e-12


def test_the_state_of_a_window_does_not_grow() -> None:
    kernel = SlidingWindow(BACK, 13)
    state = kernel.start(B, torch.zeros(1))
    one = torch.ones(B, H, 1, E)
    for _ in range(40):
        kernel.step(one, one, one, state)
    assert state.filled == 40
    assert state.keys.shape == state.values.shape == (B, H, 14, E)


@pytest.mark.parametrize(
    "kernel",
    [SlidingWindow(BOTH, 16, 2), SlidingWindow(BACK, 16), BigBird(BOTH, 16)],
    ids=["window", "causal", "big bird"],
)
def test_what_is_kept_for_the_gradient_grows_with_the_length(kernel: Sparse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    kept = []
    for length in (1024, 4096):
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda nothing: nothing):
            kernel(*(torch.ones(1, H, length, E, requires_grad=True) for _ in range(3)))
        kept.append(sum(tensor.numel() for tensor in saved))
    assert kept[0] > 0
    assert kept[1] < 4.1 * kept[0]


def test_a_band_of_gpt3_is_a_causal_window() -> None:
    x = torch.randn(2, LONG, H * E, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    banded = MultiHead(H * E, H, role="causal", band=9).double()
    windowed = MultiHead(H * E, H, role="causal", kernel=SlidingWindow(BACK, 8)).double()
    windowed.load_state_dict(banded.state_dict())
    assert difference([windowed(x, x, Causal())], [banded(x, x, Causal())]) < 1e-12


@pytest.mark.parametrize("kernel", [SlidingWindow(BOTH, 5, 3), Strided(BOTH, "fixed", 7, 2), BigBird(BOTH, 8)])
def test_a_recorder_sees_maps_that_rebuild_the_output(kernel: Sparse) -> None:
    x = torch.randn(B, LONG, H * E, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    heads = MultiHead(H * E, H, role="self", kernel=kernel).double()
    with record(heads) as seen:
        heads(x, x, Lengths(ragged(LONG)))
    assert seen.check() < 1e-12


@pytest.mark.parametrize("length", [1, 5, 8, 23, 40])
def test_a_short_text_sees_itself_whole_in_big_bird(length: int) -> None:
    """Blocks of 8: two globals, three around and three at random are all that 40 positions have."""
    q, k, v = (x.detach() for x in drawn(length))
    found = BigBird(BOTH, 8, 3, 2, 3)(q, k, v)
    assert difference([found], [dense(q, k, v, torch.tensor(True))]) < 1e-12


def test_blocks_at_random_are_new_to_who_sees_them() -> None:
    blocks, sides, first, count = 23, 2, 3, 4
    table = random_blocks(7, blocks, sides, first, count)
    assert table.shape == (blocks, count)
    for block, row in enumerate(table.tolist()):
        assert len(set(row)) == count
        assert all(first <= other < blocks and abs(other - block) > sides for other in row)


def test_blocks_at_random_run_out() -> None:
    """Of 6 blocks, the middle of a window of 3 leaves 3, the first 4; with one global block fewer."""
    left = (random_blocks(0, 6, 1, 0, 4) >= 0).sum(dim=1).tolist()
    assert left == [4, 3, 3, 3, 3, 4]
    left = (random_blocks(0, 6, 1, 1, 4) >= 0).sum(dim=1).tolist()
    assert left == [4, 3, 2, 2, 2, 3]
    assert random_blocks(0, 0, 1, 2, 3).shape == (0, 3)


def test_blocks_at_random_depend_on_seed_and_number_alone() -> None:
    before = torch.get_rng_state()
    first = random_blocks.__wrapped__(1, 40, 1, 2, 3)
    torch.manual_seed(99)
    assert torch.equal(first, random_blocks.__wrapped__(1, 40, 1, 2, 3))
    torch.set_rng_state(before)
    assert not torch.equal(first, random_blocks(2, 40, 1, 2, 3))
    assert not torch.equal(first, random_blocks(1, 41, 1, 2, 3)[:40])


def test_blocks_at_random_are_drawn_evenly() -> None:
    """Block 0 of 12 draws 2 of the 8 that are left, 3,000 times: each 750 times, give or take four deviations."""
    counts = torch.zeros(12)
    for seed in range(3000):
        counts[random_blocks.__wrapped__(seed, 12, 1, 4, 2)[0]] += 1
    assert (counts[:4] == 0).all()
    assert ((counts[4:] - 750).abs() < 4 * math.sqrt(3000 * 0.25 * 0.75)).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BigBird(BACK), "bigbird attention cannot be causal"),
        (lambda: SlidingWindow(Placement(H, E, cross=True)), "cannot look from one sequence at another"),
        (lambda: SlidingWindow(BACK, 4, 2), "set model.attention.globals = 0"),
        (lambda: BigBird(BOTH, window=4), "set model.attention.window = 5"),
        (lambda: Strided(BOTH, "fixed", 4, 5), "at most 4"),
        (lambda: Strided(BOTH, "diagonal"), "strided, fixed"),
        (lambda: SlidingWindow(BOTH, 4).start(1, torch.zeros(1)), "go on token by token"),
        (lambda: Strided(BOTH).start(1, torch.zeros(1)), "go on token by token"),
        (lambda: BigBird(BOTH).start(1, torch.zeros(1)), "go on token by token"),
    ],
)
def test_what_is_impossible_is_refused_in_words(make: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()
