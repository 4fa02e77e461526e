"""One look of a recurrent decoder, computed plainly in float64, and as steps: Bahdanau's, Luong's, and a learned query's.

weights = softmax(score(s, h_j) / temperature) · fall-off,   context = Σ_j weight_j h_j
(Bahdanau et al. 2015, eq. 5 and 6; Luong et al. 2015)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.look.walk.softmax import mask_step, masked, softmax, softmax_step
from regard.look.walk.steps import (
    Array,
    Numbers,
    Step,
    WorkedLine,
    column,
    counted,
    parameter,
    quoted_token,
    scalar,
    sum_line,
)
from regard.look.walk.sublayer import LinearNumbers

Score = Literal["additive", "dot", "scaled-dot", "general", "cosine", "location"]
Family = Literal["bahdanau", "luong", "pool"]
SCORE_FORMULA = {
    "additive": "e_j = Σ_n v_n tanh(s W + h_j U)_n",
    "dot": "e_j = Σ_n s_n h_jn",
    "scaled-dot": "e_j = Σ_n s_n h_jn / √E",
    "general": "e_j = Σ_n s_n (h_j W)_n",
    "cosine": "e_j = β Σ_n ŝ_n ĥ_jn",
    "location": "e_j = Σ_n s_n W_jn",
}
SCORE_WHY = {
    "additive": "v holds each unit of that layer for or against: the terms are added up into one score.",
    "dot": "State and annotation meet component by component: large where both point the same way (Luong et al. 2015, 3.1).",
    "scaled-dot": "State and annotation meet component by component; the sum is divided by √E (Vaswani et al. 2017, 3.2.1).",
    "general": "The state meets what W made of each annotation, component by component (Luong et al. 2015, section 3.1).",
    "cosine": "Both have length one now, so that the sum is the cosine of their angle; a learned strength β sharpens it.",
    "location": "The state alone says where to look: each position j has a row of W, whatever stands there (Luong et al. "
    "2015, eq. 8).",
}
WHO_ASKS = {
    "bahdanau": "s_(t-1), the decoder's last state, asks before it writes the next token (Bahdanau et al. 2015, eq. 6). It "
    "sums up what was written so far.",
    "luong": "s_t, the decoder's new state, asks after it has read the token before (Luong et al. 2015, section 3; h_t in "
    "their letters).",
    "pool": "s is a learned query, the same for every text: it asks what counts for the label (Yang et al. 2016, section 2.2).",
}
CONTEXT_BECOMES = {
    "bahdanau": "It joins the token before and the state in the recurrent cell, which makes s_t, and in the readout.",
    "luong": "It joins the state, and both predict the next token.",
    "pool": "It is the vector of the text, from which the label is told.",
}


@dataclass(frozen=True, eq=False)
class LocalWindow:
    """A window around a position p (Luong et al. 2015, section 3.2)."""

    kind: Literal["local-m", "local-p"]
    reach: int
    time: int = 0  # of the query
    inner: Array | None = None  # (Q, Q): W_p of local-p
    outer: Array | None = None  # (Q,): v_p


@dataclass(frozen=True, eq=False)
class SoftLook:
    """One look of a recurrent decoder, or of a learned query."""

    asker: str  # who looks, in a sentence
    keys: tuple[str, ...]  # S labels
    s: Array  # (Q,): the state that asks
    h: Array  # (S, K): annotations
    score: Score
    weights: dict[str, Array]  # of the score, by letter
    halves: bool = False  # annotations are both directions side by side
    temperature: float = 1.0
    allowed: Array | None = None  # (S,): where it may look; None: everywhere
    reasons: tuple[str, ...] = ()  # why not, of each key
    window: LocalWindow | None = None
    family: Family = "bahdanau"  # who asks, and what becomes of the context
    combine: LinearNumbers | None = None  # (K + Q, D): Luong's layer over context and state


def terms(look: SoftLook) -> tuple[Array, Array]:
    """Both factors of each term of a score: from the state and from each annotation, (S, ...) each."""
    s, h, weight = look.s, look.h, look.weights
    if look.score == "additive":
        inner = np.tanh(s @ weight["W"] + h @ weight["U"])
        return np.broadcast_to(weight["v"], inner.shape), inner
    if look.score == "location":
        known = np.zeros((len(h), len(s)))
        rows = weight["W"][: len(h)]
        known[: len(rows)] = rows
        return np.broadcast_to(s, known.shape), known
    if look.score == "cosine":
        unit = h / vector_length(h)[:, None]
        return np.broadcast_to(s / vector_length(s), unit.shape), unit
    keys = h @ weight["W"] if look.score == "general" else h
    return np.broadcast_to(s, keys.shape), keys


def factor(look: SoftLook) -> float:
    """The number that every sum of terms is multiplied by: β, 1 / √E, or 1."""
    if look.score == "cosine":
        return float(np.exp(look.weights["log β"][0]))
    return float(look.weights["scale"][0]) if look.score == "scaled-dot" else 1.0


def scores(look: SoftLook) -> Array:
    """The score of every annotation, before the temperature: (S,)."""
    left, right = terms(look)
    return (left * right).sum(axis=1) * factor(look)


def vector_length(x: Array) -> Array:
    """‖x‖ over the last axis; a vector of zeros stays zeros, as torch has it."""
    return np.maximum(np.sqrt(np.square(x).sum(axis=-1)), 1e-12)


def window_centre(window: LocalWindow, s: Array, keys: int) -> float:
    """The middle p of the window (Luong et al. 2015, section 3.2): the target's own position, or a predicted one (eq. 9)."""
    if window.kind == "local-m":
        return float(min(window.time, keys - 1))
    assert window.inner is not None and window.outer is not None
    return float(keys / (1 + np.exp(-(np.tanh(s @ window.inner) @ window.outer))))


def fall_off(look: SoftLook) -> Array | None:
    """Factors by which weights fall off around p (Luong et al. 2015, eq. 10): (S,); None without a predicted window."""
    if look.window is None or look.window.kind != "local-p":
        return None
    p = window_centre(look.window, look.s, len(look.h))
    return np.exp(-((np.arange(len(look.h)) - p) ** 2) / (2 * (look.window.reach / 2) ** 2))


def weights_and_context(look: SoftLook) -> tuple[Array, Array]:
    """Attend: weights (S,) and context (K,)."""
    weights = softmax(masked(scores(look) / look.temperature, look.allowed))
    weaker = fall_off(look)
    weights = weights if weaker is None else weights * weaker
    return weights, weights @ look.h


def attentional_vector(look: SoftLook) -> Array:
    """tanh(W_c [context ; state]), Luong's attentional vector (eq. 5): (D,)."""
    assert look.combine is not None
    return np.tanh(look.combine(np.concatenate([weights_and_context(look)[1], look.s])))


def score_steps(look: SoftLook) -> list[Step]:
    """State and annotations brought into one space, then their score term by term."""
    before = {"additive": additive_steps, "general": general_steps, "cosine": cosine_steps}
    found = before.get(look.score, lambda look: [])(look)
    return [*found, sum_step(look)]


def additive_steps(look: SoftLook) -> list[Step]:
    """s W, h U, their sum and its tanh (Bahdanau et al. 2015, A.1.2; vectors are rows here, columns there)."""
    w, u = look.weights["W"], look.weights["U"]
    asked, offered = look.s @ w, look.h @ u
    both = asked + offered
    first = Step(
        "s W and h U",
        "s W,  h_j U",
        "A layer of units looks at state and annotation together. s W is the state's part; h_j U is the annotation's, "
        "computed once for a sentence, however often it is looked at (Bahdanau et al. 2015, A.1.2, who write vectors as "
        "columns, W s and U h; here they are rows).",
        (
            Numbers("s W", asked, ("s W",)),
            Numbers("h U", offered, look.keys),
            parameter("W", w),
            parameter("U", u),
        ),
        (
            sum_line("(s W)_0", look.s, w[:, 0], ("s W", 0, 0)),
            sum_line("(h_0 U)_0", look.h[0], u[:, 0], ("h U", 0, 0)),
        ),
    )
    numbers = (float(asked[0]), float(offered[0, 0]), float(both[0, 0]), float(np.tanh(both[0, 0])))
    second = Step(
        "The sum, and its tanh",
        "tanh(s W + h_j U)",
        "Where both parts pull the same way, a unit goes to 1 or -1; where they cancel it stays near 0. tanh keeps it between.",
        (Numbers("s W + h U", both, look.keys), Numbers("tanh", np.tanh(both), look.keys)),
        (WorkedLine("tanh({} + {}) = tanh({}) = {}", numbers, ("tanh", 0, 0)),),
    )
    return [first, second]


def general_steps(look: SoftLook) -> list[Step]:
    """h_j W (Luong et al. 2015, section 3.1)."""
    weight = look.weights["W"]
    made = look.h @ weight
    line = sum_line("(h_0 W)_0", look.h[0], weight[:, 0], ("h W", 0, 0))
    text = (
        "A learned matrix turns each annotation into the space of the decoder's state (Luong et al. 2015, section 3.1)."
    )
    arrays = (Numbers("h W", made, look.keys), parameter("W", weight))
    return [Step("h W", "h_j W", text, arrays, (line,))]


def cosine_steps(look: SoftLook) -> list[Step]:
    """Vectors of length one, and β (Graves et al. 2014, eq. 5 and 6)."""
    left, right = terms(look)
    sizes = vector_length(look.h)
    arrays = (
        scalar("length of s", float(vector_length(look.s))),
        Numbers("unit s", left[0], ("ŝ",)),
        column("length of h", sizes, look.keys, shading="plain"),
        Numbers("unit h", right, look.keys),
        scalar("β", factor(look)),
    )
    told = (float(look.s[0]), float(vector_length(look.s)), float(left[0, 0]))
    lines = (
        WorkedLine("ŝ_0 = {} / {} = {}", told, ("unit s", 0, 0)),
        WorkedLine("β = exp({}) = {}", (float(look.weights["log β"][0]), factor(look)), ("β", 0, 0)),
    )
    text = "Both vectors are divided by their length, so that only their direction counts (Graves et al. 2014, eq. 5 and 6)."
    return [Step("Vectors of length one", "ŝ = s / ‖s‖,  ĥ_j = h_j / ‖h_j‖", text, arrays, lines)]


def sum_step(look: SoftLook) -> Step:
    """The terms of each score and their sum."""
    left, right = terms(look)
    products, found = left * right, scores(look)
    sums = products.sum(axis=1)
    best = int(found.argmax())
    arrays: tuple[Numbers, ...] = (
        Numbers("products", products, look.keys, marked=best),
        column("sums", sums, look.keys, beside=True),
    )
    lines = [sum_line(f"sum of {quoted_token(look.keys[best])}", left[best], right[best], ("sums", best, 0))]
    if look.score in ("cosine", "scaled-dot"):
        arrays += (column("scores", found, look.keys, beside=True),)
        told = (float(sums[best]), factor(look), float(found[best]))
        lines.append(WorkedLine("{} · {} = {}", told, ("scores", best, 0)))
    if look.score == "additive":
        arrays += (parameter("v", look.weights["v"]),)
    if look.score == "location":
        arrays += (parameter("W", look.weights["W"]),)
    text = f"{SCORE_WHY[look.score]} Largest here: {quoted_token(look.keys[best])}."
    return Step("The score, term by term", SCORE_FORMULA[look.score], text, arrays, tuple(lines))


def soft_steps(look: SoftLook) -> tuple[Step, ...]:
    """All steps of one look."""
    steps = [state_step(look), annotation_step(look)]
    steps += [window_step(look)] if look.window is not None else []
    steps += score_steps(look)
    found = scores(look)
    if look.temperature != 1.0:
        steps.append(temperature_step(look, found))
        found = found / look.temperature
    if look.allowed is not None and not look.allowed.all():
        steps.append(mask_step(found, look.allowed, look.reasons, look.keys, look.asker))
    steps.append(softmax_step(masked(found, look.allowed), look.keys, look.asker))
    steps += [weaken_step(look, found)] if fall_off(look) is not None else []
    steps.append(context_step(look))
    return (*steps, *([combine_step(look)] if look.combine is not None else []))


def state_step(look: SoftLook) -> Step:
    """The state that asks."""
    about = "" if look.family == "pool" else f" Who asks: {look.asker}."
    return Step("What asks: the state", "s", WHO_ASKS[look.family] + about, (Numbers("s", look.s, ("s",)),))


def annotation_step(look: SoftLook) -> Step:
    """The annotations that are looked at."""
    text = f"What is looked at: an annotation for each of {counted(len(look.keys), 'source token')}"
    if look.family == "pool":
        text = f"What is looked at: an annotation for each of {counted(len(look.keys), 'token')}"
    half = look.h.shape[1] // 2
    columns: tuple[str, ...] = ()
    if look.halves:
        columns = (*(f"→{unit}" for unit in range(half)), *(f"←{unit}" for unit in range(half)))
        text += (
            f", two readings side by side. The first {half} numbers (→) come from reading the text forwards and know what "
            f"stands before it; the last {half} (←) from reading backwards and know what stands behind (Bahdanau et al. "
            "2015, section 3.2)."
        )
    else:
        text += ", from reading the text once, forwards."
    text += " Nothing needs to tell positions: a recurrent network reads in order."
    formula = "h_j = [→h_j ; ←h_j]" if look.halves else "h_j"
    return Step("What is looked at: annotations", formula, text, (Numbers("h", look.h, look.keys, columns),))


def window_step(look: SoftLook) -> Step:
    """Where the window lies (Luong et al. 2015, section 3.2)."""
    window = look.window
    assert window is not None
    p = window_centre(window, look.s, len(look.h))
    reach = f"Only what is at most {window.reach} from there is looked at."
    if window.kind == "local-m":
        text = (
            f"The window stands at the target's own position, {window.time} (at most the last of the source). {reach}"
        )
        numbers = (float(window.time), float(len(look.h) - 1), p)
        line = WorkedLine("p = min({}, {}) = {}", numbers, ("p", 0, 0))
        return Step("Where to look: the window", "p = t", text, (scalar("p", p),), (line,))
    assert window.inner is not None and window.outer is not None
    inner = np.tanh(look.s @ window.inner)
    total = float(inner @ window.outer)
    arrays = (
        Numbers("tanh(W_p s)", inner, ("tanh",)),
        scalar("v_p · tanh", total),
        scalar("p", p),
        parameter("W_p", window.inner),
        parameter("v_p", window.outer),
    )
    lines = (
        sum_line("v_p · tanh", inner, window.outer, ("v_p · tanh", 0, 0)),
        WorkedLine("p = {} / (1 + exp(-{})) = {}", (float(len(look.h)), total, p), ("p", 0, 0)),
    )
    text = f"The state predicts where to look, as a share of the source's length (Luong et al. 2015, eq. 9). {reach}"
    return Step("Where to look: the window", "p = S sigmoid(v_p · tanh(W_p s))", text, arrays, lines)


def temperature_step(look: SoftLook, found: Array) -> Step:
    """Scores (S,) divided by the temperature."""
    made = found / look.temperature
    best = int(found.argmax())
    line = WorkedLine("{} / {} = {}", (float(found[best]), look.temperature, float(made[best])), ("tempered", best, 0))
    text = f"Scores are divided by {look.temperature:g} before the softmax: above 1 it looks more softly, below more sharply."
    return Step("Temperature", "e_j / temperature", text, (column("tempered", made, look.keys),), (line,))


def weaken_step(look: SoftLook, found: Array) -> Step:
    """The fall-off around p (Luong et al. 2015, eq. 10)."""
    weaker = fall_off(look)
    assert weaker is not None and look.window is not None
    before, after = softmax(masked(found, look.allowed)), weights_and_context(look)[0]
    best = int(after.argmax())
    arrays = (
        column("fall-off", weaker, look.keys, shading="weight"),
        column("weakened", after, look.keys, shading="weight", beside=True, marked=best),
    )
    numbers = (float(before[best]), float(weaker[best]), float(after[best]))
    line = WorkedLine("{} · {} = {}", numbers, ("weakened", best, 0))
    text = (
        "Weights fall off around p like a bell, so that the prediction of p can be learned; they no longer sum to one."
    )
    return Step("Fall-off around p", "weight_j · exp(-(j - p)² / 2 (D/2)²)", text, arrays, (line,))


def context_step(look: SoftLook) -> Step:
    """The weighted sum of the annotations."""
    weights, context = weights_and_context(look)
    best = int(weights.argmax())
    text = f"Every annotation times its weight, added up: what was seen, mostly {quoted_token(look.keys[best])}. "
    arrays = (
        Numbers("weighted h", weights[:, None] * look.h, look.keys, marked=best),
        Numbers("context", context, ("c",)),
    )
    line = sum_line("c_0", weights, look.h[:, 0], ("context", 0, 0))
    title, formula = "The context: weighted sum of annotations", "c = Σ_j weight_j h_j"
    return Step(title, formula, text + CONTEXT_BECOMES[look.family], arrays, (line,))


def combine_step(look: SoftLook) -> Step:
    """Luong's attentional vector (eq. 5)."""
    assert look.combine is not None
    weight, bias = look.combine.weight, look.combine.bias
    joined, made = np.concatenate([weights_and_context(look)[1], look.s]), attentional_vector(look)
    inner, first = look.combine(joined), None if bias is None else float(bias[0])
    arrays = [
        Numbers("W_c [c ; s]", inner, ("sum",)),
        Numbers("vector", made, ("tanh",)),
        parameter("W_c", weight),
    ]
    if bias is not None:
        arrays.append(parameter("b_c", bias))
    lines = (
        sum_line("inner_0", joined, weight[:, 0], ("W_c [c ; s]", 0, 0), first),
        WorkedLine("tanh({}) = {}", (float(inner[0]), float(made[0])), ("vector", 0, 0)),
    )
    text = "Context and state side by side, through one layer: what predicts the next token (Luong et al. 2015, eq. 5)."
    return Step("Context and state, joined", "tanh(W_c [c ; s] + b)", text, tuple(arrays), lines)
