"""How many outputs are right to the last character: the score for dates, numbers and other data with one answer."""

from __future__ import annotations

from collections.abc import Sequence

from regard.evaluate.pairs import check_pairs


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The percentage of hypotheses equal to their reference, character by character (case and spaces count)."""
    check_pairs(hypotheses, references)
    right = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return 100.0 * right / len(references)
