"""What a walk starts from: vectors and weights of a model, in float64, before anything is computed of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


@dataclass(frozen=True, eq=False)
class Turn:
    """Rotary positions: base and scale of the angles (Su et al. 2021, eq. 34)."""

    base: float
    scale: float


@dataclass(frozen=True, eq=False)
class Heads:
    """One multi-head attention, and which query and head of it are looked at."""

    queries: tuple[str, ...]  # T labels
    keys: tuple[str, ...]  # S labels
    query: int
    asker: str  # who looks, in a sentence
    head: int
    heads: int
    groups: int  # key-value heads
    x: Array  # (T, D): what the sub-layer is given, before a norm
    memory: Array | None  # (S, D): what is looked at; None: x itself
    w_q: Array  # (D, H E)
    w_k: Array  # (D, G E)
    w_v: Array  # (D, G E)
    w_o: Array | None  # (H E, D)
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    b_o: Array | None = None
    norm: Norm | None = None
    order: str = "none"  # of norm and sub-layer: pre, post, none
    residual: bool = False
    scale: float | None = None  # what products are multiplied by; None: 1 / √E
    turn: Turn | None = None
    relative: str = ""  # positions that join the scores: alibi, t5, shaw, tree
    bias: Array | None = None  # (H, S): what they add to this query's scores, where that is known without q
    key_rows: Array | None = None  # (S, E): a vector for each key's distance, which q meets (Shaw et al. 2018)
    value_rows: Array | None = None  # (S, E): and one that is added to its value
    allowed: Array | None = None  # (H, S): where the query may look; None: everywhere
    reasons: tuple[str, ...] = ()  # why not, of each key
    blocks: int = 0  # that x came through
    encoder: int = 0  # blocks that the memory came through

    @property
    def width(self) -> int:
        """Of a head: E."""
        return self.w_q.shape[1] // self.heads

    @property
    def group(self) -> int:
        """The key-value head that this head looks at."""
        return self.head // (self.heads // self.groups)


@dataclass(frozen=True, eq=False)
class Place:
    """A window around a position p (Luong et al. 2015, section 3.2)."""

    kind: str  # local-m, local-p
    reach: int
    time: int = 0  # of the query
    inner: Array | None = None  # (Q, Q): W_p of local-p
    outer: Array | None = None  # (Q,): v_p


@dataclass(frozen=True, eq=False)
class Soft:
    """One look of a recurrent decoder, or of a learned query."""

    asker: str  # who looks, in a sentence
    keys: tuple[str, ...]  # S labels
    s: Array  # (Q,): the state that asks
    h: Array  # (S, K): annotations
    score: str  # additive, dot, scaled-dot, general, cosine, location
    weights: dict[str, Array]  # of the score, by letter
    halves: bool = False  # annotations are both directions side by side
    temperature: float = 1.0
    allowed: Array | None = None  # (S,)
    reasons: tuple[str, ...] = ()
    place: Place | None = None
    family: str = "bahdanau"  # bahdanau, luong, pool: who asks, and what becomes of the context
    w_c: Array | None = None  # (K + Q, D): what Luong's makes of context and state
    b_c: Array | None = None
