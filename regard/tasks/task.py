"""The record of a task: all that the rest of Regard must know of it, in one place. No torch here.

A task's recipe, predictor and subject import torch, and a record must not: they are named as "module:name" and imported
when they are first used, and its configuration too, so that using one task imports no other. A task of someone else's file
may give the objects themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regard.config import Tables
from regard.plugins import imported
from regard.runs import EXAMPLES
from regard.tasks.rules import Rule, Sizes

if TYPE_CHECKING:
    from regard.bundle import Bundle
    from regard.predictor import Predictor
    from regard.tasks.comparison import Comparison
    from regard.tasks.config import RunConfig
    from regard.tasks.material import TextSource
    from regard.tasks.recipe import Prepare
    from regard.tasks.subject import Subject


@dataclass(frozen=True)
class Task:
    """One task: its configuration, its recipe, its predictor, and how it is spoken of."""

    name: str  # as configurations and bundles have it
    config: str | type[RunConfig]  # its configuration, with its defaults
    recipe: str | Prepare  # data -> batches, model, validation and the figure that selects
    predictor: str | Callable[[Bundle], Predictor]  # what `regard.load` makes of a bundle
    subject: str | type[Subject]  # synthetic batches, for `regard verify`
    texts: str | TextSource | None = None  # texts that heads are looked at on, if it reads any
    comparison: str | Comparison | None = None  # how its models are compared; translations have a report of their own
    try_it: str = ""  # what to type first of all with the model in {model}, where that is more than the example
    data: str = "FILE"  # what to type to train one
    test: str = "FILE"  # what to type to score it
    columns: tuple[str, ...] = ()  # of an example that is given in Python; empty: it learns from files only
    data_options: tuple[str, ...] = ()  # columns of its data that a person may name
    eval_options: tuple[str, ...] = ()  # what may be asked of a score besides the test set
    starts_from: tuple[str, ...] = ()  # tasks whose models it can go on from
    reads_text: bool = False  # whether one can look into it with a text
    has_labels: bool = False  # whether its models are built for a number of labels
    rules: tuple[Rule, ...] = ()  # what a timed run chooses where the person says nothing
    sizes: Mapping[str, Sizes] = field(default_factory=dict)  # of its kinds of models, to choose from
    timed: bool = True  # whether a run goes by the clock where nobody says how long it shall be
    like: str = ""  # the task of ours that it resembles: it has its kinds of models, and what else it does not say
    meant: str | Callable[[Tables], str] | None = None  # which task a configuration of this one really means

    @property
    def family(self) -> str:
        """The task of ours by whose rules it is scored, and compared and looked into if it has none of its own."""
        return self.like or self.name

    @property
    def verb(self) -> str:
        """The verb that a person types: texts and pictures share `classify`."""
        return self.name.partition("-")[0]

    @property
    def example(self) -> str:
        """The command that uses the model in the folder {model}."""
        return EXAMPLES.get(self.name, "")

    @property
    def first_try(self) -> str:
        return self.try_it or self.example

    @property
    def configuration(self) -> type[RunConfig]:
        found: type[RunConfig] = imported(self.config)
        return found

    @property
    def prepare(self) -> Prepare:
        found: Prepare = imported(self.recipe)
        return found

    @property
    def make_predictor(self) -> Callable[[Bundle], Predictor]:
        found: Callable[[Bundle], Predictor] = imported(self.predictor)
        return found

    @property
    def make_subject(self) -> type[Subject]:
        found: type[Subject] = imported(self.subject)
        return found
