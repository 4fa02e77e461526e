"""The neural Turing machine stage by stage against the paper's formulas by hand, and sequences that come back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, softplus

from regard.bundle import Bundle, BundleConfig
from regard.cli.main import run as run_verb
from regard.data.batches import generator
from regard.data.bits import ITEM, MOST, REPEATS, BitBatches, channels, made, sequences_of
from regard.errors import UsageError
from regard.models.bits import BitLSTM
from regard.models.config import LSTMConfig, PonderConfig, TuringMachineConfig
from regard.models.ponder import Ponder
from regard.models.turing_machine import Tape, TuringMachine, by_content, interpolated, sharpened, shifted, written
from regard.noise import noise
from regard.tasks.remember.predictor import Rememberer

D = torch.float64


def test_each_stage_of_addressing_is_its_formula() -> None:
    """Eq. 5 to 9 for one row of numbers that a person can check."""
    memory = torch.tensor([[[1.0, 0.0], [0.6, 0.8], [0.0, -2.0]]], dtype=D)
    k, beta = torch.tensor([[[1.0, 0.0]]], dtype=D), torch.tensor([[[2.0]]], dtype=D)
    likeness = [1.0, 0.6, 0.0]
    powers = [math.exp(2 * each) for each in likeness]
    content = [each / sum(powers) for each in powers]
    found = by_content(k, beta, memory)
    assert found[0, 0].tolist() == pytest.approx(content, abs=1e-7)
    before = torch.tensor([[[0.0, 0.0, 1.0]]], dtype=D)
    mixed = interpolated(found, before, torch.tensor([[[0.25]]], dtype=D))
    by_hand = [0.25 * each + 0.75 * old for each, old in zip(content, (0, 0, 1), strict=True)]
    assert mixed[0, 0].tolist() == pytest.approx(by_hand, abs=1e-7)
    s = torch.tensor([[[0.1, 0.2, 0.7]]], dtype=D)  # back, stay, on
    moved = shifted(mixed, s)
    ring = [0.1 * by_hand[(i + 1) % 3] + 0.2 * by_hand[i] + 0.7 * by_hand[(i - 1) % 3] for i in range(3)]
    assert moved[0, 0].tolist() == pytest.approx(ring, abs=1e-7)
    sharp = sharpened(moved, torch.tensor([[[3.0]]], dtype=D))
    cubes = [each**3 for each in ring]
    assert sharp[0, 0].tolist() == pytest.approx([each / sum(cubes) for each in cubes], abs=1e-7)


def test_writing_erases_and_adds() -> None:
    memory = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]], dtype=D)
    w, e, a = (torch.tensor([each], dtype=D) for each in ((1.0, 0.5), (1.0, 0.0), (7.0, 8.0)))
    assert written(memory, w, e, a)[0].tolist() == [[7.0, 10.0], [1.5 + 3.5, 8.0]]


def looked(told: torch.Tensor, tape: Tape, head: int) -> torch.Tensor:
    """Where one head goes (eq. 5 to 9), row by row of the memory, with torch's own cosine."""
    k, beta, g, gamma, s = told.split([4, 1, 1, 1, 3], dim=1)
    rows = tape.memory.size(1)
    likeness = torch.stack([cosine_similarity(k.tanh(), tape.memory[:, row], dim=1) for row in range(rows)], dim=1)
    content, share = (softplus(beta) * likeness).softmax(dim=1), g.sigmoid()
    mixed, turn = share * content + (1 - share) * tape.looks[:, head], s.softmax(dim=1)
    moved = torch.stack(
        [sum(turn[:, n] * mixed[:, (row - shift) % rows] for n, shift in enumerate((-1, 0, 1))) for row in range(rows)],
        dim=1,
    )
    powers = moved ** (1 + softplus(gamma))
    return powers / powers.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("controller", ["lstm", "plain"])
@pytest.mark.parametrize("readers", [1, 2])
def test_a_machine_is_its_steps(controller: str, readers: int) -> None:
    """The reading of a step is that of the memory before it is written; heads go on from where they were."""
    torch.manual_seed(2)
    config = TuringMachineConfig(controller=controller, readers=readers, hidden=7, rows=5, width=4)  # type: ignore[arg-type]
    model = TuringMachine(config, 6, 3).to(D)
    inputs = torch.randn(2, 4, 6, dtype=D)
    logits, trace = model.run(inputs)
    tape = model.blank(inputs)
    for step in range(4):
        seen = torch.cat([inputs[:, step], tape.reads.flatten(1)], dim=1)
        states = model.controller(seen, tape.states) if tape.states else ()
        h = states[0] if states else model.controller(seen)
        where = [looked(model.heads.told(h)[:, 10 * n : 10 * n + 10], tape, n) for n in range(readers + 1)]
        reads = torch.stack([torch.einsum("bn,bnw->bw", each, tape.memory) for each in where[:-1]], dim=1)
        assert torch.allclose(model.output(torch.cat([h, reads.flatten(1)], dim=1)), logits[:, step])
        assert torch.allclose(where[-1], trace.writing[:, step]) and torch.allclose(where[0], trace.reading[:, step, 0])
        _, tape = model.step(inputs[:, step], tape)
        assert torch.allclose(tape.reads, reads) and torch.allclose(
            tape.looks.sum(-1), torch.ones(2, readers + 1, dtype=D)
        )


def test_sequences_hold_what_they_should() -> None:
    dice = generator(1)
    copy = made("copy-bits", dice, 3, 4, 8, 20)
    assert copy.inputs.shape == (3, 10, 10) and copy.counted.tolist() == [False] * 6 + [True] * 4
    assert torch.equal(copy.inputs[:, 1:5, :8], copy.targets[:, 6:]) and not copy.inputs[:, 6:].any()
    repeat = made("repeat-bits", dice, 2, 3, 8, 10)
    times = round(float(repeat.inputs[0, 4, 9]) * REPEATS)
    assert repeat.targets.shape == (2, 5 + 3 * times + 1, 9) and repeat.targets[:, -1, 8].tolist() == [1, 1]
    for time in range(times):
        assert torch.equal(repeat.targets[:, 5 + 3 * time : 8 + 3 * time, :8], repeat.inputs[:, 1:4, :8])
    recall = made("recall-bits", dice, 5, 4, 8, 6)
    for row in range(5):
        items = [recall.inputs[row, 4 * n + 1 : 4 * n + 4, :8].tolist() for n in range(4)]
        asked = recall.inputs[row, 17:20, :8].tolist()
        assert items[items.index(asked) + 1] == recall.targets[row, -ITEM:].tolist()
    parity = made("parity-bits", dice, 50, 5, 1, 16)
    assert (parity.inputs.abs().sum(-1) == 5).all() and parity.targets[:, 0, 0].tolist() == [
        int((row == 1).sum()) % 2 for row in parity.inputs[:, 0]
    ]


def test_batches_depend_on_nothing_but_their_key() -> None:
    batches = BitBatches("copy-bits", 20, 8, 100, 16, seed=3)
    assert batches.count(0) == 7 and len(batches.get(0, 6).inputs) == 4
    assert torch.equal(batches.get(1, 2).inputs, BitBatches("copy-bits", 20, 8, 100, 16, seed=3).get(1, 2).inputs)
    lengths = {batches.get(epoch, index).inputs.size(1) for epoch in range(20) for index in range(6)}
    assert len(lengths) == 20 and max(lengths) == 42
    assert channels("parity-bits", 8, 16) == (16, 1) and set(MOST) == {
        "copy-bits",
        "repeat-bits",
        "recall-bits",
        "parity-bits",
        "sum-bits",
    }


def test_sums_are_as_hard_as_their_longest_carry() -> None:
    """Python's own addition is the oracle of the sums, and a carry done by hand that of how hard they are."""
    batches = BitBatches("sum-bits", 7, 8, 53, 53, seed=3)
    mixed, hard = batches.get(0, 0), made("sum-bits", generator(2), 11, 5, 8, 7)
    assert (
        channels("sum-bits", 8, 7) == (14, 8) and mixed.inputs.shape == (53, 1, 14) and mixed.counted.tolist() == [True]
    )
    found = []
    for batch in (mixed, hard):
        for x, y in zip(batch.inputs[:, 0].tolist(), batch.targets[:, 0].tolist(), strict=True):
            first, second = (sum(2**place for place in range(7) if bits[place] == 1) for bits in (x[:7], x[7:]))
            assert first + second == sum(2**place for place in range(8) if y[place])
            found.append(longest_by_hand(first, second))
    assert set(found[:53]) == set(range(1, 8)) and set(found[53:]) == {5}


def longest_by_hand(first: int, second: int) -> int:
    """How many places the longest carry of a sum crosses: written as in school, a new carry begins where both are one."""
    carry = longest = 0
    while first or second:
        ones = first % 2 + second % 2
        carry = 1 if ones == 2 else carry + 1 if ones == 1 and carry else 0
        longest, first, second = max(longest, carry), first // 2, second // 2
    return longest


def test_thinking_is_free_at_first_and_its_cost_then_rises() -> None:
    model = Ponder(PonderConfig(hidden=5, cost=0.4, free=10, bias=-1.0), 3, 2)
    assert model.stops.bias.item() == -1.0 and model.cost() == 0.4  # outside training, what it costs in the end
    for step, wanted in ((0, 0.0), (10, 0.0), (15, 0.2), (20, 0.4), (90, 0.4)):
        with noise(1, step, 0):
            assert model.cost() == pytest.approx(wanted)


def ponder_by_hand(model: Ponder, x: torch.Tensor) -> tuple[list[float], float, list[float]]:
    """Eq. 3 to 10 of Graves 2016 for one input, one step after the other."""
    states, h_sum, steps = model.layers.zeros(1), 0.0, 0
    outputs, shares = [], []
    while True:
        mark = torch.tensor([[float(steps == 0)]], dtype=D)
        h, states = model.layers.step(model.layers.gates(torch.cat([x[None], mark], dim=1)), states)
        steps += 1
        outputs.append(model.output(h)[0])
        stop = float(model.stops(h).sigmoid().detach())
        if h_sum + stop >= 1 - model.config.epsilon or steps == model.config.most:
            shares.append(1 - h_sum)
            break
        shares.append(stop)
        h_sum += stop
    mean = sum(share * output for share, output in zip(shares, outputs, strict=True))
    return mean.tolist(), steps + shares[-1], shares  # type: ignore[union-attr]


def test_pondering_is_a_plain_loop_and_so_is_its_gradient() -> None:
    torch.manual_seed(3)
    model = Ponder(PonderConfig(hidden=6, most=9), 4, 2).to(D)
    for layer in model.layers.layers:
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=2.0)
    torch.nn.init.normal_(model.stops.weight, std=2.0)
    torch.nn.init.constant_(model.stops.bias, -1.5)
    x = torch.randn(12, 1, 4, dtype=D)
    logits, cost, steps = model.run(x)
    assert len(set(steps.flatten().tolist())) > 2  # some are thought about longer
    for row in range(12):
        mean, wanted, shares = ponder_by_hand(model, x[row, 0])
        count = len(shares)
        assert model.shares(x)[row, 0].tolist() == pytest.approx([*shares, *[0.0] * (9 - count)], abs=1e-9)
        assert logits[row, 0].tolist() == pytest.approx(mean, abs=1e-9)
        assert float(cost[row, 0].detach()) == pytest.approx(wanted, abs=1e-9) and int(steps[row, 0]) == count
    weight = model.stops.weight
    (gradient,) = torch.autograd.grad(logits.square().sum() + 0.3 * cost.sum(), weight)
    small = 1e-6
    for place in range(weight.numel()):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight.view(-1)[place] += sign * small
                found, paid, _ = model.run(x)
                values.append(float(found.square().sum() + 0.3 * paid.sum()))
                weight.view(-1)[place] -= sign * small
        assert float(gradient.view(-1)[place]) == pytest.approx(
            (values[0] - values[1]) / (2 * small), rel=1e-4, abs=1e-6
        )


@pytest.mark.parametrize(("data", "rows"), [("sum-bits/5", 3), ("copy-bits/4", 8)])
def test_how_long_a_network_thinks_about_each_input_is_drawn(data: str, rows: int, tmp_path: Path) -> None:
    """Of inputs that come alone one of each difficulty; of a sequence all, in their order."""
    torch.manual_seed(4)
    which = sequences_of(f"builtin/{data}")
    sizes = channels(which.task, 4, which.most)
    model = Ponder(PonderConfig(hidden=5, most=7, bias=-1.0), *sizes)
    about = BundleConfig(task="remember", model=model.config, vocabulary=sizes, sequences=f"builtin/{data}")
    rememberer = Rememberer(Bundle(about, model, None, {}))
    found = rememberer.look(3)
    assert len(found.rows) == rows and found.columns == tuple(map(str, range(1, found.weights.shape[1] + 1)))
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, atol=1e-6)
    batch = rememberer.draw(3, 1)
    _, _, steps = model.run(batch.inputs)
    assert (found.weights > 0).sum(axis=1).tolist()[-steps.size(1) :] == steps[0].tolist()
    assert found.save(tmp_path / "steps.png").stat().st_size > 1000
    with pytest.raises(UsageError, match="take 1"):
        rememberer.look(0)
    config = LSTMConfig(width=5, hidden=5)
    lstm = Bundle(about.model_copy(update={"model": config}), BitLSTM(config, *sizes), None, {})
    with pytest.raises(UsageError, match="a lstm has no heads"):
        Rememberer(lstm).look(3)


def test_sequences_are_remembered_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    options = ["data.width=4", "model.rows=8", "model.width=6", "model.hidden=12", "train.steps=12", "data.size=64"]
    assert not run_verb(
        [
            "train",
            "remember",
            "--data",
            "builtin/copy-bits/3",
            *(word for each in options for word in ("--set", each)),
            "-o",
            str(folder),
        ]
    )
    capsys.readouterr()
    assert not run_verb(["remember", "-m", str(folder), "2", "5", "--count", "40", "-o", str(tmp_path / "heads.png")])
    out = capsys.readouterr().out
    assert "bits wrong" in out and (tmp_path / "heads.png").stat().st_size > 1000
    rememberer = Rememberer.load(folder)
    found = rememberer.look(3)
    assert found.weights.shape[0] == 2 and found.weights.shape[1] == 8
    again = rememberer.remember(3, 40)
    assert again == rememberer.remember(3, 40) and 0 < again.share < 100 and again.bits == 40 * 3 * 4
    assert not run_verb(["eval", str(folder), "--on", "builtin/copy-bits/3/test/6"])
    assert "copy-bits" in capsys.readouterr().out
    np.testing.assert_allclose(found.weights.sum(axis=2), 1, atol=0.2)
