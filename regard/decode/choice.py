"""Which token comes next among those that filters leave: the likeliest, the best of a beam, or one that is drawn."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decode.config import DecodeConfig
from regard.decode.live import NUMBERS, Bools, Floats, Ints, Live
from regard.native.logits import digest_of, made_digest

Number = TypeVar("Number", np.int64, np.float64, np.bool_)

BLOCK = 64  # elements that one maximum stands for: a row of 10,000 becomes 156 maxima
LEAST = np.finfo(np.float64).min  # what is less is -inf: no candidate
SMALL = 2**15  # elements up to which `torch.topk` itself is faster than blocks
LEAST_SUM, MOST_SUM = 1e-20, 1e30  # of exponentials, between which float32 is exact to its own rounding
LOG2_E = math.log2(math.e)
CACHED = (
    2**18
)  # elements whose exponentials stay in a processor's cache, and are not fresh memory each time (2**17: 6% slower)


def log_norm(logits: Tensor) -> Floats:
    """The log-sum-exp of the last dimension, (..., V) -> (...).

    Exponentials and their sum are enough where neither overflows nor vanishes: some rows at a time, in one place that
    stays in the cache of a CPU. Powers of 2 take half as long as those of e (10,000 of them 7 and 13 microseconds).
    """
    if (digest := made_digest(logits, True)) is not None:
        return digest.norms.reshape(logits.shape[:-1])
    rows = logits.reshape(-1, logits.size(-1))  # (N, V)
    count = max(1, CACHED // rows.size(1)) if logits.device.type == "cpu" else len(rows)
    # Rows apart from each other, so that each is computed alike, to the bit, whichever others there are.
    place, found = logits.new_empty(min(count, len(rows)), rows.size(1) + 1)[:, :-1], logits.new_empty(len(rows))
    for some, into in zip(rows.split(count), found.split(count), strict=True):
        _sum_of_powers(some, place[: len(some)], into)
    sums: Floats = found.double().cpu().numpy()  # (N,)
    if np.minimum.reduce(sums) > LEAST_SUM and np.maximum.reduce(sums) < MOST_SUM:  # not where one is NaN
        norms = np.log(sums)
    else:  # only of the rows that need it: a source with such numbers changes no bit of another's
        far = ~((sums > LEAST_SUM) & (sums < MOST_SUM))  # (N,)
        norms = np.log(np.where(far, 1.0, sums))
        norms[far] = rows[torch.from_numpy(far).to(rows.device)].logsumexp(dim=-1).double().cpu().numpy()
        norms[norms == math.inf] = math.nan  # of logits that are no numbers
    return norms.reshape(logits.shape[:-1])


def _sum_of_powers(rows: Tensor, place: Tensor, sums: Tensor) -> None:
    """Put the sum of the exponentials of each row (N, V) into `sums` (N,), computed in `place`."""
    torch.mul(rows, LOG2_E, out=place)
    torch.sum(torch.exp2(place, out=place), dim=-1, out=sums)


def top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and ids of the k greatest in the last dimension, greatest first; of equals, the lower id first.

    `torch.topk` does not say which of equals it takes, nor in which order; a search must, to be repeatable.
    """
    if k >= scores.size(-1):
        return torch.sort(scores, dim=-1, descending=True, stable=True)
    if k == 1:
        return torch.max(scores, dim=-1, keepdim=True)  # the first of equals
    rows = scores.reshape(-1, scores.size(-1))  # (N, V)
    long = rows.numel() > SMALL and rows.size(1) > 3 * k * BLOCK
    values, ids, at_least = _finalists(rows, k) if long else _plain(rows, k)
    tied = (at_least > k) & (values[:, -1] > -math.inf)  # equals stand on both sides of the cut
    if tied.any():
        ids[tied] = _lowest_of_equals(rows[tied], values[tied, -1:], k)
    ids = ids.sort(dim=-1).values
    values, order = rows.gather(1, ids).sort(dim=-1, descending=True, stable=True)  # (N, k)
    shape = (*scores.shape[:-1], k)
    return values.view(shape), ids.gather(1, order).view(shape)


def _plain(rows: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k greatest of each row, and how many elements reach the least of them."""
    values, ids = rows.topk(k)  # (N, k)
    return values, ids, (rows >= values[:, -1:]).sum(dim=-1)


def _finalists(rows: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `_plain`, in one pass: the k greatest stand in the k blocks with the greatest maxima, or in the rest."""
    whole = rows.size(1) // BLOCK * BLOCK
    blocks = rows[:, :whole].unflatten(1, (-1, BLOCK))  # (N, V / BLOCK, BLOCK)
    maxima = blocks.amax(dim=-1)  # (N, V / BLOCK)
    chosen = maxima.topk(k).indices  # (N, k)
    inside = (chosen[..., None] * BLOCK + torch.arange(BLOCK, device=rows.device)).flatten(1)  # (N, k * BLOCK)
    rest = torch.arange(whole, rows.size(1), device=rows.device).expand(len(rows), -1)
    candidates = torch.cat([inside, rest], dim=1)
    finalists = rows.gather(1, candidates)
    values, places = finalists.topk(k)  # (N, k)
    cut = values[:, -1:]
    # More than k blocks that reach the cut: more than k elements do. Otherwise all that reach it are finalists.
    at_least = torch.maximum((maxima >= cut).sum(dim=-1), (finalists >= cut).sum(dim=-1))
    return values, candidates.gather(1, places), at_least


def best_continuations(logits: Tensor, offsets: Floats, k: int) -> tuple[Floats, Ints]:
    """The k greatest of logits (B, W, V) + offsets (B, W) of each source, and where in (W * V) they stand: each (B, k).

    Greatest first, of equals the first; -inf where a source has fewer than k. k blocks reach the k-th greatest of all
    maxima, whichever hypotheses they are of: so do k elements at least, and all that do stand in such blocks or in the rest
    behind them. They are few, and nothing but these is sorted. None of the numbers may be NaN.
    """
    sources, width, vocabulary = logits.shape
    if (digest := made_digest(logits, False)) is not None:
        return digest.best(offsets, k)
    whole = vocabulary // BLOCK * BLOCK
    maxima = logits[..., :whole].unflatten(-1, (-1, BLOCK)).amax(dim=-1).cpu().numpy()  # (B, W, V / BLOCK)
    reached = (maxima + offsets[..., None]).reshape(sources, -1)
    cut = np.maximum(_least_of_greatest(reached, k), LEAST)  # (B,)
    owner, block = np.divmod(np.flatnonzero(reached >= cut[:, None]), maxima.shape[2])  # owner: among B * W hypotheses
    first, row = owner * vocabulary + block * BLOCK, owner // width
    inside = blocks_at(logits, first) + offsets.reshape(-1)[owner][:, None]  # (N, BLOCK)
    number, place = np.divmod(np.flatnonzero(inside >= cut[row][:, None]), BLOCK)
    behind = logits[..., whole:].cpu().numpy() + offsets[..., None]  # (B, W, rest)
    rest = (behind >= cut[:, None, None]).nonzero()
    rows = np.concatenate([row[number], rest[0]])
    values = np.concatenate([inside[number, place], behind[rest]])
    places = np.concatenate([first[number] + place, (rest[0] * width + rest[1]) * vocabulary + whole + rest[2]])
    return _head_of_each(rows, values, places - rows * width * vocabulary, (sources, k))


def _least_of_greatest(numbers: Floats, k: int) -> Floats:
    """The k-th greatest of each row (B, N): (B,). Torch finds it sooner than NumPy (96 rows of 780: 119 to 525 us)."""
    found: Floats = torch.from_numpy(numbers).topk(k, dim=1, sorted=False).values.amin(dim=1).numpy()
    return found


def _head_of_each(rows: Ints, values: Floats, places: Ints, shape: tuple[int, int]) -> tuple[Floats, Ints]:
    """The k greatest values of each of B rows with their places, greatest first, of equals the lower place: each (B, k)."""
    order = np.lexsort((places, -values, rows))
    rows = rows[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, np.arange(shape[0]))[rows]
    head = rank < shape[1]
    found, at = np.full(shape, -np.inf), np.zeros(shape, np.int64)
    found[rows[head], rank[head]], at[rows[head], rank[head]] = values[order[head]], places[order[head]]
    return found, at


def blocks_at(logits: Tensor, first: Ints) -> NDArray[Any]:
    """BLOCK elements from each of some places on (N,), counted through all logits: (N, BLOCK)."""
    flat = logits.reshape(-1)
    if flat.device.type == "cpu":
        every = np.lib.stride_tricks.sliding_window_view(flat.numpy(), BLOCK)
        found: NDArray[Any] = every[first]
        return found
    places = torch.from_numpy(first[:, None] + np.arange(BLOCK)).to(flat.device)
    return flat[places].cpu().numpy()


def chosen_of(rows: Tensor, places: Ints) -> NDArray[Any]:
    """Elements of rows (N, V) at places (N, K)."""
    if rows.device.type == "cpu":
        found: NDArray[Any] = rows.numpy()[np.arange(len(places))[:, None], places]
        return found
    return rows.gather(1, torch.from_numpy(places).to(rows.device)).cpu().numpy()


def _lowest_of_equals(rows: Tensor, cut: Tensor, k: int) -> Tensor:
    """The ids, increasing, of all that exceed the cut and of the first that equal it, k in all."""
    above, equal = rows > cut, rows == cut
    room = k - above.sum(dim=-1, keepdim=True)
    taken = above | (equal & (equal.cumsum(dim=-1) <= room))
    return taken.nonzero()[:, 1].view(len(rows), k)


@dataclass(frozen=True)
class StepLogits:
    """Log-probabilities of the next token: the model's own, and after the filters."""

    logits: Tensor  # (B, W, V) the model's own where a token is allowed
    norms: Floats | None  # (B, W) their log-sum-exp before any filter; None: nobody asks how likely tokens are
    ends: Floats  # (B, W) the end token's, before any filter
    allowed: Tensor  # (B, W, V) after the filters
    at_limit: Bools | None  # (B,) sources that must end now; None: no source

    def chosen(self, ids: Ints) -> Floats:
        """The model's own logits of tokens (B, W); -inf where a filter forbids them."""
        rows, flat = ids.reshape(-1, 1), self.logits.flatten(0, 1)  # (B * W, 1), (B * W, V)
        own = chosen_of(flat, rows).astype(np.float64)
        if self.allowed is not self.logits:  # a filter gave others
            own[chosen_of(self.allowed.flatten(0, 1), rows) == -math.inf] = -math.inf
        return own.reshape(ids.shape)

    def log_probs(self, chosen: Floats) -> Floats:
        """Chosen logits, (B, W) or (B, W, K), minus the norm of their row: no softmax over the vocabulary."""
        if self.norms is None:
            with np.errstate(invalid="ignore"):  # 0, and NaN where a model gave no number
                return np.where(chosen == -math.inf, -math.inf, chosen - chosen)
        log_probs = chosen - (self.norms if chosen.ndim == 2 else self.norms[..., None])
        return np.minimum(log_probs, 0.0, out=log_probs)  # rounding can put log 1 above 0, and a sum must only fall


@dataclass(frozen=True)
class Candidates:
    """C ways to go on for each source. A total of -inf is no candidate."""

    parents: Ints  # (B, C) the hypothesis that goes on
    ids: Ints  # (B, C) the token
    log_probs: Floats  # (B, C) of the token, by the model
    totals: Floats  # (B, C) of the sequence
    willing: Bools  # (B, C) the hypothesis would take the end token here without being forced


class Choice(ABC):
    """Proposes at most `width` sequences to go on and to end for each source, and starts with `first` of them.

    Of several `ends` each ends a sequence at its own log-probability; candidates have the first in its place.
    """

    def __init__(self, width: int, first: int, ends: Sequence[int]) -> None:
        self.width, self.first, self.end, self.ends = width, first, ends[0], tuple(ends)

    def ended(self, ids: Ints) -> Ints:
        """The ids, with the first end token in the place of any."""
        for other in self.ends[1:]:
            ids = np.where(ids == other, self.end, ids)
        return ids

    @abstractmethod
    def candidates(self, scores: StepLogits, live: Live) -> Candidates: ...


class Alone(Choice):
    """Every hypothesis goes on by itself, with one token: the likeliest, of equals the lower id, or a drawn one.

    n samples of a source are n independent sequences. Sample i of the source with stream s draws from its own PCG64,
    seeded with (seed, s, i), one number for each token, on the CPU in float64: neither the rest of the batch nor the
    device changes it. The token is the first whose cumulative probability exceeds the number.
    """

    def __init__(self, samples: int, ends: Sequence[int]) -> None:
        super().__init__(width=samples, first=samples, ends=ends)

    def candidates(self, scores: StepLogits, live: Live) -> Candidates:
        ids = self._pick(scores.allowed, live)  # (B, W)
        own, ids = scores.chosen(ids), self.ended(ids)
        willing = ids == self.end
        if scores.at_limit is not None:
            forced = scores.at_limit[:, None]  # (B, 1)
            ids, own = np.where(forced, self.end, ids), np.where(forced, scores.ends, own)
        log_probs = scores.log_probs(own)
        parents = np.zeros((len(ids), 1), np.int64) + np.arange(ids.shape[1])  # (B, W)
        return Candidates(parents, ids, log_probs, live.totals + log_probs, willing)

    def _pick(self, allowed: Tensor, live: Live) -> Ints:
        """The next token of each hypothesis (B, W)."""
        drawn = live.wants.drawn
        if live.wants.any_drawn and drawn.all():
            return _draw(allowed, _next_numbers(live))
        digest = digest_of(allowed)
        if digest is not None and not live.wants.any_drawn and (found := digest.greatest()) is not None:
            return found.reshape(drawn.size, -1)
        ids: Ints = (
            allowed.numpy().argmax(axis=-1)
            if allowed.device.type == "cpu"
            else top(allowed, 1)[1].squeeze(-1).cpu().numpy()
        )
        if live.wants.any_drawn:
            rows = torch.from_numpy(drawn.nonzero()[0]).to(allowed.device)
            ids[drawn] = _draw(allowed[rows], _next_numbers(live)[drawn])
        return ids


def _draw(allowed: Tensor, numbers: Floats) -> Ints:
    """Tokens (B, W) drawn by random numbers (B, W)."""
    cumulative = allowed.cpu().double().softmax(dim=-1).cumsum(dim=-1)  # (B, W, V)
    wanted = torch.from_numpy(numbers)[..., None] * cumulative[..., -1:]  # (B, W, 1)
    ids = torch.searchsorted(cumulative, wanted, right=True).squeeze(-1)
    found: Ints = ids.clamp(max=allowed.size(-1) - 1).numpy()  # NaN leads beyond the end; it is reported later
    return found


def _next_numbers(live: Live) -> Floats:
    """The random number for the next token of each hypothesis, (B, W); some at once are drawn ahead."""
    at = live.lengths % NUMBERS  # (B,)
    for row in ((at == 0) & live.wants.drawn).nonzero()[0].tolist():
        key = (live.wants.seeds[row], live.wants.streams[row])
        first = int(live.wants.first_sample[row])
        for sample in set(live.samples[row].tolist()):
            numbers = np.random.PCG64([*key, first + sample]).advance(int(live.lengths[row]))
            live.numbers[row, sample] = np.random.Generator(numbers).random(NUMBERS)
    found: Floats = live.numbers[np.arange(len(at))[:, None], live.samples, at[:, None]]
    return found


def _with_rows(whole: NDArray[Number], rows: Ints, part: NDArray[Number], empty: float) -> NDArray[Number]:
    """An array (B, C) with other rows (N, C'), of which what is missing is `empty`."""
    found = whole.copy()
    found[rows] = empty
    found[rows[:, None], np.arange(part.shape[1])] = part
    return found


class Beam(Choice):
    """The best continuations of all hypotheses of a source together (beam search).

    Of each hypothesis the `width` best tokens and one for each end are enough: at most `width` of them go on.
    """

    def __init__(self, width: int, ends: Sequence[int]) -> None:
        super().__init__(width, first=1, ends=ends)

    def candidates(self, scores: StepLogits, live: Live) -> Candidates:
        limited = scores.at_limit
        if limited is not None and limited.all():
            return self._end_of_each_hypothesis(scores, live.totals)
        found = self._best_of_each_source(scores, live)
        if found is None:
            return self._best_of_each_hypothesis(scores, live)
        return found if limited is None else self._with_ends(found, limited.nonzero()[0], scores, live)

    def _with_ends(self, found: Candidates, rows: Ints, scores: StepLogits, live: Live) -> Candidates:
        """The candidates, but for sources `rows`, which must end now: of these the end of each hypothesis."""
        assert scores.norms is not None
        at = torch.from_numpy(rows).to(scores.allowed.device)
        some = StepLogits(scores.logits[at], scores.norms[rows], scores.ends[rows], scores.allowed[at], None)
        ended = self._end_of_each_hypothesis(some, live.totals[rows])
        return Candidates(
            _with_rows(found.parents, rows, ended.parents, 0),
            _with_rows(found.ids, rows, ended.ids, self.end),
            _with_rows(found.log_probs, rows, ended.log_probs, -math.inf),
            _with_rows(found.totals, rows, ended.totals, -math.inf),
            _with_rows(found.willing, rows, ended.willing, False),
        )

    def _end_of_each_hypothesis(self, scores: StepLogits, so_far: Floats) -> Candidates:
        """As `_best_of_each_hypothesis`, where every source must end now: nothing is sorted but what ends.

        `so_far`: the totals of the hypotheses (B, W).
        """
        ends = scores.allowed[..., list(self.ends)].amax(dim=-1)  # (B, W)
        likeliest = (ends >= scores.allowed.amax(dim=-1)) & (ends > -math.inf)
        willing = likeliest.cpu().numpy().copy()
        if willing.any():  # of equals, the lower id is the likeliest
            willing[willing] = self.ended(top(scores.allowed[likeliest], 1)[1][:, 0].cpu().numpy()) == self.end
        log_probs = scores.log_probs(scores.ends)
        totals = so_far + log_probs
        order = np.argsort(-totals, axis=1, kind="stable")
        row, ids = np.arange(len(order))[:, None], np.full(order.shape, self.end)
        return Candidates(order, ids, log_probs[row, order], totals[row, order], willing[row, order])

    def _best_of_each_source(self, scores: StepLogits, live: Live) -> Candidates | None:
        """Only the candidates that can matter: `width` that go on, and before them each end of each hypothesis.

        The best of a source stand in the blocks with the best maxima, whichever hypotheses these are of. None where
        there are too few tokens for that to pay, where equals stand on both sides of the cut, which blocks do not tell
        apart, or where a model gave no numbers.
        """
        assert scores.norms is not None
        if np.isnan(scores.norms).any():
            return None  # it is reported later
        _, width, vocabulary = scores.allowed.shape
        count = self.width + width * len(self.ends)
        if vocabulary < 3 * count * BLOCK:
            return None
        values, at = best_continuations(scores.allowed, live.totals - scores.norms, count + 1)  # each (B, C + 1)
        if ((values[:, -1] == values[:, -2]) & (values[:, -1] > -math.inf)).any():
            return None
        row, at = np.arange(len(at))[:, None], at[:, :-1]  # (B, C)
        parents, ids = np.divmod(at, vocabulary)
        parts = chosen_of(scores.allowed.flatten(1), at) - scores.norms[row, parents]
        np.minimum(parts, 0.0, out=parts)
        parts[values[:, :-1] == -np.inf] = -np.inf  # there are fewer
        totals = live.totals[row, parents] + parts
        order = np.lexsort((at, -totals), axis=1)  # of equals, the lower hypothesis, then the lower id
        ids = self.ended(ids[row, order])
        return Candidates(
            parents[row, order], ids, parts[row, order], totals[row, order], np.zeros(ids.shape, np.bool_)
        )

    def _best_of_each_hypothesis(self, scores: StepLogits, live: Live) -> Candidates:
        best = top(scores.allowed, min(self.width + len(self.ends), scores.allowed.size(-1)))  # both (B, W, K)
        values, ids = best[0].double().cpu().numpy(), self.ended(best[1].cpu().numpy())
        willing = ids[..., 0] == self.end  # (B, W)
        if scores.at_limit is not None:
            values, ids = values.copy(), ids.copy()
            values[scores.at_limit] = -math.inf
            values[scores.at_limit, :, 0] = scores.ends[scores.at_limit]
            ids[scores.at_limit] = self.end
        log_probs = scores.log_probs(values)  # (B, W, K)
        totals = (live.totals[..., None] + log_probs).reshape(len(log_probs), -1)  # (B, W * K)
        order = np.argsort(-totals, axis=1, kind="stable")  # of equals, the lower hypothesis, then its better token
        row, parents = np.arange(len(order))[:, None], order // ids.shape[-1]
        flat_ids, flat_log_probs = ids.reshape(totals.shape), log_probs.reshape(totals.shape)  # (B, W * K)
        return Candidates(
            parents, flat_ids[row, order], flat_log_probs[row, order], totals[row, order], willing[row, parents]
        )


def choice_of(options: DecodeConfig, ends: Sequence[int]) -> Choice:
    """The choice these options ask for."""
    if options.sample:
        return Alone(options.n_best, ends)
    return Alone(1, ends) if options.beam == 1 else Beam(options.beam, ends)
