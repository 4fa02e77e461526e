"""Worked examples on paper: every number against torch's own modules, plain loops, or the lecture's printed ones."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_walk import check_lines
from torch import Tensor, nn
from torch.nn import functional

from regard.blocks import Experts
from regard.blocks.feed_forward import FeedForward
from regard.cli.main import run
from regard.errors import UsageError
from regard.look.walk import Walk
from regard.look.walk.examples import (
    EXAMPLES,
    convolution,
    counts,
    example_walk,
    file_walk,
    paper_block,
    recurrent,
    routing,
    scores,
)
from regard.models.text_classifiers import tfidf_weights

Captured = pytest.CaptureFixture[str]
DICE = np.random.default_rng(7)
QUERIES = {"three-tokens": 1, "basic": "dog", "experts": "ran", "block": 1, "block-pre": "she"}


def double(rows: Any) -> Tensor:
    return torch.tensor(np.array(rows), dtype=torch.float64)


def same(found: Any, wanted: Any, name: str = "") -> None:
    np.testing.assert_allclose(found, np.asarray(wanted, dtype=np.float64), atol=1e-12, rtol=0, err_msg=name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_line_of_every_example_holds_and_every_name_stands_once(name: str) -> None:
    for query in (None, QUERIES.get(name)):
        found = example_walk(name, query)
        names = [array.name for step in found.steps for array in step.arrays]
        assert len(names) == len(set(names))
        assert check_lines(found, 1e-12) >= (0 if name in ("look-ahead", "orders") else 1)
        assert found.text() and json.loads(found.json())


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - set(QUERIES) - {"three-tokens-scaled"}))
def test_an_example_without_a_query_says_so(name: str) -> None:
    with pytest.raises(UsageError, match="leave out the query"):
        example_walk(name, 0)


def test_examples_are_listed_and_a_wrong_name_is_told(capsys: Captured) -> None:
    assert run(["walk", "--example", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EXAMPLES)
    assert run(["walk", "--example", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lstm"] == EXAMPLES["lstm"].about
    assert run(["walk", "--example", "blok"]) == 2 and "did you mean block?" in capsys.readouterr().err
    assert run(["walk", "--example", "zzz"]) == 2 and "six-scores" in capsys.readouterr().err
    assert run(["walk", "--example", "lstm", "--through", "block"]) == 2 and "--through" in capsys.readouterr().err


# --- Likeness, and counted weights


@pytest.mark.parametrize(("sign", "where"), [(1, "like"), (-1, "unlike")])
def test_basic_self_attention_and_its_sign(sign: int, where: str) -> None:
    found = example_walk("basic")
    x = double(found["X"])
    weights = torch.softmax(sign * x @ x.T, dim=1)
    same(found[f"scores ({where})"], sign * x @ x.T)
    same(found[f"weights ({where})"], weights)
    same(found[f"Y ({where})"], weights @ x)
    one = example_walk("basic", "car")
    same(one[f"weights ({where})"][:, 0], weights[2])
    same(one[f"head output ({where})"][0], (weights @ x)[2])
    near = {"cat": {"cat", "dog"}, "dog": {"cat", "dog"}, "car": {"car", "bus"}, "bus": {"car", "bus"}}
    words = ("cat", "dog", "car", "bus")
    for row, word in enumerate(words):
        most = {words[place] for place in np.argsort(-found[f"weights ({where})"][row])[:2]}
        assert most == (near[word] if sign > 0 else set(words) - near[word])


def test_tfidf_by_both_formulas() -> None:
    found = example_walk("tfidf")
    texts = [text.split() for text in counts.TEXTS]
    words = list(dict.fromkeys(word for text in texts for word in text))
    for row, text in enumerate(texts):
        seen = Counter(text)
        long = {}
        for place, word in enumerate(words):
            n = sum(word in other for other in texts)
            assert found["tf · log(N / n_j)"][row, place] == pytest.approx(seen[word] * math.log(4 / n), abs=1e-12)
            long[word] = seen[word] * (math.log(5 / (1 + n)) + 1)
        size = math.sqrt(sum(each**2 for each in long.values()))
        same(found["smoothed weights"][row], [long[word] / size for word in words])
    assert found["tf · log(N / n_j)"][:, words.index("the")].tolist() == [0, 0, 0, 0]


def test_the_smoothed_formula_is_the_classifiers() -> None:
    found = example_walk("tfidf")
    words = list(dict.fromkeys(word for text in counts.TEXTS for word in text.split()))
    ids = torch.tensor([[words.index(word) + 1 for word in counts.TEXTS[0].split()]])  # 0 is padding
    idf = torch.cat([torch.zeros(1, dtype=torch.float64), double(found["smoothed idf"])[:, 0]])
    _, weights = tfidf_weights(ids, torch.tensor([ids.size(1)]), idf)
    summed = np.zeros(len(words))
    np.add.at(summed, ids[0].numpy() - 1, weights[0].numpy())  # a word that occurs twice has two of them
    same(found["smoothed weights"][0], summed)


# --- Scores


def plain_scores() -> dict[str, list[float]]:
    """All six, by loops and torch's own."""
    s, h = double(scores.S), double(scores.H)
    weight = {name: {letter: double(value) for letter, value in each.items()} for name, each in scores.WEIGHTS.items()}
    w, u, v = (weight["additive"][letter] for letter in "WUv")
    additive = []
    for row in h:
        units = [
            math.tanh(sum(float(s[q] * w[q, a]) for q in range(2)) + sum(float(row[k] * u[k, a]) for k in range(2)))
            for a in range(3)
        ]
        additive.append(sum(float(v[a]) * units[a] for a in range(3)))
    return {
        "cosine": functional.cosine_similarity(s[None], h).tolist(),
        "additive": additive,
        "location": (weight["location"]["W"] @ s).tolist(),
        "general": [float(functional.bilinear(row[None], s[None], weight["general"]["W"][None])) for row in h],
        "dot": [float(torch.dot(s, row)) for row in h],
        "scaled dot": [float(torch.dot(s, row)) / math.sqrt(2) for row in h],
    }


def test_six_scores_side_by_side() -> None:
    found, wanted = example_walk("six-scores"), plain_scores()
    table = double(list(wanted.values())).T
    same(found["all scores"], table)
    same(found["all weights"], table.softmax(dim=0))
    same(found["all contexts"], table.softmax(dim=0).T @ double(scores.H))
    columns = next(array.columns for step in found.steps for array in step.arrays if array.name == "all scores")
    assert columns == tuple(wanted)
    dot, scaled = (found["all weights"][:, columns.index(name)] for name in ("dot", "scaled dot"))
    assert dot.argmax() == scaled.argmax() and dot.max() > scaled.max()  # a temperature moves no maximum
    for name, each in wanted.items():
        suffix = name.replace(" ", "-")
        last = f"scores ({suffix})" if name in ("cosine", "scaled dot") else f"sums ({suffix})"
        same(found[last][:, 0], each)


def test_additive_attention_to_the_context() -> None:
    found, wanted = example_walk("additive"), double(plain_scores()["additive"])
    same(found["sums"][:, 0], wanted)
    same(found["weights"][:, 0], wanted.softmax(dim=0))
    same(found["context"][0], wanted.softmax(dim=0) @ double(scores.H))


# --- Convolution


@pytest.mark.parametrize("setting", convolution.SETTINGS)
def test_convolutions_are_torchs(setting: tuple[int, int, int]) -> None:
    stride, padding, dilation = setting
    found, name = example_walk("convolution"), f"s{stride} p{padding} d{dilation}"
    x, kernel = double(convolution.X)[None, None], double(convolution.KERNEL)[None, None]
    wanted = functional.conv1d(x, kernel, stride=stride, padding=padding, dilation=dilation)[0, 0]
    same(found[f"out ({name})"][:, 0], wanted)
    assert found[f"windows ({name})"][0, 0] == len(wanted)


def test_the_sizes_of_the_lecture() -> None:
    """7, k 3, s 2, p 0 gives 3; p 1 gives 4; k 3, s 1, p 1 keeps the width."""
    sizes = {tuple(row[:5]): row[5] for row in example_walk("convolution")["sizes"].astype(int).tolist()}
    assert sizes[7, 3, 2, 0, 1] == 3 and sizes[7, 3, 2, 1, 1] == 4 and sizes[7, 3, 1, 1, 1] == 7


def test_pooling_and_where_its_gradient_goes() -> None:
    found, x = example_walk("convolution"), double(convolution.X)[None, None].requires_grad_()
    for name, pool in (("max", functional.max_pool1d), ("mean", functional.avg_pool1d)):
        pooled = pool(x, 2)
        same(found[name][:, 0], pooled[0, 0].detach())
        (gradient,) = torch.autograd.grad(pooled.sum(), x)
        same(found[f"gradient of {name}"].flatten(), gradient[0, 0, :6])


def test_own_convolutions_are_torchs_whatever_their_sizes(tmp_path: Path) -> None:
    for width, k, stride, padding, dilation in ((11, 3, 2, 0, 1), (13, 2, 3, 1, 4), (7, 5, 1, 3, 2), (5, 5, 7, 0, 1)):
        x, kernel = DICE.normal(size=width), DICE.normal(size=k)
        values = {
            "x": x.tolist(),
            "kernel": kernel.tolist(),
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
        }
        (tmp_path / "n.json").write_text(json.dumps(values))
        found = file_walk(tmp_path / "n.json")
        wanted = functional.conv1d(
            double(x)[None, None], double(kernel)[None, None], stride=stride, padding=padding, dilation=dilation
        )
        same(found["out"][:, 0], wanted[0, 0])
        assert found["windows"][0, 0] == wanted.size(-1) and check_lines(found)


# --- An LSTM


def cell_of(w_x: Any, w_h: Any, bias: Any) -> nn.LSTMCell:
    w_x, w_h, bias = double(w_x), double(w_h), double(bias)
    cell = nn.LSTMCell(len(w_x), len(w_h), dtype=torch.float64)
    with torch.no_grad():
        for parameter, value in (
            (cell.weight_ih, w_x.T),
            (cell.weight_hh, w_h.T),
            (cell.bias_ih, bias),
            (cell.bias_hh, bias * 0),
        ):
            parameter.copy_(value)
    return cell


def agree_with_cell(found: Walk, cell: nn.LSTMCell, x: Tensor) -> None:
    state = (torch.zeros(1, cell.hidden_size, dtype=torch.float64),) * 2
    for time, row in enumerate(x, start=1):
        with torch.no_grad():
            state = cell(row[None], state)
        same(found[f"h after step {time}"], state[0])
        same(found[f"c after step {time}"], state[1])


def test_the_gates_of_an_lstm_are_torchs() -> None:
    found = example_walk("lstm")
    agree_with_cell(found, cell_of(recurrent.W_X, recurrent.W_H, recurrent.B), double(recurrent.X))
    gates = found["gates of step 1"]
    sums = [[1, 0], [3, 2], [1, 0], [0, 1]]  # by hand: x = (1, 0), no state yet
    wanted = [
        [math.tanh(each) if row == 2 else 1 / (1 + math.exp(-each)) for each in both] for row, both in enumerate(sums)
    ]
    same(gates, wanted)
    forget = found["forget gate over time"]
    same(found["left at the end"][0], forget[1] * forget[2])


def test_own_lstms_are_torchs(tmp_path: Path) -> None:
    x, w_x, w_h, b = (DICE.normal(size=size) for size in ((5, 3), (3, 28), (7, 28), (28,)))
    np.savez(tmp_path / "n.npz", x=x, W_x=w_x, W_h=w_h, b=b)
    found = file_walk(tmp_path / "n.npz")
    agree_with_cell(found, cell_of(w_x, w_h, b), double(x))
    assert check_lines(found) == 20


# --- Experts


def module_of(layer: Any) -> Experts:
    """The same experts as a model has them."""
    up, down = layer.experts[0].up.weight.shape, layer.experts[0].down.weight.shape
    module = Experts(up[0], len(layer.experts), layer.used, lambda: FeedForward(up[0], up[1], bias=False)).double()
    assert down == up[::-1]
    with torch.no_grad():
        module.router.weight.copy_(double(layer.router).T)
        for own, other in zip(module.experts, layer.experts, strict=True):
            own.up.weight.copy_(double(other.up.weight).T)  # type: ignore[union-attr,operator]
            own.down.weight.copy_(double(other.down.weight).T)  # type: ignore[union-attr,operator]
    return module


def test_experts_take_the_tokens_that_a_models_router_sends_them() -> None:
    layer, x = routing.example_experts(), double(routing.X)
    out = module_of(layer)(x[None])[0].detach()
    for place, word in enumerate(routing.WORDS):
        same(example_walk("experts", word)["output"][0], out[place], word)
    found, logits = example_walk("experts"), x @ double(routing.ROUTER)
    values, chosen = logits.topk(2, dim=1)
    for row, (asked, shares) in enumerate(zip(chosen.tolist(), values.softmax(dim=1), strict=True)):
        wanted = dict(zip(asked, shares.tolist(), strict=True))
        same(found["routing shares"][row], [wanted.get(n, 0.0) for n in range(4)])
    load = torch.bincount(chosen.flatten(), minlength=4)
    assert found["tokens"][:, 0].tolist() == load.tolist() == [1, 2, 5, 4]
    balance = 4 * float((load.double() / 12 * logits.softmax(dim=1).mean(dim=0)).sum())
    assert found["balance"][0, 0] == pytest.approx(balance, abs=1e-9)


def test_own_routers_send_each_token_to_one(tmp_path: Path) -> None:
    x, router = DICE.normal(size=(11, 3)), DICE.normal(size=(3, 5))
    (tmp_path / "n.json").write_text(json.dumps({"x": x.tolist(), "router": router.tolist()}))
    found = file_walk(tmp_path / "n.json")
    every = (double(x) @ double(router)).softmax(dim=1)
    best = every.argmax(dim=1)
    wanted = torch.zeros_like(every).scatter(1, best[:, None], every.gather(1, best[:, None]))
    same(found["routing shares"], wanted)
    check_lines(found)


# --- A whole block


def encoder_layer(order: str) -> nn.TransformerEncoderLayer:
    """torch's own block with the numbers of the example."""
    layer = nn.TransformerEncoderLayer(
        4, 2, 6, dropout=0.0, batch_first=True, norm_first=order == "pre", dtype=torch.float64
    )
    projections = torch.cat([double(each).T for each in (paper_block.W_Q, paper_block.W_K, paper_block.W_V)])
    values = {"self_attn.in_proj_weight": projections, "self_attn.out_proj.weight": double(paper_block.W_O).T,
              "linear1.weight": double(paper_block.W_1).T, "linear1.bias": double(paper_block.B_1),
              "linear2.weight": double(paper_block.W_2).T}  # fmt: skip
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(
                values.get(
                    name, torch.ones_like(parameter) if name in ("norm1.weight", "norm2.weight") else parameter * 0
                )
            )
    return layer.eval()


@pytest.mark.parametrize("order", ["post", "pre"])
def test_a_block_on_paper_is_torchs_own(order: str) -> None:
    name = "block" if order == "post" else "block-pre"
    found, x = example_walk(name), double(paper_block.X)
    with torch.no_grad():
        wanted = encoder_layer(order)(x[None])[0]
    last = found["norm behind feed-forward"] if order == "post" else found["x + feed-forward"]
    same(last, wanted)
    for place in range(3):
        one = example_walk(name, place)
        same(one["normed output (feed-forward)" if order == "post" else "residual (feed-forward)"][0], wanted[place])


def test_the_norms_and_zeros_of_a_block_on_paper() -> None:
    found = example_walk("block")
    for what in ("attention", "feed-forward"):
        rows = double(found[f"x + {what}"])
        same(found[f"mean behind {what}"][:, 0], rows.mean(dim=1))
        same(found[f"deviation behind {what}"][:, 0], rows.std(dim=1, unbiased=False))
        same(found[f"norm behind {what}"], functional.layer_norm(rows, (4,), eps=paper_block.EPSILON))
    units = double(found["norm behind attention"]) @ double(paper_block.W_1) + double(paper_block.B_1)
    same(found["ReLU"], units.relu())
    assert found["zeros"][:, 0].tolist() == (units <= 0).sum(dim=1).tolist() == [4, 3, 2]
    text = next(step.text for step in found.steps if step.title == "Feed-forward: ReLU")
    assert "9 zeros of 18 (she: 0, 1, 2, 5; reads: 0, 2, 3; books: 2, 3)" in text


# --- The mask, and orders


def test_what_is_wrong_with_other_masks() -> None:
    found = example_walk("look-ahead")
    whole = double(found["scores"]).softmax(dim=1)
    same(found["softmax, then times 0"], whole.tril())
    assert (found["sum of the row"][:3, 0] < 0.8).all() and found["sum of the row"][3, 0] == pytest.approx(1)
    assert found["weights without itself"][0].tolist() == [0, 0, 0, 0]
    texts = " ".join(step.text for step in found.steps)
    assert "A word may see itself" in texts and "-∞ before the softmax leaves no trace" in texts


def test_all_orders_are_shown() -> None:
    found = example_walk("orders")
    without, told = (found[f"z of “dinosaur” {how} PE"] for how in ("without", "with"))
    assert len(without) == 24 and np.ptp(without, axis=0).max() < 1e-12
    assert len({tuple(row.round(9)) for row in told}) == 24


# --- Wrong numbers


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"x": [1, 2], "kernel": [1, 1, 1]}, "the kernel spans 3 places, and x with its padding has 2"),
        ({"x": [1, 2], "kernel": [1], "stride": 0}, "a whole number from 1 on"),
        ({"x": [1, 2], "kernel": [1], "strides": 1}, "nothing is called 'strides'"),
        ({"kernel": [1]}, "has no x"),
        ({"x": [[1, 2], [3, 4]], "kernel": [1]}, "x is 2 x 2"),
        ({"texts": []}, "no list of texts"),
        ({"texts": [" ".join(f"w{n}" for n in range(41))]}, "at most 40"),
        ({"x": [[1, 2]], "W_x": [[1] * 8], "W_h": [[1] * 8] * 2}, "x is 1 x 2 and W_x is 1 x 8"),
        ({"x": [[1]], "W_x": [[1] * 4], "W_h": [[1] * 8] * 2}, "W_x is 1 x 4 and W_h is 2 x 8"),
        ({"x": [[1]], "W_x": [[1] * 7], "W_h": [[1] * 7]}, "W_h is 1 x 7"),
        ({"x": [[1]], "W_x": [[1] * 4], "W_h": [[1] * 4], "b": [1, 2]}, "b is 1 x 2 and W_h is 1 x 4"),
        ({"x": [[1, 2]], "router": [[1, 2]]}, "x is 1 x 2 and router is 1 x 2"),
        ({"x": [[1, 2]], "router": [[1], [2]], "used": 2}, "router is 2 x 1"),
        ({"s": [1, 2], "h": [[1]], "W": [[1]], "U": [[1]], "v": [1]}, "s is 1 x 2 and W is 1 x 1"),
        ({"s": [1], "h": [[1, 2]], "W": [[1]], "U": [[1]], "v": [1]}, "h is 1 x 2 and U is 1 x 1"),
        ({"s": [1], "h": [[1]], "W": [[1, 2]], "U": [[1]], "v": [1]}, "W is 1 x 2 and U is 1 x 1"),
    ],
)  # fmt: skip
def test_wrong_numbers_of_any_form_are_refused_with_their_shapes(
    values: dict[str, Any], told: str, tmp_path: Path
) -> None:
    (tmp_path / "n.json").write_text(json.dumps(values))
    with pytest.raises(UsageError) as refused:
        file_walk(tmp_path / "n.json")
    assert told in str(refused.value)


def test_own_texts_and_own_additive_scores(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"texts": ["a b b", "b c"]}))
    found = file_walk(tmp_path / "t.json")
    same(found["tf · log(N / n_j)"], [[math.log(2), 0, 0], [0, 0, math.log(2)]])
    sizes = {"s": (3,), "h": (5, 2), "W": (3, 7), "U": (2, 7), "v": (7,)}
    values = {name: DICE.normal(size=size).tolist() for name, size in sizes.items()}
    (tmp_path / "n.json").write_text(json.dumps(values))
    s, h, w, u, v = (double(values[name]) for name in sizes)
    same(file_walk(tmp_path / "n.json")["sums"][:, 0], [float(v @ torch.tanh(s @ w + row @ u)) for row in h])
