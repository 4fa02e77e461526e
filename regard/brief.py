"""How models and results print themselves: in one short line, whatever they hold."""

from __future__ import annotations

MOST = 48  # characters of a text


def brief(thing: object, *words: str, **numbers: float) -> str:
    """As `Translation('Ein Mann …', score=-0.53)`; words that are empty are left out."""
    parts = [*filter(None, words), *(f"{name}={value:.3g}" for name, value in numbers.items())]
    return f"{type(thing).__name__}({', '.join(parts)})"


def quoted(text: str, most: int = MOST) -> str:
    """A text as Python writes it, cut after so many characters."""
    return repr(text if len(text) <= most else text[: most - 2].rstrip() + " …")


def in_short(count: int) -> str:
    """A large number as people say it: 870, 248k, 61.4M, 1.1B."""
    for unit, size, digits in (("B", 10**9, 1), ("M", 10**6, 1), ("k", 10**3, 0)):
        if count >= size:
            return f"{count / size:.{digits}f}{unit}"
    return str(count)
