"""`attend` against hand-computed numbers, plain Python loops, its own readable reference, and torch's module."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.attention import (
    Blocks,
    Causal,
    Dense,
    Lengths,
    Mask,
    MultiHead,
    Rotary,
    Window,
    attend,
    attend_reference,
    attention_weights,
    record,
)
from regard.noise import dropout, noise

B, H, T, S, E = 2, 6, 5, 7, 11
ATTENDS = pytest.mark.parametrize("function", [attend, attend_reference])
PATHS = pytest.mark.parametrize("path", ["products", "fused"])
DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def take(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `attend` go one of its two ways, whatever the sizes."""
    module = importlib.import_module("regard.attention.attend")  # as an attribute, the name is the function
    monkeypatch.setattr(module, "SHORT", {"products": 10**9, "fused": 0}[path])


# --- Numbers computed by hand


X = torch.tensor([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=torch.float64)
W_K = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.float64)
W_Q = torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=torch.float64)
W_V = torch.tensor([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], dtype=torch.float64)
SCORES = [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
UNSCALED = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]
SCALED = [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]]


@ATTENDS
@pytest.mark.parametrize(("scale", "expected"), [(1.0, UNSCALED), (None, SCALED), (1 / math.sqrt(3), SCALED)])
def test_the_worked_example(function: Callable[..., Tensor], scale: float | None, expected: list[list[float]]) -> None:
    q, k, v = ((X @ weight)[None, None] for weight in (W_Q, W_K, W_V))
    assert (q @ k.mT)[0, 0].tolist() == SCORES
    out = function(q, k, v, scale=scale)[0, 0]
    assert torch.allclose(out, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=5.1e-5)


def test_the_worked_example_through_a_module() -> None:
    """One head of width 3 reads vectors of width 3: the projections are learned matrices, so feed it x W directly."""
    module = MultiHead(3, 1, role="self", bias=False).double()
    with torch.no_grad():
        module.query.weight.copy_(torch.eye(3))
        module.key_value.weight.copy_(torch.cat([torch.eye(3), torch.eye(3)]))
        module.out.weight.copy_(torch.eye(3))
        k = (X @ W_K)[None]
        weights = torch.tensor(SCORES, dtype=torch.float64).div(math.sqrt(3)).softmax(dim=-1)
        assert torch.allclose(module((X @ W_Q)[None], k)[0], weights @ k[0], rtol=0, atol=1e-12)


def test_softmax_under_a_causal_mask() -> None:
    scores = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]])
    weights = attention_weights(scores[None, None], torch.eye(4)[None, None], mask=Causal(), scale=1.0)[0, 0]
    expected = [[1, 0, 0, 0], [0.38, 0.62, 0, 0], [0.26, 0.32, 0.43, 0], [0.21, 0.26, 0.26, 0.26]]
    assert torch.allclose(weights, torch.tensor(expected), rtol=0, atol=0.0051)
    assert not weights.triu(1).any()


# --- Plain loops


def attend_loops(q: Tensor, k: Tensor, v: Tensor, *, allowed: Tensor, bias: Tensor, scale: float) -> list:
    """The formula for each number by itself, in Python floats."""
    queries, keys, values, may, extra = (x.tolist() for x in (q, k, v, allowed, bias))
    share = q.size(1) // k.size(1)
    out = []
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for t in range(q.size(2)):
                seen = [s for s in range(k.size(2)) if may[b][h][t][s]]
                dots = [sum(x * y for x, y in zip(queries[b][h][t], keys[b][h // share][s], strict=True)) for s in seen]
                terms = [math.exp(dot * scale + extra[b][h][t][s]) for dot, s in zip(dots, seen, strict=True)]
                for e in range(v.size(3)):
                    mixed = sum(term * values[b][h // share][s][e] for term, s in zip(terms, seen, strict=True))
                    out.append(mixed / sum(terms) if seen else 0.0)
    return out


@PATHS
@ATTENDS
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("scale", [None, 0.29])
def test_attention_is_its_formula(
    function: Callable[..., Tensor], groups: int, scale: float | None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values may be of another width than keys; a row of the mask is empty."""
    take(path, monkeypatch)
    q, k = random(B, H, T, E, seed=1), random(B, groups, S, E, seed=2)
    v, bias = random(B, groups, S, 13, seed=3), random(B, H, T, S, seed=4)
    allowed = random(B, H, T, S, seed=5) > 0.3
    allowed[1, 4, 2] = False
    out = function(q, k, v, mask=allowed, bias=bias, scale=scale)
    expected = attend_loops(q, k, v, allowed=allowed, bias=bias, scale=scale or 1 / math.sqrt(E))
    assert out.shape == (B, H, T, 13)
    assert torch.allclose(out.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


# --- The fast path is the reference, over every argument


def some_cells(*shape: int) -> Tensor:
    """A pattern in which every query may look somewhere."""
    allowed = random(*shape, seed=6) > 0.2
    allowed[..., 0] = True
    return allowed


KEYS_IN = torch.tensor([[0, 1, 0, 1, 0, 1, 0], [2, 0, 2, 0, 2, 0, 1]])
MASKS: dict[str, Mask | Tensor | None] = {
    "none": None,
    "causal": Causal(),
    "causal after two": Causal(2),
    "window": Window(1, 2),
    "lengths": Lengths(torch.tensor([4, 7])),
    "blocks": Blocks(torch.tensor([[0, 0, 1, 1, 1], [2, 2, 0, 0, 0]]), KEYS_IN),
    "causal and lengths": Causal(1) & Lengths(torch.tensor([2, 6])),
    "tensor (T, S)": some_cells(T, S),
    "tensor (H, T, S)": some_cells(H, T, S),
    "tensor (B, 1, 1, S)": some_cells(B, 1, 1, S),
    "tensor (B, H, T, S)": some_cells(B, H, T, S),
    "dense": Dense(some_cells(1, H, 1, S)),
    "nowhere for one row": Lengths(torch.tensor([0, 5])),
    "nowhere for early queries": Causal(-2),
    "nowhere here and there": random(B, H, T, S, seed=7) > 1.0,
}
BIASES: dict[str, tuple[int, ...] | None] = {
    "no bias": None,
    "(T, S)": (T, S),
    "(H, T, S)": (H, T, S),
    "(H, 1, S)": (H, 1, S),
    "(B, 1, T, S)": (B, 1, T, S),
}


def assert_same_both_ways(
    dtype: torch.dtype, tolerance: float, mask: Mask | Tensor | None, bias: tuple[int, ...] | None, scale: float | None,
    *, groups: int, keys: int = S,
) -> None:  # fmt: skip
    """Forward, and the gradient of a random projection of the output for every input."""
    inputs = [random(B, H, T, E, seed=1), random(B, groups, keys, E, seed=2), random(B, groups, keys, E, seed=3)]
    if bias is not None:
        inputs.append(random(*bias, seed=4))
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    results = []
    for function in (attend, attend_reference):
        out = function(*inputs[:3], mask=mask, bias=inputs[3] if bias is not None else None, scale=scale)
        gradients = torch.autograd.grad((out * random(B, H, T, E, seed=5, dtype=dtype)).sum(), inputs)
        results.append([out, *gradients])
    for fast, reference in zip(*results, strict=True):
        assert torch.isfinite(reference).all()
        assert torch.allclose(fast, reference, rtol=tolerance, atol=tolerance)


@PATHS
@DTYPES
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", MASKS)
def test_the_fast_paths_are_the_reference(
    mask: str, bias: str, dtype: torch.dtype, tolerance: float, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(path, monkeypatch)
    for groups in (6, 2, 1):
        for scale in (None, 0.3):
            assert_same_both_ways(dtype, tolerance, MASKS[mask], BIASES[bias], scale, groups=groups)


@PATHS
@DTYPES
@pytest.mark.parametrize("bias", [None, (T, T)])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_the_kernel_s_own_causality_is_the_reference(
    offset: int, bias: tuple[int, int] | None, dtype: torch.dtype, tolerance: float, path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With as many keys as queries `Causal()` need not become a matrix."""
    take(path, monkeypatch)
    for scale in (None, 0.3):
        assert_same_both_ways(dtype, tolerance, Causal(offset), bias, scale, groups=3, keys=T)


@DTYPES
@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([13, 47]))], ids=str)
def test_long_and_short_sequences_are_the_reference(mask: Mask | None, dtype: torch.dtype, tolerance: float) -> None:
    """Sizes on both sides of the one that chooses the path, without forcing it."""
    for length in (1, 37, 47):
        q, k, v = (random(B, H, length, E, seed=i, dtype=dtype) for i in range(3))
        assert torch.allclose(
            attend(q, k, v, mask=mask), attend_reference(q, k, v, mask=mask), rtol=tolerance, atol=tolerance
        )


def test_a_long_causal_mask_never_becomes_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    q = random(B, 1, 211, E, seed=1)
    expected = attend_reference(q, q, q, mask=Causal())
    monkeypatch.setattr(Causal, "dense", lambda *_: pytest.fail("a (T, T) matrix was made"))
    assert torch.allclose(attend(q, q, q, mask=Causal()), expected, rtol=0, atol=1e-12)


@PATHS
@ATTENDS
@pytest.mark.parametrize("floor", [-math.inf, torch.finfo(torch.float64).min])
def test_no_bias_brings_a_blocked_key_back(
    function: Callable[..., Tensor], floor: float, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Additive masks are biases too: the first keys are ruled out by the bias, so early queries are left with nothing.

    What such a query gives is its own affair (NaN, zeros, a mean of what it may see), but no future key may be in it.
    """
    take(path, monkeypatch)
    q, k, v = (random(B, H, T, E, seed=i) for i in range(3))
    bias = torch.zeros(T, T, dtype=torch.float64)
    bias[:, :2] = floor
    later = v.clone()
    later[:, :, 3:] += 100.0
    first, second = (function(q, k, x, mask=Causal(), bias=bias)[:, :, :3] for x in (v, later))
    assert torch.equal(first.nan_to_num(), second.nan_to_num())


# --- Queries that may look nowhere, and NaN


@PATHS
@ATTENDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bias", [False, True])
def test_a_query_that_may_look_nowhere_gives_zeros_and_no_gradient(
    function: Callable[..., Tensor], dtype: torch.dtype, bias: bool, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(path, monkeypatch)
    allowed = random(B, 1, T, S, seed=6) > 0
    allowed[1, 0, 3] = False
    shapes = {"q": (B, H, T, E), "k": (B, H, S, E), "v": (B, H, S, E), "bias": (T, S)}
    inputs = {name: random(*shapes[name], seed=i, dtype=dtype).requires_grad_() for i, name in enumerate(shapes)}
    if not bias:
        del inputs["bias"]
    out = function(**inputs, mask=allowed)
    assert not out[1, :, 3].any()
    assert out[0].abs().min() > 0
    for gradient in torch.autograd.grad(out[1, :, 3].sum(), list(inputs.values()), retain_graph=True):
        assert not gradient.any()
    gradients = torch.autograd.grad(out.square().sum(), list(inputs.values()))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert not gradients[0][1, :, 3].any()


@ATTENDS
@pytest.mark.parametrize("length", [7, 43])  # by plain products, and through the fused kernel
@pytest.mark.parametrize("mask", ["none", "causal", "window", "lengths"])
@pytest.mark.parametrize("where", ["queries", "keys", "values"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_genuine_nan_stays_visible(
    function: Callable[..., Tensor], mask: str, where: str, dtype: torch.dtype, length: int
) -> None:
    """Zeros are for queries with nothing to see; a NaN that a query sees, or is, must reach its output.

    (torch's fused CPU kernel turns a NaN query into zeros when there are fewer than eight keys, pytorch #141128.)
    """
    masks = {"none": None, "causal": Causal(), "window": Window(9, 9), "lengths": Lengths(torch.tensor([5, length]))}
    q, k, v = (random(B, H, length, E, seed=i, dtype=dtype) for i in range(3))
    {"queries": q, "keys": k, "values": v}[where][0, 2, 1, 5] = math.nan
    out = function(q, k, v, mask=masks[mask])
    assert out[0, 2, 1].isnan().any()
    assert torch.isfinite(out[1]).all()
    assert torch.isfinite(out[0, [0, 1, 3, 4, 5]]).all()


# --- Errors


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((B, H, T, 11), (B, H, S, 13), (B, H, S, 13)), "11 wide and keys 13"),
        (((B, H, T, E), (B, H, 7, E), (B, H, 5, E)), r"\(2, 6, 7, 11\) and values \(2, 6, 5, 11\)"),
        (((B, 6, T, E), (B, 4, S, E), (B, 4, S, E)), "6 query heads cannot share 4"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attend(*(torch.zeros(shape) for shape in shapes))


def test_integers_and_masks_of_numbers_are_refused() -> None:
    q = torch.zeros(B, H, T, E)
    with pytest.raises(ValueError, match="int64"):
        attend(q.long(), q.long(), q.long())
    with pytest.raises(ValueError, match="float32"):
        attend(q, q, q, mask=torch.zeros(T, T))


def test_widths_and_heads_that_do_not_divide_are_named() -> None:
    with pytest.raises(ValueError, match="width of 15 cannot be split into 4 heads"):
        MultiHead(15, 4, role="self")
    with pytest.raises(ValueError, match="6 heads cannot share 4"):
        MultiHead(66, 6, role="self", groups=4)


# --- Dropout on the weights


@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([3, 5]))], ids=str)
def test_dropout_falls_on_the_weights(mask: Mask | None) -> None:
    q, k, v = random(B, H, T, E, seed=1), random(B, 3, T, E, seed=2), random(B, 3, T, E, seed=3)
    with noise(17):
        kept = dropout(torch.ones(B, H, T, T, dtype=torch.float64), 0.3)  # the noise that `attend` will draw
    with noise(17):
        out = attend(q, k, v, mask=mask, dropout=0.3)
    weights = attention_weights(q, k, mask=mask)
    assert 0.6 < kept.count_nonzero() / kept.numel() < 0.8
    assert torch.allclose(out, (weights * kept) @ v.repeat_interleave(2, dim=1), rtol=0, atol=1e-12)


def test_a_module_drops_only_in_training() -> None:
    torch.manual_seed(3)
    module, x = MultiHead(22, 2, role="self", dropout=0.5).double(), random(B, T, 22, seed=1)
    with noise(1):
        trained = module.train()(x, x)
    still = module.eval()(x, x)
    assert not torch.allclose(trained, still)
    assert torch.equal(still, module(x, x))


# --- The module, against torch's


def torch_twin(module: MultiHead) -> nn.MultiheadAttention:
    twin = nn.MultiheadAttention(module.query.in_features, module.heads, batch_first=True).double()
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([module.query.weight, module.key_value.weight]))
        twin.in_proj_bias.copy_(torch.cat([module.query.bias, module.key_value.bias]))
        twin.out_proj.load_state_dict(module.out.state_dict())
    return twin


@pytest.mark.parametrize(("bias", "groups", "turned"), [(True, 3, False), (False, 1, False), (True, 1, True)])
def test_projections_apart_are_one_product_of_all_of_them(bias: bool, groups: int, turned: bool) -> None:
    """Queries, keys and values in one product with their matrices one above the other: outputs and gradients."""
    torch.manual_seed(7)
    rotary = Rotary(10) if turned else None
    module = MultiHead(30, 3, role="causal", groups=groups, bias=bias, rotary=rotary).double()
    x, outer = random(B, T, 30, seed=1).requires_grad_(), random(B, T, 30, seed=2)
    layers, parameters = (module.query, module.key_value), [*module.parameters(), x]
    biases = torch.cat([each.bias for each in layers]) if bias else None
    parts = nn.functional.linear(x, torch.cat([each.weight for each in layers]), biases)
    heads = parts.unflatten(-1, (3 + 2 * groups, 10)).transpose(1, 2)  # (B, H + 2 G, T, E)
    both, v = heads.split([3 + groups, groups], dim=1)
    q, k = (both if rotary is None else rotary(both)).split([3, groups], dim=1)
    expected = module.out(attend_reference(q, k, v, mask=Causal()).transpose(1, 2).flatten(2))
    wanted = torch.autograd.grad((expected * outer).sum(), parameters)
    given = module(x, x, Causal())
    found = torch.autograd.grad((given * outer).sum(), parameters)
    for ours, theirs in zip((given, *found), (expected, *wanted), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 3, 7])
@pytest.mark.parametrize("mask", ["none", "causal", "lengths"])
def test_multi_head_attention_is_torch_s(heads: int, mask: str) -> None:
    torch.manual_seed(heads)
    module = MultiHead(21, heads, role="cross").double()
    nn.init.normal_(module.query.bias)
    nn.init.normal_(module.key_value.bias)
    x, memory = random(B, T, 21, seed=1).requires_grad_(), random(B, S, 21, seed=2).requires_grad_()
    ours: dict[str, Mask | None] = {"none": None, "causal": Causal(), "lengths": Lengths(torch.tensor([3, 7]))}
    theirs = {
        "none": {},
        "causal": {"attn_mask": ~torch.ones(T, S, dtype=torch.bool).tril()},
        "lengths": {"key_padding_mask": torch.arange(S) >= torch.tensor([3, 7])[:, None]},
    }
    with record(module) as seen:
        out = module(x, memory, ours[mask])
    expected, weights = torch_twin(module)(x, memory, memory, average_attn_weights=False, **theirs[mask])
    assert torch.allclose(out, expected, rtol=0, atol=1e-12)
    assert torch.allclose(seen.calls[0].weights(), weights, rtol=0, atol=1e-12)
    for gradient, other in zip(
        *(torch.autograd.grad(y.sin().sum(), (x, memory)) for y in (out, expected)), strict=True
    ):
        assert torch.allclose(gradient, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_grouped_heads_are_heads_with_equal_keys_and_values(groups: int) -> None:
    torch.manual_seed(groups)
    shared = MultiHead(66, 6, role="self", groups=groups).double()
    nn.init.normal_(shared.key_value.bias)
    apart = MultiHead(66, 6, role="self").double()

    def for_each(parameter: Tensor) -> Tensor:
        """(2 G E, ...) -> (2 H E, ...): each key-value head as often as it is shared."""
        heads = parameter.unflatten(0, (2, groups, 11))
        return torch.cat([heads[i, h * groups // 6] for i in range(2) for h in range(6)])

    with torch.no_grad():
        apart.query.load_state_dict(shared.query.state_dict())
        apart.out.load_state_dict(shared.out.state_dict())
        apart.key_value.weight.copy_(for_each(shared.key_value.weight))
        apart.key_value.bias.copy_(for_each(shared.key_value.bias))
    x = random(B, T, 66, seed=1)
    assert torch.allclose(shared(x, x, Causal()), apart(x, x, Causal()), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in shared.key_value.parameters()) * 6 == groups * sum(
        p.numel() for p in apart.key_value.parameters()
    )
