"""A norm written out for one vector: its mean, its variance, and one component of the result."""

from __future__ import annotations

import numpy as np

from regard.look.walk.given import Norm
from regard.look.walk.steps import Line, Numbers, number

FORMULA = {
    "layer": "norm(x) = (x - mean) / √(variance + ε) · w + b",
    "rms": "norm(x) = x / √(mean of x² + ε) · w",
}
PAPER = {"layer": "layer norm, Ba et al. 2016", "rms": "root-mean-square norm, Zhang & Sennrich 2019"}


def norm_arrays(norm: Norm, x: np.ndarray, label: str, of: str, name: str) -> tuple[tuple[Numbers, ...], Line]:
    """What a norm makes of x (D,), called `of`: arrays, the last the result under `name`, and one component worked out."""
    centre, spread = (float(part[0]) for part in norm.parts(x))
    result = norm(x)
    arrays = [number(f"variance of {of}", spread), number("ε", norm.epsilon)]
    if norm.kind == "layer":
        arrays.insert(0, number(f"mean of {of}", centre))
    else:
        arrays[0] = number(f"mean square of {of}", spread)
    arrays.append(Numbers("w of the norm", norm.weight, ("w",), aside=True))
    if norm.bias is not None:
        arrays.append(Numbers("b of the norm", norm.bias, ("b",), aside=True))
    arrays.append(Numbers(name, result, (label,)))
    return tuple(arrays), _line(norm, x, centre, spread, name)


def _line(norm: Norm, x: np.ndarray, centre: float, spread: float, name: str) -> Line:
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
    return Line(text + " = {}", (*numbers, float(norm(x)[0])), (name, 0, 0))
