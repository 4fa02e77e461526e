"""`generate`: the loop from a stepper to ranked sequences, the same for every model and every kind of search.

Search knows a model as a `Stepper`: recurrent states and key-value caches are both just its state."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from regard.attention import channel
from regard.decode.choice import Candidates, Choice, Filter, StepLogits, choice_of, filters_of, log_norm
from regard.decode.config import DecodeConfig
from regard.decode.ranking import Bools, Hypothesis, Ints, Live, Ranking
from regard.errors import ModelError, RegardError

S = TypeVar("S")


class Stepper(Protocol[S]):
    """A model that continues sequences: B sources, each with W hypotheses (W may change from call to call).

    Logits are raw (not normalised), float, and a fresh tensor: the search writes -inf into them where a token is
    forbidden. The state keeps what belongs to a source (encoder memory) apart from what belongs to a hypothesis, so
    that the former is never tiled over the beam. Whoever makes a new state of an old one may write into its buffers:
    the old one is not used again.
    """

    @property
    def longest(self) -> int | None:
        """Most tokens of a sequence that it can read, the prefix included; None: any number."""
        ...

    def start(self, source: Any, prefix: Tensor, /) -> tuple[Tensor, S]:
        """Read the source and the prefix, ids (B, P), P >= 1; gives logits (B, 1, V) after it, and a state of W = 1."""
        ...

    def step(self, ids: Tensor, state: S, /) -> tuple[Tensor, S]:
        """Append ids (B, W); gives logits (B, W, V). The old state is consumed: its buffers may have been written."""
        ...

    def reorder(self, state: S, parents: Tensor, /) -> S:
        """The state in which hypothesis w goes on from `parents[b, w]`; parents (B, W') index the W there are."""
        ...

    def keep(self, state: S, rows: Tensor, /) -> S:
        """The state of the sources that go on; rows (B',) are increasing indices into the B there are."""
        ...


@dataclass(frozen=True)
class SlidingState(Generic[S]):
    """The model's state, and the tokens it stands for."""

    inner: S
    ids: Tensor  # (B, W, tokens read)


class Sliding(Generic[S]):
    """A stepper of any length from a language model that knows `window` positions. Within them it changes nothing."""

    longest = None

    def __init__(self, stepper: Stepper[S], window: int) -> None:
        self.stepper, self.window, self.kept = stepper, window, max(1, window // 2)

    def start(self, source: Any, prefix: Tensor) -> tuple[Tensor, SlidingState[S]]:
        seen = prefix if prefix.size(1) <= self.window else prefix[:, -self.kept :]
        logits, state = self.stepper.start(source, seen)
        return logits, SlidingState(state, seen[:, None])

    def step(self, ids: Tensor, state: SlidingState[S]) -> tuple[Tensor, SlidingState[S]]:
        seen = torch.cat([state.ids, ids[..., None]], dim=-1)  # (B, W, tokens)
        if seen.size(-1) <= self.window:
            logits, inner = self.stepper.step(ids, state.inner)
            return logits, SlidingState(inner, seen)
        return self._read_again(seen[..., -self.kept :])

    def reorder(self, state: SlidingState[S], parents: Tensor) -> SlidingState[S]:
        ids = state.ids.gather(1, parents[..., None].expand(-1, -1, state.ids.size(-1)))
        return SlidingState(self.stepper.reorder(state.inner, parents), ids)

    def keep(self, state: SlidingState[S], rows: Tensor) -> SlidingState[S]:
        return replace(state, inner=self.stepper.keep(state.inner, rows), ids=state.ids[rows])

    def _read_again(self, seen: Tensor) -> tuple[Tensor, SlidingState[S]]:
        """Every hypothesis from its last tokens (B, W, kept): as sources of their own, then regrouped."""
        rows, width, _ = seen.shape
        logits, state = self.stepper.start(None, seen.flatten(0, 1))  # (B * W, 1, V)
        return logits.view(rows, width, -1), SlidingState(self.stepper.regroup(state, width), seen)  # type: ignore[attr-defined]


Stops = Callable[[list[int]], bool]
Steps = Generator[Live, None, list[list[Hypothesis]]]


def generate(
    stepper: Stepper[S],
    source: Any,
    prefix: Tensor,
    *,
    end: int,
    limits: Sequence[int],
    options: DecodeConfig,
    also_end: Sequence[int] = (),
    forbidden: Sequence[int] = (),
    streams: Sequence[int] | None = None,
    constraints: Sequence[Filter] = (),
    stops: Stops | None = None,
    watch: Callable[[Live], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best (or sampled) continuations of `prefix` (B, P) for each source, best first, at most `n_best` of them.

    limits       most tokens for each source, end not counted, and never more than the stepper can read; at the limit
                 the end token is forced, and its log-probability counts, so that every sequence is complete under
                 the model
    also_end     other ids that end a sequence, each at its own log-probability
    forbidden    ids that are never produced, such as padding and begin; the end token among them: never of itself
    streams      what tells the sources apart for sampling; by default their place in the batch. Give the place
                 in the whole input, and batching or sorting it differently gives the same samples
    constraints  further filters, see `regard.decode.choice`
    stops        whether a sequence (its ids so far) ends here although no end token was produced
    watch        is called after each step with the hypotheses that go on

    A source does not see the others: each gives what it would give alone, and leaves the batch when it is done.
    """
    steps = search_steps(
        stepper, source, prefix, end=end, limits=limits, options=options, also_end=also_end, forbidden=forbidden,
        streams=streams, constraints=constraints, stops=stops,
    )  # fmt: skip
    while True:
        try:
            live = next(steps)
        except StopIteration as done:
            found: list[list[Hypothesis]] = done.value
            return found
        if watch is not None:
            watch(live)


@torch.inference_mode()
def search_steps(
    stepper: Stepper[S],
    source: Any,
    prefix: Tensor,
    *,
    end: int,
    limits: Sequence[int],
    options: DecodeConfig,
    also_end: Sequence[int] = (),
    forbidden: Sequence[int] = (),
    streams: Sequence[int] | None = None,
    constraints: Sequence[Filter] = (),
    stops: Stops | None = None,
) -> Steps:
    """`generate` step by step: yields the hypotheses that go on after each, returns the best; closed, it computes no more."""
    streams = range(len(prefix)) if streams is None else streams
    _check_sources(prefix, limits, streams)
    if len(prefix) == 0:
        return []
    ends = (end, *also_end)
    filters = filters_of(options, ends, forbidden, constraints, prefix.device)
    most = _within_reach(limits, stepper.longest, prefix.size(1))
    search = _Search(choice_of(options, ends, streams), filters, most, options, stops)
    with channel.searching(search.live.sources, search.live.ids[:, :1], prefix):
        logits, state = stepper.start(source, prefix)  # (B, 1, V)
    _check_ids((*ends, *forbidden), logits)
    while (move := search.advance(logits)) is not None:
        yield search.live
        if move.rows is not None:
            state = stepper.keep(state, move.rows)
        if move.parents is not None:
            state = stepper.reorder(state, move.parents)
        with channel.searching(search.live.sources, search.live.ids, prefix):
            logits, state = stepper.step(move.ids, state)  # (B, W, V)
    return search.ranking.best


@dataclass(frozen=True)
class _Move:
    """The next call of the stepper."""

    rows: Tensor | None  # (B',) sources that go on; None: all
    parents: Tensor | None  # (B', W') hypotheses that go on; None: each in its place
    ids: Tensor  # (B', W') their next tokens


class _Search:
    """The books of one call of `generate`."""

    def __init__(
        self, choice: Choice, filters: list[Filter], limits: Ints, options: DecodeConfig, stops: Stops | None
    ) -> None:
        self.choice, self.filters, self.limits, self.stops = choice, filters, limits, stops
        self.ranking = Ranking(options, limits)
        self.live = Live.beginning(len(limits), choice.first)

    def advance(self, logits: Tensor) -> _Move | None:
        """Take in the logits after the last move; gives the next move, or None when every source is done."""
        width = logits.size(1)  # of the state; 1 at the start, also for several samples
        at_limit = self.live.length >= self.limits[self.live.sources]  # (B,)
        found = self.choice.candidates(self._scores(self._shaped(logits), at_limit), self.live)
        self._check_numbers(found)
        self._collect(found, at_limit)
        move = self._go_on(found if self.stops is None else self._stop(found, self.stops))
        return None if move is None else _placed(*move, width, logits.device)

    def _shaped(self, logits: Tensor) -> Tensor:
        rows, width = self.live.totals.shape
        if self.live.length == 0 and width > 1:
            logits = logits.repeat(1, width, 1)  # (B, W, V)
        if logits.shape[:2] != (rows, width):
            raise RegardError(
                f"the stepper gave logits {tuple(logits.shape)}", f"expected ({rows}, {width}, vocabulary)"
            )
        return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()

    def _scores(self, logits: Tensor, at_limit: Bools) -> StepLogits:
        norms, ends = log_norm(logits), logits[..., self.choice.end].clone()  # both (B, W); filters write into logits
        allowed = logits
        for rule in self.filters:
            allowed = rule(allowed, self.live)
        forced = torch.from_numpy(at_limit).to(logits.device) if at_limit.any() else None
        return StepLogits(logits, norms, ends, allowed, forced)

    def _check_numbers(self, found: Candidates) -> None:
        wrong = np.isnan(found.log_probs).any(axis=1)  # (B,) NaN or +inf anywhere in a row makes its norm NaN
        if wrong.any():
            source = self.live.sources[wrong][0]
            raise ModelError(
                f"the model gave NaN (or infinite) logits at step {self.live.length + 1}, for source {source}",
                "the weights may have diverged in training, or half precision overflows: try float32",
            )

    def _collect(self, found: Candidates, at_limit: Bools) -> None:
        """Move what has ended to the ranking. An end that is not among the `width` best candidates does not count."""
        ended = (found.ids == self.choice.end) & (found.totals > -np.inf)  # (B, C)
        ended[:, self.choice.width :] = False
        if not ended.any():
            return
        rows, places = ended.nonzero()
        parents = found.parents[rows, places]
        columns = (
            self.live.sources[rows],
            self.live.ids[rows, parents],
            np.column_stack([self.live.log_probs[rows, parents], found.log_probs[rows, places]]),
            found.totals[rows, places],
            found.willing[rows, places] | ~at_limit[rows],
        )
        for sequence in zip(*(column.tolist() for column in columns), strict=True):
            self.ranking.add(*sequence)

    def _stop(self, found: Candidates, stops: Stops) -> Candidates:
        """Move what ends without an end token to the ranking; it is no candidate any more."""
        totals = found.totals.copy()
        going = (found.ids != self.choice.end) & (totals > -np.inf)  # (B, C)
        going[:, self.choice.width :] = False
        for row, place in zip(*going.nonzero(), strict=True):
            parent = found.parents[row, place]
            ids = [*self.live.ids[row, parent].tolist(), int(found.ids[row, place])]
            if stops(ids):
                log_probs = [*self.live.log_probs[row, parent].tolist(), float(found.log_probs[row, place])]
                self.ranking.add(int(self.live.sources[row]), ids, log_probs, float(totals[row, place]), True)
                totals[row, place] = -np.inf
        return replace(found, totals=totals)

    def _go_on(self, found: Candidates) -> tuple[Ints | None, Ints, Ints] | None:
        """Rows, parents and ids of the first `width` candidates that can still win; None when no source has one."""
        going = (found.ids != self.choice.end) & self.ranking.can_win(self.live.sources, found.totals)  # (B, C)
        goes_on = going.any(axis=1)  # (B,)
        self._check_results(self.live.sources[~goes_on])
        if not goes_on.any():
            return None
        if going.shape[1] <= self.choice.width and going.all():  # as nearly always in greedy search
            every = np.arange(len(going))
            self.live = self.live.extended(every, found.parents, found.ids, found.log_probs, found.totals)
            return None, found.parents, found.ids
        rows, width = goes_on.nonzero()[0], min(self.choice.width, int(going.sum(axis=1).max()))
        places = np.argsort(~going[rows], axis=1, kind="stable")[:, :width]  # (B', W')
        at = (rows[:, None], places)
        parents, ids = found.parents[at], found.ids[at]
        totals = np.where(going[at], found.totals[at], -np.inf)  # a place that no candidate fills stays empty
        self.live = self.live.extended(rows, parents, ids, found.log_probs[at], totals)
        return None if goes_on.all() else rows, parents, ids

    def _check_results(self, done: Ints) -> None:
        for source in done.tolist():
            if not self.ranking.best[source]:
                raise RegardError(
                    f"at step {self.live.length + 1} source {source} has no token to go on with: "
                    "all are forbidden, or have probability 0",
                    "relax the constraints or min_length",
                )


def _placed(rows: Ints | None, parents: Ints, ids: Ints, width: int, device: torch.device) -> _Move:
    """The move as tensors. Where every hypothesis stays in its place the stepper is spared a copy of its state."""

    def tensor(array: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    parents = np.minimum(parents, width - 1)  # several samples start from one state
    in_place = parents.shape[1] == width and bool((parents == np.arange(width)).all())
    return _Move(None if rows is None else tensor(rows), None if in_place else tensor(parents), tensor(ids))


def _within_reach(limits: Sequence[int], longest: int | None, read: int) -> Ints:
    """The limits, cut to what the model can read: each token that is written is read again, behind a prefix of `read`."""
    most = np.array(limits, dtype=np.int64)
    return most if longest is None else np.minimum(most, max(0, longest - read))


def _check_sources(prefix: Tensor, limits: Sequence[int], streams: Sequence[int]) -> None:
    if prefix.dim() != 2 or prefix.size(1) == 0:
        raise RegardError(
            f"prefix has shape {tuple(prefix.shape)}", "give ids (sources, tokens), the begin token first"
        )
    if len(limits) != len(prefix) or len(streams) != len(prefix):
        raise RegardError(
            f"{len(prefix)} sources have {len(limits)} limits and {len(streams)} streams", "give one each"
        )
    if min(limits, default=0) < 0 or min(streams, default=0) < 0:
        raise RegardError("limits and streams are 0 or more", f"the least are {min(limits)} and {min(streams)}")


def _check_ids(ids: Sequence[int], logits: Tensor) -> None:
    if not all(0 <= token < logits.size(-1) for token in ids):
        raise RegardError(
            f"end and forbidden ids {list(ids)}: not all are under the {logits.size(-1)} ids of the model"
        )


def groups(lengths: Sequence[int], options: DecodeConfig) -> list[list[int]]:
    """Places of the sources, longest first, in groups within `batch_sentences` and `batch_tokens`.

    Sources of like length waste little padding and end at about the same step. A source longer than `batch_tokens`
    stands alone. Give the places to `generate` as its streams.
    """
    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        group = found[-1] if found else []
        positions = (len(group) + 1) * lengths[group[0]] if group else 0  # the first is the longest
        if group and len(group) < options.batch_sentences and positions <= options.batch_tokens:
            group.append(place)
        else:
            found.append([place])
    return found
