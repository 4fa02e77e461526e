"""Changes of what attention does while a model runs: a head removed, a row of weights pinned, another temperature.

    with intervene(model, Remove(role="cross", layer=1, head=3)):
        translator.translate("...")

Remove       what the head saw becomes zeros (Michel et al. 2019, eq. 2 with ξ = 0)
Pin          one row of weights is what a person says
Temperature  softmax(scores / temperature), or all of the weight on the best key (hard)

What a map shows may or may not matter; changing it and running on tells. Like the recorder, changes live in a context
variable: they reach every family, whole passes and steps of decoding alike, are seen by the recorder, hold for this
thread only, and cost one comparison when there are none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial, reduce
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from regard.attention import channel
from regard.attention.attend import masked_softmax
from regard.attention.call import LayerNumbers, Role, holds, module_of, names_of
from regard.attention.masks import Both, Mask, Window
from regard.errors import UsageError

ROUNDED = 1e-3  # how far from one a row of weights may be that a person has typed


@dataclass(frozen=True)
class Change:
    """Which attention is changed: in this role, in this layer of that role (from 0), at this module path. None is any."""

    role: Role | None = None
    layer: int | None = None
    _: KW_ONLY
    path: str | None = None

    as_in: ClassVar[str] = "layer=3"  # what a person might have meant

    def __post_init__(self) -> None:
        name, roles = type(self).__name__, get_args(Role)
        if self.role is not None and not (isinstance(self.role, str) and self.role in roles):
            given = repr(self.role) if isinstance(self.role, (str, int, float)) else f"a {type(self.role).__name__}"
            raise UsageError(
                f"{name} begins with a role ({', '.join(roles)}) and a layer, not with {given}; "
                f"name what you give, as in {name}({self.as_in})"
            )
        if self.layer is not None and not isinstance(self.layer, int):
            raise UsageError(
                f"a layer is a number from 0, not {self.layer!r}; name what you give: {name}({self.as_in})"
            )

    def meets(self, path: str, role: Role, layer: int) -> bool:
        return self.role in (None, role) and self.layer in (None, layer) and self.path in (None, path)

    def __str__(self) -> str:
        """The change as a person would type it."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values if value is not None)})"


@dataclass(frozen=True)
class Remove(Change):
    """Take away one head, or (None) all heads of an attention."""

    _: KW_ONLY
    head: int | None = None

    as_in: ClassVar[str] = "layer=3, head=1"


@dataclass(frozen=True)
class Pin(Change):
    """The query at place `row` looks as `weights` says: a share for each key, one in all; or the number of the only key.

    Keys behind those that are named get none, so that one row serves whole texts, padded ones, and steps of decoding. A
    key that the query must not see (padding, a later token) is refused; a layer that is banded may be told to see further.
    """

    _: KW_ONLY
    row: int = 0
    weights: int | Sequence[float] = 0
    head: int | None = None

    as_in: ClassVar[str] = "layer=3, head=1, row=0, weights=[0.5, 0.5]"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.row < 0:
            raise UsageError(f"cannot pin row {self.row}: queries are counted from 0")
        if isinstance(self.weights, int):
            return
        try:
            shares = tuple(map(float, self.weights))
        except (TypeError, ValueError, RuntimeError) as error:  # a whole map, as a tensor or a list of lists
            raise UsageError(
                "weights are one row, a number for each key, or the number of the only key; a Pin for each row pins more"
            ) from error
        object.__setattr__(self, "weights", shares)
        total = math.fsum(shares)
        if not (abs(total - 1) < ROUNDED and min(shares) >= 0):
            wrong = f"these sum to {total:g}" if min(shares, default=0) >= 0 else f"one of these is {min(shares):g}"
            raise UsageError(
                f"a row of weights has no negative number and sums to 1; {wrong}; to pin one key, give its number"
            )

    def as_row(self, like: Tensor) -> Tensor:
        """The weights (S,), like scores (..., S)."""
        keys, row = like.size(-1), like.new_zeros(like.size(-1))
        if isinstance(self.weights, int):
            if not 0 <= self.weights < keys:
                raise UsageError(f"cannot pin a row to key {self.weights}: there are {keys}, from 0 to {keys - 1}")
            row[self.weights] = 1.0
            return row
        given = torch.as_tensor(self.weights, dtype=like.dtype, device=like.device)
        if given[keys:].any():
            raise UsageError(f"a row is pinned to {len(given)} weights, but there are {keys} keys")
        row[: len(given)] = given[:keys]
        return row


@dataclass(frozen=True)
class Temperature(Change):
    """Divide scores by `value` before the softmax; with `hard`, only the best key is seen. Of one head, or (None) of all."""

    _: KW_ONLY
    value: float = 1.0
    hard: bool = False
    head: int | None = None

    as_in: ClassVar[str] = "layer=3, value=2.0"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.value > 0:
            raise UsageError(f"a temperature is more than 0, not {self.value:g}; for the best key only, say hard=True")


@dataclass(frozen=True)
class Changed:
    """All that is changed in one attention. With each pin, whom to notify that its row was there."""

    removals: tuple[Remove, ...] = ()
    pins: tuple[tuple[Pin, Callable[[], None]], ...] = ()
    temperatures: tuple[Temperature, ...] = ()
    own: bool = False  # queries and keys are of one text: that of a query which does not see itself is padding

    @property
    def of_weights(self) -> bool:
        """Whether the weights are others, which needs an attention that has them."""
        return bool(self.pins) or any(each.hard or each.value != 1.0 for each in self.temperatures)

    @property
    def temperature(self) -> float:
        """The temperature of an attention that has one head."""
        return self._values(1)[0]

    def weights(
        self, scores: Tensor, mask: Mask | None, place: int, together: bool = False, visible: Mask | None = None
    ) -> Tensor:
        """Return the weights of scores (B, H, T, S) whose first query stands at `place`; `together`: all of them stand there.

        `visible`: what pins may name, if that is less than the mask lets through.
        """
        values = self._values(scores.size(1))
        by = values[0] if len(set(values)) == 1 else scores.new_tensor(values)[:, None, None]  # (H, 1, 1)
        weights = self.sharpened(masked_softmax(scores / by, mask))
        return self.pinned(weights, place, together, mask if visible is None else visible)

    def sharpened(self, weights: Tensor) -> Tensor:
        """Weights (B, H, T, S), or (B, T, S) of one head, with only the best key where a person wants that."""
        heads = weights.size(1) if weights.dim() == 4 else 1
        hard = [any(each.hard for each in self._of(head, heads)) for head in range(heads)]
        if all(hard) or not any(hard):
            return best_only(weights) if all(hard) else weights
        return torch.where(torch.tensor(hard, device=weights.device)[:, None, None], best_only(weights), weights)

    def _values(self, heads: int) -> list[float]:
        """The temperature of each of so many heads."""
        return [math.prod(each.value for each in self._of(head, heads)) for head in range(heads)]

    def _of(self, head: int, heads: int) -> list[Temperature]:
        return [each for each in self.temperatures if each.head is None or _head(each.head, heads) == head]

    def pinned(self, weights: Tensor, place: int, together: bool = False, mask: Mask | None = None) -> Tensor:
        """Weights (B, H, T, S) with the rows that a person gave. Keys that the mask hides are refused."""
        for pin, reached in self.pins:
            row = pin.row - place
            if row < 0 or row >= (1 if together else weights.size(-2)):
                continue
            rows = slice(None) if together else slice(row, row + 1)
            heads = slice(None) if pin.head is None else _head(pin.head, weights.size(1))
            weights = weights.clone()
            given = pin.as_row(weights)
            if mask is not None:
                self._check_visible(pin, given, unbanded(mask), weights, heads, rows)
            weights[:, heads, rows] = given
            reached()
        return weights

    def _check_visible(
        self, pin: Pin, given: Tensor, mask: Mask | None, weights: Tensor, heads: int | slice, rows: slice
    ) -> None:
        if mask is None:
            return
        allowed = mask.dense(weights.size(-2), weights.size(-1), weights.device).expand(weights.shape)[:, heads, rows]
        allowed = allowed.reshape(len(weights), -1, allowed.size(-1))  # (B, heads and rows, S)
        hidden = (given > 0) & ~allowed
        if self.own and pin.row < weights.size(-1):
            hidden = hidden & allowed[..., pin.row, None]
        if hidden.any():
            text, row, key = hidden.nonzero()[0].tolist()
            keys = allowed[text, row].nonzero().flatten().tolist()
            among = f", text {text} of the batch" if len(weights) > 1 else ""
            there = f"{keys[0]} to {keys[-1]}" if keys else "none"
            raise UsageError(
                f"cannot pin row {pin.row} to key {key}, which is hidden from it (padding, or a later token){among}; "
                f"it can see: {there}"
            )

    def removed(self, heads: int) -> tuple[int, ...]:
        """Which of so many heads are taken away."""
        named = {_head(each.head, heads) for each in self.removals if each.head is not None}
        return tuple(range(heads)) if any(each.head is None for each in self.removals) else tuple(sorted(named))

    def kept(self, out: Tensor) -> Tensor:
        """Make the outputs of removed heads zero: (B, H, T, E) -> (B, H, T, E)."""
        gone = self.removed(out.size(1))
        if not gone:
            return out
        keep = torch.ones(out.size(1), dtype=out.dtype, device=out.device)
        keep[list(gone)] = 0.0
        return out * keep[:, None, None]

    def __or__(self, other: Changed) -> Changed:
        pins, temperatures = self.pins + other.pins, self.temperatures + other.temperatures
        return Changed(self.removals + other.removals, pins, temperatures, self.own or other.own)


def best_only(weights: Tensor) -> Tensor:
    """One for the greatest weight of a row (the first of equals), zero for the others; an empty row stays empty."""
    best = torch.zeros_like(weights).scatter_(-1, weights.argmax(dim=-1, keepdim=True), 1.0)
    return best * (weights.sum(dim=-1, keepdim=True) > 0)


def unbanded(mask: Mask) -> Mask | None:
    """The mask without its bands, which are of the layer, not of the text."""
    if isinstance(mask, Both):
        first, second = unbanded(mask.first), unbanded(mask.second)
        return second if first is None else first if second is None else first & second
    return None if isinstance(mask, Window) else mask


def _head(head: int, heads: int) -> int:
    if not 0 <= head < heads:
        there = f"there are {heads}, numbered from 0 to {heads - 1}" if heads > 1 else "there is one, number 0"
        raise UsageError(f"no head {head}; {there}")
    return head


@dataclass(eq=False)
class Intervention:
    """Some changes of one model, or (without names) of any; which of them met an attention, and which row, is remembered."""

    changes: tuple[Change, ...]
    names: dict[int, str] | None
    numbers: LayerNumbers = field(default_factory=LayerNumbers)
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
def intervene(model: object, *changes: Change) -> Iterator[None]:
    """Inside this block (in this thread), attentions of `model` are changed. Blocks within blocks add up.

    A change that met nothing until the end of the block is an error. In an attention with a kernel, heads can be
    removed, but weights cannot be changed.
    """
    wrong = next((each for each in changes if not isinstance(each, Remove | Pin | Temperature)), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} changes nothing; say Remove(...), Pin(...) or Temperature(...)")
    module = module_of(model, "intervene")
    mine = Intervention(changes, names_of(module))
    with _active(mine), channel.watching(module):
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
    """Find what is changed in this attention; None if nothing is. `time`: its module's call in this forward pass, from 0."""
    active = channel.interventions.get()
    if not active:
        return None
    found = [each for intervention in _holding(active) if (each := intervention.of(owner, role, time)) is not None]
    return reduce(Changed.__or__, found) if found else None


def has_other_weights(owner: nn.Module, role: Role) -> bool:
    """Whether someone changes the weights of this attention now (in this thread)."""
    change = changed(owner, role)
    return change is not None and change.of_weights


def is_changed(model: nn.Module) -> bool:
    """Whether someone changes this model, or a part of it, now (in this thread)."""
    active = channel.interventions.get()
    return any(each.names is not None and holds(each.names, model) for each in _holding(active))


def is_softened() -> bool:
    """Whether decoders look at their sources more softly or more sharply than they learned to, now (in this thread)."""
    return any(each.names is None and each.changes for each in _holding(channel.interventions.get()))


def _holding(active: tuple[Intervention, ...]) -> list[Intervention]:
    """Those whose block has not ended (a task may outlive it); of softnesses, the innermost."""
    here = [each for each in active if not each.over]
    soft = next((each for each in reversed(here) if each.names is None), None)
    return [each for each in here if each.names is not None or each is soft]
