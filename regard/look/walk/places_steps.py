"""Positions that join late: turned queries and keys, or numbers that are added to the scores."""

from __future__ import annotations

import numpy as np

from regard.look.walk.given import Heads
from regard.look.walk.heads import Looked, angles
from regard.look.walk.steps import Line, Numbers, Step, column
from regard.look.walk.sums import capital, quoted

BIAS = {
    "alibi": (
        "score_s - m |t - s|",
        "The farther a key, the lower its score; the slope m belongs to this head and is not learned (Press et al. 2022).",
    ),
    "t5": (
        "score_s + table[bucket(s - t)]",
        "Each distance, or bucket of far distances, has a learned number for this head (Raffel et al. 2020, section 2.1).",
    ),
    "shaw": (
        "score_s + q · a_s / √E",
        "Each distance s - t has a learned vector a, which the query meets as it meets a key (Shaw et al. 2018, eq. 4).",
    ),
    "tree": (
        "score_s + q · a_s / √E",
        "Each distance in the sentence's tree has a learned vector a, which the query meets as it meets a key "
        "(Wang et al. 2019).",
    ),
}


def turn_step(given: Heads, found: Looked) -> Step:
    """Rotary positions (Su et al. 2021, eq. 34)."""
    assert given.turn is not None
    place, width, label = given.query, given.width, given.queries[given.query]
    by = angles(width, given.turn, place)
    half = width // 2
    pairs = tuple(f"{pair}, {pair + half}" for pair in range(half))
    pair = min(1, half - 1)  # the one that is worked out: the first turns by whole positions, the second says more
    text = (
        f"Positions turn queries and keys: component e and component e + {half} are a point in the plane, and the point at "
        "position p is turned by p times the speed of its pair, fast for the first pair and slow for the last. The product "
        f"of a query and a key then depends on their distance alone. {capital(given.asker)} stands at position {place}."
    )
    slower = given.turn.scale != 1.0
    numbers = (float(place), *([given.turn.scale] if slower else []), given.turn.base, 2.0 * pair, float(width))
    speed = f"θ_{pair} = {{}}{' / {}' if slower else ''} · {{}}^(-{{}} / {{}}) = {{}}"
    angle = Line(speed, (*numbers, float(by[pair])), ("angles", 0, pair))
    first, second = float(found.q[pair]), float(found.q[pair + half])
    cosine, sine = float(np.cos(by[pair])), float(np.sin(by[pair]))
    line = Line(
        f"turned q_{pair} = {{}} · {{}} - {{}} · {{}} = {{}}",
        (first, cosine, second, sine, float(found.turned_q[pair])),
        ("turned q", 0, pair),
    )
    other = Line(
        f"turned q_{pair + half} = {{}} · {{}} + {{}} · {{}} = {{}}",
        (second, cosine, first, sine, float(found.turned_q[pair + half])),
        ("turned q", 0, pair + half),
    )
    arrays = (
        Numbers("angles", by, ("θ",), pairs),
        Numbers("cos", np.cos(by), ("cos θ",), pairs),
        Numbers("sin", np.sin(by), ("sin θ",), pairs),
        Numbers("turned q", found.turned_q, (label,)),
        Numbers("turned k", found.turned_k, given.keys),
    )
    by_scale = f" / {given.turn.scale:g}" if slower else ""
    formula = f"turned q_e = q_e cos θ_e - q_(e+{half}) sin θ_e,  θ_e = p{by_scale} · {given.turn.base:g}^(-2e/{width})"
    return Step("Positions: q and k are turned", formula, text, arrays, (angle, line, other))


def bias_step(given: Heads, found: Looked) -> Step:
    """What positions add to the scores."""
    assert found.bias is not None
    formula, text = BIAS[given.relative]
    far = int(np.abs(found.bias).argmax())
    numbers = (float(found.scaled[far]), float(found.bias[far]), float(found.scores[far]))
    line = Line("{} + {} = {}", numbers, ("scores", far, 0))
    lines: tuple[Line, ...] = (line,)
    arrays: tuple[Numbers, ...] = (
        column("bias", found.bias, given.keys),
        column("scores", found.scores, given.keys, beside=True),
    )
    if given.key_rows is not None:
        arrays += (Numbers("a of keys", given.key_rows, given.keys, aside=True),)
        met = float(given.key_rows[far] @ found.turned_q)
        told = (met, float(given.width), float(found.bias[far]))
        lines = (Line(f"q · a of {quoted(given.keys[far])}: {{}} / √{{}} = {{}}", told, ("bias", far, 0)), line)
    return Step("Positions join the scores", formula, text, arrays, lines)
