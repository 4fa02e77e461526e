"""The curves of a formation as drawings in its page: over all steps, with a line that the script moves."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from regard.look.formation import Formation

WIDE, HIGH = 300, 120  # of a curve, in its own units
LEFT, BELOW = 34, 18  # of which its numbers take so much


def draw_curves(formation: Formation) -> str:
    """Likeness, sharpness and loss over the steps, as drawings with words beside them."""
    parts = [
        ("alike to the last map", formation.alike, formation.heads_alike, "alike_path", "shown", (0.0, 1.0)),
        (
            "greatest weight of a row",
            formation.sharpness,
            formation.heads_sharpness,
            "sharp_path",
            "shown",
            sharp_ends(formation),
        ),
    ]
    found = "".join(_curve(formation, *each) for each in parts)
    losses = np.array([formation.found(number).get("loss", np.nan) for number in range(len(formation.steps))])
    if np.isfinite(losses).sum() > 1:
        ends = (float(np.nanmin(losses)), float(np.nanmax(losses)))
        found += _curve(formation, "validation loss", losses, losses[:, None][:, :0], "", "loss", ends)
    return f"{found}<p>thin: each head; thick: the map shown</p>" if len(formation.names) > 1 else found


def sharp_ends(formation: Formation) -> tuple[float, float]:
    """From 0 to 1, and beyond where weights do not sum to one."""
    values = formation.heads_sharpness
    return min(0.0, float(values.min())), max(1.0, float(values.max()))


def _curve(
    formation: Formation,
    name: str,
    values: np.ndarray,
    heads: np.ndarray,
    of: str,
    kind: str,
    ends: tuple[float, float],
) -> str:
    known = values[np.isfinite(values)]
    words = escape(f"{name}: from {known[0]:.2f} to {known[-1]:.2f}")
    thin = "".join(f'<path class="head" d="{path(formation, line, ends)}"/>' for line in heads.T if heads.shape[1] > 1)
    ticks = "".join(
        f'<text x="{LEFT - 4}" y="{_down(value, ends) + 3:.1f}" text-anchor="end">{value:.3g}</text>'
        f'<path class="axis" d="M{LEFT} {_down(value, ends):.1f}H{WIDE}"/>'
        for value in (ends[0], (ends[0] + ends[1]) / 2, ends[1])
    )
    steps = "".join(
        f'<text x="{across(formation, number):.1f}" y="{HIGH - 4}" text-anchor="{anchor}">{formation.steps[number]:,}</text>'
        for number, anchor in ((0, "start"), (-1, "end"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -16 {WIDE} {HIGH + 16}" role="img" aria-label="{words}">'
        f'<text class="name" x="{LEFT}" y="-6">{escape(name)}</text>{ticks}{steps}{thin}'
        f'<path class="{kind}" data-of="{of}" d="{path(formation, values, ends)}"/>'
        f'<path class="now" data-high="{HIGH - BELOW}" d=""/></svg>'
    )


def path(formation: Formation, values: np.ndarray, ends: tuple[float, float] = (0.0, 1.0)) -> str:
    """A line over the steps; a step without a value is left out."""
    points = [
        f"{across(formation, number):.1f} {_down(float(value), ends):.1f}"
        for number, value in enumerate(values)
        if np.isfinite(value)
    ]
    return "M" + "L".join(points)


def across(formation: Formation, number: int) -> float:
    first, last = formation.steps[0], formation.steps[-1]
    return LEFT + (formation.steps[number] - first) / max(1, last - first) * (WIDE - LEFT)


def _down(value: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return 2 + (1 - (value - low) / ((high - low) or 1.0)) * (HIGH - BELOW - 4)
