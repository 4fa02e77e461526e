"""Reformer against plain loops over its definition, and what must hold of any kernel: padding, steps, memory."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from regard.attention import Causal, Lengths, MultiHead, record
from regard.attention.kernels import Placement
from regard.attention.kernels.hashing import buckets_of, factors_of, ranks_of, rotations
from regard.attention.kernels.reformer import Reformer
from regard.errors import UsageError
from regard.noise import noise

B, H, E = 3, 2, 5
KINDS = [(4, 0, 2), (3, 4, 3), (1, 2, 1), (7, 200, 2), (64, 6, 2), (40, 1, 2)]  # chunk, buckets, rounds
EACH_KIND = pytest.mark.parametrize(("chunk", "buckets", "rounds"), KINDS)
BOTH_WAYS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])


def make(causal: bool, chunk: int, buckets: int, rounds: int, seed: int = 3, longest: int = 101) -> Reformer:
    return Reformer(Placement(H, E, causal, longest=longest, seed=seed), chunk, buckets, rounds).eval()


def vectors(length: int, seed: int = 0, rows: int = B) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, H, length, E, generator=generator, dtype=torch.float64)


def hash_oracle(q: Tensor, kernel: Reformer) -> list[list[int]]:
    """The buckets of one head's vectors (T, E) in each round, by the paper's formula: the head is the first."""
    halves = [factor // 2 for factor in kernel.factors]
    if kernel.buckets == 1:
        return [[0] * len(q) for _ in range(kernel.rounds)]
    turn = rotations((kernel.placement.seed, 0), H, E, kernel.rounds * sum(halves)).double()
    found = []
    for number in range(kernel.rounds):
        start, total = number * sum(halves), torch.zeros(len(q), dtype=torch.long)
        for half in halves:
            product = q @ turn[0, :, start : start + half]
            total = total * 2 * half + torch.cat([product, -product], dim=-1).argmax(dim=-1)
            start += half
        found.append(total.tolist())
    return found


def sees(buckets: list[list[int]], query: int, real: int, chunk: int, causal: bool) -> list[int]:
    """Which keys one query sees: in each round those of its bucket that are fewer than `chunk` away in it."""
    found: set[int] = set()
    for each in buckets:
        members = [place for place in range(real) if each[place] == each[query]]
        rank = members.index(query)
        found |= set(members[max(0, rank - chunk + 1) : rank + (0 if causal else chunk)])
    found.discard(query)
    return sorted(found) or [query]


def dense_mask(q: Tensor, kernel: Reformer, lengths: list[int]) -> Tensor:
    """What all queries of the first head see: (B, T, T)."""
    mask = torch.zeros(len(q), q.size(2), q.size(2), dtype=torch.bool)
    for row, real in enumerate(lengths):
        buckets = hash_oracle(q[row, 0].detach(), kernel)
        for query in range(real):
            mask[row, query, sees(buckets, query, real, kernel.chunk, kernel.causal)] = True
    return mask


def attend_oracle(q: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Shared queries and keys, keys of length one; rows that see nothing give zeros. q and v (B, T, E)."""
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).mT / math.sqrt(E)
    scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.where(mask.any(dim=-1, keepdim=True), scores, 0.0).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0) @ v


@BOTH_WAYS
@EACH_KIND
@pytest.mark.parametrize("length", [1, 2, 37])
def test_outputs_and_gradients_are_those_of_dense_attention_over_what_loops_find(
    causal: bool, chunk: int, buckets: int, rounds: int, length: int
) -> None:
    kernel = make(causal, chunk, buckets, rounds)
    q, v = vectors(length).requires_grad_(), vectors(length, 1).requires_grad_()
    weigh = vectors(length, 2)
    for lengths in ([length] * B, [length, length // 2, 0]):
        out = kernel(q, q, v, None if lengths[-1] else torch.tensor(lengths))
        wanted = attend_oracle(q[:, 0], v[:, 0], dense_mask(q, kernel, lengths))
        for row, real in enumerate(lengths):
            assert torch.allclose(out[row, 0, :real], wanted[row, :real], atol=1e-9)
        real = torch.arange(length) < torch.tensor(lengths)[:, None]  # (B, T)
        chosen = weigh * real[:, None, :, None]
        given = torch.autograd.grad((out * chosen).sum(), (q, v))
        expected = torch.autograd.grad((wanted * chosen[:, 0]).sum(), (q, v))
        for ours, theirs in zip(given, expected, strict=True):
            assert ours.isfinite().all()
            assert torch.allclose(ours[:, 0], theirs[:, 0].nan_to_num(), atol=1e-9)


@BOTH_WAYS
@EACH_KIND
def test_the_effective_map_gives_what_the_fast_path_gives(causal: bool, chunk: int, buckets: int, rounds: int) -> None:
    kernel, q, v = make(causal, chunk, buckets, rounds), vectors(53), vectors(53, 1)
    for lengths in (None, torch.tensor([53, 17, 0])):
        weights = kernel.weights(q, q, lengths)
        assert torch.allclose(weights @ v, kernel(q, q, v, lengths), atol=1e-9)
        sums = weights.sum(dim=-1)
        assert torch.allclose(sums, (sums > 0.5).double(), atol=1e-12)
    single = kernel(q.float(), q.float(), v.float())
    assert torch.allclose(single, (kernel.weights(q.float(), q.float()) @ v.float()), atol=1e-5)


@BOTH_WAYS
def test_one_bucket_that_holds_all_is_exact_attention_with_shared_queries_and_keys(causal: bool) -> None:
    kernel, q, v = make(causal, 47, 1, 2), vectors(47), vectors(47, 1)
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).mT / math.sqrt(E)
    scores = scores - 1e5 * torch.eye(47)  # the paper's: itself only if there is nothing else
    if causal:
        scores = scores.masked_fill(~torch.ones(47, 47, dtype=torch.bool).tril(), -math.inf)
    assert torch.allclose(kernel(q, q, v), scores.softmax(dim=-1) @ v, atol=1e-9)
    assert kernel.hit_rate(q) == pytest.approx(1.0, abs=1e-12)


@BOTH_WAYS
def test_the_hit_rate_grows_with_rounds(causal: bool) -> None:
    q = 4 * vectors(97)
    rates = [make(causal, 8, 16, rounds).hit_rate(q) for rounds in (1, 2, 4, 8)]
    assert all(after > before + 0.02 for before, after in pairwise(rates))
    assert 0.05 < rates[0] < rates[-1] < 1
    weights = attend_oracle(
        q[:, 0], torch.eye(97).double().expand(B, 97, 97), dense_mask(q, make(causal, 97, 1, 1), [97] * B)
    )
    kernel = make(causal, 8, 16, 2)
    share = (weights * dense_mask(q, kernel, [97] * B)).sum(dim=-1).mean()
    first = Reformer(Placement(1, E, causal, longest=101, seed=3), 8, 16, 2)
    first.hashed = lambda x, lengths: kernel.hashed(q, lengths)[:, :, :1]  # type: ignore[method-assign]
    assert first.hit_rate(q[:, :1]) == pytest.approx(float(share), abs=1e-9)


def test_hashing_finds_more_weight_than_luck() -> None:
    """Queries that point alike share buckets: what is seen has more than its share of the pairs."""
    kernel, q = make(True, 97, 8, 1), 4 * vectors(97)
    pairs = float(kernel.seen(q).sum() / torch.ones(97, 97).tril(-1).sum() / (B * H))
    assert pairs < 0.2
    assert kernel.hit_rate(q) > 1.5 * pairs


def test_what_points_alike_falls_into_one_bucket_and_opposites_never_do() -> None:
    q = vectors(89)
    for factors in ((2,), (16,), (8, 6)):
        found = buckets_of(q, (1, 2), factors, 3)
        assert found.shape == (3, B, H, 89)
        assert torch.equal(found, buckets_of(7 * q, (1, 2), factors, 3))
        assert (found != buckets_of(-q, (1, 2), factors, 3)).all()
        assert int(found.min()) >= 0 and int(found.max()) < math.prod(factors)
        assert len(found[0].unique()) > math.prod(factors) / 2
        assert math.prod(factors) == 2 or not torch.equal(found[0], found[1])


def test_factors_tell_as_many_buckets_apart_as_wanted() -> None:
    assert factors_of(1) == (1,) and factors_of(128) == (128,)
    for wanted in range(130, 3000, 2):
        first, second = factors_of(wanted)
        assert first % 2 == second % 2 == 0
        assert wanted <= first * second <= 1.3 * wanted


def test_ranks_count_earlier_members() -> None:
    buckets = torch.tensor([[3, 0, 3, 3, 1, 0], [2, 2, 2, 2, 2, 2]])
    assert ranks_of(buckets).tolist() == [[0, 0, 1, 2, 0, 1], [0, 1, 2, 3, 4, 5]]


def test_the_number_of_buckets_is_that_of_the_longest_text() -> None:
    assert make(True, 10, 0, 1, longest=95).buckets == 20
    kernel, q = make(True, 10, 0, 2, longest=95), vectors(61)
    assert torch.equal(kernel.hashed(q, None)[..., :13], kernel.hashed(q[:, :, :13], None))


@pytest.mark.parametrize(("chunk", "buckets", "rounds"), [(3, 4, 3), (8, 0, 2)])
def test_what_comes_later_changes_nothing(chunk: int, buckets: int, rounds: int) -> None:
    kernel, q, v = make(True, chunk, buckets, rounds), vectors(61), vectors(61, 1)
    other_q, other_v = vectors(61, 5), vectors(61, 6)
    other_q[:, :, :29], other_v[:, :, :29] = q[:, :, :29], v[:, :, :29]
    assert torch.allclose(kernel(q, q, v)[:, :, :29], kernel(other_q, other_q, other_v)[:, :, :29], atol=1e-12)
    assert torch.allclose(kernel(q, q, v)[:, :, :29], kernel(*(x[:, :, :29] for x in (q, q, v))), atol=1e-12)


@BOTH_WAYS
def test_what_lies_behind_a_rows_end_influences_nothing(causal: bool) -> None:
    kernel, lengths = make(causal, 4, 6, 2), torch.tensor([43, 19, 0])
    q, v = vectors(43), vectors(43, 1)
    padded = (torch.arange(43) >= lengths[:, None])[:, None, :, None]
    bad_q, bad_v = q.masked_fill(padded, math.nan).requires_grad_(), v.masked_fill(padded, math.nan).requires_grad_()
    out = kernel(bad_q, bad_q, bad_v, lengths)
    assert out.isfinite().all()
    for row, length in enumerate(lengths.tolist()):
        if length:
            alone = kernel(*(x[row : row + 1, :, :length] for x in (q, q, v)))
            assert torch.allclose(out[row, :, :length], alone[0], atol=1e-12)
    for gradient in torch.autograd.grad((out * vectors(43, 2)).sum(), (bad_q, bad_v)):
        assert gradient.isfinite().all()
        assert not gradient.masked_select(padded).any()


@EACH_KIND
@pytest.mark.parametrize("read", [0, 1, 23, 41])
def test_step_by_step_equals_the_whole(chunk: int, buckets: int, rounds: int, read: int) -> None:
    kernel, q, v = make(True, chunk, buckets, rounds), vectors(41), vectors(41, 1)
    state = kernel.start(B, q)
    parts = [kernel.read(*(x[:, :, :read] for x in (q, q, v)), state)] if read else []
    for place in range(read, 41):
        parts.append(kernel.step(*(x[:, :, place : place + 1] for x in (q, q, v)), state))
        assert state.filled == place + 1
    assert torch.allclose(torch.cat(parts, dim=2), kernel(q, q, v), atol=1e-9)


def test_hypotheses_are_reordered_with_their_past() -> None:
    kernel, q, v = make(True, 3, 4, 2), vectors(31), vectors(31, 1)
    state, rows = kernel.start(B, q), torch.tensor([2, 0, 2, 1])
    kernel.read(*(x[:, :, :17] for x in (q, q, v)), state)
    chosen = state.select(rows)
    kernel.read(*(x[:, :, 17:] for x in (q, q, v)), state)  # the old state goes on by itself
    after = kernel.read(*(x[rows][:, :, 17:] for x in (q, q, v)), chosen)
    assert torch.allclose(after, kernel(q, q, v)[rows][:, :, 17:], atol=1e-9)


def test_rotations_depend_on_seed_and_step_and_on_nothing_else() -> None:
    q = vectors(83)
    kernel = make(True, 4, 8, 2)
    at_rest = kernel.hashed(q, None)
    torch.manual_seed(11)
    with noise(5, 4, 0):
        assert torch.equal(kernel.hashed(q, None), at_rest)
    assert torch.equal(make(True, 4, 8, 2).hashed(q, None), at_rest)
    assert not torch.equal(make(True, 4, 8, 2, seed=4).hashed(q, None), at_rest)
    kernel.train()
    found = []
    for key in ((5, 4, 0), (6, 4, 1), (5, 7, 0)):
        with noise(*key):
            found.append(kernel.hashed(q, None))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    assert not kernel.state_dict()


def kept(length: int, causal: bool) -> int:
    """Bytes that are kept for the gradient."""
    kernel = make(causal, 8, 0, 2, longest=512)
    q, v = (vectors(length, seed, 1).float().requires_grad_() for seed in (0, 1))
    storages: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = kernel(q, q, v)
    out.sum().backward()
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


@BOTH_WAYS
def test_what_is_kept_for_the_gradient_grows_with_the_length_and_not_its_square(causal: bool) -> None:
    assert kept(1024, causal) <= 4.1 * kept(256, causal)


@BOTH_WAYS
def test_in_bfloat16_it_stays_close(causal: bool) -> None:
    kernel, q, v = make(causal, 8, 6, 2), vectors(59).float(), vectors(59, 1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.allclose(kernel(q, q, v), kernel(q.double(), q.double(), v.double()).float(), atol=1e-5)
    low_q, low_v = q.bfloat16().requires_grad_(), v.bfloat16()
    out = kernel(low_q, low_q, low_v)
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert low_q.grad is not None and low_q.grad.isfinite().all()


def test_a_query_of_zeros_has_finite_gradients() -> None:
    q = vectors(13)
    q[:, :, 5] = 0
    q.requires_grad_()
    make(True, 4, 2, 2)(q, q, vectors(13, 1)).square().sum().backward()
    assert q.grad is not None and q.grad.isfinite().all()


def test_heads_with_this_kernel_project_no_keys_and_step_as_they_read() -> None:
    torch.manual_seed(2)
    heads = MultiHead(H * E, H, role="causal", kernel=make(True, 3, 4, 2)).double().eval()
    assert heads.key_value.out_features == H * E
    x = torch.randn(B, 29, H * E, dtype=torch.float64)
    with torch.no_grad(), record(heads) as seen:
        whole = heads(x, x, Causal())
        state = heads.start(B, x)
        parts = [heads.read(x[:, :11], state)] + [heads.step(x[:, place : place + 1], state) for place in range(11, 29)]
    assert torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-9)
    assert seen.check() < 1e-9
    both = MultiHead(H * E, H, role="self", kernel=make(False, 3, 4, 2)).double().eval()
    with record(both) as seen:
        both(x, x, Lengths(torch.tensor([29, 12, 0])))
    assert seen.check() < 1e-9


def test_what_it_cannot_do_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="reformer attention cannot look from one sequence at another"):
        Reformer(Placement(H, E, cross=True))
    with pytest.raises(UsageError, match="even number of buckets, not 7; choose 8"):
        Reformer(Placement(H, E, causal=True), buckets=7)
