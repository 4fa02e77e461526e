"""A whole block: attention, in a decoder also to the encoder's memory, and feed-forward, each with its residual and norm.

post-norm (Vaswani et al. 2017)   y = norm(x + attention(x)),   z = norm(y + FFN(y))
pre-norm (Xiong et al. 2020)      y = x + attention(norm(x)),   z = y + FFN(norm(y))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regard.look.walk.feed_forward import ExpertsNumbers, FeedForwardNumbers, feed_forward_steps
from regard.look.walk.heads import MultiHeadLook, attend_head, join_heads
from regard.look.walk.heads_steps import heads_steps
from regard.look.walk.steps import Array, Numbers, Step, capital, counted, lower_first, named_apart, quoted_token
from regard.look.walk.sublayer import ALONE, NORM_FORMULA, NORM_PAPER, Around, leave_step, norm_arrays

CROSS, FEED_FORWARD = "cross", "feed-forward"  # stand behind the names of arrays of these sub-layers
WRITTEN_OUT = {
    "post": "y = norm(x + attention(x)),  z = norm(y + FFN(y))",
    "pre": "y = x + attention(norm(x)),  z = y + FFN(norm(y))",
    "none": "y = x + attention(x),  z = y + FFN(y)",
}


@dataclass(frozen=True, eq=False)
class BlockNumbers:
    """All weights of a block. The looks are those of all queries; their x and memory are what this block was given."""

    looks: tuple[MultiHeadLook, ...]  # at the text itself, and in a decoder at the memory
    feed_forward: FeedForwardNumbers | ExpertsNumbers | None
    around: Around = ALONE  # the feed-forward layer

    @property
    def x(self) -> Array:
        """The vectors that enter: (T, D)."""
        return self.looks[0].x

    def given(self, x: Array, memory: Array | None) -> BlockNumbers:
        """The same block, given other vectors."""
        first, *others = self.looks
        return replace(self, looks=(replace(first, x=x), *(replace(each, memory=memory) for each in others)))


@dataclass(frozen=True, eq=False)
class BlockResult:
    """Everything that a block computes for all of its T tokens."""

    entered: tuple[Array, ...]  # (T, D) each: what the first sub-layer is given, then the next, and the last
    weights: tuple[Array, ...]  # (H, T, S) each: of its attentions
    added: tuple[Array, ...]  # (T, D) each: what every sub-layer gives, before residual and norm
    zeros: Array | None  # (T,): units of the ReLU that are 0
    out: Array  # (T, D)


def run_block(block: BlockNumbers) -> BlockResult:
    """Compute the block, sub-layer by sub-layer."""
    x, entered, weights, added = block.x, [block.x], [], []
    for look in block.looks:
        here = replace(look, x=x)
        weights.append(np.stack([attend_head(here, head).weights for head in range(here.heads)]))
        added.append(join_heads(here)[1])
        x = here.around.leave(x, added[-1])[1]
        entered.append(x)
    zeros = None
    if block.feed_forward is not None:
        inside = block.around.enter(x)
        zeros = _zeros(block.feed_forward, inside)
        added.append(block.feed_forward(inside))
        x = block.around.leave(x, added[-1])[1]
    return BlockResult(tuple(entered), tuple(weights), tuple(added), zeros, x)


def _zeros(layer: FeedForwardNumbers | ExpertsNumbers, x: Array) -> Array | None:
    if isinstance(layer, ExpertsNumbers) or layer.activation != "relu":
        return None
    return (layer.activated(x) <= 0).sum(axis=-1)


def block_steps(block: BlockNumbers, looks: tuple[MultiHeadLook, ...]) -> tuple[Step, ...]:
    """All steps of one query through the block; `looks` are the block's, seen from that query."""
    entered, place, labels = run_block(block).entered, looks[0].place, looks[0].queries
    steps: list[Step] = []
    for look, x in zip(looks, entered, strict=False):
        found = heads_steps(replace(look, x=x))
        steps += found if look.memory is None else [named_apart(_across(step), CROSS) for step in found]
    if block.feed_forward is not None:
        steps += _feed_forward(block, entered[-1], place, labels)
    return tuple(steps)


def _across(step: Step) -> Step:
    """A step of the look at the encoder's memory, told apart by its title from that of the look at itself."""
    return replace(step, title=f"To the source: {lower_first(step.title)}")


def _feed_forward(block: BlockNumbers, x: Array, place: int, labels: tuple[str, ...]) -> list[Step]:
    assert block.feed_forward is not None
    around, label = block.around, labels[place]
    inside = around.enter(x)
    steps = []
    if around.norm is not None and around.order == "pre":
        arrays, line = norm_arrays(around.norm, x[place], label, "x", "normed x")
        text = f"What attention left is normed before the feed-forward layer sees it ({NORM_PAPER[around.norm.kind]})."
        arrays = (Numbers("x", x[place], (label,)), *arrays)
        steps.append(Step("Norm before the feed-forward layer", NORM_FORMULA[around.norm.kind], text, arrays, (line,)))
    steps += feed_forward_steps(block.feed_forward, inside, place, labels)
    if around.is_there:
        out = block.feed_forward(inside)[place]
        steps.append(leave_step(around, x[place], out, label, "the feed-forward layer"))
    return [named_apart(step, FEED_FORWARD) for step in steps]


# --- A block in short


def short_step(block: BlockNumbers, place: int, name: str) -> Step:
    """One block of many in one step: where the token at `place` looks, how much each sub-layer adds, what leaves."""
    found, labels = run_block(block), block.looks[0].queries
    arrays: list[Numbers] = []
    looked = []
    for look, weights in zip(block.looks, found.weights, strict=True):
        heads = tuple(f"head {head}" for head in range(look.heads))
        where = "weights" if look.memory is None else "weights to the source"
        arrays.append(Numbers(f"{name}: {where}", weights[:, place], heads, look.keys, "weight", called=where))
        head, key = np.unravel_index(int(weights[:, place].argmax()), weights[:, place].shape)
        looked.append(f"most with head {head} at {quoted_token(look.keys[key])} ({weights[head, place, key]:.0%})")
    arrays += _sizes(block, found, name, place)
    arrays.append(Numbers(f"{name}: all vectors", found.out, labels, folded=True, marked=place, called="all vectors"))
    arrays.append(Numbers(f"{name}: what leaves", found.out[place], (labels[place],), called="what leaves"))
    text = (
        f"{quoted_token(labels[place])} looks {', and across '.join(looked)}. The table has the length of what each "
        "sub-layer adds to each token's vector, and of the vector that leaves."
    )
    if found.zeros is not None:
        units = block.feed_forward.up.weight.shape[1] if isinstance(block.feed_forward, FeedForwardNumbers) else 0
        text += f" Of {counted(units, 'unit')} of the feed-forward layer, {found.zeros[place]} are 0 for this token."
    order = block.looks[0].around.order
    return Step(capital(name), WRITTEN_OUT.get(order, WRITTEN_OUT["none"]), text, tuple(arrays))


def _sizes(block: BlockNumbers, found: BlockResult, name: str, place: int) -> list[Numbers]:
    """Columns with the length of what sub-layers add to each token, of what leaves, and the zeros of its ReLU."""
    names = ["attention", "to the source"][: len(block.looks)] + ["feed-forward"] * (block.feed_forward is not None)
    values = [np.linalg.norm(each, axis=1) for each in (*found.added, found.out)]
    named = dict(zip([*names, "out"], values, strict=True))
    if found.zeros is not None:
        named["zeros"] = found.zeros
    labels = block.looks[0].queries
    return [
        Numbers(
            f"{name}: {what}", each[:, None], labels, (what,), "plain", what != "attention", marked=place, called=what
        )
        for what, each in named.items()
    ]
