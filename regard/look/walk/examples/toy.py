"""The worked example: 3 tokens of 4 dimensions and one head, with whole numbers that a person can follow on paper.

E is 4, so that √E is 2 and every score is whole. The last query scores 3, 2 and 4: its weights are the softmax of 2, 1, 3.
"""

from __future__ import annotations

import numpy as np

from regard.errors import Advice, Option, UsageError
from regard.look.walk.embedding import sinusoid
from regard.look.walk.heads import MultiHeadLook
from regard.look.walk.heads_steps import heads_steps
from regard.look.walk.softmax import LATER
from regard.look.walk.steps import About, Array, Numbers, Step, Walk, quoted_token
from regard.look.walk.sublayer import LinearNumbers

TOKENS = ("she", "reads", "books")
X = ((1, 0, 1, 0), (0, 2, 0, 1), (1, 1, 0, 1))
W_Q = ((1, 0, 2, 0), (1, 0, 0, 0), (0, 2, 0, 2), (0, 0, 0, 2))
W_K = ((0, 0, 3, 0), (0, 0, 0, 1), (0, 3, 0, 0), (0, 0, 0, 0))
W_V = ((1, 0, 0, 2), (0, 3, 0, 0), (0, 0, 1, 0), (1, 0, 0, 1))


def toy_walk(role: str = "self", query: int | str | None = None) -> Walk:
    """Walk through the example as self or causal; `query` is a token or its place (None: the last, or if causal the second)."""
    if role not in ("self", "causal"):
        raise UsageError(
            f"the worked example has the roles self and causal, not {role}",
            Advice("leave out ", Option("role"), ", or train a model"),
        )
    place = _place(query, 1 if role == "causal" else 2)
    x = np.array(X, dtype=np.float64)
    w_q, w_k, w_v = (LinearNumbers(np.array(each, dtype=np.float64)) for each in (W_Q, W_K, W_V))
    allowed = np.arange(len(TOKENS)) <= place if role == "causal" else np.ones(len(TOKENS), dtype=bool)
    reasons = tuple("" if seen else LATER for seen in allowed)
    look = MultiHeadLook(
        TOKENS, TOKENS, place, quoted_token(TOKENS[place]), head=0, heads=1, groups=1, x=x, memory=None,
        to_query=w_q, to_key=w_k, to_value=w_v, to_out=None, allowed=allowed[None], reasons=reasons,
    )  # fmt: skip
    steps = (_vectors_step(x), _position_step(place), *heads_steps(look)[1:], _left_out_step(look))
    kind = "causal self-attention" if role == "causal" else "self-attention"
    title = f"Attention on paper: where {quoted_token(TOKENS[place])} looks"
    summary = f"A worked example: {kind} of one head over 3 tokens of 4 dimensions, with whole numbers instead of learned ones."
    about: About = {"role": role, "layer": 0, "head": 0, "query": place, "token": TOKENS[place], "keys": list(TOKENS)}
    return Walk(title, summary, steps, about)


def _vectors_step(x: Array) -> Step:
    text = (
        "Three tokens, each a vector of four numbers. A model learns such vectors; here they are given, small and whole, so "
        "that every step can be followed on paper."
    )
    return Step("Three tokens as vectors", "x_1, x_2, x_3", text, (Numbers("x", x, TOKENS),))


def _position_step(place: int) -> Step:
    text = (
        "Attention does not know what comes first: were two of the tokens swapped, so were their results, and nothing else "
        "would change. A Transformer adds this row of sines and cosines to tell the place (Vaswani et al. 2017, section "
        "3.5). Here it is left out, so that the numbers stay whole."
    )
    table = sinusoid(len(TOKENS), len(X[0]))
    places = tuple(f"position {number}" for number in range(len(table)))
    formula = "PE(p, 2i) = sin(p / 10000^(2i/D)),  PE(p, 2i+1) = cos(p / 10000^(2i/D))"
    return Step("Positions: shown, not added", formula, text, (Numbers("table", table, places, marked=place),))


def _left_out_step(look: MultiHeadLook) -> Step:
    label = look.label
    text = (
        f"The four numbers above are what {quoted_token(label)} has become: itself, seen in its sentence. A model has several "
        "such heads, joins them with one more matrix W_o, and does all this again in the next layer. Try it with a model of "
        'your own: regard demo, then regard walk "..." .'
    )
    return Step("What is left out", "output = [head_0 .. head_H] W_o", text)


def _place(query: int | str | None, default: int) -> int:
    if query is None:
        return default
    if str(query) in TOKENS:
        return TOKENS.index(str(query))
    try:
        place = int(query)
    except ValueError:
        place = len(TOKENS)
    if not 0 <= place < len(TOKENS):
        raise UsageError(f"no query {query} in the worked example; there is {', '.join(TOKENS)}, or 0, 1, 2")
    return place
