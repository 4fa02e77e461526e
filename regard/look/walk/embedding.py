"""The first steps of a walk: tokens become vectors and learn their place (Vaswani et al. 2017, section 3.4 and 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from regard.look.walk.steps import Array, Numbers, Step, WorkedLine, quoted_token
from regard.look.walk.sublayer import Norm

FEWEST_POSITIONS = 32  # that the picture of the sine table shows, if there are not more tokens
MOST_POSITIONS = 128
WORKED_DIMENSIONS = (0, 1, 2, 3)  # whose sine or cosine is written out
NOT_ADDED = {
    "rotary": "Nothing is added here: this model turns queries and keys by their position, in a step of its own below.",
    "alibi": "Nothing is added here: in this model distance lowers the scores, in a step of its own below.",
    "t5": "Nothing is added here: in this model a learned number for each distance joins the scores, in a step below.",
    "shaw": "Nothing is added here: in this model a learned vector for each distance joins keys and values, below.",
    "tree": "Nothing is added here: in this model distances in a tree join keys and values, below.",
    "inside": "Nothing is added here: this model tells positions where a text looks at itself, and not in a look at another.",
    "none": "This model tells no positions: to its attention the text is a set, in which order does not count.",
}


@dataclass(frozen=True, eq=False)
class Embedding:
    """N tokens of one side as a model embeds them."""

    labels: tuple[str, ...]
    rows: Array  # (N, D), of the table
    scale: float  # √D, or 1
    positions: str  # sinusoidal, learned, or how else they are told: a key of NOT_ADDED
    added: Array | None = None  # (N, D): positions that are added
    segments: Array | None = None  # (N, D): to which text a token belongs
    norm: Norm | None = None


def sinusoid(places: int, width: int) -> Array:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)): (places, D)."""
    dimension = np.arange(width)
    angle = np.arange(places)[:, None] / 10000.0 ** (dimension // 2 * 2 / width)
    return np.where(dimension % 2 == 0, np.sin(angle), np.cos(angle))


def embed(embedding: Embedding) -> Array:
    """Vectors as they enter the first block: (N, D)."""
    x = embedding.rows * embedding.scale
    for part in (embedding.added, embedding.segments):
        x = x if part is None else x + part
    return x if embedding.norm is None else embedding.norm(x)


def token_step(embedding: Embedding, place: int, memory: Embedding | None = None) -> Step:
    """Ids become rows of the table; `memory` is the text that the other side reads."""
    label = embedding.labels[place]
    text = "Each token has a row of the embedding table, learned like every other weight. "
    text += f"Here is that of {quoted_token(label)}"
    text += "." if memory is None else ", the last token that the decoder has read."
    arrays = [Numbers("embedding", embedding.rows[place], (label,))]
    lines: tuple[WorkedLine, ...] = ()
    formula = "embedding = table[id]"
    if embedding.scale != 1.0:
        scaled = embedding.rows[place] * embedding.scale
        arrays.append(Numbers("scaled embedding", scaled, (label,)))
        formula = "x = table[id] · √D"
        text += (
            " It is multiplied by √D, so that it is not drowned by the positions (Vaswani et al. 2017, section 3.4)."
        )
        width = float(embedding.rows.shape[1])
        worked = (float(embedding.rows[place, 0]), width, float(scaled[0]))
        lines = (WorkedLine("x_0 = {} · √{} = {}", worked, ("scaled embedding", 0, 0)),)
    arrays.append(Numbers("embeddings", embedding.rows, embedding.labels, folded=True, marked=place))
    if memory is not None:
        text += f" The other side reads {len(memory.labels)} tokens, which have rows of their own."
        arrays.append(Numbers("source embeddings", memory.rows, memory.labels, folded=True))
    return Step("Tokens become vectors", formula, text, tuple(arrays), lines)


def position_step(embedding: Embedding, place: int) -> Step:
    """How a vector is told its place before the first block."""
    ways: dict[str, Callable[[Embedding, int], Step]] = {"sinusoidal": _sinusoidal, "learned": _learned}
    step = ways.get(embedding.positions, _not_added)(embedding, place)
    formula, text, arrays, label = step.formula, step.text, step.arrays, embedding.labels[place]
    if embedding.segments is not None:
        text += (
            " So is a vector for the text that it belongs to, the first or the second (Devlin et al. 2019, figure 2)."
        )
        arrays += (Numbers("segment", embedding.segments[place], (label,)),)
        formula += " + segment"
    if embedding.norm is not None:
        text += " The sum is normed before it enters the first block."
        formula = f"norm({formula})"
    if embedding.added is not None or embedding.segments is not None or embedding.norm is not None:
        arrays += (Numbers("embedded", embed(embedding)[place], (label,)),)
    return replace(step, formula=formula, text=text, arrays=arrays)


def _sinusoidal(embedding: Embedding, place: int) -> Step:
    assert embedding.added is not None
    width, label = embedding.added.shape[1], embedding.labels[place]
    table = sinusoid(min(max(FEWEST_POSITIONS, len(embedding.labels)), MOST_POSITIONS), width)
    text = (
        "Attention itself does not know what comes first. So each position has a vector of sines and cosines, from fast waves "
        f"(the first dimensions) to slow ones (the last), and it is added: {quoted_token(label)} stands at position {place}, "
        "counted from 0 (Vaswani et al. 2017, section 3.5)."
    )
    places = tuple(str(number) for number in range(len(table)))
    marked = place if place < len(table) else None
    arrays = (
        Numbers("position", embedding.added[place], (f"position {place}",)),
        Numbers("table", table, places, picture=True, marked=marked),
    )
    formula = "x + PE(p), PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D))"
    lines = tuple(_wave(place, dimension, width) for dimension in WORKED_DIMENSIONS[:width])
    return Step("Positions: sinusoidal", formula, text, arrays, lines)


def _wave(place: int, dimension: int, width: int) -> WorkedLine:
    """One sine or cosine of a position, worked out."""
    wave = "sin" if dimension % 2 == 0 else "cos"
    even = dimension // 2 * 2
    angle = place / 10000.0 ** (even / width)
    value = float(np.sin(angle) if wave == "sin" else np.cos(angle))
    text = f"PE({place}, {dimension}) = {wave}({{}} / 10000^({{}} / {{}})) = {wave}({{}}) = {{}}"
    return WorkedLine(text, (float(place), float(even), float(width), angle, value), ("position", 0, dimension))


def _learned(embedding: Embedding, place: int) -> Step:
    assert embedding.added is not None
    text = (
        f"Each position has a vector of its own, learned like the embeddings (Gehring et al. 2017), and it is added: "
        f"{quoted_token(embedding.labels[place])} stands at position {place}, counted from 0."
    )
    arrays = (Numbers("position", embedding.added[place], (f"position {place}",)),)
    return Step("Positions: learned", "x + position[p]", text, arrays)


def _not_added(embedding: Embedding, place: int) -> Step:
    kind = "none" if embedding.positions == "inside" else embedding.positions
    return Step(f"Positions: {kind}", "x", NOT_ADDED[embedding.positions])
