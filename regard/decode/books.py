"""The books of a search: from logits to the hypotheses that go on, and to what has ended, for sources that come and go."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.decode.choice import Candidates, Choice, StepLogits, log_norm
from regard.decode.filters import Filter
from regard.decode.live import Bools, Floats, Ints, Live, Wants
from regard.decode.ranking import Hypothesis, Ranking
from regard.errors import ModelError, RegardError


@dataclass(frozen=True)
class Move:
    """The next call of the stepper, for the state it has."""

    rows: Ints  # (B',) sources that go on
    parents: Ints  # (B', W') hypotheses that go on
    ids: Ints  # (B', W') their next tokens

    def take(self, rows: Ints) -> Move:
        return Move(self.rows[rows], self.parents[rows], self.ids[rows])

    def widened(self, width: int) -> Move:
        """More hypotheses for each source, whose places are empty: they go on as the first does, with any token."""
        more = ((0, 0), (0, width - self.ids.shape[1]))
        return Move(self.rows, np.pad(self.parents, more), np.pad(self.ids, more))


def numbers_of(tensor: Tensor) -> Floats:
    """A copy in float64."""
    return tensor.cpu().numpy().astype(np.float64)


class Books:
    """Sources that go on together, by one kind of choice: their hypotheses and what has ended of each.

    A source does not see the others. It leaves when it is done, or when something is wrong with it alone; `found` and
    `failed` have what became of those that left, until someone takes it.
    """

    def __init__(self, choice: Choice, filters: list[Filter], sources: list[int], wants: Wants) -> None:
        self.choice, self.filters = choice, filters
        self.live, self.ranking = Live.beginning(sources, wants, choice.first), Ranking.beginning(wants)
        self.found: dict[int, list[Hypothesis]] = {}
        self.failed: dict[int, Exception] = {}

    def advance(self, logits: Tensor) -> Move | None:
        """Take in the logits after the last move; gives the next move, or None when every source has left."""
        width = logits.size(1)  # of the state; 1 at the start, also for several samples
        at_limit = self.live.lengths >= self.live.wants.limits  # (B,)
        found = self.choice.candidates(self._scores(self._shaped(logits), at_limit), self.live)
        found = self._checked(found)
        self._collect(found, at_limit)
        move = self._cut(self._go_on(self._stopped(found)))
        return None if move is None else replace(move, parents=np.minimum(move.parents, width - 1))

    def join(self, other: Books) -> None:
        """Take in the sources of other books that have moved, too."""
        self.live, self.ranking = self.live.joined(other.live), self.ranking.joined(other.ranking)
        self.found |= other.found
        self.failed |= other.failed

    def drop(self, rows: Ints) -> None:
        """Go on with some rows only; nothing is found of the others."""
        self.live, self.ranking = self.live.take(rows), self.ranking.take(rows)

    def _shaped(self, logits: Tensor) -> Tensor:
        rows, width = self.live.totals.shape
        if self.live.length == 0 and width > 1:  # several samples start from one state
            logits = logits.repeat(1, width, 1)  # (B, W, V)
        if logits.shape[:2] != (rows, width):
            raise RegardError(
                f"the stepper gave logits {tuple(logits.shape)}", f"expected ({rows}, {width}, vocabulary)"
            )
        return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()

    def _scores(self, logits: Tensor, at_limit: Bools) -> StepLogits:
        norms = log_norm(logits) if self.live.wants.any_scored else None
        ends = numbers_of(logits[..., self.choice.end])  # (B, W); before filters
        allowed = logits
        for rule in self.filters:
            allowed = rule(allowed, self.live)
        return StepLogits(logits, norms, ends, allowed, at_limit if at_limit.any() else None)

    def _checked(self, found: Candidates) -> Candidates:
        """Without the candidates of sources whose numbers are none."""
        strange = np.isnan(found.log_probs)  # (B, C)
        if not strange.any():
            return found
        wrong = np.asarray(strange.any(axis=1))  # (B,) NaN or +inf anywhere in a row makes its norm NaN
        for row in wrong.nonzero()[0].tolist():
            source, step = self.live.sources[row], self.live.lengths[row] + 1
            self.failed[int(source)] = ModelError(
                f"the model gave NaN (or infinite) logits at step {step}, for source {source}",
                "the weights may have diverged in training, or half precision overflows: try float32",
            )
        return replace(found, totals=np.where(wrong[:, None], -np.inf, found.totals))

    def _collect(self, found: Candidates, at_limit: Bools) -> None:
        """Move what has ended to the ranking. An end that is not among the `width` best candidates does not count."""
        ended = (found.ids == self.choice.end) & (found.totals > -np.inf)  # (B, C)
        ended[:, self.choice.width :] = False
        if not ended.any():
            return
        rows, places = ended.nonzero()
        willing = (found.willing[rows, places] | ~at_limit[rows]).tolist()
        for row, place, finished in zip(rows.tolist(), places.tolist(), willing, strict=True):
            self._end(row, place, found, finished)

    def _end(self, row: int, place: int, found: Candidates, finished: bool, *tokens: int) -> None:
        """Rank the hypothesis that a candidate ends; with its token, where that is not the end token."""
        parent, length = found.parents[row, place], self.live.lengths[row]
        ids = [*self.live.ids[row, parent, :length].tolist(), *tokens]
        log_probs = [*self.live.log_probs[row, parent, :length].tolist(), float(found.log_probs[row, place])]
        total = float(found.totals[row, place])
        if not self.live.wants.scored[row]:
            log_probs, total = [math.nan] * len(log_probs), math.nan
        self.ranking.add(row, self.live.wants, ids, log_probs, total, finished)

    def _stopped(self, found: Candidates) -> Candidates:
        """Move what ends without an end token to the ranking; it is no candidate any more."""
        if not self.live.wants.any_stops:
            return found
        asked = self.live.wants.stops != None  # noqa: E711 (B,) each is asked
        totals = found.totals.copy()
        going = (found.ids != self.choice.end) & (totals > -np.inf) & asked[:, None]  # (B, C)
        going[:, self.choice.width :] = False
        for row, place in zip(*(axis.tolist() for axis in going.nonzero()), strict=True):
            if self._stops(row, place, found):
                self._end(row, place, found, True, int(found.ids[row, place]))
                totals[row, place] = -np.inf
        broken = np.isin(self.live.sources, list(self.failed))  # (B,)
        return replace(found, totals=np.where(broken[:, None], -np.inf, totals))

    def _stops(self, row: int, place: int, found: Candidates) -> bool:
        """Ask what a source brought whether a candidate ends there. If that fails, only this source does."""
        written = self.live.ids[row, found.parents[row, place], : self.live.lengths[row]].tolist()
        try:
            return bool(self.live.wants.stops[row]([*written, int(found.ids[row, place])]))
        except Exception as error:
            self.failed[int(self.live.sources[row])] = error
            return False

    def _go_on(self, found: Candidates) -> Move | None:
        """The first `width` candidates of each source that can still win; None when no source has one."""
        going = (found.ids != self.choice.end) & self.ranking.can_win(self.live.wants, found.totals)  # (B, C)
        every = np.arange(len(going))
        if going.shape[1] <= self.choice.width and going.all():  # as nearly always in greedy search
            self.live = self.live.extended(every, found.parents, found.ids, found.log_probs, found.totals)
            return Move(every, found.parents, found.ids)
        goes_on = going.any(axis=1)  # (B,)
        self._leave((~goes_on).nonzero()[0])
        rows = every[goes_on]
        if len(rows) < len(every):
            self.ranking = self.ranking.take(rows)
        width = min(self.choice.width, int(going.sum(axis=1).max()))
        places = np.argsort(~going[rows], axis=1, kind="stable")[:, :width]  # (B', W')
        at = (rows[:, None], places)
        parents, ids = found.parents[at], found.ids[at]
        totals = np.where(going[at], found.totals[at], -np.inf)  # a place that no candidate fills stays empty
        self.live = self.live.extended(rows, parents, ids, found.log_probs[at], totals)
        return Move(rows, parents, ids) if len(rows) else None

    def _cut(self, move: Move | None) -> Move | None:
        """Without the sources that are at their limit and want no scores: they need not be read to the end."""
        if self.live.wants.all_scored:
            return move
        cut = ~self.live.wants.scored & (self.live.lengths >= self.live.wants.limits)  # (B,)
        if move is None or not cut.any():
            return move
        for row in cut.nonzero()[0].tolist():
            ids = self.live.ids[row, 0, : self.live.lengths[row]].tolist()
            self.ranking.add(row, self.live.wants, ids, [math.nan] * (len(ids) + 1), math.nan, False)
        self._leave(cut.nonzero()[0])
        stay = (~cut).nonzero()[0]
        self.drop(stay)
        return move.take(stay) if len(stay) else None

    def _leave(self, rows: Ints) -> None:
        """Put down what was found of sources that are done."""
        for row in rows.tolist():
            source, step = int(self.live.sources[row]), self.live.lengths[row] + 1
            if source in self.failed:
                continue
            if self.ranking.best[row]:
                self.found[source] = self.ranking.best[row]
            else:
                self.failed[source] = RegardError(
                    f"at step {step} source {source} has no token to go on with: "
                    "all are forbidden, or have probability 0",
                    "relax the constraints or min_length",
                )
