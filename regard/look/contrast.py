"""Which ink can be read on a colour: black or white, whichever stands out more."""

from __future__ import annotations

from regard.look.colors import Color

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
