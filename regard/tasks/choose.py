"""Choose what a person left open: settings by the rules of the task, then the largest model that learns enough in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from torch import nn

from regard.config import Tables, check, merge
from regard.errors import UsageError
from regard.models.presets import preset
from regard.tasks.config import RunConfig
from regard.tasks.rules import RATE, TIMED, Facts, Rule, Sizes, Value, fine_tuned
from regard.tasks.table import TASKS
from regard.training.config import TrainConfig
from regard.training.events import Choice
from regard.training.feed import Source
from regard.training.optimiser import make_optimiser
from regard.training.precision import autocast
from regard.trials import seconds_by_threads

KIND = "model.kind"
MEASURING = 0.03  # most of the time that one update may take, for more to be timed


def chosen(rules: Sequence[Rule], facts: Facts, kind: str, asked: frozenset[str], tokens: str = "") -> list[Choice]:
    """The settings that the rules give, but for those that the person asked for; of two for one setting, the later."""
    holding = [rule for rule in rules if rule.setting not in asked and rule.holds(kind, tokens)]
    last = {rule.setting: rule for rule in holding}
    return [Choice(rule.setting, rule.value(facts), rule.reason(facts)) for rule in last.values()]


def lowered(choice: Choice) -> Choice:
    """A choice of the learning rate for a run that goes on from a model of its own task; any other as it is."""
    if choice.setting != "train.lr" or not isinstance(choice.value, int | float):
        return choice
    why = f"{RATE:g} of the {choice.value:g} of a fresh run: larger steps would forget what the weights know"
    return Choice(choice.setting, RATE * choice.value, why)


@dataclass
class Chooser:
    """Chooses for one run, and keeps what it chose and why."""

    asked: frozenset[str]  # settings that the person gave: model.width, train.lr
    budget: float  # seconds of the whole run
    asked_at: float  # what the clock said when the run was asked for
    clock: Callable[[], float] = time.monotonic
    choices: list[Choice] = field(default_factory=list)

    def seconds_left(self) -> float:
        return max(1.0, self.budget - (self.clock() - self.asked_at))

    def timed(self, config: RunConfig) -> RunConfig:
        """The configuration of a run of any task that goes by the clock."""
        found = chosen(TIMED, {}, config.model.kind, self.asked)
        self.choices += found
        chose = {"budget": self.budget} | {each.setting.removeprefix("train."): each.value for each in found}
        return with_values(config, {"train": chose})

    def by_rules(self, config: RunConfig, rules: Sequence[Rule], facts: Mapping[str, float]) -> RunConfig:
        """The configuration with the settings that the rules give for these facts; the kind of model first.

        One that goes on from a model of its own task keeps the tokens, the model and the decoding of that.
        """
        facts = {**facts, "seconds": self.seconds_left()}
        if "characters" in facts:
            facts["characters a second"] = facts["characters"] / facts["seconds"]
        if config.start is not None and config.task in TASKS[config.task].starts_from:
            mixes = bool(getattr(config.data, "old", ()) and getattr(config.data, "mix", 0.0))
            return self._taken(config, [lowered(each) for each in self._found(config, fine_tuned(rules, mixes), facts)])
        config = self._kind(config, chosen(rules, facts, config.model.kind, self.asked))
        rest = [rule for rule in rules if rule.setting != KIND]
        return self._taken(config, self._found(config, rest, facts))

    def _found(self, config: RunConfig, rules: Sequence[Rule], facts: Mapping[str, float]) -> list[Choice]:
        tokens = "" if config.tokens is None else config.tokens.kind
        return chosen(rules, facts, config.model.kind, self.asked, tokens)

    def _taken(self, config: RunConfig, choices: Sequence[Choice]) -> RunConfig:
        self.choices += choices
        return with_choices(config, choices)

    def _kind(self, config: RunConfig, choices: Sequence[Choice]) -> RunConfig:
        """The configuration with the kind of model that is chosen, if that has all that the person asked of the model."""
        choice = next((each for each in choices if each.setting == KIND), None)
        if choice is None or "preset" in self.asked:
            return config
        given = {name: value for name, value in config.model.model_dump().items() if f"model.{name}" in self.asked}
        values = {**config.dump(), "model": {**preset("tiny", str(choice.value)), **given}}
        try:
            found = check(type(config), values, "the recipe")
        except UsageError:
            return config
        self.choices.append(choice)
        return found

    def at_most(self, config: RunConfig, setting: str, value: int, most: int | None, why: str) -> RunConfig:
        """The configuration with a setting lowered to what the model allows, unless the person asked for it."""
        if most is None or value <= most or setting in self.asked:
            return config
        self.choices = [each for each in self.choices if each.setting != setting]
        self.choices.append(Choice(setting, most, why))
        return with_choices(config, self.choices[-1:])

    def size(self, config: RunConfig, sizes: Sizes, make: Callable[[RunConfig], tuple[nn.Module, Source]]) -> RunConfig:
        """The largest of the sizes, smallest first, of which enough updates fit into the time; or the smallest.

        One that by its number of weights would be far too slow is not measured.
        """
        if "preset" in self.asked or any(
            f"model.{name}" in self.asked for size in sizes.rows for name in size.settings
        ):
            return config
        best, told, why, each = config, "", "", 0.0  # seconds for a weight
        for size in sizes.rows:
            candidate = with_values(config, {"model": size.settings})
            model, batches = make(candidate)
            weights = sum(parameter.numel() for parameter in model.parameters())
            if each and self.seconds_left() / (each * weights) < 0.8 * size.least_updates:
                break
            pace = seconds_of_an_update(model, batches, candidate.train, MEASURING * self.budget)
            updates, each = int(self.seconds_left() / pace), pace / weights
            if updates < size.least_updates:
                break
            best, told = candidate, ", ".join(f"{name} {value}" for name, value in size.settings.items())
            why = f"{pace:.2g} s an update here, of which about {updates:,} fit: {sizes.why}"
        self.choices.append(Choice("model", told, why))
        return best


def with_choices(config: RunConfig, choices: Sequence[Choice]) -> RunConfig:
    values: Tables = {}
    for choice in choices:
        values = merge(values, _nested(choice.setting.split("."), choice.value))
    return with_values(config, values)


def with_values(config: RunConfig, values: Tables) -> RunConfig:
    return check(type(config), merge(config.dump(), values), "the recipe")


def _nested(names: Sequence[str], value: Value) -> Tables:
    return {names[0]: value if len(names) == 1 else _nested(names[1:], value)}


def seconds_of_an_update(model: nn.Module, batches: Source, config: TrainConfig, most: float) -> float:
    """Time updates of the model on its own batches, in the run's precision, with one thread and with all.

    Its weights change: give a copy. The first update warms up; if it alone takes longer than `most` seconds, it is all that
    is measured.
    """
    optimiser, numbers = make_optimiser(model, config), count()
    device = next(model.parameters()).device
    model.train()

    def update() -> None:
        batch = batches.get(0, next(numbers) % batches.count(0))
        with autocast(config.precision, device):
            loss = model(batch).objective(dict(batch.counts))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    began = time.monotonic()
    update()
    took = time.monotonic() - began
    if took <= most:
        took = min(seconds_by_threads(update).values())
    return max(1e-6, took * config.accumulate)
