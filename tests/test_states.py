"""States, gates, gradients and knowledge of recurrent models, against torch's own cells and gradients by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_recorder import make_translator, transformer
from test_verify import BLOCKS, RUNG, make
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.blocks.recurrent import PARTS, STEPS, RecurrentLayer, layer_runs
from regard.errors import UsageError
from regard.inspect.states import (
    PENALTY,
    fit_probe,
    fresh_of,
    jacobian_norms,
    knowledge_of,
    loss_gradient_norms,
    states_of,
)
from regard.inspect.texts import Material
from regard.look.states import States
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator

TEXT = "two dogs sleep"
CELLS: dict[str, Callable[[int, int], Any]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


def torchs(layer: RecurrentLayer) -> Any:
    """torch's own cell with the weights of a layer."""
    cell = CELLS[layer.cell](layer.weight_x.size(1), layer.hidden).to(layer.weight_x.dtype)
    own = (layer.weight_x, layer.weight_h, layer.bias_x, layer.bias_h)
    for theirs, ours in zip((cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh), own, strict=True):
        theirs.data.copy_(ours.data)
    return cell


def stepped(layer: RecurrentLayer, x: Tensor) -> dict[str, Tensor]:
    """State (and cell) behind each step of x (T, B, inputs), by torch's own cell."""
    cell, state, found = torchs(layer), layer.zeros(x.size(1)), []
    for each in x:
        after = cell(each, state if layer.cell == "lstm" else state[0])
        state = after if isinstance(after, tuple) else (after,)
        found.append(state)
    names = ("state", "cell")[: len(state)]
    return {name: torch.stack([step[number] for step in found]) for number, name in enumerate(names)}


def by_hand(layer: RecurrentLayer, x: Tensor, h: Tensor) -> list[np.ndarray]:
    """The sigmoid or tanh of each gate's own rows, for one step, in NumPy."""
    wx, wh, bx, bh = (p.detach().numpy() for p in (layer.weight_x, layer.weight_h, layer.bias_x, layer.bias_h))
    size, found = layer.hidden, []
    for gate in range(len(wx) // size):
        rows = slice(gate * size, (gate + 1) * size)
        found.append((x.numpy() @ wx[rows].T + bx[rows], h.numpy() @ wh[rows].T + bh[rows]))
    sigmoid = lambda value: 1 / (1 + np.exp(-value))  # noqa: E731
    if layer.cell == "lstm":
        i, f, g, o = (a + b for a, b in found)
        return [sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)]
    r, z = (sigmoid(a + b) for a, b in found[:2])
    return [z, r, np.tanh(found[2][0] + r * found[2][1])]


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_states_and_gates_are_those_of_torchs_cells(cell: str) -> None:
    torch.manual_seed(3)
    layer, x = RecurrentLayer(cell, 5, 7).double(), torch.randn(11, 2, 5, dtype=torch.float64)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    with torch.no_grad(), layer_runs() as runs:
        out, _ = layer(x, layer.zeros(2))
        parts = runs[0].parts()
        expected = stepped(layer, x)
    assert torch.allclose(parts["state"], out, atol=1e-12)
    for name, values in expected.items():
        assert torch.allclose(parts[name], values, atol=1e-12)
    if cell != "rnn":
        names = ("input", "forget", "output", "candidate") if cell == "lstm" else ("update", "reset", "candidate")
        for step in range(11):
            before = parts["state"][step - 1] if step else torch.zeros(2, 7, dtype=torch.float64)
            for name, values in zip(names, by_hand(layer, x[step], before), strict=True):
                assert parts[name][step].numpy() == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_the_named_parts_are_those_of_the_step(cell: str) -> None:
    torch.manual_seed(5)
    layer = RecurrentLayer(cell, 3, 5)
    gates, state = layer.gates(torch.randn(2, 3)), tuple(torch.randn(2, 5) for _ in layer.zeros(1))
    after = STEPS[cell](gates, state, layer.weight_h, layer.bias_h)
    parts = PARTS[cell](gates, state, layer.weight_h, layer.bias_h)
    for name, values in zip(("state", "cell"), after, strict=False):
        assert torch.allclose(parts[name], values, atol=1e-6)


def lstm(layers: int = 2, cell: str = "lstm", **more: Any) -> Generator:
    return Generator(make("generate", "lstm", width=12, hidden=14, layers=layers, cell=cell, **more))


def test_an_lstm_language_model_token_by_token() -> None:
    model = lstm()
    found = states_of(model, TEXT)
    assert [trace.name for trace in found.traces] == ["layer 0", "layer 1"]
    reading = model.read(TEXT)
    x = model.model.tokens(model.as_row(reading.ids["text"])).transpose(0, 1)  # type: ignore[operator]
    for trace, layer in zip(found.traces, model.model.layers.layers, strict=True):  # type: ignore[union-attr]
        assert trace.labels == reading.labels["text"]
        with torch.no_grad():
            expected = stepped(layer, x)
        for name, values in expected.items():
            assert trace.parts[name] == pytest.approx(values[:, 0].double().numpy(), abs=1e-5)
        x = expected["state"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_seq2seq_that_reads_from_the_end_is_shown_in_the_order_of_the_text(reverse: bool) -> None:
    model = Translator(make_translator("seq2seq", width=12, hidden=14, reverse=reverse, bidirectional=False))
    found = states_of(model, TEXT, "zwei hunde")
    encoder, decoder = found.traces
    assert (encoder.name, decoder.name) == ("encoder, layer 0", "decoder, layer 0")
    assert encoder.backwards == reverse and not decoder.backwards
    ids = model.as_row(model.read(TEXT, "a").ids["source"])
    own: Any = model.model
    with torch.no_grad():
        x = own.source(ids.flip(1) if reverse else ids).transpose(0, 1)
        expected = stepped(own.encoder.layers[0].forth, x)["state"][:, 0]
    expected = expected.flip(0) if reverse else expected
    assert encoder.parts["state"] == pytest.approx(expected.double().numpy(), abs=1e-5)
    assert len(decoder.labels) == len(decoder.parts["state"]) == len(model.read(TEXT, "zwei hunde").labels["prefix"])


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_both_directions_and_the_steps_of_an_attentive_decoder(kind: str) -> None:
    model = Translator(make_translator(kind, width=12, hidden=14, cell="gru"))
    found = states_of(model, TEXT, "zwei hunde")
    names = {trace.name: trace for trace in found.traces}
    assert list(names) == ["encoder, layer 0, forwards", "encoder, layer 0, backwards", "decoder, layer 0"]
    own: Any = model.model
    with torch.no_grad():
        memory = own.encode(
            model.as_row(model.read(TEXT, "a").ids["source"]), torch.tensor([len(found.traces[0].labels)])
        )
    both = np.concatenate([found.traces[0].parts["state"], found.traces[1].parts["state"]], axis=1)
    assert both == pytest.approx(memory.vectors[0].double().numpy(), abs=1e-5)
    assert found.traces[2].parts["update"].shape == (len(model.read(TEXT, "zwei hunde").labels["prefix"]), 14)


def test_a_classifier_over_a_recurrent_encoder() -> None:
    found = states_of(TextClassifier(make("classify", "additive", **RUNG, hidden=14)), TEXT)
    assert [trace.name for trace in found.traces] == ["encoder, layer 0, forwards", "encoder, layer 0, backwards"]
    assert found.gradients[0].measure == "last state"


# --- Gradients


@pytest.mark.parametrize("kind", ["lstm", "bahdanau", "reversed"])
def test_the_jacobian_of_the_last_state_by_distance(kind: str) -> None:
    """Against torch's own Jacobian, token by token."""
    if kind == "lstm":
        predictor: Any = lstm(cell="gru")
    elif kind == "bahdanau":
        predictor = Translator(make_translator("bahdanau", width=12, hidden=14))
    else:
        predictor = Translator(make_translator("seq2seq", width=12, hidden=14, reverse=True, bidirectional=False))
    ids = torch.tensor([[5, 8, 6, 9, 7]])
    model = predictor.model.double()
    x = model.embedded(ids.flip(1) if kind == "reversed" else ids).detach()
    jacobian = torch.autograd.functional.jacobian(model.last_state, x)[0, :, 0]  # type: ignore[no-untyped-call]  # (hidden, T, I)
    expected = [float(jacobian[:, t].norm()) for t in reversed(range(5))]
    assert jacobian_norms(model, ids) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_the_gradient_of_the_loss_by_distance(kind: str) -> None:
    predictor = lstm(1) if kind == "lstm" else Generator(make("generate", "gpt2", **BLOCKS))
    ids, model = [5, 8, 6, 9, 7], predictor.model
    begin = predictor.tokenizer.specials.begin
    x = model.tokens(torch.tensor([[begin, *ids]])).detach().requires_grad_()  # type: ignore[operator]
    own: Any = model
    if kind == "lstm":
        vectors = own._vectors(own.layers(x, own.layers.zeros(1))[0])
    else:
        from regard.attention import Causal

        vectors = own.norm(own.blocks(x, Causal()))
    cross_entropy(own.output(vectors)[0, -2][None], torch.tensor([7])).backward()
    assert x.grad is not None
    expected = [float(x.grad[0, t].norm()) for t in reversed(range(5))]  # the last token itself is only predicted
    assert loss_gradient_norms(predictor, ids) == pytest.approx(expected, rel=1e-4)
    assert float(x.grad[0, 5].norm()) == 0


def test_gradients_of_several_texts_are_their_mean_at_each_distance() -> None:
    model = Translator(make_translator("bahdanau", width=12, hidden=14))
    pairs = [("two dogs sleep", "a"), ("two", "a"), ("dogs sleep two dogs", "a")]
    found = states_of(model, TEXT, "a", material=Material(pairs)).gradients[0]
    each = [jacobian_norms(model.model, model.as_row(model.read(*pair).ids["source"])) for pair in pairs]  # type: ignore[arg-type]
    for distance in (0, 1, max(map(len, each)) - 1):
        there = [values[distance] for values in each if len(values) > distance]
        assert found.trained[distance] == pytest.approx(np.mean(there))
    assert found.texts == 3


def test_fresh_weights_are_others_and_always_the_same() -> None:
    model = lstm()
    one, two = fresh_of(model).model.state_dict(), fresh_of(model).model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["tokens.table.weight"], model.model.state_dict()["tokens.table.weight"])


# --- Knowledge


def test_the_probe_is_at_its_minimum() -> None:
    """Its gradient, written down by hand, is zero; a far start or another search cannot be better."""
    rng = np.random.default_rng(7)
    x, wanted = rng.normal(size=(61, 5)), rng.integers(0, 3, 61)
    weight, bias = (each.numpy() for each in fit_probe(torch.from_numpy(x), torch.from_numpy(wanted), 3))
    logits = x @ weight.T + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    errors = shares - np.eye(3)[wanted]
    assert errors.T @ x / 61 + PENALTY * weight == pytest.approx(np.zeros((3, 5)), abs=5e-5)
    assert errors.mean(axis=0) == pytest.approx(np.zeros(3), abs=5e-5)


class Sum(nn.Module):
    """Keeps the sum of all vectors, each token's its own direction: the first can be read while few came after."""

    def __init__(self, forgets: bool = False) -> None:
        super().__init__()
        self.forgets = forgets

    def in_order(self, ids: Tensor) -> Tensor:
        return ids

    def embedded(self, ids: Tensor) -> Tensor:
        return torch.eye(6)[ids]

    def last_state(self, x: Tensor) -> Tensor:
        return x[:, -1] if self.forgets else (x * 2.0 ** -torch.arange(x.size(1))[:, None]).sum(dim=1)


def test_what_is_kept_is_known_and_what_is_forgotten_is_not() -> None:
    """A memory that weighs tokens by halves keeps the first readable; one that keeps only the last knows it at length 1."""
    texts = [tuple(row) for row in np.random.default_rng(3).integers(0, 6, (400, 16)).tolist()]
    found = knowledge_of(Sum(), Sum(forgets=True), texts, torch.device("cpu"))
    assert found is not None
    assert found.lengths == (1, 2, 4, 8, 16)
    assert found.classes == 6
    assert min(found.trained) > 0.99
    assert found.fresh[0] == 1.0
    assert max(found.fresh[1:]) < 0.35
    assert all(0.1 < share < 0.27 for share in found.majority)
    assert found.held_out[-1] == 100


def test_too_few_texts_are_no_probe() -> None:
    assert knowledge_of(Sum(), Sum(), [(1, 2, 3)] * 5, torch.device("cpu")) is None


# --- Transformers, refusals, media


def test_blocks_of_a_transformer() -> None:
    model = Generator(make("generate", "gpt2", **BLOCKS))
    found = states_of(model, TEXT)
    (blocks,) = found.blocks
    own: Any = model.model
    with torch.no_grad():
        from regard.attention import Causal

        x = own.tokens(model.as_row(model.read(TEXT).ids["text"]))
        depths = [x]
        for block in own.blocks:
            depths.append(block(depths[-1], Causal()))
    expected = torch.stack(depths)[:, 0].double().numpy()
    assert blocks.vectors == pytest.approx(expected, abs=1e-5)
    assert blocks.norms == pytest.approx(np.sqrt((expected**2).sum(axis=-1)), abs=1e-5)
    first, second = expected[-1][0], expected[-1][1]
    assert blocks.cosines()[0, 1] == pytest.approx(first @ second / np.linalg.norm(first) / np.linalg.norm(second))
    pairs = [blocks.cosines(1)[i, j] for i in range(len(x[0])) for j in range(len(x[0])) if i != j]
    assert blocks.mean_cosines()[1] == pytest.approx(np.mean(pairs))
    assert [gradient.measure for gradient in found.gradients] == ["loss of the last token"]


def test_an_encoder_and_a_decoder_of_blocks() -> None:
    found = states_of(Translator(transformer()), TEXT, "a b")
    assert [blocks.name for blocks in found.blocks] == ["encoder", "decoder"]
    assert not found.gradients


def test_a_bert_has_vectors_and_no_gradients() -> None:
    found = states_of(Filler(make("fill", "bert", **BLOCKS)), TEXT)
    assert len(found.blocks) == 1 and not found.gradients and not found.traces


def test_a_model_without_states_and_layers_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="neither recurrent layers nor blocks"):
        states_of(Translator(make_translator("bytenet")), TEXT, "a")
    with pytest.raises(UsageError, match="no layer 2; there are 2, from 0 on"):
        states_of(lstm(), TEXT, layer=2)
    with pytest.raises(UsageError, match="this model has no recurrent layers"):
        states_of(Generator(make("generate", "gpt2", **BLOCKS)), TEXT, layer=0)


@pytest.fixture(scope="module")
def shown() -> States:
    return states_of(lstm(), TEXT)


def test_every_medium_shows_states(shown: States, tmp_path: Path) -> None:
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!DOCTYPE")):
        assert shown.save(tmp_path / f"states{suffix}").read_bytes().startswith(start)
    data = json.loads(shown.save(tmp_path / "states.json").read_text())
    assert np.array(data["layers"][1]["parts"]["forget"]) == pytest.approx(shown.traces[1].parts["forget"], rel=1e-4)
    assert data["gradients"][0]["trained"] == pytest.approx(shown.gradients[0].trained, rel=1e-4)
    text = shown.text(80)
    assert "layer 1: forget gate f" in text and "layer 0" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "layer 0: cell c" in states_of(lstm(), TEXT, layer=0).text(80)
