"""Linformer, Performer and linear attention: each is the dense formula of its paper, there and back, whole or step by step."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu

from regard.attention.kernels import features as prefix
from regard.attention.kernels import features as sums
from regard.attention.kernels.features import Exponentials, directions, usual_count
from regard.attention.kernels.kernel import Kernel, Placement
from regard.attention.kernels.linear import ByFeatures, Linear, Performer
from regard.attention.kernels.linformer import Linformer
from regard.errors import RegardError, UsageError
from regard.noise import noise

H, E, M = 3, 5, 11
LENGTHS = (1, 2, 7, 130, 523)  # one position, less than a chunk, just over one, several
BY_FEATURES: dict[str, Callable[[Placement], ByFeatures]] = {
    "linear": Linear,
    "performer": lambda setting: Performer(setting, features=M),
}
SHARES = ("none", "heads", "key-value")


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def three(batch: int, queries: int, keys: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    lengths = (queries, keys, keys)
    return [drawn(batch, H, n, E, seed=i, dtype=dtype).requires_grad_() for i, n in enumerate(lengths)]


def ends(batch: int, keys: int) -> Tensor:
    return torch.tensor([keys, keys // 2, 0, 1, max(1, keys - 1)])[:batch]


def log_features(kernel: Kernel, x: Tensor) -> Tensor:
    """ln φ by the formulas of the papers."""
    if kernel.name == "linear":
        return (elu(x) + 1).log()
    w, width = directions(M, E, kernel.placement.seed, 0), x.size(-1)
    x = x / width**0.25
    return torch.einsum("bhte,me->bhtm", x, w) - (x**2).sum(-1, keepdim=True) / 2 - math.log(math.sqrt(M))


def allowed(batch: int, queries: int, keys: int, causal: bool, lengths: Tensor | None) -> Tensor:
    may = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
    for b in range(batch):
        if lengths is not None:
            may[b, :, :, lengths[b] :] = False
    return may.tril() if causal else may


def dense(kernel: Kernel, qkv: list[Tensor], lengths: Tensor | None = None) -> Tensor:
    """All pairs: each weight the sum over features of φ(q) φ(k), over the row's sum."""
    q, k, v = qkv
    weights = log_features(kernel, q).exp() @ log_features(kernel, k).exp().transpose(-2, -1)
    weights = weights * allowed(len(q), q.size(2), k.size(2), kernel.causal, lengths)
    whole = weights.sum(-1, keepdim=True)
    return weights / whole.masked_fill(whole == 0, 1) @ v


def dense_linformer(kernel: Linformer, qkv: list[Tensor], lengths: Tensor | None = None) -> Tensor:
    """Attention to keys and values that were projected one head and one row at a time."""
    (q, k, v), first = qkv, kernel.project_keys
    second = first if kernel.project_values is None else kernel.project_values
    rows = []
    for b in range(len(q)):
        end = k.size(2) if lengths is None else int(lengths[b])
        heads = []
        for h in range(H):
            one = 0 if len(first) == 1 else h
            keys, values = first[one, :, :end] @ k[b, h, :end], second[one, :, :end] @ v[b, h, :end]
            heads.append((q[b, h] @ keys.T / math.sqrt(E)).softmax(-1) @ values)
        rows.append(torch.stack(heads))
    return torch.stack(rows)


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [out, *torch.autograd.grad(out, inputs, drawn(*out.shape, seed=9).to(out.dtype))]


def assert_agree(found: list[Tensor], wanted: list[Tensor], within: float) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.isfinite(mine).all()
        assert float((mine.detach().double() - theirs.detach().double()).abs().max()) <= within


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", BY_FEATURES)
def test_output_and_gradients_are_those_of_the_dense_formula(
    name: str, causal: bool, length: int, padded: bool
) -> None:
    kernel = BY_FEATURES[name](Placement(H, E, causal=causal, seed=4))
    inputs = three(5, length, length)
    lengths = ends(5, length) if padded else None
    wanted = with_gradients(dense(kernel, inputs, lengths), inputs)
    assert_agree(with_gradients(kernel(*inputs, lengths), inputs), wanted, 1e-9)
    single = [x.detach().float().requires_grad_() for x in inputs]
    found = with_gradients(kernel(*single, lengths), single)
    assert_agree(found[:1], wanted[:1], 1e-5)
    scale = max(float(each.detach().abs().max()) for each in wanted)
    assert_agree(found[1:], wanted[1:], 1e-5 * max(1.0, scale))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("length", [1, 6, 301])
@pytest.mark.parametrize("padded", [False, True])
def test_linformer_is_attention_to_projected_keys_and_values(share: str, length: int, padded: bool) -> None:
    torch.manual_seed(0)
    kernel = Linformer(Placement(H, E, longest=303), size=7, share=share).double()
    inputs = three(5, length, length)
    lengths = ends(5, length) if padded else None
    learned = [*inputs, *kernel.parameters()]
    wanted = with_gradients(dense_linformer(kernel, inputs, lengths), learned)
    assert_agree(with_gradients(kernel(*inputs, lengths), learned), wanted, 1e-9)
    kernel.float()
    single = [x.detach().float() for x in inputs]
    assert_agree([kernel(*single, lengths)], wanted[:1], 1e-5 * max(1.0, float(wanted[0].detach().abs().max())))
    assert sum(p.numel() for p in kernel.parameters()) == 7 * 303 * {"none": 2 * H, "heads": 2, "key-value": 1}[share]


def every_kernel(causal: bool = False, longest: int = 301) -> list[Kernel]:
    torch.manual_seed(1)
    kernels: list[Kernel] = [make(Placement(H, E, causal=causal, longest=longest)) for make in BY_FEATURES.values()]
    if not causal:
        kernels += [Linformer(Placement(H, E, longest=longest), size=7, share=share) for share in SHARES]
    return [kernel.double() for kernel in kernels]


@pytest.mark.parametrize("causal", [False, True])
def test_the_effective_map_makes_the_output(causal: bool) -> None:
    for kernel in every_kernel(causal):
        q, k, v = three(4, 133, 133)
        for lengths in (None, ends(4, 133)):
            weights = kernel.weights(q, k, lengths)
            assert_agree([weights @ v], [kernel(q, k, v, lengths)], 1e-9)
            if kernel.sums_to_one and lengths is None:
                assert_agree([weights.sum(-1)], [torch.ones(4, H, 133)], 1e-9)
            if lengths is not None:
                assert not weights[1, :, :, lengths[1] :].any() and not weights[2].any()
        if causal:
            assert not weights.triu(1).any()


def test_one_sequence_looks_at_another() -> None:
    for kernel in every_kernel():
        inputs = three(4, 19, 150)
        for lengths in (None, ends(4, 150)):
            if isinstance(kernel, Linformer):
                wanted = dense_linformer(kernel, inputs, lengths)
            else:
                wanted = dense(kernel, inputs, lengths)
            assert_agree([kernel(*inputs, lengths)], [wanted], 1e-9)
    placement = Placement(H, E, cross=True)
    assert [kernel.placement.cross for kernel in (Linear(placement), Performer(placement), Linformer(placement))] == [
        True
    ] * 3


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_behind_the_end_of_a_row_changes_nothing(causal: bool) -> None:
    """Neither output nor gradient, even if it is no number; and each row is as it would be alone."""
    for kernel in every_kernel(causal):
        inputs, lengths = three(5, 140, 140), ends(5, 140)
        real = torch.arange(140) < lengths[:, None]  # (B, T)
        wanted = [part * real[:, None, :, None] for part in self_gradients(kernel, inputs, lengths, real)]
        for row, length in enumerate(lengths.tolist()):
            if length:
                alone = [x[row : row + 1, :, :length].detach().requires_grad_() for x in inputs]
                out = self_gradients(kernel, alone, None, torch.ones(1, length, dtype=torch.bool))
                assert_agree([part[row : row + 1, :, :length] for part in wanted], out, 1e-9)
        spoiled = [x.detach().clone() for x in inputs]
        for x in spoiled[1:]:
            x.masked_fill_(~real[:, None, :, None], math.nan)
        again = self_gradients(kernel, [x.requires_grad_() for x in spoiled], lengths, real)
        assert_agree([part * real[:, None, :, None] for part in again], wanted, 1e-12)
        assert not again[2].masked_select(~real[:, None, :, None]).any()  # of keys behind the end
        assert not again[3].masked_select(~real[:, None, :, None]).any()


def self_gradients(kernel: Kernel, inputs: list[Tensor], lengths: Tensor | None, real: Tensor) -> list[Tensor]:
    out = kernel(*inputs, lengths)
    wanted = drawn(H, 140, E, seed=9)[:, : out.size(2)] * real[:, None, :, None]  # the same for every row
    return [out, *torch.autograd.grad(out, inputs, wanted)]


@pytest.mark.parametrize("name", BY_FEATURES)
def test_step_by_step_is_the_whole(name: str) -> None:
    """A prefix at once, then token by token, with hypotheses that are exchanged and dropped on the way."""
    kernel = BY_FEATURES[name](Placement(H, E, causal=True))
    with torch.no_grad():
        q, k, v = three(3, 139, 139)
        whole = kernel(q, k, v)
        state = kernel.start(3, q)
        size = state.sums.numel()
        assert_agree([kernel.read(q[:, :, :1], k[:, :, :1], v[:, :, :1], state)], [whole[:, :, :1]], 1e-9)
        part = slice(1, 135)
        assert_agree([kernel.read(q[:, :, part], k[:, :, part], v[:, :, part], state)], [whole[:, :, part]], 1e-9)
        rows = torch.tensor([2, 0, 0])
        kept, state = state, state.select(rows)
        for t in range(135, 139):
            here = slice(t, t + 1)
            out = kernel.step(q[rows][:, :, here], k[rows][:, :, here], v[rows][:, :, here], state)
            assert_agree([out], [whole[rows][:, :, here]], 1e-9)
        assert (state.filled, kept.filled, state.sums.numel()) == (139, 135, size)
        here = slice(135, 136)  # the state that was selected from still goes on by itself
        assert_agree([kernel.step(q[:, :, here], k[:, :, here], v[:, :, here], kept)], [whole[:, :, here]], 1e-9)


@pytest.mark.parametrize("size", [8, 22])  # 22 is 8 after division by E^¼
@pytest.mark.parametrize("causal", [False, True])
def test_features_far_beyond_the_range_of_float32_are_exact(causal: bool, size: float) -> None:
    """Components up to 8 and heads of 64: logarithms of features differ by hundreds, float32 ends at 88."""
    width, length = 64, 43
    kernel = Performer(Placement(1, width, causal=causal))
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.rand(1, 1, length, width, generator=generator, dtype=torch.float64) * 2 - 1 for _ in range(3))
    q, k = q * size, k * size
    k[:, :, 20:] *= torch.linspace(1, 0, 23, dtype=torch.float64)[
        :, None
    ]  # later keys have greater and greater features
    q[:, :, 7] = -k[:, :, 7]
    features = Exponentials(directions(kernel.count, width, 0, 0))
    scores = (features.logs(q)[:, :, :, None] + features.logs(k)[:, :, None]).logsumexp(-1)  # (1, 1, T, S)
    assert float(features.logs(k).amax() - features.logs(k).amin()) > 160
    if causal:
        scores = scores.masked_fill(~torch.ones(length, length, dtype=torch.bool).tril(), -math.inf)
    wanted = scores.softmax(-1) @ v
    single = [x.float().requires_grad_() for x in (q, k, v)]
    found = with_gradients(kernel(*single), single)
    assert all(torch.isfinite(each).all() for each in found)
    assert float((found[0].detach() - wanted).abs().max()) < 2e-5 * size  # float32 knows a logarithm of 300 to 3e-5
    assert_agree([kernel(q, k, v), kernel.weights(q, k) @ v], [wanted, wanted], 1e-9)
    if causal:
        a, b, c = (x.detach()[0] for x in single)
        past = sums.FeatureSums.empty(1, kernel.count, width, a)
        chunks = prefix._chunks(a, b, sums.with_ones(c), kernel.features(a), None, past)
        assert len(chunks) > 1  # the whole would fit in one chunk, but it was cut


def test_the_gradient_of_wild_features_is_that_of_float64() -> None:
    kernel = Performer(Placement(H, E, causal=True), features=M)
    inputs = [
        (x.detach() * torch.tensor([12.0, 12.0, 1.0])[i]).requires_grad_() for i, x in enumerate(three(1, 29, 29))
    ]
    wanted = with_gradients(kernel(*inputs), inputs)
    single = [x.detach().float().requires_grad_() for x in inputs]
    assert_agree(with_gradients(kernel(*single), single), wanted, 1e-3)
    assert_agree(wanted, with_gradients(dense(kernel, inputs), inputs), 1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_autocast_does_no_harm(causal: bool) -> None:
    for kernel in every_kernel(causal):
        kernel.float()
        inputs = [x.detach().bfloat16().requires_grad_() for x in three(2, 135, 135)]
        lengths = torch.tensor([135, 61])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = with_gradients(kernel(*inputs, lengths), inputs)
        exact = kernel(*(x.detach().float() for x in inputs), lengths).detach()
        assert found[0].dtype == torch.bfloat16
        assert float((found[0].detach().float() - exact).abs().max()) < 0.05 * float(exact.abs().max())
        assert all(torch.isfinite(each).all() for each in found)
        assert torch.isfinite(kernel.weights(inputs[0], inputs[1], lengths)).all()
        if causal:
            q, k, v = inputs
            assert kernel.read(q, k, v, kernel.start(2, q)).dtype == torch.bfloat16


def test_random_features_are_unbiased() -> None:
    """The mean of φ(q)·φ(k) over 800 draws is exp(q·k / √E), within 4 standard errors, for orthogonal directions too."""
    width, draws = 7, 800
    q, k = 0.8 * drawn(6, width, seed=1), 0.8 * drawn(6, width, seed=2)
    wanted = (q @ k.T / math.sqrt(width)).exp()
    for orthogonal in (True, False):
        found = torch.stack(
            [estimate(q, k, directions(9, width, 3, draw, orthogonal=orthogonal)) for draw in range(draws)]
        )
        error = (found.mean(0) - wanted) / (found.std(0) / math.sqrt(draws))
        assert float(error.abs().max()) < 4


def estimate(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    features = Exponentials(w)
    return features.logs(q).exp() @ features.logs(k).exp().T


def test_orthogonal_directions_err_less_than_independent_ones() -> None:
    width = 16
    q, k = 0.3 * drawn(20, width, seed=1), 0.3 * drawn(20, width, seed=2)
    wanted = (q @ k.T / math.sqrt(width)).exp()
    error = {
        orthogonal: sum(
            float(((estimate(q, k, directions(width, width, 8, draw, orthogonal=orthogonal)) - wanted) ** 2).mean())
            for draw in range(100)
        )
        for orthogonal in (True, False)
    }
    assert error[True] < 0.92 * error[False]


def test_orthogonal_directions_are_orthogonal_and_as_long_as_gaussian_ones() -> None:
    w = directions(23, 7, 1, 2)
    for start in range(0, 23, 7):
        block = w[start : start + 7]
        products = block @ block.T
        assert float((products - products.diag().diag()).abs().max()) < 1e-12
    lengths = torch.cat([directions(700, 7, 1, draw) for draw in range(10)]).pow(2).sum(-1)
    assert abs(float(lengths.mean()) - 7) < 0.2 and abs(float(lengths.var()) - 14) < 1  # χ² with 7 degrees


@pytest.mark.parametrize("causal", [False, True])
def test_the_error_falls_as_one_over_the_root_of_the_features(causal: bool) -> None:
    """Where a feature's variance, which grows as exp |q + k|², is moderate."""
    width, length, counts = 16, 48, (16, 64, 256, 1024)
    q, k, v = (drawn(1, 1, length, width, seed=seed) * size for seed, size in enumerate((0.3, 0.3, 1.0)))
    scores = q @ k.mT / math.sqrt(width)
    exact = scores.masked_fill(~allowed(1, length, length, causal, None), -math.inf).softmax(-1) @ v
    errors = []
    for count in counts:
        kernels = [Performer(Placement(1, width, causal=causal, seed=seed), features=count) for seed in range(12)]
        errors.append(math.sqrt(sum(float(((kernel(q, k, v) - exact) ** 2).mean()) for kernel in kernels) / 12))
    x = torch.tensor(counts).double().log()
    y = torch.tensor(errors).double().log()
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    assert -0.65 < slope < -0.35


def test_features_are_drawn_anew_in_training_and_kept_for_afterwards() -> None:
    def performer() -> Performer:
        return Performer(Placement(H, E, seed=6), features=M, redraw=10).double()

    x = [each.detach() for each in three(2, 9, 9)]
    kernel = performer()
    fresh = kernel(*x)

    def at(step: int) -> Tensor:
        with noise(1, step, 0):
            return kernel(*x)

    assert torch.equal(at(0), fresh) and torch.equal(at(9), fresh)
    second = at(25)
    assert not torch.allclose(second, fresh) and torch.equal(at(20), second)
    assert torch.equal(kernel.eval()(*x), second) and torch.equal(at(99), second)  # evaluation draws nothing
    other = performer()
    other.load_state_dict(kernel.state_dict())
    assert kernel.state_dict()["draw"].dtype == torch.int64 and int(other.draw) == 2
    torch.manual_seed(77)
    assert torch.equal(other.eval()(*x), second)
    kernel.train().redraw = 0
    assert torch.equal(at(99), second)
    assert not torch.allclose(Performer(Placement(H, E, seed=7), features=M).double()(*x), fresh)


def test_as_many_features_as_the_paper_says_unless_told() -> None:
    assert [usual_count(width) for width in (1, 2, 16, 64)] == [8, 8, 48, 264]  # E ln E: 0, 1.4, 44.4, 266.2
    assert Performer(Placement(2, 16)).count == 48 and Performer(Placement(2, 16), features=5).count == 5


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_kept_for_the_gradient_grows_with_the_length_alone(causal: bool) -> None:
    for number in range(len(every_kernel(causal))):
        kept = [kept_numbers(every_kernel(causal, 2048)[number], length) for length in (512, 1024, 2048)]
        assert kept[2] <= 2.05 * kept[1] <= 4.3 * kept[0]
        assert kept[2] < 2048 * H * (2 * M + 12 * E)  # features once, and some tensors as large as queries


def kept_numbers(kernel: Kernel, length: int) -> int:
    found: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = kernel(*three(1, length, length))
    assert out.requires_grad
    return sum(found.values())


def test_what_linformer_cannot_do_it_refuses_in_words() -> None:
    with pytest.raises(UsageError, match=r"linformer attention cannot be causal; choose .* \(its keys are mixtures of"):
        Linformer(Placement(H, E, causal=True))
    kernel = Linformer(Placement(H, E, longest=20))
    q, k, v = three(1, 3, 21, torch.float32)
    with pytest.raises(RegardError, match=r"projections for 20 positions, not for 21; set model.max_length = 21"):
        kernel(q, k, v)
    with pytest.raises(RegardError, match="21"):
        kernel.weights(q, k)
    with pytest.raises(UsageError, match="token by token"):
        kernel.start(1, q)
    with pytest.raises(UsageError, match="did you mean heads"):
        Linformer(Placement(H, E), share="head")


def test_a_kernel_that_looks_to_both_sides_has_no_steps() -> None:
    for make in BY_FEATURES.values():
        with pytest.raises(UsageError, match="cannot go on token by token when it looks to both sides"):
            make(Placement(H, E)).start(1, torch.zeros(1))


def test_projections_keep_products_as_they_are_on_average() -> None:
    torch.manual_seed(2)
    matrix = Linformer(Placement(H, E, longest=400), size=64).project_keys.detach()[0]
    assert abs(float(matrix.std()) - 1 / 8) < 0.005
    square = matrix.T @ matrix  # (S, S), the identity on average
    assert abs(float(square.diag().mean()) - 1) < 0.05
