"""The neural programmer (Neelakantan, Le & Sutskever 2016): a program chosen by attention, one operation after the other.

A recurrent network reads the question to a vector q. At step t, q and the history h_t choose an operation out of those in U, a
column, and a number of the question (the paper's selector and history RNN):

    α_op = softmax(U tanh(W_op [q; h_t])),   α_col = softmax(V tanh(W_col [q; h_t])),   β = softmax(Z tanh(W_num [q; h_t]))
    h_{t+1} = tanh(W_h [α_op U; α_col V; β Z; h_t])

All operations are done, and mixed by these weights; s_t (R,) are the rows selected behind step t, s_0 and s_{-1} all of them:

    s_t[i] = Σ_j α_col[j] (α_greater g_t[i,j] + α_lesser l_t[i,j]) + α_and min(s_{t-1}, s_{t-2})[i] + α_or max(…)[i] + α_reset
    scalar_t = α_count Σ_i s_{t-1}[i] + α_sum Σ_ij s_{t-1}[i] α_col[j] table[i,j],   lookup_t[i,j] = α_print α_col[j] s_{t-1}[i]

The answers are those of the last step. Where this differs from the paper: V are not vectors of known columns but what was read
where the question names one, as Z is for numbers, so that tables may have any columns. Comparisons are mixed, g_t[i,j] =
Σ_n β_n [table[i,j] > number_n], not the numbers, so that nothing must be differentiated that jumps. A number is chosen by the
step, not by the operation. Each step has matrices W of its own, unless they are `tied`. In training, Gumbel noise is added to
all scores (Jang et al. 2017, Maddison et al. 2017): programs are tried that are nearly hard, where the paper adds noise to the
gradient. The choices pass the recording channel: they are the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss, one_hot

from regard.attention import Lengths
from regard.attention.record import attend_seen
from regard.blocks import RecurrentEncoder
from regard.data.batch import TableBatch
from regard.data.programs import ANSWER, COMPARE, OF_COLUMN, OPERATIONS
from regard.models.classifier import real_places
from regard.models.config import ProgrammerConfig
from regard.models.loss import Loss, Part
from regard.noise import for_rows

CHOSEN = ("operation", "column", "number")
LEAST = 1e-6  # of a probability whose logarithm is taken
NEEDS_COLUMN = tuple(each in OF_COLUMN for each in OPERATIONS)
NEEDS_NUMBER = tuple(each in COMPARE for each in OPERATIONS)
ANSWERS = tuple(each in ANSWER for each in OPERATIONS)


@dataclass(frozen=True)
class Choices:
    """The weights of one step: operations (B, 8), columns (B, C), numbers (B, N)."""

    operation: Tensor
    column: Tensor
    number: Tensor | None = None  # None at the last step, which compares nothing


@dataclass(frozen=True)
class Ran:
    """A program that ran: the rows after each step, and the answers of the last."""

    selected: list[Tensor]  # (B, R) each
    scalar: Tensor  # (B,)
    lookup: Tensor  # (B, R, C)


class Choice(nn.Module):
    """One choice by attention: softmax(keys · query + noise · Gumbel); the noise is there in training alone."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, query: Tensor, keys: Tensor, stand_for: Tensor, counts: Tensor | None = None) -> list[Tensor]:
        """query (B, D), keys (B, S, D) of which the first `counts` (B,) are, stand_for (B, S, K) -> (B, K), (B, D).

        The weights of what the keys stand for, and the mixture of the keys.
        """
        mask = None if counts is None or bool((counts == keys.size(1)).all()) else Lengths(counts)
        values = torch.cat([stand_for.to(keys.dtype), keys], dim=-1)[:, None]  # (B, 1, S, K + D)
        q, k = query.to(keys.dtype)[:, None, None], keys[:, None]  # one head
        bias = self.noise * gumbel(keys)[:, None, None] if self.training and self.noise else None  # (B, 1, 1, S)
        found = attend_seen(self, "cross", q, k, values, mask=mask, bias=bias, scale=1.0).flatten(1)
        return list(found.split([stand_for.size(-1), keys.size(-1)], dim=-1))


class Programmer(nn.Module):
    """`model(batch)` is the loss; `choose(batch)` the program."""

    def __init__(self, config: ProgrammerConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden
        self.tokens = nn.Embedding(vocabulary, config.width)
        self.reader = RecurrentEncoder(config.cell, config.width, hidden, 1, 0.0, bidirectional=True)
        self.operations = nn.Parameter(torch.randn(len(OPERATIONS), hidden) / hidden**0.5)  # U
        steps = [CHOSEN] * (config.steps - 1) + [CHOSEN[:2]]  # behind the last nothing is selected: it needs no number
        self.asks = nn.ModuleList(  # W_op, W_col, W_num
            nn.ModuleDict({each: nn.Linear(2 * hidden, hidden) for each in names})
            for names in (steps[:1] if config.tied else steps)
        )
        self.remembers = nn.Linear(4 * hidden, hidden)  # W_h
        self.steps = nn.ModuleList(nn.ModuleDict({each: Choice(config.noise) for each in names}) for names in steps)

    def forward(self, batch: TableBatch) -> Loss:
        choices = self.choose(batch)
        loss, count = answer_loss(execute(choices, batch), batch).sum(), len(batch.words)
        return Loss({"loss": Part(loss, count), "nll": Part(loss.detach(), count, weight=0.0)})

    def choose(self, batch: TableBatch) -> list[Choices]:
        """The choices of each step. They follow from the question alone; what is selected does not change them."""
        states, last = self.reader(self.tokens(batch.words), batch.lengths)  # (B, Q, D)
        question = last[-1][0]  # (B, D)
        count = len(question)
        every = torch.eye(len(OPERATIONS), device=states.device).expand(count, -1, -1)
        keys = {
            "operation": (self.operations.expand(count, -1, -1), every, None),
            "column": (at(states, batch.name_places), one_hot(batch.names, batch.cells.size(2)), batch.name_counts),
            "number": (at(states, batch.number_places), _eye(batch.number_places), batch.number_counts),
        }
        history, found = torch.zeros_like(question), list[Choices]()
        for number, step in enumerate(self.steps):
            ask, asked = self.asks[number % len(self.asks)], torch.cat([question, history], dim=-1)
            names = CHOSEN if number < len(self.steps) - 1 else CHOSEN[:2]
            chosen = {name: step[name](ask[name](asked).tanh(), *keys[name]) for name in names}  # type: ignore[index]
            found.append(Choices(*(weights for weights, _ in chosen.values())))
            if names == CHOSEN:
                history = self.remembers(torch.cat([*(mixed for _, mixed in chosen.values()), history], dim=-1)).tanh()
        return found


def gumbel(keys: Tensor) -> Tensor:
    """-log(-log u) for each of the keys (B, S, D), u uniform: the largest of scores with it is a draw from their softmax."""
    uniform = for_rows(partial(torch.rand, device=keys.device), *keys.shape[:2]).clamp(LEAST, 1 - LEAST)
    return -(-uniform.log()).log().to(keys.dtype)  # (B, S)


def execute(choices: Sequence[Choices], batch: TableBatch) -> Ran:
    """Do every operation at every step, mixed by the choices; sums need full precision."""
    with torch.autocast(batch.cells.device.type, enabled=False):
        return _execute(choices, batch)


def _execute(choices: Sequence[Choices], batch: TableBatch) -> Ran:
    dtype = choices[0].operation.dtype
    cells, signs = batch.cells.to(dtype), batch.signs.to(dtype)
    every = real_places(batch.rows, cells.size(1)).to(dtype)  # (B, R)
    selected, scalar, lookup = [every, every], cells.new_zeros(len(cells)), torch.zeros_like(cells)
    for chosen in choices:
        before, last = selected[-2:]
        weight = dict(zip(OPERATIONS, chosen.operation.unbind(dim=-1), strict=True))  # (B,) each
        sums = torch.einsum("br,bc,brc->b", last, chosen.column, cells)
        scalar = weight["count"] * last.sum(dim=-1) + weight["sum"] * sums
        lookup = torch.einsum("b,br,bc->brc", weight["print"], last, chosen.column)
        parts = {"reset": every, "and": torch.minimum(before, last), "or": torch.maximum(before, last)}
        if chosen.number is not None:
            parts |= {"greater": compared(signs > 0, chosen), "lesser": compared(signs < 0, chosen)}
        selected.append(sum((weight[name][:, None] * rows for name, rows in parts.items()), torch.zeros_like(every)))
    return Ran(selected[2:], scalar, lookup)


def hardened(choices: Sequence[Choices], batch: TableBatch) -> list[Choices]:
    """The likeliest program: of each choice the largest weight becomes one, the others zero.

    An operation that needs a column or a number is not chosen where the question names none; the last one gives an answer.
    """
    device = batch.words.device
    needs_column, needs_number, answers = (
        torch.tensor(each, device=device) for each in (NEEDS_COLUMN, NEEDS_NUMBER, ANSWERS)
    )
    able = ~(needs_column & (batch.name_counts == 0)[:, None]) & ~(needs_number & (batch.number_counts == 0)[:, None])
    found = []
    for place, each in enumerate(choices):
        may = able & answers if place == len(choices) - 1 else able  # (B, 8)
        operation = each.operation.masked_fill(~may, -1.0)
        number = None if each.number is None else _hard(each.number)
        found.append(Choices(_hard(operation), _hard(each.column), number))
    return found


def compared(holds: Tensor, chosen: Choices) -> Tensor:
    """How much a comparison of cells and numbers that `holds` (B, N, R, C) selects each row: (B, R)."""
    return torch.einsum("bn,bc,bnrc->br", chosen.number, chosen.column, holds.to(chosen.column.dtype))


def answer_loss(ran: Ran, batch: TableBatch) -> Tensor:
    """The loss of each question (B,): Huber of a number, the mean log loss of cells (the paper's training objective).

    Numbers are squashed to sign(x) log(1 + |x|) first: a sum is a hundred times as large as a count.
    """
    scalar, lookup = (each.to(torch.promote_types(each.dtype, torch.float32)) for each in (ran.scalar, ran.lookup))
    off = huber_loss(squashed(scalar), squashed(batch.wanted.to(scalar.dtype)), reduction="none")  # (B,)
    lookup = lookup.clamp(LEAST, 1 - LEAST)
    missed = -torch.where(batch.printed, lookup.log(), (1 - lookup).log())  # (B, R, C)
    real = real_places(batch.rows, lookup.size(1))[..., None] & real_places(batch.columns, lookup.size(2))[:, None]
    return torch.where(batch.prints, (missed * real).sum(dim=(1, 2)) / real.sum(dim=(1, 2)), off)


def squashed(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def at(states: Tensor, places: Tensor) -> Tensor:
    """What was read at some places: states (B, Q, D), places (B, N) -> (B, N, D)."""
    return states.gather(1, places[..., None].expand(-1, -1, states.size(-1)))


def _eye(places: Tensor) -> Tensor:
    """Each of N stands for itself: (B, N) -> (B, N, N)."""
    return torch.eye(places.size(1), device=places.device).expand(len(places), -1, -1)


def _hard(weights: Tensor) -> Tensor:
    """One at the largest weight, zero elsewhere; zeros where there is nothing to choose."""
    largest, place = weights.max(dim=-1, keepdim=True)
    return torch.zeros_like(weights).scatter(-1, place, (largest > 0).to(weights.dtype))
