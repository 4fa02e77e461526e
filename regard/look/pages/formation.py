"""How an attention formed, as one HTML page: a slider over the steps, a button that plays them, the curves beside.

Without scripts the page shows the last map, the curves and every number; the script only repaints the cells. The arrow keys
move the slider, as in any page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.formation import Formation
from regard.look.labels import visible
from regard.look.pages import template

SHADES = 64  # colours of the scale
FLAT = 2.5  # times as many columns as rows: the curves stand below the map, not beside
MOST_NUMBERS = 600_000  # weights on a page: beyond, only what is shown is on it, not every head
WIDE, HIGH = 300, 120  # of a curve, in its own units
LEFT, BELOW = 34, 18  # of which its numbers take so much

Ends = tuple[float, float]  # the lowest and the highest number of an axis


def formation_page(formation: Formation) -> str:
    """Return the whole page, which is also well-formed XML."""
    frames = formation.frames(len(formation.steps))
    views = _views(formation, frames)
    top = scale_top(formation.maps[frames] if len(views) == 1 else formation.heads[frames])
    rows, columns = ([visible(label) for label in labels] for labels in (formation.rows, formation.columns))
    flat = len(rows) * FLAT < len(columns)
    cell = min(1.9, max(0.55, min(34 / len(rows), (66 if flat else 34) / len(columns))))  # rem
    ramp = [hexadecimal(color(INK, number / (SHADES - 1))) for number in range(SHADES)]
    return template.render(
        "formation.html",
        title=f"How it formed: {formation.title}",
        said=(formation.sentence, *formation.notes),
        state=formation.caption(frames[-1]),
        steps=len(frames),
        views=(f"shown: {formation.title}", *formation.names)[: len(views)],
        flat=flat,
        cell=f"{cell:.2f}rem",
        letters=f"{min(0.95, max(0.5, cell * 0.62)):.2f}rem",
        columns=columns,
        rows=[(row, _cells(line, top)) for row, line in zip(rows, formation.maps[frames[-1]], strict=True)],
        top=f"{top:g}",
        masked=bool(np.isnan(formation.maps).any()),
        curves=list(_curves(formation)),
        heads=len(formation.names) > 1,
        wide=WIDE,
        high=HIGH,
        left=LEFT,
        bottom=HIGH - BELOW,
        ends=[
            (f"{_across(formation, number):.1f}", anchor, f"{formation.steps[number]:,}")
            for number, anchor in ((0, "start"), (-1, "end"))
        ],
        numbers=formation.table(),
        data={
            "rows": rows,
            "columns": columns,
            "captions": [formation.caption(number) for number in frames],
            "places": [round(_across(formation, number), 1) for number in frames],
            "top": top,
            "ramp": ramp,
            "views": views,
        },
    )


def _cells(weights: np.ndarray, top: float) -> list[tuple[str, str]]:
    """Return for each weight its number and its colour, which is empty where it is masked."""
    return [
        ("", "") if np.isnan(weight) else (f"{weight:.3f}", hexadecimal(color(INK, weight / top))) for weight in weights
    ]


def _views(formation: Formation, frames: Sequence[int]) -> list[dict[str, object]]:
    """Return the maps to choose from: the one that is shown, and every head if the page can hold them."""
    found = [("", formation.maps, formation.sharpness, formation.alike)]
    if len(formation.names) > 1 and formation.heads[frames].size <= MOST_NUMBERS:
        sharpness, alike = formation.heads_sharpness, formation.heads_alike
        found += [
            (name, formation.heads[:, head], sharpness[:, head], alike[:, head])
            for head, name in enumerate(formation.names)
        ]
    return [
        {
            "name": name, "maps": [_thousandths(maps[number]) for number in frames],
            "sharpness": sharp[frames].round(4).tolist(), "alike": same[frames].round(4).tolist(),
            "alike_path": _path(formation, same), "sharp_path": _path(formation, sharp, _sharp_ends(formation)),
        }
        for name, maps, sharp, same in found
    ]  # fmt: skip


def _thousandths(weights: np.ndarray) -> list[int | None]:
    return [None if np.isnan(weight) else round(weight * 1000) for weight in weights.ravel()]


@dataclass(frozen=True)
class Tick:
    """A number of an axis, and where it and its line stand."""

    value: str
    text: str
    line: str


@dataclass(frozen=True)
class FormationCurve:
    """Values over all steps as a path, with one for each head."""

    name: str
    says: str
    kind: str  # shown, or loss
    of: str  # the path of a view that the script puts in its place
    path: str
    heads: list[str]
    ticks: list[Tick]


def _curves(formation: Formation) -> Iterator[FormationCurve]:
    """Likeness, sharpness and, if it is known, loss over the steps."""
    yield _curve(formation, "alike to the last map", formation.alike, (0.0, 1.0), "alike_path", formation.heads_alike)
    ends, heads = _sharp_ends(formation), formation.heads_sharpness
    yield _curve(formation, "greatest weight of a row", formation.sharpness, ends, "sharp_path", heads)
    losses = np.array([formation.found(number).get("loss", np.nan) for number in range(len(formation.steps))])
    if np.isfinite(losses).sum() > 1:
        yield _curve(formation, "validation loss", losses, (float(np.nanmin(losses)), float(np.nanmax(losses))))


def _curve(
    formation: Formation, name: str, values: np.ndarray, ends: Ends, of: str = "", heads: np.ndarray | None = None
) -> FormationCurve:
    """Return the curve of `values`; `heads` (steps, K) are drawn thin behind it if there are several."""
    known = values[np.isfinite(values)]
    several = heads is not None and heads.shape[1] > 1
    middle = (ends[0] + ends[1]) / 2
    return FormationCurve(
        name,
        says=f"{name}: from {known[0]:.2f} to {known[-1]:.2f}",
        kind="loss" if heads is None else "shown",
        of=of,
        path=_path(formation, values, ends),
        heads=[_path(formation, line, ends) for line in heads.T] if heads is not None and several else [],
        ticks=[
            Tick(f"{value:.3g}", f"{_down(value, ends) + 3:.1f}", f"{_down(value, ends):.1f}")
            for value in (ends[0], middle, ends[1])
        ],
    )


def _sharp_ends(formation: Formation) -> Ends:
    """From 0 to 1, and beyond where weights do not sum to one."""
    values = formation.heads_sharpness
    return min(0.0, float(values.min())), max(1.0, float(values.max()))


def _path(formation: Formation, values: np.ndarray, ends: Ends = (0.0, 1.0)) -> str:
    """A line over the steps; a step without a value is left out."""
    points = [
        f"{_across(formation, number):.1f} {_down(float(value), ends):.1f}"
        for number, value in enumerate(values)
        if np.isfinite(value)
    ]
    return "M" + "L".join(points)


def _across(formation: Formation, number: int) -> float:
    first, last = formation.steps[0], formation.steps[-1]
    return LEFT + (formation.steps[number] - first) / max(1, last - first) * (WIDE - LEFT)


def _down(value: float, ends: Ends) -> float:
    low, high = ends
    return 2 + (1 - (value - low) / ((high - low) or 1.0)) * (HIGH - BELOW - 4)
