"""The last step: what was recomputed beside what the model gave."""

from __future__ import annotations

import numpy as np

from regard.look.walk.figures import short
from regard.look.walk.steps import Numbers, Step, column


def ending_step(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[Step, dict[str, float]]:
    """Of each name, the recomputed array and the model's; the last pair is shown whole."""
    differences = {name: float(np.abs(mine - model).max()) for name, (mine, model) in pairs.items()}
    name, (mine, model) = list(pairs.items())[-1]
    worst = max(differences.values())
    text = (
        "All numbers above were computed again from the model's weights, in double precision and without its own code. "
        f"recomputed = the model's output, difference {short(worst)} "
        f"(the largest number is {np.abs(model).max():.3g})."
    )
    arrays = (
        Numbers(f"{name}, twice", np.stack([mine, model]), ("recomputed", "the model's")),
        column("differences", list(differences.values()), tuple(differences), kind="plain"),
    )
    return Step("Recomputed = the model's output", "max |recomputed - model|", text, arrays), differences
