"""`regard bench RUN`: every task is measured, the counts are those of a hand, and the advice follows from the figures."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from test_json import EXAMPLES, bundles, kind, typed
from torch.nn.functional import scaled_dot_product_attention

from regard.bench.model import (
    Clock,
    Decoding,
    ThreadCost,
    Training,
    advice,
    bench_model,
    matrix_limit,
    timed,
    train_config,
    using_threads,
)
from regard.bundle import save_bundle
from regard.cli.main import run
from regard.models.operations import multiply_adds_of
from regard.tasks.run import RunResult
from regard.training.config import TrainConfig

BUNDLES = bundles()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bench")
    for task, bundle in BUNDLES.items():
        save_bundle(place / task, bundle)
    return place


@pytest.mark.parametrize("task", BUNDLES)
def test_every_task_is_measured(task: str, folder: Path) -> None:
    found = bench_model(folder / task, budget=0.5, threads=1)
    assert (found.task, found.kind) == (task, BUNDLES[task].config.model.kind)
    assert found.parameters == sum(parameter.numel() for parameter in BUNDLES[task].model.parameters())
    assert found.cold_load is None and found.load > 0 and found.limit > 0 and found.threads == ()
    loaded, decoding, training = (found.memory[name] for name in ("loaded", "decoding", "training"))
    assert 0 < loaded <= decoding <= training
    writes = task in ("translate", "generate", "caption")
    for rate in found.decoding:
        assert rate.inputs_per_second > 0 and (rate.tokens_per_second is not None) == writes
    for each in found.latency:
        assert 0 < each.p50 <= each.p90 <= each.p99
    assert found.training and all(each.updates_per_second > 0 and each.share > 0 for each in found.training)
    assert (found.training[0].tokens_per_second is None) == (task in ("classify-pictures", "classify-graphs"))
    assert found.advice


def test_a_beam_is_measured_beside_greedy_search(folder: Path) -> None:
    found = bench_model(folder / "translate", budget=0.5, threads=1)
    assert [each.way for each in found.latency] == ["greedy", f"beam {BUNDLES['translate'].config.decode.beam}"]


def test_the_page_shows_what_bench_prints(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = ["--budget", "0.5s", "--threads", "1"]
    found = json.loads(typed(capsys, "bench", "./translate", *words, "--json"))
    page = EXAMPLES["bench"] | {"cold_load": None, "threads": []}  # so little time, and one thread
    assert kind(found) == kind(page)
    shown = typed(capsys, "bench", *words, "translate")
    for part in ("transformer to translate", "inputs/s", "p99", "updates/s", "GFLOP/s"):
        assert part in shown


def test_a_run_a_command_and_a_mistake_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "atention"]) == 2 and "did you mean attention" in capsys.readouterr().err
    assert run(["bench", "no/such/run"]) != 0 and "no/such/run" in capsys.readouterr().err
    assert run(["bench", "--budget", "soon", "no/such/run"]) == 2 and "--budget soon" in capsys.readouterr().err
    assert run(["bench", "attention", "--kernels", "exakt"]) == 2 and "no kernel exakt" in capsys.readouterr().err


def test_the_settings_of_a_run_are_those_it_learned_with(tiny_run: RunResult) -> None:
    learned = json.loads((tiny_run.folder / "run.json").read_text())["config"]["train"]
    assert train_config(tiny_run.folder).batch_tokens == learned["batch_tokens"]
    assert train_config(tiny_run.best) == TrainConfig()


# --- Counting and timing


def test_products_are_counted_there_and_back() -> None:
    x, weight = torch.randn(3, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    assert multiply_adds_of(lambda: x @ weight) == 3 * 5 * 7
    assert multiply_adds_of(lambda: (x @ weight).sum().backward()) == 3 * (3 * 5 * 7)  # and the gradient of each factor
    q, k, v = (torch.randn(2, 3, length, 8, requires_grad=True) for length in (5, 7, 7))
    once = 2 * 3 * 5 * 7 * 8  # one product of attention
    assert multiply_adds_of(lambda: scaled_dot_product_attention(q, k, v)) == 2 * once
    there_and_back = multiply_adds_of(lambda: scaled_dot_product_attention(q, k, v).sum().backward())
    assert there_and_back == (2 + 5) * once  # scores again, and the gradients of weights, values, queries and keys


def test_what_is_timed_warms_up_and_ends_in_time() -> None:
    spans = timed(lambda: time.sleep(0.002), 0.05)
    assert 1 <= len(spans) <= 25 and all(span >= 0.002 for span in spans)
    assert len(timed(lambda: time.sleep(0.03), 0.01, least=3)) == 1  # one was too long already
    clock = Clock(0.05)
    assert clock.share(0.5) == pytest.approx(0.025)
    time.sleep(0.06)
    assert clock.share(0.5) == 0


def test_the_limit_is_a_rate_and_threads_come_back() -> None:
    before = torch.get_num_threads()
    with using_threads(1):
        assert torch.get_num_threads() == 1 and matrix_limit(0.01, torch.device("cpu")) > 1e6
    assert torch.get_num_threads() == before


def test_advice_follows_from_the_figures() -> None:
    rates = [
        Decoding("greedy", batch, rate, None, 3) for batch, rate in ((1, 10.0), (8, 60.0), (32, 95.0), (128, 100.0))
    ]
    costs = [ThreadCost("decoding", 2, 100.0), ThreadCost("decoding", 1, 99.0)]
    costs += [ThreadCost("training", 2, 3.0), ThreadCost("training", 1, 2.0)]
    told = list(advice(rates, [Training(64, 3.0, 500.0, 0.41, 3)], costs, 2))
    assert told[0].startswith("ask for 32 inputs together: 9.5 times")  # 128 is not clearly faster
    assert "decoding: 2 threads are as fast as one; OMP_NUM_THREADS=1" in told[1]
    assert told[2] == "training: OMP_NUM_THREADS=2 is 1.5 times as fast as 1"
    assert "41%" in told[3]
    slow: Any = [Decoding("labels", 1, 10.0, None, 3), Decoding("labels", 8, 10.2, None, 3)]
    assert list(advice(slow, [], [], 1)) == ["inputs one by one are as fast as many together"]
