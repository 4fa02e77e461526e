"""The rules that choose what a person left open: every row can be applied, what was asked for stays, all is written down."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from toy_run import ToyBatches

import regard
from regard.config import Tables
from regard.models.config import KINDS_OF, ShowAttendTellConfig
from regard.tasks import choose
from regard.tasks.caption.config import CaptionConfig
from regard.tasks.caption.recipe import choose_encoder
from regard.tasks.choose import Chooser, chosen, seconds_of_an_update, with_choices, with_values
from regard.tasks.config import RunConfig
from regard.tasks.configure import DEFAULT_TIME, asked_settings, run_config, time_of
from regard.tasks.recipe import Setup
from regard.tasks.rules import MORE, TIMED, By, Rule, Size, Sizes, by
from regard.tasks.table import TASKS
from regard.training.config import TrainConfig
from regard.training.events import silent
from regard.training.feed import Source
from regard.training.show import Activity

OURS = [name for name, task in TASKS.items() if task.rules]
FACTS = (
    *("examples", "characters", "words", "labels", "length", "size", "channels", "seconds", "characters a second"),
    *("updates an epoch", "side", "picture"),
)


def facts_of(rules: tuple[Rule, ...]) -> list[dict[str, float]]:
    """Facts that reach every row of the rules: each limit of a fact, and a little more."""
    limits: dict[str, set[float]] = {name: {1.0} for name in FACTS}
    for rule in rules:
        if isinstance(rule.to, By):
            limits[rule.to.fact] |= {limit if limit != MORE else 1e9 for limit, _ in rule.to.rows}
    return [{**dict.fromkeys(FACTS, 1.0), name: value} for name, several in limits.items() for value in several]


@pytest.mark.parametrize("task", OURS)
def test_every_row_of_every_rule_gives_a_configuration(task: str) -> None:
    rules = (*TIMED, *TASKS[task].rules)
    for kind in KINDS_OF[task]:
        config = run_config(TASKS[task].verb, {"model": {"kind": kind}})
        for facts in facts_of(rules):
            found = chosen([rule for rule in rules if rule.setting != choose.KIND], facts, kind, frozenset())
            applies = [choice for choice in found if _has(config, choice.setting)]
            with_choices(config, applies)  # refused if a value is not allowed
            if kind == KINDS_OF[task][0]:
                assert applies == found, {choice.setting for choice in found} - {choice.setting for choice in applies}


def _has(config: RunConfig, setting: str) -> bool:
    table: object = config.dump()
    for name in setting.split("."):
        if not isinstance(table, dict) or name not in table:
            return False
        table = table[name]
    return True


@pytest.mark.parametrize("task", OURS)
def test_rules_have_reasons_and_every_fact_has_a_value(task: str) -> None:
    for rule in (*TIMED, *TASKS[task].rules):
        assert rule.why or rule.setting in ("train.steps", "train.average")  # which nobody asks about
        assert set(rule.kinds) <= set(KINDS_OF[task])
        if isinstance(rule.to, By):
            limits = [limit for limit, _ in rule.to.rows]
            assert limits == sorted(limits) and limits[-1] == MORE and rule.to.fact in FACTS


@pytest.mark.parametrize("task", OURS)
def test_sizes_grow_and_can_be_built(task: str) -> None:
    for kind, sizes in TASKS[task].sizes.items():
        config = run_config(TASKS[task].verb, {"model": {"kind": kind}})
        for size in sizes.rows:
            with_values(config, {"model": size.settings})
        needed = [size.least_updates for size in sizes.rows]
        assert needed[0] == 0 and needed == sorted(needed) and sizes.why


def test_a_value_by_a_fact_is_that_of_the_first_row_that_holds_it() -> None:
    rule = Rule("tokens.size", by("examples", (100, 1), (1000, 2), (MORE, 3)), "few")
    values = [rule.value({"examples": count}) for count in (1, 100, 101, 1000, 10**9)]
    assert values == [1, 1, 2, 2, 3]
    assert rule.reason({"examples": 5000}) == "5,000 examples: few"


def test_what_was_asked_for_stays_and_the_later_of_two_rules_holds() -> None:
    rules = (
        Rule("train.lr", 1.0, "a"),
        Rule("train.clip", 2.0, "b"),
        Rule("train.lr", 3.0, "c"),
        Rule("x", 4, "d", ("vit",)),
    )
    found = chosen(rules, {}, "convnet", frozenset({"train.clip"}))
    assert [(each.setting, each.value, each.why) for each in found] == [("train.lr", 3.0, "c")]


def test_settings_that_a_person_gives() -> None:
    asked = asked_settings("translate", {"preset": "tiny", "model": {"kind": "luong"}}, ["train.lr=1e-3"])
    assert {"preset", "model.kind", "train.lr"} <= asked and "model.width" not in asked
    assert time_of(asked, None) == DEFAULT_TIME and time_of(asked, 60.0) == 60.0
    for bound in ("train.steps=5", "train.max_time=5m", "train.schedule=cosine"):
        assert time_of(asked_settings("translate", {}, [bound]), None) is None
    assert time_of(asked_settings("translate", {}, ["train.epochs=3"]), None) == DEFAULT_TIME


SIZES = Sizes((Size(0, {"width": 8}), Size(100, {"width": 16}), Size(200, {"width": 32})), "why")


def sized(monkeypatch: pytest.MonkeyPatch, pace: Callable[[int], float], *asked: str) -> tuple[RunConfig, list[int]]:
    """The configuration with the size that is chosen where an update of a width takes `pace`, and the widths measured."""
    measured: list[int] = []

    def seconds(model: nn.Linear, batches: Source, train: TrainConfig, most: float) -> float:
        measured.append(model.in_features)
        return pace(model.in_features)

    monkeypatch.setattr(choose, "seconds_of_an_update", seconds)
    chooser = Chooser(frozenset(asked), budget=100.0, asked_at=0.0, clock=lambda: 0.0)
    config = run_config("translate", {"model": {"heads": 2, "width": 64}})
    found = chooser.size(config, SIZES, lambda each: (nn.Linear(each.model.width, each.model.width), ToyBatches()))
    return found, measured


def test_the_largest_size_of_which_enough_updates_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sized(monkeypatch, lambda width: 0.01)[0].model.width == 32
    assert sized(monkeypatch, lambda width: width / 32)[0].model.width == 16  # 200 of 16, 100 of 32
    assert sized(monkeypatch, lambda width: 5.0)[0].model.width == 8  # the smallest, if need be
    _, measured = sized(monkeypatch, lambda width: width**2 / 80)
    assert measured == [8]  # by its weights the next would be far too slow
    assert sized(monkeypatch, lambda width: 0.01, "model.width")[0].model.width == 64
    assert sized(monkeypatch, lambda width: 0.01, "preset")[0].model.width == 64


def test_a_chosen_kind_of_model_keeps_what_was_asked_for() -> None:
    rules = (
        Rule("model.kind", "additive", "better", ("self-attention",)),
        Rule("model.hidden", 6, "small", ("additive",)),
    )
    config = run_config("classify", {"model": {"width": 12}})
    chooser = Chooser(frozenset({"model.width"}), 60.0, 0.0, clock=lambda: 0.0)
    found = chooser.by_rules(config, rules, {})
    assert (found.model.kind, found.model.width, found.dump()["model"]["hidden"]) == ("additive", 12, 6)
    assert [each.setting for each in chooser.choices] == ["model.kind", "model.hidden"]


def test_every_task_goes_by_the_clock_unless_asked_otherwise() -> None:
    chooser = Chooser(frozenset({"train.patience"}), 60.0, 0.0, clock=lambda: 0.0)
    train = chooser.timed(run_config("caption", {"train": {"patience": 9}})).train
    assert (train.budget, train.schedule, train.patience, train.average) == (60.0, "wsd", 9, 0)


@pytest.mark.parametrize(
    ("characters", "minutes", "dropout"), [(1e6, 1, 0.1), (5e6, 20, 0.1), (5e6, 1, 0.0), (1e9, 20, 0.0)]
)
def test_a_text_that_is_read_again_and_again_is_learned_with_dropout(
    characters: float, minutes: float, dropout: float
) -> None:
    """Penn Treebank in twenty minutes is read several times; by its size alone it had none."""
    chooser = Chooser(frozenset(), 60.0 * minutes, 0.0, clock=lambda: 0.0)
    found = chooser.by_rules(run_config("generate", {}), TASKS["generate"].rules, {"characters": characters})
    assert found.dump()["model"]["dropout"] == dropout
    assert any("characters a second" in each.why for each in chooser.choices if each.setting == "model.dropout")


def test_a_kind_that_lacks_what_was_asked_for_is_not_chosen() -> None:
    rules = (Rule("model.kind", "additive", "better", ("self-attention",)), Rule("train.lr", 0.5, "fast"))
    config = run_config("classify", {"model": {"heads": 2}})
    chooser = Chooser(frozenset({"model.heads"}), 60.0, 0.0, clock=lambda: 0.0)
    assert chooser.by_rules(config, rules, {}).model.kind == "self-attention"
    assert [each.setting for each in chooser.choices] == ["train.lr"]


def test_seconds_of_an_update_are_those_of_real_ones() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.made = nn.Parameter(torch.zeros(3)), 0

        def forward(self, batch: object) -> object:
            from regard.models.loss import Loss, Part

            self.made += 1
            return Loss({"loss": Part(self.weight.sum(), 2)})

    before, config = torch.get_num_threads(), TrainConfig(accumulate=2)
    try:
        for threads, updates in ((1, 3), (2, 5)):  # one that warms up, then two with one thread, and two with all
            torch.set_num_threads(threads)
            model = Model()
            assert 0 < seconds_of_an_update(model, ToyBatches(), config, most=10.0) < 1
            assert model.made == updates and torch.get_num_threads() == threads
            seconds_of_an_update(model, ToyBatches(), config, most=0.0)
            assert model.made == updates + 1  # the first took all the time there was
    finally:
        torch.set_num_threads(before)


def test_a_run_keeps_what_was_chosen_and_why(tmp_path: Path) -> None:
    names: list[tuple[str, str]] = [
        (f"{a} {b}", "good" if a == "fine" else "bad")
        for a, b in itertools.product(("fine", "poor"), map(str, range(30)))
    ]
    tables: dict[str, Tables] = {"model": {"width": 8}, "train": {"seed": 7}}
    run = regard.train("classify", data=names, budget="8s", folder=tmp_path / "run", quiet=True, probes=0, **tables)
    record = json.loads((run.folder / "run.json").read_text())
    kept = {each["setting"]: each for each in record["chosen"]}
    config = record["config"]
    assert config["model"]["kind"] == "additive" == kept["model.kind"]["value"] and kept["model.kind"]["why"]
    assert (config["model"]["width"], config["train"]["seed"], config["train"]["budget"]) == (8, 7, 8.0)
    assert "model.width" not in kept and config["tokens"]["kind"] == kept["tokens.kind"]["value"] == "character"
    assert run.load().classify("fine 3").label == "good"


def test_captions_of_photographs_are_seen_with_weights_that_are_at_hand(tmp_path: Path) -> None:
    def seen(asked: frozenset[str], data: str) -> tuple[str, int | None]:
        config = run_config("caption", {"data": {"train": [data]}})
        assert isinstance(config, CaptionConfig)
        chooser = Chooser(asked, 600.0, 0.0, clock=lambda: 0.0)
        setup = Setup(tmp_path / "run", tmp_path, False, "cpu", silent, chooser)
        found = choose_encoder(config, setup)
        assert isinstance(found.model, ShowAttendTellConfig)
        assert len(chooser.choices) == (0 if found == config else 2)
        return found.model.encoder.kind, found.data.size

    usual = run_config("caption").model
    assert isinstance(usual, ShowAttendTellConfig)
    plain = usual.encoder.kind
    assert seen(frozenset(), "photos.jsonl")[0] == plain  # there are none
    (tmp_path / "efficientnet-lite0.safetensors").touch()
    assert seen(frozenset(), "photos.jsonl") == ("efficientnet-lite0", 224)
    assert seen(frozenset(), "builtin/shapes")[0] == plain  # drawn, and easily learned
    for asked in ("model.encoder", "data.size", "preset"):
        assert seen(frozenset({asked}), "photos.jsonl")[0] == plain


def test_a_count_that_begins_anew_has_a_rate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second set of pictures was told to take two hours, for its rate was counted from the start of the first."""
    now = 0.0
    monkeypatch.setattr("regard.training.show.time.monotonic", lambda: now)
    activity = Activity()
    for second in range(1, 101):
        now = float(second)
        activity.start("computing features", 10 * second, 1000)
    now = 101.0
    activity.start("computing features", 0, 500)
    now = 102.0
    activity.start("computing features", 10, 500)
    assert activity.line() == "computing features: 10 of 500 · 10/s · 49 s left"


def test_rows_of_cifar_are_pictures_without_being_told() -> None:
    assert run_config("classify", {"data": {"train": ["train.bin"]}}).task == "classify-pictures"
    assert run_config("classify", {"data": {"train": ["train.tsv"]}}).task == "classify"


def test_a_language_model_reads_at_once_what_it_learns_to_read() -> None:
    """The bug: windows of 512 tokens were scored with a model that had learned from 128: 1.649 nats instead of 1.455."""
    from regard.tasks.configure import run_config
    from regard.tasks.recipe import Setup

    def setup_for(asked: frozenset[str]) -> Setup:
        return Setup(Path(), None, False, "cpu", lambda event: None, Chooser(asked, 60.0, 0.0))

    for task in ("generate", "fill"):
        config: Any = run_config(task, {"data": {"context": 37}})
        setup = setup_for(frozenset())
        found: Any = setup.choose_context(config, 37)
        assert found.model.max_length == 37 and setup.chooser is not None
        assert [each.setting for each in setup.chooser.choices] == ["model.max_length"]
        asked: Any = setup_for(frozenset({"model.max_length"})).choose_context(config, 37)
        assert asked.model.max_length == config.model.max_length > 37
