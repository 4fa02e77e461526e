"""One state looks at a few annotations: by Bahdanau's additive score, and by all six scores on the same numbers.

cosine        β s·h / (‖s‖ ‖h‖)         (Graves et al. 2014)       general     s · h W       (Luong et al. 2015)
additive      v · tanh(s W + h U)       (Bahdanau et al. 2015)     dot         s · h         (Luong et al. 2015)
location      s · W_j                   (Luong et al. 2015)        scaled dot  s · h / √E    (Vaswani et al. 2017)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from regard.errors import UsageError
from regard.look.walk.examples.given import (
    check_names,
    check_product,
    name_shapes,
    read_labels,
    read_matrix,
    read_vector,
)
from regard.look.walk.soft import SCORE_FORMULA, Score, SoftLook, score_steps, soft_steps, weights_and_context
from regard.look.walk.soft import scores as scores_of
from regard.look.walk.softmax import softmax
from regard.look.walk.steps import About, Numbers, Step, Walk, lower_first, named_apart, quoted_token

WORDS = ("the", "blue", "house")
S = (1.0, 2.0)
H = ((1.0, 0.0), (0.0, 2.0), (3.0, 1.0))
WEIGHTS: dict[Score, dict[str, tuple[tuple[float, ...], ...] | tuple[float, ...]]] = {
    "cosine": {"log β": (0.0,)},
    "additive": {"W": ((1, 0, -1), (0, 1, 1)), "U": ((0, 1, 1), (1, 0, -1)), "v": (1, 2, -1)},
    "location": {"W": ((2, 0), (0, 1), (1, 1))},
    "general": {"W": ((1, 1), (0, 1))},
    "dot": {},
    "scaled-dot": {"scale": (2**-0.5,)},
}
NAMES: dict[Score, str] = {name: name.replace("-", " ") for name in WEIGHTS}
KEYS = ("s", "h", "W", "U", "v", "labels")


def example_look(score: Score) -> SoftLook:
    """The example's state and annotations, by one score."""
    weights = {letter: np.array(value, dtype=np.float64) for letter, value in WEIGHTS[score].items()}
    return SoftLook("the decoder", WORDS, np.array(S), np.array(H), score, weights)


def additive_walk(query: int | str | None = None) -> Walk:
    """Bahdanau's look, term by term."""
    _check_query(query)
    return _walk(example_look("additive"))


def read_additive(values: Mapping[str, object], name: str, query: int | str | None) -> Walk:
    """Bahdanau's look at a person's own numbers: s (Q), h (S x K), W (Q x A), U (K x A), v (A)."""
    check_names(values, KEYS, ("s", "h", "W", "U", "v"), name)
    _check_query(query)
    found = {key: read_matrix(values[key], f"{name}: {key}") for key in ("h", "W", "U")}
    found |= {key: read_vector(values[key], f"{name}: {key}")[None] for key in ("s", "v")}
    check_product(found, "s", "W", name)
    check_product(found, "h", "U", name)
    for other in ("U", "v"):
        if found["W"].shape[1] != found[other].shape[1]:
            raise UsageError(f"{name}: W and {other} must be as wide as each other", name_shapes(found, "W", other))
    labels = read_labels(values.get("labels"), len(found["h"]), f"{name}: labels")
    weights = {"W": found["W"], "U": found["U"], "v": found["v"][0]}
    return _walk(SoftLook("the decoder", labels, found["s"][0], found["h"], "additive", weights))


def _walk(look: SoftLook) -> Walk:
    about: About = {"role": "cross", "keys": list(look.keys)}
    summary = f"One state looks at {len(look.keys)} annotations by Bahdanau's additive score: a small network scores each pair."
    return Walk("Additive attention: e_j = v · tanh(s W + h_j U)", summary, soft_steps(look), about)


def _check_query(query: int | str | None) -> None:
    if query is not None:
        raise UsageError("there is one state here that looks, s", "leave out the query")


def six_walk(query: int | str | None = None) -> Walk:
    """All six scores of the same state and annotations, then side by side."""
    _check_query(query)
    looks = {score: example_look(score) for score in WEIGHTS}
    first = looks["dot"]
    text = "A decoder's state s, and an annotation h_j for each word that it can look at. Made up, small and whole."
    steps = [
        Step(
            "One state, three annotations",
            "s,  h_j",
            text,
            (Numbers("s", first.s, ("s",)), Numbers("h", first.h, WORDS)),
        )
    ]
    for score, look in looks.items():
        for step in score_steps(look):
            steps.append(
                named_apart(replace(step, title=f"{NAMES[score].capitalize()}: {lower_first(step.title)}"), score)
            )
    about: About = {"role": "cross", "keys": list(WORDS)}
    summary = "The same state and the same three annotations, scored in six ways."
    return Walk("Six scores side by side", summary, (*steps, *_beside(looks)), about)


def _beside(looks: Mapping[Score, SoftLook]) -> list[Step]:
    names = tuple(NAMES.values())
    table = np.stack([scores_of(look) for look in looks.values()], axis=1)  # (S, 6)
    weights = softmax(table.T).T
    contexts = np.stack([weights_and_context(look)[1] for look in looks.values()])  # (6, K)
    best = {name: WORDS[int(table[:, place].argmax())] for place, name in enumerate(names)}
    told = ", ".join(f"{name} at {quoted_token(word)}" for name, word in best.items())
    scored = Step(
        "All scores",
        "  ".join(f"{NAMES[score]}: {SCORE_FORMULA[score]}" for score in looks),
        f"Greatest: {told}. Location does not look at h at all; cosine does not care how long h is; additive, location and "
        "general have weights to learn, dot and scaled dot have none.",
        (Numbers("all scores", table, WORDS, names),),
    )
    shared = Step(
        "All weights",
        "softmax over the words",
        "Scaled dot has the maximum of dot, and is softer: a scale changes the temperature of a softmax, never its maximum.",
        (Numbers("all weights", weights, WORDS, names, shading="weight"),),
    )
    seen = Step(
        "All contexts",
        "c = Σ_j weight_j h_j",
        "What the decoder gets to see by each score.",
        (Numbers("all contexts", contexts, names),),
    )
    return [scored, shared, seen]
