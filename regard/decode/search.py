"""`generate`: the loop from a stepper to ranked sequences, the same for every model and every kind of search.

`Running` is that loop between two steps: sources of one stepper that go on together. Others can join them, and some can
be dropped; `regard.decode.engine` serves many callers so.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, cast

import numpy as np
import torch
from torch import Tensor

from regard.attention import channel
from regard.decode.books import Books, Move
from regard.decode.choice import choice_of
from regard.decode.config import DecodeConfig
from regard.decode.filters import Filter, filters_of
from regard.decode.live import Ints, Live, Stops, Wants
from regard.decode.ranking import Hypothesis
from regard.decode.stepper import Joins, S, Stepper, sliding
from regard.errors import RegardError

__all__ = ["Running", "Stepper", "Steps", "generate", "groups", "search_steps", "sliding"]

Steps = Generator[Live, None, list[list[Hypothesis]]]
SHARED = 4  # from one less than so many groups on, their number is a multiple of it


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
    stops: Sequence[Stops | None] | None = None,
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
    constraints  further filters, see `regard.decode.filters`
    stops        for each source, whether a sequence (its ids so far) ends here although no end token was produced
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
    stops: Sequence[Stops | None] | None = None,
) -> Steps:
    """`generate` step by step: yields the hypotheses that go on after each, returns the best; closed, it computes no more."""
    count = len(prefix)
    streams = range(count) if streams is None else streams
    _check_sources(prefix, limits, streams)
    if count == 0:
        return []
    ends = (end, *also_end)
    most = within_reach(limits, stepper.longest, prefix.size(1))
    wants = Wants.of([options] * count, most, streams, [None] * count if stops is None else stops)
    filters = filters_of(ends, forbidden, constraints, prefix.device)
    books = Books(choice_of(options, ends), filters, list(range(count)), wants)
    running = Running(stepper, books, source, prefix, known=(*ends, *forbidden))
    while True:
        for error in books.failed.values():
            raise error
        if running.move is None:
            return [books.found[row] for row in range(count)]
        yield books.live
        running.step()


class Running(Generic[S]):
    """Sources of one stepper that go on together: its state, the books, and the move that comes next."""

    def __init__(
        self, stepper: Stepper[S], books: Books, source: Any, prefix: Tensor, *, known: Sequence[int] = ()
    ) -> None:
        """Read sources and prefixes (B, P), and decide on the first token of each; `known` ids must be the model's."""
        self.stepper, self.books, self.prefix = stepper, books, prefix
        with channel.searching(books.live.sources, books.live.ids[:, :1], prefix):
            logits, self.state = stepper.start(source, prefix)  # (B, 1, V)
        _check_ids(known, logits)
        self.places: tuple[int, ...] = (len(prefix), 1)  # sources and hypotheses of the state
        self.move = books.advance(logits)

    def step(self) -> None:
        """Read the next token of each hypothesis, and decide on those behind."""
        assert self.move is not None
        self._carry_out(self.move)
        live = self.books.live
        with channel.searching(live.sources, live.ids, self.prefix):
            logits, self.state = self.stepper.step(self._tensor(self.move.ids), self.state)  # (B, W, V)
        self.move = self.books.advance(logits)

    def join(self, other: Running[S]) -> None:
        """Take in the sources of another search by the same stepper and kind of choice, each where it stands."""
        assert self.move is not None and other.move is not None
        self.books.join(other.books)
        stepper, width = cast(Joins, self.stepper), max(self.move.ids.shape[1], other.move.ids.shape[1])
        own, theirs = self.move.widened(width), other.move.widened(width)
        self._carry_out(own)
        other._carry_out(theirs)
        self.state = stepper.join(self.state, other.state)
        self._stay(np.concatenate([own.ids, theirs.ids]))

    def drop(self, sources: Sequence[int]) -> None:
        """Forget some sources."""
        stay = (~np.isin(self.books.live.sources, list(sources))).nonzero()[0]
        self.books.drop(stay)
        if self.move is not None:
            self.move = self.move.take(stay) if len(stay) else None

    def _carry_out(self, move: Move) -> None:
        """Keep the sources and reorder the hypotheses that go on; who stays in place is spared a copy."""
        count, width = self.places
        if len(move.rows) < count:
            self.state = self.stepper.keep(self.state, self._tensor(move.rows))
        in_place = move.parents.shape[1] == width and bool((move.parents == np.arange(width)).all())
        if not in_place:
            self.state = self.stepper.reorder(self.state, self._tensor(move.parents))
        self.places = move.ids.shape

    def _stay(self, ids: Ints) -> None:
        """All is carried out but the reading of ids (B, W): every hypothesis is in its place."""
        self.places = ids.shape
        self.move = Move(np.arange(len(ids)), np.arange(ids.shape[1])[None].repeat(len(ids), axis=0), ids)

    def _tensor(self, array: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.prefix.device)


def within_reach(limits: Sequence[int], longest: int | None, read: int) -> list[int]:
    """The limits, cut to what the model can read: each token that is written is read again, behind a prefix of `read`."""
    return [limit if longest is None else min(limit, max(0, longest - read)) for limit in limits]


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
    if ids and not 0 <= min(ids) <= max(ids) < logits.size(-1):
        raise RegardError(
            f"end and forbidden ids {list(ids)}: not all are under the {logits.size(-1)} ids of the model"
        )


def groups(lengths: Sequence[int], options: DecodeConfig) -> list[list[int]]:
    """Places of the sources, longest first, in groups within `batch_sentences` and `batch_tokens`.

    Sources of like length waste little padding and end at about the same step. A source longer than `batch_tokens`
    stands alone. Groups are about equally large, and their number suits two workers or four: in 11 groups of 1,000 sources
    one of two workers would have 96 more than the other. Give the places to `generate` as its streams.
    """
    order, most = sorted(range(len(lengths)), key=lambda place: -lengths[place]), options.batch_sentences
    found = _cut(order, lengths, [most] * len(order), options.batch_tokens)
    count = len(found) if len(found) < SHARED - 1 else -(-len(found) // SHARED) * SHARED
    each, more = divmod(len(order), max(1, count))
    sizes = (
        [each + 1] * more + [each] * (count - more) if each else []
    )  # groups that tokens cut short make more of them
    return _cut(order, lengths, sizes + [most] * (len(order) - len(sizes)), options.batch_tokens)


def _cut(order: list[int], lengths: Sequence[int], sizes: list[int], tokens: int) -> list[list[int]]:
    """Places in this order, longest first, in groups of these sizes at most, and of so many tokens with padding."""
    found: list[list[int]] = []
    for place in order:
        group = found[-1] if found else []
        positions = (len(group) + 1) * lengths[group[0]] if group else 0  # the first is the longest
        if group and len(group) < sizes[len(found) - 1] and positions <= tokens:
            group.append(place)
        else:
            found.append([place])
    return found
