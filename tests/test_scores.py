"""The eight scores, soft, hard and local attention, and pooling, against the papers' formulas in plain Python loops."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import (
    SCORES,
    AttentionCall,
    AttentionPool,
    Lengths,
    Look,
    MultiHead,
    Score,
    SoftAttention,
    add_score,
    make_score,
    record,
    softness,
)
from regard.attention.scores import Additive, Dot
from regard.attention.soft import Everywhere, PredictedPosition, SamePosition, make_place
from regard.blocks.recurrent import Recurrent
from regard.errors import UsageError

B, T, S, Q, K = 3, 5, 11, 7, 13  # queries are Q wide, keys K, but where a score wants one width both are Q
LENGTHS = [4, 11, 7]
ONE_WIDTH = ("cosine", "dot", "scaled-dot")
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-12}

Vector = list[float]


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def score_of(name: str, longest: int = 17) -> Score:
    """A score in float64 whose every number is random, also β of the cosine."""
    torch.manual_seed(3)
    score = make_score(name, Q, Q if name in ONE_WIDTH else K, longest).double()
    for parameter in score.parameters():
        nn.init.normal_(parameter, mean=0.2, std=0.7)
    return score


def sides(name: str) -> tuple[Tensor, Tensor]:
    """Queries (B, T, Q) and annotations (B, S, Q or K)."""
    return random(B, T, Q, seed=1), random(B, S, Q if name in ONE_WIDTH else K, seed=2)


# --- The formulas, for each number by itself, in Python floats


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def matrix(module: nn.Module, name: str) -> list[Vector]:
    return module.get_parameter(name).tolist()


def times_vector(rows: list[Vector], vector: Vector) -> Vector:
    return [dot(row, vector) for row in rows]


def cosine(score: Score, q: Vector, k: Vector, s: int) -> float:
    """Graves et al. 2014, eq. 5 and 6; the angle to nothing is taken to be a right one."""
    lengths = math.sqrt(dot(q, q)) * math.sqrt(dot(k, k))
    strength = math.exp(score.get_parameter("log_strength").item())
    return strength * dot(q, k) / lengths if lengths else 0.0


def additive(score: Score, q: Vector, k: Vector, s: int) -> float:
    """Bahdanau et al. 2015, A.1.2: v · tanh(W s_(i-1) + U h_j)."""
    ours = times_vector(matrix(score, "query.weight"), q)
    theirs = times_vector(matrix(score, "key.weight"), k)
    (v,) = matrix(score, "value.weight")
    return dot(v, [math.tanh(a + b) for a, b in zip(ours, theirs, strict=True)])


def location(score: Score, q: Vector, k: Vector, s: int) -> float:
    """Luong et al. 2015, eq. 8: a = softmax(W h_t); a position that W has no row for is never looked at."""
    rows = matrix(score, "position.weight")
    return dot(rows[s], q) if s < len(rows) else -math.inf


def general(score: Score, q: Vector, k: Vector, s: int) -> float:
    """Luong et al. 2015, section 3.1: h_t · W h_s."""
    return dot(q, times_vector(matrix(score, "key.weight"), k))


def mlp(score: Score, q: Vector, k: Vector, s: int) -> float:
    """Parikh et al. 2016, eq. 1: F(a) · G(b), each a network of one hidden layer, divided by √E."""

    def network(name: str, x: Vector) -> Vector:
        for layer in ("0", "2"):
            bias = score.get_parameter(f"{name}.{layer}.bias").tolist()
            x = [a + b for a, b in zip(times_vector(matrix(score, f"{name}.{layer}.weight"), x), bias, strict=True)]
            x = [math.tanh(each) for each in x] if layer == "0" else x
        return x

    return dot(network("query", q), network("key", k)) / math.sqrt(len(q))


def offset(score: Score, q: Vector, k: Vector, s: int, t: float = 0) -> float:
    """A Gaussian around the position b before that of the query, t."""
    width = math.exp(score.get_parameter("log_width").item())
    return -((s - (t - score.get_parameter("back").item())) ** 2) / (2 * width**2)


FORMULAS: dict[str, Callable[[Score, Vector, Vector, int], float]] = {
    "cosine": cosine,
    "additive": additive,
    "location": location,
    "general": general,
    "dot": lambda score, q, k, s: dot(q, k),  # Luong et al. 2015, section 3.1
    "scaled-dot": lambda score, q, k, s: dot(q, k) / math.sqrt(len(q)),  # Vaswani et al. 2017, section 3.2.1
    "mlp": mlp,
    "offset": offset,
}


def softmax(scores: Vector) -> Vector:
    top = max(scores)
    terms = [math.exp(score - top) for score in scores]
    return [term / sum(terms) for term in terms]


def mixed(weights: Vector, vectors: list[Vector]) -> Vector:
    return [sum(w * vector[e] for w, vector in zip(weights, vectors, strict=True)) for e in range(len(vectors[0]))]


def attention_by_hand(
    name: str,
    score: Score,
    q: Tensor,
    memory: Tensor,
    *,
    lengths: Sequence[int] | None = None,
    temperature: float = 1.0,
    window: Callable[[int, int, int], Sequence[int]] | None = None,
    factor: Callable[[int, int, int], float] | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights (B, T, S) and contexts (B, T, K). `window` (b, t, length) lists what is in reach."""
    all_weights, contexts = [], []
    for b, (queries, keys) in enumerate(zip(q.tolist(), memory.tolist(), strict=True)):
        length = len(keys) if lengths is None else lengths[b]
        for t, query in enumerate(queries):
            seen = list(range(length) if window is None else window(b, t, length))
            scores = [FORMULAS[name](score, query, keys[s], s) / temperature for s in seen]
            weights = [0.0] * len(keys)
            for s, weight in zip(seen, softmax(scores), strict=True):
                weights[s] = weight * (1.0 if factor is None else factor(b, t, s))
            all_weights.append(weights)
            contexts.append(mixed(weights, keys))
    shape = (q.size(0), q.size(1), -1)
    return torch.tensor(all_weights, dtype=torch.float64).view(shape), torch.tensor(contexts, dtype=torch.float64).view(
        shape
    )


# --- Scores


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_formula(name: str) -> None:
    score, (q, memory) = score_of(name), sides(name)
    found = score(q, score.keys(memory))
    assert found.shape == (B, T, S)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                expected = FORMULAS[name](score, q[b, t].tolist(), memory[b, s].tolist(), s)
                assert found[b, t, s].item() == pytest.approx(expected, abs=1e-12)


def test_there_are_eight() -> None:
    assert set(SCORES) == set(FORMULAS) and len(SCORES) == 8


def test_the_offset_score_counts_from_where_a_query_stands() -> None:
    score, (q, memory) = score_of("offset"), sides("offset")
    found, times = score.at(q, score.keys(memory), torch.arange(T)), range(T)
    for t in times:
        for s in range(S):
            assert found[1, t, s].item() == pytest.approx(offset(score, [], [], s, t), abs=1e-12)
    one = score.at(q, score.keys(memory), torch.full((1,), 3))  # the hypotheses of one step stand at one time
    assert torch.allclose(one, found[:, 3:4].expand(B, T, S), **EXACT)
    found.sin().sum().backward()
    assert all(each.grad is not None and each.grad.any() for each in score.parameters())


@pytest.mark.parametrize("back", [0, 2, 10])
def test_always_so_far_back_is_a_choice_that_nothing_changes(back: int) -> None:
    """The hard choice of lectures, "always 10 back", as a score; before the beginning the first position is nearest."""
    score = make_score("offset", Q, Q, back=back, back_learned=False).double()
    assert not any(parameter.requires_grad for parameter in score.parameters())
    memory = random(B, 17, Q, seed=2)
    attention = SoftAttention(score)
    look = attention.look(random(B, 17, Q, seed=1), attention.project(memory, None), torch.arange(17))
    for t in range(17):
        assert torch.allclose(look.context[:, t], memory[:, max(0, t - back)], atol=5e-3)
        assert look.weights[0, t].argmax() == max(0, t - back)


def test_a_score_of_one_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.scores.SCORES", dict(SCORES))
    monkeypatch.setattr("regard.plugins._added", {})
    add_score("twice", lambda query_width, key_width, longest: Dot(query_width, key_width, 2.0))
    q, memory = sides("dot")
    assert torch.allclose(make_score("twice", q.size(-1), memory.size(-1))(q, memory), 2 * q @ memory.mT)
    with pytest.raises(UsageError, match="there is a score dot already"):
        add_score("dot", lambda query_width, key_width, longest: Dot(query_width, key_width))


@pytest.mark.parametrize("name", ["cosine", "additive", "location", "general", "mlp"])  # products have nothing to learn
def test_every_number_of_a_score_learns(name: str) -> None:
    score, (q, memory) = score_of(name, longest=S), sides(name)
    score(q, score.keys(memory)).sin().sum().backward()
    for part, parameter in score.named_parameters():
        assert parameter.grad is not None and (parameter.grad != 0).all(), part


def test_a_zero_vector_has_cosine_zero_and_finite_gradients() -> None:
    score, (q, memory) = score_of("cosine"), sides("cosine")
    q[1, 2], memory[0, 3] = 0.0, 0.0
    q.requires_grad_(), memory.requires_grad_()
    found = score(q, score.keys(memory))
    assert not found[1, 2].any() and not found[0, :, 3].any()
    assert found[0, :, 2].all()
    found.sum().backward()
    assert q.grad is not None and memory.grad is not None
    assert q.grad.isfinite().all() and memory.grad.isfinite().all()


def test_a_cosine_does_not_see_how_long_vectors_are() -> None:
    score, (q, memory) = score_of("cosine"), sides("cosine")
    scaled = score(q * 3.7, score.keys(memory * 0.013))
    assert torch.allclose(scaled, score(q, score.keys(memory)), **EXACT)
    strength = score.get_parameter("log_strength").exp().item()
    assert score(q, score.keys(q)).diagonal(dim1=1, dim2=2).allclose(torch.tensor(strength, dtype=torch.float64))


def test_the_strength_of_a_cosine_begins_at_one() -> None:
    q, memory = sides("cosine")
    plain = make_score("cosine", Q, Q).double()
    assert torch.allclose(
        plain(q, plain.keys(memory)), nn.functional.cosine_similarity(q[:, :, None], memory[:, None], dim=-1)
    )


@pytest.mark.parametrize("width", [None, 5])
def test_the_hidden_layer_of_an_additive_score(width: int | None) -> None:
    """As wide as a query unless said otherwise, and without biases, as in the paper."""
    shapes = {name: tuple(p.shape) for name, p in Additive(Q, K, width).named_parameters()}
    assert shapes == {"query.weight": (width or Q, Q), "key.weight": (width or Q, K), "value.weight": (1, width or Q)}


@pytest.mark.parametrize("longest", [S + 2, S, S - 4, 1])
@pytest.mark.parametrize("temperature", [1.0, 0.3, 1.9])
def test_positions_that_the_location_score_does_not_know_get_exactly_nothing(longest: int, temperature: float) -> None:
    score, (q, memory) = score_of("location", longest), sides("location")
    attention = SoftAttention(score, temperature=temperature)
    look = attention.look(q, attention.project(memory, None), torch.zeros(1))
    known = min(longest, S)
    assert not look.weights[:, :, known:].any()
    assert look.weights[:, :, :known].all()
    weights, context = attention_by_hand(
        "location", score, q, memory, temperature=temperature, window=lambda b, t, length: range(known)
    )
    assert torch.allclose(look.weights, weights, **EXACT)
    assert torch.allclose(look.context, context, **EXACT)


def test_the_location_score_does_not_look_at_what_stands_there() -> None:
    score, (q, memory) = score_of("location"), sides("location")
    assert torch.equal(score(q, score.keys(memory)), score(q, score.keys(memory + 5)))


@pytest.mark.parametrize("name", ONE_WIDTH)
def test_products_need_one_width(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"needs queries and keys of one width, but they are {Q} and {K} wide"
    ) as error:
        make_score(name, Q, K)
    assert "general or additive" in str(error.value)


def test_an_unknown_score_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"no score addtive.*additive"):
        make_score("addtive", Q, K)


# --- Soft attention


def padding(lengths: Sequence[int], places: int = S) -> Tensor:
    return torch.arange(places) >= torch.tensor(lengths)[:, None]  # (B, S)


@pytest.mark.parametrize("temperature", [1.0, 0.31, 2.3])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
@pytest.mark.parametrize("name", SCORES)
def test_soft_attention_is_a_softmax_of_scores_and_a_mean_of_annotations(
    name: str, lengths: list[int] | None, temperature: float
) -> None:
    """Bahdanau et al. 2015, eq. 5 and 6; padding gets exactly nothing."""
    score, (q, memory) = score_of(name), sides(name)
    attention = SoftAttention(score, temperature=temperature)
    keys = attention.project(memory, None if lengths is None else Lengths(torch.tensor(lengths)))
    look = attention.look(q, keys, torch.zeros(1))
    weights, context = attention_by_hand(name, score, q, memory, lengths=lengths, temperature=temperature)
    assert torch.allclose(look.weights, weights, **EXACT)
    assert torch.allclose(look.context, context, **EXACT)
    assert torch.equal(attention(q, keys, torch.zeros(1)), look.context)
    if lengths is not None:
        hidden = padding(lengths)[:, None].expand(B, T, S)
        assert not look.weights[hidden].any() and look.weights[~hidden].all()


@pytest.mark.parametrize("place", ["global", "local-m", "local-p"])
@pytest.mark.parametrize("name", SCORES)
def test_padded_is_unpadded(name: str, place: str) -> None:
    """Neither the place of padding nor what is written there means anything; nor do its gradients."""
    torch.manual_seed(5)
    score, (q, memory) = score_of(name), sides(name)
    attention = SoftAttention(score, place=make_place(place, Q, 2)).double()
    memory = memory.masked_fill(padding(LENGTHS)[..., None], 29.0).requires_grad_()
    times = torch.arange(T)
    look = attention.look(q, attention.project(memory, Lengths(torch.tensor(LENGTHS))), times)
    for b, length in enumerate(LENGTHS):
        alone = attention.look(q[b : b + 1], attention.project(memory[b : b + 1, :length], None), times)
        assert torch.allclose(look.weights[b : b + 1, :, :length], alone.weights, **EXACT)
        assert torch.allclose(look.context[b : b + 1], alone.context, **EXACT)
        assert not look.weights[b, :, length:].any()
    look.context.sin().sum().backward()
    assert memory.grad is not None
    assert not memory.grad[padding(LENGTHS)].any() and memory.grad[1].any()


def test_one_query_at_a_time_is_all_at_once() -> None:
    score, (q, memory) = score_of("additive"), sides("additive")
    attention = SoftAttention(score, place=SamePosition(2))
    keys = attention.project(memory, Lengths(torch.tensor(LENGTHS)))
    whole = attention.look(q, keys, torch.arange(T))
    steps = Look.stacked([attention.look(q[:, t : t + 1], keys, torch.full((1,), t)) for t in range(T)])
    assert steps.weights.shape == (B, T, S) and steps.context.shape == (B, T, K)
    assert torch.allclose(steps.weights, whole.weights, **EXACT)
    assert torch.allclose(steps.context, whole.context, **EXACT)


# --- Softness: hard attention and temperatures while a model runs


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
@pytest.mark.parametrize("name", SCORES)
def test_hard_attention_sees_the_best_key_only(name: str, lengths: list[int] | None) -> None:
    score, (q, memory) = score_of(name), sides(name)
    attention = SoftAttention(score)
    keys = attention.project(memory, None if lengths is None else Lengths(torch.tensor(lengths)))
    with softness(hard=True):
        look = attention.look(q, keys, torch.zeros(1))
    for b in range(B):
        places = range(S if lengths is None else lengths[b])
        for t in range(T):
            scores = [FORMULAS[name](score, q[b, t].tolist(), memory[b, s].tolist(), s) for s in places]
            best = scores.index(max(scores))
            assert look.weights[b, t].tolist() == [float(s == best) for s in range(S)]
            assert torch.equal(look.context[b, t], memory[b, best])


def test_of_equal_keys_the_first_is_the_best_and_of_none_there_is_no_best() -> None:
    attention = SoftAttention(make_score("dot", Q, Q))
    q, memory = random(2, 3, Q, seed=1), random(2, 1, Q, seed=2).expand(2, S, Q)
    with softness(hard=True):
        look = attention.look(q, attention.project(memory, Lengths(torch.tensor([0, 5]))), torch.zeros(1))
    assert not look.weights[0].any() and not look.context[0].any()
    assert (look.weights[1] == torch.eye(S, dtype=torch.float64)[0]).all()


@pytest.mark.parametrize("own", [1.0, 0.6])
@pytest.mark.parametrize("temperature", [0.2, 3.1])
def test_a_temperature_from_outside_multiplies_a_module_s_own(own: float, temperature: float) -> None:
    score, (q, memory) = score_of("general"), sides("general")
    attention = SoftAttention(score, temperature=own)
    keys = attention.project(memory, Lengths(torch.tensor(LENGTHS)))
    with softness(temperature=temperature):
        look = attention.look(q, keys, torch.zeros(1))
    weights, context = attention_by_hand("general", score, q, memory, lengths=LENGTHS, temperature=own * temperature)
    assert torch.allclose(look.weights, weights, **EXACT)
    assert torch.allclose(look.context, context, **EXACT)


def test_hard_attention_in_a_window_that_falls_off_takes_the_best_of_what_is_left() -> None:
    """With local-p, the best is what has the greatest weight after the fall-off."""
    torch.manual_seed(5)
    attention = SoftAttention(score_of("general"), place=PredictedPosition(Q, 3)).double()
    q, memory = sides("general")
    keys = attention.project(memory, Lengths(torch.tensor(LENGTHS)))
    soft = attention.look(q, keys, torch.arange(T)).weights
    with softness(hard=True):
        hard = attention.look(q, keys, torch.arange(T)).weights
    for row, found in zip(soft.flatten(0, 1).tolist(), hard.flatten(0, 1).tolist(), strict=True):
        assert found == [float(s == row.index(max(row))) for s in range(S)]


def test_softness_nests_and_ends_with_its_block() -> None:
    attention, (q, memory) = SoftAttention(score_of("general")), sides("general")
    keys = attention.project(memory, None)

    def weights() -> Tensor:
        return attention.look(q, keys, torch.zeros(1)).weights

    plain = weights()
    with softness(temperature=0.5):
        sharp = weights()
        with softness(hard=True):
            hard = weights()
            with softness():
                assert torch.equal(weights(), plain)
            assert torch.equal(weights(), hard)
        assert torch.equal(weights(), sharp)
        with pytest.raises(KeyError), softness(hard=True):
            raise KeyError
        assert torch.equal(weights(), sharp)
    assert torch.equal(weights(), plain)
    assert not torch.equal(plain, sharp) and not torch.equal(plain, hard) and not torch.equal(sharp, hard)


def test_other_threads_do_not_see_a_softness() -> None:
    attention, (q, memory) = SoftAttention(score_of("dot")), sides("dot")
    keys = attention.project(memory, None)
    plain, found = attention.look(q, keys, torch.zeros(1)).weights, {}
    barrier = threading.Barrier(2, timeout=20)

    def run(key: str, options: dict[str, Any] | None) -> None:
        if options is None:
            barrier.wait()  # the other is inside its block
            found[key] = attention.look(q, keys, torch.zeros(1)).weights
            barrier.wait()
            return
        with softness(**options):
            barrier.wait()
            found[key] = attention.look(q, keys, torch.zeros(1)).weights
            barrier.wait()

    with softness(temperature=7.0):  # of this thread
        threads = [threading.Thread(target=run, args=each) for each in (("hard", {"hard": True}), ("plain", None))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert torch.equal(found["plain"], plain)
    assert found["hard"].amax(dim=-1).eq(1.0).all()


def multi_head_by_hand(
    module: MultiHead, x: Tensor, memory: Tensor, allowed: Tensor, temperature: float, hard: bool
) -> tuple[Tensor, Tensor]:
    """Weights (B, H, T, S) and output (B, T, D), one head after another; keys lie before values in one matrix."""
    width, share = module.head_width, module.heads // module.groups
    all_weights, heads = [], []
    for h in range(module.heads):
        group = h // share * width
        rows = slice(h * width, (h + 1) * width)
        q = x @ module.query.weight[rows].T + module.query.bias[rows]
        parts = []
        for first in (group, module.groups * width + group):
            rows = slice(first, first + width)
            parts.append(memory @ module.key_value.weight[rows].T + module.key_value.bias[rows])
        k, v = parts
        exponents = (q @ k.mT / math.sqrt(width) / temperature).exp() * allowed
        weights = exponents / exponents.sum(dim=-1, keepdim=True)
        if hard:
            weights = (weights == weights.amax(dim=-1, keepdim=True)).double()
        all_weights.append(weights)
        heads.append(weights @ v)
    return torch.stack(all_weights, dim=1), module.out(torch.cat(heads, dim=-1))


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(("temperature", "hard"), [(0.3, False), (2.7, False), (1.0, True), (0.3, True)])
def test_softness_reaches_the_cross_attention_of_a_transformer(groups: int, temperature: float, hard: bool) -> None:
    """Whole and step by step, with the recorder seeing what was really used."""
    torch.manual_seed(2)
    module = MultiHead(15, 3, role="cross", groups=groups).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    x, memory, mask = random(B, T, 15, seed=1), random(B, S, 15, seed=2), Lengths(torch.tensor(LENGTHS))
    allowed = ~padding(LENGTHS)[:, None]  # (B, 1, S)
    weights, expected = multi_head_by_hand(module, x, memory, allowed, temperature, hard)
    with record(module) as seen, softness(temperature=temperature, hard=hard):
        out = module(x, memory, mask)
        steps = [module.look_at(x[:, t : t + 1], module.project(memory, mask)) for t in range(T)]
    assert torch.allclose(out, expected, **EXACT)
    assert torch.allclose(torch.cat(steps, dim=1), expected, **EXACT)
    assert torch.allclose(seen.calls[0].weights(), weights, **EXACT)
    assert seen.check() < 1e-12
    plain, unchanged = multi_head_by_hand(module, x, memory, allowed, 1.0, hard=False)
    assert torch.allclose(module(x, memory, mask), unchanged, **EXACT)
    assert not torch.allclose(plain, weights, rtol=0, atol=1e-3)


@pytest.mark.parametrize("role", ["self", "causal", "pool", "memory"])
def test_softness_reaches_no_other_role(role: Any) -> None:
    torch.manual_seed(2)
    heads = MultiHead(15, 3, role=role).double()
    soft = SoftAttention(score_of("dot"), role=role)
    x, (q, memory) = random(B, T, 15, seed=1), sides("dot")
    keys = soft.project(memory, None)
    plain = heads(x, x), soft(q, keys, torch.zeros(1))
    with softness(temperature=0.2, hard=True):
        changed = heads(x, x), soft(q, keys, torch.zeros(1))
    assert all(torch.equal(*pair) for pair in zip(plain, changed, strict=True))


# --- Pooling


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
@pytest.mark.parametrize("name", SCORES)
def test_pooling_is_attention_of_one_learned_query(name: str, lengths: list[int] | None) -> None:
    torch.manual_seed(4)
    score, (_, memory) = score_of(name), sides(name)
    pool = AttentionPool(score, Q).double()
    mask = None if lengths is None else Lengths(torch.tensor(lengths))
    with record(pool) as seen, softness(hard=True):  # it looks at no source: softness is not for it
        out = pool(memory, mask)
    query = pool.query.detach().expand(B, 1, Q)
    weights, context = attention_by_hand(name, score, query, memory, lengths=lengths)
    assert out.shape == (B, memory.size(-1))
    assert torch.allclose(out, context[:, 0], **EXACT)
    (call,) = seen.calls
    assert (call.role, call.path) == ("pool", "attention")
    assert torch.allclose(call.weights()[:, 0], weights, **EXACT)
    assert call.check() < 1e-12
    if name not in ("location", "offset"):  # which have only positions to weigh
        out.sin().sum().backward()
        assert pool.query.grad is not None and pool.query.grad.any()


# --- Local attention, Luong et al. 2015, section 3.2


def predicted(place: PredictedPosition, q: Vector, length: int) -> float:
    """Eq. 9: p = S · sigmoid(v · tanh(W h))."""
    inner = [math.tanh(value) for value in times_vector(matrix(place, "inner.weight"), q)]
    return length / (1 + math.exp(-dot(matrix(place, "outer.weight")[0], inner)))


def local_p(reach: int, seed: int = 6) -> PredictedPosition:
    torch.manual_seed(seed)
    place = PredictedPosition(Q, reach).double()
    nn.init.normal_(place.outer.weight, std=1.5)  # positions spread over the sentence
    return place


def local_p_by_hand(
    name: str, score: Score, place: PredictedPosition, q: Tensor, memory: Tensor, lengths: list[int] | None
) -> tuple[Tensor, Tensor]:
    """Eq. 10: align(h_t, h_s) exp(-(s - p)² / 2σ²) with σ = D / 2, s from p - D to p + D, a softmax over these."""
    queries, sigma = q.tolist(), place.reach / 2

    def middle(b: int, t: int) -> float:
        return predicted(place, queries[b][t], S if lengths is None else lengths[b])

    def window(b: int, t: int, length: int) -> list[int]:
        low, high = middle(b, t) - place.reach, middle(b, t) + place.reach
        return [s for s in range(length) if low <= s <= high]

    def factor(b: int, t: int, s: int) -> float:
        return math.exp(-((s - middle(b, t)) ** 2) / (2 * sigma**2))

    return attention_by_hand(name, score, q, memory, lengths=lengths, window=window, factor=factor)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
@pytest.mark.parametrize("reach", [1, 2, 3, 30])
@pytest.mark.parametrize("name", ["general", "additive"])
def test_local_attention_around_a_predicted_position(name: str, reach: int, lengths: list[int] | None) -> None:
    place, score, (q, memory) = local_p(reach), score_of(name), sides(name)
    attention = SoftAttention(score, place=place)
    keys = attention.project(memory, None if lengths is None else Lengths(torch.tensor(lengths)))
    look = attention.look(q, keys, torch.arange(T))
    weights, context = local_p_by_hand(name, score, place, q, memory, lengths)
    assert torch.allclose(look.weights, weights, **EXACT)
    assert torch.allclose(look.context, context, **EXACT)
    assert torch.equal(look.weights > 0, weights > 0)
    assert (look.weights.sum(dim=-1) < 1).all()


def test_predicted_positions_of_the_test_lie_apart() -> None:
    """Otherwise the one above would say little."""
    place, (q, _) = local_p(2), sides("general")
    found = [predicted(place, query, S) for row in q.tolist() for query in row]
    assert min(found) < 2 and max(found) > S - 3


def test_the_position_is_learned() -> None:
    """Its gradients are those of the loops, by central differences; the edge of the window itself has none."""
    place, score, (q, memory) = local_p(3), score_of("general"), sides("general")
    attention, direction = SoftAttention(score, place=place), random(B, T, K, seed=8)
    keys = attention.project(memory, Lengths(torch.tensor(LENGTHS)))
    (attention.look(q, keys, torch.arange(T)).context * direction).sum().backward()

    def loss() -> float:
        return float((local_p_by_hand("general", score, place, q, memory, LENGTHS)[1] * direction).sum())

    for parameter, spots in ((place.outer.weight, [(0, 0), (0, 4)]), (place.inner.weight, [(0, 5), (3, 2), (6, 1)])):
        for spot in spots:
            with torch.no_grad():
                values = []
                for step in (1e-6, -2e-6):
                    parameter[spot] += step
                    values.append(loss())
                parameter[spot] += 1e-6
            assert parameter.grad is not None and parameter.grad[spot].abs() > 1e-4
            assert parameter.grad[spot].item() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
@pytest.mark.parametrize("reach", [1, 2, 3, 30])
@pytest.mark.parametrize("name", ["general", "dot"])
def test_local_attention_around_the_same_position(name: str, reach: int, lengths: list[int] | None) -> None:
    """p = t, and the last position of the source once the target is longer: thirteen queries look at up to 11."""
    score, (_, memory) = score_of(name), sides(name)
    q = random(B, 13, Q, seed=7)
    attention = SoftAttention(score, place=SamePosition(reach))
    keys = attention.project(memory, None if lengths is None else Lengths(torch.tensor(lengths)))
    look = attention.look(q, keys, torch.arange(13))

    def window(b: int, t: int, length: int) -> list[int]:
        middle = min(t, length - 1)
        return [s for s in range(length) if middle - reach <= s <= middle + reach]

    weights, context = attention_by_hand(name, score, q, memory, lengths=lengths, window=window)
    assert torch.equal(look.weights > 0, weights > 0)
    assert torch.allclose(look.weights, weights, **EXACT)
    assert torch.allclose(look.context, context, **EXACT)
    assert torch.allclose(look.weights.sum(dim=-1), torch.ones(B, 13, dtype=torch.float64), **EXACT)


def test_the_three_places() -> None:
    kinds = [type(make_place(name, Q, 2)) for name in ("global", "local-m", "local-p")]
    assert kinds == [Everywhere, SamePosition, PredictedPosition]


# --- Seen by the recorder


@pytest.mark.parametrize("place", ["global", "local-m", "local-p"])
@pytest.mark.parametrize("name", SCORES)
def test_the_recorder_sees_one_head_whose_weights_rebuild_the_output(name: str, place: str) -> None:
    torch.manual_seed(5)
    attention = SoftAttention(score_of(name), place=make_place(place, Q, 2)).double()
    q, memory = sides(name)
    q.requires_grad_()
    keys = attention.project(memory, Lengths(torch.tensor(LENGTHS)))
    with record(attention) as seen:
        out = attention(q, keys, torch.arange(T))
    look = attention.look(q, keys, torch.arange(T))
    (call,) = seen.calls
    assert isinstance(call, AttentionCall) and (call.path, call.role) == ("", "cross")
    assert call.weights().shape == (B, 1, T, S)
    assert torch.equal(call.weights()[:, 0], look.weights)
    assert torch.equal(call.out[:, 0], out) and torch.equal(call.v[:, 0], memory) and torch.equal(call.q[:, 0], q)
    assert call.check() < 1e-12
    assert torch.equal(call.weights()[:, 0] @ memory, call.out[:, 0])
    assert not any(tensor.requires_grad for tensor in (call.q, call.out, call.weights()))
    sums = call.weights().sum(dim=-1)
    assert call.sums_to_one == (place != "local-p") == bool((sums - 1).abs().max() < 1e-12)
    assert (call.weights() > 0).logical_and(~call.allowed()).sum() == 0


def test_a_look_is_not_seen_until_it_is_told() -> None:
    attention, (q, memory) = SoftAttention(score_of("dot")), sides("dot")
    keys = attention.project(memory, None)
    with record(attention) as seen:
        look = attention.look(q, keys, torch.zeros(1))
        assert seen.calls == []
        attention.report(q, keys, look)
    assert len(seen.calls) == 1 and torch.equal(seen.calls[0].weights()[:, 0], look.weights)
    with record(nn.Linear(2, 3)) as other:
        attention(q, keys, torch.zeros(1))
    assert other.calls == []


# --- At the edges


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_a_window_beyond_the_positions_that_location_knows_sees_nothing(temperature: float) -> None:
    """The unknown positions once shared the weight, and were NaN below temperature 1."""
    attention = SoftAttention(make_score("location", 7, 7, 3), place=SamePosition(1), temperature=temperature)
    memory = attention.project(torch.randn(2, 11, 7), None)
    weights = attention.look(torch.randn(2, 7, 7), memory, torch.arange(7)).weights
    known = torch.arange(7) - 1 < 3  # the window of step t begins at t - 1
    assert (weights[:, ~known] == 0).all() and (weights[:, :, 3:] == 0).all()
    torch.testing.assert_close(weights[:, known].sum(dim=-1), torch.ones(2, int(known.sum())))


def test_the_recorder_knows_the_window() -> None:
    """A cell outside the window was not allowed; a figure must not colour it."""
    attention = SoftAttention(make_score("dot", 5, 5), place=SamePosition(2))
    memory = attention.project(torch.randn(1, 11, 5), None)
    q = torch.randn(1, 7, 5)
    expected = (torch.arange(11) - torch.arange(7)[:, None]).abs() <= 2
    with record(attention) as seen:
        attention(q, memory, torch.arange(7))
        steps = [attention.look(q[:, t : t + 1], memory, torch.tensor([t])) for t in range(7)]
        attention.report(q, memory, Look.stacked(steps))
    for call in seen.calls:
        assert torch.equal(call.allowed()[0, 0], expected)
        assert torch.equal(call.weights()[0, 0] > 0, expected)


def test_a_temperature_of_nothing_is_refused() -> None:
    for temperature in (0.0, -1.0):
        with pytest.raises(ValueError, match="hard=True"), softness(temperature=temperature):
            pass


def test_a_misspelt_place_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean local-p"):
        make_place("locl-p", 5, 2)


def test_steps_under_autocast() -> None:
    """Half-precision products beside a float32 state: the cells once refused to mix them."""
    layers = Recurrent("gru", 5, 7, 1, 0.0)
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = layers.step(layers.gates(torch.randn(3, 5)), layers.zeros(3))
    assert out.dtype == torch.float32 and bool(torch.isfinite(out).all())
