"""Recurrent cells, one step of each, written to be read, and torch's fused kernels, which run a whole sequence.

    rnn    h' = tanh(W x + U h)                                              Elman 1990
    gru    r, z = σ(W x + U h),  n = tanh(W x + r ∘ (U h)),                  Cho et al. 2014
           h' = (1 - z) ∘ n + z ∘ h
    lstm   i, f, o = σ(W x + U h),  g = tanh(W x + U h),                     Hochreiter & Schmidhuber 1997
           c' = f ∘ c + i ∘ g,  h' = o ∘ tanh(c')

Each gate has its own rows of W and U and two biases, laid out as in torch.nn, whose GRU applies r after U (Cho's applies
it before; so that U h can be one product). A state is a tuple: (h,), and (h, c) of an LSTM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

from regard.attention.products import as_they_are

CellState = tuple[Tensor, ...]  # each (N, hidden)


def rnn_step(inputs: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
    """`inputs` is W x (N, hidden) with its bias; `weight` is U."""
    return ((inputs + linear(state[0], weight, bias)).tanh(),)


def gru_step(inputs: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
    """`inputs` is W x (N, 3 hidden) with its bias; `weight` is U."""
    h = state[0]
    own = linear(h, weight, bias)  # (N, 3 hidden)
    width = h.size(-1)
    r, z = (inputs[:, : 2 * width] + own[:, : 2 * width]).sigmoid().chunk(2, dim=-1)
    n = torch.addcmul(inputs[:, 2 * width :], r, own[:, 2 * width :]).tanh()
    return (torch.lerp(n.to(h.dtype), h, z.to(h.dtype)),)  # under autocast the state stays in float32


def lstm_step(inputs: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
    """`inputs` is W x (N, 4 hidden) with its bias; `weight` is U."""
    h, c = state
    i, f, g, o = (inputs + linear(h, weight, bias)).chunk(4, dim=-1)
    c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
    return o.sigmoid() * c.tanh(), c


STEPS: dict[str, Callable[[Tensor, CellState, Tensor, Tensor], CellState]] = {
    "rnn": rnn_step,
    "gru": gru_step,
    "lstm": lstm_step,
}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def fused(cell: str, x: Tensor, state: CellState, weights: list[Tensor]) -> tuple[Tensor, CellState]:
    """A whole sequence x (T, B, I) at once: outputs (T, B, hidden) and the last state. `weights`: W, U, their biases.

    Under autocast too it has the precision of the weights: what is rounded at a step is rounded again at each after it.
    """
    x, *first = (each.to(weights[0].dtype) for each in (x, *(part[None] for part in state)))  # each (1, B, hidden)
    options = (True, 1, 0.0, False, False, False)  # biases, layers, dropout, training, bidirectional, batch first
    with as_they_are(x):
        if cell == "lstm":
            out, h, c = torch.lstm(x, first, weights, *options)
            return out, (h[0], c[0])
        kernel = torch.gru if cell == "gru" else torch.rnn_tanh
        out, h = kernel(x, first[0], weights, *options)
        return out, (h[0],)
