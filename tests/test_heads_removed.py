"""Whether a head matters: losses without it against a model whose output projection ignores the head, and how sure they are."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from regard.attention import Remove
from regard.bundle import Bundle, BundleConfig
from regard.errors import UsageError
from regard.evaluate.bootstrap import ratios
from regard.inspect.heads import heads_of, induction, losses_without, repeated, without_each
from regard.inspect.texts import Material, Texts, prepare, stretches
from regard.models.table import build
from regard.tasks.configure import run_config
from regard.tasks.table import TASKS
from regard.tokens import TokenizerPair, TokensConfig, train_tokenizer

PAIRS = [
    ("a cat saw the sea", "eine katze sah das meer"),
    ("the old king", "der alte könig"),
    ("a king and a cat looked at the moon", "ein könig und eine katze sahen den mond an"),
    ("the sea", "das meer"),
    ("the moon saw the king", "der mond sah den könig"),
]
MODELS: dict[str, dict[str, Any]] = {
    "translate": {"kind": "transformer", "encoder_layers": 2, "decoder_layers": 2},
    "generate": {"kind": "gpt2", "layers": 2, "max_length": 24},
    "fill": {"kind": "bert", "layers": 2, "max_length": 24},
    "classify": {"kind": "bert", "layers": 2, "max_length": 24},
}


def user_of(task: str, model: dict[str, Any] | None = None) -> Any:
    """A model with random weights, large enough to differ, and tokenizers of the texts above."""
    chosen = model or {**MODELS[task], "width": 12, "heads": 3, "feed_forward": 17}
    tokens = TokensConfig(kind="word", min_count=1)
    config = run_config(task, {"model": chosen, "tokens": {"kind": "word", "min_count": 1}})
    texts = [text for pair in PAIRS for text in pair]
    tokenizer = train_tokenizer(texts, tokens, mask=task in ("fill", "classify"))
    torch.manual_seed(3)
    labels = {"labels": 2} if task == "classify" else {}
    vocabulary = (tokenizer.size,) * (2 if task == "translate" else 1)
    built = build(task, config.model, vocabulary, smoothing=0.0, **labels).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(4.0 if parameter.dim() > 1 else 1.0)
    more: dict[str, Any] = {"labels": ("good", "bad"), "longest": 24} if task == "classify" else {}
    bundle = BundleConfig(task=task, tokens=config.tokens, vocabulary=vocabulary, model=config.model, **more)
    return TASKS[task].make_predictor(Bundle(bundle, built, TokenizerPair(tokenizer, tokenizer), {}))


def data_of(task: str) -> list[Any]:
    if task == "translate":
        return list(PAIRS)
    if task == "classify":
        return [(text, label) for text, label in zip([a for a, _ in PAIRS], ["good", "bad"] * 3, strict=False)]
    return [" ".join(text for pair in PAIRS for text in pair)] * 3


def deaf(model: nn.Module, path: str, head: int) -> nn.Module:
    """A copy whose output projection has zeros where this head comes in."""
    other = copy.deepcopy(model)
    attention = other.get_submodule(path)
    with torch.no_grad():
        attention.out.weight[:, head * attention.head_width : (head + 1) * attention.head_width] = 0.0  # type: ignore[operator, union-attr]
    return other


@pytest.mark.parametrize("task", list(MODELS))
def test_removal_is_the_loss_of_a_model_that_does_not_hear_the_head(task: str) -> None:
    user = user_of(task)
    report = heads_of(user, data_of(task), texts=4)
    texts = prepare(user, Material(data_of(task)), 4)
    sums, counts = texts.losses()
    assert report.loss is not None and report.predictions == counts.sum() > 0
    assert report.loss.value == pytest.approx(sums.sum() / counts.sum())
    whole = user.model
    for head in report.heads:
        user.model = deaf(whole, head.path, head.head)
        without = texts.losses()[0]
        user.model = whole
        assert head.removal is not None
        assert head.removal.value == pytest.approx((without - sums).sum() / counts.sum(), abs=1e-5)
    assert any(abs(head.removal.value) > 1e-3 for head in report.heads if head.removal is not None)


@pytest.mark.parametrize("task", list(MODELS))
def test_losses_of_texts_are_those_of_the_model_one_by_one(task: str) -> None:
    """In batches with padding, or each alone: the model's own loss."""
    user = user_of(task)
    texts = prepare(user, Material(data_of(task)), 5)
    sums, counts = texts.losses()
    assert len(texts) == len(sums) > 2
    total = sum(float(user.model(batch).parts["nll"].sum) for _, batch in texts.batches)
    assert float(sums.sum()) == pytest.approx(total, rel=1e-5)
    assert counts.sum() == sum(batch.counts["nll"] for _, batch in texts.batches)
    if task == "translate":
        for number, pair in enumerate(PAIRS):
            assert -sums[number] == pytest.approx(user.score([pair])[0].log_probability, rel=1e-5)


def test_all_heads_of_a_layer_at_once() -> None:
    user = user_of("translate")
    report = heads_of(user, PAIRS, role="cross")
    assert {(each.role, each.layer) for each in report.layers} == {("cross", 0), ("cross", 1)}
    texts = prepare(user, Material(PAIRS), 5)
    sums, counts = texts.losses()
    three = losses_without(texts, [Remove("cross", 1, head=head) for head in range(3)])
    assert report.layers[1].removal.value == pytest.approx((three - sums).sum() / counts.sum(), abs=1e-6)


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_recurrent_attention_is_one_head(kind: str) -> None:
    user = user_of("translate", {"kind": kind, "width": 12, "hidden": 12})
    report = heads_of(user, PAIRS)
    [head] = report.heads
    assert (head.role, head.layer, head.head) == ("cross", 0, 0) and report.layers == ()
    assert head.removal is not None and abs(head.removal.value) > 1e-4


def test_intervals_are_paired_and_over_texts() -> None:
    """All texts the same: no doubt. Otherwise the error is that of a ratio of sums, by the delta method."""
    same = ratios(np.tile([[2.0, 6.0]], (9, 1)), np.full(9, 4.0))
    assert [(each.value, each.error, each.low, each.high) for each in same] == [(0.5, 0, 0.5, 0.5), (1.5, 0, 1.5, 1.5)]
    draw = np.random.default_rng(1)
    counts = draw.integers(3, 30, 400).astype(float)
    tops = 0.3 * counts + draw.normal(0, 2, 400)
    [found] = ratios(tops[:, None], counts)
    value = tops.sum() / counts.sum()
    error = math.sqrt(np.sum((tops - value * counts) ** 2)) / counts.sum()
    assert found.value == pytest.approx(value) and found.error == pytest.approx(error, rel=0.1)
    assert found.low == pytest.approx(value - 1.96 * error, abs=0.3 * error)
    assert found.high == pytest.approx(value + 1.96 * error, abs=0.3 * error)


def test_the_order_and_the_progress_of_removals() -> None:
    user, told = user_of("generate"), []
    texts = prepare(user, Material(data_of("generate")), 3)
    removals = [[Remove("causal", 1, head=2)], [Remove("causal", 0, head=0), Remove("causal", 1, head=2)]]
    found = without_each(texts, removals, lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
    sums, counts = texts.losses()
    for removal, change in zip(removals, found.changes, strict=True):
        assert change.value == pytest.approx((losses_without(texts, removal) - sums).sum() / counts.sum())
    assert found.changes[0].value != found.changes[1].value


def test_an_induction_head_by_hand_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are pinned: head 1.2 looks at the token behind the first occurrence, all others look evenly."""
    user = user_of("generate")
    maps = Texts.maps

    def made(self: Texts, *roles: Any) -> Any:
        for each in maps(self, *roles):
            size = each.allowed.shape[0]
            weights = np.tile(each.allowed / each.allowed.sum(axis=1, keepdims=True), (3, 1, 1))
            if each.layer == 1:
                half = size // 2  # begin, then twice `half` tokens, the last of which is read by none
                for query in range(half + 1, size):
                    weights[2, query] = 0.2 * weights[2, query]
                    weights[2, query, query - half + 1] += 0.8
            yield type(each)(each.text, each.role, each.layer, each.path, weights, each.allowed, each.axes)

    monkeypatch.setattr(Texts, "maps", made)
    found = induction(user)
    assert found.heads == ((1, 2),) and found.holds
    length = found.length
    chance = np.mean([1 / (query + 1) for query in range(length + 1, 2 * length)])
    assert found.chance == pytest.approx(chance)
    assert found.scores[1, 2] == pytest.approx(0.8 + 0.2 * chance)
    assert found.scores[0, 0] == pytest.approx(chance)


def test_the_halves_of_a_repeated_text_against_plain_losses() -> None:
    user = user_of("generate")
    found = induction(user)
    assert not found.holds and len(found.heads) == 1 and len(found.gain_random) == 5
    ordinary = np.setdiff1d(np.arange(user.tokenizer.size), sorted(user.tokenizer.specials.all))
    texts = repeated(user, ordinary, found.length)
    rows = torch.cat([batch.ids for _, batch in texts.batches])
    assert torch.equal(rows[:, 1 : found.length + 1], rows[:, found.length + 1 :])
    assert not set(rows[:, 1:].flatten().tolist()) & user.tokenizer.specials.all
    with torch.no_grad():
        shares = user.model.output(user.model.read(rows[:, :-1])).log_softmax(dim=-1)
    losses = -shares.gather(2, rows[:, 1:, None]).squeeze(2).double().numpy()  # (sequences, 2 * length)
    first, second = losses[:, 1 : found.length].mean(), losses[:, found.length + 1 :].mean()
    assert (found.first.value, found.second.value) == pytest.approx((first, second), rel=1e-5)
    assert found.gain.value == pytest.approx(first - second, abs=1e-5)


def test_stretches_are_read_in_order() -> None:
    user = user_of("generate")
    rows = [np.arange(4, 11), np.arange(5, 12)]
    texts = stretches(user, rows, "made")
    assert [each["text"] for each in texts.ids] == [tuple(range(4, 10)), tuple(range(5, 11))]


def test_one_text_has_no_interval_and_texts_alone_are_no_pairs() -> None:
    """Of one text the bootstrap draws that text only: an error of zero would be sure of everything."""
    found = ratios(np.array([[3.0]]), np.array([2.0]))[0]
    assert found.value == 1.5 and np.isnan([found.error, found.low, found.high]).all()
    assert (found.signed(2), found.interval()) == ("+1.50", "")
    with pytest.raises(UsageError, match="takes each text with what belongs to it"):
        prepare(user_of("translate"), Material(["a man"]), 1)
