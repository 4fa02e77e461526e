"""The ladder of text classifiers against plain loops and torch's modules, text by text; what counted; fine-tuning."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard
from regard.blocks import balance_terms
from regard.data.batch import LabelBatch, label_batch
from regard.errors import RegardError
from regard.models.bert import Bert
from regard.models.classifier import BertClassifier, Classifier, GPTClassifier
from regard.models.config import (
    KINDS_OF,
    AdditiveConfig,
    BertConfig,
    GPT1Config,
    GPT2Config,
    GPT3Config,
    LlamaConfig,
    PlainAttentionConfig,
    SelfAttentionConfig,
    TfidfConfig,
    TokenWeightsConfig,
)
from regard.models.gpt import GPT
from regard.models.table import MODELS
from regard.models.text_classifiers import Additive, PlainAttention, SelfAttention, Tfidf, TokenWeights
from regard.noise import noise

V, LABELS, SPECIALS = 29, 5, 4
CLASSIFIERS = MODELS["classify"]
GPT_SIZES: dict[str, Any] = {"layers": 2, "width": 18, "heads": 3, "feed_forward": 11, "max_length": 17, "dropout": 0.2}
BERT = BertConfig(**GPT_SIZES | {"width": 15, "pooler": True})
CONFIGS: dict[str, Any] = {
    "tfidf": TfidfConfig(dropout=0.2),
    "token-weights": TokenWeightsConfig(width=7),
    "plain-attention": PlainAttentionConfig(width=7),
    "additive": AdditiveConfig(width=7, hidden=10),
    "self-attention": SelfAttentionConfig(width=15, heads=3),
    "bert": BERT,
    "gpt1": GPT1Config(**GPT_SIZES),
    "gpt2": GPT2Config(**GPT_SIZES),
    "gpt3": GPT3Config(**GPT_SIZES, band=3),
    "llama": LlamaConfig(**GPT_SIZES, groups=1),
}
TUNED = ("bert", "gpt1", "gpt2", "gpt3", "llama")
EVERY = pytest.mark.parametrize("kind", CONFIGS)


def build(kind: str, config: Any = None, smoothing: float = 0.0) -> Any:
    """A classifier in float64 whose vectors are random too, so that none can be forgotten; not training."""
    torch.manual_seed(7)
    model = CLASSIFIERS[kind](config or CONFIGS[kind], V, LABELS, smoothing).double().eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, mean=0.2, std=0.5)
    return model


def texts(*lengths: int, seed: int = 3) -> list[np.ndarray]:
    """Begin, words of which some come twice, end."""
    random = np.random.default_rng(seed)
    return [np.array([1, *random.integers(SPECIALS, SPECIALS + 9, length - 2), 2]) for length in lengths]


TEXTS = texts(11, 5, 8)
TARGETS = [3, 0, 4]


def batch_of(which: list[np.ndarray], fill: int = 0) -> LabelBatch:
    halves = [(np.arange(len(text)) >= 4).astype(np.int64) for text in which]
    return label_batch(which, TARGETS[: len(which)], fill, halves)


BATCH = batch_of(TEXTS)


def looked(model: Classifier, batch: LabelBatch) -> Tensor:
    with torch.no_grad(), regard.record(model) as seen:
        model.logits(batch)
    assert seen.check() < 1e-12
    return model.looked(seen, batch.lengths)


def assert_same(ours: Tensor, wanted: Tensor | list[Any]) -> None:
    torch.testing.assert_close(ours, torch.as_tensor(wanted, dtype=torch.float64), rtol=1e-10, atol=1e-10)


def softmax(scores: list[float]) -> list[float]:
    exponents = [math.exp(score) for score in scores]
    return [each / sum(exponents) for each in exponents]


def assert_same_one_by_one(model: Any, by_hand: Any) -> None:
    """`by_hand(text)` gives a text's vector and what each token counted for it."""
    weights = looked(model, BATCH)
    for row, text in enumerate(TEXTS):
        vector, counted = by_hand(torch.from_numpy(text))
        assert_same(model.features(BATCH)[row], vector)
        assert_same(weights[row, : len(text)], counted)
        assert not weights[row, len(text) :].any()


# --- Each rung by hand


def idf_by_hand(word: int, among: list[np.ndarray]) -> float:
    """scikit-learn's default: log((1 + N) / (1 + n)) + 1; a special id has none."""
    return 0.0 if word < SPECIALS else math.log((1 + len(among)) / (1 + sum(word in text for text in among))) + 1


def test_tfidf_is_logistic_regression_on_the_published_formula() -> None:
    model, among = build("tfidf"), texts(7, 9, 13, 6, 5, seed=11)
    model.fit(among)
    table = model.words.weight

    def by_hand(text: Tensor) -> tuple[Tensor, list[float]]:
        counts = Counter(int(word) for word in text if word >= SPECIALS)
        dense = torch.zeros(V, dtype=torch.float64)
        for word, count in counts.items():
            dense[word] = count * idf_by_hand(word, among)
        dense /= dense.norm()
        idfs = [idf_by_hand(int(word), among) for word in text]
        return dense @ table, [idf / sum(idfs) for idf in idfs]

    assert any(count > 1 for text in TEXTS for count in Counter(text.tolist()).values())
    assert_same_one_by_one(model, by_hand)
    assert_same(model.logits(BATCH), model.features(BATCH) + model.head.bias)
    assert len(list(model.parameters())) == 3 and not model.idf.requires_grad


def test_idf_of_three_texts_worked_out() -> None:
    """Word 4 is in all of 3 texts, 5 in two, 6 in one (twice), 7 in none: log(4 / 4, 4 / 3, 4 / 2, 4 / 1) + 1."""
    model = Tfidf(TfidfConfig(), 8, 2).double()
    model.fit([np.array([1, 4, 5, 2]), np.array([4, 6, 6]), np.array([5, 4, 3])])
    assert_same(model.idf, [0, 0, 0, 0, 1, 1.2876820724517808, 1.6931471805599454, 2.386294361119891])


def test_a_text_of_special_tokens_alone_counts_nothing() -> None:
    model = build("tfidf")
    batch = batch_of([np.array([1, 2]), TEXTS[1]])
    assert_same(model.logits(batch)[0], model.head.bias)
    assert not looked(model, batch)[0].any()


def test_token_weights_by_hand() -> None:
    model: TokenWeights = build("token-weights")

    def by_hand(text: Tensor) -> tuple[Tensor, list[float]]:
        weights = softmax([model.token_scores[word].item() for word in text])
        rows = [weight * model.tokens.table.weight[word] for weight, word in zip(weights, text, strict=True)]
        return torch.stack(rows).sum(dim=0), weights

    assert_same_one_by_one(model, by_hand)


def test_plain_attention_by_hand() -> None:
    model: PlainAttention = build("plain-attention")

    def by_hand(text: Tensor) -> tuple[Tensor, Tensor]:
        x = [model.tokens.table.weight[word] for word in text]
        weights = torch.tensor([softmax([(x_i @ x_j).item() for x_j in x]) for x_i in x], dtype=torch.float64)
        y = [sum(weights[i, j] * x[j] for j in range(len(x))) for i in range(len(x))]
        return sum(y) / len(y), sum(weights) / len(x)

    assert_same_one_by_one(model, by_hand)


def test_plain_attention_begins_far_from_saturation() -> None:
    torch.manual_seed(1)
    model = PlainAttention(PlainAttentionConfig(width=128), 1009, LABELS)
    x = model.tokens.table.weight.detach()
    products = x @ x.T
    assert abs(float(products.diagonal().mean()) - 1) < 0.05
    assert float((products - torch.diag(products.diagonal())).abs().max()) < 0.6


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_additive_pooling_by_hand(cell: str) -> None:
    model: Additive = build("additive", AdditiveConfig(width=7, hidden=10, cell=cell))
    layer = model.encoder.layers[0]
    twin = (nn.GRU if cell == "gru" else nn.LSTM)(7, 5, bidirectional=True).double()
    names = {"weight_ih": "weight_x", "weight_hh": "weight_h", "bias_ih": "bias_x", "bias_hh": "bias_h"}
    for suffix, part in (("", layer.forth), ("_reverse", layer.back)):
        for theirs, ours in names.items():
            getattr(twin, f"{theirs}_l0{suffix}").data = getattr(part, ours).data
    score: Any = model.pool.attention.score

    def by_hand(text: Tensor) -> tuple[Tensor, list[float]]:
        """Yang et al. 2016, eq. 5 to 7."""
        h = twin(model.tokens.table.weight[text] * math.sqrt(7))[0]
        b = score.query.weight @ model.pool.query
        u = [torch.tanh(score.key.weight @ h_i + b) for h_i in h]
        weights = softmax([(score.value.weight[0] @ u_i).item() for u_i in u])
        return torch.stack([weight * h_i for weight, h_i in zip(weights, h, strict=True)]).sum(dim=0), weights

    assert_same_one_by_one(model, by_hand)


def test_self_attention_against_torch() -> None:
    model: SelfAttention = build("self-attention")
    ours, twin = model.attention, nn.MultiheadAttention(15, 3, batch_first=True).double()
    twin.in_proj_weight.data = torch.cat([ours.query.weight, ours.key_value.weight]).data
    twin.in_proj_bias.data = torch.cat([ours.query.bias, ours.key_value.bias]).data
    twin.out_proj.load_state_dict(ours.out.state_dict())

    def place(t: int) -> Tensor:
        """Vaswani et al. 2017, section 3.5."""
        angles = [t / 10000 ** ((i - i % 2) / 15) for i in range(15)]
        waves = [math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)]
        return torch.tensor(waves, dtype=torch.float64)

    def by_hand(text: Tensor) -> tuple[Tensor, Tensor]:
        rows = [model.tokens.table.weight[word] * math.sqrt(15) + place(t) for t, word in enumerate(text)]
        x = torch.stack(rows)[None]
        out, weights = twin(x, x, x)  # weights are the mean of the heads
        return out[0].mean(dim=0), weights[0].mean(dim=0)

    assert_same_one_by_one(model, by_hand)


def rolled_out(model: Any, text: Tensor) -> Tensor:
    """Abnar & Zuidema 2020 for two blocks, all paths added: from above to below, through attention or beside it."""
    with torch.no_grad(), regard.record(model) as seen:
        model.logits(batch_of([text.numpy()]))
    first, second = (call.weights()[0].mean(dim=0) for call in seen.calls)
    size = len(text)
    paths = torch.zeros(size, size, dtype=torch.float64)
    for top in range(size):
        for below in range(size):
            through = sum(second[top, i] * first[i, below] for i in range(size))
            paths[top, below] = (through + first[top, below] + second[top, below] + float(top == below)) / 4
    return paths


def test_bert_reads_the_first_token() -> None:
    model: BertClassifier = build("bert")

    def by_hand(text: Tensor) -> tuple[Tensor, Tensor]:
        segments = torch.tensor([[int(place >= 4) for place in range(len(text))]])
        vectors = model.encoder(text[None], torch.tensor([len(text)]), segments).vectors
        pooler: Any = model.encoder.pooler
        return torch.tanh(pooler.weight @ vectors[0, 0] + pooler.bias), rolled_out(model, text)[0]

    assert_same_one_by_one(model, by_hand)


def test_bert_reads_the_mean_of_all_tokens_if_asked() -> None:
    model: BertClassifier = build("bert", BERT.model_copy(update={"labels_from": "mean"}))
    vectors = model.encoder(BATCH.ids, BATCH.lengths, BATCH.segments).vectors
    by_hand = [row[:length].sum(dim=0) / length for row, length in zip(vectors, BATCH.lengths.tolist(), strict=True)]
    assert_same(model.features(BATCH), torch.stack(by_hand))
    shares = looked(model, BATCH)
    assert torch.allclose(shares.sum(dim=1), torch.ones_like(shares[:, 0]))
    assert not torch.allclose(shares, looked(build("bert"), BATCH))


def test_bert_without_a_pooler() -> None:
    model: BertClassifier = build("bert", BERT.model_copy(update={"pooler": False}))
    vectors = model.encoder(BATCH.ids, BATCH.lengths, BATCH.segments).vectors
    assert_same(model.logits(BATCH), vectors[:, 0] @ model.head.weight.T + model.head.bias)


@pytest.mark.parametrize("kind", ["gpt1", "gpt2", "gpt3", "llama"])
def test_gpt_reads_the_last_token(kind: str) -> None:
    model: GPTClassifier = build(kind)
    assert_same_one_by_one(model, lambda text: (model.body.read(text[None])[0, -1], rolled_out(model, text)[-1]))


# --- What holds of all


def test_every_kind_that_classifies_is_here() -> None:
    assert set(CLASSIFIERS) == set(KINDS_OF["classify"]) == set(CONFIGS)


@EVERY
def test_padding_never_matters_and_neither_do_neighbours(kind: str) -> None:
    model = build(kind)
    logits, counted = model.logits(BATCH), looked(model, BATCH)
    other = batch_of(TEXTS, fill=9)  # a word that the texts may hold
    assert_same(model.logits(other), logits)
    assert_same(looked(model, other), counted)
    for row, text in enumerate(TEXTS):
        alone = batch_of([text])
        assert_same(model.logits(alone)[0], logits[row])
        assert_same(looked(model, alone)[0], counted[row, : len(text)])
    assert_same(counted.sum(dim=1), [1.0, 1.0, 1.0])
    assert (counted >= 0).all()


@EVERY
def test_the_parts_of_the_loss(kind: str) -> None:
    model = build(kind, smoothing=0.3)
    parts = model(BATCH).parts
    wanted = [-row.log_softmax(dim=-1) for row in model.logits(BATCH)]
    plain = sum(row[label] for row, label in zip(wanted, TARGETS, strict=True))
    assert_same(parts["loss"].sum, plain)
    assert_same(parts["nll"].sum, plain)
    right = sum(int(row.argmin()) == label for row, label in zip(wanted, TARGETS, strict=True))
    assert parts["correct"].sum.is_floating_point() and float(parts["correct"].sum) == right
    assert [parts[name].weight for name in ("loss", "nll", "correct")] == [1, 0, 0]
    assert {name: part.count for name, part in parts.items()} == {"loss": 3, "nll": 3, "correct": 3}
    assert parts.keys() <= BATCH.counts.keys()


@EVERY
def test_labels_are_smoothed_in_training_only(kind: str) -> None:
    """Szegedy et al. 2016: 1 - ε on the label and ε spread over all."""
    config = CONFIGS[kind].model_copy(update={"dropout": 0.0})
    model = build(kind, config, smoothing=0.3).train()
    rows = [-row.log_softmax(dim=-1) for row in model.logits(BATCH)]
    parts = model(BATCH).parts
    assert_same(
        parts["loss"].sum, sum(0.7 * row[label] + 0.3 * row.mean() for row, label in zip(rows, TARGETS, strict=True))
    )
    assert_same(parts["nll"].sum, sum(row[label] for row, label in zip(rows, TARGETS, strict=True)))


def test_correct_counts_exactly_in_half_precision() -> None:
    """bfloat16 has no 257."""
    model = build("token-weights").bfloat16()
    logits = torch.eye(LABELS, dtype=torch.bfloat16).repeat(60, 1)
    parts = model.label_parts(logits, torch.arange(LABELS).repeat(60).where(torch.arange(300) >= 43, LABELS - 1))
    assert float(parts["correct"].sum) == 257 + sum(i % LABELS == LABELS - 1 for i in range(43))


@EVERY
def test_dropout_before_the_head_in_training(kind: str) -> None:
    model = build(kind)
    features = torch.ones(211, 31)
    model.head = nn.Identity()
    assert torch.equal(model.scores(features), features)
    with noise(1):
        dropped = model.train().scores(features)
    rate = 0.0 if kind == "tfidf" else CONFIGS[kind].dropout
    assert abs(float((dropped == 0).double().mean()) - rate) < 0.03
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - rate)] if rate else [1], rel=0.01)


def test_dropout_of_tfidf_is_of_words() -> None:
    model = build("tfidf").train()
    with noise(1), regard.record(model) as seen:
        model.logits(batch_of(texts(400, 400, 400)))
    weights = seen.calls[0].weights()[:, 0, 0, 1:-1]
    assert abs(float((weights == 0).double().mean()) - 0.2) < 0.04
    assert seen.check() < 1e-12


def test_nothing_recorded_is_told() -> None:
    model = build("additive")
    with regard.record(model) as seen:
        pass
    with pytest.raises(ValueError, match="call `logits` once"):
        model.looked(seen, BATCH.lengths)


# --- Learning: one token decides


def toy(rows: int, seed: int) -> tuple[LabelBatch, Tensor]:
    """Texts of random words in which one of two words tells the label, and where it stands."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 12, rows)
    labels, places = random.integers(0, 2, rows), random.integers(1, lengths - 1)
    found = [np.array([1, *random.integers(6, V, length - 2), 2]) for length in lengths]
    for text, label, place in zip(found, labels, places, strict=True):
        text[place] = 4 + label
    return label_batch(found, labels, 0), torch.from_numpy(places)


def taught(kind: str) -> tuple[Any, list[float]]:
    """A classifier of the toy's two labels after a few dozen steps, and its losses on the way."""
    torch.manual_seed(3)
    config = CONFIGS[kind].model_copy(update={"dropout": 0.0})
    model: Any = CLASSIFIERS[kind](config, V, 2)
    rate = 0.01 if kind in TUNED else 0.06
    optimiser = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=rate)
    losses = []
    for step in range(50):
        batch, _ = toy(32, step)
        loss = model(batch).objective(batch.counts)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return model.double().eval(), losses


@EVERY
def test_learns_which_token_decides(kind: str) -> None:
    model, losses = taught(kind)
    batch, places = toy(101, seed=1000)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:2])
    assert float(model(batch).parts["correct"].sum) >= 100
    if kind in ("token-weights", "additive", "self-attention"):
        assert float(looked(model, batch)[torch.arange(101), places].mean()) > 0.5


# --- Fine-tuning


def trained(kind: str) -> Any:
    """A language model of the size of the classifier, with other weights."""
    torch.manual_seed(23)
    model = (Bert if kind == "bert" else GPT)(CONFIGS[kind], V).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_bert_takes_the_encoder_of_a_trained_one() -> None:
    body, model = trained("bert"), build("bert")
    head = model.head.weight.clone()
    model.load_body(tensors_of(body))
    vectors = body.encoder(BATCH.ids, BATCH.lengths, BATCH.segments).vectors
    assert_same(model.features(BATCH), body.encoder.pooled(vectors))
    assert torch.equal(model.head.weight, head)


def test_bert_leaves_the_heads_of_pretraining() -> None:
    config = BERT.model_copy(update={"next_sentence": True})
    given = tensors_of(Bert(config, V))
    assert {name.split(".")[0] for name in given} == {"encoder", "head", "follows"}
    build("bert").load_body(given)


@pytest.mark.parametrize("kind", ["gpt1", "gpt2", "gpt3", "llama"])
def test_gpt_takes_a_trained_one(kind: str) -> None:
    body, model = trained(kind), build(kind)
    head = model.head.weight.clone()
    model.load_body(tensors_of(body))
    assert_same(model.body.read(BATCH.ids), body.read(BATCH.ids))
    assert torch.equal(model.head.weight, head)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_body_that_does_not_fit_is_refused_whole(kind: str) -> None:
    model, given = build(kind), tensors_of(trained(kind))
    before = {name: tensor.clone() for name, tensor in tensors_of(model).items()}
    prefix = "encoder." if kind == "bert" else ""
    missing = {name: tensor for name, tensor in given.items() if name != f"{prefix}blocks.1.feed_forward.up.bias"}
    with pytest.raises(
        RegardError, match=r"has no .*blocks\.1\.feed_forward\.up\.bias; give this model the tokenizer and"
    ):
        model.load_body(missing)
    with pytest.raises(RegardError, match=r"has .*blocks\.2\.x \(and 1 more\), for which there is no place here"):
        model.load_body({**given, f"{prefix}blocks.2.x": torch.ones(1), f"{prefix}blocks.2.y": torch.ones(1)})
    name = f"{prefix}tokens.table.weight"
    width = given[name].size(1)
    with pytest.raises(RegardError, match=rf"is \(31, {width}\), but here it is \(29, {width}\); give this model"):
        model.load_body({**given, name: torch.ones(31, width)})
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors_of(model).items())


@pytest.mark.parametrize("tied", [True, False])
def test_the_language_loss_beside_the_labels(tied: bool) -> None:
    """Radford et al. 2018, eq. 5: L_labels + λ L_text, each over its own count; the text one by one here."""
    model = build("gpt1", CONFIGS["gpt1"].model_copy(update={"language_weight": 0.5, "tied": tied}), smoothing=0.3)
    parts = model(BATCH).parts
    text_loss, predicted = torch.zeros((), dtype=torch.float64), 0
    for text in TEXTS:
        vectors = model.body.read(torch.from_numpy(text)[None])[0]
        for place in range(len(text) - 1):
            logits = model.body.output.weight @ vectors[place]
            text_loss, predicted = text_loss - logits.log_softmax(dim=0)[text[place + 1]], predicted + 1
    assert_same(parts["language"].sum, text_loss)
    assert parts["language"].count == predicted == BATCH.counts["language"] == 21
    assert parts["language"].weight == 0.5
    assert_same(model(BATCH).objective(BATCH.counts), parts["loss"].sum / 3 + 0.5 * text_loss / 21)
    model(BATCH).objective(BATCH.counts).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_experts_are_kept_in_balance_in_training() -> None:
    config = CONFIGS["llama"].model_copy(update={"experts": 3, "balance": 0.7, "dropout": 0.0})
    model = build("llama", config).train()
    with balance_terms() as terms:
        model.body.read(BATCH.ids)
    parts = model(BATCH).parts
    assert_same(parts["loss"].sum - parts["nll"].sum, 0.7 * 3 * (terms[0] + terms[1]) / 2)
    parts = model.eval()(BATCH).parts
    assert_same(parts["loss"].sum, parts["nll"].sum)


@pytest.mark.parametrize(("kind", "body"), [("bert", "encoder"), ("gpt2", "body")])
def test_depths(kind: str, body: str) -> None:
    model = build(kind)
    depths = model.depths()
    assert set(depths) == {name for name, _ in model.named_parameters()}
    for name, depth in depths.items():
        if name.startswith(f"{body}.tokens."):
            assert depth == 0
        elif name.startswith(f"{body}.blocks."):
            assert depth == (1 if ".blocks.0." in name else 2)
        else:
            assert depth == 3
    assert depths["head.weight"] == 3 and sum(depth == 0 for depth in depths.values()) >= 2
