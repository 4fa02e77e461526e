"""The recurrent language model against torch.nn's layers with the same weights; steps are the whole text."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.config import check
from regard.data.batch import text_batch
from regard.errors import UsageError
from regard.models.config import LSTMConfig
from regard.models.language import LSTM
from regard.models.presets import preset
from regard.models.table import build
from regard.noise import noise

V, D, HIDDEN = 29, 11, 13
VARIANTS: list[dict[str, Any]] = [
    {},
    {"layers": 3},
    {"hidden": D},
    {"tied": False, "layers": 2},
    {"cell": "gru", "layers": 2},
    {"cell": "rnn", "layers": 2, "tied": False, "hidden": D},
]
VARIED = pytest.mark.parametrize("changes", VARIANTS, ids=str)
NAMES = {"weight_x": "weight_ih", "weight_h": "weight_hh", "bias_x": "bias_ih", "bias_h": "bias_hh"}  # ours, torch's
TORCH: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def make(smoothing: float = 0.0, **changes: Any) -> LSTM:
    """A model in float64 with every parameter at random."""
    model = LSTM(LSTMConfig(**{"width": D, "hidden": HIDDEN, "dropout": 0.0} | changes), V, smoothing).double()
    torch.manual_seed(7)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def ids_of(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(seed))


class Twin:
    """Embeddings times √D, torch's layers, a linear layer to the width of the table unless they are equal, the table."""

    def __init__(self, model: LSTM) -> None:
        config = model.config
        self.model = model
        self.layers = TORCH[config.cell](D, config.hidden, config.layers, batch_first=True).double()
        ours = dict(model.named_parameters())
        self.weights: dict[str, Tensor] = {}
        for number in range(config.layers):
            for mine, theirs in NAMES.items():
                self.weights[f"{theirs}_l{number}"] = ours[f"layers.layers.{number}.{mine}"]
        assert self.weights.keys() == dict(self.layers.named_parameters()).keys()

    def logits(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, V), with gradients to the parameters of our model."""
        x = nn.functional.embedding(ids, self.model.tokens.table.weight) * math.sqrt(D)
        out, _ = torch.func.functional_call(self.layers, self.weights, (x,))
        if self.model.config.hidden != D:
            assert isinstance(self.model.project, nn.Linear)
            out = out @ self.model.project.weight.T + self.model.project.bias
        table = self.model.tokens.table if self.model.config.tied else self.model.output
        return out @ table.weight.T


@VARIED
def test_logits_loss_and_gradients_are_those_of_torch(changes: dict[str, Any]) -> None:
    model = make(0.2, **changes).train()
    rows = [ids_of(1, length, seed=length)[0].numpy() for length in (5, 9, 2)]
    batch = text_batch(rows, fill=3)
    logits = Twin(model).logits(batch.ids[:, :-1])
    assert torch.allclose(model.logits(batch), logits, rtol=0, atol=1e-12)
    real = torch.tensor([[t < len(row) - 1 for t in range(8)] for row in rows])
    wanted = batch.ids[:, 1:][real]
    expected = cross_entropy(logits[real], wanted, reduction="sum", label_smoothing=0.2)
    parts = model(batch).parts
    assert parts["loss"].sum.item() == pytest.approx(expected.item(), rel=1e-12)
    assert parts["nll"].sum.item() == pytest.approx(cross_entropy(logits[real], wanted, reduction="sum").item())
    assert parts["loss"].count == batch.counts["loss"] == 4 + 8 + 1
    for (name, parameter), theirs in zip(
        model.named_parameters(), torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        (ours,) = torch.autograd.grad(model(batch).parts["loss"].sum, [parameter])
        assert ours.abs().max() > 0, name
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-10), name


def test_context_does_not_count() -> None:
    model = make()
    batch = text_batch([row.numpy() for row in ids_of(3, 9)], skip=5)
    logits = Twin(model).logits(batch.ids[:, :-1])[:, 5:]
    expected = cross_entropy(logits.flatten(0, 1), batch.ids[:, 6:].flatten(), reduction="sum")
    part = model(batch).parts["loss"]
    assert (part.sum.item(), part.count) == (pytest.approx(expected.item(), rel=1e-12), 9)


def test_smoothing_is_for_training_only() -> None:
    model, batch = make(0.3), text_batch([ids_of(1, 9)[0].numpy()])
    parts = model.eval()(batch).parts
    assert parts["loss"].sum.item() == pytest.approx(parts["nll"].sum.item(), rel=1e-12)
    assert model.train()(batch).parts["loss"].sum.item() != pytest.approx(parts["nll"].sum.item(), rel=1e-3)


@torch.no_grad()
def test_a_token_changes_itself_and_what_is_behind() -> None:
    model, ids = make(layers=2), ids_of(1, 9)
    before = model.read(ids)
    for t in range(9):
        other = ids.clone()
        other[:, t] = (other[:, t] + 5) % V
        changed = (model.read(other) - before).abs().amax(dim=-1)[0]
        assert not changed[:t].any()
        assert changed[t:].min() > 1e-9


# --- Step by step


@VARIED
@torch.no_grad()
def test_a_prompt_of_any_length_then_steps_is_the_whole_text(changes: dict[str, Any]) -> None:
    model, ids = make(**changes), ids_of(3, 9)
    expected = Twin(model).logits(ids)
    for prompt in range(1, 10):
        logits, state = model.start(None, ids[:, :prompt])
        for t in range(prompt, 10):
            assert torch.allclose(logits[:, 0], expected[:, t - 1], rtol=0, atol=1e-12)
            if t < 9:
                logits, state = model.step(ids[:, t, None], state)


@VARIED
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_any_walk_gives_the_logits_of_the_whole_text(changes: dict[str, Any], seed: int) -> None:
    """Parents, survivors and tokens drawn at random; every hypothesis is read anew by torch's layers."""
    model, dice = make(**changes), random.Random(seed)
    twin, prompts = Twin(model), ids_of(5, 1 + seed, seed)
    logits, state = model.start(None, prompts)
    read = [[row] for row in prompts.tolist()]  # [source][hypothesis]: all tokens so far
    for _ in range(9):
        expected = twin.logits(torch.tensor([sequence for row in read for sequence in row]))[:, -1]
        assert torch.allclose(logits, expected.view(len(read), -1, V), rtol=0, atol=1e-11)
        if len(read) > 1 and dice.random() < 0.3:
            stay = sorted(dice.sample(range(len(read)), dice.randrange(1, len(read))))
            read, state = [read[b] for b in stay], model.keep(state, torch.tensor(stay))
        if dice.random() < 0.7:
            width = dice.choice([1, 2, 3])
            parents = [[dice.randrange(len(row)) for _ in range(width)] for row in read]
            read = [[row[w] for w in chosen] for row, chosen in zip(read, parents, strict=True)]
            state = model.reorder(state, torch.tensor(parents))
        tokens = [[dice.randrange(V) for _ in row] for row in read]
        read = [[[*old, new] for old, new in zip(*pair, strict=True)] for pair in zip(read, tokens, strict=True)]
        logits, state = model.step(torch.tensor(tokens), state)


@torch.no_grad()
def test_a_step_leaves_the_old_state_alone() -> None:
    model = make(layers=2)
    _, state = model.start(None, ids_of(2, 4))
    first, _ = model.step(torch.tensor([[3], [3]]), state)
    model.step(torch.tensor([[8], [8]]), state)
    again, _ = model.step(torch.tensor([[3], [3]]), state)
    assert torch.equal(first, again)


# --- Sizes, dropout, configuration


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_as_many_as_the_formula_says(cell: str, gates: int, tied: bool) -> None:
    """Each gate has its matrices for input and state and two biases."""
    model = make(cell=cell, tied=tied, layers=3)
    layers = gates * HIDDEN * (D + HIDDEN + 2) + 2 * gates * HIDDEN * (2 * HIDDEN + 2)
    expected = V * D * (1 if tied else 2) + layers + HIDDEN * D + D
    assert sum(p.numel() for p in model.parameters()) == expected
    assert (model.output.weight is model.tokens.table.weight) == tied


def test_dropout_stands_before_each_layer_and_before_the_output() -> None:
    """Zaremba et al. 2014, figure 2: what goes up is dropped, what goes on in time is not. In training only."""
    model, ids = make(layers=2, dropout=0.25).train(), ids_of(31, 17)
    inputs: list[Tensor] = []
    for layer in model.layers.layers:
        layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
    with noise(4), torch.no_grad():
        inputs.append(model.read(ids))
    assert [x.size(-1) for x in inputs] == [D, HIDDEN, D]
    for x in inputs:
        zeros = (x == 0).double().mean().item()
        assert abs(zeros - 0.25) < 5 * math.sqrt(0.25 * 0.75 / x.numel())
    plain = model.tokens.table.weight[ids].transpose(0, 1) * math.sqrt(D)
    kept = inputs[0] != 0
    assert torch.allclose(inputs[0][kept], plain[kept] * 4 / 3, rtol=1e-12, atol=0)
    assert torch.allclose(model.eval().output(model.read(ids)), Twin(model).logits(ids), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", ["demo", "tiny", "small"])
def test_presets_build_and_begin_near_chance(size: str) -> None:
    """Uniform guessing costs log V; fresh models are within a tenth of it."""
    torch.manual_seed(1)
    model: Any = build("generate", LSTMConfig(**preset(size, "lstm")), (53,))
    assert type(model) is LSTM
    part = model.eval()(text_batch([np.arange(41) % 53])).parts["loss"]
    assert (part.sum / part.count).item() == pytest.approx(math.log(53), rel=0.1)


def test_a_configuration_that_cannot_be_is_refused() -> None:
    for values, message in (
        ({"cell": "gruu"}, "'rnn', 'gru' or 'lstm'"),
        ({"heads": 4}, "no key heads"),
        ({"hidden": 0}, "hidden: must be 1 or more, not 0"),
    ):
        with pytest.raises(UsageError, match="here: ") as error:
            check(LSTMConfig, values, "here")
        assert message in str(error.value)
    assert LSTMConfig().longest is None
