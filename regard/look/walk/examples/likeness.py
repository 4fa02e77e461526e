"""Basic self-attention, without a single parameter: each word becomes an average of all, weighed by likeness.

y_i = Σ_j softmax_j(x_i · x_j) x_j;   with the sign turned, softmax_j(-x_i · x_j): by unlikeness
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard.look.walk.examples.matrices import place_of, softmax_rows
from regard.look.walk.heads import MultiHeadLook, attend_head
from regard.look.walk.heads_steps import product_step, value_step
from regard.look.walk.softmax import softmax, softmax_step
from regard.look.walk.steps import About, Array, Numbers, Step, Walk, named_apart, quoted_token, sum_line
from regard.look.walk.sublayer import LinearNumbers

WORDS = ("cat", "dog", "car", "bus")
X = ((2, 1, 0), (1, 2, 0), (0, 1, 2), (0, 0, 2))
LIKE, UNLIKE = "like", "unlike"
TITLE = "Basic self-attention: like looks at like, or at the unlike"
SUMMARY = (
    "Four words of three dimensions, no learned matrix at all: the scores are the dot products of the words themselves."
)


def likeness_walk(query: int | str | None = None) -> Walk:
    """Basic self-attention of all words as matrices, or of one term by term; then with the sign turned."""
    x = np.array(X, dtype=np.float64)
    if query is None:
        steps = (_words(x), *_matrices(x), _turned(), *_matrices(x, -1.0), _rigid(x))
        about: About = {"role": "self", "queries": list(WORDS), "keys": list(WORDS)}
        return Walk(TITLE, SUMMARY, steps, about)
    place = place_of(WORDS, query)
    steps = (_words(x), *_terms(x, place, 1.0), _turned(), *_terms(x, place, -1.0), _rigid(x))
    about = {"role": "self", "query": place, "token": WORDS[place], "queries": list(WORDS), "keys": list(WORDS)}
    return Walk(TITLE, SUMMARY, steps, about)


def _words(x: Array) -> Step:
    text = "Made up: the first dimension is for what lives, the last for what drives. A model learns such vectors."
    return Step("Four words as vectors", "x_1 .. x_4", text, (Numbers("X", x, WORDS),))


def _matrices(x: Array, sign: float = 1.0) -> list[Step]:
    """Scores, weights and outputs of all words at once."""
    scores = sign * x @ x.T
    weights = softmax(scores)
    minus = "" if sign > 0 else "-"
    meet = Step(
        "Each word meets each word",
        f"{minus}X Xᵀ",
        "Row i, column j: how much both point the same way. Nothing is learned, and nothing has to be."
        if sign > 0
        else "The same products with the other sign: now the least alike score highest.",
        (Numbers("scores", scores, WORDS, WORDS),),
        (sum_line("scores[0, 0]", sign * x[0], x[0], ("scores", 0, 0)),),
    )
    gather = Step(
        "The weighted sums",
        "Y = weights X",
        "Each word becomes an average of the words: "
        + ("mostly of those like it." if sign > 0 else "mostly of those unlike it."),
        (Numbers("Y", weights @ x, WORDS),),
        (sum_line("Y[0, 0]", weights[0], x[:, 0], ("Y", 0, 0)),),
    )
    where = LIKE if sign > 0 else UNLIKE
    return [named_apart(step, where) for step in (meet, softmax_rows(scores, WORDS, WORDS), gather)]


def _terms(x: Array, place: int, sign: float) -> list[Step]:
    """The same for one word, term by term."""
    same = LinearNumbers(np.eye(x.shape[1]))
    look = MultiHeadLook(
        WORDS, WORDS, place, quoted_token(WORDS[place]), head=0, heads=1, groups=1, x=x, memory=None,
        to_query=LinearNumbers(sign * same.weight), to_key=same, to_value=same, to_out=None, scale=1.0,
    )  # fmt: skip
    found = attend_head(look, 0)
    minus = "" if sign > 0 else "-"
    meet = replace(
        product_step(look, found),
        title=f"{minus}x_i · x_j, term by term",
        formula=f"score_j = {minus}Σ_n x_in x_jn",
        text="The word meets each word, itself too: component times component, then the sum"
        + (
            ". Large where both point the same way." if sign > 0 else ", with the sign turned: large where they do not."
        ),
    )
    gather = replace(
        value_step(look, found),
        title="The weighted sum of the words",
        formula="y_i = Σ_j weight_j x_j",
        text=f"Every word times its weight, added up: mostly {quoted_token(WORDS[int(found.weights.argmax())])}.",
    )
    steps = (meet, softmax_step(found.scores, WORDS, look.asker), gather)
    return [named_apart(step, LIKE if sign > 0 else UNLIKE) for step in steps]


def _turned() -> Step:
    text = (
        "Perhaps a word should look at what it is not: an adjective at its noun, a verb at who does it. Turn the sign, and "
        "the least alike get the most."
    )
    return Step("The sign turned: attend to the unlike", "softmax(-x_i · x_j)", text)


def _rigid(x: Array) -> Step:
    scores = x @ x.T
    text = (
        "The scores are symmetric: “cat” is to “dog” what “dog” is to “cat”, and only likeness counts, or only unlikeness. "
        "Learned matrices W_q and W_k turn words before they meet, so that a word may look for one thing and offer another: "
        "regard walk --example three-tokens."
    )
    return Step(
        "What this cannot do",
        "X Xᵀ = (X Xᵀ)ᵀ",
        text,
        (Numbers("X Xᵀ - its transpose", scores - scores.T, WORDS, WORDS),),
    )
