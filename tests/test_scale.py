"""Scaling laws: fits against points of known laws and plain least squares, a family on a fake clock, and one for real."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.bench.cost import cost_of
from regard.cli.main import run
from regard.errors import RegardError
from regard.evaluate.power_law import PowerLaw, fit_power_law, student
from regard.look.panels import Curve, Curves, short
from regard.look.scaling import ScaleRun, Scaling, interval
from regard.models.configs.language import LlamaConfig
from regard.models.table import build
from regard.scale import family as families
from regard.scale.family import Family, Interrupted, Trainer, go_on
from regard.scale.law import efficient, scaling_of
from regard.scale.sizes import Size, family, largest_family, settings_of, size_of
from regard.tasks.configure import run_config
from regard.training.job import Outcome
from regard.training.show import Show
from regard.training.state import TrainingProgress

SIZES = np.array([1.1e4, 2.9e4, 7.3e4, 1.9e5, 5.3e5])
TOKENS = np.array([3.1e5, 6.7e5, 1.3e6])
BOTH = [each.ravel() for each in np.meshgrid(SIZES, TOKENS)]
AT_BOTH = {"N": BOTH[0], "D": BOTH[1]}
WOBBLE = np.array([3, -2, 1, 2, -3, -1, 2, -2, 1, 3, -1, -3, 2, 1, -3]) * 1e-3  # of sum 0


# --- Fits


def test_the_law_of_points_of_a_known_law_is_that_law() -> None:
    both = fit_power_law(1.7 + 8.0 * BOTH[0] ** -0.21 + 410.0 * BOTH[1] ** -0.47, AT_BOTH)
    assert both.floor == pytest.approx(1.7, abs=1e-4) and both.error < 1e-6
    assert [both.exponents["N"], both.exponents["D"]] == pytest.approx([0.21, 0.47], abs=1e-4)
    assert [both.factors["N"], both.factors["D"]] == pytest.approx([8.0, 410.0], rel=1e-2)
    assert float(both.at(N=2e4, D=4e5)) == pytest.approx(1.7 + 8.0 * 2e4**-0.21 + 410.0 * 4e5**-0.47, abs=1e-6)
    line = fit_power_law(3.0 * SIZES**-0.07, {"N": SIZES}, floor=False)
    assert (line.floor, line.exponents["N"], line.factors["N"]) == pytest.approx((0.0, 0.07, 3.0), rel=1e-5)
    flat = fit_power_law(3.0 * SIZES**-0.07, {"N": SIZES})  # E = 0 is found, where it is one of the numbers
    assert flat.floor < 0.05 and flat.exponents["N"] == pytest.approx(0.07, abs=2e-3)


def squares(losses: np.ndarray, exponent: float, floor: float | None = None) -> float:
    """The least sum of squared shares, over A ≥ 0 and E, or a given E, by hand."""
    column = SIZES**-exponent / losses
    if floor is not None:
        wanted = 1 - floor / losses
        factor = max(0.0, float(column @ wanted / (column @ column)))
        return float(((factor * column - wanted) ** 2).sum())
    matrix = np.stack([1 / losses, column], axis=1)
    weights, *_ = np.linalg.lstsq(matrix, np.ones(len(losses)), rcond=None)
    if (weights >= 0).all():
        return float(((matrix @ weights - 1) ** 2).sum())
    return squares(losses, exponent, 0.0)


def test_an_interval_ends_where_the_squares_pass_their_limit() -> None:
    """Against a fine grid of plain least squares: 5 points, 3 numbers, t of 2 degrees is 4.303."""
    losses = (1.7 + 8.0 * SIZES**-0.3) * (1 + 0.3 * WOBBLE[:5])
    law, grid = fit_power_law(losses, {"N": SIZES}), np.geomspace(0.01, 3.0, 3001)
    found = np.array([squares(losses, exponent) for exponent in grid])
    assert law.exponents["N"] == pytest.approx(grid[found.argmin()], rel=3e-3)
    inside = grid[found <= found.min() * (1 + 4.3027**2 / 2)]
    assert law.intervals["N"] == pytest.approx((inside[0], inside[-1]), rel=5e-3)
    floors = np.linspace(0, losses.min(), 401)
    least = np.array([min(squares(losses, exponent, floor) for exponent in grid[::15]) for floor in floors])
    inside = floors[least <= found.min() * (1 + 4.3027**2 / 2)]
    assert law.floors == pytest.approx((inside[0], inside[-1]), abs=0.02)
    assert law.known("N") and law.error == pytest.approx(math.sqrt(found.min() / 2), rel=1e-3)


def test_the_truth_lies_in_the_interval_and_little_data_leave_it_open() -> None:
    losses = (1.7 + 8.0 * BOTH[0] ** -0.21 + 410.0 * BOTH[1] ** -0.47) * (1 + WOBBLE)
    law = fit_power_law(losses, AT_BOTH)
    assert law.intervals["N"][0] < 0.21 < law.intervals["N"][1] and law.intervals["D"][0] < 0.47 < law.intervals["D"][1]
    assert law.floors[0] < 1.7 < law.floors[1]
    few = fit_power_law(
        [3.0, 2.8, 2.65, 2.6], {"N": SIZES[:4]}
    )  # of one degree of freedom: hardly anything is excluded
    assert not few.known("N") and few.floors[0] == 0.0 and few.intervals["N"][1] > 10 * few.intervals["N"][0]
    three = fit_power_law([3.0, 2.8, 2.7], {"N": SIZES[:3]})
    assert three.intervals["N"] == (0.0, math.inf) and math.isnan(three.error)


@pytest.mark.parametrize(("free", "wanted"), [(1, 12.706), (2, 4.303), (15, 2.131), (120, 1.980)])
def test_the_quantiles_of_students_t_are_those_of_its_table(free: int, wanted: float) -> None:
    assert student(free) == pytest.approx(wanted, abs=5e-4)


# --- Sizes


@pytest.mark.parametrize("width", [16, 40, 96, 128, 192])
def test_a_width_gives_a_model_that_can_be_built(width: int) -> None:
    settings = settings_of("llama", width)
    config = LlamaConfig(**settings)
    assert (
        config.width == width and config.width // config.heads % 2 == 0 and config.layers == max(2, round(width / 32))
    )
    found = size_of("a", settings, run_config("generate"), 37)
    model = build("generate", config, (37,))
    assert found.parameters == sum(each.numel() for each in model.parameters()) and found.embedding == 37 * width


def test_the_house_sizes_come_out_again() -> None:
    assert settings_of("llama", 96) == {"width": 96, "layers": 3, "heads": 3, "feed_forward": 256}
    assert settings_of("llama", 128) == {"width": 128, "layers": 4, "heads": 4, "feed_forward": 344}
    assert settings_of("gpt2", 64)["feed_forward"] == 256 and settings_of("lstm", 24) == {"width": 24, "hidden": 48}


def of_width(width: int) -> Size:
    return Size(str(width), {"width": width}, width**3, 0)


def test_sizes_are_evenly_apart_in_the_logarithm() -> None:
    found = [each.parameters for each in family(5, 160, of_width)]
    assert found[-1] == 160**3 and 160**3 / found[0] <= 32 * 1.2
    ratios = [math.log(larger / smaller) for smaller, larger in pairwise(found)]
    assert max(ratios) < 1.5 * min(ratios)
    assert len({each.name for each in family(5, 48, of_width)}) == 5  # as many as there are


def test_the_largest_learns_from_five_tokens_a_parameter() -> None:
    found = largest_family(3, of_width, lambda sizes: 5e6)
    assert found[-1].parameters * 5 <= 5e6 < 5 * (int(found[-1].name) + 8) ** 3
    assert [each.name for each in largest_family(3, of_width, lambda sizes: 0.0)] == [
        "16",
        "24",
        "32",
    ]  # the least there is


# --- A family on a fake clock


def made(budget: float = 1000.0, amounts: int = 3) -> Family:
    sizes = [Size("a", {"width": 8}, 1000, 10), Size("b", {"width": 16}, 5000, 20)]
    config = run_config("generate", {"train": {"warmup": 7}}).dump()
    return Family(
        config, None, "cpu", budget, amounts, 32, 10_000, sizes, {"a": 6e3, "b": 3e4}, {"a": 0.1, "b": 0.3}, 20.0
    )


class FakeTrainer(Trainer):
    """Updates take as long as `pace` says, and runs half a second around them."""

    def __init__(
        self, folder: Path, family: Family, pace: dict[str, float], at: Callable[[int], None] = lambda n: None
    ) -> None:
        self.now, self.speed, self.at, self.count = 0.0, pace, at, 0
        super().__init__(folder, family, Show(), lambda: self.now)

    def _train(self, size: Size, amount: int, folder: Path) -> Outcome:
        self.count += 1
        self.at(self.count)
        config = self._config(size, amount)
        steps = config.train.steps
        assert config.model.width == size.settings["width"]
        assert config.train.validate_every == steps and config.train.warmup == min(7, steps // 10)
        self.now += 0.5 + steps * self.speed[size.name]
        progress = TrainingProgress(step=steps, tokens=steps * 32, seconds=steps * self.speed[size.name])
        return Outcome("steps", progress, "", {"loss": 2 + 50 / size.parameters + 9 / steps})


@pytest.mark.parametrize("slower", [1.0, 1.7, 0.6])
def test_a_family_uses_its_time_though_the_machine_is_not_as_fast_as_measured(tmp_path: Path, slower: float) -> None:
    plan = made()
    Trainer(tmp_path, plan, Show()).plan_next()
    trainer = FakeTrainer(tmp_path, plan, {"a": 0.1 * slower, "b": 0.3 * slower})
    trainer.run()
    assert plan.finished and len(plan.points) == 6
    assert trainer.now + 20.0 == pytest.approx(1000, rel=0.01)
    if slower == 1.0:
        assert [later / before for before, later in pairwise(plan.steps)] == pytest.approx([2, 2], rel=0.02)
    assert [point.tokens for point in plan.points] == [32 * steps for steps in plan.steps for _ in "ab"]


@pytest.mark.parametrize("stop", [1, 4])
def test_a_stopped_family_ends_as_one_that_was_not(tmp_path: Path, stop: int) -> None:
    speed = {"a": 0.1, "b": 0.2}
    whole = made()
    FakeTrainer(tmp_path, whole, speed).run()

    def halt(count: int) -> None:
        if count == stop:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        FakeTrainer(tmp_path, made(), speed, halt).run()
    found = Family.read(tmp_path)
    assert len(found.points) == stop - 1 and not found.finished
    trainer = FakeTrainer(tmp_path, found, speed)
    trainer.run()
    assert trainer.count == 6 - (stop - 1) and Family.read(tmp_path) == found
    assert [(each.size, each.tokens, each.loss) for each in found.points] == [
        (each.size, each.tokens, each.loss) for each in whole.points
    ]


def test_a_size_that_fails_is_told_and_left_out(tmp_path: Path) -> None:
    def fail(count: int) -> None:
        if count == 2:
            raise RegardError("the loss is nan", "lower train.lr")

    plan = made()
    FakeTrainer(tmp_path, plan, {"a": 0.1, "b": 0.2}, fail).run()
    assert math.isnan(Family.read(tmp_path).points[1].loss)
    found = scaling_of(plan)
    assert len(found.runs) == 5 and any(
        "size b on" in note and "the loss is nan; lower train.lr" in note for note in found.notes
    )


def test_too_little_time_is_told_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="too short for 2 sizes and 3 amounts of data; give budget='80s', or fewer"):
        Trainer(tmp_path, made(budget=60), Show()).plan_next()  # 20 + 6 x 0.5 + 20 updates x 0.4 s x 7


# --- What follows from the losses


def measured(law: Callable[[float, float], float]) -> Family:
    """A family whose losses are those of a law, and whose operations are 6 N a token."""
    sizes = [Size(f"{n:.0f}", {}, round(n), 0) for n in SIZES]
    config = run_config("generate").dump()
    plan = Family(
        config, None, "cpu", 60, 4, 1, 10**7, sizes, {each.name: 6.0 * each.parameters for each in sizes}, {}, 0
    )
    plan.steps = [310_000, 670_000, 1_300_000, 2_900_000]
    plan.points = [
        families.Point(each.name, amount, steps, law(each.parameters, steps), 1.0, 1.0, "")
        for amount, steps in enumerate(plan.steps)
        for each in sizes
    ]
    return plan


ALPHA, BETA, A, B = 0.34, 0.28, 406.4, 410.7  # of Hoffmann et al. 2022, eq. 10


@pytest.fixture(scope="module")
def found() -> Scaling:
    return scaling_of(measured(lambda n, d: 1.69 + A * n**-ALPHA + B * d**-BETA))


def test_the_best_size_is_that_of_the_papers_formula(found: Scaling) -> None:
    """N = G (C/6)^a with a = β/(α+β) and G = (α A / β B)^(1/(α+β)) (Hoffmann et al. 2022, eq. 4); 20 N D rule: √(C/120)."""
    assert found.laws["N, D"].exponents == pytest.approx({"N": ALPHA, "D": BETA}, abs=1e-3)
    for choice in found.choices:
        wanted = (ALPHA * A / (BETA * B)) ** (1 / (ALPHA + BETA)) * (choice.operations / 6) ** (BETA / (ALPHA + BETA))
        assert choice.law.parameters == pytest.approx(wanted, rel=0.02)
        assert choice.rule.parameters == pytest.approx(math.sqrt(choice.operations / 120), rel=0.01)
        assert choice.rule.tokens == pytest.approx(20 * choice.rule.parameters, rel=0.02)
        assert choice.law.loss <= choice.rule.loss
        assert choice.law.tokens * choice.law.parameters * 6 == pytest.approx(choice.operations, rel=1e-6)
    *compared, whole = found.choices
    assert whole.operations == pytest.approx(sum(run.operations for run in found.runs)) and not whole.among
    assert len(compared) == 3 and all(len(each.among) >= 3 for each in compared)
    for each in compared:  # the best of those around is the one whose loss, by the law itself, is least
        losses = {
            n: 1.69 + A * n**-ALPHA + B * (each.operations / 6 / n) ** -BETA for n in map(round, map(float, SIZES))
        }
        assert each.best_parameters == min((n for n in losses if f"{n:.0f}" in each.among), key=losses.__getitem__)
        assert each.best_loss == pytest.approx(
            losses[each.best_parameters], rel=5e-3
        )  # between two runs, a straight line


def test_runs_are_efficient_if_no_other_was_as_good_for_as_little() -> None:
    runs = [
        ScaleRun(f"{n}", n, 0, n, c, loss, 1, 1)
        for n, (c, loss) in enumerate([(3, 2.0), (1, 3.0), (2, 3.1), (4, 2.0), (5, 1.9)])
    ]
    wanted = [
        each
        for each in runs
        if not any(o.operations <= each.operations and o.loss <= each.loss and o is not each for o in runs)
    ]
    assert efficient(runs) == sorted(wanted, key=lambda each: each.operations)


def test_what_cannot_be_told_apart_is_said(found: Scaling) -> None:
    assert not any("both" in note and "cannot be told apart" in note for note in found.notes)
    rough = measured(lambda n, d: 3.0 + 9.0 * n**-0.2 + 9.0 * d**-0.2)
    rough.points = [replace(each, loss=each.loss * (1 + 7 * WOBBLE[i % 15])) for i, each in enumerate(rough.points)]
    rough.text = 100_000
    notes = scaling_of(rough).notes
    assert any(note.startswith("both (all runs): E and α cannot be told apart by 20 points: from α") for note in notes)
    assert any("read the text 29 times" in note for note in notes) and not any(
        "read the text" in note for note in found.notes
    )


def test_it_is_shown_in_every_medium(found: Scaling, tmp_path: Path) -> None:
    charts = {axes.get_xlabel(): axes for axes in found.figure().axes if axes.get_xlabel()}
    assert {"parameters N", "tokens D", "floating-point operations C"} <= charts.keys()
    drawn = charts["parameters N"].get_lines()
    assert [each.get_label() for each in drawn[:4]] == ["310k tokens", "670k tokens", "1.3M tokens", "2.9M tokens"]
    assert len(drawn) == 8 and drawn[0].get_color() == drawn[4].get_color()  # each amount, and its law
    assert list(drawn[0].get_ydata()) == [each.loss for each in found.runs[:5]]
    page = found.save(tmp_path / "a.html").read_text()
    assert "which size for so many operations" in page and page.count("<svg") + page.count("image/svg") >= 4
    told = json.loads(found.save(tmp_path / "a.json").read_text())
    assert told["laws"]["N, D"]["exponents"]["N"] == pytest.approx(0.34, abs=1e-3) and len(told["runs"]) == 20
    assert "loss against data" in found.text(100)


def test_numbers_and_intervals_are_short() -> None:
    assert [short(each) for each in (0.25, 950, 14_928, 4.92e6, 2.65e12, 3e18)] == [
        "0.25",
        "950",
        "14.9k",
        "4.92M",
        "2.65T",
        "3e+03P",
    ]
    assert [interval(each) for each in ((0.1, 0.25), (0.0, 0.25), (0.1, math.inf), (0.0, math.inf))] == [
        "0.100 to 0.250", "up to 0.250", "0.100 or more", "any",
    ]  # fmt: skip


# --- One for real


SUBJECTS, VERBS = ("a dog", "the cat", "some bird"), ("sees", "hears", "meets")
OBJECTS = ("a man", "the king", "every child", "nobody", "her friend", "two mice", "it")
TEXT = " ".join(f"{who} {does} {whom} ." for who in SUBJECTS for does in VERBS for whom in OBJECTS)
SMALL = [
    "--set", "tokens.kind=character", "--set", "data.context=8", "--set", "train.batch_tokens=16", "--set", "data.share=0.3",
]  # fmt: skip


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A family of two sizes and two amounts, as a person types it: its folder, its JSON, what was said."""
    place = tmp_path_factory.mktemp("scale")
    (place / "book.txt").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(Trainer, "_steps", lambda self, amount: (3, 7)[amount])  # whatever else this machine does now
        words = [
            "scale",
            "generate",
            "--data",
            "book.txt",
            "--sizes",
            "16,8",
            "--amounts",
            "2",
            "--budget",
            "9m",
            *SMALL,
        ]
        assert run([*words, "--runs", "runs", "-o", "scale.json"]) == 0
    return place, json.loads((place / "scale.json").read_text()), " ".join(words)


def test_a_family_of_two_sizes_for_real(grown: tuple[Path, dict[str, Any], str]) -> None:
    place, told, _ = grown
    family = Family.read(place / "runs")
    assert [each.name for each in family.sizes] == ["8", "16"] and family.finished and len(told["runs"]) == 4
    assert all(run["tokens"] == family.steps[number // 2] * 16 for number, run in enumerate(told["runs"]))
    assert all(0.5 < run["loss"] < 4 for run in told["runs"])
    cost = cost_of(place / "runs" / "size-16" / "amount-2")
    assert cost.operations == pytest.approx(told["runs"][3]["operations"], rel=1e-3)  # as `regard cost` counts them
    assert cost.parameters == told["runs"][3]["parameters"]
    assert cost.steps == family.steps[1]


def test_a_real_run_that_was_stopped_goes_on(grown: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    """The losses are those of the family that was not stopped, and what had ended is not done again."""
    place, told, _ = grown
    again = Family.read(place / "runs")
    again.points, again.steps, again.data_root = again.points[:1], [3, 5], str(place)
    again.write(tmp_path)

    class Stops(Show):
        def note(self, text: str) -> None:
            if text.startswith("run 3 of 4"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go_on(tmp_path, Stops())
    assert len(Family.read(tmp_path).points) == 2
    found = go_on(tmp_path, Show())
    assert [each.tokens for each in found.points[1:]] == [48, 80, 80] and found.points[0].loss == told["runs"][0][
        "loss"
    ]
    straight = Family.read(tmp_path)
    straight.points = straight.points[:1]
    (tmp_path / "straight").mkdir()
    straight.write(tmp_path / "straight")
    assert [each.loss for each in go_on(tmp_path / "straight", Show()).points] == [each.loss for each in found.points]


def test_it_is_shown_again_as_a_table(
    grown: tuple[Path, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    place, told, _ = grown
    assert run(["scale", "--resume", str(place / "runs"), "-o", str(place / "scale.png")]) == 0
    printed = capsys.readouterr()
    assert (
        f"{told['runs'][0]['loss']:.4f}" in printed.out and "20 a parameter" not in printed.out
    )  # four runs are too few
    assert f"wrote {place / 'scale.png'}" in printed.err and (place / "scale.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["scale"], "name what is learned: regard scale generate --data book.txt"),
        (["scale", "translate", "--data", "book.txt"], "is for language models (generate), not to translate"),
        (["scale", "generate", "--data", "book.txt", "--sizes", "1"], "say how many, 2 to 12, or which"),
        (["scale", "generate", "--data", "book.txt", "--sizes", "8,big"], "no preset big of llama"),
        (["scale", "generate", "--data", "book.txt", "--sizes", "8,huge"], "neither a width nor a preset"),
        (["scale", "generate", "--data", "book.txt", "--model", "wavenet", "--sizes", "8,16"],
         "name presets: --sizes demo,tiny"),
        (["scale", "generate", "--data", "book.txt", "--set", "train.steps=5"], "train.steps is what a family varies"),
        (["scale", "generate", "--data", "book.txt", "-o", "a.gif"], "use .png, .svg, .html, .json"),
        (["scale", "generate", "--data", "missing.txt"], "missing.txt"),
        (["scale", "--resume", "nowhere"], "no family of sizes"),
        (["scale", "generate", "--resume", "nowhere"], "leave out WHAT"),
        (["scale", "generate", "--data", "book.txt", "--budget", "2s", *SMALL], "too short for 5 sizes"),
    ],
)  # fmt: skip
def test_a_mistake_gets_a_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(TEXT)
    assert run(words) != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").rglob("scale.json"))


def test_points_stay_where_they_are_put() -> None:
    panel = Curves(
        "a",
        {"b": Curve(np.array([1.0, 10.0]), np.array([3.0, 2.0]))},
        {"c": Curve(np.array([1.0, 5.0]), np.array([3.0, 2.5]))},
    )
    from regard.look.figures.panels import panels_figure

    chart = panels_figure([panel]).axes[-1]
    assert chart.get_xscale() == chart.get_yscale() == "log"
    assert [list(map(float, each.get_xdata())) for each in chart.get_lines()] == [[1.0, 10.0], [1.0, 5.0]]
    assert [each.get_text() for each in chart.get_legend().get_texts()] == ["b", "c"]


def test_laws_are_equal_to_the_numbers_they_print() -> None:
    law = PowerLaw(1.0, {"N": 2.0}, {"N": 0.5}, {"N": (0.4, 0.6)}, (0.9, 1.1), {"N": (0.9, 1.1)}, 0.01, 5)
    assert float(law.at(N=4.0)) == 2.0 and law.known("N") and law.data()["known"] == {"N": True}
    assert not replace(law, intervals={"N": (0.2, 0.5)}).known("N") and not replace(
        law, intervals={"N": (0.0, 0.1)}
    ).known("N")
