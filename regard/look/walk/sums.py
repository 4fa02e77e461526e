"""Sums of products written out: the first terms, what the rest comes to, and the total."""

from __future__ import annotations

import numpy as np

from regard.look.walk.steps import Line

FIRST = 3  # terms that are written out


def sum_line(
    name: str, left: np.ndarray, right: np.ndarray, of: tuple[str, int, int], bias: float | None = None
) -> Line:
    """name = left_0 · right_0 + left_1 · right_1 + ... + bias, an equation that holds with the numbers it shows."""
    first = len(left) if len(left) <= FIRST + 1 else FIRST
    terms = ["{} · {}"] * first
    numbers = [float(each) for pair in zip(left[:first], right[:first], strict=True) for each in pair]
    if first < len(left):
        terms.append(f"[{len(left) - first} more: {{}}]")
        numbers.append(float(left[first:] @ right[first:]))
    if bias is not None:
        terms.append("{}")
        numbers.append(float(bias))
    total = float(left @ right) + (0.0 if bias is None else float(bias))
    return Line(f"{name} = {' + '.join(terms)} = {{}}", (*numbers, total), of)


def counted(many: int, one: str) -> str:
    """1 key, 2 keys."""
    return f"{many} {one}{'' if many == 1 else 's'}"


def capital(text: str) -> str:
    """The beginning of a sentence."""
    return text[:1].upper() + text[1:]


def quoted(label: str) -> str:
    """A token in a sentence."""
    from regard.look.labels import visible

    return f"“{visible(label)}”"


def asker(role: str, label: str) -> str:
    """Who looks: a token, a decoder that is about to write one, or a learned query."""
    return {"cross": f"the decoder (about to write {quoted(label)})", "pool": "the learned query"}.get(
        role, quoted(label)
    )
