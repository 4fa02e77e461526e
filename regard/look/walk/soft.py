"""One look of a recurrent decoder, computed plainly in float64, and as steps: Bahdanau's, Luong's, and a learned query's.

weights = softmax(score(s, h_j) / temperature) · fall-off,   context = Σ_j weight_j h_j
(Bahdanau et al. 2015, eq. 5 and 6; Luong et al. 2015)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.look.walk.embedding import Array
from regard.look.walk.softmax import mask_step, masked, softmax, softmax_step
from regard.look.walk.steps import Line, Numbers, Step, column, counted, number, quoted_token, sum_line


@dataclass(frozen=True, eq=False)
class Place:
    """A window around a position p (Luong et al. 2015, section 3.2)."""

    kind: str  # local-m, local-p
    reach: int
    time: int = 0  # of the query
    inner: Array | None = None  # (Q, Q): W_p of local-p
    outer: Array | None = None  # (Q,): v_p


@dataclass(frozen=True, eq=False)
class Soft:
    """One look of a recurrent decoder, or of a learned query."""

    asker: str  # who looks, in a sentence
    keys: tuple[str, ...]  # S labels
    s: Array  # (Q,): the state that asks
    h: Array  # (S, K): annotations
    score: str  # additive, dot, scaled-dot, general, cosine, location
    weights: dict[str, Array]  # of the score, by letter
    halves: bool = False  # annotations are both directions side by side
    temperature: float = 1.0
    allowed: Array | None = None  # (S,)
    reasons: tuple[str, ...] = ()
    place: Place | None = None
    family: str = "bahdanau"  # bahdanau, luong, pool: who asks, and what becomes of the context
    w_c: Array | None = None  # (K + Q, D): what Luong's makes of context and state
    b_c: Array | None = None


def terms(given: Soft) -> tuple[Array, Array]:
    """What is multiplied, component by component, and then added up: of the query side and of each key, both (S, ...)."""
    s, h, weight = given.s, given.h, given.weights
    if given.score == "additive":
        inner = np.tanh(s @ weight["W"] + h @ weight["U"])
        return np.broadcast_to(weight["v"], inner.shape), inner
    if given.score == "location":
        known = np.zeros((len(h), len(s)))
        rows = weight["W"][: len(h)]
        known[: len(rows)] = rows
        return np.broadcast_to(s, known.shape), known
    if given.score == "cosine":
        unit = h / length(h)[:, None]
        return np.broadcast_to(s / length(s), unit.shape), unit
    keys = h @ weight["W"] if given.score == "general" else h
    return np.broadcast_to(s, keys.shape), keys


def factor(given: Soft) -> float:
    """What sums are multiplied by."""
    if given.score == "cosine":
        return float(np.exp(given.weights["log β"][0]))
    return float(given.weights["scale"][0]) if given.score == "scaled-dot" else 1.0


def scores(given: Soft) -> Array:
    """Before the temperature: (S,)."""
    left, right = terms(given)
    return (left * right).sum(axis=1) * factor(given)


def length(x: Array) -> Array:
    """‖x‖ over the last axis; a vector of zeros stays zeros, as torch has it."""
    return np.maximum(np.sqrt(np.square(x).sum(axis=-1)), 1e-12)


def middle(place: Place, s: Array, keys: int) -> float:
    """p of Luong et al. 2015, section 3.2: the target's own position, or a predicted one (eq. 9)."""
    if place.kind == "local-m":
        return float(min(place.time, keys - 1))
    assert place.inner is not None and place.outer is not None
    return float(keys / (1 + np.exp(-(np.tanh(s @ place.inner) @ place.outer))))


def fall_off(given: Soft) -> Array | None:
    """By how much weights fall off around p (eq. 10): (S,)."""
    if given.place is None or given.place.kind != "local-p":
        return None
    p = middle(given.place, given.s, len(given.h))
    return np.exp(-((np.arange(len(given.h)) - p) ** 2) / (2 * (given.place.reach / 2) ** 2))


def weights_and_context(given: Soft) -> tuple[Array, Array]:
    """Weights (S,) and context (K,)."""
    weights = softmax(masked(scores(given) / given.temperature, given.allowed))
    weaker = fall_off(given)
    weights = weights if weaker is None else weights * weaker
    return weights, weights @ given.h


def combined(given: Soft) -> Array:
    """Luong's attentional vector (eq. 5): tanh(W_c [context, state])."""
    assert given.w_c is not None
    out = np.concatenate([weights_and_context(given)[1], given.s]) @ given.w_c
    return np.tanh(out if given.b_c is None else out + given.b_c)


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
    lines = [sum_line(f"sum of {quoted_token(given.keys[best])}", left[best], right[best], ("sums", best, 0))]
    if given.score in ("cosine", "scaled-dot"):
        arrays += (column("scores", found, given.keys, beside=True),)
        told = (float(sums[best]), factor(given), float(found[best]))
        lines.append(Line("{} · {} = {}", told, ("scores", best, 0)))
    if given.score == "additive":
        arrays += (Numbers("v", given.weights["v"], ("v",), aside=True),)
    if given.score == "location":
        arrays += (Numbers("W", given.weights["W"], tuple(map(str, range(len(given.weights["W"])))), aside=True),)
    text = f"{WHY[given.score]} Largest here: {quoted_token(given.keys[best])}."
    return Step("The score, term by term", FORMULA[given.score], text, arrays, tuple(lines))


WHO = {
    "bahdanau": "s_(t-1), the decoder's last state, asks before it writes the next token (Bahdanau et al. 2015, eq. 6). It "
    "sums up what was written so far.",
    "luong": "s_t, the decoder's new state, asks after it has read the token before (Luong et al. 2015, section 3; h_t in "
    "their letters).",
    "pool": "s is a learned query, the same for every text: it asks what counts for the label (Yang et al. 2016, section 2.2).",
}


def soft_steps(given: Soft) -> tuple[Step, ...]:
    """All steps of one look."""
    steps = [state_step(given), annotation_step(given)]
    steps += [place_step(given)] if given.place is not None else []
    steps += score_steps(given)
    found = scores(given)
    if given.temperature != 1.0:
        steps.append(temperature_step(given, found))
        found = found / given.temperature
    if given.allowed is not None and not given.allowed.all():
        steps.append(mask_step(found, given.allowed, given.reasons, given.keys, given.asker))
    steps.append(softmax_step(masked(found, given.allowed), given.keys, given.asker))
    steps += [weaken_step(given, found)] if fall_off(given) is not None else []
    steps.append(context_step(given))
    return (*steps, *([combine_step(given)] if given.w_c is not None else []))


def state_step(given: Soft) -> Step:
    about = "" if given.family == "pool" else f" Who asks: {given.asker}."
    return Step("What asks: the state", "s", WHO[given.family] + about, (Numbers("s", given.s, ("s",)),))


def annotation_step(given: Soft) -> Step:
    text = f"What is looked at: an annotation for each of {counted(len(given.keys), 'source token')}"
    if given.family == "pool":
        text = f"What is looked at: an annotation for each of {counted(len(given.keys), 'token')}"
    half = given.h.shape[1] // 2
    columns: tuple[str, ...] = ()
    if given.halves:
        columns = (*(f"→{unit}" for unit in range(half)), *(f"←{unit}" for unit in range(half)))
        text += (
            f", two readings side by side. The first {half} numbers (→) come from reading the text forwards and know what "
            f"stands before it; the last {half} (←) from reading backwards and know what stands behind (Bahdanau et al. "
            "2015, section 3.2)."
        )
    else:
        text += ", from reading the text once, forwards."
    text += " Nothing needs to tell positions: a recurrent network reads in order."
    formula = "h_j = [→h_j ; ←h_j]" if given.halves else "h_j"
    return Step("What is looked at: annotations", formula, text, (Numbers("h", given.h, given.keys, columns),))


def place_step(given: Soft) -> Step:
    """Where the window lies (Luong et al. 2015, section 3.2)."""
    place = given.place
    assert place is not None
    p = middle(place, given.s, len(given.h))
    reach = f"Only what is at most {place.reach} from there is looked at."
    if place.kind == "local-m":
        text = f"The window stands at the target's own position, {place.time} (at most the last of the source). {reach}"
        numbers = (float(place.time), float(len(given.h) - 1), p)
        line = Line("p = min({}, {}) = {}", numbers, ("p", 0, 0))
        return Step("Where to look: the window", "p = t", text, (number("p", p),), (line,))
    assert place.inner is not None and place.outer is not None
    inner = np.tanh(given.s @ place.inner)
    total = float(inner @ place.outer)
    arrays = (
        Numbers("tanh(W_p s)", inner, ("tanh",)),
        number("v_p · tanh", total),
        number("p", p),
        Numbers("W_p", place.inner, tuple(map(str, range(len(place.inner)))), aside=True),
        Numbers("v_p", place.outer, ("v",), aside=True),
    )
    lines = (
        sum_line("v_p · tanh", inner, place.outer, ("v_p · tanh", 0, 0)),
        Line("p = {} / (1 + exp(-{})) = {}", (float(len(given.h)), total, p), ("p", 0, 0)),
    )
    text = f"The state predicts where to look, as a share of the source's length (Luong et al. 2015, eq. 9). {reach}"
    return Step("Where to look: the window", "p = S sigmoid(v_p · tanh(W_p s))", text, arrays, lines)


def temperature_step(given: Soft, found: np.ndarray) -> Step:
    made = found / given.temperature
    best = int(found.argmax())
    line = Line("{} / {} = {}", (float(found[best]), given.temperature, float(made[best])), ("tempered", best, 0))
    text = f"Scores are divided by {given.temperature:g} before the softmax: above 1 it looks more softly, below more sharply."
    return Step("Temperature", "e_j / temperature", text, (column("tempered", made, given.keys),), (line,))


def weaken_step(given: Soft, found: np.ndarray) -> Step:
    """The fall-off around p (Luong et al. 2015, eq. 10)."""
    weaker = fall_off(given)
    assert weaker is not None and given.place is not None
    before, after = softmax(masked(found, given.allowed)), weights_and_context(given)[0]
    best = int(after.argmax())
    arrays = (
        column("fall-off", weaker, given.keys, kind="weight"),
        column("weakened", after, given.keys, kind="weight", beside=True, marked=best),
    )
    numbers = (float(before[best]), float(weaker[best]), float(after[best]))
    line = Line("{} · {} = {}", numbers, ("weakened", best, 0))
    text = (
        "Weights fall off around p like a bell, so that the prediction of p can be learned; they no longer sum to one."
    )
    return Step("Fall-off around p", "weight_j · exp(-(j - p)² / 2 (D/2)²)", text, arrays, (line,))


def context_step(given: Soft) -> Step:
    """Σ α h."""
    weights, context = weights_and_context(given)
    best = int(weights.argmax())
    becomes = {
        "bahdanau": "It joins the token before and the state in the recurrent cell, which makes s_t, and in the readout.",
        "luong": "It joins the state, and both predict the next token.",
        "pool": "It is the vector of the text, from which the label is told.",
    }
    text = f"Every annotation times its weight, added up: what was seen, mostly {quoted_token(given.keys[best])}. "
    arrays = (
        Numbers("weighted h", weights[:, None] * given.h, given.keys, marked=best),
        Numbers("context", context, ("c",)),
    )
    line = sum_line("c_0", weights, given.h[:, 0], ("context", 0, 0))
    title, formula = "The context: weighted sum of annotations", "c = Σ_j weight_j h_j"
    return Step(title, formula, text + becomes[given.family], arrays, (line,))


def combine_step(given: Soft) -> Step:
    """Luong's attentional vector (eq. 5)."""
    assert given.w_c is not None
    joined, made = np.concatenate([weights_and_context(given)[1], given.s]), combined(given)
    bias = None if given.b_c is None else float(given.b_c[0])
    inner = joined @ given.w_c + (0.0 if given.b_c is None else given.b_c)
    arrays = [
        Numbers("W_c [c ; s]", inner, ("sum",)),
        Numbers("vector", made, ("tanh",)),
        Numbers("W_c", given.w_c, tuple(map(str, range(len(given.w_c)))), aside=True),
    ]
    if given.b_c is not None:
        arrays.append(Numbers("b_c", given.b_c, ("b",), aside=True))
    lines = (
        sum_line("inner_0", joined, given.w_c[:, 0], ("W_c [c ; s]", 0, 0), bias),
        Line("tanh({}) = {}", (float(inner[0]), float(made[0])), ("vector", 0, 0)),
    )
    text = "Context and state side by side, through one layer: what predicts the next token (Luong et al. 2015, eq. 5)."
    return Step("Context and state, joined", "tanh(W_c [c ; s] + b)", text, tuple(arrays), lines)
