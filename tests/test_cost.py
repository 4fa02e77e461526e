"""What a model costs: operations as torch counts them, energy and money by hand, published models on paper."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from test_json import bundles
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.cost import cost_of, measured_joules
from regard.bench.published import PUBLISHED, forward_operations, paper_cost, parameters_of
from regard.cli.main import run
from regard.data.batch import PairBatch
from regard.models.config import GPT2Config, TransformerConfig
from regard.models.gpt import GPT
from regard.models.loss import Loss, Part
from regard.models.operations import LayerOperations, by_layer, layer_of, multiply_adds_of, operations_of
from regard.models.transformer import Transformer
from regard.tasks.run import RunResult
from regard.tasks.table import TASKS
from regard.training.energy import EnergyMeter, Prices, bill, rated_power
from regard.training.optimiser import clip_gradient, layer_norms

BUNDLES = bundles()
IN_CHUNKS = (
    "translate",
    "generate",
    "fill",
    "caption",
)  # their output layers add gradients in place, uncounted by torch


@pytest.mark.parametrize("task", BUNDLES)
def test_operations_are_those_of_torchs_own_counter(task: str) -> None:
    model, subject = BUNDLES[task].model, TASKS[task].make_subject.of(BUNDLES[task])
    batch = subject.batch(model)
    model.eval()
    with sdpa_kernel(SDPBackend.MATH):  # torch does not count the attention of a CPU otherwise
        found = operations_of(model, [batch])
        with FlopCounterMode(display=False) as forward, torch.no_grad():
            model(batch)
        with FlopCounterMode(display=False) as training:
            model(batch).objective(dict(batch.counts)).backward()
    model.zero_grad()
    assert sum(layer.forward for layer in found) == forward.get_total_flops()
    tokens, width = dict(batch.counts)["loss"], BUNDLES[task].config.model.width
    width += task == "fill"  # whose output has a bias, as one more column
    in_place = 2 * tokens * BUNDLES[task].config.vocabulary[-1] * width if task in IN_CHUNKS else 0
    assert sum(layer.training for layer in found) == training.get_total_flops() + in_place


@dataclass(frozen=True)
class Numbers:
    x: Tensor

    @property
    def counts(self) -> dict[str, int]:
        return {"loss": 3}


class TwoLayers(nn.Module):
    """Whose loss is the sum of what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 2)

    def forward(self, batch: Numbers) -> Loss:
        out = self.second(torch.tanh(self.first(batch.x))) @ self.second.weight
        return Loss({"loss": Part(out.sum(), 3)})


def test_what_goes_back_belongs_to_the_layer_that_went_forward() -> None:
    model = TwoLayers().train()
    found = {layer.path: layer for layer in operations_of(model, [Numbers(torch.randn(3, 5))] * 2)}
    first, second = 2 * 2 * 3 * 5 * 7, 2 * 2 * 3 * 7 * 2  # two batches of three rows, two operations a product
    assert found["first"] == LayerOperations("first", "Linear", first, 2 * first)  # x needs no gradient
    assert found["second"] == LayerOperations("second", "Linear", second, 3 * second)
    assert found[""] == LayerOperations("", "TwoLayers", second, 3 * second)
    assert model.training and all(parameter.grad is None for parameter in model.parameters())


def test_blocks_are_told_by_their_names() -> None:
    assert [layer_of(path) for path in (
        "encoder.0.attention.query.weight", "encoder.stages.1.0.first.norm", "embedding.weight", "", "blocks.11", "norm2.bias",
    )] == ["encoder.0", "encoder.stages.1.0", "embedding", "", "blocks.11", "norm2"]  # fmt: skip
    rows = [
        LayerOperations("a.0.x", "Linear", 1, 3),
        LayerOperations("a.0", "Block", 5, 7),
        LayerOperations("b", "B", 2, 2),
    ]
    assert by_layer(rows) == [LayerOperations("a.0", "Linear", 6, 10), LayerOperations("b", "B", 2, 2)]


def test_norms_of_layers_are_those_before_clipping() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    for limit in (0.0, 0.01, 100.0):
        model.zero_grad()
        (model(torch.randn(7, 3)) ** 2).sum().backward()
        wanted = {
            name: math.sqrt(
                sum(float(p.grad.square().sum()) for p in model[int(name)].parameters() if p.grad is not None)
            )
            for name in ("0", "2")
        }
        norm = clip_gradient(list(model.parameters()), limit)
        assert layer_norms(model, limit, norm) == pytest.approx(wanted, rel=1e-4)
        assert norm == pytest.approx(math.hypot(*wanted.values()), rel=1e-5)


# --- Energy and money


def write_zone(root: Path, name: str, energy: int, most: int = 10_000_000) -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "energy_uj").write_text(f"{energy}\n")
    (root / name / "max_energy_range_uj").write_text(f"{most}\n")


def test_the_meter_adds_packages_and_knows_that_counters_begin_anew(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):  # the last is a part of the first
        write_zone(tmp_path, name, 9_000_000)
    meter = EnergyMeter(tmp_path)
    write_zone(tmp_path, "intel-rapl:0", 9_500_000)
    write_zone(tmp_path, "intel-rapl:1", 1_000_000)
    assert meter.since_last() == pytest.approx(0.5 + 2.0)
    assert meter.since_last() == 0
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert meter.since_last() is None
    assert EnergyMeter(tmp_path / "nowhere").since_last() is None


def test_power_is_set_or_known_or_assumed_and_it_is_said() -> None:
    set_by_hand = rated_power(3, Prices(watts=60), "some processor", cores=12)
    assert set_by_hand.watts == pytest.approx(15) and "60 W as set" in set_by_hand.how
    known = rated_power(2, name="AMD EPYC 7763 64-Core Processor", cores=2)
    assert known.watts == pytest.approx(280 * 2 / 64) and "rated 280 W of EPYC 7763" in known.how
    assumed = rated_power(2, name="AMD EPYC", cores=2)
    assert assumed.watts == pytest.approx(10) and "is not known: 5 W a core assumed" in assumed.how


def test_a_bill_by_hand() -> None:
    prices = Prices(electricity=0.30, carbon=50, machine=2.0, overhead=1.5, watts=120)
    found = bill(7200, 10**6, prices)  # two hours of all cores
    assert found.kilowatt_hours == pytest.approx(0.12 * 2 * 1.5)
    assert found.dollars == pytest.approx(0.36 * 0.30 + 2 * 2.0) and found.grams == pytest.approx(0.36 * 50)
    measured = bill(7200, 1, prices, measured=3.6e6)
    assert measured.kilowatt_hours == pytest.approx(1.5) and "measured by RAPL" in measured.how


# --- Published models


def test_configurations_say_as_many_parameters_as_models_have() -> None:
    with torch.device("meta"):
        gpt = GPT(GPT2Config(layers=3, width=28, heads=7, feed_forward=53, max_length=19), 37)
        transformer = Transformer(TransformerConfig(
            encoder_layers=2, decoder_layers=3, width=28, heads=7, feed_forward=53, norm="post", tied="all"), 37, 37
        )  # fmt: skip
    for model in (gpt, transformer):
        assert parameters_of(model.config, 37) == sum(parameter.numel() for parameter in model.parameters())
    # as Hugging Face's models of these names have
    known = {"gpt-2": 124_439_808, "gpt-2-medium": 354_823_168, "gpt-2-large": 774_030_080, "gpt-2-xl": 1_557_611_200}
    assert {name: paper_cost(PUBLISHED[name]).parameters for name in known} == known


def test_operations_on_paper_are_those_that_a_model_does() -> None:
    gpt = GPT(GPT2Config(layers=3, width=28, heads=7, feed_forward=53, max_length=19), 37).eval()
    ids = torch.randint(5, 37, (2, 11))
    with torch.no_grad():
        counted = multiply_adds_of(lambda: gpt.output(gpt.read(ids)))
    assert 2 * counted == 2 * 11 * forward_operations(gpt.config, 37, 11)
    config = TransformerConfig(
        encoder_layers=2, decoder_layers=3, width=28, heads=7, feed_forward=53, norm="post", tied="all"
    )
    model, lengths = Transformer(config, 37, 37).eval(), torch.tensor([11, 11])
    batch = PairBatch(ids, lengths, torch.randint(5, 37, (2, 12)), lengths, 22)
    with torch.no_grad():
        counted = multiply_adds_of(lambda: model(batch))
    assert 2 * counted == 2 * 11 * forward_operations(config, 37, 11)


def test_papers_arithmetic() -> None:
    """What papers state follows from what else they state, and is near what their configurations say."""
    base, big, gpt3 = (paper_cost(PUBLISHED[name]) for name in ("transformer-base", "transformer-big", "gpt-3"))
    assert pytest.approx(base.model.stated["training"].value, rel=0.01) == 8 * 12 * 3600 * 9.5e12
    assert pytest.approx(big.model.stated["training"].value, rel=0.01) == 8 * 84 * 3600 * 9.5e12
    assert gpt3.rule == pytest.approx(gpt3.model.stated["training"].value, rel=0.002)
    assert pytest.approx(gpt3.model.stated["kilowatt_hours"].value, rel=0.01) == 10_000 * 14.8 * 24 * 0.330 * 1.1
    assert pytest.approx(base.model.stated["kilowatt_hours"].value, rel=0.02) == 12 * 1.41578 * 1.58
    for each in (base, big, gpt3):
        assert each.parameters == pytest.approx(each.model.stated["parameters"].value, rel=0.04)
        assert each.training is not None and each.training == pytest.approx(each.rule, rel=0.04)
        assert 0.25 < each.training / each.model.stated["training"].value < 1.1


# --- Of a run, and the verb


def test_a_run_tells_what_it_cost(tiny_run: RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    found = cost_of(tiny_run.folder, Prices(watts=50, carbon=100))
    assert found.counted_on.endswith("of its own training batches") and found.unit == "tokens"
    assert found.steps == tiny_run.outcome.progress.step and found.learned == tiny_run.outcome.progress.tokens
    assert found.operations == pytest.approx(found.training * found.learned) and found.forward < found.training
    assert found.bill is not None and found.bill.seconds == pytest.approx(tiny_run.outcome.progress.seconds)
    assert sum(row.training for row in found.blocks()) == pytest.approx(found.training, rel=0.01)
    folder = str(tiny_run.folder)
    assert run(["cost", folder, "--watts", "50", "--carbon", "100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["operations"] == pytest.approx(found.operations)
    assert told["bill"]["grams"] == pytest.approx(told["bill"]["joules"] / 3.6e6 * 100)
    assert told["layers"][0].keys() == {"path", "kind", "forward", "training", "share"}
    assert run(["cost", folder]) == 0
    out, err = capsys.readouterr()
    assert "decoder.0" in out and "of CO2" in out and "--electricity" in err
    assert run(["cost", str(tiny_run.best)]) == 0
    out, err = capsys.readouterr()
    assert "random inputs of its task" in out and "does not tell how long it learned" in err


def test_measured_energy_is_taken_where_every_row_has_it(tmp_path: Path) -> None:
    rows = [{"step": 10, "seconds": 2.0, "joules": 30.0}, {"step": 20, "seconds": 4.0, "joules": 34.0}]
    clock = tmp_path / "clock.jsonl"
    clock.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert measured_joules(tmp_path, 5.0) == pytest.approx(64 * 5 / 4)
    clock.write_text("".join(json.dumps(row) + "\n" for row in [rows[0], {"step": 20, "seconds": 4.0}]))
    assert measured_joules(tmp_path, 5.0) is None


def test_the_verb_on_published_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "list", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == list(PUBLISHED)
    assert run(["cost", "list"]) == 0 and "174,604" in capsys.readouterr().out
    assert run(["cost", "gpt-3", "--carbon", "429"]) == 0
    out, err = capsys.readouterr()
    assert "table D.1" in out and "3.14e+23" in out and "Patterson" in err
    assert run(["cost", "gpt-3x"]) == 2 and "did you mean gpt-3" in capsys.readouterr().err
    assert run(["cost", "gpt-3", "--carbon", "-1"]) == 2 and "carbon" in capsys.readouterr().err
