"""What to expect of a run: intervals hold as often as they say, and a verdict says what to do. Oracles are made curves."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from test_benchmarks import ROOT, loaded
from test_timetable import killed_at, run, slow_job, timed

from regard.look.figures.curves import draw
from regard.training.config import TrainConfig
from regard.training.events import Event, Expected, Outlook
from regard.training.history import RunLog
from regard.training.outlook import (
    Interval,
    curve_of,
    gain_of_longer,
    half_way,
    interval_at_end,
    longer_by,
    more_of,
    more_seconds,
    outlook_row,
)
from regard.training.show import LiveTable, PlainLines, outlook_line

STEPS = 1200


def made_curve(draw: np.random.Generator, falls: float = 0.5) -> list[tuple[float, float]]:
    """Validations of a made run: a power of the time, what large steps cost until the rate has fallen, and some noise."""
    floor, height, power = draw.uniform(0.3, 3.0), draw.uniform(2.0, 8.0), draw.uniform(0.25, 0.6)
    cost, noise = draw.uniform(0.0, 0.09), draw.uniform(0.001, 0.01)  # chosen so that about 8 of 10 hold half way
    found = []
    for step in range(100, STEPS + 1, 100):
        rate = min(1.0, (1 - step / STEPS) / falls)
        value = (floor + height * (step / 20) ** -power) * (1 + cost * rate)
        found.append((float(step), value * math.exp(noise * draw.standard_normal())))
    return found


def foretold(points: list[tuple[float, float]], share: float, rate: float, metric: str = "loss") -> Interval | None:
    """The interval from validations; where the metric is a score, the loss is how much of it is missing."""
    rows = [{"kind": "valid", "step": step, "loss": (101 - value) / 50, metric: value} for step, value in points]
    curve = curve_of(rows, metric)
    return None if curve is None else interval_at_end(curve, share, rate)


@pytest.mark.parametrize("share", [0.5, 0.75])
def test_intervals_hold_for_about_8_of_10_made_runs(share: float) -> None:
    draw, held, widths = np.random.default_rng(7), 0, []
    for _ in range(200):
        curve = made_curve(draw)
        seen = [point for point in curve if point[0] <= share * STEPS]
        found = foretold(seen, share, min(1.0, 2 * (1 - share)))
        assert found is not None
        end = min(value for _, value in curve)
        held += found.low <= end <= found.high
        widths.append((found.high - found.low) / end)
    assert 130 <= held <= 190
    assert np.median(widths) < 0.25  # one that says something


def test_intervals_hold_for_about_8_of_10_recorded_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = json.loads((ROOT / "docs" / "results" / "forecasts.json").read_text(encoding="utf-8"))
    found = loaded(ROOT / "benchmarks" / "forecasts.py", monkeypatch).report(kept["runs"])
    assert found == kept["report"]
    for kind in ("loss all", "score all"):
        assert 13 / 20 <= found[kind]["held"] / found[kind]["runs"] <= 19 / 20 and found[kind]["runs"] >= 40


def test_a_loss_that_rises_is_not_foretold_to_fall() -> None:
    points = [(100.0 * n, 3.0 + 0.2 * abs(n - 3)) for n in range(1, 8)]
    found = foretold(points, 0.6, 0.8)
    assert found is not None
    assert found.high == pytest.approx(3.0) and found.low > 2.9  # the best weights are kept


def test_nothing_is_said_too_early_nor_of_unknown_metrics() -> None:
    points = [(100.0 * n, 4.0 / n) for n in range(1, 6)]
    assert foretold(points[:2], 0.5, 1.0) is None
    assert foretold(points, 0.2, 1.0) is None
    assert foretold(points, 0.5, 1.0, "my_own") is None
    assert foretold(points, 0.5, 1.0) is not None


def test_scores_stay_between_0_and_100() -> None:
    steep = [(100.0 * n, value) for n, value in enumerate((40.0, 80.0, 96.0, 99.0), 1)]
    flat = [(100.0 * n, 0.0) for n in range(1, 5)]
    for points in (steep, flat):
        found = foretold(points, 0.4, 1.0, "accuracy")
        assert found is not None and 0 <= found.low <= found.middle <= found.high <= 100
    assert foretold(steep, 0.4, 1.0, "accuracy").low > 98  # type: ignore[union-attr]


def test_more_time_gains_less_the_flatter_the_curve() -> None:
    steep = [(100.0 * n, 5.0 - math.log(n)) for n in range(1, 9)]
    flat = [(100.0 * n, 5.0 - 0.1 * math.log(n)) for n in range(1, 9)]
    risen = [(100.0 * n, 5.0 + 0.1 * n) for n in range(1, 9)]
    gains = []
    for points in (steep, flat, risen):
        curve = curve_of([{"kind": "valid", "step": step, "loss": value} for step, value in points], "loss")
        assert curve is not None
        gains.append(gain_of_longer(curve, points[-1][1], 2.0))
    assert gains[0] > 5 * gains[1] > 0 and gains[2] == 0


def test_more_time_is_said_as_a_person_says_it() -> None:
    assert [more_seconds(minutes * 60) / 60 for minutes in (3, 15, 30, 60)] == [5, 20, 45, 90]
    assert more_of(timed(budget=900.0)) == "20 min more"
    assert longer_by(timed(budget=900.0)) == pytest.approx(0.5 + 20 / 15)
    assert more_of(TrainConfig(schedule="linear", steps=2000)) == "twice the steps"


# --- In a run


def outlooks(folder: Path) -> list[dict[str, Any]]:
    return [row for row in RunLog(folder).rows() if row["kind"] == "outlook"]


def test_a_timed_run_tells_what_to_expect_and_writes_it_down(tmp_path: Path) -> None:
    events: list[Event] = []
    job = slow_job(tmp_path / "run", timed(), score=lambda look: 1 + 3 * look**-0.5)
    outcome = run(job, events=events)
    found = [event for event in events if isinstance(event, Outlook)]
    assert [outlook_row(event) for event in found] == outlooks(job.folder)
    assert 6 <= len(found) <= 10 and all(0.25 <= event.share < 1 for event in found)
    last = outcome.progress.step
    assert all(event.step / event.share == pytest.approx(last, rel=0.05) for event in found)
    (expected,) = found[-1].expected
    assert expected.metric == "loss" and expected.low <= outcome.metrics["loss"] <= expected.high
    assert found[0].more == "120 s more" or found[0].more == "2 min more"


def test_a_run_of_known_steps_tells_it_too_and_one_without_an_end_does_not(tmp_path: Path) -> None:
    known = {"budget": None, "steps": 60, "validate_every": 6, "warmup": 3}
    for schedule in ("linear", "cosine", "wsd"):
        job = slow_job(tmp_path / schedule, timed(schedule=schedule, **known))
        run(job)
        assert [row["share"] for row in outlooks(job.folder)][:2] == [0.3, 0.4]
    job = slow_job(tmp_path / "constant", timed(schedule="constant", **known))
    run(job)
    assert not outlooks(job.folder)


def test_a_killed_run_foretells_what_the_whole_run_did(tmp_path: Path) -> None:
    whole = slow_job(tmp_path / "whole", timed())
    run(whole)
    killed = slow_job(tmp_path / "killed", timed())
    killed_at(killed, 180)
    resumed = slow_job(tmp_path / "killed", timed())
    run(resumed, resume=True)
    mine, theirs = outlooks(killed.folder), outlooks(whole.folder)
    until = next(number for number, row in enumerate(theirs) if row["step"] > 180)
    assert until > 3 and mine[:until] == theirs[:until]


def test_an_outlook_is_one_line_and_stands_below_the_table() -> None:
    event = Outlook(
        500, 0.5, (Expected("bleu", 17.0, 21.0, 24.0, 2.04), Expected("loss", 3.5, 3.2, 3.4, 0.1)), "20 min more"
    )
    line = outlook_line(event)
    assert "bleu 21.0 to 24.0, loss 3.200 to 3.400" in line and "20 min more: bleu about 2.0 better" in line
    for show in (PlainLines, LiveTable):
        console = Console(file=io.StringIO(), width=160)
        listener = show(console)
        listener(event)
        if isinstance(listener, LiveTable):
            console.print(listener._render())
        assert line in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_curves_show_what_was_foretold_half_way() -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "valid", "step": 100 * n, "loss": 4.0 / n, "bleu": 3.0 * n} for n in range(1, 11)
    ]
    expected = {"loss": [0.3, 0.5], "bleu": [25.0, 33.0]}
    rows.insert(5, {"kind": "outlook", "step": 500, "share": 0.5, "expected": expected})
    rows.insert(3, {"kind": "outlook", "step": 300, "share": 0.3, "expected": {"loss": [0.1, 0.9]}})
    assert half_way(rows) == rows[6]
    figure = draw(rows)
    for axes, ends in zip(figure.axes, ([0.3, 0.5], [25.0, 33.0]), strict=True):
        (wedge,) = axes.collections
        corners = wedge.get_paths()[0].vertices
        assert corners[:, 0].min() == 500 and corners[:, 0].max() == 1000
        assert sorted(set(corners[corners[:, 0] == 1000][:, 1])) == pytest.approx(ends)
