"""Experiments: every one runs in its tiny mode and goes on where it was stopped; what they measure equals oracles."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.cli.main import run
from regard.errors import RegardError, UsageError
from regard.experiments import run as running
from regard.experiments.depth import apart, rank
from regard.experiments.learning import Examples, MadeBatches, train_network
from regard.experiments.lookup import draw_items, read_table
from regard.experiments.memory import draw_copy, draw_recall
from regard.experiments.order import distinct
from regard.experiments.run import run_experiment
from regard.experiments.scaling import softmax_gradient
from regard.experiments.scores import SIX, call_cost, weigh
from regard.experiments.study import (
    Check,
    Found,
    Group,
    Part,
    Settings,
    above,
    alike,
    at_least,
    at_most,
    below,
    number,
    spread,
    verdict,
)
from regard.experiments.table import EXPERIMENTS

PNG = b"\x89PNG"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_in_its_tiny_mode(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment", name, "--tiny", "-o", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"{name}.json", f"{name}.png"]
    assert found["verdict"] in printed.out and "tiny run" in printed.out
    assert found["settings"] and found["seeds"] and found["conditions"]["versions"]["torch"] == torch.__version__
    assert all(len(row) == len(table["columns"]) for table in found["tables"] for row in table["rows"])
    assert {check["says"] for check in found["checks"]} and found["question"] in printed.err


def test_the_list_has_question_minutes_and_claim_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(EXPERIMENTS)
    assert all(each["question"].endswith("?") and each["claim"] and each["paper"] for each in listed)
    assert all(0 < each["minutes"] < 10 for each in listed)
    assert run(["experiment"]) == 0
    printed = capsys.readouterr().out
    assert all(each.name in printed and f"{each.minutes:g} min" in printed for each in EXPERIMENTS.values())


def test_an_unknown_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment", "scalling"]) == 2
    assert "did you mean scaling?" in capsys.readouterr().err


# --- Going on


def counted(done: list[str], fail_at: str = "") -> object:
    """The parts of an experiment that note when they are measured; one fails."""

    def measure(name: str, report: object) -> dict[str, float]:
        if name == fail_at:
            raise RegardError("the power went out")
        done.append(name)
        return {"seed": 1, "value": float(len(done))}

    def parts(settings: Settings, seeds: Sequence[int]) -> list[Part]:
        return [Part(name, lambda report, name=name: measure(name, report)) for name in ("one", "two", "three")]  # type: ignore[misc]

    return parts


def stopped(monkeypatch: pytest.MonkeyPatch, done: list[str], fail_at: str = "") -> None:
    from matplotlib.figure import Figure

    from regard.experiments.study import Study

    study = Study(
        {"size": (3, 5)}, {"size": (2,)}, (1, 2), counted(done, fail_at), lambda found: [],  # type: ignore[arg-type]
        lambda found: [Check("it counts", f"{len(found.rows)}", len(found.rows) == 3)], lambda found: Figure(),
    )  # fmt: skip
    fake = replace(EXPERIMENTS["scaling"])
    monkeypatch.setattr(type(fake), "study", study)
    monkeypatch.setattr(running, "find_experiment", lambda name: fake)


def test_finished_parts_are_kept_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    stopped(monkeypatch, done, fail_at="two")
    with pytest.raises(RegardError, match="power"):
        run_experiment("scaling", tmp_path)
    assert done == ["one"]
    stopped(monkeypatch, done)
    steps: list[tuple[int, int]] = []
    found = run_experiment("scaling", tmp_path, progress=lambda now, total: steps.append((now, total)))
    assert done == ["one", "two", "three"] and steps == [(500, 1000), (1000, 1000)]
    assert [row["value"] for row in found.found.rows] == [1.0, 2.0, 3.0]
    assert run_experiment("scaling", tmp_path).verdict == "This is what lectures say: 1 claim of 1 held."
    assert done == ["one", "two", "three"]


def test_results_of_other_settings_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(monkeypatch, [])
    run_experiment("scaling", tmp_path, tiny=True)
    with pytest.raises(UsageError, match="tiny"):
        run_experiment("scaling", tmp_path)


# --- What is said of the numbers


def test_a_claim_holds_only_if_every_seed_agrees() -> None:
    high, low, across = Group("a", [3.0, 5.0]), Group("b", [1.0, 2.0]), Group("c", [2.5, 7.0])
    assert above("", high, low).holds is True
    assert above("", low, high).holds is False and below("", low, high).holds is True
    assert above("", high, across).holds is None and above("", Group("d", [math.nan, 9.0]), low).holds is None
    assert alike("", high, low, 2.5).holds is True and alike("", high, low, 2.4).holds is False
    assert alike("", high, across, 0.1).holds is None
    assert (
        at_least("", high, 3).holds is True
        and at_least("", high, 4).holds is None
        and at_least("", high, 6).holds is False
    )
    assert at_most("", high, 5).holds is True and at_most("", high, 2).holds is False


def test_the_verdict_follows_the_checks() -> None:
    yes, no, open_ = Check("A", "1", True), Check("B", "2", False), Check("C", "3", None)
    assert verdict([yes, yes]) == "This is what lectures say: 2 claims of 2 held."
    assert verdict([no]).startswith("This is not what lectures say: 0 of 1 claim held; not so: b (2)")
    assert verdict([yes, no, open_]).startswith("This is what lectures say only in part: 1 of 3 claims held; not so: b")
    assert verdict([open_]).startswith("These seeds do not decide")


def test_numbers_are_short() -> None:
    assert [number(each) for each in (0.0, 0.01234, 45.67, 1234.5, 1.2e-9, math.nan)] == [
        "0",
        "0.0123",
        "45.7",
        "1,234",
        "1.20e-09",
        "–",
    ]
    assert spread([1.0, 3.0]) == "2.00 (1.00 to 3.00)" and spread([2.0, 2.0]) == "2.00" and spread([]) == "–"


def test_rows_that_diverged_have_no_number() -> None:
    found = Found([{"a": 1, "x": None}, {"a": 1, "x": 2.0}, {"a": 2, "x": 5.0}, {"a": 1}], {}, (1,))
    first, second = found.values("x", a=1)
    assert math.isnan(first) and second == 2.0


# --- What is measured


def test_the_gradient_of_a_softmax_is_the_norm_of_its_jacobian() -> None:
    scores = torch.randn(7, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(dim=-1), scores)
    torch.testing.assert_close(softmax_gradient(scores.softmax(dim=-1)), jacobian.norm())


def test_a_cold_table_is_a_hard_one() -> None:
    keys, values, query = (
        torch.eye(5, dtype=torch.float64),
        torch.randn(5, 3, dtype=torch.float64),
        torch.rand(7, 5).double(),
    )
    torch.testing.assert_close(read_table(query, keys, values, 1e-6), read_table(query, keys, values, 0))
    torch.testing.assert_close(read_table(query, keys, values, 1e9), values.mean(dim=0).expand(7, 3))
    by_hand = torch.stack([values[max(range(5), key=lambda j, row=row: float(row[j]))] for row in query])
    torch.testing.assert_close(read_table(query, keys, values, 0), by_hand)


@pytest.mark.parametrize("task", ["match", "odd one out"])
def test_one_item_differs_and_its_value_is_wanted(task: str) -> None:
    made = draw_items(task, 13, 5, 3, 7, torch.Generator().manual_seed(1))
    for items, wanted in zip(made.inputs.tolist(), made.wanted.tolist(), strict=True):
        (kind, none), *others = items
        alike = [value for each, value in others if each == kind]
        unlike = [value for each, value in others if each != kind]
        alone = alike if task == "match" else unlike
        assert none == 7 and alone == [wanted] and len(others) == 5


def test_recall_asks_for_every_key_once() -> None:
    made = draw_recall(11, 5, 17, 3, torch.Generator().manual_seed(1))
    for items, wanted in zip(made.inputs.tolist(), made.wanted.tolist(), strict=True):
        table = dict(items[:5])
        assert len(table) == 5 and wanted[:5] == [-1] * 5
        assert [table[key] for key, _ in items[5:]] == wanted[5:] and {value for _, value in items[5:]} == {3}


def test_copying_wants_the_letters_in_their_order() -> None:
    made = draw_copy(3, 7, 2, 5, torch.Generator().manual_seed(1))
    assert (made.wanted[:, 7:] == made.inputs[:, :7, 1]).all() and (made.inputs[:, 7:, 1] == 5).all()


@pytest.mark.parametrize("name", SIX)
def test_a_weighed_look_is_a_mean_of_the_memory(name: str) -> None:
    from regard.attention.scores import make_score

    score, q = make_score(name, 6, 6, 5), torch.randn(2, 3, 6)
    same = torch.randn(2, 1, 6).expand(2, 5, 6)
    torch.testing.assert_close(weigh(score, q, same), same[:, :3])


def test_the_additive_score_keeps_a_vector_for_every_pair() -> None:
    width, length = 16, 29
    _, additive = call_cost("additive", width, length, 1)
    _, dot = call_cost("dot", width, length, 1)
    pairs = 4 * width * length**2  # bytes of (T, S, A) in float32
    assert pairs <= additive <= 8 * pairs and dot < pairs


def test_positions_that_are_alike_are_not_apart_and_have_rank_one() -> None:
    x = torch.randn(1, 7, dtype=torch.float64).expand(5, 7)
    assert apart(x) < 1e-12 and rank(x) == 1
    y = torch.eye(5, dtype=torch.float64)
    assert rank(y) == 5 and apart(y) == pytest.approx(math.sqrt(5 * (0.8**2 + 4 * 0.2**2) / 5))


def test_distinct_vectors_are_counted_once() -> None:
    x = torch.randn(5, 7, dtype=torch.float64)
    assert distinct(torch.cat([x, x + 1e-12, x[:2]])) == 5 and distinct(x[:1].repeat(3, 1)) == 1


def test_made_batches_are_a_pure_function_of_seed_and_number() -> None:
    def draw(random: torch.Generator) -> Examples:
        x = torch.rand(5, 3, generator=random)
        return Examples(x, x.argmax(dim=-1))

    source = MadeBatches(draw, 3)
    assert torch.equal(source.get(0, 7).inputs, source.get(0, 7).inputs)
    assert not torch.equal(source.get(0, 7).inputs, source.get(0, 8).inputs)
    network, row = train_network(
        lambda: nn.Linear(3, 3), draw, {"steps": 60, "lr": 0.3, "warmup": 0}, 1, lambda share: None
    )
    assert row["accuracy"] > 90 and row["parameters"] == 12
    with torch.no_grad():  # the accuracy is that of fresh examples
        fresh = draw(torch.Generator().manual_seed(99))
        assert (network(fresh.inputs).argmax(dim=-1) == fresh.wanted).float().mean() >= 0.6


def test_the_page_has_a_section_with_command_and_figure_for_each() -> None:
    docs = Path(__file__).resolve().parent.parent / "docs"
    page = (docs / "experiments.md").read_text()
    for each in EXPERIMENTS.values():
        assert f"## {each.name}\n" in page and f"    regard experiment {each.name}\n" in page, each.name
        figure = f"images/experiments/{each.name}.png"
        assert (docs / figure).exists() == (f"({figure})" in page), each.name
