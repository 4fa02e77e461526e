"""Adaptive computation time (Graves 2016): a recurrent network that decides how often it thinks about each input.

About one input x it takes steps n = 1, 2, ..., with a mark at the first, each with a chance of stopping h_n = σ(w · s_n + b).
It stops at the first N where h_1 + ... + h_N is 1 - ε or more (eq. 6); the last step has what is left, R = 1 - Σ_{n<N} h_n
(eq. 8). State and output are the means of all steps, weighed by p_n = h_n, and p_N = R (eq. 9 and 10). The loss has τ (N + R)
added for each input (eq. 11 to 13); N does not change by a little, so that the gradient is that of R. A network that pays from
the start finds what few steps can do and stays there; with `free` updates before, it first learns and then saves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.blocks import Recurrent
from regard.data.batch import BitBatch
from regard.models.bits import BitModel, bit_parts
from regard.models.configs.memory import PonderConfig
from regard.models.loss import Loss, Part
from regard.noise import step_of_training

States = list[tuple[Tensor, ...]]


@dataclass(frozen=True)
class Thought:
    """What came of one input."""

    output: Tensor  # (B, O)
    cost: Tensor  # (B,): N + R
    steps: Tensor  # (B,): N
    shares: Tensor  # (B, steps): p_n of each step, zero behind the last
    states: States  # behind it


class Ponder(BitModel):
    """Reads one input after the other, thinking about each as long as it wants."""

    def __init__(self, config: PonderConfig, inputs: int, outputs: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.layers = Recurrent(config.cell, inputs + 1, config.hidden, 1, 0.0)
        self.stops = nn.Linear(config.hidden, 1)
        self.output = nn.Linear(config.hidden, outputs)
        nn.init.constant_(self.stops.bias, config.bias)

    def forward(self, batch: BitBatch) -> Loss:
        logits, ponder, _ = self.run(self.inputs(batch))
        parts = bit_parts(logits, batch)
        parts["ponder"] = Part(ponder[:, : batch.steps].sum(), batch.counts["ponder"], weight=self.cost())
        return Loss(parts)

    def cost(self) -> float:
        """The weight of thinking in the loss of this update: none while it is free, then more and more up to tau."""
        step, free = step_of_training(), self.config.free
        share = 1.0 if step is None or not free else min(1.0, max(0.0, step / free - 1))
        return self.config.cost * share

    def logits(self, batch: BitBatch) -> Tensor:
        return self.run(self.inputs(batch))[0]

    def run(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs (B, T, I) -> logits (B, T, O), the cost N + R of each input (B, T), and N (B, T)."""
        found = [(each.output, each.cost, each.steps) for each in self.thoughts(inputs)]
        logits, ponder, steps = (torch.stack(each, dim=1) for each in zip(*found, strict=True))
        return logits, ponder, steps

    def shares(self, inputs: Tensor) -> Tensor:
        """How much each step about each input counts, p_n of eq. 9 and 10: (B, T, most), each row summing to one."""
        most = self.config.most
        return torch.stack([pad(each.shares, (0, most - each.shares.size(1))) for each in self.thoughts(inputs)], dim=1)

    def thoughts(self, inputs: Tensor) -> list[Thought]:
        """About inputs (B, T, I), one after the other."""
        states, found = self.layers.zeros(len(inputs)), list[Thought]()
        for x in inputs.unbind(dim=1):
            found.append(self.think(x, states))
            states = found[-1].states
        return found

    def think(self, x: Tensor, states: States) -> Thought:
        """About one input (B, I)."""
        rows, config = len(x), self.config
        total, steps = x.new_zeros(rows), x.new_zeros(rows)  # Σ h so far, steps so far
        left, goes = x.new_ones(rows), torch.ones(rows, dtype=torch.bool, device=x.device)
        mean_output: Tensor | float = 0.0
        shares = list[Tensor]()
        mean_states: list[Tensor | float] = [0.0] * len(states[0])
        for number in range(config.most):
            mark = x.new_full((rows, 1), float(number == 0))
            h, states = self.layers.step(self.layers.gates(torch.cat([x, mark], dim=-1)), states)
            stop = self.stops(h).squeeze(-1).sigmoid()  # (B,)
            last = goes & ((total + stop >= 1 - config.epsilon) | (number == config.most - 1))
            p = torch.where(last, 1 - total, stop) * goes  # (B,)
            left = torch.where(last, 1 - total, left)  # R
            total, steps = total + stop * (goes & ~last), steps + goes
            shares.append(p)
            mean_output = mean_output + p[:, None] * self.output(h)
            mean_states = [mean + p[:, None] * part for mean, part in zip(mean_states, states[0], strict=True)]
            goes = goes & ~last
            if not bool(goes.any()):
                break
        after = [tuple(part for part in mean_states if isinstance(part, Tensor))]
        assert isinstance(mean_output, Tensor)
        return Thought(mean_output, steps + left, steps, torch.stack(shares, dim=1), after)
