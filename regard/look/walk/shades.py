"""Colours for numbers of both signs, and the sine and cosine table as blocks of colour in a terminal.

Paper is light: both signs get darker the farther they are from zero, orange above and purple below (ColorBrewer's PuOr,
Brewer 2003). A terminal or a page on a dark ground is the other way round: both get brighter.
"""

from __future__ import annotations

from regard.look.colors import Color, color

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


def signed(share: float, dark: bool = False) -> Color:
    """The colour of a number between -1 and 1."""
    above, below = (ABOVE_DARK, BELOW_DARK) if dark else (ABOVE, BELOW)
    return color(above if share >= 0 else below, abs(share))
