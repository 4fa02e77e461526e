"""A whole block on paper: two heads, residual, norm, feed-forward with its zeros of ReLU, residual, norm.

Three tokens of four dimensions, heads of width two, six units; as matrices, or one token term by term.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard.look.walk.block import WRITTEN_OUT, BlockNumbers, block_steps, run_block
from regard.look.walk.examples.given import GivenNumbers
from regard.look.walk.examples.matrices import matrix_walk, place_of
from regard.look.walk.feed_forward import FeedForwardNumbers
from regard.look.walk.heads import ALL, MultiHeadLook, join_heads
from regard.look.walk.steps import (
    About,
    Array,
    Numbers,
    Step,
    Walk,
    WorkedLine,
    column,
    counted,
    lower_first,
    named_apart,
    quoted_token,
    sum_line,
)
from regard.look.walk.sublayer import NORM_FORMULA, Around, LinearNumbers, Norm

TOKENS = ("she", "reads", "books")
X = ((1, 0, 1, 0), (0, 2, 0, 1), (1, 1, 0, 1))
W_Q = ((1, 0, 0, 1), (0, 1, 1, 0), (1, 0, 1, 0), (0, 1, 0, 1))  # columns 0 and 1 are head 0's, 2 and 3 head 1's
W_K = ((0, 1, 1, 0), (1, 0, 0, 1), (0, 1, 0, 1), (1, 0, 1, 0))
W_V = ((1, 0, 0, 2), (0, 1, 1, 0), (0, 2, 0, 1), (1, 0, 2, 0))
W_O = ((1, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0), (0, 0, 0, 1))
W_1 = ((1, -1, 0, 1, 0, -1), (0, 1, -1, 0, 1, 0), (-1, 0, 1, 0, 1, 0), (0, 1, 0, -1, 0, 1))
B_1 = (0, 0, 0, -1, 0, 1)
W_2 = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1))
HEADS, EPSILON = 2, 1e-5


def paper_block(order: str = "post") -> BlockNumbers:
    """The block's numbers, with its norms behind (post) or before (pre) each sub-layer."""
    x, *projections = (_array(rows) for rows in (X, W_Q, W_K, W_V, W_O))
    to_query, to_key, to_value, to_out = (LinearNumbers(each) for each in projections)
    around = Around(Norm("layer", np.ones(4), np.zeros(4), EPSILON), order, residual=True)
    look = MultiHeadLook(
        TOKENS, TOKENS, ALL, "", head=0, heads=HEADS, groups=HEADS, x=x, memory=None,
        to_query=to_query, to_key=to_key, to_value=to_value, to_out=to_out, around=around,
    )  # fmt: skip
    layer = FeedForwardNumbers(LinearNumbers(_array(W_1), _array(B_1)), LinearNumbers(_array(W_2)), "relu")
    return BlockNumbers((look,), layer, around)


def _array(rows: tuple[object, ...]) -> Array:
    return np.array(rows, dtype=np.float64)


def block_walk(query: int | str | None = None, *, order: str = "post") -> Walk:
    """The block as matrices for all tokens, or for one term by term."""
    block = paper_block(order)
    where = {"post": "norms behind each sub-layer, as in the paper", "pre": "norms before each sub-layer, as in GPT-2"}[
        order
    ]
    summary = f"3 tokens of 4 dimensions, 2 heads of width 2, 6 units, {where}; whole numbers instead of learned ones."
    about: About = {"role": "self", "queries": list(TOKENS), "keys": list(TOKENS)}
    if query is None:
        return Walk("A whole block on paper", summary, _matrices(block), about)
    place = place_of(TOKENS, query)
    (look,) = block.looks
    one = look.at(place, quoted_token(TOKENS[place]), 0, ())
    about = {**about, "query": place, "token": TOKENS[place]}
    return Walk(
        f"A whole block on paper, as {quoted_token(TOKENS[place])} goes through it",
        summary,
        block_steps(block, (one,)),
        about,
    )


def _matrices(block: BlockNumbers) -> tuple[Step, ...]:
    """Every sub-layer for all tokens at once."""
    (look,), found = block.looks, run_block(block)
    order = look.around.order
    steps = [
        Step(
            "The tokens, and what a block does",
            WRITTEN_OUT[order],
            "A row for each token.",
            (Numbers("X", look.x, TOKENS),),
        )
    ]
    entered = look.around.enter(look.x)
    steps += [_norm(look.around, look.x, entered, "X", "before attention")] if order == "pre" else []
    for head in range(look.heads):
        steps += _head(look, entered, head)
    steps.append(_join(look, found.added[0]))
    steps += _leave(look.around, look.x, found.added[0], found.entered[1], "attention")
    steps += _feed_forward(block, found.entered[1], found.added[1])
    steps += _leave(block.around, found.entered[1], found.added[1], found.out, "feed-forward")
    return tuple(steps)


def _head(look: MultiHeadLook, x: Array, head: int) -> list[Step]:
    """One head as matrices, in the form that single heads have."""
    q, k, v = (each.head(head, look.width).weight for each in (look.to_query, look.to_key, look.to_value))
    inner = matrix_walk(GivenNumbers(x, q, k, v, labels=TOKENS)).steps[1:]
    return [
        named_apart(replace(step, title=f"Head {head}: {lower_first(step.title)}"), f"head {head}") for step in inner
    ]


def _join(look: MultiHeadLook, out: Array) -> Step:
    assert look.to_out is not None
    side_by_side = np.concatenate(list(join_heads(look)[0]), axis=-1)  # (T, H E)
    columns = tuple(f"head {place // look.width}, {place % look.width}" for place in range(side_by_side.shape[1]))
    arrays = (
        Numbers("heads side by side", side_by_side, TOKENS, columns),
        Numbers("W_o", look.to_out.weight, columns),
        Numbers("attention", out, TOKENS),
    )
    line = sum_line("attention[0, 0]", side_by_side[0], look.to_out.weight[:, 0], ("attention", 0, 0))
    text = "What both heads saw stands side by side, and W_o mixes it (Vaswani et al. 2017, section 3.2.2)."
    return Step("Heads side by side, times W_o", "[Z_0 Z_1] W_o", text, arrays, (line,))


def _leave(around: Around, x: Array, out: Array, left: Array, what: str) -> list[Step]:
    """Residual, and the norm if it stands behind."""
    added = around.leave(x, out)[0]
    line = WorkedLine("{} + {} = {}", (float(x[0, 0]), float(out[0, 0]), float(added[0, 0])), (f"x + {what}", 0, 0))
    text = f"What {what} found is added to what was there (residual connection, He et al. 2016)."
    steps = [Step(f"Residual around {what}", f"x + {what}", text, (Numbers(f"x + {what}", added, TOKENS),), (line,))]
    return steps + ([_norm(around, added, left, f"x + {what}", f"behind {what}")] if around.order == "post" else [])


def _norm(around: Around, x: Array, normed: Array, of: str, where: str) -> Step:
    """The norm of every row, with its mean and deviation."""
    assert around.norm is not None
    mean, variance = around.norm.moments(x)
    name = f"norm {where}"
    arrays = (
        column(f"mean {where}", mean, TOKENS),
        column(f"deviation {where}", np.sqrt(variance), TOKENS, beside=True),
        Numbers(name, normed, TOKENS),
    )
    numbers = (float(x[0, 0]), float(mean[0, 0]), float(variance[0, 0]), around.norm.epsilon, float(normed[0, 0]))
    line = WorkedLine("({} - {}) / √({} + {}) = {}", numbers, (name, 0, 0))
    text = (
        f"Each row of {of} by itself: its mean is taken off, and it is divided by its deviation (Ba et al. 2016). Here w is 1 "
        "and b is 0."
    )
    return Step(f"Norm {where}", NORM_FORMULA["layer"], text, arrays, (line,))


def _feed_forward(block: BlockNumbers, x: Array, out: Array) -> list[Step]:
    layer, inside = block.feed_forward, block.around.enter(x)
    assert isinstance(layer, FeedForwardNumbers) and layer.up.bias is not None
    before, after = layer.units(inside), layer.activated(inside)
    zeros = (after <= 0).sum(axis=1)
    units = tuple(f"unit {unit}" for unit in range(before.shape[1]))
    steps = [_norm(block.around, x, inside, "x", "before feed-forward")] if block.around.order == "pre" else []
    up = (
        Numbers("W_1", layer.up.weight, ("0", "1", "2", "3"), units),
        Numbers("b_1", layer.up.bias, ("b",), units),
        Numbers("units", before, TOKENS, units),
    )
    line = sum_line("units[0, 0]", inside[0], layer.up.weight[:, 0], ("units", 0, 0), float(layer.up.bias[0]))
    steps.append(Step("Feed-forward: up", "x W_1 + b_1", "Each token by itself, to six units.", up, (line,)))
    which = "; ".join(
        f"{token}: {', '.join(map(str, (row <= 0).nonzero()[0].tolist())) or 'none'}"
        for token, row in zip(TOKENS, after, strict=True)
    )
    text = (
        f"What is below zero becomes 0: {counted(int(zeros.sum()), 'zero')} of {after.size} ({which}). Besides the softmax and "
        "the norm, this is all in a block that is not linear."
    )
    relu = (Numbers("ReLU", after, TOKENS, units), column("zeros", zeros, TOKENS, shading="plain", beside=True))
    first = (float(before[0, 1]), float(after[0, 1]))
    steps.append(
        Step("Feed-forward: ReLU", "max(0, units)", text, relu, (WorkedLine("max(0, {}) = {}", first, ("ReLU", 0, 1)),))
    )
    down = (Numbers("W_2", layer.down.weight, units), Numbers("feed-forward", out, TOKENS))
    line = sum_line("feed-forward[0, 0]", after[0], layer.down.weight[:, 0], ("feed-forward", 0, 0))
    return [*steps, Step("Feed-forward: down", "ReLU W_2", "Back to the width of the model.", down, (line,))]
