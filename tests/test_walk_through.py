"""Walks through a block, a whole model and the loop of decoding, of random weights in float64.

Oracles: the model's own forward pass, torch's own functions for each part of a block, the decoder's own search.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_walk import (
    BLOCKS,
    LANGUAGE,
    LLAMA,
    OTHER,
    PAIR,
    TEXT,
    Oracle,
    agree,
    begun,
    check_lines,
    framed,
    predictor_of,
)
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, relu, rms_norm, silu

from regard.attention import Causal
from regard.cli import main
from regard.cli.walk import THROUGH
from regard.errors import UsageError
from regard.inspect.walk import WAYS, walk
from regard.inspect.walk_decoding import log_probabilities, rules_of
from regard.look.walk import Walk
from regard.look.walk.search import search
from regard.tasks.run import RunResult

Captured = pytest.CaptureFixture[str]
EXPERTS = {**BLOCKS, "kind": "gpt2", "experts": 5}


# --- One block: every array has an oracle


def normed(norm: nn.Module, x: Tensor) -> Tensor:
    if isinstance(norm, nn.LayerNorm):
        return layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
    return rms_norm(x, x.shape[-1:], norm.weight, norm.eps)  # type: ignore[arg-type]


def norm_oracle(norm: Any, x: Tensor, of: str) -> dict[str, Any]:
    """The arrays of a norm of one vector."""
    found = {"ε": norm.eps, "w of the norm": norm.weight}
    if isinstance(norm, nn.LayerNorm):
        found |= {"b of the norm": norm.bias, f"mean of {of}": x.mean(), f"variance of {of}": x.var(unbiased=False)}
        return {**found, f"deviation of {of}": x.std(unbiased=False)}
    return {**found, f"mean square of {of}": x.square().mean()}


def feed_forward_oracle(layer: Any, x: Tensor) -> dict[str, Any]:
    """The arrays of a feed-forward layer of one vector, by torch's functions."""
    found: dict[str, Any] = {"in": x}
    if hasattr(layer, "gate_up"):
        (w_g, w_u), down = layer.gate_up.weight.chunk(2), layer.down
        gate, up = x @ w_g.T, x @ w_u.T
        found |= {
            "W_g": w_g.T,
            "W_u": w_u.T,
            "units": gate,
            "up": up,
            "activated": silu(gate),
            "gated": silu(gate) * up,
        }
        return {
            **found,
            "below zero": (gate < 0).sum(),
            "W_d": down.weight.T,
            "output": linear(silu(gate) * up, down.weight),
        }
    units = linear(x, layer.up.weight, layer.up.bias)
    active = layer.activation(units)
    hand = {True: relu(units), False: gelu(units, approximate="tanh")}[bool((active >= 0).all())]
    torch.testing.assert_close(active, hand, atol=1e-3, rtol=0)  # one of those two, exact or by tanh
    found |= {"W_1": layer.up.weight.T, "b_1": layer.up.bias, "units": units, "activated": active}
    found |= {"zeros": (active == 0).sum(), "below zero": (units < 0).sum()}
    found |= {"W_2": layer.down.weight.T, "b_2": layer.down.bias}
    return {**found, "output": linear(active, layer.down.weight, layer.down.bias)}


def experts_oracle(layer: Any, x: Tensor, query: int) -> dict[str, Any]:
    """The arrays of a mixture for all tokens x (T, D), and of the experts of one of them."""
    logits = linear(x, layer.router.weight)
    values, chosen = logits.topk(layer.used, dim=1)
    every = logits.softmax(dim=1)
    own = every.gather(1, chosen) if layer.used == 1 else values.softmax(dim=1)
    load = torch.bincount(chosen.flatten(), minlength=logits.size(1))
    found: dict[str, Any] = {"W_r": layer.router.weight.T, "routing scores": logits, "tokens": load}
    found |= {"routing shares": torch.zeros_like(logits).scatter(1, chosen, own), "mean probability": every.mean(dim=0)}
    found["balance"] = len(load) * (load.double() / chosen.numel() * every.mean(dim=0)).sum()
    outs = []
    for number in chosen[query].tolist():
        part = feed_forward_oracle(layer.experts[number], x[query])
        found |= {f"{name} (expert {number})": value for name, value in part.items()}
        outs.append(part["output"])
    found |= {"experts' results": torch.stack(outs), "their shares": own[query]}
    return {**found, "output": (own[query, :, None] * torch.stack(outs)).sum(dim=0)}


@torch.no_grad()
def block_oracle(
    predictor: Any, found: Walk, embedding: Any, ids: list[int], stack: Any, **known: Any
) -> dict[str, Any]:
    """All arrays of a block: of its attentions by `Oracle`, of the rest by torch's functions."""
    query, role, memory = found.about["query"], found.about["role"], known.get("memory")
    block = stack[found.about["layer"]]
    arrays: dict[str, Any] = {}
    for part in ["self"] if role == "self" else ["causal"] if block.cross is None else ["causal", "cross"]:
        suffix = " (cross)" if part == "cross" else ""
        every = [array for step in found.steps for array in step.arrays]
        head = next(array.marked for array in every if array.name == f"heads{suffix}")
        seen_so = replace(found, about={**found.about, "role": part, "head": head})  # type: ignore[typeddict-item]
        oracle = Oracle(predictor, seen_so, embedding, ids, stack, **known)
        arrays = {f"{name}{suffix}": value for name, value in oracle.all().items()} | arrays
    oracle = Oracle(predictor, found, embedding, ids, stack, **known)
    mask = None if role == "self" else Causal()
    x = oracle.enter(oracle.embed())
    x = block.around_attention(x, lambda y: block.attention(y, y, mask, None))
    if block.cross is not None:
        x = block.around_cross(x, lambda y: block.cross(y, memory, None))
    rest = _rest(block, x[0], query)
    return {**arrays, **{f"{name} (feed-forward)": value for name, value in rest.items()}}


def _rest(block: Any, x: Tensor, query: int) -> dict[str, Any]:
    """The arrays behind attention."""
    around, found = block.around_feed_forward, dict[str, Any]()
    inside = normed(around.norm, x) if around.order == "pre" else x
    if around.order == "pre":
        found |= {"x": x[query], "normed x": inside[query], **norm_oracle(around.norm, x[query], "x")}
    layer = block.feed_forward
    found |= (
        experts_oracle(layer, inside, query) if hasattr(layer, "router") else feed_forward_oracle(layer, inside[query])
    )
    left = x[query] + found["output"] if around.residual else found["output"]
    found["residual"] = left
    if around.order == "post":
        found |= {**norm_oracle(around.norm, left, "the sum"), "normed output": normed(around.norm, left)}
    return found


def check_block(found: Walk, arrays: dict[str, Any], block_out: Tensor) -> None:
    agree(found, arrays)
    assert check_lines(found) > 8 and found.difference < 1e-9
    assert set(found.differences) == {"embedded", "all tokens", "what leaves the block"}
    np.testing.assert_allclose(found["what leaves the block, twice"][0], block_out, atol=1e-9)


NORMS = [
    {"norm": "pre", "positions": "sinusoidal"},
    {"norm": "post", "positions": "learned"},
    {"norm": "none", "positions": "none", "residual": False},
]


@pytest.mark.parametrize("role", ["cross", "self", "causal"])
@pytest.mark.parametrize("more", NORMS, ids=["pre", "post", "plain"])
def test_every_number_of_a_translators_block(role: str, more: dict[str, Any]) -> None:
    predictor = predictor_of("translate", {**PAIR, **more})
    found = walk(predictor, TEXT, OTHER, role=role, layer=1, head=2, query=3, through="block")
    model, source = predictor.model, [*predictor.tokenizers.source.encode(TEXT), 2]
    target = [1, *predictor.tokenizers.target.encode(OTHER)]
    memory = model.encode(torch.tensor([source]), torch.tensor([len(source)])).vectors.detach()
    known = {"scaled": True, "positions": more["positions"]}
    if role == "self":
        arrays = block_oracle(predictor, found, model.source, source, model.encoder, **known)
        out = model.encoder[:2](model.source(torch.tensor([source])), None)
    else:
        arrays = block_oracle(predictor, found, model.target, target, model.decoder, memory=memory, **known)
        out = model.decoder[:2](model.target(torch.tensor([target])), Causal(), memory)
    arrays["source embeddings"] = model.source.table.weight[source].detach()
    check_block(found, arrays, out[0, 3])
    titles = [step.title for step in found.steps]
    assert any(title.startswith("To the source") for title in titles) == (role != "self")


WAYS_OF_LANGUAGE = {**LANGUAGE, "experts": (EXPERTS, {"positions": "learned"}),
                    "one expert": ({**EXPERTS, "experts_used": 1}, {"positions": "learned"}),
                    "relu": ({**BLOCKS, "kind": "gpt2", "activation": "relu"}, {"positions": "learned"})}  # fmt: skip


@pytest.mark.parametrize("name", WAYS_OF_LANGUAGE)
def test_every_number_of_a_language_models_block(name: str) -> None:
    settings, known = WAYS_OF_LANGUAGE[name]
    predictor = predictor_of("generate", settings)
    found = walk(predictor, TEXT, layer=1, query=4, through="block")
    ids, model = begun(predictor, TEXT), predictor.model
    arrays = block_oracle(predictor, found, model.tokens, ids, model.blocks, **known)
    check_block(found, arrays, model.blocks[:2](model.tokens(torch.tensor([ids])), Causal())[0, 4])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_number_of_a_block_that_sees_both_sides(norm: str) -> None:
    predictor = predictor_of("fill", {**BLOCKS, "kind": "bert", "norm": norm})
    found, ids, encoder = (
        walk(predictor, TEXT, query="cat", through="block"),
        framed(predictor, TEXT),
        predictor.model.encoder,
    )
    known = {"positions": "learned", "normed": norm == "post", "segments": [0] * len(ids)}
    arrays = block_oracle(predictor, found, encoder.tokens, ids, encoder.blocks, **known)
    check_block(found, arrays, encoder.blocks(encoder.tokens(torch.tensor([ids])), None)[0, found.about["query"]])


def test_zeros_of_relu_are_counted_and_named() -> None:
    predictor = predictor_of("translate", PAIR)
    found = walk(predictor, TEXT, OTHER, through="block", query=1)
    active = found["activated (feed-forward)"][0]
    zeros = np.flatnonzero(active == 0)
    assert found["zeros (feed-forward)"][0, 0] == len(zeros) > 0
    text = next(step.text for step in found.steps if step.title.endswith("ReLU"))
    assert f"{len(zeros)} of 11 units" in text and ", ".join(map(str, zeros)) in text


# --- The whole model


def model_logits(predictor: Any, text: str, query: int) -> Tensor:
    model = predictor.model
    return model.output(model.read(torch.tensor([begun(predictor, text)])))[0, query].detach()


def check_model(found: Walk, logits: Tensor, labels: Any) -> None:
    np.testing.assert_allclose(found["logits"][0], logits, atol=1e-9)
    shares, best = logits.softmax(dim=-1).topk(min(10, len(logits)))
    np.testing.assert_allclose(found["probability"][:, 0], shares, atol=1e-9)
    rows = next(array.rows for step in found.steps for array in step.arrays if array.name == "probability")
    assert rows == tuple(labels(best.tolist()))
    assert found.difference < 1e-9 and check_lines(found) >= 2
    names = [array.name for step in found.steps for array in step.arrays]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", WAYS_OF_LANGUAGE)
def test_a_language_model_to_its_next_words(name: str) -> None:
    predictor = predictor_of("generate", WAYS_OF_LANGUAGE[name][0])
    found = walk(predictor, TEXT, query=5, through="model")
    check_model(found, model_logits(predictor, TEXT, 5), predictor.tokenizer.labels)
    assert {"block 0", "block 2", "last vectors", "logits"} <= set(found.differences)


@pytest.mark.parametrize("more", NORMS, ids=["pre", "post", "plain"])
def test_a_translator_to_its_next_words(more: dict[str, Any]) -> None:
    predictor = predictor_of("translate", {**PAIR, **more})
    found = walk(predictor, TEXT, OTHER, query=2, through="model")
    reading = predictor.read(TEXT, OTHER)
    check_model(found, predictor.model.output(reading.run())[0, 2].detach(), predictor.tokenizers.target.labels)
    assert {"encoder block 1", "decoder block 2", "last vectors"} <= set(found.differences)
    seen = reading.look()
    for role, name in (("causal", "weights"), ("cross", "weights to the source")):
        for number, call in enumerate(seen.only(role)):
            np.testing.assert_allclose(found[f"decoder block {number}: {name}"], call.weights()[0, :, 2], atol=1e-9)
    kept: list[Tensor] = []
    block = predictor.model.decoder[1]
    parts = (block.attention, block.cross, block.feed_forward)
    hooks = [each.register_forward_hook(lambda _, __, out: kept.append(out[0])) for each in parts]
    reading.run()
    for hook in hooks:
        hook.remove()
    for what, each in zip(("attention", "to the source", "feed-forward"), kept, strict=True):
        np.testing.assert_allclose(found[f"decoder block 1: {what}"][:, 0], each.norm(dim=1).detach(), atol=1e-9)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_model_of_gaps_to_what_fills_them(norm: str) -> None:
    predictor = predictor_of("fill", {**BLOCKS, "kind": "bert", "norm": norm})
    text = "the old [MASK] saw a man"
    found = walk(predictor, text, query=3, through="model")
    vectors = predictor.read(text).run()
    check_model(found, predictor.model.gaps(vectors)[0, 3].detach(), predictor.tokenizer.labels)


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "bert"},
        {"kind": "bert", "pooler": True},
        {"kind": "bert", "labels_from": "mean"},
        {"kind": "bert", "labels_from": "max"},
        {"kind": "gpt1"},
    ],
)
def test_a_classifier_to_its_labels(model: dict[str, Any]) -> None:
    predictor = predictor_of("classify", {**BLOCKS, **model})
    found = walk(predictor, TEXT, query=2, through="model")
    check_model(found, predictor.read(TEXT).run()[0].detach(), lambda ids: [("a", "b", "c")[each] for each in ids])
    shares = predictor.classify(TEXT).probabilities
    assert found["probability"][0, 0] == pytest.approx(max(shares.values()), abs=1e-9)


def test_in_single_precision_the_whole_model_differs_by_rounding() -> None:
    found = walk(predictor_of("generate", LLAMA, torch.float32), TEXT, through="model")
    assert 0 < found.difference < 1e-4
    assert found.differences["logits"] < 1e-4 and found.differences["last vectors"] < 1e-5


# --- The loop of decoding


WRITERS = {
    "transformer": ("translate", PAIR),
    "bahdanau": ("translate", {"kind": "bahdanau", "width": 6, "hidden": 10, "dropout": 0.0}),
    "gpt2": ("generate", {**BLOCKS, "kind": "gpt2"}),
    "lstm": ("generate", {"kind": "lstm", "width": 8, "hidden": 9}),
}
RULES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 3},
    {"beam": 5, "length_penalty": "power", "alpha": 1.0},
    {"beam": 4, "stopping": "early", "min_length": 2},
    {"beam": 2, "length_penalty": "none", "max_length": 1},
]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("options", RULES, ids=[f"beam {each['beam']}" for each in RULES])
def test_the_loop_finds_what_the_decoder_finds(name: str, options: dict[str, Any]) -> None:
    predictor = predictor_of(*WRITERS[name])
    over = {"max_length": 7, "sample": False, **options, "n_best": options["beam"]}
    start = predictor.search_start(TEXT, over)
    found, decoded = search(lambda ids: log_probabilities(predictor, start, ids), rules_of(start)), start.found()
    assert [each.ids for each in found.best] == [each.ids for each in decoded]
    for mine, theirs in zip(found.best, decoded, strict=True):
        assert mine.score == pytest.approx(theirs.score, abs=1e-9)
        assert mine.total == pytest.approx(theirs.log_probability, abs=1e-9)


def test_every_round_of_a_beam_is_the_decoders() -> None:
    predictor = predictor_of(*WRITERS["transformer"])
    over = {"beam": 3, "n_best": 3, "sample": False, "max_length": 6}
    start = predictor.search_start(TEXT, over)
    found = search(lambda ids: log_probabilities(predictor, start, ids), rules_of(start))
    rounds: list[tuple[list[tuple[int, ...]], list[float]]] = []

    def watch(live: Any) -> None:
        real = np.isfinite(live.totals[0])
        rounds.append(([tuple(ids) for ids in live.ids[0][real].tolist()], live.totals[0][real].tolist()))

    predictor.search_one(TEXT, start.options, watch=watch)
    mine = [
        ([each.ids for each in move.hypotheses], [each.total for each in move.hypotheses]) for move in found.moves[1:]
    ]
    assert [ids for ids, _ in mine] == [ids for ids, _ in rounds]
    for (_, own), (_, theirs) in zip(mine, rounds, strict=True):
        assert own == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("beam", [None, 3])
def test_decoding_as_a_walk(name: str, beam: int | None) -> None:
    predictor = predictor_of(*WRITERS[name])
    found = walk(predictor, TEXT, through="decoding", beam=beam, max_length=5)
    assert found.differences["texts that differ"] == 0 and found.differences["score"] < 1e-9
    assert check_lines(found) == len(found.steps) - 1
    first = found.steps[0].arrays[0]
    start = predictor.search_start(TEXT, {"beam": 1, "sample": False, "max_length": 5})
    wanted = (start.vector(()) @ predictor.output_table().mT).log_softmax(dim=-1).sort(descending=True)
    np.testing.assert_allclose(first.values[:4, 1], wanted.values[:4], atol=1e-9)
    assert list(first.rows[:4]) == list(start.tokenizer.labels(wanted.indices[:4].tolist()))
    np.testing.assert_allclose(first.values[:, 0], np.exp(first.values[:, 1]), atol=1e-12)
    for number, step in enumerate(found.steps[:-2], start=1):
        assert step.title.startswith(f"Token {number}: ") and len(step.arrays) <= (beam or 1)
        fates = [remark for array in step.arrays for remark in array.remarks]
        kept = any(fate.startswith(("goes on", "ends")) for fate in fates)
        assert kept != ("could score better" in step.text)  # a last round in which nothing can win any more
    totals = found["ended"]
    np.testing.assert_allclose(totals[:, 3], totals[:, 0] / ((5 + totals[:, 1]) / 6) ** 0.6, atol=1e-9)


def test_what_was_written_has_the_probability_that_teacher_forcing_gives() -> None:
    predictor = predictor_of(*WRITERS["transformer"])
    found = walk(predictor, TEXT, through="decoding", beam=3, max_length=6)
    ids = predictor.search_start(TEXT, {"beam": 3, "max_length": 6}).found()[0].ids
    reading = predictor.read_ids(predictor.tokenizers.source.encode(TEXT), ids)
    assert found["ended"][0, 0] == pytest.approx(float(reading.log_probabilities().sum()), abs=1e-9)


# --- What a person asks for


@pytest.mark.parametrize(
    ("task", "model", "given", "message"),
    [
        ("generate", {**BLOCKS, "kind": "gpt2"}, {"through": "blok"}, "no walk goes through blok; did you mean block"),
        ("generate", {**BLOCKS, "kind": "gpt2"}, {"through": "model", "layer": 1}, "has no layer to choose"),
        ("generate", {**BLOCKS, "kind": "gpt2"}, {"beam": 2}, "a walk through a head has no beam to choose"),
        ("translate", PAIR, {"through": "decoding", "second": "x"}, "leave out the second text"),
        ("generate", {**BLOCKS, "kind": "gpt2"}, {"through": "decoding", "max_length": 50}, "beyond the 29 that"),
        ("fill", {**BLOCKS, "kind": "bert"}, {"through": "decoding"}, "has no loop of decoding"),
        ("translate", {"kind": "bahdanau", "width": 6, "hidden": 10}, {"through": "block"}, "has no blocks"),
        ("classify", {"kind": "self-attention", "width": 12, "heads": 3}, {"through": "block"}, "stands alone"),
        ("classify", {"kind": "self-attention", "width": 12, "heads": 3}, {"through": "model"}, "no stack of blocks"),
        ("generate", {**BLOCKS, "kind": "gpt2", "reversible": True}, {"through": "model"}, "two streams"),
        ("generate", {**BLOCKS, "kind": "gpt2", "attention": "performer"}, {"through": "block"}, "does not score every key"),
    ],
)  # fmt: skip
def test_what_has_no_such_walk_says_so(task: str, model: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        walk(predictor_of(task, model), TEXT, **given)


def test_the_command_line_goes_through_a_run(capsys: Captured, tiny_run: RunResult, tmp_path: Path) -> None:
    run = str(tiny_run.folder)
    assert tuple(WAYS) == THROUGH
    words = ["walk", "3 May 1999", "-m", run, "--through"]
    assert main.run([*words, "block", "--json"]) == 0
    assert max(json.loads(capsys.readouterr().out)["differences"].values()) < 1e-5
    assert main.run([*words, "model"]) == 0
    out = capsys.readouterr().out
    assert "likeliest, as the next token" in out and "Recomputed = the model's output" in out
    assert main.run([*words, "decoding", "--beam", "2", "-o", str(tmp_path / "loop.html")]) == 0
    assert "goes on as 1" in (tmp_path / "loop.html").read_text(encoding="utf-8")
    assert main.run([*words, "heads"]) == 2 and "did you mean head?" in capsys.readouterr().err
    assert main.run(["walk", "--toy", "--through", "block"]) == 2 and "--example block" in capsys.readouterr().err


def test_a_forced_end_counts_at_its_own_probability() -> None:
    predictor = predictor_of(*WRITERS["gpt2"])
    start = predictor.search_start(TEXT, {"beam": 1, "sample": False, "min_length": 1, "max_length": 1})
    found = search(lambda ids: log_probabilities(predictor, start, ids), rules_of(start))
    first, last = found.moves
    (token,), end = found.best[0].ids, start.ends[0]
    assert not first.forced and last.forced and first.next[0, token] + last.next[0, end] == found.best[0].total
    assert start.found()[0].log_probability == pytest.approx(found.best[0].total, abs=1e-9)
