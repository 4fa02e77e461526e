"""A training on paper: counts held against published formulas and torch's own bookkeeping, exchanges against a walked ring."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.bench.hardware import GPUS, LINKS, Gpu, Link, all_reduce, gather
from regard.bench.plan import Assumptions, Estimate, Layout, Machine, Workload, estimate, layouts, make_plan
from regard.bench.published import PUBLISHED, forward_operations, parameters_of
from regard.bench.workload import configured, kept, kept_by_block, kept_by_memory, workload_of
from regard.cli.main import run
from regard.data.batch import PairBatch, TextBatch
from regard.errors import UsageError
from regard.models.table import build
from regard.tasks.configure import run_config
from regard.tasks.run import RunResult

BARE = Assumptions(share=0.5, link_share=1.0, overlap=0.0, reserved=0.0, fragments=1.0, trees=False)
CHIP = Gpu("chip", "a chip", 0, 2e9, 1e9, "wire", "made up")
WIRE, ROAD = Link("wire", "", 1e6, 1e-3, ""), Link("road", "", 1e5, 7e-3, "")
WORK = Workload("made up", 11_000, 3_000, 5, 7_000, 500, (300.0, 170.0), 8, 130, steps=17, vocabulary=31)


@pytest.fixture
def plan_of(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def plan_of(*words: object) -> Any:
        assert run(["plan", *map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return plan_of


# --- What a model costs


@pytest.mark.parametrize("name", ["gpt-2", "transformer-base"])
def test_models_are_counted_as_published_formulas_count_them(name: str) -> None:
    model = PUBLISHED[name]
    task = "generate" if name == "gpt-2" else "translate"
    over = {"model": model.config.model_dump(), "tokens": {"size": model.vocabulary}, "train": {"optimiser": "adam"}}
    config = run_config(task, over)
    vocabulary = (model.vocabulary,) * (1 if task == "generate" else 2)
    work = workload_of(name, config, vocabulary, model.context)
    assert work.parameters == parameters_of(model.config, model.vocabulary)
    assert 2 * (work.matrices + work.pairs) == forward_operations(model.config, model.vocabulary, model.context)
    assert work.operations == 3 * forward_operations(model.config, model.vocabulary, model.context) * work.tokens
    places = 0 if task == "translate" else model.config.max_length
    assert work.largest_unit == (model.vocabulary + places) * model.config.width  # the tables, in this case
    assert work.state == 8


def saved_bytes(model: torch.nn.Module, batch: Any, half: bool) -> int:
    """The bytes that torch keeps for the backward pass, parameters not counted."""
    own, found, alive = {weight.untyped_storage().data_ptr() for weight in model.parameters()}, dict[int, int](), []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # nothing else may come to lie at its address
        return tensor

    precision = torch.autocast("cpu", torch.bfloat16) if half else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), precision:
        model(batch)
    return sum(found.values())


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("kind", "over"),
    [
        ("gpt2", {"dropout": 0.0}),
        ("llama", {"dropout": 0.1, "width": 28}),
        ("transformer", {"dropout": 0.1}),
        ("transformer", {"dropout": 0.0}),
    ],
)
def test_what_waits_for_the_backward_pass_is_what_torch_saves(
    kind: str, over: dict[str, Any], half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.modules["regard.attention.attend"], "_products_are_better", lambda q, k: False
    )  # as on a GPU
    task, (rows, length), found = "translate" if kind == "transformer" else "generate", (31, 67), []
    sizes = {"width": 26, "heads": 2, "feed_forward": 37, **over}
    key = "decoder_layers" if kind == "transformer" else "layers"
    for layers in (1, 2):
        deep = {"encoder_layers": 1, key: layers} if kind == "transformer" else {key: layers}
        config = run_config(task, {"model": {"kind": kind, **sizes, **deep}})
        model = build(task, config.model, (97, 97) if task == "translate" else (97,)).train()
        ids, lengths = torch.randint(5, 97, (rows, length + 1)), torch.full((rows,), length)
        batch: Any = TextBatch(ids, lengths, rows * length)
        if task == "translate":
            batch = PairBatch(ids[:, 1:], lengths, ids, lengths, rows * length)
        found.append(saved_bytes(model, batch, half))
        predicted = kept_by_block(config.model, half)  # type: ignore[arg-type]
        if task == "translate":
            predicted += kept_by_memory(config.model, half)  # type: ignore[arg-type]
    per_token = (found[1] - found[0]) / (rows * length)
    attentions = 2 if task == "translate" else 1
    sums = attentions * 2 * 4 + (attentions + 1) * (4 if kind == "llama" else 8)  # of each softmax's head, of each norm
    if half:  # casts of weights, and of a few more numbers
        assert 0.97 * predicted <= per_token <= 1.12 * (predicted + sums)
    else:
        assert per_token == predicted + sums


def test_reversible_blocks_keep_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run_config("generate", {"model": {"kind": "gpt2", "layers": 7}}).model
    reversible = plain.model_copy(update={"reversible": True})
    outside = 12 * plain.width
    assert kept(plain, False) - outside == 7 * (kept(reversible, False) - outside)  # type: ignore[arg-type]


# --- What passes between ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_ring_that_is_walked_sends_what_the_formula_says(ranks: int) -> None:
    """Every rank adds up and hands on one part at a time: all then have the sum, after so many messages of so many bytes."""
    parts = torch.randn(ranks, ranks, dtype=torch.float64)  # rank, part: one number stands for size / ranks bytes
    held, messages = parts.clone(), 0
    for step in range(2 * (ranks - 1)):
        before = held.clone()
        for rank in range(ranks):
            part = (rank - step) % ranks if step < ranks - 1 else (rank + 1 - (step - ranks + 1)) % ranks
            to = (rank + 1) % ranks
            held[to, part] = before[rank, part] + (before[to, part] if step < ranks - 1 else 0)
        messages += 1
    assert torch.allclose(held, parts.sum(0).expand(ranks, ranks))
    size = 60_000
    assert all_reduce(size, ranks, WIRE) == pytest.approx(messages * (WIRE.latency + size / ranks / WIRE.bytes))
    assert gather(size, ranks, WIRE) == pytest.approx(all_reduce(size, ranks, WIRE) / 2)


def test_trees_wait_for_fewer_messages_and_send_as_much() -> None:
    still = Link("", "", 1e6, 0.0, "")
    for ranks, messages in ((2, 2), (3, 4), (8, 6), (1000, 20)):
        assert all_reduce(7e3, ranks, still, trees=True) == all_reduce(7e3, ranks, still)
        assert all_reduce(0, ranks, WIRE, trees=True) == pytest.approx(messages * WIRE.latency)


def test_a_published_training_is_as_fast_and_as_large_as_it_says(plan_of: Callable[..., Any]) -> None:
    """TinyLlama (Zhang et al. 2024; its repository): 24,000 tokens a second on each of 16 A100 of 40 GB, which is 56% of
    their operations, with batches of 16,384 tokens on each; sharded, which fits."""
    config = Path(__file__).parent.parent / "configs" / "scale" / "llama-1b.toml"
    words = ("--gpus", 16, "--gpu", "a100-40", "--each", 16_384, "--share", 0.56, "--adapters", 8)
    found = next(each for each in plan_of(config, *words)["layouts"] if each["layout"] == "sharded")
    assert found["fits"] and found["accumulate"] == 1
    assert 16_384 / found["step"] == pytest.approx(24_000, rel=0.02)


def test_layouts_of_one_of_a_few_and_of_several_machines() -> None:
    def names(ranks: int) -> list[str]:
        return [each.name for each in layouts(ranks, 4)]

    assert names(1) == ["replicated"]
    assert names(3) == ["replicated", "shared-state", "sharded"]
    assert names(8) == ["replicated", "shared-state", "node-sharded", "sharded"]
    assert names(6) == ["replicated", "shared-state", "sharded"]  # no whole machines


def of(ranks: int, name: str, machine: Machine, work: Workload = WORK) -> Estimate:
    layout = next(each for each in layouts(ranks, machine.per_node) if each.name == name)
    return estimate(work, machine, layout, ranks, False)


def test_every_term_of_each_layout_by_hand() -> None:
    machine = Machine(CHIP, WIRE, ROAD, 2, 1, BARE)
    size = 4 * 11_000
    compute = 3 * 2 * 7_500 * 130 / 4 / (2e9 * 0.5)
    tokens = 130 / 4
    activations = tokens * 300 + tokens * 31 * 4

    plain = of(4, "replicated", machine)
    assert plain.compute == pytest.approx(compute)
    assert plain.exchange == pytest.approx(2 * 3 * (7e-3 + size / 4 / 1e5)) and plain.sent == pytest.approx(1.5 * size)
    assert plain.step == pytest.approx(compute + plain.exchange)
    assert plain.memory.total == pytest.approx(16 * 11_000 + activations)

    all_sharded = of(4, "sharded", machine)
    once = 5 * 3 * (7e-3 + size / 5 / 4 / 1e5)
    assert all_sharded.exchange == pytest.approx(3 * once) and all_sharded.sent == pytest.approx(3 * 0.75 * size)
    own, whole = 16 * 11_000 / 4, 2 * 3_000 * 4 + 3_000 * 4  # two gathered units, and the gradient of one
    assert all_sharded.memory.total == pytest.approx(own + whole + activations)

    kept_whole = of(4, "shared-state", machine)
    assert kept_whole.exchange == pytest.approx(2 * once)
    assert kept_whole.memory.total == pytest.approx(own + 4 * 11_000 + 3_000 * 4 + activations)

    mixed = of(4, "node-sharded", machine)
    inside = 5 * (1e-3 + size / 5 / 2 / 1e6)
    across = 5 * 2 * (7e-3 + size / 2 / 5 / 2 / (1e5 / 2))  # both ranks of a machine share its adapter
    assert mixed.exchange == pytest.approx(3 * inside + across)
    assert mixed.sent == pytest.approx(3 * 0.5 * size + size / 2)
    assert mixed.memory.total == pytest.approx(16 * 11_000 / 2 + whole + activations)


def test_an_exchange_hides_behind_computing_but_for_its_end() -> None:
    machine = Machine(CHIP, Link("", "", 1e9, 0, ""), ROAD, 8, 1, Assumptions(0.5, 1.0, 1.0, 0.0, False, 1.0))
    big = Workload("big", 50_000_000, 10**6, 10, 5, 0, (1.0, 1.0), 8, 10**9)
    found = of(2, "replicated", machine, big)
    assert found.exchange == pytest.approx(0.2) and found.compute > 1
    assert found.step - found.compute == pytest.approx(0.2 / (2e8 / (25 * 2**20)))  # the last bucket
    slow = Machine(CHIP, Link("", "", 1e6, 0, ""), ROAD, 8, 1, Assumptions(0.5, 1.0, 1.0, 0.0, False, 1.0))
    found = of(2, "replicated", slow, big)
    assert found.step == pytest.approx(found.compute + found.exchange - 2 / 3 * found.compute)


# --- The choice


def test_the_fastest_that_fits_is_taken_and_what_does_not_fit_is_said() -> None:
    roomy, tight = 10**6, 100_000
    for memory, expected in ((roomy, "replicated"), (tight, "sharded"), (50_000, None)):
        chip = Gpu("chip", "a chip", 0, 2e9, memory, "wire", "")
        plan = make_plan(WORK, Machine(chip, WIRE, ROAD, 8, 1, BARE), 4, False, price=3.0)
        best = plan.best
        assert (None if best is None else best.layout.name) == expected
        assert json.loads(json.dumps(plan.data()))["best"] == expected
        if best is None:
            assert plan.why().startswith("nothing fits: sharded needs the least")
            continue
        assert plan.dollars(best) == pytest.approx(best.step * 17 / 3600 * 4 * 3)
        assert ("replicated and shared-state would not fit" in plan.why()) == (memory == tight)


def test_an_update_is_made_of_as_few_batches_as_fit() -> None:
    """Weights, gradients and optimiser take 176,000 bytes; activations of 130/4 tokens 13,780, of a half of them 6,890."""
    for room, batches in ((190_000, 1), (189_000, 2), (180_000, 4), (176_000, 1)):
        chip = Gpu("chip", "a chip", 0, 2e9, room, "wire", "")
        found = of(4, "replicated", Machine(chip, WIRE, ROAD, 8, 1, BARE))
        assert (found.accumulate, found.fits) == (batches, room > 176_000)
    sharded = of(4, "sharded", Machine(Gpu("chip", "", 0, 2e9, 90_000, "wire", ""), WIRE, ROAD, 8, 1, BARE))
    once = 5 * 3 * (1e-3 + 44_000 / 5 / 4 / 1e6)
    assert sharded.accumulate == 2 and sharded.exchange == pytest.approx((2 * 2 + 1) * once)  # gathered for each batch


def test_with_tokens_of_its_own_each_rank_computes_as_long_however_many_there_are() -> None:
    machine = Machine(CHIP, WIRE, ROAD, 8, 1, BARE)
    weak = make_plan(WORK, machine, 4, False, each=130)
    assert weak.work.tokens == 520 and len({round(each.compute, 12) for each in weak.growth}) == 1
    strong = make_plan(WORK, machine, 4, False)
    alone, many = strong.growth[0], strong.growth[-1]
    assert alone.efficiency == 1 and many.ranks == 1024 and alone.compute == pytest.approx(1024 * many.compute)


def test_a_plan_is_drawn_over_the_number_of_ranks(tmp_path: Path) -> None:
    plan = make_plan(WORK, Machine(CHIP, WIRE, ROAD, 8, 1, BARE), 4, False)
    view = plan.picture()
    assert view.efficiency["replicated"][0] == 100
    assert list(view.efficiency) == ["replicated", "shared-state", "sharded", "node-sharded"]
    assert torch.tensor(view.seconds["node-sharded"]).isnan().tolist() == [True] * 4 + [False] * 7
    assert json.loads(view.save(tmp_path / "plan.json").read_text())["ranks"][-1] == 1024
    assert "efficiency" in view.text(100)


# --- The command


def test_constants_have_a_source_each() -> None:
    assert all(each.source and each.inside in LINKS and each.float32 > 0 for each in GPUS.values())
    assert all(each.source and each.bytes > 0 and each.latency > 0 for each in LINKS.values())


def test_a_preset_a_file_a_run_and_a_bundle_are_planned(
    plan_of: Callable[..., Any], tiny_run: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = plan_of("base", "--gpus", 64, "--price", 2, "--set", "train.batch_tokens=65536")
    assert many["precision"] == "bf16" and many["tokens_each"] == 1024 and len(many["layouts"]) == 4
    (tmp_path / "mine.toml").write_text('task = "translate"\npreset = "base"\n[train]\nbatch_tokens = 65536\n')
    same = plan_of(tmp_path / "mine.toml", "--gpus", 64, "--price", 2)
    assert same["layouts"] == many["layouts"]
    float32 = plan_of("base", "--gpus", 64, "--gpu", "v100", "--set", "train.batch_tokens=65536")
    assert float32["precision"] == "float32"  # a V100 has no bf16
    count = sum(weight.numel() for weight in tiny_run.load().model.parameters())
    for place in (tiny_run.folder, tiny_run.best):
        assert plan_of(place, "--gpus", 2)["model"]["parameters"] == count
    assert plan_of(tiny_run.folder, "--gpus", 2)["model"]["tokens"] == 512
    assert run(["plan", "base", "--model", "llama", "--gpus", "8", "--price", "1"]) == 0
    out = capsys.readouterr().out
    assert "88.1 million parameters" in out and "dollars" in out and "replicated" in out
    assert run(["plan", "--gpu", "list"]) == 0 and "NVIDIA's data sheet" in capsys.readouterr().out


def test_processes_of_this_machine_share_its_cores_and_memory(
    plan_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.doctor.matrix_speed", lambda seconds: 3.0)
    monkeypatch.setattr("regard.doctor.cores", lambda: 2)
    monkeypatch.setattr("regard.doctor.memory", lambda: (8 * 10**9, 1))
    for ranks, speed in ((1, 3e9), (2, 3e9), (5, 1.2e9)):
        gpu = plan_of("tiny", "--gpu", "cpu", "--gpus", ranks)["machine"]["gpu"]
        assert (gpu["float32"], gpu["memory"]) == (pytest.approx(speed), pytest.approx(8e9 / ranks))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "plan needs a model"),
        (("base", "--gpu", "a1000"), "no accelerator a1000; did you mean a100"),
        (("base", "--between", "ethernet"), "no link ethernet; did you mean ethernet-1"),
        (("base", "--gpu", "custom", "--rate", "3"), "--gpu custom --rate 100 --memory 24"),
        (("base", "--rate", "3"), "describe an accelerator of your own"),
        (("base", "--model", "bahdanau"), "plan counts Transformers of tokens, not a bahdanau"),
        (("base", "-o", "plan.txt"), "cannot tell how to write plan.txt"),
    ],
)
def test_mistakes_get_a_line(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *words]) == 2
    assert message in capsys.readouterr().err


def test_experts_are_not_counted_wrong() -> None:
    config, vocabulary = configured("tiny", "gpt2", {}, ["model.experts=3"])
    with pytest.raises(UsageError, match="not a gpt2 with experts"):
        workload_of("tiny", config, vocabulary)


def test_a_layout_says_its_name() -> None:
    assert all(isinstance(each, Layout) and each.title for each in layouts(16, 8))
