"""The built-in pictures that are written pixel by pixel: one figure each, white on black, at any place, in any size.

They are drawn by the distances of `scenes.py`; a pixel at an edge is as bright as the share of it that lies inside.
"""

from __future__ import annotations

import numpy as np

from regard.data.batches import generator
from regard.data.builtin.scenes import KINDS
from regard.errors import UsageError

SMALLEST = 8  # pixels
RADIUS = (0.2, 0.36)  # in parts of the picture


def figures(count: int, seed: int, side: int = 16) -> tuple[np.ndarray, list[str]]:
    """Pictures (count, side, side, 1) as bytes, and the name of the figure in each.

    They are a pure function of seed and side; a larger set begins with the same pictures.
    """
    if side < SMALLEST:
        raise UsageError(f"figures have {SMALLEST} pixels of a side or more, not {side}")
    pictures, labels, names = np.empty((count, side, side, 1), dtype=np.uint8), list[str](), list(KINDS)
    places = (np.arange(side) + 0.5) / side
    for number in range(count):
        dice = generator(seed, number)
        name, radius = names[int(dice.integers(len(names)))], dice.uniform(*RADIUS)
        x, y = dice.uniform(radius, 1 - radius, 2)
        outside = KINDS[name]((places - x)[None, :], (places - y)[:, None], radius) * side  # in pixels
        pictures[number, :, :, 0] = np.rint(255 * np.clip(0.5 - outside, 0, 1))
        labels.append(name)
    return pictures, labels
