"""Translation by one causal stack: against a plain loop over joined sequences, step by step, and as any other translator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from test_recorder import make_translator
from torch import Tensor

from regard.attention import record
from regard.data.batch import PairBatch, pair_batch
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.inspect.heads import heads_of
from regard.models.config import DecoderOnlyConfig
from regard.models.table import build
from regard.tasks.translate.predictor import Translator
from regard.tokens import BEGIN, END, PAD
from regard.tokens.words import is_special
from regard.verify import verify

SIZES: dict[str, Any] = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 7, "dropout": 0.0}
SOURCES, TARGETS = [[4, 5, 6, 7, 8], [9, 4], [11]], [[5, 6, 7], [8, 9, 10, 11, 4], [7]]
PREFIX = pytest.mark.parametrize("prefix", [False, True], ids=["causal", "prefix"])


def make(**changes: Any) -> Any:
    torch.manual_seed(0)
    return build("translate", DecoderOnlyConfig(**SIZES | changes), (17, 17)).double().eval()


def batch() -> PairBatch:
    sources = [np.array([*each, END]) for each in SOURCES]
    return pair_batch(sources, [np.array([BEGIN, *each, END]) for each in TARGETS], PAD)


def by_hand(model: Any, source: list[int], target: list[int]) -> Tensor:
    """One pair, without padding: joined, embedded, and each block head after head."""
    joined = torch.tensor([*source, END]), torch.tensor([BEGIN, *target])
    length, scale = len(source) + 1, math.sqrt(model.config.width)
    x = torch.cat([model.source.table(joined[0]), model.target.table(joined[1])]) * scale
    x = model.places(x[None])[0]
    count = len(x)
    allowed = torch.ones(count, count).tril().bool()
    if model.config.prefix:
        allowed[:, :length] = True
    for block in model.decoder:
        y, heads = block.around_attention.norm(x), block.attention
        q, (k, v) = heads.query(y), heads.key_value(y).chunk(2, dim=-1)
        seen = []
        for head in range(heads.heads):
            mine = slice(head * heads.head_width, (head + 1) * heads.head_width)
            scores = q[:, mine] @ k[:, mine].T / math.sqrt(heads.head_width)
            seen.append(scores.masked_fill(~allowed, -math.inf).softmax(dim=-1) @ v[:, mine])
        x = x + heads.out(torch.cat(seen, dim=-1))
        x = x + block.feed_forward(block.around_feed_forward.norm(x))
    return model.decoder_norm(x)[length:]


@PREFIX
@torch.no_grad()
def test_a_batch_is_each_pair_joined_by_itself(prefix: bool) -> None:
    model = make(prefix=prefix)
    found = model.hidden(batch())
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        assert torch.allclose(found[row, : len(target) + 1], by_hand(model, source, target), atol=1e-10)


@torch.no_grad()
def test_the_loss_is_of_the_target_alone() -> None:
    model = make()
    part = model(batch()).parts["nll"]
    total = 0.0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        logits = by_hand(model, source, target) @ model.output.weight.T
        total -= float(logits.log_softmax(dim=-1).gather(1, torch.tensor([*target, END])[:, None]).sum())
    assert part.count == sum(len(target) + 1 for target in TARGETS)
    assert float(part.sum) == pytest.approx(total, abs=1e-9)


@PREFIX
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "t5", "shaw", "alibi", "none"])
@torch.no_grad()
def test_step_by_step_is_the_whole(positions: str, prefix: bool) -> None:
    model, pairs = make(positions=positions, prefix=prefix, max_length=64, heads=2), batch()
    whole = model.logits(pairs)
    logits, state = model.start(pairs.source_parts, pairs.target[:, :1])
    for t in range(pairs.target.size(1) - 1):
        for row, length in enumerate(pairs.target_lengths.tolist()):
            if t < length:
                assert torch.allclose(logits[row, 0], whole[row, t], atol=1e-9), (row, t)
        logits, state = model.step(pairs.target[:, t + 1 : t + 2], state)


@torch.no_grad()
def test_hypotheses_and_sources_are_reordered_with_their_padding() -> None:
    model, pairs = make(), batch()
    _, state = model.start(pairs.source_parts, pairs.target[:, :2])
    state = model.reorder(state, torch.tensor([[0, 0], [0, 0], [0, 0]]))
    state = model.keep(state, torch.tensor([2, 1]))
    found, _ = model.step(torch.tensor([[5, 6], [7, 8]]), state)
    for row, source in enumerate((2, 1)):
        for column, token in enumerate(([5, 6], [7, 8])[row]):
            read = [int(pairs.target[source, 1]), token]
            wanted = by_hand(model, SOURCES[source], read)[-1] @ model.output.weight.T
            assert torch.allclose(found[row, column], wanted, atol=1e-9)


@PREFIX
@torch.no_grad()
def test_a_search_finds_the_best_of_all_short_translations(prefix: bool) -> None:
    """Brute force over all translations of up to two tokens; three sources of different lengths in one batch."""
    model, pairs = make(prefix=prefix), batch()
    options = DecodeConfig(beam=100, n_best=1, length_penalty="none")
    ids = torch.full((3, 1), BEGIN)
    found = generate(model, pairs.source_parts, ids, end=END, limits=[2, 2, 2], options=options, forbidden=(PAD, BEGIN))
    words = [token for token in range(17) if token not in (PAD, BEGIN, END)]
    for row, source in enumerate(SOURCES):
        scores: dict[tuple[int, ...], float] = {}
        for text in [(), *((a,) for a in words)]:
            chances = (by_hand(model, source, list(text)) @ model.output.weight.T).log_softmax(dim=-1)
            read = sum(float(chances[place, token]) for place, token in enumerate(text))
            scores[text] = read + float(chances[len(text), END])
        best = max(scores, key=lambda text: scores[text])
        whole = [each for each in found[row] if each.finished]
        assert whole and whole[0].ids == best
        assert whole[0].log_probability == pytest.approx(scores[best], abs=1e-9)


def test_it_keeps_every_invariant() -> None:  # without `prefix`: tests/test_kinds.py
    bundle = make_translator("decoder-only", **SIZES, prefix=True)
    checks = verify(bundle)
    assert [f"{check.name}: {check.detail}" for check in checks if check.passed is False] == []
    assert sum(check.passed is True for check in checks) >= 8


def test_what_it_saw_is_one_map_over_source_and_target() -> None:
    translator = Translator(make_translator("decoder-only", **SIZES))
    reading = translator.read("ein Mann", "a man")
    seen = reading.look()
    assert {call.role for call in seen.calls} == {"causal"} and seen.check() < 1e-5
    rows, columns = seen.labelled(seen.calls[0])
    assert rows == columns == reading.labels["source"] + reading.labels["prefix"]
    assert translator.attention("ein Mann", reading.ids["target"][:-1]).role == "causal"
    with record(translator.model) as steps:  # two sources of different lengths: padding has no label and no weight
        translator.translate(["ein Mann", "ein Mann und noch ein Mann"], beam=2)
    call = steps.calls[0]
    short = call.row(0)
    _, keys = steps.labelled(call, 0)
    hidden = [place for place, label in enumerate(keys) if not label]
    assert hidden and float(call.weights()[short][:, :, hidden].abs().max()) == 0
    assert [label for label in keys if label][: len(reading.labels["source"])] == list(reading.labels["source"])


def test_its_heads_are_measured_over_both_texts() -> None:
    translator = Translator(make_translator("decoder-only", **SIZES))
    report = heads_of(translator, [("ein Mann", "a man"), ("ein alter Mann", "an old man")], removal=False)
    assert [(head.role, head.layer, head.head) for head in report.heads] == [
        ("causal", layer, head) for layer in range(2) for head in range(3)
    ]
    queries = report.heads[0].measures["itself"].queries
    readings = [translator.read(*pair) for pair in (("ein Mann", "a man"), ("ein alter Mann", "an old man"))]
    labels = [label for reading in readings for label in reading.labels["text"][1:]]  # the first sees but itself
    assert queries == sum(not is_special(label) for label in labels)
