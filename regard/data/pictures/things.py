"""The shapes that built-in scenes are made of: kinds, colours and sizes, and which pixels each covers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "green": (40, 150, 60),
    "blue": (40, 90, 215),
    "yellow": (235, 195, 20),
    "purple": (150, 60, 185),
    "black": (35, 35, 40),
}
SIZES: dict[str, tuple[float, float]] = {
    "small": (0.105, 0.125),
    "large": (0.18, 0.2),
}  # radius, in parts of the picture


def _circle(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return np.hypot(x, y) - r


def _square(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return np.maximum(abs(x), abs(y)) - 0.86 * r


def _triangle(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    """Its top in (0, -r), its base from (-r, 0.8 r) to (r, 0.8 r)."""
    return np.maximum((1.8 * abs(x) - y - r) / np.hypot(1.8, 1), y - 0.8 * r)


def _cross(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    longer, shorter = np.maximum(abs(x), abs(y)), np.minimum(abs(x), abs(y))
    return np.maximum(longer - r, shorter - 0.34 * r)


def _ring(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return abs(np.hypot(x, y) - 0.76 * r) - 0.24 * r


# How far a point (x, y), seen from the centre, is outside of a shape of radius r; below 0, how far inside.
KINDS: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "cross": _cross,
    "ring": _ring,
}


@dataclass(frozen=True)
class Thing:
    """A shape in a picture of `canvas` x `canvas` pixels. Its centre and radius are in pixels from the top left corner."""

    kind: str
    colour: str
    size: str
    x: float
    y: float
    radius: float
    canvas: int

    @property
    def words(self) -> str:
        return f"{self.size} {self.colour} {self.kind}"

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom: it lies inside."""
        return self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius

    @property
    def mask(self) -> np.ndarray:
        """(canvas, canvas), bool: the pixels whose centre it covers."""
        return self._outside() <= 0

    @property
    def coverage(self) -> np.ndarray:
        """(canvas, canvas), from 0 to 1: how much of each pixel it covers, near enough to draw a smooth edge."""
        return np.clip(0.5 - self._outside(), 0, 1)

    def _outside(self) -> np.ndarray:
        x, y = _centres(self.canvas)
        return KINDS[self.kind](x - np.float32(self.x), y - np.float32(self.y), self.radius)


@lru_cache(maxsize=8)
def _centres(canvas: int) -> tuple[np.ndarray, np.ndarray]:
    """The centres of all pixels: (1, canvas) across and (canvas, 1) down."""
    line = np.arange(canvas, dtype=np.float32) + np.float32(0.5)
    return line[None, :], line[:, None]
