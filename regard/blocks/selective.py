"""A selective state space (Gu & Dao 2023, "Mamba", algorithm 2 and figure 3) in the place of attention.

Each of E channels u drives N numbers, as in `state_space.py`, but the input chooses at every position how long its step Δ
is, what is written (B) and what is read (C). That is how a state of fixed size keeps one word and lets another pass:

    h_t = exp(Δ_t A) h_{t-1} + Δ_t B_t u_t,   y_t = C_t · h_t + D u_t       A_n = -n at the start (S4D-Real)
    Δ = softplus(u W_low W_up + b),   B = u W_B,   C = u W_C

exp(ΔA) is the zero-order hold of A (eq. 4); B is held to the first order, Δ B, as the paper's own code has it. Around it
stands a gated block: x W_in is split into u, which passes a short causal convolution and SiLU, and a gate z:

    out = (y ∘ SiLU(z)) W_out

The weights change with t, so there is no convolution to train by: `scan` computes the recurrence in 2√T steps, and
`scan_reference` is the loop. To both sides, a second reader goes from the end of each text to its beginning (Zhu et al.
2024, "Vision Mamba").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad, silu, softplus

from regard.attention import Causal, Mask
from regard.attention.call import ShownWeights
from regard.attention.record import Role, report
from regard.blocks.state_space import lengths_of, wide
from regard.errors import UsageError

PIECE = 64  # positions whose states are in memory at once; between pieces only the last state is kept


def scan_reference(keeps: Tensor, gives: Tensor, start: Tensor) -> Tensor:
    """h_t = keeps_t h_{t-1} + gives_t, position after position: (B, T, E, N), from `start` (B, E, N)."""
    states, state = [], start
    for keep, give in zip(keeps.unbind(1), gives.unbind(1), strict=True):
        state = keep * state + give
        states.append(state)
    return torch.stack(states, dim=1)


def scan(keeps: Tensor, gives: Tensor, start: Tensor) -> Tensor:
    """`scan_reference` in about 2√T steps, also backwards; `keeps` are from 0 to 1, so no product of them overflows."""
    return _Scan.apply(keeps, gives, start)


def _in_chunks(keeps: Tensor, gives: Tensor, start: Tensor) -> Tensor:
    """Go through all chunks of √T positions at once, each from zero; then pass what each ends with on to the next."""
    length = keeps.size(1)
    side = math.isqrt(length - 1) + 1
    if more := -length % side:
        keeps, gives = (pad(each, (0, 0, 0, 0, 0, more)) for each in (keeps, gives))
    keeps, gives = (each.unflatten(1, (-1, side)) for each in (keeps, gives))  # (B, T / side, side, E, N)
    states, products = torch.empty_like(gives), keeps.cumprod(dim=2)
    states[:, :, 0] = gives[:, :, 0]
    for place in range(1, side):
        torch.addcmul(gives[:, :, place], keeps[:, :, place], states[:, :, place - 1], out=states[:, :, place])
    for number in range(states.size(1)):
        states[:, number].addcmul_(products[:, number], start[:, None])
        start = states[:, number, -1]
    return states.flatten(1, 2)[:, :length]


class _Scan(torch.autograd.Function):
    """The gradient is the same recurrence from the end: g_t = dh_t + keeps_{t+1} g_{t+1}."""

    @staticmethod
    def forward(ctx: Any, keeps: Tensor, gives: Tensor, start: Tensor) -> Tensor:
        states = _in_chunks(keeps, gives, start)
        ctx.save_for_backward(keeps, states, start)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keeps, states, start = ctx.saved_tensors
        later = torch.cat([keeps[:, 1:], torch.zeros_like(keeps[:, :1])], dim=1).flip(1)
        given = _in_chunks(later, gradients[0].flip(1), torch.zeros_like(start)).flip(1)
        before = torch.cat([start[:, None], states[:, :-1]], dim=1)
        return given * before, given, keeps[:, 0] * given[:, 0]


@dataclass
class Selected:
    """The parameters that the input chose at each position."""

    steps: Tensor  # (B, T, E): Δ
    writes: Tensor  # (B, T, N): B
    reads: Tensor  # (B, T, N): C


@dataclass
class Heard:
    """The inputs and outputs of one reader over a whole text."""

    inputs: Tensor  # (B, T, E): u
    outputs: Tensor  # (B, T, E): y
    mixes: Callable[[], Tensor]  # the map from the one to the other, (B, E, T, T)


@dataclass
class SelectiveState:
    """The state of each hypothesis: the numbers of each channel, and the last inputs of the convolution."""

    numbers: Tensor  # (N, E, state): h
    recent: Tensor  # (N, kernel - 1, E)
    filled: int = 0

    def select(self, rows: Tensor) -> SelectiveState:
        """The state of the hypotheses `rows`, copied."""
        return replace(self, numbers=self.numbers.index_select(0, rows), recent=self.recent.index_select(0, rows))


class SelectiveReader(nn.Module):
    """(B, T, E) -> (B, T, E) in one direction: convolution, SiLU, and the recurrence with what the input chooses.

    Numbers that are no matrix are kept as vectors, so that no optimiser takes them for one.
    """

    def __init__(self, channels: int, state: int, kernel: int, rank: int, slowest: float, fastest: float) -> None:
        super().__init__()
        self.channels, self.state, self.kernel, self.rank = channels, state, kernel, rank
        bound = 1 / math.sqrt(kernel)
        self.taps = nn.Parameter((2 * torch.rand(kernel * channels) - 1) * bound)
        self.tap_bias = nn.Parameter(torch.zeros(channels))
        self.selects = nn.Linear(channels, rank + 2 * state, bias=False)  # W_low, W_B, W_C
        self.step_up = nn.Parameter((2 * torch.rand(channels, rank) - 1) / math.sqrt(rank))  # W_up
        steps = torch.exp(math.log(slowest) + torch.rand(channels) * (math.log(fastest) - math.log(slowest)))
        self.step_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))  # b: softplus of it is the step
        self.decay_logs = nn.Parameter(torch.arange(1, state + 1).log().repeat(channels))  # log(-A)
        self.skip = nn.Parameter(torch.ones(channels))  # D

    def start(self, rows: int) -> SelectiveState:
        numbers = wide(self.skip).new_zeros(rows, self.channels, self.state)
        return SelectiveState(numbers, numbers.new_zeros(rows, self.kernel - 1, self.channels))

    def forward(self, x: Tensor, past: SelectiveState, inside: Tensor | None = None) -> tuple[Tensor, Tensor, Selected]:
        """u and y (B, T, E) of the next positions, and what was chosen; `inside` (B, T, 1) says which are real."""
        u = silu(self._convolved(x, past))
        if inside is not None:
            u = u.masked_fill(~inside, 0.0)
        chosen, y = self.select(u), []
        poles = self.poles()
        given = (each.split(PIECE, dim=1) for each in (u, chosen.steps, chosen.writes, chosen.reads))
        for some, steps, writes, reads in zip(*given, strict=True):
            part, past.numbers = _through(some, steps, writes, reads, poles, past.numbers)
            y.append(part)
        past.filled += x.size(1)
        return u, torch.cat(y, dim=1) + wide(self.skip) * u, chosen

    def select(self, u: Tensor) -> Selected:
        """Δ, B and C of each position of u (B, T, E)."""
        found = linear(u, wide(self.selects.weight))
        low, writes, reads = found.split([self.rank, self.state, self.state], dim=-1)
        return Selected(softplus(linear(low, wide(self.step_up), wide(self.step_bias))), writes, reads)

    def poles(self) -> Tensor:
        """A: (E, N)."""
        return -wide(self.decay_logs).exp().view(self.channels, self.state)

    @torch.no_grad()
    def mixed(self, chosen: Selected) -> Tensor:
        """The map by which each channel mixes positions (Ali et al. 2024, eq. 13): (B, E, T, T).

        Of position s at t ≥ s:  Σ_n C_tn exp(A_n (Δ_{s+1} + … + Δ_t)) B_sn Δ_s, and D where s = t.
        """
        steps, writes, reads = (each.double() for each in vars(chosen).values())  # sums of many steps lose digits
        poles, total = self.poles().double(), steps.cumsum(dim=1).mT  # (B, E, T)
        between = (total[..., :, None] - total[..., None, :]).clamp_min(0)  # (B, E, T, T)
        found = torch.zeros_like(between)
        for n in range(self.state):
            read, write = reads[..., n], writes[..., n]  # (B, T)
            found += read[:, None, :, None] * (between * poles[:, n, None, None]).exp() * write[:, None, None, :]
        found = (found * steps.mT[..., None, :]).tril()
        found += self.skip.double()[:, None, None] * torch.eye(total.size(-1), device=total.device)
        return found.to(chosen.steps.dtype)

    def _convolved(self, x: Tensor, past: SelectiveState) -> Tensor:
        """A causal convolution of each channel by itself, over what came before and x (B, T, E)."""
        taps, given = wide(self.taps).view(self.kernel, self.channels), torch.cat([past.recent, x], dim=1)
        past.recent = given[:, x.size(1) :]
        out = wide(self.tap_bias).expand_as(x)
        for place, tap in enumerate(taps):
            out = out + tap * given[:, place : place + x.size(1)]
        return out


def _through(
    u: Tensor, steps: Tensor, writes: Tensor, reads: Tensor, poles: Tensor, start: Tensor
) -> tuple[Tensor, Tensor]:
    """`_piece`; for a gradient its states are computed anew, as they are N times as many numbers as all else."""
    return _Anew.apply(u, steps, writes, reads, poles, start)


class _Anew(torch.autograd.Function):
    """`_piece` that keeps its inputs only."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*given)
        return _piece(*given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        given = [each.detach().requires_grad_() for each in ctx.saved_tensors]
        with torch.enable_grad():
            found = _piece(*given)
        return torch.autograd.grad(found, given, gradients)


def _piece(
    u: Tensor, steps: Tensor, writes: Tensor, reads: Tensor, poles: Tensor, start: Tensor
) -> tuple[Tensor, Tensor]:
    """C_t · h_t of a few positions (B, T, E), and the last state (B, E, N)."""
    keeps = (steps[..., None] * poles).exp()  # (B, T, E, N)
    gives = (steps * u)[..., None] * writes[:, :, None]
    states = scan(keeps, gives, start)
    return (states @ reads[..., None]).squeeze(-1), states[:, -1]


class Selective(nn.Module):
    """(B, T, D) -> (B, T, D), with the methods of a `MultiHead` that a `Block` calls.

    `state` is N, `expand` how many times the width there are channels, `kernel` the width of the convolution, `rank` the
    width of the bottleneck that steps are chosen through (0: D / 16); steps Δ start between `slowest` and `fastest`.
    """

    def __init__(
        self,
        width: int,
        *,
        causal: bool,
        state: int = 16,
        expand: int = 2,
        kernel: int = 4,
        rank: int = 0,
        slowest: float = 1e-3,
        fastest: float = 1e-1,
    ) -> None:
        super().__init__()
        if slowest > fastest:
            raise UsageError(f"the slowest step {slowest} is longer than the fastest {fastest}; exchange them")
        self.causal, self.channels = causal, expand * width
        make = partial(SelectiveReader, self.channels, state, kernel, rank or math.ceil(width / 16), slowest, fastest)
        self.into = nn.Linear(width, 2 * self.channels, bias=False)
        self.ahead = make()
        self.back = None if causal else make()
        self.out = nn.Linear(self.channels, width, bias=False)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None = None, distances: Tensor | None = None) -> Tensor:
        """`memory` is x; `mask` may say where rows end."""
        if memory is not x or distances is not None:
            raise UsageError(
                "a state-space layer reads one sequence, in its order; choose model.attention.kind = exact"
            )
        lengths = lengths_of(mask, causal=self.causal)
        inside = None if lengths is None else _before(lengths, x)  # (B, T, 1)
        given, gate = self._split(x if inside is None else x.masked_fill(~inside, 0.0))
        with torch.autocast(x.device.type, enabled=False):
            u, y, chosen = self.ahead(given, self.ahead.start(len(x)), inside)
            heard = [Heard(u, y, partial(self.ahead.mixed, chosen))]
            if self.back is not None:
                heard.append(_backwards(self.back, given, inside))
                y = y + heard[1].outputs
        self._report(heard, inside, mask)
        return self._joined(y, gate, x)

    def start(self, rows: int, like: Tensor) -> SelectiveState:
        if not self.causal:
            raise UsageError("a state-space layer that looks to both sides cannot go on token by token")
        return self.ahead.start(rows)

    def read(self, x: Tensor, past: Any) -> Tensor:
        """x (N, T, D), the next positions."""
        given, gate = self._split(x)
        with torch.autocast(x.device.type, enabled=False):
            _, y, _ = self.ahead(given, past)
        return self._joined(y, gate, x)

    def step(self, x: Tensor, past: Any) -> Tensor:
        """x (B, W, D), the newest position of each hypothesis: (B, W, D)."""
        return self.read(x.reshape(-1, 1, x.size(-1)), past).view_as(x)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Project the input to the stream that is read, in single precision at least, and its gate: each (B, T, E)."""
        given, gate = self.into(x).chunk(2, dim=-1)
        return given.to(wide(self.ahead.skip).dtype), gate

    def _joined(self, y: Tensor, gate: Tensor, x: Tensor) -> Tensor:
        return self.out(y.to(x.dtype) * silu(gate))  # (B, T, E) -> (B, T, D)

    def _report(self, heard: list[Heard], inside: Tensor | None, mask: Mask | None) -> None:
        """Each channel of each direction is a head of width 1."""
        inputs = torch.cat([each.inputs for each in heard], dim=-1).mT[..., None]  # (B, E, T, 1)
        outputs = torch.cat([each.outputs for each in heard], dim=-1).mT[..., None]

        def weights() -> Tensor:
            found = torch.cat([each.mixes() for each in heard], dim=1)  # (B, E, T, T)
            return found if inside is None else found * inside.mT[:, None]

        role: Role = "causal" if self.causal else "self"
        shown: ShownWeights = {"reported": weights, "sums_to_one": False, "has_exact": False}
        shown["mask"] = Causal() if self.causal and mask is None else mask
        report(self, role, inputs, inputs, inputs, outputs, **shown)


def _backwards(reader: SelectiveReader, x: Tensor, inside: Tensor | None) -> Heard:
    """Read each text from its end; all is given at its own place."""
    order = torch.arange(x.size(1), device=x.device).flip(0).expand(x.shape[:2])  # (B, T)
    if inside is not None:
        places = order.flip(1)
        order = torch.where(inside[..., 0], inside.sum(dim=1) - 1 - places, places)  # padding stays behind
    turned = x.take_along_dim(order[..., None], 1)
    u, y, chosen = reader(turned, reader.start(len(x)), inside)

    def mixes() -> Tensor:
        return reader.mixed(chosen).take_along_dim(order[:, None, :, None], 2).take_along_dim(order[:, None, None], 3)

    return Heard(u.take_along_dim(order[..., None], 1), y.take_along_dim(order[..., None], 1), mixes)


def _before(lengths: Tensor, x: Tensor) -> Tensor:
    """True at the real positions of x (B, T, D): (B, T, 1)."""
    return (torch.arange(x.size(1), device=x.device) < lengths.to(x.device)[:, None])[..., None]
