"""Does attention align words as people do? Alignment error rate against links drawn by hand.

Och & Ney 2003, "A systematic comparison of various statistical alignment models", eq. 4: people mark *sure* links S
and *possible* links P (S is part of P), and a predicted alignment A has

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

so that a missed sure link and a link that nobody thought possible are both errors. 0 is best, 1 is worst.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

# (source, target) within a sentence. For a corpus put the sentence's number in front, (sentence, source, target):
# the rate of a corpus is the rate of all its links, not the mean of its sentences' rates.
Link = tuple[int, ...]


def alignment_error_rate(predicted: Set[Link], sure: Set[Link], possible: Set[Link]) -> float:
    """AER of the predicted links, in [0, 1]. Sure links count as possible even where `possible` leaves them out."""
    if not predicted and not sure:
        return 0.0  # nothing was asked for and nothing was said: no error was made
    agreed = len(predicted & sure) + len(predicted & (possible | sure))
    return 1.0 - agreed / (len(predicted) + len(sure))


def hard_alignment(weights: np.ndarray) -> set[tuple[int, int]]:
    """One link (source, target) for each row of (T, S) weights: where that target position looks most.

    NaN marks masked cells; a row with nothing but NaN looks nowhere and gives no link. Of equals the first wins.
    """
    visible = ~np.isnan(weights)  # (T, S)
    best = np.where(visible, weights, -np.inf).argmax(axis=1)  # (T,)
    return {(int(source), target) for target, source in enumerate(best) if visible[target].any()}
