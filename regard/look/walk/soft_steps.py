"""A recurrent decoder's look at the source as steps: Bahdanau's (2015), Luong's (2015), and a learned query's."""

from __future__ import annotations

import numpy as np

from regard.look.walk.given import Soft
from regard.look.walk.score_steps import score_steps
from regard.look.walk.soft import combined, fall_off, look, middle, scores
from regard.look.walk.softmax import mask_step, masked, softmax, softmax_step
from regard.look.walk.steps import Line, Numbers, Step, column, number
from regard.look.walk.sums import counted, quoted, sum_line

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
    before, after = softmax(masked(found, given.allowed)), look(given)[0]
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
    weights, context = look(given)
    best = int(weights.argmax())
    becomes = {
        "bahdanau": "It joins the token before and the state in the recurrent cell, which makes s_t, and in the readout.",
        "luong": "It joins the state, and both predict the next token.",
        "pool": "It is the vector of the text, from which the label is told.",
    }
    text = f"Every annotation times its weight, added up: what was seen, mostly {quoted(given.keys[best])}. "
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
    joined, made = np.concatenate([look(given)[1], given.s]), combined(given)
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
