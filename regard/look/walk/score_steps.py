"""The six scores of recurrent attention as steps: how well the state that asks and an annotation agree."""

from __future__ import annotations

import numpy as np

from regard.look.walk.given import Soft
from regard.look.walk.soft import factor, length, scores, terms
from regard.look.walk.steps import Line, Numbers, Step, column, number
from regard.look.walk.sums import quoted, sum_line

FORMULA = {
    "additive": "e_j = Σ_a v_a tanh(W s + U h_j)_a",
    "dot": "e_j = Σ_i s_i h_ji",
    "scaled-dot": "e_j = Σ_i s_i h_ji / √E",
    "general": "e_j = Σ_i s_i (W h_j)_i",
    "cosine": "e_j = β Σ_i ŝ_i ĥ_ji",
    "location": "e_j = Σ_i W_ji s_i",
}
WHY = {
    "additive": "v holds each unit of that layer for or against: the terms are added up into one score.",
    "dot": "State and annotation meet component by component: large where both point the same way (Luong et al. 2015, 3.1).",
    "scaled-dot": "State and annotation meet component by component; the sum is divided by √E (Vaswani et al. 2017, 3.2.1).",
    "general": "The state meets what W made of each annotation, component by component (Luong et al. 2015, section 3.1).",
    "cosine": "Both have length one now, so that the sum is the cosine of their angle; a learned strength β sharpens it.",
    "location": "The state alone says where to look: each position j has a row of W, whatever stands there (Luong et al. "
    "2015, eq. 8).",
}


def score_steps(given: Soft) -> list[Step]:
    """What is made of the state and the annotations, then their score term by term."""
    before = {"additive": additive_steps, "general": general_steps, "cosine": cosine_steps}
    found = before.get(given.score, lambda given: [])(given)
    return [*found, sum_step(given)]


def additive_steps(given: Soft) -> list[Step]:
    """W s, U h, their sum and its tanh (Bahdanau et al. 2015, A.1.2)."""
    w, u = given.weights["W"], given.weights["U"]
    asked, offered = given.s @ w, given.h @ u
    both = asked + offered
    first = Step(
        "W s and U h",
        "W s,  U h_j",
        "A layer of units looks at state and annotation together. W s is the state's part; U h_j is the annotation's, "
        "computed once for a sentence, however often it is looked at (Bahdanau et al. 2015, A.1.2).",
        (
            Numbers("W s", asked, ("W s",)),
            Numbers("U h", offered, given.keys),
            Numbers("W", w, tuple(map(str, range(len(w)))), aside=True),
            Numbers("U", u, tuple(map(str, range(len(u)))), aside=True),
        ),
        (
            sum_line("(W s)_0", given.s, w[:, 0], ("W s", 0, 0)),
            sum_line("(U h_0)_0", given.h[0], u[:, 0], ("U h", 0, 0)),
        ),
    )
    numbers = (float(asked[0]), float(offered[0, 0]), float(both[0, 0]), float(np.tanh(both[0, 0])))
    second = Step(
        "The sum, and its tanh",
        "tanh(W s + U h_j)",
        "Where both parts pull the same way, a unit goes to 1 or -1; where they cancel it stays near 0. tanh keeps it between.",
        (Numbers("W s + U h", both, given.keys), Numbers("tanh", np.tanh(both), given.keys)),
        (Line("tanh({} + {}) = tanh({}) = {}", numbers, ("tanh", 0, 0)),),
    )
    return [first, second]


def general_steps(given: Soft) -> list[Step]:
    """W h_j."""
    weight = given.weights["W"]
    made = given.h @ weight
    line = sum_line("(W h_0)_0", given.h[0], weight[:, 0], ("W h", 0, 0))
    text = (
        "A learned matrix turns each annotation into the space of the decoder's state (Luong et al. 2015, section 3.1)."
    )
    arrays = (Numbers("W h", made, given.keys), Numbers("W", weight, tuple(map(str, range(len(weight)))), aside=True))
    return [Step("W h", "W h_j", text, arrays, (line,))]


def cosine_steps(given: Soft) -> list[Step]:
    """Vectors of length one, and β (Graves et al. 2014, eq. 5 and 6)."""
    left, right = terms(given)
    sizes = length(given.h)
    arrays = (
        number("length of s", float(length(given.s))),
        Numbers("unit s", left[0], ("ŝ",)),
        column("length of h", sizes, given.keys, kind="plain"),
        Numbers("unit h", right, given.keys),
        number("β", factor(given)),
    )
    told = (float(given.s[0]), float(length(given.s)), float(left[0, 0]))
    lines = (
        Line("ŝ_0 = {} / {} = {}", told, ("unit s", 0, 0)),
        Line("β = exp({}) = {}", (float(given.weights["log β"][0]), factor(given)), ("β", 0, 0)),
    )
    text = "Both vectors are divided by their length, so that only their direction counts (Graves et al. 2014, eq. 5 and 6)."
    return [Step("Vectors of length one", "ŝ = s / ‖s‖,  ĥ_j = h_j / ‖h_j‖", text, arrays, lines)]


def sum_step(given: Soft) -> Step:
    """The terms of each score and their sum."""
    left, right = terms(given)
    products, found = left * right, scores(given)
    sums = products.sum(axis=1)
    best = int(found.argmax())
    arrays: tuple[Numbers, ...] = (
        Numbers("products", products, given.keys, marked=best),
        column("sums", sums, given.keys, beside=True),
    )
    lines = [sum_line(f"sum of {quoted(given.keys[best])}", left[best], right[best], ("sums", best, 0))]
    if given.score in ("cosine", "scaled-dot"):
        arrays += (column("scores", found, given.keys, beside=True),)
        told = (float(sums[best]), factor(given), float(found[best]))
        lines.append(Line("{} · {} = {}", told, ("scores", best, 0)))
    if given.score == "additive":
        arrays += (Numbers("v", given.weights["v"], ("v",), aside=True),)
    if given.score == "location":
        arrays += (Numbers("W", given.weights["W"], tuple(map(str, range(len(given.weights["W"])))), aside=True),)
    text = f"{WHY[given.score]} Largest here: {quoted(given.keys[best])}."
    return Step("The score, term by term", FORMULA[given.score], text, arrays, tuple(lines))
