"""The loss around a model: directions by a plain loop, the Hessian against a dense one, the verb on runs."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import relu

import regard
from regard.cli.main import run
from regard.compare.landscape import entropies_of, gradients_of, mean_entropy
from regard.data.pictures.config import PictureFormat
from regard.inspect.landscape import (
    RADII,
    extreme_eigenvalues,
    filter_direction,
    hessian_product,
    in_double,
    lanczos,
    loss_at,
    loss_on,
    surface,
)
from regard.models.config import ResNetConfig
from regard.models.loss import Loss, Part
from regard.models.pictures.convolutional import ResidualBlock, ResNet
from regard.tasks.run import RunResult
from regard.training.history import rows_of


@dataclass(frozen=True)
class Numbers:
    x: Tensor
    y: Tensor

    @property
    def counts(self) -> dict[str, int]:
        return {"loss": len(self.x)}


class Small(nn.Module):
    """Two smooth layers, a convolution of a picture of 2 x 3 before them, and a norm's weight that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Conv2d(1, 2, (1, 2))
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 3), nn.Linear(3, 1)

    def forward(self, batch: Numbers) -> Loss:
        seen = self.norm(self.kernel(batch.x.view(-1, 1, 2, 3)).flatten(1))
        error = self.down(torch.tanh(self.up(seen))).squeeze(1) - batch.y
        return Loss({"loss": Part(error.square().sum(), len(batch.x))})


@pytest.fixture
def model() -> Small:
    torch.manual_seed(3)
    return Small().train()


def batches() -> list[Numbers]:
    random = torch.Generator().manual_seed(5)
    return [Numbers(torch.randn(n, 6, generator=random), torch.randn(n, generator=random)) for n in (5, 2)]


def test_each_filter_of_a_direction_is_as_long_as_that_of_the_model(model: Small) -> None:
    direction = filter_direction(model, 7)
    assert direction.keys() == {"kernel.weight", "up.weight", "down.weight"}  # no bias, no norm
    for name, part in direction.items():
        for filter_, own in zip(part, model.get_parameter(name), strict=True):
            assert float(filter_.square().sum()) == pytest.approx(float(own.detach().square().sum()), rel=1e-5)
    again, other = filter_direction(model, 7), filter_direction(model, 8)
    assert all(torch.equal(again[name], part) for name, part in direction.items())
    assert not torch.allclose(other["up.weight"], direction["up.weight"])


def test_the_loss_at_a_distance_is_that_of_moved_weights_and_nothing_stays(model: Small) -> None:
    first, second = filter_direction(model, 1), filter_direction(model, 2)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = loss_at(model, batches(), (first, 0.3), (second, -0.7))
    there = {
        name: weight + 0.3 * first.get(name, 0.0) - 0.7 * second.get(name, 0.0)
        for name, weight in model.named_parameters()
    }
    wanted = sum(float(functional_call(model, there, (batch,)).parts["loss"].sum.detach()) for batch in batches()) / 7
    assert found == pytest.approx(wanted, rel=1e-5)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items()) and model.training


def dense_hessian(model: Small) -> tuple[Tensor, list[str]]:
    names = [name for name, _ in model.named_parameters()]
    sizes = [weight.shape for weight in model.parameters()]

    def loss(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [size.numel() for size in sizes])
        weights = {name: part.view(size) for name, part, size in zip(names, parts, sizes, strict=True)}
        losses = [functional_call(model, weights, (in_double(batch),)).parts["loss"].sum for batch in batches()]
        return torch.stack(losses).sum() / 7

    flat = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return torch.autograd.functional.hessian(loss, flat), names  # type: ignore[no-untyped-call]


def test_the_hessian_is_that_of_a_dense_one(model: Small) -> None:
    exact = copy.deepcopy(model).double().eval()
    dense, names = dense_hessian(exact)
    vector = {name: torch.randn(weight.shape, dtype=torch.float64) for name, weight in exact.named_parameters()}
    length = math.sqrt(sum(float(part.square().sum()) for part in vector.values()))
    vector = {name: part / length for name, part in vector.items()}
    product = hessian_product(exact, [in_double(batch) for batch in batches()], vector)
    wanted = dense @ torch.cat([vector[name].flatten() for name in names])
    found = torch.cat([product[name].flatten() for name in names])
    assert torch.allclose(found, wanted, rtol=1e-6, atol=1e-7)
    values = torch.linalg.eigvalsh(dense)
    eigen = extreme_eigenvalues(model, batches(), 400)
    assert eigen.largest.value == pytest.approx(float(values[-1]), rel=1e-3) and eigen.iterations < len(values)
    assert eigen.smallest.value == pytest.approx(float(values[0]), abs=2e-3 * float(values[-1]))
    assert all(weight.dtype == torch.float32 and weight.grad is None for weight in model.parameters())


def test_the_ends_of_a_spectrum_that_is_the_same_both_ways() -> None:
    """A bug: at a saddle whose eigenvalues are ± the same, power iteration told neither."""
    matrix = torch.randn(13, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    both = torch.cat([torch.cat([0 * matrix, matrix], 1), torch.cat([matrix.mT, 0 * matrix], 1)])  # ± singular values
    found = lanczos(lambda x: both @ x, torch.ones(26, dtype=torch.float64), 26)
    top = float(torch.linalg.matrix_norm(matrix, 2))
    assert (found.largest.value, found.smallest.value) == pytest.approx((top, -top), rel=1e-5)
    few = lanczos(lambda x: both @ x, torch.ones(26, dtype=torch.float64), 5)
    assert few.iterations == 5 and abs(few.largest.value - top) <= top
    values = torch.linalg.eigvalsh(both)
    assert float((values - few.largest.value).abs().min()) <= few.largest.residual  # one lies within it


def test_a_surface_has_the_model_in_its_middle(model: Small) -> None:
    told: list[tuple[int, int]] = []
    found = surface(
        "a", model, batches(), points=5, reach=0.5, directions=3, iterations=2, advance=lambda *n: told.append(n)
    )
    assert (
        found.grid.shape == (5, 5)
        and found.examples == 7
        and found.grid[2, 2] == found.loss == loss_on(model, batches())
    )
    assert found.line == pytest.approx(found.grid[2], rel=1e-6)
    d = [filter_direction(model, 1 + number) for number in range(3)]
    wanted = np.mean([loss_at(model, batches(), (each, sign * 0.25)) for each in d for sign in (1, -1)]) - found.loss
    assert found.rises.keys() == set(RADII) and found.rises[0.25] == pytest.approx(wanted, rel=1e-6)
    assert told[-1][0] <= told[-1][1] == 25 + 2 * 3 * 4 + 2 * 2


def test_entropy_is_that_of_a_plain_loop() -> None:
    maps = torch.rand(3, 5, 7)
    maps[:, 0, 1:] = torch.nan  # has no choice
    maps[:, 1, 4:] = torch.nan
    weights = maps / maps.nansum(dim=-1, keepdim=True)
    each = [
        -sum(float(a) * math.log(float(a)) for a in weights[h, t] if not math.isnan(a))
        for h in range(3)
        for t in range(1, 5)
    ]
    assert mean_entropy(weights) == pytest.approx(np.mean(each), rel=1e-5)
    assert mean_entropy(torch.full((2, 3, 11), 1 / 11)) == pytest.approx(math.log(11), rel=1e-6)


# --- Without residual connections


def test_a_block_without_its_shortcut_is_two_convolutions() -> None:
    block = ResidualBlock(3, 5, 2, "none", residual=False).eval()
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(block(x), relu(block.second(relu(block.first(x)))))
    assert (
        block.shortcut is None and float(block.second.norm.weight.detach().min()) == 1
    )  # else nothing would come through
    plain = ResNet(ResNetConfig(channels=(3, 5), blocks=2, residual=False), PictureFormat(size=8))
    whole = ResNet(ResNetConfig(channels=(3, 5), blocks=2), PictureFormat(size=8))
    shortcut = 3 * 5 + 2 * 5  # a 1 x 1 convolution and its norm, where the size changes
    count = [sum(parameter.numel() for parameter in each.parameters()) for each in (plain, whole)]
    assert count[1] - count[0] == shortcut and ResNetConfig().residual


# --- On a run


SMALL: dict[str, Any] = {"points": 3, "directions": 1, "iterations": 2, "examples": 3}


def test_the_landscape_of_a_run(tiny_run: RunResult, tmp_path: Path) -> None:
    found = regard.landscape_of([tiny_run.folder], **SMALL)
    only = found.surfaces[0]
    assert only.name == "run" and only.grid[1, 1] == only.loss and only.eigenvalues is not None
    for suffix in (".png", ".html", ".json"):
        assert found.save(tmp_path / f"landscape{suffix}").stat().st_size > 1000
    data = json.loads((tmp_path / "landscape.json").read_text())
    assert data["surfaces"][0]["rises"].keys() == {"0.1", "0.25", "0.5", "1"} and len(data["surfaces"][0]["grid"]) == 3
    assert "how sharp the place is" in found.text(100)


def test_gradients_and_entropies_by_layer_are_kept(tiny_run: RunResult) -> None:
    gradients, entropies = gradients_of(tiny_run.folder), entropies_of(tiny_run.folder)
    assert gradients is not None and entropies is not None
    rows = [row for row in rows_of(tiny_run.folder / "log.jsonl") if row["kind"] == "train"]
    assert list(gradients.steps) == [row["step"] for row in rows]
    for place, row in enumerate(rows):
        whole = math.sqrt(sum(float(values[place]) ** 2 for values in gradients.layers.values()))
        assert whole == pytest.approx(row["gradient_norm"], rel=1e-4)
    assert "decoder.0 cross" in entropies.layers and list(entropies.steps) == [0, 2, 4]
    assert all((values > 0).all() for values in entropies.layers.values())


def test_the_verb(tiny_run: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "landscape",
        str(tiny_run.folder),
        "--points",
        "3",
        "--directions",
        "1",
        "--iterations",
        "0",
        "--examples",
        "3",
    ]
    assert run([*words, "--json", "-o", str(tmp_path / "l.png")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["surfaces"][0]["eigenvalues"] is None and "l.png" in err
    assert run(["landscape", str(tiny_run.folder), "--points", "4"]) == 2 and "odd" in capsys.readouterr().err
    assert run(["landscape", str(tiny_run.best)]) == 2 and "is not a run" in capsys.readouterr().err
    assert run([*words, "-o", "l.gif"]) == 2 and ".png" in capsys.readouterr().err
