"""Multi-head attention of one query as steps, from the vector that enters the layer to the one that leaves it."""

from __future__ import annotations

import numpy as np

from regard.look.walk.heads import (
    HeadResult,
    MultiHeadLook,
    attend_head,
    join_heads,
    layer_inputs,
    rotary_angles,
)
from regard.look.walk.softmax import mask_step, masked, softmax_step
from regard.look.walk.steps import (
    Numbers,
    Step,
    WorkedLine,
    capital,
    column,
    counted,
    parameter,
    quoted_token,
    sum_line,
)
from regard.look.walk.sublayer import NORM_FORMULA, NORM_PAPER, leave_step, norm_arrays

SCORE_BIAS = {
    "alibi": (
        "score_j - m |i - j|",
        "The farther a key, the lower its score; the slope m belongs to this head and is not learned (Press et al. 2022).",
    ),
    "t5": (
        "score_j + table[bucket(j - i)]",
        "Each distance, or bucket of far distances, has a learned number for this head (Raffel et al. 2020, section 2.1).",
    ),
    "shaw": (
        "score_j + q · a_j / √E",
        "Each distance j - i has a learned vector a, which the query meets as it meets a key (Shaw et al. 2018, eq. 4).",
    ),
    "tree": (
        "score_j + q · a_j / √E",
        "Each distance in the sentence's tree has a learned vector a, which the query meets as it meets a key "
        "(Wang et al. 2019).",
    ),
}


def heads_steps(look: MultiHeadLook) -> tuple[Step, ...]:
    """All steps of one attention layer."""
    found = attend_head(look, look.head)
    allowed = look.allowed_keys(look.head)
    steps = [enter_step(look), project_step(look, found)]
    steps += [rotary_step(look, found)] if look.rotary is not None else []
    steps += [product_step(look, found), scale_step(look, found)]
    steps += [bias_step(look, found)] if found.bias is not None else []
    steps += [mask_step(found.scores, allowed, look.reasons, look.keys, look.asker)]
    steps += [softmax_step(masked(found.scores, allowed), look.keys, look.asker), value_step(look, found)]
    steps += [join_step(look)] if look.to_out is not None else []
    out = join_heads(look)[1]
    behind = [leave_step(look.around, look.own, out, look.label, "attention")] if look.around.is_there else []
    return (*steps, *behind)


def enter_step(look: MultiHeadLook) -> Step:
    """The vector that enters the layer, and its norm if that stands before it."""
    label, x, around = look.label, look.own, look.around
    entered, memory = layer_inputs(look)
    where = f"after {counted(look.blocks, 'block')}" if look.blocks else "as it was embedded: no block came before"
    text = f"The vector of {look.asker}, {where}."
    arrays: tuple[Numbers, ...] = (Numbers("x", x, (label,)),)
    lines: tuple[WorkedLine, ...] = ()
    formula = "x"
    if around.norm is not None and around.order == "pre":
        more, line = norm_arrays(around.norm, x, label, "x", "normed x")
        arrays, lines, formula = (*arrays, *more), (line,), NORM_FORMULA[around.norm.kind]
        text += f" This model norms before it attends ({NORM_PAPER[around.norm.kind]}; Xiong et al. 2020 on the place)."
    elif around.order == "post":
        text += " This model norms after it attends, as the paper does (Vaswani et al. 2017, section 3.1), so x enters as is."
    if look.memory is None:
        text += " Keys and values are made of the vectors of the same text."
        arrays += (Numbers("all x", entered, look.queries, folded=True, marked=look.place),)
    else:
        text += (
            f" Keys and values are made of another text: {counted(len(look.keys), 'vector')} that the encoder made in "
            f"{counted(look.encoder_blocks, 'block')}."
        )
        arrays += (Numbers("memory", memory, look.keys, folded=True),)
    return Step("What enters this layer", formula, text, arrays, lines)


def project_step(look: MultiHeadLook, found: HeadResult) -> Step:
    """x becomes q, k and v of this head."""
    width, label = look.width, look.label
    text = (
        f"Three learned matrices make three vectors of width E = {width}: a query (what {look.asker} looks for), and "
        "of every token a key (what it offers) and a value (what it gives). "
    )
    if look.groups < look.heads:
        text += (
            f"Head {look.head} has a query of its own, but shares key-value head {look.group} with "
            f"{counted(look.heads // look.groups - 1, 'other head')}: {look.heads} heads, {look.groups} key-value heads "
            "(Ainslie et al. 2023). "
        )
    x = layer_inputs(look)[0][look.place]
    to_query = look.to_query.head(look.head, width)
    to_key, to_value = look.to_key.head(look.group, width), look.to_value.head(look.group, look.value_width)
    projections = {"q": to_query, "k": to_key, "v": to_value}
    weights = []
    for letter, projection in projections.items():
        weights.append(parameter(f"W_{letter}", projection.weight))
        if projection.bias is not None:
            weights.append(parameter(f"b_{letter}", projection.bias))
    first = None if to_query.bias is None else float(to_query.bias[0])
    line = sum_line("q_0", x, to_query.weight[:, 0], ("q", 0, 0), first)
    made = (Numbers("q", found.q, (label,)), Numbers("k", found.k, look.keys), Numbers("v", found.v, look.keys))
    plus = "" if to_query.bias is None else " + b"
    formula = f"q = x W_q{plus},  k = m W_k{plus},  v = m W_v{plus}"
    text += (
        "m is the vector of the token that is looked at."
        if look.memory is not None
        else "m is the vector of each token."
    )
    return Step("x becomes q, k and v", formula, text, (*weights, *made), (line,))


def rotary_step(look: MultiHeadLook, found: HeadResult) -> Step:
    """Rotary positions (Su et al. 2021, eq. 34)."""
    assert look.rotary is not None
    place, width, label = look.place, look.width, look.label
    by = rotary_angles(width, look.rotary, place)
    half = width // 2
    pairs = tuple(f"{pair}, {pair + half}" for pair in range(half))
    pair = min(1, half - 1)  # the one that is worked out: the first turns by whole positions, the second says more
    text = (
        f"Positions turn queries and keys: component e and component e + {half} are a point in the plane, and the point at "
        "position p is turned by p times the speed of its pair, fast for the first pair and slow for the last. The product "
        f"of a query and a key then depends on their distance alone. {capital(look.asker)} stands at position {place}."
    )
    slower = look.rotary.scale != 1.0
    numbers = (float(place), *([look.rotary.scale] if slower else []), look.rotary.base, 2.0 * pair, float(width))
    speed = f"θ_{pair} = {{}}{' / {}' if slower else ''} · {{}}^(-{{}} / {{}}) = {{}}"
    angle = WorkedLine(speed, (*numbers, float(by[pair])), ("angles", 0, pair))
    first, second = float(found.q[pair]), float(found.q[pair + half])
    cosine, sine = float(np.cos(by[pair])), float(np.sin(by[pair]))
    line = WorkedLine(
        f"turned q_{pair} = {{}} · {{}} - {{}} · {{}} = {{}}",
        (first, cosine, second, sine, float(found.turned_q[pair])),
        ("turned q", 0, pair),
    )
    other = WorkedLine(
        f"turned q_{pair + half} = {{}} · {{}} + {{}} · {{}} = {{}}",
        (second, cosine, first, sine, float(found.turned_q[pair + half])),
        ("turned q", 0, pair + half),
    )
    arrays = (
        Numbers("angles", by, ("θ",), pairs),
        Numbers("cos", np.cos(by), ("cos θ",), pairs),
        Numbers("sin", np.sin(by), ("sin θ",), pairs),
        Numbers("turned q", found.turned_q, (label,)),
        Numbers("turned k", found.turned_k, look.keys),
    )
    by_scale = f" / {look.rotary.scale:g}" if slower else ""
    formula = (
        f"turned q_e = q_e cos θ_e - q_(e+{half}) sin θ_e,  θ_e = p{by_scale} · {look.rotary.base:g}^(-2e/{width})"
    )
    return Step("Positions: q and k are turned", formula, text, arrays, (angle, line, other))


def product_step(look: MultiHeadLook, found: HeadResult) -> Step:
    """q · k for every key, term by term."""
    sums = found.products.sum(axis=1)
    best = int(sums.argmax())
    text = (
        "The query meets each key: component times component, then the sum. It is large where both point the same way. "
        f"Largest here: {quoted_token(look.keys[best])}."
    )
    line = sum_line(
        f"score of {quoted_token(look.keys[best])}", found.turned_q, found.turned_k[best], ("sums", best, 0)
    )
    arrays = (
        Numbers("products", found.products, look.keys, marked=best),
        column("sums", sums, look.keys, beside=True),
    )
    return Step("q · k, term by term", "score_j = Σ_n q_n k_jn", text, arrays, (line,))


def scale_step(look: MultiHeadLook, found: HeadResult) -> Step:
    """Divided by √E, or times what the model has instead."""
    sums = found.products.sum(axis=1)
    best = int(sums.argmax())
    numbers, of = (float(sums[best]), float(found.scaled[best])), ("scaled", best, 0)
    arrays = (column("scaled", found.scaled, look.keys),)
    if look.scale is None:
        text = (
            f"A sum of E = {look.width} products grows with E; divided by √E it stays about as large for any width, and "
            "the softmax that follows does not saturate (Vaswani et al. 2017, section 3.2.1)."
        )
        line = WorkedLine("{} / √{} = {}", (numbers[0], float(look.width), numbers[1]), of)
        return Step("Divide by √E", "score_j = q · k_j / √E", text, arrays, (line,))
    stays = "scores stay as they are" if look.scale == 1 else f"products are multiplied by {look.scale:g}"
    text = f"Nothing is divided by √E here: {stays}."
    line = WorkedLine("{} · {} = {}", (numbers[0], look.scale, numbers[1]), of)
    return Step("Scale", "score_j = q · k_j · scale", text, arrays, (line,))


def bias_step(look: MultiHeadLook, found: HeadResult) -> Step:
    """Positions that are added to the scores."""
    assert found.bias is not None and look.relative is not None
    formula, text = SCORE_BIAS[look.relative.kind]
    rows = look.relative.key_rows
    far = int(np.abs(found.bias).argmax())
    numbers = (float(found.scaled[far]), float(found.bias[far]), float(found.scores[far]))
    line = WorkedLine("{} + {} = {}", numbers, ("scores", far, 0))
    lines: tuple[WorkedLine, ...] = (line,)
    arrays: tuple[Numbers, ...] = (
        column("bias", found.bias, look.keys),
        column("scores", found.scores, look.keys, beside=True),
    )
    if rows is not None:
        arrays += (parameter("a of keys", rows, look.keys),)
        met = float(rows[far] @ found.turned_q)
        told = (met, float(look.width), float(found.bias[far]))
        lines = (
            WorkedLine(f"q · a of {quoted_token(look.keys[far])}: {{}} / √{{}} = {{}}", told, ("bias", far, 0)),
            line,
        )
    return Step("Positions join the scores", formula, text, arrays, lines)


def value_step(look: MultiHeadLook, found: HeadResult) -> Step:
    """The weighted sum of the values."""
    label, best = look.label, int(found.weights.argmax())
    v, formula = found.v, "head = Σ_j weight_j v_j"
    most = quoted_token(look.keys[best])
    seen = f"What head {look.head} sees" if look.heads > 1 else "What is seen"
    text = f"{seen}: every value times its weight, added up. Most of it is what {most} gives."
    arrays: tuple[Numbers, ...] = ()
    if look.value_rows is not None:
        v, formula = v + look.value_rows, "head = Σ_j weight_j (v_j + a_j)"
        text += (
            " Each value has the vector of its distance added, a of the tables of positions (Shaw et al. 2018, eq. 3)."
        )
        arrays = (parameter("a of values", look.value_rows, look.keys),)
    arrays += (
        Numbers("weighted v", found.weighted, look.keys, marked=best),
        Numbers("head output", found.out, (label,)),
    )
    line = sum_line("head_0", found.weights, v[:, 0], ("head output", 0, 0))
    return Step("Weighted sum of the values", formula, text, arrays, (line,))


def join_step(look: MultiHeadLook) -> Step:
    """All heads side by side, projected."""
    assert look.to_out is not None
    heads, out = join_heads(look)
    weight, bias = look.to_out.weight, look.to_out.bias
    text = (
        f"The {look.heads} heads looked for different things, each in its own part of the vector. What they saw stands "
        f"side by side, {look.heads} x {look.width} = {heads.size} numbers, and W_o mixes it back into one vector "
        "(Vaswani et al. 2017, section 3.2.2)."
        if look.heads > 1
        else "There is one head; W_o turns what it saw back into the width of the model (Vaswani et al. 2017, section 3.2.2)."
    )
    first = None if bias is None else float(bias[0])
    line = sum_line("output_0", heads.reshape(-1), weight[:, 0], ("output", 0, 0), first)
    names = tuple(f"head {head}" for head in range(look.heads))
    rows = tuple(f"head {row // look.value_width}, {row % look.value_width}" for row in range(heads.size))
    arrays = [Numbers("heads", heads, names, marked=look.head), Numbers("output", out, (look.label,))]
    arrays.append(parameter("W_o", weight, rows))
    if bias is not None:
        arrays.append(parameter("b_o", bias))
    formula = f"output = [head_0 .. head_{look.heads - 1}] W_o{'' if bias is None else ' + b'}"
    return Step("All heads, joined and projected", formula, text, tuple(arrays), (line,))
