"""Changes of what attention does while a model runs: a head removed, a row of weights pinned, another temperature.

    with intervene(model, Remove(role="cross", layer=1, head=3)):
        translator.translate("...")

What a map shows may or may not matter; changing it and running on tells. Like the recorder, changes live in a context
variable: they reach every family, whole passes and steps of decoding alike, are seen by the recorder, hold for this
thread only, and cost one comparison when there are none. What can be changed stands in `change.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

from torch import nn

from regard.attention import channel
from regard.attention.call import Numbers, Role, holds, module_of, names_of
from regard.attention.change import Change, Changed, Pin, Remove, Temperature, best_only
from regard.attention.foreign.modules import is_foreign, watching
from regard.errors import UsageError

__all__ = [
    "Change", "Changed", "Intervention", "Pin", "Remove", "Temperature",
    "best_only", "changed", "intervene", "is_changed", "softness",
]  # fmt: skip


@dataclass(eq=False)
class Intervention:
    """Some changes of one model, or (without names) of any; which of them met an attention, and which row, is remembered."""

    changes: tuple[Change, ...]
    names: dict[int, str] | None
    numbers: Numbers = field(default_factory=Numbers)
    met: set[int] = field(default_factory=set)
    reached: set[int] = field(default_factory=set)  # pins whose row was there
    over: bool = False

    def of(self, owner: nn.Module, role: Role, time: int) -> Changed | None:
        if self.names is None:
            return self.at("", role)
        path = self.names.get(id(owner))
        return None if path is None else self.at(path, role, time)

    def at(self, path: str, role: Role, time: int = 0) -> Changed | None:
        layer = self.numbers.of(path, role, time)
        here = [n for n, each in enumerate(self.changes) if each.meets(path, role, layer)]
        self.met.update(here)
        own = Changed(own=role in ("self", "causal"))
        return reduce(Changed.__or__, map(self._changed, here), own) if here else None

    def _changed(self, number: int) -> Changed:
        change = self.changes[number]
        if isinstance(change, Remove):
            return Changed(removals=(change,))
        if isinstance(change, Pin):
            return Changed(pins=((change, partial(self.reached.add, number)),))
        assert isinstance(change, Temperature)
        return Changed(temperatures=(change,))

    def check(self) -> None:
        """At the end: every change met something."""
        for number, change in enumerate(self.changes):
            if number not in self.met:
                there = (
                    self.numbers.sentence() if self.numbers.known else "none that can be changed ran inside the block"
                )
                raise UsageError(f"{change} met no attention: {there}")
            if isinstance(change, Pin) and number not in self.reached:
                raise UsageError(f"{change} met no query: none stood at place {change.row}, counted from 0")


@contextmanager
def intervene(model: Any, *changes: Change) -> Iterator[None]:
    """Inside this block (in this thread), attentions of `model` are changed. Blocks within blocks add up.

    A change that met nothing until the end of the block is an error. In an attention with a kernel, heads can be
    removed, but weights cannot be changed.
    """
    wrong = next((each for each in changes if not isinstance(each, Remove | Pin | Temperature)), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} changes nothing; say Remove(...), Pin(...) or Temperature(...)")
    module = module_of(model, "intervene")
    mine = Intervention(changes, names_of(module))
    with _active(mine), watching() if is_foreign(module) else nullcontext():
        yield
    mine.check()


@contextmanager
def softness(temperature: float = 1.0, hard: bool = False) -> Iterator[None]:
    """Inside this block, decoders of any model look at their sources with this softness, whatever holds around it.

    No weights are dropped out then.
    """
    change = Temperature("cross", value=temperature, hard=hard)
    plain = not hard and temperature == 1.0
    with (
        nullcontext()
        if plain and not channel.interventions.get()
        else _active(Intervention(() if plain else (change,), None))
    ):
        yield


@contextmanager
def _active(intervention: Intervention) -> Iterator[None]:
    """One more. It ends by itself, not by turning back time: blocks of generators may end in any order."""
    channel.interventions.set((*channel.interventions.get(), intervention))
    try:
        with channel.block():
            yield
    finally:
        intervention.over = True
        channel.interventions.set(tuple(each for each in channel.interventions.get() if not each.over))


def changed(owner: nn.Module, role: Role, time: int = 0) -> Changed | None:
    """What is changed in this attention, if anything is. `time`: its module's call in this forward pass, from 0."""
    active = channel.interventions.get()
    if not active:
        return None
    found = [each for intervention in _holding(active) if (each := intervention.of(owner, role, time)) is not None]
    return reduce(Changed.__or__, found) if found else None


def is_changed(model: nn.Module) -> bool:
    """Whether someone changes this model, or a part of it, now (in this thread)."""
    active = channel.interventions.get()
    return any(each.names is not None and holds(each.names, model) for each in _holding(active))


def _holding(active: tuple[Intervention, ...]) -> list[Intervention]:
    """Those whose block has not ended (a task may outlive it); of softnesses, the innermost."""
    here = [each for each in active if not each.over]
    soft = next((each for each in reversed(here) if each.names is None), None)
    return [each for each in here if each.names is not None or each is soft]
