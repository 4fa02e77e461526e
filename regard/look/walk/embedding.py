"""The first steps: a token becomes a vector, and the vector learns its place (Vaswani et al. 2017, 3.4 and 3.5), and a norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.look.walk.steps import Line, Numbers, Step, number, quoted_token

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Norm:
    """layer: (x - mean) / √(variance + ε) · w + b;   rms: x / √(mean of x² + ε) · w."""

    kind: str  # layer, rms
    weight: Array  # (D,)
    bias: Array | None
    epsilon: float

    def __call__(self, x: Array) -> Array:
        centre, spread = self.parts(x)
        normed = (x - centre) / np.sqrt(spread + self.epsilon) * self.weight
        return normed if self.bias is None else normed + self.bias

    def parts(self, x: Array) -> tuple[Array, Array]:
        """What is taken off (the mean, or nothing), and what is divided by under the root: each (..., 1)."""
        centre = x.mean(axis=-1, keepdims=True) if self.kind == "layer" else np.zeros((*x.shape[:-1], 1))
        return centre, np.square(x - centre).mean(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Embedding:
    """Ids became vectors: of N tokens on one side."""

    labels: tuple[str, ...]
    rows: Array  # (N, D), of the table
    scale: float  # √D, or 1
    positions: str  # sinusoidal, learned, or how else they are told: rotary, alibi, t5, shaw, tree, none
    added: Array | None = None  # (N, D): positions that are added
    segments: Array | None = None  # (N, D): to which text a token belongs
    norm: Norm | None = None


LEAST = 32  # positions that the picture of the table shows, if there are not more tokens
MOST = 128
WORKED = (0, 1, 2, 3)  # dimensions whose sine or cosine is written out
ELSEWHERE = {
    "rotary": "Nothing is added here: this model turns queries and keys by their position, in a step of its own below.",
    "alibi": "Nothing is added here: in this model distance lowers the scores, in a step of its own below.",
    "t5": "Nothing is added here: in this model a learned number for each distance joins the scores, in a step below.",
    "shaw": "Nothing is added here: in this model a learned vector for each distance joins keys and values, below.",
    "tree": "Nothing is added here: in this model distances in a tree join keys and values, below.",
    "inside": "Nothing is added here: this model tells positions where a text looks at itself, and not in a look at another.",
    "none": "This model tells no positions: to its attention the text is a set, in which order does not count.",
}


def sinusoid(places: int, width: int) -> np.ndarray:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)): (places, D)."""
    dimension = np.arange(width)
    angle = np.arange(places)[:, None] / 10000.0 ** (dimension // 2 * 2 / width)
    return np.where(dimension % 2 == 0, np.sin(angle), np.cos(angle))


def embedded(given: Embedding) -> np.ndarray:
    """What enters the first block: (N, D)."""
    x = given.rows * given.scale
    for part in (given.added, given.segments):
        x = x if part is None else x + part
    return x if given.norm is None else given.norm(x)


def token_step(given: Embedding, place: int, memory: Embedding | None = None) -> Step:
    """Ids -> rows of the table; `memory` is what the other side reads."""
    label = given.labels[place]
    text = "Each token has a row of the embedding table, learned like every other weight. "
    text += f"Here is that of {quoted_token(label)}"
    text += "." if memory is None else ", the last token that the decoder has read."
    arrays = [Numbers("embedding", given.rows[place], (label,))]
    lines: tuple[Line, ...] = ()
    formula = "embedding = table[id]"
    if given.scale != 1.0:
        scaled = given.rows[place] * given.scale
        arrays.append(Numbers("scaled embedding", scaled, (label,)))
        formula = "x = table[id] · √D"
        text += (
            " It is multiplied by √D, so that it is not drowned by the positions (Vaswani et al. 2017, section 3.4)."
        )
        width = float(given.rows.shape[1])
        worked = (float(given.rows[place, 0]), width, float(scaled[0]))
        lines = (Line("x_0 = {} · √{} = {}", worked, ("scaled embedding", 0, 0)),)
    arrays.append(Numbers("embeddings", given.rows, given.labels, aside=True, marked=place))
    if memory is not None:
        text += f" The other side reads {len(memory.labels)} tokens, which have rows of their own."
        arrays.append(Numbers("source embeddings", memory.rows, memory.labels, aside=True))
    return Step("Tokens become vectors", formula, text, tuple(arrays), lines)


def position_step(given: Embedding, place: int) -> Step:
    """What tells a vector its place, before the first block."""
    ways = {"sinusoidal": _sinusoidal, "learned": _learned}
    title = f"Positions: {'none' if given.positions == 'inside' else given.positions}"
    made = ways.get(given.positions, _elsewhere)(given, place)
    formula, text, arrays, lines = made
    label = given.labels[place]
    x = embedded(given)[place]
    if given.segments is not None:
        text += (
            " So is a vector for the text that it belongs to, the first or the second (Devlin et al. 2019, figure 2)."
        )
        arrays += (Numbers("segment", given.segments[place], (label,)),)
        formula += " + segment"
    if given.norm is not None:
        text += " The sum is normed before it enters the first block."
        formula = f"norm({formula})"
    if given.added is not None or given.segments is not None or given.norm is not None:
        arrays += (Numbers("embedded", x, (label,)),)
    return Step(title, formula, text, arrays, lines)


Made = tuple[str, str, tuple[Numbers, ...], tuple[Line, ...]]


def _sinusoidal(given: Embedding, place: int) -> Made:
    assert given.added is not None
    width, label = given.added.shape[1], given.labels[place]
    table = sinusoid(min(max(LEAST, len(given.labels)), MOST), width)
    lines = tuple(_wave(place, dimension, width) for dimension in WORKED[:width])
    text = (
        "Attention itself does not know what comes first. So each position has a vector of sines and cosines, from fast waves "
        f"(the first dimensions) to slow ones (the last), and it is added: {quoted_token(label)} stands at position {place}, "
        "counted from 0 (Vaswani et al. 2017, section 3.5)."
    )
    places = tuple(str(number) for number in range(len(table)))
    marked = place if place < len(table) else None
    arrays = (
        Numbers("position", given.added[place], (f"position {place}",)),
        Numbers("table", table, places, picture=True, marked=marked),
    )
    return "x + PE(p), PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D))", text, arrays, lines


def _wave(place: int, dimension: int, width: int) -> Line:
    wave = "sin" if dimension % 2 == 0 else "cos"
    even = dimension // 2 * 2
    angle = place / 10000.0 ** (even / width)
    value = float(np.sin(angle) if wave == "sin" else np.cos(angle))
    text = f"PE({place}, {dimension}) = {wave}({{}} / 10000^({{}} / {{}})) = {wave}({{}}) = {{}}"
    return Line(text, (float(place), float(even), float(width), angle, value), ("position", 0, dimension))


def _learned(given: Embedding, place: int) -> Made:
    assert given.added is not None
    text = (
        f"Each position has a vector of its own, learned like the embeddings (Gehring et al. 2017), and it is added: "
        f"{quoted_token(given.labels[place])} stands at position {place}, counted from 0."
    )
    return "x + position[p]", text, (Numbers("position", given.added[place], (f"position {place}",)),), ()


def _elsewhere(given: Embedding, place: int) -> Made:
    return "x", ELSEWHERE[given.positions], (), ()


NORM_FORMULA = {
    "layer": "norm(x) = (x - mean) / √(variance + ε) · w + b",
    "rms": "norm(x) = x / √(mean of x² + ε) · w",
}
NORM_PAPER = {"layer": "layer norm, Ba et al. 2016", "rms": "root-mean-square norm, Zhang & Sennrich 2019"}


def norm_arrays(norm: Norm, x: np.ndarray, label: str, of: str, name: str) -> tuple[tuple[Numbers, ...], Line]:
    """What a norm makes of x (D,), called `of`: arrays, the last the result under `name`, and one component worked out."""
    centre, spread = (float(part[0]) for part in norm.parts(x))
    result = norm(x)
    arrays = [number(f"variance of {of}", spread), number("ε", norm.epsilon)]
    if norm.kind == "layer":
        arrays.insert(0, number(f"mean of {of}", centre))
    else:
        arrays[0] = number(f"mean square of {of}", spread)
    arrays.append(Numbers("w of the norm", norm.weight, ("w",), aside=True))
    if norm.bias is not None:
        arrays.append(Numbers("b of the norm", norm.bias, ("b",), aside=True))
    arrays.append(Numbers(name, result, (label,)))
    return tuple(arrays), _norm_line(norm, x, centre, spread, name)


def _norm_line(norm: Norm, x: np.ndarray, centre: float, spread: float, name: str) -> Line:
    numbers = [float(x[0])]
    left = "{}"
    if norm.kind == "layer":
        left = "({} - {})"
        numbers.append(centre)
    text = f"norm_0 = {left} / √({{}} + {{}}) · {{}}"
    numbers += [spread, norm.epsilon, float(norm.weight[0])]
    if norm.bias is not None:
        text += " + {}"
        numbers.append(float(norm.bias[0]))
    return Line(text + " = {}", (*numbers, float(norm(x)[0])), (name, 0, 0))
