"""Whether a head matters: the loss on data with the head removed (Michel et al. 2019, "Are sixteen heads really better
than one?", section 3), against that of the whole model on the same texts.

What the head saw becomes zeros; nothing is trained again. A head whose work others can do as well shows a small number
here, even where it does that work: so whole layers are removed too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.attention import Remove, intervene
from regard.evaluate.ratios import Estimate, ratios
from regard.tasks.heads_texts import Texts

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Removals:
    """The loss of the whole model, in nats for each prediction, and how much each removal changes it."""

    loss: Estimate
    predictions: int
    changes: tuple[Estimate, ...]  # in the order of what was removed; above zero is worse


def without_each(texts: Texts, removals: Sequence[Sequence[Remove]], progress: Progress | None = None) -> Removals:
    """One pass for each removal, which may be of several heads at once. Differences are paired, text by text."""
    whole, counts = texts.losses()
    changes = np.zeros((len(texts), len(removals)))
    for place, removal in enumerate(removals):
        changes[:, place] = losses_without(texts, removal) - whole
        if progress is not None:
            progress(place + 1, len(removals))
    loss, *found = ratios(np.column_stack([whole, changes]), counts)
    return Removals(loss, int(counts.sum()), tuple(found))


def losses_without(texts: Texts, removal: Sequence[Remove]) -> np.ndarray:
    """The loss of each text, summed over its predictions, with these heads removed."""
    with intervene(texts.user.model, *removal):
        return texts.losses()[0]


def head_removal(head: Any) -> list[Remove]:
    """Of one head, as a report has it."""
    return [Remove(head.role, head.layer, head=head.head)]
