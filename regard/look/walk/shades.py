"""Colours for numbers of both signs, and the style rules that shade the cells of a page.

Paper is light: both signs get darker the farther they are from zero, orange above and purple below (ColorBrewer's PuOr,
Brewer 2003). A terminal or a page on a dark ground is the other way round: both get brighter.
"""

from __future__ import annotations

from functools import cache

from regard.look.colors import GLOW, INK, Color, color, hexadecimal, ink_on
from regard.look.walk.steps import Shading

ABOVE: tuple[Color, ...] = (
    (255, 255, 255),
    (254, 224, 182),
    (253, 184, 99),
    (224, 130, 20),
    (179, 88, 6),
    (127, 59, 8),
)
BELOW: tuple[Color, ...] = (
    (255, 255, 255),
    (216, 218, 235),
    (178, 171, 210),
    (128, 115, 172),
    (84, 39, 136),
    (45, 0, 75),
)
ABOVE_DARK: tuple[Color, ...] = (
    (27, 33, 39),
    (74, 44, 16),
    (128, 70, 12),
    (190, 108, 20),
    (238, 156, 62),
    (255, 206, 140),
)
BELOW_DARK: tuple[Color, ...] = (
    (27, 33, 39),
    (50, 42, 84),
    (80, 68, 130),
    (118, 104, 178),
    (164, 152, 218),
    (214, 206, 246),
)
WEIGHTS_DARK: tuple[Color, ...] = ((27, 33, 39), *GLOW[2:8:2], (150, 232, 240))
LEVELS = 16  # shades from nothing to the most, of each sign


def signed(share: float, dark: bool = False) -> Color:
    """The colour of a number between -1 and 1."""
    above, below = (ABOVE_DARK, BELOW_DARK) if dark else (ABOVE, BELOW)
    return color(above if share >= 0 else below, abs(share))


def shade_class(share: float, shading: Shading) -> str:
    """The class of a cell at `share` of the greatest number, from -1 to 1."""
    letter = "w" if shading == "weight" else "a" if share >= 0 else "b"
    return f"{letter}{min(round(abs(share) * (LEVELS - 1)), LEVELS - 1)}"


@cache
def shade_rules() -> str:
    """The style of all shades, on light and on dark ground."""
    return f"{_rules(dark=False)}@media screen and (prefers-color-scheme: dark) {{\n{_rules(dark=True)}}}\n"


def _rules(dark: bool) -> str:
    """Cells a0 .. (above zero), b0 .. (below) and w0 .. (weights), and the bars of their legends."""
    shares = [step / (LEVELS - 1) for step in range(LEVELS)]
    ramps = {
        "a": [signed(share, dark) for share in shares],
        "b": [signed(-share, dark) for share in shares],
        "w": [color(WEIGHTS_DARK if dark else INK, share) for share in shares],
    }
    rules = [
        f".walk .{name}{step} {{ background: {hexadecimal(ground)}; color: {hexadecimal(ink_on(ground))}; }}"
        for name, ramp in ramps.items()
        for step, ground in enumerate(ramp)
    ]
    bars = {"signed": [*ramps["b"][::-1], *ramps["a"]], "weight": ramps["w"]}
    for name, ramp in bars.items():
        colors = ", ".join(map(hexadecimal, ramp))
        rules.append(f".walk i.{name} {{ background: linear-gradient(to right, {colors}); }}")
    return "\n".join(rules) + "\n"
