"""An LSTM over a few steps, gate by gate (Hochreiter & Schmidhuber 1997; the forget gate: Gers et al. 2000):

[i f g o] = x_t W_x + h_(t-1) W_h + b,   c_t = σ(f) ∘ c_(t-1) + σ(i) ∘ tanh(g),   h_t = σ(o) ∘ tanh(c_t)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.errors import UsageError
from regard.look.walk.examples.given import (
    check_names,
    check_product,
    name_shapes,
    read_labels,
    read_matrix,
    read_vector,
)
from regard.look.walk.steps import About, Array, Numbers, Step, Walk, WorkedLine, counted, quoted_token, sum_line

WORDS = ("the", "dog", "barks")
X = ((1, 0), (0, 2), (1, 1))
W_X = ((1, 0, 2, 1, 1, 0, 0, 1), (0, 1, 0, 1, 0, 1, 1, 0))  # columns: input, forget, new, output, two units each
W_H = ((0, 1, 1, 0, -1, 0, 1, 0), (1, 0, 0, 1, 0, -1, 0, 1))
B = (0, 0, 1, 1, 0, 0, 0, 0)  # the forget gate begins open
KEYS = ("x", "W_x", "W_h", "b", "labels")
GATES = ("input", "forget", "new", "output")


@dataclass(frozen=True, eq=False)
class LSTMNumbers:
    """A sequence and the weights of one layer; columns of both matrices are input, forget, new, output, as torch has them."""

    x: Array  # (T, D)
    to_gates: Array  # (D, 4 H)
    from_state: Array  # (H, 4 H)
    bias: Array  # (4 H,)
    labels: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.from_state)


@dataclass(frozen=True, eq=False)
class LSTMStep:
    """One step: all (4, H) or (H,)."""

    before: tuple[Array, Array]  # h and c
    sums: Array  # (4, H)
    gates: Array  # (4, H): after σ, and after tanh for what is new
    cell: Array  # (H,)
    state: Array  # (H,)


def run_lstm(numbers: LSTMNumbers) -> list[LSTMStep]:
    """Every step from a state of zeros."""
    state = cell = np.zeros(numbers.width)
    found = []
    for x in numbers.x:
        before = (state, cell)
        sums = (x @ numbers.to_gates + state @ numbers.from_state + numbers.bias).reshape(4, -1)
        gates = 1 / (1 + np.exp(-sums))
        gates[2] = np.tanh(sums[2])
        cell = gates[1] * cell + gates[0] * gates[2]
        state = gates[3] * np.tanh(cell)
        found.append(LSTMStep(before, sums, gates, cell, state))
    return found


def lstm_walk(query: int | str | None = None) -> Walk:
    """An LSTM of two units over three words."""
    _check_query(query)
    x, to_gates, from_state, bias = (np.array(each, dtype=np.float64) for each in (X, W_X, W_H, B))
    return gates_walk(LSTMNumbers(x, to_gates, from_state, bias, WORDS))


def read_lstm(values: Mapping[str, object], name: str, query: int | str | None) -> Walk:
    """An LSTM on a person's own numbers: x (T x D), W_x (D x 4H), W_h (H x 4H), b (4H)."""
    check_names(values, KEYS, ("x", "W_x", "W_h"), name)
    _check_query(query)
    found = {key: read_matrix(values[key], f"{name}: {key}") for key in ("x", "W_x", "W_h")}
    check_product(found, "x", "W_x", name)
    width = found["W_h"].shape[1]
    found["b"] = np.zeros((1, width)) if values.get("b") is None else read_vector(values["b"], f"{name}: b")[None]
    if width != 4 * len(found["W_h"]):
        raise UsageError(f"{name}: W_h has four columns for each of its rows, a gate each", name_shapes(found, "W_h"))
    for other in ("W_x", "b"):
        if found[other].shape[1] != width:
            raise UsageError(f"{name}: {other} and W_h must be as wide as each other", name_shapes(found, other, "W_h"))
    labels = read_labels(values.get("labels"), len(found["x"]), f"{name}: labels")
    return gates_walk(LSTMNumbers(found["x"], found["W_x"], found["W_h"], found["b"][0], labels))


def _check_query(query: int | str | None) -> None:
    if query is not None:
        raise UsageError("an LSTM reads in order, and has no query", "leave out the query")


def gates_walk(numbers: LSTMNumbers) -> Walk:
    """Every gate of every step."""
    found = run_lstm(numbers)
    steps = [_enter(numbers)]
    for time, step in enumerate(found):
        steps += [_gates(numbers, step, time), _cell(step, time, numbers.labels[time])]
    about: About = {"keys": list(numbers.labels)}
    summary = (
        f"{counted(numbers.width, 'unit')} over {counted(len(numbers.x), 'step')}. What it knows of the past is c, of a fixed "
        "size, and h, what it shows of it."
    )
    return Walk("An LSTM, gate by gate", summary, (*steps, _over_time(numbers, found)), about)


def _named(width: int) -> tuple[str, ...]:
    """The columns of both matrices: each gate's units."""
    return tuple(f"{gate} {unit}" for gate in GATES for unit in range(width))


def _enter(numbers: LSTMNumbers) -> Step:
    names = _named(numbers.width)
    rows = tuple(map(str, range(len(numbers.to_gates))))
    arrays = (
        Numbers("x", numbers.x, numbers.labels),
        Numbers("W_x", numbers.to_gates, rows, names),
        Numbers("W_h", numbers.from_state, tuple(map(str, range(numbers.width))), names),
        Numbers("b", numbers.bias, ("b",), names),
    )
    text = (
        "Two matrices make four vectors of each step: from what is read now, and from h, what was shown before. The input gate "
        "says how much is taken in, the forget gate how much stays, the output gate how much is shown. h and c begin as zeros."
    )
    return Step("What is read, and the weights", "[i f g o] = x_t W_x + h_(t-1) W_h + b", text, arrays)


def _gates(numbers: LSTMNumbers, step: LSTMStep, time: int) -> Step:
    units = tuple(f"unit {unit}" for unit in range(numbers.width))
    name = f"step {time + 1}"
    x, h = numbers.x[time], step.before[0]
    both = np.concatenate([x, h])
    weights = np.concatenate([numbers.to_gates, numbers.from_state])
    place = numbers.width  # the forget gate of unit 0
    line = sum_line("forget_0", both, weights[:, place], (f"sums of {name}", 1, 0), float(numbers.bias[place]))
    opened = (float(step.sums[1, 0]), float(step.gates[1, 0]))
    lines = (line, WorkedLine("σ: 1 / (1 + exp(-{})) = {}", opened, (f"gates of {name}", 1, 0)))
    arrays = (
        Numbers(
            f"x and h before {name}",
            both,
            ("x, h",),
            (*(f"x_{n}" for n in range(len(x))), *(f"h_{n}" for n in range(len(h)))),
        ),
        Numbers(f"sums of {name}", step.sums, GATES, units),
        Numbers(f"gates of {name}", step.gates, GATES, units),
    )
    text = (
        f"{quoted_token(numbers.labels[time])} is read. σ makes gates between 0 (shut) and 1 (open); what is new goes through "
        "tanh, between -1 and 1."
    )
    return Step(f"{name.capitalize()}: the gates", "σ(i), σ(f), tanh(g), σ(o)", text, arrays, lines)


def _cell(step: LSTMStep, time: int, label: str) -> Step:
    units = tuple(f"unit {unit}" for unit in range(len(step.cell)))
    name = f"step {time + 1}"
    i, f, g, o = step.gates
    arrays = (
        Numbers(f"c before {name}", step.before[1], ("c",), units),
        Numbers(f"kept in {name}", f * step.before[1], ("f ∘ c",), units),
        Numbers(f"taken in {name}", i * g, ("i ∘ g",), units),
        Numbers(f"c after {name}", step.cell, ("c",), units),
        Numbers(f"h after {name}", step.state, ("h",), units),
    )
    kept = tuple(float(each[0]) for each in (f, step.before[1], i, g, step.cell))
    shown = tuple(float(each[0]) for each in (o, step.cell, step.state))
    lines = (
        WorkedLine("c_0 = {} · {} + {} · {} = {}", kept, (f"c after {name}", 0, 0)),
        WorkedLine("h_0 = {} · tanh({}) = {}", shown, (f"h after {name}", 0, 0)),
    )
    text = (
        f"On average {float(f.mean()):.0%} of what was known stays; what {quoted_token(label)} brings is added; the output "
        "gate says what is shown."
    )
    return Step(
        f"{name.capitalize()}: what is kept, taken in and shown",
        "c = f ∘ c + i ∘ g,   h = o ∘ tanh(c)",
        text,
        arrays,
        lines,
    )


def _over_time(numbers: LSTMNumbers, found: list[LSTMStep]) -> Step:
    units = tuple(f"unit {unit}" for unit in range(numbers.width))
    forget = np.stack([step.gates[1] for step in found])  # (T, H)
    left = np.concatenate([np.cumprod(forget[:0:-1], axis=0)[::-1], np.ones((1, numbers.width))])  # (T, H)
    arrays = (
        Numbers("h over time", np.stack([step.state for step in found]), numbers.labels, units),
        Numbers("forget gate over time", forget, numbers.labels, units, shading="weight"),
        Numbers("left at the end", left, numbers.labels, units, shading="weight"),
    )
    text = (
        "What is left at the end of what each step took in: the product of all forget gates behind it. Below one it shrinks "
        "with every step, and the gradient that comes back shrinks with it; attention has no such chain."
    )
    return Step("What is left of each word", "Π of the forget gates behind it", text, arrays)
