"""From scores to weights, the same for every attention: what is masked and why, then exp, sum and quotient."""

from __future__ import annotations

from collections import Counter

import numpy as np

from regard.look.walk.steps import Array, Numbers, Step, WorkedLine, capital, column, counted, quoted_token, scalar

LATER = "later than the query"  # why a causal mask hides a key
SOFTMAX_TITLE = "Softmax: exp, sum, quotient"
SOFTMAX_FORMULA = "weight_j = exp(score_j - max) / Σ exp(score - max)"


def masked(scores: Array, allowed: Array | None) -> Array:
    """Scores (..., S) with minus infinity where the query must not look."""
    return scores if allowed is None else np.where(allowed, scores, -np.inf)


def softmax(scores: Array) -> Array:
    """Softmax over the last axis; a query that may look nowhere gets zeros."""
    highest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(highest), highest, 0.0))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1.0, total)


def mask_step(
    scores: Array, allowed: Array | None, reasons: tuple[str, ...], keys: tuple[str, ...], asker: str
) -> Step:
    """Scores (S,) become minus infinity where the query must not look; the step says why."""
    title, formula = "Mask: where the query must not look", "masked score = score, or -∞ where it must not look"
    if allowed is None or bool(allowed.all()):
        text = f"Nothing is masked here: {asker} may see {_all(len(keys))}, so the scores stay as they are."
        return Step(title, formula, text, (column("masked scores", scores, keys),))
    why = Counter(reason for reason in reasons if reason)
    told = ", ".join(f"{counted(many, 'key')} {reason}" for reason, many in why.items())
    text = (
        f"{capital(asker)} must not see {told}. Such scores become -∞, so that the exp of the next step makes them "
        "exactly 0 and they take nothing from the others (Vaswani et al. 2017, section 3.2.3)."
    )
    seen = column("allowed", allowed, keys, shading="plain")
    return Step(
        title,
        formula,
        text,
        (seen, column("masked scores", masked(scores, allowed), keys, beside=True, remarks=reasons)),
    )


def softmax_step(scores: Array, keys: tuple[str, ...], asker: str) -> Step:
    """Masked scores (S,) become weights (S,) that sum to one."""
    highest, best = float(scores.max()), int(scores.argmax())
    if not np.isfinite(highest):
        text = f"{capital(asker)} may look nowhere, so all its weights are 0."
        return Step(SOFTMAX_TITLE, SOFTMAX_FORMULA, text, (column("weights", softmax(scores), keys, shading="weight"),))
    shifted = scores - highest
    powers = np.exp(shifted)
    total, weights = float(powers.sum()), softmax(scores)
    text = (
        "exp makes every score positive, and dividing by the sum makes them shares of one. The largest score is taken off "
        "first: that changes nothing in the quotient, and no exp can grow beyond what a computer holds. "
        f"Most goes to {quoted_token(keys[best])}: {weights[best]:.1%}."
    )
    arrays: tuple[Numbers, ...] = (
        scalar("max", highest),
        column("shifted", shifted, keys),
        column("exp", powers, keys, shading="weight", beside=True),
        column("weights", weights, keys, shading="weight", beside=True, marked=best),
        scalar("sum", total),
    )
    numbers = (float(scores[best]), highest, total, float(weights[best]))
    line = WorkedLine(
        f"weight of {quoted_token(keys[best])} = exp({{}} - {{}}) / {{}} = {{}}", numbers, ("weights", best, 0)
    )
    return Step(SOFTMAX_TITLE, SOFTMAX_FORMULA, text, arrays, (line,))


def _all(keys: int) -> str:
    return "the only key" if keys == 1 else f"all {keys} keys"
