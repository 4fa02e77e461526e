"""The end of a model: the last norm, logits, and the likeliest words; or the labels of a classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.look.walk.feed_forward import NAME, Activation, activate
from regard.look.walk.softmax import softmax
from regard.look.walk.steps import (
    Array,
    Numbers,
    Step,
    WorkedLine,
    column,
    counted,
    named_apart,
    parameter,
    quoted_token,
    scalar,
    sum_line,
)
from regard.look.walk.sublayer import NORM_FORMULA, NORM_PAPER, LinearNumbers, Norm, norm_arrays

LIKELIEST = 10  # words that are shown

Labels = Callable[[Sequence[int]], Sequence[str]]
Pooling = Literal["token", "mean", "max"]
POOLED = {"mean": "the mean of all vectors", "max": "the greatest number of all vectors, dimension by dimension"}


@dataclass(frozen=True, eq=False)
class HeadLayer:
    """A layer between the last vector and the output: activation(x W + b), then a norm."""

    linear: LinearNumbers
    activation: Activation | Literal["tanh"]
    norm: Norm | None = None

    def units(self, x: Array) -> Array:
        inner = self.linear(x)
        return np.tanh(inner) if self.activation == "tanh" else activate(inner, self.activation)

    def __call__(self, x: Array) -> Array:
        return self.units(x) if self.norm is None else self.norm(self.units(x))


@dataclass(frozen=True, eq=False)
class OutputNumbers:
    """From vectors (T, D) to logits (V,): of one token, or of all together."""

    table: LinearNumbers  # (D, V)
    labels: Labels  # of ids from 0 to V - 1
    of: str  # what is predicted, in a sentence: the next token, the token in the gap, the label
    layer: HeadLayer | None = None
    pooling: Pooling = "token"

    def pooled(self, x: Array, place: int) -> Array:
        """The one vector that predicts: (D,)."""
        return x[place] if self.pooling == "token" else x.mean(axis=0) if self.pooling == "mean" else x.max(axis=0)

    def logits(self, x: Array, place: int) -> Array:
        """(V,)."""
        vector = self.pooled(x, place)
        return self.table(vector if self.layer is None else self.layer(vector))


def last_norm_step(norm: Norm, x: Array, label: str, name: str) -> Step:
    """The norm behind the last block of a stack, of one token: x (D,)."""
    arrays, line = norm_arrays(norm, x, label, "x", "normed x")
    text = (
        "Pre-norm blocks add to a vector that is never normed itself; so there is one norm behind the last of them "
        f"({NORM_PAPER[norm.kind]})."
    )
    step = Step(f"The norm behind {name}", NORM_FORMULA[norm.kind], text, arrays, (line,))
    return named_apart(step, f"behind {name}")


def output_steps(output: OutputNumbers, x: Array, place: int, label: str) -> list[Step]:
    """From the last vectors (T, D) to probabilities, seen from the token at `place`."""
    vector, steps = output.pooled(x, place), []
    if output.pooling != "token":
        text = f"The text's one vector is {POOLED[output.pooling]}."
        steps.append(
            Step("One vector for the text", f"{output.pooling} of x", text, (Numbers("pooled", vector, ("text",)),))
        )
    if output.layer is not None:
        steps.append(_layer_step(output.layer, vector, label))
        vector = output.layer(vector)
    logits = output.table(vector)
    return [*steps, _logits_step(output, vector, logits, label), _likeliest_step(output, logits)]


def _layer_step(layer: HeadLayer, x: Array, label: str) -> Step:
    linear, units = layer.linear, layer.units(x)
    arrays = [parameter("W", linear.weight), *([] if linear.bias is None else [parameter("b", linear.bias)])]
    arrays += [Numbers("inner", linear(x), (label,)), Numbers("units", units, (label,))]
    bias = None if linear.bias is None else float(linear.bias[0])
    lines = [sum_line("inner_0", x, linear.weight[:, 0], ("inner", 0, 0), bias)]
    name = "tanh" if layer.activation == "tanh" else NAME[layer.activation]
    text, formula = f"One more layer before the output, with {name}.", f"{name}(x W + b)"
    if layer.norm is not None:
        more, line = norm_arrays(layer.norm, units, label, "units", "normed units")
        arrays, lines = [*arrays, *more], [*lines, line]
        text, formula = f"One more layer before the output, with {name} and a norm.", f"norm({formula})"
    return named_apart(Step("The head's own layer", formula, text, tuple(arrays), tuple(lines)), "head")


def _logits_step(output: OutputNumbers, x: Array, logits: Array, label: str) -> Step:
    best, several = int(logits.argmax()), len(logits)
    shown = likeliest(logits)
    word = quoted_token(output.labels([best])[0])
    bias = None if output.table.bias is None else float(output.table.bias[best])
    text = (
        f"The vector meets the row of each of {counted(several, 'label' if output.of == 'the label' else 'token')} in the "
        f"output table: a number for every one of them, the logit. Greatest: {word}."
    )
    arrays = (
        Numbers("last vector", x, (label,)),
        Numbers("their rows", output.table.weight[:, shown].T, tuple(output.labels(shown)), folded=True),
        column("logits of the likeliest", logits[shown], tuple(output.labels(shown))),
        Numbers("logits", logits, ("logit",), folded=True),
    )
    line = sum_line(f"logit of {word}", x, output.table.weight[:, best], ("logits of the likeliest", 0, 0), bias)
    return Step("Logits", "logit_w = x · row_w" + ("" if bias is None else " + b_w"), text, arrays, (line,))


def _likeliest_step(output: OutputNumbers, logits: Array) -> Step:
    shown, shares = likeliest(logits), softmax(logits)
    best, highest = int(shown[0]), float(logits.max())
    total = float(np.exp(logits - highest).sum())
    labels = tuple(output.labels(shown))
    together = float(shares[shown].sum())
    text = (
        f"The softmax over all {len(logits)} makes probabilities of the logits: how likely each is as {output.of}. "
        + (f"These {len(shown)} have {together:.1%} of it all." if len(shown) < len(logits) else "")
    ).strip()
    arrays = (
        column("probability", shares[shown], labels, shading="weight", marked=0),
        scalar("sum of exp(logit - max)", total),
        scalar("together", together),
    )
    numbers = (float(logits[best]), highest, total, float(shares[best]))
    line = WorkedLine(
        f"probability of {quoted_token(labels[0])} = exp({{}} - {{}}) / {{}} = {{}}", numbers, ("probability", 0, 0)
    )
    return Step(_title(output, len(shown)), "p(w) = exp(logit_w - max) / Σ exp(logit - max)", text, arrays, (line,))


def _title(output: OutputNumbers, shown: int) -> str:
    return "The labels, likeliest first" if output.of == "the label" else f"The {shown} likeliest, as {output.of}"


def likeliest(logits: Array) -> list[int]:
    """Ids of the greatest logits, the greatest first; of equals the lower id."""
    found: list[int] = np.argsort(-logits, kind="stable")[:LIKELIEST].tolist()
    return found
