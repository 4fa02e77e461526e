"""Attention on given numbers: one query term by term, or all queries as matrices, in plain NumPy and float64.

Z = softmax(Q Kᵀ · scale + mask) V,   Q = X W_q,  K = M W_k,  V = M W_v      (Vaswani et al. 2017, eq. 1)

M is X itself, or the vectors of another text (cross-attention).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.errors import UsageError
from regard.look.walk.examples.given import GivenNumbers, ScoreGrid
from regard.look.walk.heads import MultiHeadLook
from regard.look.walk.heads_steps import heads_steps
from regard.look.walk.softmax import LATER, masked, softmax
from regard.look.walk.steps import About, Array, Numbers, Step, Walk, WorkedLine, counted, quoted_token, sum_line
from regard.look.walk.sublayer import LinearNumbers

MASKED = "masked by hand"


@dataclass(frozen=True, eq=False)
class Worked:
    """Every matrix between X and the output."""

    q: Array  # (T, E)
    k: Array  # (S, E)
    v: Array  # (S, F)
    products: Array  # (T, S)
    scores: Array  # (T, S): scaled, and minus infinity where a query must not look
    weights: Array  # (T, S)
    z: Array  # (T, F)
    out: Array | None  # z W_o


def work_out(given: GivenNumbers) -> Worked:
    """Attention of all queries at once."""
    q, k, v = given.x @ given.to_query, given.looked_at @ given.to_key, given.looked_at @ given.to_value
    products = q @ k.T
    scores = masked(products * factor(given), given.allowed)
    weights = softmax(scores)
    z = weights @ v
    return Worked(q, k, v, products, scores, weights, z, None if given.to_out is None else z @ given.to_out)


def factor(given: GivenNumbers) -> float:
    """The factor of products of queries and keys."""
    return float(given.to_query.shape[1] ** -0.5) if given.scale is None else given.scale


# --- One query, term by term


def query_walk(given: GivenNumbers, query: int | str | None = None, title: str = "") -> Walk:
    """Walk through the attention of one query; None: the last."""
    place = place_of(given.labels, query)
    allowed = None if given.allowed is None else given.allowed[place]
    why = LATER if given.causal else MASKED
    reasons = () if allowed is None else tuple("" if seen else why for seen in allowed)
    label = given.labels[place]
    look = MultiHeadLook(
        given.labels, given.keys, place, quoted_token(label), head=0, heads=1, groups=1, x=given.x, memory=given.memory,
        to_query=LinearNumbers(given.to_query), to_key=LinearNumbers(given.to_key),
        to_value=LinearNumbers(given.to_value), to_out=None if given.to_out is None else LinearNumbers(given.to_out),
        scale=given.scale, allowed=None if allowed is None else allowed[None], reasons=reasons,
    )  # fmt: skip
    about: About = {"role": _role(given), "layer": 0, "head": 0, "query": place, "token": label}
    about |= {"queries": list(given.labels), "keys": list(given.keys)}
    return Walk(title or f"Where {quoted_token(label)} looks", summary(given), heads_steps(look), about)


def place_of(labels: tuple[str, ...], query: int | str | None) -> int:
    """The place of a query that is a label or a number; None: the last."""
    if query is None:
        return len(labels) - 1
    if str(query) in labels:
        return labels.index(str(query))
    if not str(query).isdecimal() or int(query) >= len(labels):
        raise UsageError(f"no query {query}; there is {', '.join(labels)}, or 0 to {len(labels) - 1}")
    return int(query)


def _role(given: GivenNumbers) -> str:
    return "cross" if given.memory is not None else "causal" if given.causal else "self"


def summary(given: GivenNumbers) -> str:
    """A sentence on what is worked out."""
    kind = {"cross": "Cross-attention", "causal": "Causal self-attention", "self": "Self-attention"}[_role(given)]
    width = given.to_query.shape[1]
    scaled = (
        f"divided by √{width}" if given.scale is None else "unscaled" if given.scale == 1 else f"times {given.scale:g}"
    )
    looked = "" if given.memory is None else f" to {counted(len(given.keys), 'vector')} of another text"
    sizes = f"{counted(len(given.x), 'token')} of {given.x.shape[1]} dimensions{looked}, keys of width {width}"
    return f"{kind} of one head: {sizes}, scores {scaled}."


# --- All queries, as matrices


def matrix_walk(given: GivenNumbers, title: str = "") -> Walk:
    """Walk through attention of all queries at once, in the form in which a computer does it."""
    found, labels, keys = work_out(given), given.labels, given.keys
    steps = [
        _enter(given),
        _project(given, found),
        _meet(found, labels, keys),
        *_scaled(given, found),
        *_masked(given, found),
        softmax_rows(found.scores, labels, keys),
        _gather(found, labels, keys),
    ]
    if found.out is not None and given.to_out is not None:
        line = sum_line(_cell("output"), found.z[0], given.to_out[:, 0], ("output", 0, 0))
        arrays = (Numbers("W_o", given.to_out, _numbers(given.to_out)), Numbers("output", found.out, labels))
        text = "One more matrix turns what was seen back into the width of the model."
        steps.append(Step("W_o", "output = Z W_o", text, arrays, (line,)))
    about: About = {"role": _role(given), "queries": list(labels), "keys": list(keys)}
    return Walk(title or "Attention of all queries, as matrices", summary(given), tuple(steps), about)


def _numbers(matrix: Array) -> tuple[str, ...]:
    return tuple(map(str, range(len(matrix))))


def _cell(name: str) -> str:
    return f"{name}[0, 0]"


def _enter(given: GivenNumbers) -> Step:
    arrays: tuple[Numbers, ...] = (Numbers("X", given.x, given.labels),)
    text = "A row for each token. Everything that follows is done with all rows at once."
    if given.memory is not None:
        arrays += (Numbers("M", given.memory, given.keys),)
        text += " M has the vectors that are looked at, of another text."
    return Step("The tokens, one below the other", "X" if given.memory is None else "X, M", text, arrays)


def _project(given: GivenNumbers, found: Worked) -> Step:
    m = "X" if given.memory is None else "M"
    parts = [
        ("q", given.to_query, found.q, given.labels),
        ("k", given.to_key, found.k, given.keys),
        ("v", given.to_value, found.v, given.keys),
    ]
    arrays = [
        array
        for letter, weight, made, rows in parts
        for array in (Numbers(f"W_{letter}", weight, _numbers(weight)), Numbers(letter.upper(), made, rows))
    ]
    text = "Three products: queries (what each token looks for), keys (what it offers), values (what it gives)."
    line = sum_line(_cell("Q"), given.x[0], given.to_query[:, 0], ("Q", 0, 0))
    return Step("Queries, keys and values", f"Q = X W_q,  K = {m} W_k,  V = {m} W_v", text, tuple(arrays), (line,))


def _meet(found: Worked, labels: tuple[str, ...], keys: tuple[str, ...]) -> Step:
    text = "Every query meets every key: row i, column j is how well the key of j fits what i looks for."
    line = sum_line(_cell("Q Kᵀ"), found.q[0], found.k[0], ("Q Kᵀ", 0, 0))
    return Step("Each query meets each key", "Q Kᵀ", text, (Numbers("Q Kᵀ", found.products, labels, keys),), (line,))


def _scaled(given: GivenNumbers, found: Worked) -> list[Step]:
    by, width = factor(given), given.to_query.shape[1]
    if by == 1.0:
        return []
    scaled = found.products * by
    numbers = (float(found.products[0, 0]), float(scaled[0, 0]))
    if given.scale is None:
        line = WorkedLine("{} / √{} = {}", (numbers[0], float(width), numbers[1]), ("scaled", 0, 0))
        text = f"Divided by √{width}, so that wide keys do not make the softmax all or nothing."
    else:
        line = WorkedLine("{} · {} = {}", (numbers[0], by, numbers[1]), ("scaled", 0, 0))
        text = f"Every score times {by:g}. That changes how sharp the softmax is, never which score is greatest."
    arrays = (Numbers("scaled", scaled, given.labels, given.keys),)
    return [Step("Scale", "Q Kᵀ / √E" if given.scale is None else "Q Kᵀ · scale", text, arrays, (line,))]


def _masked(given: GivenNumbers, found: Worked) -> list[Step]:
    return (
        []
        if given.allowed is None
        else [mask_rows(found.scores, given.allowed, given.causal, given.labels, given.keys)]
    )


def mask_rows(scores: Array, allowed: Array, causal: bool, labels: tuple[str, ...], keys: tuple[str, ...]) -> Step:
    """Scores (T, S) that are minus infinity where a query must not look, and why so."""
    text = (
        "-∞ is added to the scores that must not be seen: exp makes exactly 0 of it, and the rest still sums to one. "
    )
    if causal:
        text += (
            "A token may see itself and all before it (j ≤ i): hiding j = i too would leave the first token nothing to "
            "look at. And the mask comes before the softmax: weights that are multiplied by 0 behind it no longer sum "
            "to one, and what was hidden has already taken its share."
        )
    arrays = (
        Numbers("mask", np.where(allowed, 0.0, -np.inf), labels, keys, shading="plain"),
        Numbers("masked scores", scores, labels, keys),
    )
    title = "Look-ahead mask" if causal else "Mask"
    return Step(title, "scores + mask", text.strip(), arrays)


def softmax_rows(scores: Array, labels: tuple[str, ...], keys: tuple[str, ...]) -> Step:
    """Rows of scores (T, S) become weights (T, S) that sum to one."""
    weights = softmax(scores)
    row = len(labels) - 1
    best = int(scores[row].argmax())
    total = float(np.exp(scores[row] - scores[row, best]).sum())
    text = "Each row by itself: exp, then divided by the sum of the row. A row is a convex combination: shares of one."
    numbers = (float(scores[row, best]), float(scores[row, best]), total, float(weights[row, best]))
    line = WorkedLine(f"{labels[row]} to {keys[best]}: exp({{}} - {{}}) / {{}} = {{}}", numbers, ("weights", row, best))
    arrays = (Numbers("weights", weights, labels, keys, shading="weight"),)
    return Step("Softmax of each row", "weights = softmax(scores)", text, arrays, (line,))


def _gather(found: Worked, labels: tuple[str, ...], keys: tuple[str, ...]) -> Step:
    text = "Each output is an average of the values, weighed by its row."
    line = sum_line(_cell("Z"), found.weights[0], found.v[:, 0], ("Z", 0, 0))
    return Step("The weighted sums", "Z = weights V", text, (Numbers("Z", found.z, labels),), (line,))


# --- Scores alone


def grid_walk(given: ScoreGrid, title: str = "", words: str = "") -> Walk:
    """From a grid of scores to weights."""
    scaled = given.scores * given.scale
    text = words or "How well each key (across) fits each query (down)."
    steps = [Step("Scores", "q_i · k_j", text, (Numbers("scores", given.scores, given.labels, given.keys),))]
    if given.scale != 1.0:
        line = WorkedLine(
            "{} · {} = {}", (float(given.scores[0, 0]), given.scale, float(scaled[0, 0])), ("scaled", 0, 0)
        )
        steps.append(
            Step(
                "Scale",
                "scores · scale",
                f"Every score times {given.scale:g}.",
                (Numbers("scaled", scaled, given.labels, given.keys),),
                (line,),
            )
        )
    scores = masked(scaled, given.allowed)
    if given.allowed is not None:
        steps.append(mask_rows(scores, given.allowed, given.causal, given.labels, given.keys))
    steps.append(softmax_rows(scores, given.labels, given.keys))
    about: About = {
        "role": "causal" if given.causal else "self",
        "queries": list(given.labels),
        "keys": list(given.keys),
    }
    summary = f"{counted(len(given.labels), 'query')} and {counted(len(given.keys), 'key')}: from scores to weights."
    return Walk(title or "From scores to weights", summary.replace("querys", "queries"), tuple(steps), about)


def walk_of(given: GivenNumbers | ScoreGrid, query: int | str | None, title: str = "") -> Walk:
    """The walk through given numbers: of all queries as matrices, or of one term by term."""
    if isinstance(given, ScoreGrid):
        if query is not None:
            raise UsageError("scores alone have no query to go through term by term", "leave out the query")
        return grid_walk(given, title)
    return matrix_walk(given, title) if query is None else query_walk(given, query, title)
