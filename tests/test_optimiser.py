"""Muon against singular values computed one by one, layer-wise rates and freezing against updates written out by hand."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_run import CONFIG, Contents, ToyModel, toy_job

from regard.errors import UsageError
from regard.tasks.configure import run_config
from regard.training.config import TrainConfig
from regard.training.events import Progress
from regard.training.muon import hidden_matrices, orthogonal, orthogonal_reference, parts_of
from regard.training.optimiser import clip_gradient, load_optimiser, make_optimiser, optimiser_tensors, set_rate
from regard.training.show import Show
from regard.training.state import set_weights, weights_of
from regard.training.timed import train

SHAPES = [(1, 1), (1, 7), (5, 5), (7, 10), (7, 11), (7, 31), (13, 17)]  # some on each side of 1.5 columns for each row


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# -- Newton-Schulz -----------------------------------------------------------------------------------------------------


def conditioned(rows: int, columns: int, seed: int) -> Tensor:
    """A matrix whose singular values lie between 1 and 5."""
    left, _, right = torch.linalg.svd(draw(rows, columns, seed=seed), full_matrices=False)
    return left * torch.linspace(1, 5, min(rows, columns), dtype=torch.float64) @ right


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_newton_schulz_is_nearly_the_product_of_singular_vectors(shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrices = torch.stack([conditioned(*shape, seed=seed) for seed in range(3)])
    for matrix, found in zip(matrices, orthogonal(matrices.to(dtype)).double(), strict=True):
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        inside = left.mT @ found @ right.mT  # what became of the singular values, on the diagonal
        assert inside.diagonal().min() > 0.68 and inside.diagonal().max() < 1.3
        torch.testing.assert_close(inside, inside.diagonal().diag(), rtol=0, atol=1e-4)
        torch.testing.assert_close(left @ inside @ right, found, rtol=0, atol=1e-4)  # and nothing outside


def polynomial(value: float) -> float:
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    return value


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", [orthogonal, orthogonal_reference])
def test_each_singular_value_goes_its_own_way(shape: tuple[int, int], function: Any) -> None:
    matrix = draw(*shape, seed=3)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    size = math.sqrt(sum(float(value) ** 2 for value in matrix.flatten()))
    wanted = left * torch.tensor([polynomial(float(value) / size) for value in values]).double() @ right
    torch.testing.assert_close(function(matrix[None])[0], wanted, rtol=0, atol=1e-7)


def test_zeros_stay_zeros_and_size_does_not_matter() -> None:
    for shape in ((5, 5), (5, 11)):
        assert bool((orthogonal(torch.zeros(2, *shape)) == 0).all())
        matrix = draw(1, *shape)
        torch.testing.assert_close(orthogonal(matrix * 1e-6), orthogonal(matrix * 1e6), rtol=1e-9, atol=1e-9)


# -- Muon's update -----------------------------------------------------------------------------------------------------


def muon_by_hand(weight: Tensor, gradients: list[Tensor], rates: list[float], decay: float) -> Tensor:
    """Jordan et al. 2024, with the factor of Liu et al. 2025, on one matrix, line by line."""
    momentum = torch.zeros_like(weight)
    for gradient, rate in zip(gradients, rates, strict=True):
        momentum = 0.95 * momentum + gradient
        left, values, right = torch.linalg.svd(gradient + 0.95 * momentum, full_matrices=False)
        values = values / values.pow(2).sum().sqrt()
        direction = left * torch.tensor([polynomial(float(value)) for value in values]).double() @ right
        weight = weight - rate * decay * weight - rate * 0.2 * math.sqrt(max(weight.shape)) * direction
    return weight


class Net(nn.Module):
    """One of each kind of parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(19, 7)
        self.positions = nn.Module()
        self.positions.table = nn.Parameter(torch.empty(13, 7))
        self.inner = nn.ModuleDict({
            "query": nn.Linear(7, 7), "key_value": nn.Linear(7, 22), "gate_up": nn.Linear(7, 34),
            "up": nn.Linear(7, 29), "down": nn.Linear(29, 7), "twin": nn.Linear(7, 29), "norm": nn.LayerNorm(7),
        })  # fmt: skip
        self.output, self.head = nn.Linear(7, 19, bias=False), nn.Linear(7, 3)
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                parameter.copy_(draw(*parameter.shape, seed=number))


LINEAR = ("query", "key_value", "gate_up", "up", "down", "twin")


def update(
    model: nn.Module, optimiser: torch.optim.Optimizer, rates: list[float], seed: int
) -> dict[str, list[Tensor]]:
    """Step with drawn gradients, and tell them."""
    gradients: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    for step, rate in enumerate(rates):
        for number, (name, parameter) in enumerate(model.named_parameters()):
            parameter.grad = draw(*parameter.shape, seed=1000 * seed + 100 * step + number).to(parameter.dtype)
            gradients[name].append(parameter.grad.clone())
        set_rate(optimiser, rate)
        optimiser.step()
    return gradients


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_an_update_by_muon(decay: float) -> None:
    """Lying, standing and square matrices; of a fused projection each part by itself; and Adam for the rest."""
    config = TrainConfig(optimiser="muon", weight_decay=decay)
    model, rates = Net().double(), [0.02, 0.01, 0.03]
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    gradients = update(model, make_optimiser(model, config), rates, seed=1)
    hidden = {f"inner.{name}.weight" for name in LINEAR}
    for name, parameter in model.named_parameters():
        if name in hidden:
            parts = {"inner.key_value.weight": 2, "inner.gate_up.weight": 2}.get(name, 1)
            rows = len(parameter) // parts
            for top in range(0, len(parameter), rows):
                part = slice(top, top + rows)
                wanted = muon_by_hand(before[name][part], [g[part] for g in gradients[name]], rates, decay)
                torch.testing.assert_close(parameter.detach()[part], wanted, rtol=1e-7, atol=1e-7, msg=name)
        else:
            alone = nn.Parameter(before[name].clone())
            own = decay if alone.dim() > 1 else 0.0
            adam = torch.optim.AdamW([alone], betas=config.betas, eps=config.epsilon, weight_decay=own)
            for gradient, rate in zip(gradients[name], rates, strict=True):
                alone.grad, adam.param_groups[0]["lr"] = gradient, rate
                adam.step()
            torch.testing.assert_close(parameter.detach(), alone.detach(), rtol=1e-9, atol=1e-9, msg=name)


def test_which_parameters_are_muons() -> None:
    assert hidden_matrices(Net()) == [f"inner.{name}.weight" for name in LINEAR]
    tied = Net()
    tied.output.weight = tied.table.weight = nn.Parameter(torch.zeros(19, 7))
    assert hidden_matrices(tied) == [f"inner.{name}.weight" for name in LINEAR]

    class Tells(Net):
        def hidden_matrices(self) -> list[str]:
            return ["inner.up.weight", "inner.down.weight"]

    model = Tells()
    optimiser = make_optimiser(model, TrainConfig(optimiser="muon"))
    update(model, optimiser, [0.1], seed=2)
    kept = optimiser_tensors(optimiser, model)
    assert {name for name in kept if name.endswith(".momentum")} == {
        "inner.up.weight.momentum",
        "inner.down.weight.momentum",
    }
    assert {name for name in kept if name.endswith(".exp_avg")} == {
        f"{name}.exp_avg" for name, _ in model.named_parameters() if name not in model.hidden_matrices()
    }


def test_into_how_many_matrices_a_name_is_cut() -> None:
    assert parts_of("encoder.0.attention.key_value.weight") == 2
    assert parts_of("blocks.11.feed_forward.gate_up.weight") == 2
    assert parts_of("query.weight") == parts_of("a.key_value.down.weight") == parts_of("layers.0.weight_x") == 1


def test_a_matrix_without_a_gradient_is_left_alone() -> None:
    model = Net()
    before = model.inner["up"].weight.detach().clone()
    optimiser = make_optimiser(model, TrainConfig(optimiser="muon", weight_decay=0.5))
    for name, parameter in model.named_parameters():
        parameter.grad = None if name == "inner.up.weight" else torch.ones_like(parameter)
    set_rate(optimiser, 0.1)
    optimiser.step()
    assert torch.equal(model.inner["up"].weight, before) and not torch.equal(model.inner["twin"].weight, before)


def test_only_matrices_and_no_adam() -> None:
    model = nn.Linear(3, 5, bias=False)
    before = model.weight.detach().clone()
    update(model, make_optimiser(model, TrainConfig(optimiser="muon")), [0.1], seed=0)
    assert not torch.equal(model.weight, before)


def test_muons_memory_comes_back() -> None:
    first, second = Net(), Net()
    one, two = (make_optimiser(model, TrainConfig(optimiser="muon")) for model in (first, second))
    update(first, one, [0.1, 0.2], seed=5)
    kept = {name: tensor.clone() for name, tensor in optimiser_tensors(one, first).items()}
    set_weights(second, weights_of(first))
    load_optimiser(two, second, kept)
    update(first, one, [0.3, 0.1], seed=6)
    update(second, two, [0.3, 0.1], seed=6)
    assert all(torch.equal(tensor, weights_of(second)[name]) for name, tensor in weights_of(first).items())


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_the_optimisers_memory_goes_where_the_parameters_are(optimiser: str) -> None:
    """On a GPU a resumed run failed at its first update, for a fused AdamW reads its step where the parameter is.

    There is no GPU here: the meta device stands for it, which like a GPU is not where files are read to.
    """
    first, second = Net(), Net().to("meta")
    one, two = (make_optimiser(model, TrainConfig(optimiser=optimiser)) for model in (first, second))
    update(first, one, [0.1, 0.2], seed=5)
    load_optimiser(two, second, optimiser_tensors(one, first))
    found = {(moment, value.device.type) for state in two.state.values() for moment, value in state.items()}
    assert {"step", "exp_avg", "exp_avg_sq"} <= {moment for moment, _ in found}
    assert {where for _, where in found} == {"meta"}


@pytest.mark.parametrize("shape", [(3, 5, 5), (2, 7, 53), (2, 31, 64)])
def test_in_bf16_no_direction_bursts(shape: tuple[int, int, int]) -> None:
    """A regression: rounded, the square of a wide matrix whose rank is low was carried along, and the iterations diverged."""
    low = draw(*shape[:2], 2) @ draw(shape[0], 2, shape[2], seed=1)
    for matrices in (draw(*shape), low):
        rounded = matrices.bfloat16()  # of a low rank no more: what rounding adds is made as large as the rest
        found, exact = orthogonal(rounded).double(), orthogonal_reference(rounded.double())
        assert torch.linalg.svdvals(found).max() < 1.3
        assert matrices is low or (found - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_muon_solves_least_squares(precision: str) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(7, 11), draw(53, 7).float()
    wanted = x @ draw(7, 11, seed=1).float()
    optimiser = make_optimiser(model, TrainConfig(optimiser="muon", precision=precision))  # type: ignore[arg-type]
    losses = []
    for step in range(300):
        loss = (model(x) - wanted).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        set_rate(optimiser, 0.1 * (1 - step / 300))
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.01 * losses[0]


# -- depth -------------------------------------------------------------------------------------------------------------


class Deep(ToyModel):
    """`inner` is the first block, `outer` the head; there are no embeddings, so that 0 is free."""

    def depths(self) -> dict[str, int]:
        return {"inner.weight": 1, "inner.bias": 1, "outer.weight": 2, "outer.bias": 2, "tied": 0}


class Tall(nn.Module):
    """Five layers, of depths 0, 1, 1, 2, 3."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(5))

    def depths(self) -> dict[str, int]:
        return {name: (0, 1, 1, 2, 3)[int(name.split(".")[1])] for name, _ in self.named_parameters()}


def test_lower_layers_learn_more_slowly() -> None:
    """The first update of Adam moves every number by exactly its learning rate."""
    model = Tall()
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    update(model, make_optimiser(model, TrainConfig(layer_decay=0.5, freeze=0)), [0.08], seed=4)
    for name, parameter in model.named_parameters():
        wanted = (0.01, 0.02, 0.02, 0.04, 0.08)[int(name.split(".")[1])]
        moved = (parameter.detach() - before[name]).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, wanted), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_embeddings_and_output_layers_have_a_rate_of_their_own(optimiser: str) -> None:
    """The first update of Adam moves every number by its rate; Muon moves only what lies between, and at the rate itself."""

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.inner, self.output = nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False)

    model = Reader().double()
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    config = TrainConfig(optimiser=optimiser, embedding_rate=3.0)  # type: ignore[arg-type]
    gradients = update(model, make_optimiser(model, config), [0.02], seed=4)
    for name, rate in (("tokens.weight", 0.06), ("output.weight", 0.06), ("inner.weight", 0.02), ("inner.bias", 0.02)):
        found, start = model.get_parameter(name).detach(), before[name]
        if optimiser == "muon" and name == "inner.weight":
            torch.testing.assert_close(found, muon_by_hand(start, gradients[name], [rate], 0.0), rtol=1e-7, atol=1e-7)
        else:
            torch.testing.assert_close((found - start).abs(), torch.full_like(start, rate), rtol=1e-4, atol=1e-7)


def test_plain_gradient_descent_follows_the_gradient() -> None:
    model = Tall().double()
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    gradients = update(model, make_optimiser(model, TrainConfig(optimiser="sgd", layer_decay=0.5)), [0.08], seed=4)
    for name, parameter in model.named_parameters():
        rate = (0.01, 0.02, 0.02, 0.04, 0.08)[int(name.split(".")[1])]
        torch.testing.assert_close(parameter.detach(), before[name] - rate * gradients[name][0])


def test_lower_layers_learn_more_slowly_by_muon() -> None:
    rates = (0.01, 0.02, 0.02, 0.04, 0.08)
    config = TrainConfig(optimiser="muon", layer_decay=0.5, weight_decay=0.1)
    model = Tall().double()
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    gradients = update(model, make_optimiser(model, config), [0.08], seed=4)
    for number, rate in enumerate(rates):
        name = f"layers.{number}.weight"
        wanted = muon_by_hand(before[name], gradients[name], [rate], 0.1)
        torch.testing.assert_close(model.get_parameter(name).detach(), wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
@pytest.mark.parametrize(("below", "frozen"), [(0, 0), (1, 1), (2, 3), (3, 4)])
def test_frozen_layers_stay_and_have_no_gradient(below: int, frozen: int, optimiser: str) -> None:
    model = Tall()
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    stepper = make_optimiser(model, TrainConfig(freeze=below, optimiser=optimiser, weight_decay=0.5))  # type: ignore[arg-type]
    x = torch.ones(2, 3)
    for layer in model.layers:
        x = layer(x)
    x.pow(2).sum().backward()
    set_rate(stepper, 0.1)
    stepper.step()
    for name, parameter in model.named_parameters():
        stays = int(name.split(".")[1]) < frozen
        assert (parameter.grad is None) == stays == torch.equal(parameter, before[name]), name
    assert len([p for group in stepper.param_groups for p in group["params"]]) == 2 * (5 - frozen)


def test_what_cannot_be_frozen_or_slowed() -> None:
    with pytest.raises(UsageError, match=r"train\.freeze = 4 leaves nothing to train: .* depth 3; set .* to 3 or less"):
        make_optimiser(Tall(), TrainConfig(freeze=4))
    for config in (TrainConfig(freeze=1), TrainConfig(layer_decay=0.9)):
        with pytest.raises(UsageError, match=r"tells how deep its layers are, and ToyModel does not; leave them at 1"):
            make_optimiser(ToyModel(), config)
    for name, value in (("layer_decay", 0.0), ("layer_decay", 1.5), ("freeze", -1), ("optimiser", "lion")):
        with pytest.raises(UsageError, match=rf"train\.{name}"):
            run_config("translate", {"train": {name: value}})


def test_usual_settings_give_torchs_adam_bit_for_bit() -> None:
    config = TrainConfig(weight_decay=0.1)
    for kind in (ToyModel, Deep):
        model, plain = kind(), kind()
        groups = [
            {"params": [p for p in plain.parameters() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in plain.parameters() if p.dim() <= 1], "weight_decay": 0.0},
        ]
        adam = torch.optim.AdamW(groups, betas=config.betas, eps=config.epsilon, fused=True)
        gradients = update(model, make_optimiser(model, config), [0.1, 0.07, 0.2], seed=8)
        for step, rate in enumerate((0.1, 0.07, 0.2)):
            for name, parameter in plain.named_parameters():
                parameter.grad = gradients[name][step]
            for group in adam.param_groups:
                group["lr"] = rate
            adam.step()
        assert all(torch.equal(tensor, weights_of(plain)[name]) for name, tensor in weights_of(model).items())


# -- in the loop -------------------------------------------------------------------------------------------------------


@dataclass
class Interrupts(Show):
    step: int

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    "settings",
    [{"optimiser": "muon"}, {"optimiser": "muon", "layer_decay": 0.7}, {"layer_decay": 0.7, "freeze": 2}],
)
def test_stopped_and_resumed_is_as_if_never_stopped(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = TrainConfig(**{**CONFIG.model_dump(), "log_every": 1, **settings})
    train(toy_job(tmp_path / "whole", config, Deep()), Show())
    assert train(toy_job(tmp_path / "run", config, Deep()), Interrupts(3)).progress.step == 3
    assert train(toy_job(tmp_path / "run", config, Deep()), Show(), resume=True).reason == "steps"
    assert Contents.of(tmp_path / "whole").unlike(Contents.of(tmp_path / "run")) == []


def test_a_run_leaves_frozen_weights_as_they_were(tmp_path: Path) -> None:
    model, fresh = Deep(), Deep()
    train(toy_job(tmp_path, TrainConfig(**{**CONFIG.model_dump(), "freeze": 2}), model), Show())
    assert torch.equal(model.inner.weight, fresh.inner.weight) and torch.equal(model.inner.bias, fresh.inner.bias)
    assert not torch.equal(model.outer.weight, fresh.outer.weight)


@pytest.mark.parametrize("size", [0.3, 0.98, 0.9899, 0.99, 0.9999999, 1.0, 1.0000001, 1.01, 5.0])
def test_a_gradient_is_shortened_as_torch_does_it(size: float) -> None:
    limit = 0.7
    one, two = ToyModel(), ToyModel()
    gradients = [draw(*p.shape, seed=n).float() for n, p in enumerate(one.parameters())]
    length = math.sqrt(sum(float(np.square(g.double().numpy()).sum()) for g in gradients))
    for model in (one, two):
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient * (size * limit / length)
    norm = torch.nn.utils.clip_grad_norm_(two.parameters(), limit)
    assert clip_gradient(list(one.parameters()), limit) == float(norm) == pytest.approx(size * limit)
    for mine, torchs in zip(one.parameters(), two.parameters(), strict=True):
        assert mine.grad is not None and torchs.grad is not None and torch.equal(mine.grad, torchs.grad)


def test_no_limit_for_the_gradient() -> None:
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3e3, 4e3]])
    assert clip_gradient(list(model.parameters()), 0.0) == 5e3 and model.weight.grad.tolist() == [[3e3, 4e3]]
