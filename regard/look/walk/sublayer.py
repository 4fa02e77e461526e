"""The parts in and around every sub-layer of a block, in float64: linear layers, norms, the residual connection.

pre   x + f(norm(x))   (Xiong et al. 2020)      post  norm(x + f(x))   (Vaswani et al. 2017)      none  x + f(x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.look.walk.steps import Array, Numbers, Step, WorkedLine, parameter, scalar

NORM_FORMULA = {
    "layer": "norm(x) = (x - mean) / √(variance + ε) · w + b",
    "rms": "norm(x) = x / √(mean of x² + ε) · w",
}
NORM_PAPER = {"layer": "layer norm, Ba et al. 2016", "rms": "root-mean-square norm, Zhang & Sennrich 2019"}


@dataclass(frozen=True, eq=False)
class LinearNumbers:
    """x W + b: W (in, out), laid out so that a row times the matrix is the next row."""

    weight: Array  # (in, out)
    bias: Array | None = None  # (out,)

    def __call__(self, x: Array) -> Array:
        out = x @ self.weight
        return out if self.bias is None else out + self.bias

    def head(self, number: int, width: int) -> LinearNumbers:
        """The columns of one head."""
        part = slice(number * width, (number + 1) * width)
        return LinearNumbers(self.weight[:, part], None if self.bias is None else self.bias[part])


@dataclass(frozen=True, eq=False)
class Norm:
    """layer: (x - mean) / √(variance + ε) · w + b;   rms: x / √(mean of x² + ε) · w."""

    kind: Literal["layer", "rms"]
    weight: Array  # (D,)
    bias: Array | None
    epsilon: float

    def __call__(self, x: Array) -> Array:
        centre, spread = self.moments(x)
        normed = (x - centre) / np.sqrt(spread + self.epsilon) * self.weight
        return normed if self.bias is None else normed + self.bias

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance of each vector, or zero and the mean square: (..., 1) each."""
        centre = x.mean(axis=-1, keepdims=True) if self.kind == "layer" else np.zeros((*x.shape[:-1], 1))
        return centre, np.square(x - centre).mean(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Around:
    """The norm and the residual connection around a sub-layer f; without both, f alone."""

    norm: Norm | None = None
    order: str = "none"  # of norm and sub-layer: pre, post, none
    residual: bool = False

    def enter(self, x: Array) -> Array:
        """Vectors as the sub-layer sees them: normed, if the norm stands before."""
        return self.norm(x) if self.norm is not None and self.order == "pre" else x

    def leave(self, x: Array, out: Array) -> tuple[Array, Array]:
        """Add x to the output of the sub-layer; return the sum, and the same normed if the norm stands behind."""
        added = x + out if self.residual else out
        return added, self.norm(added) if self.norm is not None and self.order == "post" else added

    @property
    def is_there(self) -> bool:
        """Whether anything happens behind the sub-layer."""
        return self.residual or self.order == "post"


ALONE = Around()  # a sub-layer by itself


def leave_step(around: Around, x: Array, out: Array, label: str, what: str) -> Step:
    """The residual connection of x and out (D,), and the norm if it stands behind; `what` names the sub-layer."""
    added, left = around.leave(x, out)
    arrays: tuple[Numbers, ...] = ()
    lines: tuple[WorkedLine, ...] = ()
    text, formula, title = "", "output", "Norm"
    if around.residual:
        text = f"What {what} found is added to what was there, so that nothing is lost (residual connection, He et al. 2016)."
        formula, title = "x + output", "Residual"
        arrays = (Numbers("residual", added, (label,)),)
        lines = (WorkedLine("{} + {} = {}", (float(x[0]), float(out[0]), float(added[0])), ("residual", 0, 0)),)
    if around.norm is not None and around.order == "post":
        more, line = norm_arrays(around.norm, added, label, "the sum", "normed output")
        text += f" Then the sum is normed ({NORM_PAPER[around.norm.kind]}), as in the paper."
        formula, title = f"norm({formula})", f"{title} and norm" if around.residual else title
        arrays, lines = (*arrays, *more), (*lines, line)
        assert np.allclose(left, more[-1].values)
    return Step(title, formula, text.strip(), arrays, lines)


def norm_arrays(norm: Norm, x: Array, label: str, of: str, name: str) -> tuple[tuple[Numbers, ...], WorkedLine]:
    """A norm of x (D,), which is called `of`: its arrays, the last the result under `name`, and one component worked out."""
    centre, spread = (float(part[0]) for part in norm.moments(x))
    arrays = [scalar(f"variance of {of}", spread), scalar("ε", norm.epsilon)]
    if norm.kind == "layer":
        arrays = [scalar(f"mean of {of}", centre), arrays[0], scalar(f"deviation of {of}", spread**0.5), arrays[1]]
    else:
        arrays[0] = scalar(f"mean square of {of}", spread)
    arrays.append(parameter("w of the norm", norm.weight))
    if norm.bias is not None:
        arrays.append(parameter("b of the norm", norm.bias))
    arrays.append(Numbers(name, norm(x), (label,)))
    return tuple(arrays), _norm_line(norm, x, centre, spread, name)


def _norm_line(norm: Norm, x: Array, centre: float, spread: float, name: str) -> WorkedLine:
    numbers = [float(x[0])]
    left = "{}"
    if norm.kind == "layer":
        left = "({} - {})"
        numbers.append(centre)
    text = f"norm_0 = {left} / √({{}} + {{}}) · {{}}"
    numbers += [spread, norm.epsilon, float(norm.weight[0])]
    if norm.bias is not None:
        text += " + {}"
        numbers.append(float(norm.bias[0]))
    return WorkedLine(text + " = {}", (*numbers, float(norm(x)[0])), (name, 0, 0))
