"""Relative positions against double loops written from the papers, alone, in heads, and in whole models."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5Attention

from regard.attention import Causal, Lengths, Mask, MultiHead, record
from regard.attention.relative import (
    T5,
    ALiBi,
    Relative,
    Shaw,
    Tree,
    bucket_of,
    make_relative,
    slopes,
    text_distances,
    tree_distances,
)
from regard.data.batch import LabelBatch, PairBatch
from regard.errors import RegardError, UsageError
from regard.models.bert import BertEncoder
from regard.models.classifier import BertClassifier
from regard.models.config import BertConfig, LlamaConfig, TransformerConfig
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from regard.training.muon import hidden_matrices

H, E, V, REACH = 3, 5, 19, 3
D = H * E
KINDS = ("shaw", "t5", "alibi")


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def shaken(module: nn.Module, seed: int = 2) -> Any:
    """Every parameter at random, in float64, so that none can be forgotten."""
    for number, parameter in enumerate(module.double().parameters()):
        parameter.data = 0.5 * drawn(*parameter.shape, seed=seed + number)
    return module.eval()


def made(kind: str, *, causal: bool) -> Relative:
    return shaken(make_relative(kind, H, E, causal=causal, reach=REACH))


# --- The papers, one pair of query and key after another


def shaw_row(table: Tensor, t: int, s: int, causal: bool) -> Tensor:
    """Shaw et al. 2018, eq. 6 and 7: w_clip(s - t, k), tables that begin with -k."""
    way = max(-REACH, min(0 if causal else REACH, s - t))
    return table[way + REACH]


def plain_bias(relative: Relative, causal: bool, head: int, t: int, s: int, q: Tensor) -> float:
    if isinstance(relative, Shaw):
        return float(q @ shaw_row(relative.key_table, t, s, causal)) / math.sqrt(E)
    if isinstance(relative, ALiBi):
        slope = [2**-4, 2**-8, 2**-2][head]  # of three heads: two as of two, then the first of four
        return -slope * abs(t - s)
    assert isinstance(relative, T5)
    way = torch.tensor(s - t)
    bucket = T5Attention._relative_position_bucket(way, bidirectional=not causal, num_buckets=32, max_distance=128)
    return float(relative.table[bucket, head])


def plain_attention(
    relative: Relative, q: Tensor, k: Tensor, v: Tensor, causal: bool, places: list[int], length: int | None = None
) -> Tensor:
    """One row, q, k, v (H, T, E), of which `length` keys are real: what the queries at `places` see, (H, places, E)."""
    out = torch.zeros(H, len(places), E, dtype=torch.float64)
    for head, (number, t) in itertools.product(range(H), enumerate(places)):
        seen = [s for s in range(length or q.size(1)) if not causal or s <= t]
        shift = [plain_bias(relative, causal, head, t, s, q[head, t]) for s in seen]
        scores = [float(q[head, t] @ k[head, s]) / math.sqrt(E) + each for s, each in zip(seen, shift, strict=True)]
        for share, s in zip(torch.tensor(scores, dtype=torch.float64).softmax(dim=0), seen, strict=True):
            more = shaw_row(relative.value_table, t, s, causal) if isinstance(relative, Shaw) else 0.0
            out[head, number] += share * (v[head, s] + more)
    return out


def heads_with(relative: Relative, *, causal: bool, **parts: Any) -> MultiHead:
    module = MultiHead(D, H, role="causal" if causal else "self", **parts)
    shaken(module, seed=40).relative = relative
    return module


def seen_by(module: MultiHead, x: Tensor, mask: Mask | None, distances: Tensor | None = None) -> Tensor:
    """What the heads see, before the output layer joins them: (B, H, T, E)."""
    with record(module) as seen:
        module(x, x, mask, distances)
    assert seen.check() < 1e-12
    return seen.calls[0].out


SIDES = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])
EACH = pytest.mark.parametrize("kind", KINDS)


@SIDES
@EACH
@pytest.mark.parametrize("length", [1, 2, 11])
@torch.no_grad()
def test_heads_see_what_the_paper_says(kind: str, causal: bool, length: int) -> None:
    relative = made(kind, causal=causal)
    module, x = heads_with(relative, causal=causal), drawn(2, length, D)
    found = seen_by(module, x, Causal() if causal else None)
    q, (k, v) = module.queries(x), module.keys_values(x)
    for row in range(2):
        expected = plain_attention(relative, q[row], k[row], v[row], causal, list(range(length)))
        assert torch.allclose(found[row], expected, rtol=0, atol=1e-9)


@SIDES
@EACH
@torch.no_grad()
def test_long_rows_agree_too(kind: str, causal: bool) -> None:
    """Above 128 x 128 scores torch's fused kernel computes; beyond 128 all distances share T5's last bucket."""
    relative, places = made(kind, causal=causal), [0, 63, 150]
    module, x = heads_with(relative, causal=causal), 0.5 * drawn(1, 151, D)
    found = seen_by(module, x, Causal() if causal else None)
    q, (k, v) = module.queries(x), module.keys_values(x)
    expected = plain_attention(relative, q[0], k[0], v[0], causal, places)
    assert torch.allclose(found[0][:, places], expected, rtol=0, atol=1e-9)


@EACH
@torch.no_grad()
def test_padding_is_not_seen_and_a_row_of_padding_is_finite(kind: str) -> None:
    relative = made(kind, causal=False)
    module, x = heads_with(relative, causal=False), drawn(3, 7, D)
    lengths = torch.tensor([7, 4, 0])
    found = seen_by(module, x, Lengths(lengths))
    q, (k, v) = module.queries(x), module.keys_values(x)
    expected = plain_attention(relative, q[1], k[1], v[1], False, [0, 1, 2, 3], length=4)
    assert torch.allclose(found[1, :, :4], expected, rtol=0, atol=1e-9)
    assert torch.allclose(found[1, :, :4], seen_by(module, x[1:2, :4], None)[0], rtol=0, atol=1e-12)
    assert bool((found[2] == 0).all())


@SIDES
@EACH
def test_gradients_are_those_of_finite_differences_and_never_nan(kind: str, causal: bool) -> None:
    relative = made(kind, causal=causal)
    module, x = heads_with(relative, causal=causal), drawn(2, 6, D).requires_grad_()
    mask: Mask = Causal() if causal else Lengths(torch.tensor([6, 3]))
    names, parameters = zip(*relative.named_parameters(), strict=True) if kind != "alibi" else ((), ())

    def out(x: Tensor, *values: Tensor) -> Tensor:
        named = {f"relative.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(module, named, (x, x, mask))[0]

    assert torch.autograd.gradcheck(out, (x, *parameters), fast_mode=True)
    module(x, x, Lengths(torch.tensor([2, 0]))).sum().backward()
    assert all(bool(each.grad.isfinite().all()) for each in (x, *parameters) if each.grad is not None)


@EACH
@pytest.mark.parametrize("parts", [{}, {"groups": 1}, {"band": 3}], ids=["plain", "grouped", "banded"])
@torch.no_grad()
def test_steps_and_stretches_see_what_the_whole_sees(kind: str, parts: dict[str, Any]) -> None:
    module, x = heads_with(made(kind, causal=True), causal=True, **parts), drawn(2, 9, D)
    whole, past = module(x, x, Causal()), module.start(2, x)
    first, second = module.read(x[:, :2], past), module.read(x[:, 2:5], past)
    steps = [module.step(x[:, t : t + 1], past) for t in range(5, 9)]
    assert torch.allclose(torch.cat([first, second, *steps], dim=1), whole, rtol=0, atol=1e-12)


@EACH
@torch.no_grad()
def test_other_precisions_do_not_crash_and_stay_near(kind: str) -> None:
    module, x = heads_with(made(kind, causal=True), causal=True), 0.5 * drawn(2, 133, D)
    exact = module(x, x, Causal())
    assert torch.allclose(module.float()(x.float(), x.float(), Causal()).double(), exact, rtol=0, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        x = x.float()
        for part in (x, x[:, :9]):
            wrong = module(part, part, Causal()).double() - exact[:, : part.size(1)]
            assert float(wrong.abs().mean()) < 0.02 * float(exact.abs().mean())


# --- Each kind's own


@SIDES
def test_buckets_are_those_of_transformers(causal: bool) -> None:
    ways = torch.arange(-1031, 1031)
    found = [bucket_of(int(way), causal=causal) for way in ways]
    theirs = T5Attention._relative_position_bucket(ways, bidirectional=not causal, num_buckets=32, max_distance=128)
    assert found == theirs.tolist()
    assert set(found) == set(range(32)) - ({16} if not causal else set())  # no distance is to the right and zero


def test_slopes_are_the_papers() -> None:
    """Press et al. 2022, section 3: of 8 heads 1/2, 1/4 .. 1/256, of 16 these and between them their means' powers."""
    assert slopes(8) == [2.0**-power for power in range(1, 9)]
    assert slopes(16) == pytest.approx([2 ** (-power / 2) for power in range(1, 17)], rel=1e-15)
    assert slopes(1) == [2.0**-8]
    assert slopes(12) == pytest.approx([*slopes(8), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], rel=1e-15)
    assert not list(ALiBi(7).state_dict())


def test_tables_have_no_rows_that_nothing_reads_and_are_shared_by_heads() -> None:
    assert Shaw(E, REACH, causal=True).key_table.shape == (REACH + 1, E)
    assert Shaw(E, REACH, causal=False).value_table.shape == (2 * REACH + 1, E)
    assert Tree(E, REACH).key_table.shape == (REACH + 1, E)
    assert T5(H, causal=True).table.shape == (32, H)


def test_all_blocks_ask_the_same_positions_which_muon_leaves_alone() -> None:
    for kind in ("shaw", "t5"):
        model = GPT(LlamaConfig(**GPT_SIZES, **placed(kind)), V)
        tables = [name for name, _ in model.named_parameters() if "relative" in name]
        assert tables and all(name.startswith("blocks.0.") for name in tables)
        assert not set(tables) & set(hidden_matrices(model))


def test_an_unknown_kind_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean alibi"):
        make_relative("alibbi", H, E, causal=True, reach=3)


# --- Trees


def walked(heads: list[int]) -> list[list[int]]:
    """Distances by walking from each token along edges in both directions."""
    near: list[set[int]] = [set() for _ in heads]
    for child, parent in enumerate(heads):
        near[child].add(parent)
        near[parent].add(child)
    found = []
    for start in range(len(heads)):
        far, edge, steps = [len(heads)] * len(heads), {start}, 0
        while edge:
            for token in edge:
                far[token] = min(far[token], steps)
            edge = {other for token in edge for other in near[token] if far[other] == len(heads)}
            steps += 1
        found.append(far)
    return found


def random_tree(size: int, seed: int) -> list[int]:
    """Parents of a tree with its root anywhere; in long ones some tokens hang in long chains."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(size, generator=generator).tolist()
    heads = [0] * size
    for number, token in enumerate(order):
        near = max(0, number - 1 - int(torch.randint(3, (1,), generator=generator)))
        heads[token] = order[near] if number else token
    return heads


@pytest.mark.parametrize("size", [1, 2, 3, 8, 17, 64])
def test_distances_are_the_steps_of_a_walk(size: int) -> None:
    rows = [random_tree(size, seed) for seed in range(5)]
    assert tree_distances(torch.tensor(rows)).tolist() == [walked(row) for row in rows]


def test_a_chain_a_star_a_forest_and_padding() -> None:
    chain = [0, *range(12)]
    assert tree_distances(torch.tensor([chain])).tolist() == [walked(chain)]
    assert tree_distances(torch.tensor([[2, 2, 2, 2]]))[0, 0].tolist() == [0, 2, 1, 2]
    forest = [0, 0, 2, 2, 4]  # two trees and a token alone: five apart, farther than any two of a tree of five
    assert tree_distances(torch.tensor([forest]))[0, 1].tolist() == [1, 0, 5, 5, 5]
    padded = tree_distances(torch.tensor([[1, 1, 1, 0, 0]]))  # padding hangs at any token
    assert padded[0, :3, :3].tolist() == walked([1, 1, 1])


def test_heads_that_are_no_tree_are_refused_in_words() -> None:
    with pytest.raises(RegardError, match="row 1 go round in a circle"):
        tree_distances(torch.tensor([[0, 0, 0], [0, 2, 1]]))
    with pytest.raises(RegardError, match="token 0 or 3 of a row of 3"):
        tree_distances(torch.tensor([[0, 3, 1]]))


@torch.no_grad()
def test_tree_positions_see_what_the_paper_says() -> None:
    relative = made("tree", causal=False)
    module, x = heads_with(relative, causal=False), drawn(2, 9, D)
    rows = [random_tree(9, 3), random_tree(9, 4)]
    found = seen_by(module, x, None, tree_distances(torch.tensor(rows)))
    q, (k, v) = module.queries(x), module.keys_values(x)
    assert isinstance(relative, Tree)
    for row, head, t in itertools.product(range(2), range(H), range(9)):
        far = [min(REACH, each) for each in walked(rows[row])[t]]
        keys = k[row, head] + relative.key_table[far]  # (S, E)
        shares = (keys @ q[row, head, t] / math.sqrt(E)).softmax(dim=0)
        expected = shares @ (v[row, head] + relative.value_table[far])
        assert torch.allclose(found[row, head, t], expected, rtol=0, atol=1e-9)


def test_without_a_tree_the_person_is_told_what_to_give() -> None:
    module, x = heads_with(made("tree", causal=False), causal=False), drawn(1, 4, D)
    with pytest.raises(UsageError, match='JSONL rows with a list "heads"'):
        module(x, x, None)
    with pytest.raises(ValueError, match="distances for"):
        module(x, x, None, torch.zeros(1, 3, 3, dtype=torch.long))


# --- Whole models

GPT_SIZES: dict[str, Any] = {"layers": 3, "width": D, "heads": H, "feed_forward": 11, "max_length": 8}


def placed(kind: str) -> dict[str, Any]:
    """Positions of a kind, as a configuration has them."""
    return {"positions": kind} | ({"reach": REACH} if kind in ("shaw", "tree") else {})


EVERY = pytest.mark.parametrize("kind", [*KINDS, "none", "sinusoidal"])


def ids_of(rows: int, length: int, seed: int = 5) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(seed))


@EVERY
@pytest.mark.parametrize("changes", [{}, {"groups": 1, "band": 4}], ids=["plain", "grouped and banded"])
@torch.no_grad()
def test_gpt_writes_step_by_step_what_it_reads_at_once_beyond_its_training(kind: str, changes: dict[str, Any]) -> None:
    model: GPT = shaken(GPT(LlamaConfig(**GPT_SIZES, **placed(kind), **changes), V))
    ids = ids_of(2, 13)
    whole = model.output(model.read(ids))
    logits, state = model.start(None, ids[:, :4])
    found = [logits]
    for t in range(4, 13):
        logits, state = model.step(ids[:, t : t + 1], state)
        found.append(logits)
    assert torch.allclose(torch.cat(found, dim=1), whole[:, 3:], rtol=0, atol=1e-10)
    assert torch.allclose(model.output(model.read(ids[1:])), whole[1:], rtol=0, atol=1e-10)


@EACH
@torch.no_grad()
def test_reordered_hypotheses_go_on_from_their_own_past(kind: str) -> None:
    model: GPT = shaken(GPT(LlamaConfig(**GPT_SIZES, **placed(kind)), V))
    ids = ids_of(3, 6)
    _, state = model.start(None, ids[:, :5])
    chosen = torch.tensor([2, 0])
    logits, _ = model.step(ids[chosen][:, 5:], model.keep(state, chosen))
    assert torch.allclose(logits, model.output(model.read(ids[chosen]))[:, -1:], rtol=0, atol=1e-10)


@EACH
@torch.no_grad()
def test_bert_reads_a_padded_batch_as_one_by_one(kind: str) -> None:
    model: BertEncoder = shaken(BertEncoder(BertConfig(**GPT_SIZES, **placed(kind)), V))
    ids, lengths = ids_of(3, 13), torch.tensor([13, 5, 1])
    together = model(ids, lengths).vectors
    for row, length in enumerate(lengths.tolist()):
        alone = model(ids[row : row + 1, :length], lengths[row : row + 1]).vectors
        assert torch.allclose(together[row, :length], alone[0], rtol=0, atol=1e-10)


@EACH
@torch.no_grad()
def test_the_transformer_translates_a_batch_as_one_by_one_and_step_by_step(kind: str) -> None:
    sizes: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2, "width": D, "heads": H, "feed_forward": 11}
    model: Transformer = shaken(Transformer(TransformerConfig(**sizes, **placed(kind)), V, V))
    source, lengths, target = ids_of(2, 7), torch.tensor([7, 4]), ids_of(2, 10, seed=6)
    memory = model.encode(source, lengths)
    whole = model.output(model.decode(target[:, :-1], memory))
    logits, state = model.start((source, lengths), target[:, :1])
    found = [logits]
    for t in range(1, 9):
        logits, state = model.step(target[:, t : t + 1], state)
        found.append(logits)
    assert torch.allclose(torch.cat(found, dim=1), whole, rtol=0, atol=1e-10)
    alone = model.output(model.decode(target[1:, :-1], model.encode(source[1:, :4], lengths[1:])))
    assert torch.allclose(alone, whole[1:], rtol=0, atol=1e-10)


def tree_batch(heads: Tensor | None = None) -> LabelBatch:
    batch = LabelBatch(ids_of(2, 9), torch.tensor([9, 6]), torch.tensor([0, 1]), 13)
    return replace(batch, parents=heads)


def tree_classifier() -> BertClassifier:
    return shaken(BertClassifier(BertConfig(**GPT_SIZES, **placed("tree")), V, 2))


@torch.no_grad()
def test_a_classifier_reads_the_tree_of_its_batch() -> None:
    """The tree matters; a row by itself gives the same; without trees the person is told."""
    model = tree_classifier()
    heads = torch.tensor([random_tree(9, 1), [*random_tree(6, 2), 6, 7, 8]])
    batch, other = tree_batch(heads), tree_batch(torch.tensor([random_tree(9, 7), heads[1].tolist()]))
    found = model.features(batch)
    assert not torch.allclose(found[0], model.features(other)[0], rtol=0, atol=1e-6)
    assert torch.allclose(found[1], model.features(other)[1], rtol=0, atol=1e-12)
    alone = LabelBatch(batch.ids[1:, :6], batch.lengths[1:], batch.labels[1:], 5)
    assert torch.allclose(model.features(replace(alone, parents=heads[1:, :6]))[0], found[1], rtol=0, atol=1e-10)
    with pytest.raises(UsageError, match="tree positions need the tree"):
        model.features(tree_batch())


@torch.no_grad()
def test_without_positions_in_scores_a_tree_changes_nothing() -> None:
    model: BertClassifier = shaken(BertClassifier(BertConfig(**GPT_SIZES | {"max_length": 9}), V, 2))
    heads = torch.tensor([random_tree(9, 1), random_tree(9, 2)])
    assert torch.equal(model.features(tree_batch(heads)), model.features(tree_batch()))


@EACH
def test_what_is_behind_has_no_part_in_the_gradient(kind: str) -> None:
    """Other padding, the same gradient of every parameter but that of the padding's own embedding."""
    model: Transformer = Transformer(
        TransformerConfig(encoder_layers=1, decoder_layers=1, width=D, heads=H, feed_forward=7, positions=kind), V, V
    )
    shaken(model)
    source, target = ids_of(2, 7), ids_of(2, 5, seed=6)
    found = []
    for filler in (3, 11):
        source[1, 4:] = filler
        model.zero_grad()
        model(PairBatch(source.clone(), torch.tensor([7, 4]), target, torch.tensor([4, 4]), 8)).parts[
            "loss"
        ].sum.backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], rtol=0, atol=1e-10), name


def test_text_distances_count_from_where_the_queries_start() -> None:
    assert text_distances(2, 4, 2, "cpu").tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]
