"""The recurrent families against their papers: by hand, in NumPy a sentence at a time, and what must hold of any."""

from __future__ import annotations

import itertools
import math
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from toy_run import Contents

import regard.noise
from regard.attention import record, softness
from regard.bundle import Bundle, BundleConfig
from regard.config import check
from regard.data.batch import PairBatch, pair_batch
from regard.data.batches import Batches, TokenPairs
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.errors import UsageError
from regard.files import new_folder, write_json
from regard.models.config import KINDS_OF, BahdanauConfig, LuongConfig, Seq2SeqConfig
from regard.models.configs.translation import RecurrentConfig
from regard.models.presets import PRESETS, preset
from regard.models.table import build_model
from regard.noise import noise
from regard.tasks.configure import run_config
from regard.tasks.translate.predictor import Translator
from regard.tensors import weights_of, write_tensors
from regard.tokens import TokenizerPair, TokensConfig
from regard.training.config import TrainConfig
from regard.training.events import Progress
from regard.training.job import Job, Outcome
from regard.training.show import Show
from regard.training.timed import train
from regard.training.validation import Validation
from regard.verify import CHECKS, verify

Array = NDArray[np.float64]
States = list[tuple[Array, ...]]

SOURCES, TARGETS = 19, 31  # vocabularies
PAD, BEGIN, END = 0, 1, 2
SIZES: dict[str, Any] = {"width": 5, "hidden": 14, "dropout": 0.0, "tied": "none"}  # two directions of 7
SOURCE_LENGTHS, TARGET_LENGTHS = (7, 3, 11, 1), (6, 2, 4, 12)  # targets with begin and end
CONFIGS: dict[str, type[RecurrentConfig]] = {"seq2seq": Seq2SeqConfig, "bahdanau": BahdanauConfig, "luong": LuongConfig}


def build(kind: str, **changes: Any) -> Any:
    """A model in float64 whose biases are random too, so that none can be forgotten."""
    torch.manual_seed(7)
    model = build_model(CONFIGS[kind](**SIZES | changes), SOURCES, TARGETS).double().eval()  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.2, std=0.5)
        elif "attention" in name:
            nn.init.normal_(parameter, std=0.8)  # so that it prefers some positions, and local-p is not always at S / 2
    return model


def sequences(vocabulary: int, lengths: Sequence[int], seed: int) -> list[NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(3, vocabulary, length) for length in lengths]


SOURCE_IDS, TARGET_IDS = sequences(SOURCES, SOURCE_LENGTHS, 1), sequences(TARGETS, TARGET_LENGTHS, 2)
PADDED = pair_batch(SOURCE_IDS, TARGET_IDS, PAD)

KINDS_OF_MODEL: list[tuple[str, dict[str, Any]]] = [
    ("seq2seq", {}),
    ("seq2seq", {"cell": "gru", "context": "every", "layers": 2}),
    ("seq2seq", {"cell": "rnn", "reverse": False, "bidirectional": True}),
    ("seq2seq", {"layers": 2, "bidirectional": True, "context": "every"}),
    ("bahdanau", {}),
    ("bahdanau", {"cell": "lstm"}),
    ("bahdanau", {"cell": "rnn", "score": "cosine"}),
    ("bahdanau", {"layers": 2, "score": "general", "temperature": 0.7}),
    ("bahdanau", {"cell": "lstm", "layers": 2, "bidirectional": False, "score": "scaled-dot"}),
    ("bahdanau", {"score": "location", "max_length": 5}),
    ("luong", {}),
    ("luong", {"input_feeding": True}),
    ("luong", {"where": "local-m", "window": 2, "score": "dot"}),
    ("luong", {"where": "local-p", "window": 3}),
    ("luong", {"where": "local-m", "window": 1, "input_feeding": True, "cell": "gru", "layers": 2}),
    ("luong", {"where": "local-p", "window": 2, "input_feeding": True, "layers": 2, "score": "additive"}),
    ("luong", {"cell": "gru", "bidirectional": False, "score": "location", "layers": 2, "temperature": 1.7}),
    ("luong", {"cell": "rnn", "score": "cosine", "input_feeding": True}),
]
MODELS = pytest.mark.parametrize(("kind", "changes"), KINDS_OF_MODEL, ids=str)
ATTENTIVE = pytest.mark.parametrize(
    ("kind", "changes"), [case for case in KINDS_OF_MODEL if case[0] != "seq2seq"], ids=str
)


# --- Bahdanau et al. 2015 by hand: one step over a source of three tokens, each direction one unit wide


def simple_bahdanau() -> Any:
    """Every weight a simple number; embeddings are given as what the model sees, √D times the table."""
    model: Any = build_model(BahdanauConfig(width=2, hidden=2, dropout=0.0, tied="none"), 4, 5).double().eval()
    root = math.sqrt(2)
    values: dict[str, Any] = {
        "source.table.weight": [[0, 0], [1 / root, 0], [0, 1 / root], [1 / root, 1 / root]],
        "target.table.weight": [[0, 0], [1 / root, -1 / root], [0, 0], [0, 0], [0, 0]],
        "encoder.layers.0.forth.weight_x": [[0, 0], [0, 0], [1, 2]],
        "encoder.layers.0.forth.weight_h": [[0], [0], [0]],
        "encoder.layers.0.forth.bias_x": [0, math.log(3), 0],  # z = σ(log 3) = 3/4
        "encoder.layers.0.forth.bias_h": [0, 0, 0],
        "encoder.layers.0.back.weight_x": [[0, 0], [0, 0], [-1, 1]],
        "encoder.layers.0.back.weight_h": [[0], [0], [0]],
        "encoder.layers.0.back.bias_x": [0, 0, 0],
        "encoder.layers.0.back.bias_h": [0, math.log(3), 0],
        "first.weight": [[2], [-4]],
        "first.bias": [0.5, 0],
        "attention.score.query.weight": [[1, 0], [1, 2]],
        "attention.score.key.weight": [[2, 0], [0, -1]],
        "attention.score.value.weight": [[3, -1]],
        "decoder.layers.0.weight_x": [[1, 0], [0, 0], [0, 1], [0, 0], [1, 0], [0, 1]],
        "decoder.feed.weight": [[0, 0], [0, 2], [0, 0], [2, 0], [0, 1], [1, 0]],
        "decoder.layers.0.weight_h": [[1, 1], [0, -1], [0, 1], [1, 0], [2, 0], [0, 2]],
        "decoder.layers.0.bias_x": [0, 0, 0, 0, 0, 0.5],
        "decoder.layers.0.bias_h": [0, 0, 0, 0, 1, 0],
        "readout.weight": [[1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 2, 0], [0, 0, 0, 1, 0, 1], [1, -1, 0, 0, 0, 0]],
        "readout.bias": [0, 0, 1, 0],
        "output.weight": [[1, 0], [0, 1], [1, 1], [1, -1], [-2, 0]],
    }
    parameters = dict(model.named_parameters())
    assert parameters.keys() == values.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.tensor(values[name], dtype=torch.float64).view_as(parameter))
    return model


def test_a_step_of_bahdanau_by_hand() -> None:
    tanh, exp = math.tanh, math.exp

    def sigmoid(x: float) -> float:
        return 1 / (1 + exp(-x))

    def near(*values: float) -> Any:
        return pytest.approx(values, abs=5.1e-5)  # four decimals

    # The source is (1, 0), (0, 1), (1, 1). With z = 3/4 and no U, a GRU is h_j = tanh(w · x_j) / 4 + 3/4 h_(j-1).
    # forth, w = (1, 2): tanh 1 = 0.7616, tanh 2 = 0.9640, tanh 3 = 0.9951
    f1 = tanh(1) / 4
    f2 = tanh(2) / 4 + 0.75 * f1
    f3 = tanh(3) / 4 + 0.75 * f2
    assert (f1, f2, f3) == near(0.1904, 0.3838, 0.5366)
    # back, w = (-1, 1), from the end: tanh 0 = 0, tanh 1 = 0.7616, tanh -1 = -0.7616
    b3 = tanh(0) / 4
    b2 = tanh(1) / 4 + 0.75 * b3
    b1 = tanh(-1) / 4 + 0.75 * b2
    assert (b1, b2, b3) == near(-0.0476, 0.1904, 0.0000)

    # s_0 = tanh(W_s b_1 + bias) with W_s = (2, -4) and bias (0.5, 0): tanh 0.4048, tanh 0.1904
    s1, s2 = tanh(2 * b1 + 0.5), tanh(-4 * b1)
    assert (s1, s2) == near(0.3840, 0.1881)

    # e_j = 3 tanh(s1 + 2 f_j) - tanh(s1 + 2 s2 - b_j): 3 · 0.6439 - 0.6684, 3 · 0.8183 - 0.5153, 3 · 0.8971 - 0.6413
    e = [3 * tanh(s1 + 2 * f) - tanh(s1 + 2 * s2 - b) for f, b in ((f1, b1), (f2, b2), (f3, b3))]
    assert e == near(1.2633, 1.9396, 2.0501)
    # α = softmax(e), of exponentials 3.5372 + 6.9561 + 7.7688 = 18.2620; c = Σ α_j (f_j, b_j)
    total = sum(exp(score) for score in e)
    alpha = [exp(score) / total for score in e]
    assert alpha == near(0.1937, 0.3809, 0.4254)
    c1 = alpha[0] * f1 + alpha[1] * f2 + alpha[2] * f3
    c2 = alpha[0] * b1 + alpha[1] * b2 + alpha[2] * b3
    assert (c1, c2) == near(0.4114, 0.0633)

    # The token before is (1, -1). A GRU step from s_0, with r upon U s and its bias, as in torch.nn:
    # r = σ(1.5722), σ(-0.0615), z = σ(-0.8119), σ(1.2068), n = tanh(2.5275), tanh(0.0937)
    y1, y2 = 1.0, -1.0
    r1, r2 = sigmoid(y1 + s1 + s2), sigmoid(2 * c2 - s2)
    z1, z2 = sigmoid(y2 + s2), sigmoid(2 * c1 + s1)
    assert (r1, r2, z1, z2) == near(0.8281, 0.4846, 0.3075, 0.7697)
    n1, n2 = tanh(y1 + c2 + r1 * (2 * s1 + 1)), tanh(y2 + c1 + 0.5 + r2 * 2 * s2)
    assert (n1, n2) == near(0.9873, 0.0934)
    t1, t2 = (1 - z1) * n1 + z1 * s1, (1 - z2) * n2 + z2 * s2
    assert (t1, t2) == near(0.8018, 0.1663)

    # Readout of (s, y, c), then the greater of each two: max(s1 + y1, s2 + 2 c1), max(y2 + c2 + 1, s1 - s2):
    # max(1.8018, 0.9890), max(0.0633, 0.6355)
    first, second = max(t1 + y1, t2 + 2 * c1), max(y2 + c2 + 1, t1 - t2)
    assert (first, second) == near(1.8018, 0.6355)
    logits = [first, second, first + second, first - second, -2 * first]
    assert logits == near(1.8018, 0.6355, 2.4373, 1.1663, -3.6036)

    model = simple_bahdanau()
    source, lengths, begin = torch.tensor([[1, 2, 3]]), torch.tensor([3]), torch.tensor([[BEGIN]])
    memory = model.encode(source, lengths)
    assert memory.vectors[0].tolist() == [pytest.approx(pair, abs=1e-14) for pair in ((f1, b1), (f2, b2), (f3, b3))]
    assert model.begin(memory).layers[0][0][0].tolist() == pytest.approx([s1, s2], abs=1e-14)
    with record(model) as seen:
        found, state = model.start((source, lengths), begin)
    (call,) = seen.calls
    assert call.weights()[0, 0, 0].tolist() == pytest.approx(alpha, abs=1e-14)
    assert call.out[0, 0, 0].tolist() == pytest.approx([c1, c2], abs=1e-14)
    assert state.layers[0][0][0].tolist() == pytest.approx([t1, t2], abs=1e-14)
    assert found[0, 0].tolist() == pytest.approx(logits, abs=1e-14)
    assert model.output(model.decode(begin, memory))[0, 0].tolist() == pytest.approx(logits, abs=1e-14)


# --- The papers in NumPy, one sentence at a time: no batch, no padding, no torch


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@dataclass
class Written:
    """What a model says of one pair."""

    logits: Array  # (T, V)
    weights: Array  # (T, S), or (T, 0) without attention
    asked: Array  # (T, hidden): the states that looked


@dataclass
class Paper:
    """A model's weights and what the papers do with them."""

    weights: dict[str, Array]
    config: Any
    temperature: float = 1.0
    hard: bool = False

    @classmethod
    def of(cls, model: nn.Module, **more: Any) -> Paper:
        return cls({name: p.detach().numpy() for name, p in model.named_parameters()}, model.config, **more)

    def linear(self, name: str, x: Array) -> Array:
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", np.zeros(1))

    def embed(self, side: str, ids: Sequence[int]) -> list[Array]:
        return [self.weights[f"{side}.table.weight"][i] * math.sqrt(self.config.width) for i in ids]

    def cell(self, name: str, x: Array, state: tuple[Array, ...], feed: str = "", fed: Array | None = None) -> Any:
        """One step of a layer; what is fed stands beside the input."""
        matrix = self.weights[f"{name}.weight_x"]
        if fed is not None:
            matrix, x = np.concatenate([matrix, self.weights[feed]], axis=1), np.concatenate([x, fed])
        h = state[0]
        given = matrix @ x + self.weights[f"{name}.bias_x"]
        own = self.weights[f"{name}.weight_h"] @ h + self.weights[f"{name}.bias_h"]
        if self.config.cell == "rnn":  # Elman 1990
            return (np.tanh(given + own),)
        if self.config.cell == "gru":  # Cho et al. 2014
            (rx, zx, nx), (rh, zh, nh) = np.split(given, 3), np.split(own, 3)
            r, z = sigmoid(rx + rh), sigmoid(zx + zh)
            return ((1 - z) * np.tanh(nx + r * nh) + z * h,)
        i, f, g, o = np.split(given + own, 4)  # Hochreiter & Schmidhuber 1997
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    def run(self, name: str, xs: list[Array], backward: bool) -> tuple[list[Array], tuple[Array, ...]]:
        """A layer of the encoder over a sentence: a state of each position, and where it ended."""
        width = self.weights[f"{name}.weight_h"].shape[1]
        state: tuple[Array, ...] = (np.zeros(width),) * (2 if self.config.cell == "lstm" else 1)
        out = []
        for x in reversed(xs) if backward else xs:
            state = self.cell(name, x, state)
            out.append(state[0])
        return out[::-1] if backward else out, state

    def encode(self, ids: Sequence[int]) -> tuple[Array, States]:
        """Annotations (S, hidden) and the last state of each layer."""
        xs, states = self.embed("source", ids), []
        for number in range(self.config.layers):
            name = f"encoder.layers.{number}"
            forth, state = self.run(f"{name}.forth", xs, backward=False)
            if self.config.bidirectional:
                back, other = self.run(f"{name}.back", xs, backward=True)
                forth = [np.concatenate(pair) for pair in zip(forth, back, strict=True)]
                state = tuple(np.concatenate(pair) for pair in zip(state, other, strict=True))
            xs = forth
            states.append(state)
        return np.stack(xs), states

    def decoder(self, x: Array, states: States, fed: Array | None = None) -> States:
        """One step of the decoder's layers."""
        after: States = []
        for number, state in enumerate(states):
            first = ("decoder.feed.weight", fed) if number == 0 else ("", None)
            after.append(self.cell(f"decoder.layers.{number}", x, state, *first))
            x = after[-1][0]
        return after

    def score(self, q: Array, h: Array, s: int) -> float:
        name, prefix = self.config.score, "attention.score"
        if name == "cosine":
            strength = np.exp(self.weights[f"{prefix}.log_strength"][0])
            return float(strength * (q @ h) / (np.linalg.norm(q) * np.linalg.norm(h)))
        if name == "additive":
            inner = np.tanh(self.linear(f"{prefix}.query", q) + self.linear(f"{prefix}.key", h))
            return self.linear(f"{prefix}.value", inner)[0]
        if name == "location":
            rows = self.weights[f"{prefix}.position.weight"]
            return rows[s] @ q if s < len(rows) else -np.inf
        if name == "general":
            return float(q @ self.linear(f"{prefix}.key", h))
        return float(q @ h) / (math.sqrt(len(q)) if name == "scaled-dot" else 1.0)

    def look(self, q: Array, annotations: Array, t: int) -> tuple[Array, Array]:
        """Context and weights of a state that looks at target position t."""
        length, where = len(annotations), getattr(self.config, "where", "global")
        places, fall_off = np.arange(length), np.ones(length)
        seen = np.full(length, True)
        if where == "local-m":
            seen = np.abs(places - min(t, length - 1)) <= self.config.window
        if where == "local-p":  # Luong et al. 2015, eq. 9 and 10
            inner = np.tanh(self.linear("attention.place.inner", q))
            p = length * sigmoid(self.linear("attention.place.outer", inner))[0]
            seen = np.abs(places - p) <= self.config.window
            fall_off = np.exp(-((places - p) ** 2) / (2 * (self.config.window / 2) ** 2))
        scores = np.array([self.score(q, h, s) if seen[s] else -np.inf for s, h in enumerate(annotations)])
        terms = np.exp((scores - scores.max()) / (self.config.temperature * self.temperature))
        weights = terms / terms.sum() * fall_off
        if self.hard:
            weights = (weights == weights.max()).astype(float)
        return weights @ annotations, weights

    def write(self, source: Sequence[int], target: Sequence[int]) -> Written:
        """Logits after each token of `target`."""
        kind = {"seq2seq": self.seq2seq, "bahdanau": self.bahdanau, "luong": self.luong}[self.config.kind]
        vectors, weights, asked = kind(source, self.embed("target", target))
        logits = np.stack([self.weights["output.weight"] @ vector for vector in vectors])
        return Written(logits, np.stack(weights), np.stack(asked))

    def seq2seq(self, source: Sequence[int], ys: list[Array]) -> Any:
        """Sutskever et al. 2014: the source from its end, its last state starts the decoder. Cho: also an input."""
        _, states = self.encode(source[::-1] if self.config.reverse else source)
        context, vectors = states[-1][0], []
        for y in ys:
            states = self.decoder(np.concatenate([y, context]) if self.config.context == "every" else y, states)
            vectors.append(np.tanh(self.linear("readout", states[-1][0])))
        return vectors, [np.zeros(0)], [np.zeros(0)]

    def bahdanau(self, source: Sequence[int], ys: list[Array]) -> Any:
        """A.2.2: the last state looks, the context joins the step; the readout is a maxout over pairs."""
        annotations, last = self.encode(source)
        states: States = []
        for h, *cell in last:
            back = h[len(h) // 2 :] if self.config.bidirectional else h
            states.append((np.tanh(self.linear("first", back)), *(np.zeros_like(c) for c in cell)))
        vectors, weights, asked = [], [], []
        for t, y in enumerate(ys):
            asked.append(states[-1][0])
            context, alpha = self.look(states[-1][0], annotations, t)
            states = self.decoder(y, states, context)
            both = self.linear("readout", np.concatenate([states[-1][0], y, context]))
            vectors.append(np.maximum(both[0::2], both[1::2]))
            weights.append(alpha)
        return vectors, weights, asked

    def luong(self, source: Sequence[int], ys: list[Array]) -> Any:
        """Eq. 5: the new state looks; tanh(W_c [c, h]) predicts, and may join the next step (section 3.3)."""
        annotations, states = self.encode(source)
        vectors, weights, asked = [], [], []
        vector = np.zeros(self.config.width)
        for t, y in enumerate(ys):
            states = self.decoder(y, states, vector if self.config.input_feeding else None)
            h = states[-1][0]
            context, alpha = self.look(h, annotations, t)
            vector = np.tanh(self.linear("combine", np.concatenate([context, h])))
            vectors.append(vector)
            weights.append(alpha)
            asked.append(h)
        return vectors, weights, asked


def each_pair() -> list[tuple[int, list[int], list[int]]]:
    """(row, source, what the decoder reads) of the batch."""
    return [(b, s.tolist(), t.tolist()[:-1]) for b, (s, t) in enumerate(zip(SOURCE_IDS, TARGET_IDS, strict=True))]


@torch.no_grad()
@MODELS
def test_a_padded_batch_gives_what_the_paper_gives_each_sentence(kind: str, changes: dict[str, Any]) -> None:
    """Logits, and for attention the weights, and which states looked."""
    model = build(kind, **changes)
    paper = Paper.of(model)
    with record(model) as seen:
        logits = model.logits(PADDED)
    assert len(seen.calls) == (kind != "seq2seq")
    for b, source, target in each_pair():
        written = paper.write(source, target)
        assert np.abs(logits[b, : len(target)].numpy() - written.logits).max() < 1e-12
        for call in seen.calls:
            weights = call.weights()[b, 0, : len(target)].numpy()
            assert np.abs(weights[:, : len(source)] - written.weights).max() < 1e-12
            assert not weights[:, len(source) :].any()
            assert np.abs(call.q[b, 0, : len(target)].numpy() - written.asked).max() < 1e-12


@torch.no_grad()
@pytest.mark.parametrize(("temperature", "hard"), [(0.4, False), (2.3, False), (1.0, True)])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("bahdanau", {"temperature": 0.7}),
        ("luong", {"where": "local-p", "window": 3}),
        ("luong", {"input_feeding": True}),
    ],
    ids=str,
)
def test_softness_reaches_the_recurrent_families(
    kind: str, changes: dict[str, Any], temperature: float, hard: bool
) -> None:
    """Whole and in steps; what was looked at otherwise has its consequences for all that follows."""
    model = build(kind, **changes)
    paper = Paper.of(model, temperature=temperature, hard=hard)
    plain = model.logits(PADDED)
    with softness(temperature=temperature, hard=hard):
        logits, steps = model.logits(PADDED), in_steps(model, PADDED)
    for b, source, target in each_pair():
        expected = paper.write(source, target).logits
        assert np.abs(logits[b, : len(target)].numpy() - expected).max() < 1e-12
        assert np.abs(steps[b, : len(target)].numpy() - expected).max() < 1e-12
    assert torch.equal(model.logits(PADDED), plain) and not torch.allclose(plain, logits)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("seq2seq", {"context": "every", "bidirectional": True, "layers": 2}),
        ("bahdanau", {"layers": 2}),
        ("bahdanau", {"cell": "lstm", "score": "cosine"}),
        ("luong", {"where": "local-p", "window": 3}),
        ("luong", {"input_feeding": True, "cell": "gru", "where": "local-m", "window": 2}),
    ],
    ids=str,
)
def test_gradients_are_those_of_the_paper(kind: str, changes: dict[str, Any]) -> None:
    """Along random directions in the space of all weights, by central differences of the NumPy loss."""
    model = build(kind, **changes)
    model(PADDED).parts["loss"].sum.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name

    def loss(moved: dict[str, Array]) -> float:
        paper, total = Paper(moved, model.config), 0.0
        for b, source, target in each_pair():
            logits = paper.write(source, target).logits
            norms = np.log(np.exp(logits).sum(axis=1))
            total += sum(norms[t] - logits[t, wanted] for t, wanted in enumerate(TARGET_IDS[b][1:]))
        return total

    before, random_numbers = Paper.of(model).weights, np.random.default_rng(5)
    assert loss(before) == pytest.approx(model(PADDED).parts["nll"].sum.item(), rel=1e-13)
    for _ in range(2):
        way = {name: random_numbers.standard_normal(value.shape) for name, value in before.items()}
        ahead, behind = ({n: before[n] + step * way[n] for n in before} for step in (1e-6, -1e-6))
        slope = sum(float((p.grad.numpy() * way[n]).sum()) for n, p in model.named_parameters())
        assert slope == pytest.approx((loss(ahead) - loss(behind)) / 2e-6, rel=1e-6)


# --- Step by step


def in_steps(model: Any, batch: PairBatch) -> Tensor:
    """Logits (B, T, V), one token after another."""
    logits, state = model.start((batch.source, batch.source_lengths), batch.target[:, :1])
    steps = [logits]
    for t in range(1, batch.target.size(1) - 1):
        logits, state = model.step(batch.target[:, t : t + 1], state)
        steps.append(logits)
    return torch.cat(steps, dim=1)


@torch.no_grad()
@MODELS
def test_steps_are_the_whole_sequence(kind: str, changes: dict[str, Any]) -> None:
    model = build(kind, **changes)
    with record(model) as whole:
        logits = model.logits(PADDED)
    with record(model) as steps:
        found = in_steps(model, PADDED)
    assert torch.allclose(found, logits, rtol=0, atol=1e-12)
    if kind == "seq2seq":
        assert whole.calls == steps.calls == []
        return
    (call,) = whole.calls
    times = PADDED.target.size(1) - 1
    assert (call.path, call.role) == ("attention", "cross")
    assert call.weights().shape == (len(SOURCE_LENGTHS), 1, times, max(SOURCE_LENGTHS))
    assert len(steps.calls) == times
    for t, step in enumerate(steps.calls):
        assert (step.path, step.role) == ("attention", "cross")
        assert torch.allclose(step.weights(), call.weights()[:, :, t : t + 1], rtol=0, atol=1e-12)
        assert torch.allclose(step.q, call.q[:, :, t : t + 1], rtol=0, atol=1e-12)
        assert step.sums_to_one == call.sums_to_one == (changes.get("where") != "local-p")
    assert whole.check() < 1e-12 and steps.check() < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("seed", range(2))
@MODELS
def test_any_walk_of_steps_gives_what_the_paper_gives_each_hypothesis(
    kind: str, changes: dict[str, Any], seed: int
) -> None:
    """Beams of changing width, parents and survivors drawn at random, after a prefix of some length."""
    model, dice = build(kind, **changes), random.Random(seed)
    paper = Paper.of(model)
    rows = list(range(len(SOURCE_IDS)))  # which source stands in each row
    prefix = torch.tensor([[BEGIN] + [dice.randrange(TARGETS) for _ in range(2 * seed)] for _ in rows])
    read = [[row] for row in prefix.tolist()]  # [row][hypothesis]: all tokens so far
    logits, state = model.start((PADDED.source, PADDED.source_lengths), prefix)
    for turn in range(6):
        assert logits.shape == (len(rows), len(read[0]), TARGETS)
        if turn in (2, 5):
            for b, row in enumerate(rows):
                for w, ids in enumerate(read[b]):
                    expected = paper.write(SOURCE_IDS[row].tolist(), ids).logits[-1]
                    assert np.abs(logits[b, w].numpy() - expected).max() < 1e-12
        if turn in (1, 3):
            stay = sorted(dice.sample(range(len(rows)), len(rows) - 1))
            rows, read = [rows[b] for b in stay], [read[b] for b in stay]
            state = model.keep(state, torch.tensor(stay))
        width = dice.choice([1, 2, 3])
        parents = [[dice.randrange(len(read[0])) for _ in range(width)] for _ in rows]
        read = [[read[b][w] for w in chosen] for b, chosen in enumerate(parents)]
        state = model.reorder(state, torch.tensor(parents))
        tokens = [[dice.randrange(TARGETS) for _ in row] for row in read]
        read = [[[*old, token] for old, token in zip(*pair, strict=True)] for pair in zip(read, tokens, strict=True)]
        logits, state = model.step(torch.tensor(tokens), state)


@torch.no_grad()
def test_a_beam_has_a_row_of_the_map_for_each_hypothesis() -> None:
    """Three hypotheses; two sources leave; the shorter source of those that stay has nothing behind its end."""
    model = build("bahdanau")
    with record(model) as seen:
        _, state = model.start((PADDED.source, PADDED.source_lengths), torch.full((4, 1), BEGIN))
        state = model.reorder(state, torch.zeros(4, 3, dtype=torch.long))
        state = model.keep(state, torch.tensor([1, 2]))
        model.step(torch.tensor([[3, 4, 5], [6, 7, 8]]), state)
    assert seen.calls[-1].weights().shape == (2, 1, 3, 11)
    assert not seen.calls[-1].weights()[0, :, :, 3:].any() and seen.calls[-1].weights()[1].all()
    assert seen.check() < 1e-12


@pytest.mark.parametrize("score", ["additive", "general", "cosine"])
@pytest.mark.parametrize(
    ("kind", "more"), [("bahdanau", {}), ("luong", {}), ("luong", {"input_feeding": True})], ids=str
)
def test_a_source_is_projected_once_however_often_it_is_looked_at(
    kind: str, more: dict[str, Any], score: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U h of Bahdanau et al. 2015, A.1.2: "does not depend on i, we can pre-compute it in advance"."""
    model = build(kind, score=score, **more)
    keys, counted = model.attention.score.keys, []

    def counting(vectors: Tensor) -> Tensor:
        counted.append(tuple(vectors.shape))
        return keys(vectors)

    monkeypatch.setattr(model.attention.score, "keys", counting)
    source = (PADDED.source, PADDED.source_lengths)
    with record(model) as seen:
        generate(
            model,
            source,
            torch.full((4, 1), BEGIN),
            end=END,
            limits=[9] * 4,
            options=DecodeConfig(beam=3, min_length=5),
        )
    assert counted == [(4, 11, 14)]
    assert len(seen.calls) > 5
    model.logits(PADDED)
    assert counted == [(4, 11, 14)] * 2


# --- What each family does with the source


def test_a_source_is_read_from_its_end_without_its_padding() -> None:
    """Sutskever et al. 2014, section 3.3: "it maps c, b, a to α, β, γ"."""
    straight, turned = build("seq2seq", reverse=False), build("seq2seq", reverse=True)
    turned.load_state_dict(straight.state_dict())
    mirrored = pair_batch([ids[::-1] for ids in SOURCE_IDS], TARGET_IDS, PAD)
    assert torch.equal(turned.logits(PADDED), straight.logits(mirrored))
    assert not torch.allclose(turned.logits(PADDED), straight.logits(PADDED))


@pytest.mark.parametrize("context", ["first", "every"])
def test_without_attention_a_source_is_its_last_state(context: str) -> None:
    """Two sources that end in one state are one to the decoder: annotations are not looked at."""
    model = build("seq2seq", context=context)
    memory = model.encode(PADDED.source, PADDED.source_lengths)
    blind = type(memory)(torch.full_like(memory.vectors, torch.nan), memory.mask, last=memory.last)
    ids = PADDED.target[:, :-1]
    assert torch.equal(model.decode(ids, blind), model.decode(ids, memory))


@MODELS
def test_padding_learns_nothing(kind: str, changes: dict[str, Any]) -> None:
    model = build(kind, **changes).train()
    model(PADDED).parts["loss"].sum.backward()
    for table in (model.source.table, model.target.table):
        assert not table.weight.grad[PAD].any() and table.weight.grad[3:].any()


@pytest.mark.parametrize(("kind", "changes"), KINDS_OF_MODEL[4:6] + KINDS_OF_MODEL[10:14], ids=str)
def test_a_token_changes_nothing_before_it(kind: str, changes: dict[str, Any]) -> None:
    model = build(kind, **changes)
    before = model.logits(PADDED)
    for t in range(PADDED.target.size(1) - 1):
        target = PADDED.target.clone()
        target[:, t] = (target[:, t] + 5) % TARGETS
        after = model.logits(PairBatch(PADDED.source, PADDED.source_lengths, target, PADDED.target_lengths, 20))
        assert torch.equal(after[:, :t], before[:, :t])
        assert (after[:, t] - before[:, t]).abs().amax(dim=-1).min() > 1e-6


# --- Dropout


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("seq2seq", {"layers": 2}),
        ("bahdanau", {"layers": 2}),
        ("luong", {"layers": 2}),
        ("luong", {"input_feeding": True}),
    ],
    ids=str,
)
def test_dropout_is_seeded_and_only_for_training(kind: str, changes: dict[str, Any]) -> None:
    model = build(kind, dropout=0.3, **changes)

    def loss(key: int) -> float:
        with noise(key):
            return model(PADDED).parts["loss"].sum.item()

    quiet = loss(1)
    assert quiet == loss(2) == build(kind, **changes)(PADDED).parts["loss"].sum.item()
    model.train()
    assert loss(1) == loss(1)
    assert len({quiet, loss(1), loss(2)}) == 3


@pytest.mark.parametrize("kind", ["seq2seq", "bahdanau", "luong"])
def test_where_dropout_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On both embeddings, between layers of encoder and decoder, and before the output; nowhere else."""
    drawn: list[tuple[int, ...]] = []
    keep = regard.noise.keep_mask

    def counted(stream: Any, x: Tensor, rate: float) -> Tensor:
        assert rate == 0.3
        drawn.append(tuple(x.shape))
        return keep(stream, x, rate)

    monkeypatch.setattr(regard.noise, "keep_mask", counted)
    model = build(kind, dropout=0.3, layers=2).train()
    with noise(1):
        model(PADDED)
    b, s, t, width, hidden = 4, 11, 11, 5, 14
    inner = [(b, hidden)] * t if kind == "bahdanau" else [(b, t, hidden)]  # the decoder: step by step, or at once
    assert sorted(drawn) == sorted([(b, s, width), (b, s, hidden), (b, t, width), *inner, (b, t, width)])


# --- Every invariant of `regard.verify`


WORDS = ["a b c", "c a", "b b a c a"]


def bundle_of(kind: str, changes: dict[str, Any], tokens: dict[str, Any] | None = None) -> Bundle:
    """A bundle with random weights; its tokens are three words unless said otherwise."""
    settings = TokensConfig(**{"kind": "word", "size": 8, "min_count": 1, **(tokens or {})})
    pair = TokenizerPair.train(WORDS, WORDS, settings)
    sizes = (pair.source.size, pair.target.size)
    config = CONFIGS[kind](**{"width": 6, "hidden": 10, "dropout": 0.2, **changes})
    torch.manual_seed(11)
    model = build_model(config, *sizes).eval()  # type: ignore[arg-type]
    return Bundle(BundleConfig(tokens=settings, vocabulary=sizes, model=config), model, pair, {})


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("seq2seq", {}),
        ("seq2seq", {"cell": "gru", "context": "every", "layers": 2, "bidirectional": True, "tied": "target"}),
        ("bahdanau", {}),
        ("bahdanau", {"cell": "lstm", "layers": 2, "score": "scaled-dot", "tied": "none"}),
        ("bahdanau", {"cell": "rnn", "score": "location", "max_length": 5, "bidirectional": False}),
        ("luong", {}),
        ("luong", {"input_feeding": True, "where": "local-p", "window": 2, "layers": 2}),
        ("luong", {"cell": "gru", "where": "local-m", "window": 3, "score": "cosine"}),
        ("luong", {"cell": "rnn", "where": "local-p", "score": "additive", "bidirectional": False}),
        ("luong", {"input_feeding": True, "score": "dot", "temperature": 0.5}),
    ],
    ids=str,
)
def test_every_invariant_holds(kind: str, changes: dict[str, Any]) -> None:
    checks = verify(bundle_of(kind, changes))
    assert [check.name for check in checks] == list(CHECKS)
    assert [check for check in checks if check.passed is False] == []
    skipped = [check.name for check in checks if check.passed is None]
    assert skipped == (["recorded weights = output"] if kind == "seq2seq" else [])


# --- Searched


def every_sequence(tokens: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    return [ids for length in range(limit + 1) for ids in itertools.product(tokens, repeat=length)]


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("seq2seq", {"context": "every"}),
        ("bahdanau", {"layers": 2}),
        ("luong", {}),
        ("luong", {"input_feeding": True, "where": "local-p", "window": 2}),
    ],
    ids=str,
)
def test_a_wide_beam_finds_the_best_of_all_sequences(kind: str, changes: dict[str, Any]) -> None:
    """Three words, at most four in a translation: 121 of them, each scored by the NumPy model."""
    bundle = bundle_of(kind, {"tied": "none", **changes})
    bundle.model.double()
    for parameter in bundle.model.parameters():
        nn.init.normal_(parameter, std=0.7)
    translator, paper, limit = Translator(bundle), Paper.of(bundle.model), 4
    words = translator.tokenizers.target.encode("a b c")
    for text, found in zip(
        WORDS, translator.translate(WORDS, beam=121, n_best=7, max_length=limit, alpha=0.6), strict=True
    ):
        source = [*translator.tokenizers.source.encode(text), END]
        ranked = []
        for ids in every_sequence(words, limit):
            logits = paper.write(source, [BEGIN, *ids]).logits
            norms = np.log(np.exp(logits).sum(axis=1))
            total = sum(logits[t, token] - norms[t] for t, token in enumerate([*ids, END]))
            ranked.append((total / ((5 + len(ids) + 1) / 6) ** 0.6, total, ids))
        ranked.sort(key=lambda each: -each[0])
        assert len(ranked) == 121
        for one, (score, total, ids) in zip([found, *found.alternatives], ranked[:7], strict=True):
            assert one.ids == ids
            assert one.score == pytest.approx(score, abs=1e-10)
            assert one.log_probability == pytest.approx(total, abs=1e-10)


@torch.no_grad()
def test_a_translation_shows_where_its_own_words_looked() -> None:
    bundle = bundle_of("bahdanau", {"tied": "none"})
    found = Translator(bundle).translate(WORDS[0], attention=True, beam=2, min_length=3, max_length=5)
    assert found.attention is not None
    (weights,) = found.attention.layers.values()
    source = [*bundle.tokenizers.source.encode(WORDS[0]), END]
    bundle.model.double()
    expected = Paper.of(bundle.model).write(source, [BEGIN, *found.ids]).weights
    assert np.abs(weights[0] - expected).max() < 1e-5


# --- Learned


LESSONS = 5


def lessons() -> TokenPairs:
    """Five sentences and their reversal, of different lengths."""
    generator = np.random.default_rng(13)
    texts = [generator.integers(3, 17, length) for length in (2, 3, 4, 5, 7)]
    return TokenPairs([np.append(ids, END) for ids in texts], [np.r_[BEGIN, ids[::-1], END] for ids in texts], PAD)


def school(folder: Path, kind: str, changes: dict[str, Any], **settings: Any) -> Job:
    """The real loop, with dropout and averages."""
    pairs = lessons()
    torch.manual_seed(1)
    made = CONFIGS[kind](**{"width": 16, "hidden": 32, "dropout": 0.05, **changes})
    model = build_model(made, 17, 17)  # type: ignore[arg-type]
    held = pairs.take(range(LESSONS))

    def validate(model: nn.Module) -> Validation:
        part = model(held).parts["nll"]
        return Validation({"loss": float(part.sum) / part.count})

    def save(model: nn.Module, name: str, metrics: dict[str, Any]) -> None:
        with new_folder(folder / name) as inside:
            write_tensors(inside / "model.safetensors", weights_of(model))
            write_json(inside / "metrics.json", metrics)

    config = TrainConfig(**{
        "batch_tokens": 40, "lr": 0.015, "schedule": "constant", "warmup": 0, "smoothing": 0.0, "average": 2,
        "ema": 0.5, "validate_every": 50, "patience": 0, "precision": "float32", **settings,
    })  # fmt: skip
    return Job(folder, config, model, 16, Batches(pairs, config.batch_tokens, config.seed), validate, save)


LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("seq2seq", {}),
    ("seq2seq", {"cell": "gru", "context": "every"}),
    ("bahdanau", {}),
    ("luong", {}),
    ("luong", {"input_feeding": True, "where": "local-p", "window": 3}),
]


@pytest.mark.parametrize(("kind", "changes"), LEARNERS, ids=str)
def test_it_learns_a_few_pairs_by_heart(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """A summed loss under log 2 means that every wanted token is more likely than all others together."""
    job = school(tmp_path, kind, changes, steps=80)
    outcome = train(job, Show())
    model: Any = job.model.eval()
    batch = lessons().take(range(LESSONS))
    assert outcome.reason == "steps"
    assert float(model(batch).parts["nll"].sum.detach()) < math.log(2)
    for beam in (1, 3):
        found = generate(
            model,
            (batch.source, batch.source_lengths),
            torch.full((LESSONS, 1), BEGIN),
            end=END,
            limits=[13] * LESSONS,
            options=DecodeConfig(beam=beam),
            forbidden=(PAD, BEGIN),
        )
        assert [list(each[0].ids) for each in found] == [ids[1:-1].tolist() for ids in lessons().targets]


@dataclass
class Interrupts(Show):
    """Ctrl-C at a step."""

    step: int

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            signal.raise_signal(signal.SIGINT)


class Breaks(Interrupts):
    """A crash at a step: what was learned since the last checkpoint is lost."""

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            raise ZeroDivisionError


@pytest.mark.parametrize(("kind", "changes"), LEARNERS, ids=str)
def test_a_run_that_was_stopped_ends_with_the_same_bits(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    def run(name: str, show: Show, resume: bool = False) -> Outcome:
        job = school(
            tmp_path / name,
            kind,
            {"layers": 2, **changes},
            steps=9,
            batch_tokens=24,
            accumulate=2,
            validate_every=4,
            log_every=1,
        )
        return train(job, show, resume)

    run("whole", Show())
    assert run("run", Interrupts(3)).reason == "interrupted"
    with pytest.raises(ZeroDivisionError):
        run("run", Breaks(7), resume=True)
    assert run("run", Show(), resume=True).reason == "steps"
    whole = Contents.of(tmp_path / "whole")
    assert len(whole.digests) > 5
    assert whole.unlike(Contents.of(tmp_path / "run")) == []


# --- Configurations


def message(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize("kind", CONFIGS)
def test_two_directions_need_an_even_width(kind: str) -> None:
    said = message(lambda: check(CONFIGS[kind], {"hidden": 7, "bidirectional": True}, "model"))
    assert "hidden 7 cannot be split over two directions; choose an even number" in said
    assert build(kind, hidden=7, bidirectional=False).logits(PADDED).shape == (4, 11, TARGETS)
    said = message(lambda: run_config("translate", {"model": {"kind": kind, "hidden": 7, "bidirectional": True}}))
    assert "model: hidden 7 cannot be split" in said


def test_unknown_names_are_refused_in_words() -> None:
    assert message(lambda: preset("tiny", "bahdanu")) == "no model.kind bahdanu; did you mean bahdanau?"
    assert message(lambda: run_config("translate", {"model": {"kind": "loung"}})) == (
        "no model.kind loung; did you mean luong?"
    )
    said = message(lambda: run_config("translate", {"model": {"kind": "luong", "score": "addtive"}}))
    assert "model.score" in said and all(f"'{name}'" in said for name in ("additive", "scaled-dot", "location"))
    said = message(lambda: run_config("translate", {"model": {"kind": "luong", "where": "local"}}))
    assert "model.where" in said and "'local-m'" in said
    said = message(lambda: run_config("translate", {"model": {"kind": "bahdanau", "input_feeding": True}}))
    assert "no key model.input_feeding" in said
    said = message(lambda: run_config("translate", {"model": {"kind": "luong", "input_feding": True}}))
    assert "no key model.input_feding; did you mean input_feeding?" in said
    for key, value in (("temperature", 0), ("window", 0), ("layers", 0), ("cell", "lstn"), ("dropout", 1.0)):
        said = message(lambda: run_config("translate", {"model": {"kind": "luong", key: value}}))  # noqa: B023
        assert f"model.{key}" in said


def test_two_vocabularies_cannot_be_one_table() -> None:
    for kind in CONFIGS:
        with pytest.raises(UsageError, match=r"\b19 source and 31 target"):
            build(kind, tied="all")


@pytest.mark.parametrize("kind", CONFIGS)
def test_tied_tables_are_one_tensor(kind: str) -> None:
    same = {}
    for tied in ("all", "target", "none"):
        model: Any = build_model(CONFIGS[kind](**SIZES | {"tied": tied}), TARGETS, TARGETS)  # type: ignore[arg-type]
        source, target, output = model.source.table.weight, model.target.table.weight, model.output.weight
        same[tied] = (source is target, output is target)
    assert same == {"all": (True, True), "target": (False, True), "none": (False, False)}


def test_every_kind_has_presets() -> None:
    assert set(CONFIGS) <= set(KINDS_OF["translate"])
    for size in ("demo", "tiny", "base"):
        for kind in CONFIGS:
            assert kind in PRESETS[size]
            values = preset(size, kind)
            assert values["kind"] == kind
            with torch.device("meta"):
                model = build_model(CONFIGS[kind](**values), 10_000, 10_000)  # type: ignore[arg-type]
            assert model.config.kind == kind
            config = run_config("translate", {"preset": size, "model": {"kind": kind}}).model
            assert config == CONFIGS[kind](**values)
    assert message(lambda: preset("big", "luong")) == "no preset big of luong; there are demo, tiny, base"
