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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention.attend import as_they_are
from regard.noise import dropout

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


# --- The same steps with every part by its name, for whoever wants to see them


def rnn_parts(inputs: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    return {"state": (inputs + linear(state[0], weight, bias)).tanh()}


def gru_parts(inputs: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    (of_r, of_z, of_n), (r, z, n) = inputs.chunk(3, dim=-1), linear(state[0], weight, bias).chunk(3, dim=-1)
    reset, update = (of_r + r).sigmoid(), (of_z + z).sigmoid()
    candidate = (of_n + reset * n).tanh()
    return {"state": (1 - update) * candidate + update * state[0], "update": update, "reset": reset,
            "candidate": candidate}  # fmt: skip


def lstm_parts(inputs: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    h, c = state
    i, f, g, o = (inputs + linear(h, weight, bias)).chunk(4, dim=-1)
    admit, forget, candidate, output = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cell = forget * c + admit * candidate
    return {"state": output * cell.tanh(), "cell": cell, "input": admit, "forget": forget, "output": output,
            "candidate": candidate}  # fmt: skip


PARTS: dict[str, Callable[[Tensor, CellState, Tensor, Tensor], dict[str, Tensor]]] = {
    "rnn": rnn_parts,
    "gru": gru_parts,
    "lstm": lstm_parts,
}


@dataclass(frozen=True)
class LayerRun:
    """One layer over some steps, as it was asked: all that its states and gates follow from."""

    layer: RecurrentLayer
    gates: Tensor  # (T, N, gates): W x, and what was fed, before any state is known
    state: CellState  # before the first step

    def parts(self) -> dict[str, Tensor]:
        """State, gates and cell at each step, by name: each (T, N, hidden)."""
        layer, state, steps = self.layer, self.state, list[dict[str, Tensor]]()
        for gates in self.gates.unbind(0):
            steps.append(PARTS[layer.cell](gates, state, layer.weight_h, layer.bias_h))
            state = tuple(steps[-1][name] for name in ("state", "cell") if name in steps[-1])
        return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}


_runs: ContextVar[list[LayerRun] | None] = ContextVar("recurrent layers", default=None)


@contextmanager
def layer_runs() -> Iterator[list[LayerRun]]:
    """Inside this block every recurrent layer adds what it was asked to the list, whole sequences or single steps."""
    found: list[LayerRun] = []
    token = _runs.set(found)
    try:
        yield found
    finally:
        _runs.reset(token)


def joined_runs(runs: Sequence[LayerRun]) -> list[LayerRun]:
    """One run for each layer, those of single steps one after another, in the order in which layers ran first."""
    by_layer: dict[RecurrentLayer, list[LayerRun]] = {}
    for run in runs:
        by_layer.setdefault(run.layer, []).append(run)
    return [LayerRun(layer, torch.cat([run.gates for run in own]), own[0].state) for layer, own in by_layer.items()]


# --- Whole sequences


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


LayerStates = list[CellState]  # of each layer


class RecurrentLayer(nn.Module):
    """One layer of a cell: x (T, B, inputs) -> (T, B, hidden)."""

    def __init__(self, cell: str, inputs: int, hidden: int) -> None:
        super().__init__()
        self.cell, self.hidden = cell, hidden
        gates = GATES[cell] * hidden
        self.weight_x, self.weight_h = (
            nn.Parameter(torch.empty(gates, inputs)),
            nn.Parameter(torch.empty(gates, hidden)),
        )
        self.bias_x, self.bias_h = nn.Parameter(torch.zeros(gates)), nn.Parameter(torch.zeros(gates))
        with torch.no_grad():
            for gate in self.weight_x.chunk(GATES[cell]):
                nn.init.xavier_uniform_(gate)
            for gate in self.weight_h.chunk(GATES[cell]):
                nn.init.orthogonal_(gate)
            if cell == "lstm":  # remember at first (Jozefowicz et al. 2015)
                self.bias_x[hidden : 2 * hidden] = 1.0

    def zeros(self, rows: int) -> CellState:
        """The state before anything was read."""
        return tuple(self.weight_h.new_zeros(rows, self.hidden) for _ in range(2 if self.cell == "lstm" else 1))

    def forward(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """A whole sequence in torch's fused kernel."""
        if (runs := _runs.get()) is not None:
            runs.append(LayerRun(self, self.gates(x), state))
        return fused(self.cell, x, state, [self.weight_x, self.weight_h, self.bias_x, self.bias_h])

    def gates(self, x: Tensor) -> Tensor:
        """W x with its bias, of any number of steps at once: what does not wait for the state."""
        return linear(x, self.weight_x, self.bias_x)

    def step(self, gates: Tensor, state: CellState) -> CellState:
        """One step: the gates of its input (N, gates) -> the new state."""
        if (runs := _runs.get()) is not None:
            runs.append(LayerRun(self, gates[None], state))
        return STEPS[self.cell](gates, state, self.weight_h, self.bias_h)


class Recurrent(nn.Module):
    """A stack of layers, the output of each the input of the next.

    `fed` is the width of what a step gives to the next besides the state (a context, an attentional vector): it joins
    the first layer's gates through a matrix of its own, and then only `step` can be used.
    """

    def __init__(self, cell: str, inputs: int, hidden: int, layers: int, rate: float, fed: int = 0) -> None:
        super().__init__()
        self.rate = rate
        widths = [inputs] + [hidden] * (layers - 1)
        self.layers = nn.ModuleList(RecurrentLayer(cell, width, hidden) for width in widths)
        self.feed = nn.Linear(fed, GATES[cell] * hidden, bias=False) if fed else None

    def forward(self, x: Tensor, states: LayerStates) -> tuple[Tensor, LayerStates]:
        """x (B, T, inputs) -> (B, T, hidden), and the states after it."""
        x, after = x.transpose(0, 1), []  # (T, B, inputs)
        for number, layer in enumerate(self.layers):
            if number:
                x = self._drop(x.transpose(0, 1), number).transpose(0, 1)  # noise goes by rows
            x, state = layer(x, states[number])
            after.append(state)
        return x.transpose(0, 1), after

    def gates(self, x: Tensor) -> Tensor:
        """The first layer's gates of all inputs (..., inputs), before any state is known."""
        return self.layers[0].gates(x)  # type: ignore[operator]

    def step(self, gates: Tensor, states: LayerStates, fed: Tensor | None = None) -> tuple[Tensor, LayerStates]:
        """One step from the gates (N, gates) of its input, and from what was fed (N, fed): (N, hidden), new states."""
        if self.feed is not None and fed is not None:
            gates = torch.addmm(gates, fed, self.feed.weight.mT)
        after: LayerStates = []
        for number, layer in enumerate(self.layers):
            if number:
                gates = layer.gates(self._drop(after[-1][0], number))  # type: ignore[operator]
            after.append(layer.step(gates, states[number]))  # type: ignore[operator]
        return after[-1][0], after

    def zeros(self, rows: int) -> LayerStates:
        return [layer.zeros(rows) for layer in self.layers]  # type: ignore[operator]

    def _drop(self, x: Tensor, number: int) -> Tensor:
        return dropout(x, self.rate) if number and self.training else x


class RecurrentEncoder(nn.Module):
    """Reads (B, S, inputs) and gives an annotation (B, S, hidden) of every position, and each layer's last state.

    With two directions each has half the width, and an annotation is both halves side by side: what stands before a
    position and what stands behind it (Schuster & Paliwal 1997).
    """

    def __init__(self, cell: str, inputs: int, hidden: int, layers: int, rate: float, *, bidirectional: bool) -> None:
        super().__init__()
        self.rate = rate
        widths = [inputs] + [hidden] * (layers - 1)
        kind = BothDirections if bidirectional else OneDirection
        self.layers = nn.ModuleList(kind(cell, width, hidden) for width in widths)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, LayerStates]:
        padded = bool((lengths < x.size(1)).any())
        x, states = x.transpose(0, 1), []  # (S, B, inputs)
        for number, layer in enumerate(self.layers):
            x = dropout(x.transpose(0, 1), self.rate).transpose(0, 1) if number and self.training else x
            x, state = layer(x, lengths if padded else None)  # (S, B, hidden)
            states.append(state)
        return x.transpose(0, 1), states

    def last_state(self, x: Tensor) -> Tensor:
        """The last layer's state behind x (B, S, inputs), of the direction that reads forwards: (B, hidden or half)."""
        _, states = self(x, torch.full((len(x),), x.size(1), device=x.device))
        return states[-1][0][:, : self.layers[-1].forth.hidden]  # type: ignore[union-attr]


class OneDirection(nn.Module):
    """x (S, B, inputs) -> (S, B, hidden), and the state at the end of each sequence. `lengths` None: no padding."""

    def __init__(self, cell: str, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forth = RecurrentLayer(cell, inputs, hidden)

    def forward(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, CellState]:
        return read_to_end(self.forth, x, lengths)


class BothDirections(nn.Module):
    """The same from both ends, each half as wide, side by side."""

    def __init__(self, cell: str, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forth, self.back = RecurrentLayer(cell, inputs, hidden // 2), RecurrentLayer(cell, inputs, hidden // 2)

    def forward(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, CellState]:
        forth, forth_state = read_to_end(self.forth, x, lengths)
        back, back_state = read_to_end(self.back, backwards(x, lengths), lengths)
        state = tuple(torch.cat(both, dim=-1) for both in zip(forth_state, back_state, strict=True))
        return torch.cat([forth, backwards(back, lengths)], dim=-1), state


def backwards(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence of x (S, B, ...) from its end, what stands behind it left where it is."""
    if lengths is None:
        return x.flip(0)
    places = torch.arange(len(x), device=x.device)[:, None]  # (S, 1)
    mirrored = torch.where(places < lengths, lengths - 1 - places, places)  # (S, B)
    return x[mirrored, torch.arange(x.size(1), device=x.device)]


def read_to_end(layer: RecurrentLayer, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, CellState]:
    """One direction over x (S, B, inputs): outputs, and the state at the end of each sequence, not behind its padding.

    torch gives only the cell of the last step, so an LSTM is made to hold its cell over padding: one more input, which
    is 1 there and shuts the input gate and opens the forget gate wholly (σ of ± a thousand is 0 or 1 to the last bit).
    """
    state = layer.zeros(x.size(1))
    if lengths is None:
        return layer(x, state)
    weight_x: Tensor = layer.weight_x
    if layer.cell == "lstm":
        behind = torch.arange(len(x), device=x.device)[:, None] >= lengths  # (S, B)
        x = torch.cat([x, behind[..., None].to(x.dtype)], dim=-1)
        hold = x.new_tensor([-1000.0, 1000.0, 0.0, 0.0]).repeat_interleave(layer.hidden)  # gates i, f, g, o
        weight_x = torch.cat([weight_x, hold[:, None]], dim=-1)
    out, last = fused(layer.cell, x, state, [weight_x, layer.weight_h, layer.bias_x, layer.bias_h])
    h = out[lengths - 1, torch.arange(x.size(1), device=x.device)]  # (B, hidden)
    return out, (h, *last[1:])
