"""A verdict on a run that has ended: what became of it, and what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_timetable import timed

from regard.cli.ended import next_step
from regard.files import write_json
from regard.tasks.configure import run_config
from regard.tasks.run import RunResult
from regard.training.verdict import not_useful, overfitting_since, verdict_on


def log_of(values: list[float], metric: str = "loss", **more: object) -> list[dict[str, Any]]:
    return [{"kind": "valid", "step": 100 * n, "loss": 2.0, metric: value, **more} for n, value in enumerate(values, 1)]


LEVEL = [3.0, 2.4, 2.1, 2.02, 2.0, 2.0, 2.0, 2.0]
STEEP = [6.0, 5.0, 4.4, 4.0, 3.7, 3.45, 3.25, 3.1]


def test_verdicts_on_losses() -> None:
    good = verdict_on(log_of(LEVEL), timed(budget=900.0), {"loss": 2.0}, 8.0)
    assert good.state == "good" and not good.learning
    fast = verdict_on(log_of(STEEP), timed(budget=900.0), {"loss": 3.1}, 8.0)
    assert fast.state == "still learning fast" and fast.learning and "20 min more" in fast.why and fast.gain > 0.1
    near = verdict_on(log_of(STEEP), timed(budget=900.0), {"loss": 3.1}, 4.0)
    assert near.state == "not yet useful" and near.learning and "how frequent tokens are" in near.why
    tuned = verdict_on(log_of(STEEP), timed(budget=900.0), {"loss": 3.1}, 4.0, fresh=False)
    assert tuned.state == "still learning fast"  # it began where another had ended
    risen = verdict_on(log_of([3.0, 2.5, 2.4, 2.6, 2.8, 3.0]), timed(), {"loss": 2.4}, 8.0)
    assert risen.state == "overfitting" and not risen.learning
    assert risen.why == "since step 300 the validation loss rose, from 2.400 to 3.000"


def test_of_one_validation_nothing_can_be_told_but_that_it_learns() -> None:
    found = verdict_on(log_of([3.0]), timed(), {"loss": 3.0}, 8.0)
    assert (found.state, found.learning, found.gain) == ("still learning fast", True, 0.0)
    assert "only validation" in found.why
    far = [{"kind": "valid", "step": 24, "loss": 2.1}, {"kind": "valid", "step": 405, "loss": 0.3}]
    assert verdict_on(far, timed(), {"loss": 0.3}, 3.0).state == "still learning fast"  # not good


def test_an_overfitting_loss_has_risen_clearly_and_for_a_while() -> None:
    assert overfitting_since(log_of([3.0, 2.5, 2.6])) is None
    assert overfitting_since(log_of([3.0, 2.5, 2.51, 2.52])) is None
    assert overfitting_since(log_of([3.0, 2.5, 2.6, 2.7])) == 200


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"loss": 5.0, "bleu": 2.1}, "bleu 2.1 is below 5"),
        ({"loss": 5.0, "bleu": 7.0}, ""),
        ({"loss": 1.0, "bleu4": 30.0, "exact": 0.0}, "not one answer is exact"),
        ({"loss": 1.0, "accuracy": 63.0, "majority": 60.0}, "most frequent label"),
        ({"loss": 1.0, "accuracy": 65.0, "majority": 60.0}, ""),
        (
            {"loss": 1.0, "accuracy": 33.0, "majority": 12.0, "latest": 63.0},
            "no better than always giving the answer that",
        ),
        ({"loss": 1.0, "accuracy": 33.0, "majority": 32.0, "latest": 5.0}, "most frequent label"),
        ({"loss": 1.0, "accuracy": 80.0, "majority": 12.0, "latest": 63.0}, ""),
        ({"loss": 6.7, "accuracy": 20.0}, "guessing"),
        ({"loss": 4.0, "accuracy": 20.0}, ""),
        ({"loss": 6.7}, "how frequent tokens are"),
        ({"loss": 4.0}, ""),
    ],
)
def test_models_that_are_of_no_use_yet(metrics: dict[str, float], why: str) -> None:
    found = not_useful(metrics, {"accuracy": 2.0}, 7.0)
    assert why in found and bool(found) == bool(why)


def test_a_verdict_holds_the_forecast_of_half_way_against_what_came() -> None:
    rows = log_of([2.0, 9.0, 14.0, 18.0, 20.0, 21.5, 22.5, 22.8], "bleu", errors={"bleu": 0.8})
    rows.insert(4, {"kind": "outlook", "step": 400, "share": 0.5, "expected": {"bleu": [21.0, 24.0], "loss": [1, 2]}})
    found = verdict_on(rows, timed(select="bleu"), {"loss": 2.0, "bleu": 22.8}, 8.0)
    assert found.came == "bleu 21.0 to 24.0; came 22.8"
    assert found.data()["forecast"] == [21.0, 24.0]


@pytest.mark.parametrize(("kind", "advised"), [("lstm", True), ("turing-machine", False)])
def test_dropout_is_advised_only_to_a_model_that_has_some(kind: str, advised: bool, tmp_path: Path) -> None:
    config = run_config("remember", {"model": {"kind": kind}})
    write_json(tmp_path / "run.json", {"config": config.model_dump(mode="json")})
    risen = verdict_on(log_of([3.0, 2.5, 2.4, 2.6, 2.8, 3.0]), timed(), {"loss": 2.4}, 8.0)
    found = next_step(risen, RunResult(tmp_path, None, "remember"))  # type: ignore[arg-type]
    assert ("model.dropout" in found) == advised and found.startswith("more data, or ")
