"""Does the output depend on the words that a map points at? Each word of the source is removed in turn, and the model asked
again; `regard.evaluate.faithful` says what that makes of a map.

    found = faithfulness(regard.load("runs/translate/3"), pairs)
    found.of("mean of all heads").score

A word's pieces are taken out of the source, which gets shorter; special tokens stay. Of a translation, what is predicted
are the tokens of the model's own (greedy) translation, or of the reference; of a classifier, its label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.evaluate.faithful import Case, score_maps
from regard.look.heads_findings import Faithfulness, MapScore
from regard.tasks.faithful_subjects import LabelSubject, Maps, Subject, TranslationSubject
from regard.tasks.heads import words_in
from regard.tasks.heads_data import Material
from regard.tasks.heads_prepare import prepare
from regard.tasks.heads_removed import Progress
from regard.tasks.reading import check_user
from regard.tokens.words import Words

LONGEST = 128  # tokens of a text that fits: each of its words costs a pass
PART = 16  # texts whose words are removed at once, so that progress can be seen


def faithfulness(
    user: Any,
    data: Material | Sequence[Any],
    *,
    texts: int = 200,
    reference: bool = False,
    progress: Progress | None = None,
) -> Faithfulness:
    """Of the maps of a model that translates or classifies: of each head, of layers, of all.

    reference   what shall be predicted is what the data say, not what the model itself says
    """
    check_user(user, "faithfulness")
    check_faithful(user)
    material = data if isinstance(data, Material) else Material(data)
    read = prepare(user, material, texts, longest=LONGEST)
    kind = TranslationSubject if user.config.task == "translate" else LabelSubject
    return measure_faithfulness(kind(read, reference), progress)


def check_faithful(user: Any) -> None:
    """Refuse in words where there is no source whose words could be removed."""
    if user.config.task not in ("translate", "classify"):
        raise UsageError(
            f"faithfulness asks whether an output depends on the words of a source; a model to {user.config.task} has none: "
            "take one that translates or classifies"
        )


def measure_faithfulness(subject: Subject, progress: Progress | None = None) -> Faithfulness:
    """Remove every word of every text once."""
    words = [words_in(labels[subject.axis])[0] for labels in subject.texts.labels()]
    chosen = [number for number, each in enumerate(words) if len(each) > 1]
    whole, maps = subject.texts.prediction_losses(), subject.maps()
    cases: list[Case] = []
    for start in range(0, len(chosen), PART):
        cases += _cases(subject, chosen[start : start + PART], words, whole, maps)
        if progress is not None:
            progress(len(cases), len(chosen))
    scores, random, best = score_maps(cases)
    count = sum(case.falls.shape[1] for case in cases)
    found = tuple(MapScore(name, each.score, each.drop, each.hits) for name, each in scores.items())
    mean = float(np.mean([len(words[number]) for number in chosen]))
    return Faithfulness(subject.what, len(cases), count, mean, random, best, found)


def _cases(
    subject: Subject, chosen: Sequence[int], words: Sequence[Words], whole: Sequence[np.ndarray], maps: Sequence[Maps]
) -> list[Case]:
    """What is found out about some texts: a pass without each of their words, all of them in batches."""
    without = subject.without([(number, word) for number in chosen for word in words[number]])
    losses, found = iter(without.prediction_losses()), []
    for number in chosen:
        falls = np.stack([next(losses) - whole[number] for _ in words[number]])  # (W, T)
        asked = subject.asked(number)  # (T,)
        weights = {name: merged(map, words[number])[asked] for name, map in maps[number].items()}
        found.append(Case(falls[:, asked], weights))
    return found


def merged(weights: np.ndarray, words: Words) -> np.ndarray:
    """The weight of each word, the sum over its pieces: (T, S) -> (T, W)."""
    return np.stack([weights[:, list(word)].sum(axis=1) for word in words], axis=1)
