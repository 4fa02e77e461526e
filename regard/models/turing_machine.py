"""The neural Turing machine (Graves, Wayne & Danihelka 2014): a network that reads and writes a memory by attention.

A head attends to the N rows of the memory M (N, W) by content and by place, in four stages (section 3.3):

    content      w_c(i) = softmax_i(β cos(k, M(i)))          eq. 5 and 6: the rows that are like a key
    interpolate  w_g = g w_c + (1 - g) w_before              eq. 7: or those of the step before
    shift        w~(i) = Σ_j w_g(j) s(i - j)                 eq. 8: or their neighbours, on a ring
    sharpen      w(i) = w~(i)^γ / Σ_j w~(j)^γ                eq. 9

A reading is r = Σ_i w(i) M(i) (eq. 2); a writing erases and adds, M(i) <- M(i) (1 - w(i) e) + w(i) a (eq. 3 and 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from regard.data.batch import BitBatch
from regard.models.bits import BitModel
from regard.models.configs.memory import TuringMachineConfig

SHIFTS = (-1, 0, 1)  # places by which a head may move at once
EMPTY = 1e-2  # in each cell of a fresh memory; with much less, the least writing turns a row, and gradients burst
TINY = 1e-8  # added to lengths that are divided by


@dataclass(frozen=True)
class Tape:
    """The state of a machine between two steps."""

    memory: Tensor  # (B, N, W)
    reads: Tensor  # (B, R, W): what the reading heads read
    looks: Tensor  # (B, R + 1, N): where the heads were, the writing one last
    states: tuple[Tensor, ...]  # of the controller, each (B, H); none if it is plain


@dataclass(frozen=True)
class Trace:
    """Where the heads of a machine were at each step."""

    reading: Tensor  # (B, T, R, N)
    writing: Tensor  # (B, T, N)


class Heads(nn.Module):
    """What all heads are told by the controller in one product, and where they go with that."""

    def __init__(self, hidden: int, heads: int, width: int) -> None:
        super().__init__()
        self.heads, self.parts = heads, [width, 1, 1, 1, len(SHIFTS)]  # k, β, g, γ, s
        self.told = nn.Linear(hidden, heads * sum(self.parts))

    def forward(self, h: Tensor, memory: Tensor, before: Tensor) -> Tensor:
        """h (B, H), the memory (B, N, W), where the heads were (B, R, N) -> where they are: (B, R, N)."""
        k, beta, g, gamma, s = self.told(h).unflatten(-1, (self.heads, -1)).split(self.parts, dim=-1)
        w = by_content(k.tanh(), softplus(beta), memory)
        w = interpolated(w, before, g.sigmoid())
        w = shifted(w, s.softmax(dim=-1))
        return sharpened(w, 1 + softplus(gamma))


def by_content(k: Tensor, beta: Tensor, memory: Tensor) -> Tensor:
    """Eq. 5 and 6: keys (B, R, W), their strengths (B, R, 1) and the memory (B, N, W) -> weights (B, R, N)."""
    keys = k * (beta / (k.norm(dim=-1, keepdim=True) + TINY))
    lengths = memory.norm(dim=-1) + TINY  # (B, N)
    return (keys @ memory.transpose(1, 2) / lengths[:, None]).softmax(dim=-1)


def interpolated(content: Tensor, before: Tensor, g: Tensor) -> Tensor:
    """Eq. 7: weights by content and those of the step before, each (B, R, N), mixed by g (B, R, 1)."""
    return before + g * (content - before)


def shifted(w: Tensor, s: Tensor) -> Tensor:
    """Eq. 8: weights (B, R, N) moved on a ring by each of the shifts, as much as s (B, R, shifts) says."""
    moved = [share * w.roll(shift, dims=-1) for shift, share in zip(SHIFTS, s.split(1, dim=-1), strict=True)]
    return torch.stack(moved).sum(dim=0)


def sharpened(w: Tensor, gamma: Tensor) -> Tensor:
    """Eq. 9: weights (B, R, N) to the power of γ (B, R, 1), made to sum to one: softmax(γ log w)."""
    return (gamma * w.clamp(min=1e-12).log()).softmax(dim=-1)


def written(memory: Tensor, w: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Eq. 3 and 4: the memory (B, N, W) after a head at w (B, N) erased e and added a, each (B, W)."""
    return torch.baddbmm(memory * (1 - w[..., None] * erase[:, None]), w[..., None], add[:, None])


class TuringMachine(BitModel):
    """A controller (an LSTM, or one plain layer), heads that read and one that writes."""

    def __init__(self, config: TuringMachineConfig, inputs: int, outputs: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config = config
        seen = inputs + config.readers * config.width
        self.controller: nn.Module = (
            nn.LSTMCell(seen, config.hidden)
            if config.controller == "lstm"
            else nn.Sequential(nn.Linear(seen, config.hidden), nn.Tanh())
        )
        self.heads = Heads(config.hidden, config.readers + 1, config.width)
        self.writes = nn.Linear(config.hidden, 2 * config.width)  # what to erase and to add
        self.output = nn.Linear(config.hidden + config.readers * config.width, outputs)
        self.first_reads = nn.Parameter(0.1 * torch.randn(config.readers, config.width))
        self.first_looks = nn.Parameter(torch.zeros(config.readers + 1, config.rows))
        with torch.no_grad():
            self.first_looks[:, 0] = 5.0  # all heads begin at the first row

    def logits(self, batch: BitBatch) -> Tensor:
        return self.run(self.inputs(batch))[0]

    def run(self, inputs: Tensor) -> tuple[Tensor, Trace]:
        """Inputs (B, T, I) -> logits (B, T, O), and where the heads were at each step."""
        tape, states, reads, looks = self.blank(inputs), [], [], []
        for x in inputs.unbind(dim=1):
            h, tape = self.step(x, tape)
            states.append(h)
            reads.append(tape.reads.flatten(1))
            looks.append(tape.looks)
        seen = torch.cat([torch.stack(states, dim=1), torch.stack(reads, dim=1)], dim=-1)  # (B, T, H + R W)
        found = torch.stack(looks, dim=1)  # (B, T, R + 1, N)
        return self.output(seen), Trace(found[:, :, :-1], found[:, :, -1])

    def blank(self, inputs: Tensor) -> Tape:
        """The state before the first step."""
        rows, config = len(inputs), self.config
        memory = inputs.new_full((rows, config.rows, config.width), EMPTY)
        zeros = inputs.new_zeros(rows, config.hidden)
        states = (zeros, zeros) if config.controller == "lstm" else ()
        looks = self.first_looks.softmax(dim=-1).expand(rows, -1, -1)
        return Tape(memory, self.first_reads.tanh().expand(rows, -1, -1), looks, states)

    def step(self, x: Tensor, tape: Tape) -> tuple[Tensor, Tape]:
        """One input (B, I) -> what the controller makes of it (B, H): then the heads read, then one writes."""
        seen = torch.cat([x, tape.reads.flatten(1)], dim=-1)
        states: tuple[Tensor, ...] = self.controller(seen, tape.states) if tape.states else ()
        h = states[0] if states else self.controller(seen)
        where = self.heads(h, tape.memory, tape.looks)  # (B, R + 1, N)
        erase, add = self.writes(h).chunk(2, dim=-1)
        memory = written(tape.memory, where[:, -1], erase.sigmoid(), add.tanh())
        return h, Tape(memory, where[:, :-1] @ tape.memory, where, states)
