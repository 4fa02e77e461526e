"""A diagonal state-space layer (Gu et al. 2022, "S4D", section 3) in the place of attention: the contrast.

Each channel u of the input drives N complex numbers, and a channel of the output reads them:

    x'(t) = A x(t) + B u(t),   y(t) = 2 Re(C · x(t)) + D u(t)      A_n = -1/2 + iπn (S4D-Lin), B = 1, C learned

Held constant over steps of length Δ (zero-order hold), that is a recurrence, and unrolled a convolution:

    x_t = Ā x_{t-1} + B̄ u_t,   Ā = exp(Δ A),   B̄ = (Ā - 1) / A
    y = K * u + D u,           K_l = 2 Re(Σ_n C_n B̄_n Ā_n^l)

Training is the convolution, by Fourier transform in O(T log T); decoding is the recurrence, with a state that does not
grow; `scan` is the reference of both. To both sides, a second C reads what comes later (Goel et al. 2022): the kernel of
position t + 1 + l is K'_l. Then GELU, and a product that mixes channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.fft import irfft, rfft
from torch.nn.functional import gelu, pad

from regard.attention import Both, Causal, Lengths, Mask
from regard.attention.record import Role, report
from regard.errors import UsageError


@dataclass
class StateSpaceState:
    """The state of each channel of each hypothesis, in units of B̄, and the layer's own numbers."""

    numbers: Tensor  # (N, D, state), complex: x / B̄
    keeps: Tensor  # (D, state): Ā
    reads: Tensor  # (D, state): C B̄
    filled: int = 0

    def select(self, rows: Tensor) -> StateSpaceState:
        """The state of the hypotheses `rows`, copied."""
        return replace(self, numbers=self.numbers.index_select(0, rows))


class StateSpace(nn.Module):
    """(B, T, D) -> (B, T, D), with the methods of a `MultiHead` that a `Block` calls.

    `state` is N, the complex numbers of a channel; steps Δ start between `slowest` and `fastest`. Numbers that are no
    matrix are kept as vectors, so that no optimiser takes them for one: they do not decay, nor are they made orthogonal.
    C (`reads`) is no vector: it decays as matrices do.
    """

    def __init__(
        self, width: int, *, causal: bool, state: int = 32, slowest: float = 1e-3, fastest: float = 1e-1
    ) -> None:
        super().__init__()
        if slowest > fastest:
            raise UsageError(f"the slowest step {slowest} is longer than the fastest {fastest}; exchange them")
        self.width, self.causal, self.state = width, causal, state
        between = math.log(slowest) + torch.rand(width) * (math.log(fastest) - math.log(slowest))
        self.step_logs = nn.Parameter(between)  # (D,): log Δ
        self.decay_logs = nn.Parameter(torch.full((width * state,), math.log(0.5)))  # log(-Re A)
        self.turns = nn.Parameter(math.pi * torch.arange(state).repeat(width))  # Im A
        self.reads = nn.Parameter(torch.randn(1 if causal else 2, width, state, 2) * math.sqrt(0.5))  # C of each side
        self.skip = nn.Parameter(torch.randn(width))  # D
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None = None, distances: Tensor | None = None) -> Tensor:
        """`memory` is x; `mask` may say where rows end."""
        if memory is not x or distances is not None:
            raise UsageError(
                "a state-space layer reads one sequence, in its order; choose model.attention.kind = exact"
            )
        lengths = lengths_of(mask, causal=self.causal)
        with torch.autocast(x.device.type, enabled=False):
            u = self._channels(x, lengths)  # (B, D, T)
            y = self.convolved(u)
        self._report(u, y, lengths, mask)
        return self._joined(y, x)

    def convolved(self, u: Tensor) -> Tensor:
        """y of a whole sequence: (B, D, T) -> (B, D, T)."""
        return _Convolution.apply(u, self.both_sides(u.size(-1))) + self.skip[:, None] * u

    def scan(self, u: Tensor) -> Tensor:
        """`convolved` of a causal layer as the recurrence itself, position after position: the reference."""
        past = self.start(len(u), u)
        return torch.stack([self._advance(each, past) for each in u.unbind(-1)], dim=-1)

    def both_sides(self, length: int) -> Tensor:
        """The kernel by which a position sees those at distances -(T - 1) .. T - 1, earlier ones last: (D, 2 T - 1)."""
        back, *ahead = self._kernels(length)  # each (D, T)
        if not ahead:
            return pad(back, (length - 1, 0))
        return torch.cat([ahead[0][:, : length - 1].flip(-1), back], dim=-1)

    def _kernels(self, length: int) -> Tensor:
        """K of each side, (sides, D, T): powers l = a m + b as one product of those of a m with those of b."""
        rates, reads = self._rates_and_reads()
        side = math.isqrt(length - 1) + 1  # m: about as many as there are a
        places = torch.arange(side, device=rates.device)
        low = (rates[..., None] * places).exp()  # (D, N, m)
        high = (rates[:, None] * (side * places[:, None])).exp()  # (D, a, N)
        high = reads[:, :, None] * high  # (sides, D, a, N)
        product = torch.cat([high.real, -high.imag], dim=-1) @ torch.cat([low.real, low.imag], dim=-2)
        return 2 * product.flatten(-2)[..., :length]  # (sides, D, a, m) -> (sides, D, T)

    def _rates_and_reads(self) -> tuple[Tensor, Tensor]:
        """Δ A (D, N), and C B̄ of each side (sides, D, N)."""
        shape = (self.width, self.state)
        steps, decays, turns, reads = map(wide, (self.step_logs, self.decay_logs, self.turns, self.reads))
        poles = torch.complex(-decays.exp().view(shape), turns.view(shape))
        rates = steps.exp()[:, None] * poles
        return rates, torch.view_as_complex(reads) * torch.expm1(rates) / poles

    def mixed(self, lengths: Tensor | None, rows: int, length: int) -> Tensor:
        """The map by which each channel mixes positions: (B, D, T, T)."""
        places = torch.arange(length, device=self.skip.device)
        kernel = self.both_sides(length).detach()
        each = kernel[:, places[:, None] - places + length - 1]  # (D, T, T)
        each = each + self.skip.detach()[:, None, None] * torch.eye(length, device=kernel.device)
        if lengths is None:
            return each.expand(rows, *each.shape)
        return each * (places < lengths.to(places.device)[:, None])[:, None, None]

    def start(self, rows: int, like: Tensor) -> StateSpaceState:
        if not self.causal:
            raise UsageError("a state-space layer that looks to both sides cannot go on token by token")
        rates, reads = self._rates_and_reads()
        return StateSpaceState(rates.new_zeros(rows, *rates.shape), rates.exp(), reads[0])

    def read(self, x: Tensor, past: Any) -> Tensor:
        """x (N, T, D), the next positions: as a convolution, with what the state still gives."""
        with torch.autocast(x.device.type, enabled=False):
            u = self._channels(x, None)  # (N, D, T)
            y = self.convolved(u) + self._pass_on(u, past)
        return self._joined(y, x)

    def step(self, x: Tensor, past: Any) -> Tensor:
        """x (B, W, D), the newest position of each hypothesis: (B, W, D)."""
        with torch.autocast(x.device.type, enabled=False):
            y = self._advance(self._channels(x.reshape(-1, 1, self.width), None).squeeze(-1), past)
        return self._joined(y[..., None], x.reshape(-1, 1, self.width)).view_as(x)

    def _advance(self, u: Tensor, past: StateSpaceState) -> Tensor:
        """One step of the recurrence: u (N, D) joins the state, y (N, D) is read."""
        past.numbers = past.keeps * past.numbers + u[..., None]
        past.filled += 1
        return 2 * (past.reads * past.numbers).sum(dim=-1).real + self.skip * u

    def _pass_on(self, u: Tensor, past: StateSpaceState) -> Tensor:
        """Add up what the state before u (N, D, T) gives to each position, (N, D, T); the state becomes that behind it."""
        size = math.isqrt(u.size(-1)) + 1
        powers = past.keeps[..., None] ** torch.arange(size + 1, device=u.device)  # (D, N, m + 1)
        before, own, given = past.numbers, torch.zeros_like(past.numbers), []
        for piece in u.split(size, dim=-1):
            length = piece.size(-1)
            last = powers[..., length]
            given.append(2 * torch.einsum("bdn,dnt->bdt", past.reads * before, powers[..., 1 : length + 1]).real)
            joined = torch.einsum("bdt,dnt->bdn", piece.to(powers.dtype), powers[..., :length].flip(-1))
            before, own = last * before, last * own + joined
        past.numbers, past.filled = before + own, past.filled + u.size(-1)
        return torch.cat(given, dim=-1)

    def _channels(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """x (B, T, D) as channels (B, D, T) of the weights' precision, float32 at least, zero behind a row's end."""
        u = x.to(wide(self.skip).dtype).transpose(1, 2)
        if lengths is None:
            return u
        inside = torch.arange(x.size(1), device=x.device) < lengths.to(x.device)[:, None]
        return u.masked_fill(~inside[:, None], 0.0)

    def _joined(self, y: Tensor, x: Tensor) -> Tensor:
        return self.out(gelu(y).transpose(1, 2).to(x.dtype))  # (B, D, T) -> (B, T, D)

    def _report(self, u: Tensor, y: Tensor, lengths: Tensor | None, mask: Mask | None) -> None:
        inputs = u[..., None]  # (B, D, T, 1): a channel is a head of width 1
        weights = partial(self.mixed, lengths, len(u), u.size(-1))
        shown = Causal() if self.causal and mask is None else mask
        role: Role = "causal" if self.causal else "self"
        report(
            self,
            role,
            inputs,
            inputs,
            inputs,
            y[..., None],
            mask=shown,
            reported=weights,
            sums_to_one=False,
            has_exact=False,
        )


def lengths_of(mask: Mask | None, *, causal: bool) -> Tensor | None:
    """Where the rows of a recurrent layer end, by a mask that says no more than that; None: all are whole."""
    if mask is None or (isinstance(mask, Causal) and mask.offset == 0 and causal):
        return None
    if isinstance(mask, Lengths):
        return mask.lengths
    if isinstance(mask, Both):
        given = [lengths_of(each, causal=causal) for each in (mask.first, mask.second)]
        return next((each for each in given if each is not None), None)
    raise UsageError(
        f"a state-space layer cannot follow a mask of the kind {type(mask).__name__}; "
        "choose model.attention.kind = exact"
    )


def wide(x: Tensor) -> Tensor:
    """x in single precision at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _Convolution(torch.autograd.Function):
    """u (B, D, T) with a kernel (D, 2 T - 1) of distances -(T - 1) .. T - 1, by real transforms there and back."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, kernel: Tensor) -> Tensor:
        size = 2 * u.size(-1)  # so that the end of a text does not reach its beginning
        turned = pad(kernel, (0, 1)).roll(1 - u.size(-1), dims=-1)  # distance 0 first, then 1 .., then .. -1
        of_u, of_kernel = rfft(u, n=size), rfft(turned)
        ctx.save_for_backward(of_u, of_kernel)
        return irfft(of_u * of_kernel, n=size)[..., : u.size(-1)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        of_u, of_kernel = ctx.saved_tensors
        length = gradients[0].size(-1)
        given = rfft(gradients[0], n=2 * length)
        du = irfft(given * of_kernel.conj(), n=2 * length)[..., :length]
        turned = irfft((given * of_u.conj()).sum(dim=0), n=2 * length)
        return du, turned.roll(length - 1, dims=-1)[..., :-1]
