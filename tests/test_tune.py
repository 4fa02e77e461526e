"""A search for settings: its plan by hand, who goes on, its time on a fake clock, killed and resumed, and one for real."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from test_json import EXAMPLES, kind

import regard
from regard.cli.main import run as type_words
from regard.config import Tables
from regard.errors import RegardError, UsageError
from regard.look.comparison import SettingPanel, TrialPoint
from regard.look.figures.comparison import draw_trials
from regard.runs import read_run
from regard.tasks.config import RunConfig
from regard.tasks.configure import asked_settings, run_config
from regard.tasks.halving import (
    Dimension,
    Rung,
    Trial,
    TrialRun,
    best_run,
    better_first,
    dimensions,
    draw,
    fitting_trials,
    merit,
    ranked,
    rung_seconds,
    rungs,
)
from regard.tasks.rules import Size, Sizes
from regard.tasks.tuned import STATE, Search, TuneResult, keep_best, panels, train_words
from regard.tasks.tuning import ENDING, Interrupted, Searcher, TrainTrial
from regard.training.job import Outcome
from regard.training.state import TrainingProgress

# --- The plan


@pytest.mark.parametrize(
    ("budget", "trials", "wanted"),
    [
        (360, 9, [(9, 10), (3, 30), (1, 180)]),
        (240, 6, [(6, 10), (2, 30), (1, 120)]),
        (100, 2, [(2, 25), (1, 50)]),
        (80, 5, [(5, 8), (1, 40)]),
        (1620, 27, [(27, 10), (9, 30), (3, 90), (1, 810)]),
        (70, 1, [(1, 70)]),
    ],
)
def test_rungs_by_hand(budget: float, trials: int, wanted: list[tuple[int, float]]) -> None:
    found = rungs(budget, trials)
    assert [(rung.trials, rung.seconds) for rung in found] == [(count, pytest.approx(s)) for count, s in wanted]
    assert sum(rung.trials * rung.seconds for rung in found) == pytest.approx(budget)


def test_fewer_trials_where_the_time_is_short() -> None:
    assert fitting_trials(360, 9, 10.0) == 9
    assert fitting_trials(360, 9, 10.5) == 8  # 8 + 2 * 3 units in 180 s: 12.9 s each
    assert fitting_trials(360, 9, 30.0) == 6 - 1  # five of 36 s, then one
    assert fitting_trials(360, 9, 90.0) == 2
    assert fitting_trials(360, 9, 91.0) == 0


def test_a_rung_shares_the_time_that_is_left() -> None:
    plan = [Rung(9, 10.0), Rung(3, 30.0), Rung(1, 180.0)]
    assert rung_seconds(plan, 0, 9, 360.0) == pytest.approx(10.0)
    assert rung_seconds(plan, 1, 3, 300.0) == pytest.approx(300 * 30 / 270)  # some ended early: all that follow gain
    assert rung_seconds(plan, 1, 1, 270.0) == pytest.approx(270 * 30 / 210)  # two failed
    assert rung_seconds(plan, 2, 1, 150.0) == pytest.approx(150.0)


# --- Settings

LR = Dimension("train.lr", tuple({"train.lr": lr} for lr in (0.1, 0.2, 0.3)), 1)
DROPOUT = Dimension("model.dropout", tuple({"model.dropout": each} for each in (0.0, 0.1)), 0)


def test_equal_seeds_draw_equal_trials_and_none_twice() -> None:
    first = draw([LR, DROPOUT], 6, 5)
    assert first == draw([LR, DROPOUT], 6, 5) and first[:4] == draw([LR, DROPOUT], 4, 5)
    assert first[0] == {"train.lr": 0.2, "model.dropout": 0.0}
    assert len({json.dumps(each) for each in first}) == 6 == len(draw([LR, DROPOUT], 100, 5))
    assert any(draw([LR, DROPOUT], 6, seed) != first for seed in range(6, 9))


def values(dimension: Dimension) -> list[object]:
    return [next(iter(option.values())) for option in dimension.options]


def test_the_space_lies_around_what_the_rules_choose() -> None:
    config = run_config("classify", {"model": {"kind": "additive", "dropout": 0.2}, "train": {"lr": 0.006}})
    lr, dropout, size = dimensions(config, {}, frozenset())
    assert values(lr) == [0.002, 0.003, 0.006, 0.012, 0.018] and lr.own == 2
    assert values(dropout) == [0.0, 0.1, 0.2, 0.3, 0.5] and dropout.own == 2
    assert [option["model.width"] for option in size.options] == [64, 128] and size.own == 1
    assert size.label(size.options[0]) == "width 64, hidden 64"
    fixed = dimensions(config, {}, frozenset({"train.lr", "model.dropout"}))
    assert [each.name for each in fixed] == ["size"]  # what is set stays


def test_a_preset_or_a_set_width_fixes_the_size() -> None:
    own = run_config("translate", {}).dump()["model"]
    rows = [{"width": own["width"] // 2}, {"width": own["width"]}, {"width": 2 * own["width"]}, {"width": 1000}]
    sizes = {"transformer": Sizes(tuple(Size(100, row) for row in rows), "")}

    def size_of(over: Tables, assignments: list[str]) -> Dimension | None:
        config, asked = run_config("translate", over, assignments), asked_settings("translate", over, assignments)
        return next((each for each in dimensions(config, sizes, asked) if each.name == "size"), None)

    free = size_of({}, [])
    assert free is not None and values(free) == [own["width"] // 2, own["width"], 2 * own["width"]] and free.own == 1
    assert size_of({"preset": "tiny"}, []) is None
    assert size_of({}, [f"model.width={own['width']}"]) is None


def test_pictures_vary_how_far_they_are_moved_and_their_channels() -> None:
    over: Tables = {"data": {"train": ["builtin/glyphs"]}, "model": {"kind": "convnet"}}
    config = run_config("classify", over, ["data.augment.crop=3", "model.channels=[5, 7]"])
    several = tuple(Size(100, {"channels": channels}) for channels in ((3, 5), (5, 7)))  # configurations have lists
    sizes = {"convnet": Sizes(several, "")}
    found = {each.name: each for each in dimensions(config, sizes, frozenset())}
    assert values(found["data.augment.crop"]) == [0, 3, 6] and "train.lr" in found
    assert [found["size"].label(option) for option in found["size"].options] == ["3-5", "5-7"]
    assert found["size"].own == 1


# --- Who goes on


def trial(place: int, **metrics: float) -> Trial:
    return Trial(place, {}, [TrialRun(0, f"trial-{place:02d}/rung-0", 10.0, 10.0, metrics=metrics)])


def test_the_better_ones_go_on() -> None:
    trials = [trial(0, accuracy=70.0, loss=0.5), trial(1, accuracy=80.0, loss=0.9), trial(2, accuracy=70.0, loss=0.4)]
    trials.append(trial(3, accuracy=math.nan, loss=math.nan))
    trials.append(Trial(4, {}, [TrialRun(0, "x", 10.0, 3.0, error="the loss is nan")]))
    assert [each.number for each in better_first(trials, 0, "accuracy")] == [1, 2, 0, 3]
    assert [each.number for each in better_first(trials, 0, "loss")] == [2, 0, 1, 3]
    assert [each.number for each in ranked(trials, "accuracy")] == [1, 2, 0, 3, 4]
    best = best_run(trials, "accuracy")
    assert best is not None and best[0].number == 1
    trials[1].runs.append(TrialRun(1, "y", 30.0, 3.0, error="the loss is nan"))  # later on: what it had still counts
    best = best_run(trials, "accuracy")
    assert best is not None and best[1].rung == 0 and ranked(trials, "accuracy")[0].number == 1


def test_a_bleu_that_is_chance_leaves_the_choice_to_the_loss() -> None:
    assert merit({"bleu": 0.3, "loss": 5.0}, "bleu") < merit({"bleu": 0.1, "loss": 4.0}, "bleu")
    assert merit({"bleu": 9.0, "loss": 5.0}, "bleu") > merit({"bleu": 8.0, "loss": 4.0}, "bleu")


# --- The search, on a fake clock


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_search(trials: int = 9, budget: float = 362.0) -> Search:
    config = run_config("classify", {"model": {"kind": "additive"}, "train": {"schedule": "wsd", "budget": 60.0}})
    space = dimensions(config, {}, frozenset())
    found = [Trial(place, settings) for place, settings in enumerate(draw(space, trials, 7))]
    plan = rungs(budget - ENDING, trials)
    return Search(config.dump(), ["classify"], None, budget, 7, 0.5, 0.1, space, plan, found)


def quality(config: RunConfig) -> float:
    """A score that is best at lr 0.005 and dropout 0.2, and better with more time."""
    model: Tables = config.dump()["model"]
    return (
        90
        - 9 * abs(math.log(config.train.lr / 0.005))
        - 30 * abs(model["dropout"] - 0.2)
        + math.log(config.train.budget or 1)
    )


def fake(
    clock: FakeClock, used: Callable[[int], float] = lambda count: 1.0, at: Callable[[int], None] = lambda n: None
) -> TrainTrial:
    """Trains nothing: its score is `quality`; `used` is the share of its time that run n takes, `at` may end it."""
    count = [0]

    def train(config: RunConfig, folder: Path, asked_at: float) -> Outcome:
        folder.mkdir(parents=True, exist_ok=True)
        count[0] += 1
        at(count[0])
        assert config.train.budget is not None
        seconds = config.train.budget * used(count[0])
        clock.now += seconds
        metrics = {"loss": 1.0, "accuracy": quality(config)}
        return Outcome("time", TrainingProgress(step=10, seconds=seconds, best=metrics), "step 10", metrics)

    return train


def searched(folder: Path, search: Search, clock: FakeClock, train: TrainTrial, before: float = 0.0) -> Search:
    folder.mkdir(exist_ok=True)
    Searcher(folder, search, train, clock=clock, asked_at=clock.now, before=before).run()
    return search


def test_a_search_uses_its_time_and_keeps_the_better_ones(tmp_path: Path) -> None:
    clock = FakeClock()
    search = searched(tmp_path, make_search(), clock, fake(clock))
    assert clock.now - 1000 + ENDING == pytest.approx(362, rel=0.01)
    assert search.seconds == [pytest.approx(10), pytest.approx(30), pytest.approx(180)]
    scores = {each.number: each.runs[0].metrics["accuracy"] for each in search.trials}
    best = sorted(scores, key=lambda place: scores[place], reverse=True)[:3]
    assert {each.number for each in search.trials if each.run_in(1)} == set(best)
    assert [each.number for each in search.trials if each.run_in(2)] == [best[0]]
    assert [each.number for each in ranked(search.trials, "accuracy")][:3] == best


@pytest.mark.parametrize(
    "used", [lambda n: 1.05, lambda n: 0.97, lambda n: 1.3 if n < 5 else 1.0, lambda n: 0.3 if n < 13 else 1.0]
)
def test_the_total_stays_within_its_bounds(tmp_path: Path, used: Callable[[int], float]) -> None:
    clock = FakeClock()
    searched(tmp_path, make_search(), clock, fake(clock, used))
    assert 0.95 * 362 <= clock.now - 1000 + ENDING <= 1.05 * 362


class Killed(BaseException):
    pass


@pytest.mark.parametrize("stop", [1, 11, 13])
@pytest.mark.parametrize("kind_of_stop", [Killed, KeyboardInterrupt])
def test_a_killed_search_ends_as_one_that_was_not(tmp_path: Path, stop: int, kind_of_stop: type[BaseException]) -> None:
    whole_clock, clock = FakeClock(), FakeClock()
    whole = searched(tmp_path / "whole", make_search(), whole_clock, fake(whole_clock))

    def kill(count: int) -> None:
        if count == stop:
            raise kind_of_stop

    with pytest.raises((Killed, Interrupted)):
        searched(tmp_path / "killed", make_search(), clock, fake(clock, at=kill))
    clock.now += 5000  # a night
    found = Search.read(tmp_path / "killed")
    ran: list[int] = []
    searched(tmp_path / "killed", found, clock, fake(clock, at=ran.append), before=found.spent)
    assert [each.data() for t in found.trials for each in t.runs] == [
        each.data() for t in whole.trials for each in t.runs
    ]
    assert len(ran) == 13 - (stop - 1)  # what had ended is not done again
    keep_best(tmp_path / "killed", found), keep_best(tmp_path / "whole", whole)
    mine, theirs = (TuneResult(tmp_path, each).data() for each in (found, whole))
    assert mine == theirs


def test_a_trial_that_fails_is_a_row(tmp_path: Path) -> None:
    clock = FakeClock()

    def fail(count: int) -> None:
        if count in (1, 2):
            clock.now += 2.0
            raise RegardError("the loss is nan", "lower train.lr") if count == 1 else RuntimeError("not enough\nmemory")

    search = searched(tmp_path, make_search(), clock, fake(clock, at=fail))
    keep_best(tmp_path, search)
    assert [search.trials[place].runs[0].error for place in (0, 1)] == [
        "the loss is nan; lower train.lr",
        "not enough memory",
    ]
    assert [each.number for each in ranked(search.trials, "accuracy")][-2:] == [0, 1]
    assert TuneResult(tmp_path, search).against_rules() is None  # nothing to hold it against
    assert 0.95 * 362 <= clock.now - 1000 + ENDING <= 1.05 * 362
    draw_trials(panels(search), "accuracy", ["a", "b", "c"])


def test_a_full_disk_ends_the_search(tmp_path: Path) -> None:
    clock = FakeClock()

    def fail(count: int) -> None:
        raise RegardError("cannot write") from OSError(28, "No space left on device")

    with pytest.raises(RegardError, match="cannot write"):
        searched(tmp_path, make_search(), clock, fake(clock, at=fail))


def test_where_all_fail_the_first_reason_is_told(tmp_path: Path) -> None:
    clock = FakeClock()

    def fail(count: int) -> None:
        raise RegardError(f"reason {count}")

    search = searched(tmp_path, make_search(), clock, fake(clock, at=fail))
    with pytest.raises(RegardError, match="no trial came to its end: reason 1"):
        keep_best(tmp_path, search)


def test_the_best_beside_the_rules(tmp_path: Path) -> None:
    clock = FakeClock()
    search = searched(tmp_path, make_search(), clock, fake(clock))
    result = TuneResult(tmp_path, search)
    best, beside = result.best_trial, result.against_rules()
    assert best is not None and best.number != 0 and beside is not None
    rung = int(str(beside["rung"]))
    assert search.trials[0].run_in(rung) is not None and search.trials[0].run_in(rung + 1) is None
    assert beside["best"] == best.runs[rung].metrics["accuracy"] > search.trials[0].runs[rung].metrics["accuracy"]


def test_the_picture_has_a_panel_for_each_setting() -> None:
    shown = [
        SettingPanel("train.lr", ["0.1", "0.2"], 0, [TrialPoint(0, 1.0, 0), TrialPoint(1, math.nan, 0)]),
        SettingPanel("size", ["width 3, layers 2", "width 5, layers 2"], 1, [TrialPoint(1, 2.0, 1, best=True)]),
    ]
    left, right = draw_trials(shown, "accuracy", ["5 s each", "7 s each"]).axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("train.lr", "size")
    assert [label.get_text() for label in right.get_xticklabels()] == ["width 3\nlayers 2", "width 5\nlayers 2"]


def test_the_words_that_train_it_again_mean_the_same() -> None:
    over: Tables = {"data": {"train": ["a b.tsv"], "fields": ["x", "y"]}, "train": {"seed": 3}, "preset": "tiny"}
    words = train_words("translate", over, ["train.clip=0.5"])
    assert words == [
        "translate", "--data", "a b.tsv", "--set", 'data.fields=["x", "y"]', "--seed", "3", "--preset", "tiny",
        "--set", "train.clip=0.5",
    ]  # fmt: skip
    again = run_config(
        "translate", {"data": {"train": ["a b.tsv"]}, "preset": "tiny"}, [words[4], words[-1], "train.seed=3"]
    )
    assert again == run_config("translate", over, ["train.clip=0.5"])


# --- For real

ROWS = [(f"{'good' if place % 2 else 'bad'} number {place % 13}", "yes" if place % 2 else "no") for place in range(120)]


def test_a_search_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    words = ["tune", "classify", "--data", "texts.tsv", "--budget", "3m", "--trials", "3", "--set", "train.epochs=3"]
    assert type_words([*words, "-o", "search", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    sometimes = {"against_rules", "notes"}  # null, and empty, where there is nothing to say
    assert found.keys() == EXAMPLES["tune"].keys()
    for name in found.keys() - sometimes:
        assert kind(found[name], name) == kind(EXAMPLES["tune"][name], name)
    if found["against_rules"] is not None:
        assert kind(found["against_rules"]) == kind(EXAMPLES["tune"]["against_rules"])
    assert found["finished"] and found["seconds"] < 100 and [len(each["runs"]) for each in found["trials"]] == [2, 1, 1]
    assert "rung 1 of 2" in err and "trial 0" in err and "best so far" in err
    assert found == json.loads(Path("search", STATE).read_text())["result"]
    assert regard.load("search").config.task == "classify" == regard.load("search/best").config.task
    assert Path("search", "tune.png").stat().st_size > 5000
    assert type_words(["runs", "search"]) == 0 and "search/best" in capsys.readouterr()[0]
    assert type_words(["tune", "--resume", "search"]) == 0  # it had come to its end: the table again
    assert "as the rules choose" in capsys.readouterr()[0]
    config = read_run(Path("search/best"))["config"]
    again = shlex.split(found["command"])
    assert again[:5] == ["regard", "train", "classify", "--data", "texts.tsv"]
    sets = [word for before, word in pairwise(again) if before == "--set"]
    assert f"train.lr={config['train']['lr']}" in sets and "train.epochs=3" in sets
    assert type_words([*words, "-o", "search"]) == 2
    assert "search is a search; go on with: regard tune --resume search" in capsys.readouterr()[1]


def test_in_python_from_examples(tmp_path: Path) -> None:
    """Two trials, of whose time three passes over the data take little."""
    folder = tmp_path / "search"
    result = regard.tune(
        "classify", ROWS, budget="3m", trials=2, folder=folder, quiet=True, train={"epochs": 3}, tokens={"kind": "word"}
    )
    assert result.finished and result.best is not None and result.best.folder == folder / "best"
    assert [len(each.runs) for each in result.trials] == [2, 1]
    assert result.best.outcome.metrics in [run.metrics for run in result.trials[0].runs]
    assert regard.load(result).config.labels == ("no", "yes")
    assert f"--data {folder / 'data.jsonl'}" in result.command() and "tokens.kind=word" in result.command()


def test_a_search_that_cannot_begin_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="3 s are too short"):
        regard.tune("classify", data=ROWS, budget=3, folder=tmp_path / "search", quiet=True)
    assert not (tmp_path / "search").exists()
    with pytest.raises(UsageError, match=r"regard\.tune: no stepz"):
        regard.tune("classify", data=ROWS, stepz=3)
    with pytest.raises(UsageError, match="is not a search"):
        regard.tune(resume=tmp_path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tune"], "name a task"),
        (["tune", "classify", "--set", "train.steps=5"], "train.steps: a search says itself how long each run is"),
        (["tune", "classify", "--resume", "x"], "leave out WHAT"),
        (["tune", "--resume", "x"], "x is not a search"),
        (["tune", "classify", "--budget", "soon"], "--budget"),
    ],
)
def test_wrong_use_is_told_at_once(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert type_words(words) == 2
    assert told in capsys.readouterr()[1]
