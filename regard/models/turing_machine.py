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
from torch.nn.functional import cosine_similarity, softplus

from regard.data.batch import BitBatch
from regard.models.bits import BitModel
from regard.models.configs.memory import TuringMachineConfig

SHIFTS = (-1, 0, 1)  # places by which a head may move at once
EMPTY = 1e-6  # in each cell of a fresh memory


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


class Head(nn.Module):
    """What a head is told by the controller, and where it goes with that."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.told = nn.Linear(hidden, width + 3 + len(SHIFTS))  # k, β, g, γ, s

    def forward(self, h: Tensor, memory: Tensor, before: Tensor) -> Tensor:
        """h (B, H), the memory (B, N, W), where the head was (B, N) -> where it is: (B, N)."""
        k, beta, g, gamma, s = self.told(h).split([self.width, 1, 1, 1, len(SHIFTS)], dim=-1)
        w = by_content(k.tanh(), softplus(beta), memory)
        w = interpolated(w, before, g.sigmoid())
        w = shifted(w, s.softmax(dim=-1))
        return sharpened(w, 1 + softplus(gamma))


def by_content(k: Tensor, beta: Tensor, memory: Tensor) -> Tensor:
    """Eq. 5 and 6: a key (B, W), its strength (B, 1) and the memory (B, N, W) -> weights (B, N)."""
    return (beta * cosine_similarity(k[:, None], memory, dim=-1, eps=1e-8)).softmax(dim=-1)


def interpolated(content: Tensor, before: Tensor, g: Tensor) -> Tensor:
    """Eq. 7: weights by content and those of the step before, each (B, N), mixed by g (B, 1)."""
    return g * content + (1 - g) * before


def shifted(w: Tensor, s: Tensor) -> Tensor:
    """Eq. 8: weights (B, N) moved on a ring by each of the shifts, as much as s (B, shifts) says."""
    moved = torch.stack([w.roll(shift, dims=-1) for shift in SHIFTS], dim=-1)  # (B, N, shifts)
    return (moved @ s[..., None]).squeeze(-1)


def sharpened(w: Tensor, gamma: Tensor) -> Tensor:
    """Eq. 9: weights (B, N) to the power of γ (B, 1), made to sum to one again."""
    powers = w.clamp(min=1e-12) ** gamma
    return powers / powers.sum(dim=-1, keepdim=True)


def written(memory: Tensor, w: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Eq. 3 and 4: the memory (B, N, W) after a head at w (B, N) erased e and added a, each (B, W)."""
    return memory * (1 - w[..., None] * erase[:, None]) + w[..., None] * add[:, None]


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
        self.heads = nn.ModuleList(Head(config.hidden, config.width) for _ in range(config.readers + 1))
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
        tape, outputs, looks = self.blank(inputs), [], []
        for x in inputs.unbind(dim=1):
            y, tape = self.step(x, tape)
            outputs.append(y)
            looks.append(tape.looks)
        found = torch.stack(looks, dim=1)  # (B, T, R + 1, N)
        return torch.stack(outputs, dim=1), Trace(found[:, :, :-1], found[:, :, -1])

    def blank(self, inputs: Tensor) -> Tape:
        """The state before the first step."""
        rows, config = len(inputs), self.config
        memory = inputs.new_full((rows, config.rows, config.width), EMPTY)
        zeros = inputs.new_zeros(rows, config.hidden)
        states = (zeros, zeros) if config.controller == "lstm" else ()
        looks = self.first_looks.softmax(dim=-1).expand(rows, -1, -1)
        return Tape(memory, self.first_reads.tanh().expand(rows, -1, -1), looks, states)

    def step(self, x: Tensor, tape: Tape) -> tuple[Tensor, Tape]:
        """One input (B, I) -> logits (B, O): the controller works, then the heads read, then one writes."""
        seen = torch.cat([x, tape.reads.flatten(1)], dim=-1)
        states: tuple[Tensor, ...] = self.controller(seen, tape.states) if tape.states else ()
        h = states[0] if states else self.controller(seen)
        looks = [head(h, tape.memory, before) for head, before in zip(self.heads, tape.looks.unbind(1), strict=True)]
        where = torch.stack(looks, dim=1)  # (B, R + 1, N)
        reads = where[:, :-1] @ tape.memory  # (B, R, W)
        erase, add = self.writes(h).chunk(2, dim=-1)
        memory = written(tape.memory, looks[-1], erase.sigmoid(), add.tanh())
        return self.output(torch.cat([h, reads.flatten(1)], dim=-1)), Tape(memory, reads, where, states)
