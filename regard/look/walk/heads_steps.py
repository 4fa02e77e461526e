"""Multi-head attention of one query as steps: from what enters the layer to what leaves it."""

from __future__ import annotations

import numpy as np

from regard.look.walk.embedding import NORM_FORMULA, NORM_PAPER, norm_arrays
from regard.look.walk.heads import Heads, Looked, angles, around, entering, joined, look, part_of
from regard.look.walk.softmax import mask_step, masked, softmax_step
from regard.look.walk.steps import Line, Numbers, Step, capital, column, counted, quoted_token, sum_line


def heads_steps(given: Heads) -> tuple[Step, ...]:
    """All steps of one attention layer."""
    found = look(given, given.head)
    allowed = None if given.allowed is None else given.allowed[given.head]
    steps = [enter_step(given), project_step(given, found)]
    steps += [turn_step(given, found)] if given.turn is not None else []
    steps += [product_step(given, found), scale_step(given, found)]
    steps += [bias_step(given, found)] if found.bias is not None else []
    steps += [mask_step(found.scores, allowed, given.reasons, given.keys, given.asker)]
    steps += [softmax_step(masked(found.scores, allowed), given.keys, given.asker), value_step(given, found)]
    steps += [join_step(given)] if given.w_o is not None else []
    return (*steps, *([leave_step(given)] if given.residual or given.order == "post" else []))


def enter_step(given: Heads) -> Step:
    """What the layer is given, and its norm if that stands before it."""
    label, x = given.queries[given.query], given.x[given.query]
    entered, memory = entering(given)
    where = f"after {counted(given.blocks, 'block')}" if given.blocks else "as it was embedded: no block came before"
    text = f"The vector of {given.asker}, {where}."
    arrays: tuple[Numbers, ...] = (Numbers("x", x, (label,)),)
    lines: tuple[Line, ...] = ()
    formula = "x"
    if given.norm is not None and given.order == "pre":
        more, line = norm_arrays(given.norm, x, label, "x", "normed x")
        arrays, lines, formula = (*arrays, *more), (line,), NORM_FORMULA[given.norm.kind]
        text += f" This model norms before it attends ({NORM_PAPER[given.norm.kind]}; Xiong et al. 2020 on the place)."
    elif given.order == "post":
        text += " This model norms after it attends, as the paper does (Vaswani et al. 2017, section 3.1), so x enters as is."
    if given.memory is None:
        text += " Keys and values are made of the vectors of the same text."
        arrays += (Numbers("all x", entered, given.queries, aside=True, marked=given.query),)
    else:
        text += (
            f" Keys and values are made of another text: {counted(len(given.keys), 'vector')} that the encoder made in "
            f"{counted(given.encoder, 'block')}."
        )
        arrays += (Numbers("memory", memory, given.keys, aside=True),)
    return Step("What enters this layer", formula, text, arrays, lines)


def project_step(given: Heads, found: Looked) -> Step:
    """x -> q, k, v of this head."""
    width, label = given.width, given.queries[given.query]
    text = (
        f"Three learned matrices make three vectors of width E = {width}: a query (what {given.asker} looks for), and "
        "of every token a key (what it offers) and a value (what it gives). "
    )
    if given.groups < given.heads:
        text += (
            f"Head {given.head} has a query of its own, but shares key-value head {given.group} with "
            f"{given.heads // given.groups - 1} other heads: {given.heads} heads, {given.groups} key-value heads "
            "(Ainslie et al. 2023). "
        )
    x = entering(given)[0][given.query]
    of = {"q": (given.w_q, given.b_q, given.head), "k": (given.w_k, given.b_k, given.group)}
    of["v"] = (given.w_v, given.b_v, given.group)
    weights = []
    for letter, (matrix, bias, number) in of.items():
        rows = tuple(str(row) for row in range(len(matrix)))
        weights.append(Numbers(f"W_{letter}", part_of(matrix, number, width), rows, aside=True))
        if bias is not None:
            weights.append(Numbers(f"b_{letter}", part_of(bias, number, width), ("b",), aside=True))
    w_q, b_q = part_of(given.w_q, given.head, width), given.b_q
    first = None if b_q is None else float(part_of(b_q, given.head, width)[0])
    line = sum_line("q_0", x, w_q[:, 0], ("q", 0, 0), first)
    made = (Numbers("q", found.q, (label,)), Numbers("k", found.k, given.keys), Numbers("v", found.v, given.keys))
    plus = "" if b_q is None else " + b"
    formula = f"q = x W_q{plus},  k = m W_k{plus},  v = m W_v{plus}"
    text += (
        "m is the vector of the token that is looked at."
        if given.memory is not None
        else "m is the vector of each token."
    )
    return Step("x becomes q, k and v", formula, text, (*weights, *made), (line,))


def product_step(given: Heads, found: Looked) -> Step:
    """q · k of every key, term by term."""
    sums = found.products.sum(axis=1)
    best = int(sums.argmax())
    text = (
        "The query meets each key: component times component, then the sum. It is large where both point the same way. "
        f"Largest here: {quoted_token(given.keys[best])}."
    )
    line = sum_line(
        f"score of {quoted_token(given.keys[best])}", found.turned_q, found.turned_k[best], ("sums", best, 0)
    )
    arrays = (
        Numbers("products", found.products, given.keys, marked=best),
        column("sums", sums, given.keys, beside=True),
    )
    return Step("q · k, term by term", "score_s = Σ_e q_e k_se", text, arrays, (line,))


def scale_step(given: Heads, found: Looked) -> Step:
    """Divided by √E, or times what the model has instead."""
    sums = found.products.sum(axis=1)
    best = int(sums.argmax())
    numbers, of = (float(sums[best]), float(found.scaled[best])), ("scaled", best, 0)
    arrays = (column("scaled", found.scaled, given.keys),)
    if given.scale is None:
        text = (
            f"A sum of E = {given.width} products grows with E; divided by √E it stays about as large for any width, and "
            "the softmax that follows does not saturate (Vaswani et al. 2017, section 3.2.1)."
        )
        line = Line("{} / √{} = {}", (numbers[0], float(given.width), numbers[1]), of)
        return Step("Divide by √E", "score_s = q · k_s / √E", text, arrays, (line,))
    text = f"This model does not divide by √E: products are multiplied by {given.scale:g}."
    line = Line("{} · {} = {}", (numbers[0], given.scale, numbers[1]), of)
    return Step("Scale", "score_s = q · k_s · scale", text, arrays, (line,))


def value_step(given: Heads, found: Looked) -> Step:
    """The weighted sum of the values."""
    label, best = given.queries[given.query], int(found.weights.argmax())
    v, formula = found.v, "head = Σ_s weight_s v_s"
    most = quoted_token(given.keys[best])
    text = f"What head {given.head} sees: every value times its weight, added up. Most of it is what {most} gives."
    arrays: tuple[Numbers, ...] = ()
    if given.value_rows is not None:
        v, formula = v + given.value_rows, "head = Σ_s weight_s (v_s + a_s)"
        text += (
            " Each value has the vector of its distance added, a of the tables of positions (Shaw et al. 2018, eq. 3)."
        )
        arrays = (Numbers("a of values", given.value_rows, given.keys, aside=True),)
    arrays += (
        Numbers("weighted v", found.weighted, given.keys, marked=best),
        Numbers("head output", found.out, (label,)),
    )
    line = sum_line("head_0", found.weights, v[:, 0], ("head output", 0, 0))
    return Step("Weighted sum of the values", formula, text, arrays, (line,))


def join_step(given: Heads) -> Step:
    """All heads side by side, projected."""
    assert given.w_o is not None
    heads, out = joined(given)
    label, rows = given.queries[given.query], tuple(f"head {head}" for head in range(given.heads))
    text = (
        f"The {given.heads} heads looked for different things, each in its own part of the vector. What they saw stands "
        f"side by side, {given.heads} x {given.width} = {heads.size} numbers, and W_o mixes it back into one vector "
        "(Vaswani et al. 2017, section 3.2.2)."
        if given.heads > 1
        else "There is one head; W_o turns what it saw back into the width of the model (Vaswani et al. 2017, section 3.2.2)."
    )
    first = None if given.b_o is None else float(given.b_o[0])
    line = sum_line("output_0", heads.reshape(-1), given.w_o[:, 0], ("output", 0, 0), first)
    matrix = tuple(f"head {row // given.width}, {row % given.width}" for row in range(heads.size))
    arrays = [Numbers("heads", heads, rows, marked=given.head), Numbers("output", out, (label,))]
    arrays.append(Numbers("W_o", given.w_o, matrix, aside=True))
    if given.b_o is not None:
        arrays.append(Numbers("b_o", given.b_o, ("b",), aside=True))
    formula = f"output = [head_0 .. head_{given.heads - 1}] W_o{'' if given.b_o is None else ' + b'}"
    return Step("All heads, joined and projected", formula, text, tuple(arrays), (line,))


def leave_step(given: Heads) -> Step:
    """The residual connection, and the norm if it stands behind."""
    label, x = given.queries[given.query], given.x[given.query]
    out = joined(given)[1]
    added, left = around(given, out)
    arrays: tuple[Numbers, ...] = ()
    lines: tuple[Line, ...] = ()
    text, formula, title = "", "output", "Norm"
    if given.residual:
        text = "What attention found is added to what was there, so that nothing is lost (residual connection, He et al. 2016)."
        formula, title = "x + output", "Residual"
        arrays = (Numbers("residual", added, (label,)),)
        lines = (Line("{} + {} = {}", (float(x[0]), float(out[0]), float(added[0])), ("residual", 0, 0)),)
    if given.norm is not None and given.order == "post":
        more, line = norm_arrays(given.norm, added, label, "the sum", "normed output")
        text += f" Then the sum is normed ({NORM_PAPER[given.norm.kind]}), as in the paper."
        formula, title = f"norm({formula})", f"{title} and norm" if given.residual else title
        arrays, lines = (*arrays, *more), (*lines, line)
        assert np.allclose(left, more[-1].values)
    return Step(title, formula, text.strip(), arrays, lines)


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
        lines = (Line(f"q · a of {quoted_token(given.keys[far])}: {{}} / √{{}} = {{}}", told, ("bias", far, 0)), line)
    return Step("Positions join the scores", formula, text, arrays, lines)
