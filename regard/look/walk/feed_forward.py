"""The feed-forward layer of a block, computed plainly in float64, and as steps (Vaswani et al. 2017, eq. 2):

FFN(x) = activation(x W_1 + b_1) W_2 + b_2;   with a gate (Shazeer 2020): (swish(x W_g) ∘ x W_u) W_d;
of several experts (Shazeer et al. 2017, eq. 1): Σ_i share_i FFN_i(x) over the few that the router chose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from regard.look.walk.softmax import softmax
from regard.look.walk.steps import (
    Array,
    Numbers,
    Step,
    WorkedLine,
    column,
    counted,
    lower_first,
    named_apart,
    parameter,
    scalar,
    sum_line,
)
from regard.look.walk.sublayer import LinearNumbers

Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]
FORMULA = {
    "relu": "max(0, a)",
    "gelu": "a · (1 + erf(a / √2)) / 2",
    "gelu-tanh": "a · (1 + tanh(√(2/π) (a + 0.044715 a³))) / 2",
    "swish": "a / (1 + exp(-a))",
}
WORKED = {
    "relu": "max(0, {})",
    "gelu": "{} · (1 + erf({} / √(2))) / 2",
    "gelu-tanh": "{} · (1 + tanh(√(2 / pi) · ({} + 0.044715 · {}^3))) / 2",
    "swish": "{} / (1 + exp(-{}))",
}
NAME = {"relu": "ReLU", "gelu": "GELU", "gelu-tanh": "GELU (by tanh)", "swish": "swish"}
PAPER = {
    "relu": "Nair & Hinton 2010",
    "gelu": "Hendrycks & Gimpel 2016",
    "gelu-tanh": "Hendrycks & Gimpel 2016",
    "swish": "Ramachandran et al. 2017",
}
MOST_NAMED = 40  # units whose numbers a sentence lists


def activate(a: Array, kind: Activation) -> Array:
    """The activation of each number."""
    if kind == "relu":
        return np.maximum(a, 0.0)
    if kind == "gelu":
        error_function: Array = np.vectorize(math.erf, otypes=[np.float64])(a / math.sqrt(2))
        return a * (1 + error_function) / 2
    if kind == "gelu-tanh":
        return a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) / 2
    return a / (1 + np.exp(-a))


@dataclass(frozen=True, eq=False)
class FeedForwardNumbers:
    """x (..., D) -> (..., F) -> (..., D)."""

    up: LinearNumbers  # (D, F)
    down: LinearNumbers  # (F, D)
    activation: Activation
    gate: LinearNumbers | None = None  # (D, F): what is activated, and multiplied by what goes up

    def units(self, x: Array) -> Array:
        """The units before they are activated: (..., F)."""
        return self.up(x) if self.gate is None else self.gate(x)

    def activated(self, x: Array) -> Array:
        """The units after it, and with a gate after the product: (..., F)."""
        active = activate(self.units(x), self.activation)
        return active if self.gate is None else active * self.up(x)

    def __call__(self, x: Array) -> Array:
        return self.down(self.activated(x))


@dataclass(frozen=True, eq=False)
class Routing:
    """Which expert takes which of T tokens."""

    scores: Array  # (T, N): of the router
    every: Array  # (T, N): their softmax
    chosen: Array  # (T, K): the experts of each token, the best first
    shares: Array  # (T, N): what each expert's result counts for; 0 where it is not asked

    @property
    def load(self) -> Array:
        """Tokens that each expert takes: (N,)."""
        return (self.shares > 0).sum(axis=0)

    @property
    def balance(self) -> float:
        """N Σ_i (share of tokens sent to i) · (mean probability of i): 1 if even (Fedus et al. 2022, eq. 4 to 6)."""
        sent = self.load / self.chosen.size
        return float(len(sent) * (sent * self.every.mean(axis=0)).sum())


@dataclass(frozen=True, eq=False)
class ExpertsNumbers:
    """Several feed-forward layers, of which each token uses a few."""

    router: Array  # (D, N)
    experts: tuple[FeedForwardNumbers, ...]
    used: int

    def route(self, x: Array) -> Routing:
        """Route tokens (T, D): the `used` best experts of each, and their shares (of one, its own probability)."""
        scores = x @ self.router  # (T, N)
        every = softmax(scores)
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, : self.used]  # (T, K)
        best = np.take_along_axis(scores, chosen, axis=1)
        own = np.take_along_axis(every, chosen, axis=1) if self.used == 1 else softmax(best)
        shares = np.zeros_like(scores)
        np.put_along_axis(shares, chosen, own, axis=1)
        return Routing(scores, every, chosen, shares)

    def __call__(self, x: Array) -> Array:
        shares = self.route(x).shares
        return sum((shares[:, [n]] * expert(x) for n, expert in enumerate(self.experts)), np.zeros_like(x))


# --- Steps of one token


def feed_forward_steps(
    layer: FeedForwardNumbers | ExpertsNumbers, x: Array, place: int, labels: tuple[str, ...]
) -> list[Step]:
    """Walk through the layer for the token at `place` of x (T, D), which is normed already if a norm stands before."""
    if isinstance(layer, ExpertsNumbers):
        return expert_steps(layer, x, place, labels)
    return [up_step(layer, x[place], labels[place]), activation_step(layer, x[place], labels[place]),
            down_step(layer, x[place], labels[place])]  # fmt: skip


def up_step(layer: FeedForwardNumbers, x: Array, label: str) -> Step:
    """x (D,) becomes the units (F,)."""
    width = layer.up.weight.shape[1]
    parts = {"1": layer.up} if layer.gate is None else {"g": layer.gate, "u": layer.up}
    made = {"1": "units"} if layer.gate is None else {"g": "units", "u": "up"}
    arrays: list[Numbers] = [Numbers("in", x, (label,))]
    for letter, linear in parts.items():
        arrays.append(parameter(f"W_{letter}", linear.weight))
        if linear.bias is not None:
            arrays.append(parameter(f"b_{letter}", linear.bias))
    arrays += [Numbers(made[letter], linear(x), (label,)) for letter, linear in parts.items()]
    first = next(iter(parts.values()))
    line = sum_line(
        "unit_0", x, first.weight[:, 0], ("units", 0, 0), None if first.bias is None else float(first.bias[0])
    )
    plus = "" if first.bias is None else " + b"
    text = (
        f"Now each token by itself, without the others: {counted(width, 'unit')} look at its vector, each a column of the "
        "matrix with a number to add. Attention only averaged values; what is not linear happens here."
    )
    formula = f"x W_1{plus}" if layer.gate is None else f"x W_g{plus},  x W_u{plus}"
    return Step("Feed-forward: up to its units", formula, text, tuple(arrays), (line,))


def activation_step(layer: FeedForwardNumbers, x: Array, label: str) -> Step:
    """The units (F,) activated: with ReLU, which are zero and how many."""
    units, kind = layer.units(x), layer.activation
    active, after = activate(units, kind), layer.activated(x)
    name, best = NAME[kind], int(np.abs(after).argmax())
    off = (active <= 0).nonzero()[0].tolist() if kind == "relu" else (units < 0).nonzero()[0].tolist()
    arrays = [Numbers("activated", active, (label,))]
    equation = f"unit_{best} = {WORKED[kind]} = {{}}"  # every number but the last is the same
    numbers = (*[float(units[best])] * WORKED[kind].count("{}"), float(active[best]))
    lines = [WorkedLine(equation, numbers, ("activated", 0, best))]
    if kind == "relu":
        text = f"{name} ({PAPER[kind]}) keeps what is above zero and makes 0 of the rest: {_named(off, len(units))}"
        arrays.append(scalar("zeros", float(len(off))))
    else:
        text = (
            f"{name} ({PAPER[kind]}) is a ReLU with a soft corner: {len(off)} of {len(units)} units are below zero here and "
            "give little, but none is exactly 0."
        )
        arrays.append(scalar("below zero", float(len(off))))
    if layer.gate is not None:
        arrays.append(Numbers("gated", after, (label,)))
        text += " Each unit is multiplied by what goes up beside it: a gate (Shazeer 2020)."
        told = (float(active[best]), float(layer.up(x)[best]), float(after[best]))
        lines.append(WorkedLine(f"gated_{best} = {{}} · {{}} = {{}}", told, ("gated", 0, best)))
    return Step(f"Feed-forward: {name}", FORMULA[kind], text, tuple(arrays), tuple(lines))


def _named(zeros: list[int], units: int) -> str:
    """How many units are zero and which, in a sentence; of very many, which are not."""
    if not zeros:
        return "no unit is 0 for this token."
    others = [unit for unit in range(units) if unit not in set(zeros)]
    if len(zeros) <= MOST_NAMED:
        which = _listed(zeros)
    else:
        which = f"all but {_listed(others)}" if others else "all"
    are = "are" if len(zeros) > 1 else "is"
    return f"{len(zeros)} of {units} units {are} 0 for this token ({which}). What is 0 gives nothing to what follows."


def _listed(units: list[int]) -> str:
    more = f" and {len(units) - MOST_NAMED} more" if len(units) > MOST_NAMED else ""
    return f"number{'s' if len(units) > 1 else ''} {', '.join(map(str, units[:MOST_NAMED]))}{more}"


def down_step(layer: FeedForwardNumbers, x: Array, label: str) -> Step:
    """The units (F,) become a vector (D,) again."""
    inner, down = layer.activated(x), layer.down
    letter = "2" if layer.gate is None else "d"
    arrays = [parameter(f"W_{letter}", down.weight)]
    if down.bias is not None:
        arrays.append(parameter(f"b_{letter}", down.bias))
    arrays.append(Numbers("output", down(inner), (label,)))
    bias = None if down.bias is None else float(down.bias[0])
    line = sum_line("output_0", inner, down.weight[:, 0], ("output", 0, 0), bias)
    text = "Each unit that is not zero adds its row of the matrix, by as much as it is active: back to the width of the model."
    formula = f"units W_{letter}{'' if bias is None else ' + b'}"
    return Step("Feed-forward: down to the width of the model", formula, text, tuple(arrays), (line,))


# --- Experts


def routing_steps(layer: ExpertsNumbers, x: Array, labels: tuple[str, ...], marked: int | None = None) -> list[Step]:
    """Which expert takes which token of x (T, D), and how the load is spread."""
    found, names = layer.route(x), expert_names(len(layer.experts))
    row = len(labels) - 1 if marked is None else marked
    best = int(found.chosen[row, 0])
    scores = Step(
        "The router scores every expert",
        "scores = x W_r",
        f"One matrix, a column for each of {counted(len(names), 'expert')}: how well a token fits each of them.",
        (Numbers("W_r", layer.router, tuple(map(str, range(len(layer.router)))), names, folded=True),
         Numbers("routing scores", found.scores, labels, names, marked=marked)),
        (sum_line(f"score of {names[best]}", x[row], layer.router[:, best], ("routing scores", row, best)),),
    )  # fmt: skip
    told = (
        "A token asks one expert, and its result counts by the probability that the router gave it (Fedus et al. 2022)."
        if layer.used == 1
        else f"Each token asks its {layer.used} best experts, and no other is computed; the softmax is over these alone, so "
        "that their shares sum to one (Shazeer et al. 2017, section 2.1)."
    )
    shares = Step(
        f"The best {counted(layer.used, 'expert')} of each token",
        "share_i = softmax over the chosen" if layer.used > 1 else "share_i = softmax(scores)_i",
        told,
        (Numbers("routing shares", found.shares, labels, names, shading="weight", marked=marked,
                 remarks=tuple(", ".join(names[n] for n in row) for row in found.chosen.tolist())),),
        (_share_line(found, layer.used, row),),
    )  # fmt: skip
    load = Step(
        "The load of each expert",
        "balance = N Σ_i sent_i · mean probability_i",
        "How many tokens each expert takes. Left alone, a router soon sends everything to a few; training adds the balance "
        "to the loss, which is 1 where all is even and grows with what is not (Fedus et al. 2022, eq. 4 to 6).",
        (column("tokens", found.load, names, shading="weight"),
         column("mean probability", found.every.mean(axis=0), names, shading="weight", beside=True),
         scalar("balance", found.balance)),
        (_balance_line(found),),
    )  # fmt: skip
    return [scores, shares, load]


def _share_line(found: Routing, used: int, row: int) -> WorkedLine:
    asked = range(found.scores.shape[1]) if used == 1 else found.chosen[row].tolist()
    best = int(found.chosen[row, 0])
    terms = " + ".join("exp({})" for _ in asked)
    numbers = (
        float(found.scores[row, best]),
        *(float(found.scores[row, n]) for n in asked),
        float(found.shares[row, best]),
    )
    return WorkedLine(f"share = exp({{}}) / ({terms}) = {{}}", numbers, ("routing shares", row, best))


def _balance_line(found: Routing) -> WorkedLine:
    sent, mean = found.load / found.chosen.size, found.every.mean(axis=0)
    terms = " + ".join("{} · {}" for _ in sent)
    numbers = [float(each) for pair in zip(sent, mean, strict=True) for each in pair]
    return WorkedLine(
        f"balance = {{}} · ({terms}) = {{}}", (float(len(sent)), *numbers, found.balance), ("balance", 0, 0)
    )


def expert_names(count: int) -> tuple[str, ...]:
    return tuple(f"expert {number}" for number in range(count))


def expert_steps(layer: ExpertsNumbers, x: Array, place: int, labels: tuple[str, ...]) -> list[Step]:
    """Routing, each expert that the token at `place` asks, and the sum of what they say by their shares."""
    found, label = layer.route(x), labels[place]
    steps = routing_steps(layer, x, labels, place)
    for number in found.chosen[place].tolist():
        inner = feed_forward_steps(layer.experts[number], x, place, labels)
        named = (replace(step, title=f"Expert {number}: {lower_first(step.title)}") for step in inner)
        steps += [named_apart(step, f"expert {number}") for step in named]
    asked = found.chosen[place].tolist()
    outs = np.stack([layer.experts[number](x[place]) for number in asked])  # (K, D)
    shares = found.shares[place, asked]
    mixed = shares @ outs
    names = tuple(f"expert {number}" for number in asked)
    text = f"What {label.strip() or 'this token'} gets: the results of its experts, each by its share, added up."
    steps.append(
        Step(
            "The experts' results by their shares",
            "output = Σ_i share_i expert_i(x)",
            text,
            (
                Numbers("experts' results", outs, names),
                column("their shares", shares, names, shading="weight", beside=True),
                Numbers("output", mixed, (label,)),
            ),
            (sum_line("output_0", shares, outs[:, 0], ("output", 0, 0)),),
        )
    )
    return steps
