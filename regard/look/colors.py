"""Colours of weights, and the ink that can be read on them.

Both ramps only ever get darker or only ever brighter, so that a print in grey, or an eye that does not see a hue, still
reads the order of the weights.
"""

from __future__ import annotations

import math

import numpy as np

Color = tuple[int, int, int]  # red, green, blue, each 0 to 255

# ColorBrewer "Blues" (Brewer 2003): paper-white for nothing, dark ink for all. For figures and web pages.
INK: tuple[Color, ...] = (
    (247, 251, 255),
    (222, 235, 247),
    (198, 219, 239),
    (158, 202, 225),
    (107, 174, 214),
    (66, 146, 198),
    (33, 113, 181),
    (8, 81, 156),
    (8, 48, 107),
)

# "viridis" (Smith & van der Walt 2015) at nine even steps: dark for nothing, bright for all. For terminals, which are
# mostly dark, where a page of near-white zeros would shine.
GLOW: tuple[Color, ...] = (
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
)

# ColorBrewer "RdBu" (Brewer 2003), turned around: blue below zero, red above, both the darker the further away.
DIVERGING: tuple[Color, ...] = (
    (5, 48, 97), (33, 102, 172), (67, 147, 195), (146, 197, 222), (209, 229, 240), (247, 247, 247),
    (253, 219, 199), (244, 165, 130), (214, 96, 77), (178, 24, 43), (103, 0, 31),
)  # fmt: skip


def color(ramp: tuple[Color, ...], share: float) -> Color:
    """The colour at `share` of the way along the ramp (0 first, 1 last), mixed from its two neighbours."""
    place = min(max(share, 0.0), 1.0) * (len(ramp) - 1)
    below = min(int(place), len(ramp) - 2)
    mix = place - below
    first, second = ramp[below], ramp[below + 1]
    red, green, blue = (round(a + (b - a) * mix) for a, b in zip(first, second, strict=True))
    return red, green, blue


def shades(shares: np.ndarray, ramp: tuple[Color, ...]) -> np.ndarray:
    """The colours of shares between 0 and 1, in 256 steps: (...) -> (..., 3) bytes; what is no number is white."""
    table = np.array([*(color(ramp, level / 255) for level in range(256)), WHITE], dtype=np.uint8)  # (257, 3)
    levels = np.rint(np.clip(np.nan_to_num(shares), 0, 1) * 255).astype(np.intp)
    found: np.ndarray = table[np.where(np.isnan(shares), 256, levels)]
    return found


def hexadecimal(rgb: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def only_key(weights: np.ndarray) -> np.ndarray:
    """Mark each cell that is the only one its row may see, as the first of a causal map: its weight is 1 whatever happens.

    Such cells do not stretch the scale, unless there are no others. Booleans, as weights (..., T, S).
    """
    weights = np.asarray(weights)
    free = np.isfinite(weights)
    if weights.ndim < 2 or free.all():
        return np.zeros(weights.shape, dtype=bool)
    alone = free & (free.sum(axis=-1, keepdims=True) == 1)
    return alone if (free & ~alone).any() else np.zeros(weights.shape, dtype=bool)


def scale_top(weights: np.ndarray) -> float:
    """The weight that gets the last colour: the smallest round number that no weight exceeds.

    A fixed 1 would leave averages over heads and long sentences nearly blank. A round number keeps maps of one kind
    mostly on one scale, and the legend always says it.
    """
    highest = float(np.max(weights, initial=0.0, where=np.isfinite(weights) & ~only_key(weights)))
    if highest <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    step = next((step for step in STEPS if highest <= step * power * (1 + 1e-6)), STEPS[-1])  # softmax rounds above 1
    return float(f"{step * power:.6g}")


BLACK: Color = (0, 0, 0)
WHITE: Color = (255, 255, 255)


def luminance(rgb: Color) -> float:
    """Relative luminance as WCAG 2 defines it, from the curve of sRGB (IEC 61966-2-1): 0 for black, 1 for white."""
    red, green, blue = (_linear(part / 255) for part in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21; text should have 4.5 or more."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def ink_on(ground: Color) -> Color:
    """Black or white. Against any ground the better of the two has a contrast of √21 ≈ 4.58 or more."""
    return max(BLACK, WHITE, key=lambda ink: contrast(ink, ground))


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
