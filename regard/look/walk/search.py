"""The loop of decoding, written to be read: greedy or with a beam, each step with what each hypothesis could go on with.

total(y w) = total(y) + log p(w | y),   score(y) = total(y) / penalty(length of y with its end)

A beam keeps the `beam` best continuations of all hypotheses together. A continuation with the end token leaves the beam and
is ranked by its score; the loop ends when nothing that goes on could still beat what has ended (Wu et al. 2016, section 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.look.walk.steps import Array, Numbers, Step, WorkedLine, counted, quoted_text, quoted_token

GREEDY_SHOWN, BEAM_SHOWN = 10, 5  # likeliest continuations of a hypothesis that are shown, at least
NEVER, DROPPED = "never written", ""

Next = Callable[[Sequence[int]], Array]  # log-probabilities (V,) of the token after ids


@dataclass(frozen=True)
class SearchRules:
    """What a search looks for, and where it ends."""

    beam: int
    ends: tuple[int, ...]  # ids that end a sequence; the first is forced at the limit
    forbidden: frozenset[int]  # ids that are never written
    limit: int  # most tokens, end not counted
    min_length: int
    penalty: Callable[[int], float]  # of a length, end counted
    kept: int  # sequences that are returned
    early: bool  # ends once `beam` sequences ended, whatever could still win


@dataclass(frozen=True)
class Continuation:
    """One token behind one hypothesis."""

    parent: int
    token: int
    log_probability: float
    total: float


@dataclass(frozen=True)
class Written:
    """A hypothesis: tokens, and the log-probability of them all. With `score`, one that has ended."""

    ids: tuple[int, ...]
    total: float
    score: float = math.nan
    length: int = 0  # end counted


@dataclass(frozen=True, eq=False)
class SearchMove:
    """One round of the loop."""

    hypotheses: tuple[Written, ...]  # before it
    next: Array  # (W, V): log-probabilities
    survivors: tuple[Continuation, ...]  # those that go on, in their new order
    ended: tuple[Continuation, ...]
    forced: bool  # at the limit only the end is left


@dataclass(eq=False)
class Searched:
    """The whole loop, and what it found, best first."""

    moves: list[SearchMove] = field(default_factory=list)
    ended: list[Written] = field(default_factory=list)  # in the order in which they ended
    best: list[Written] = field(default_factory=list)


def search(following: Next, rules: SearchRules) -> Searched:
    """Run the loop until nothing that goes on can still win."""
    found, live = Searched(), [Written((), 0.0)]
    while live:
        table = np.stack([following(each.ids) for each in live])  # (W, V)
        forced = len(live[0].ids) >= rules.limit
        order = _continuations(live, table, rules, forced)
        ended = [each for each in order[: rules.beam] if each.token in rules.ends]
        for each in ended:
            length = len(live[each.parent].ids) + 1
            score = each.total / rules.penalty(length)
            found.ended.append(Written(live[each.parent].ids, each.total, score, length))
        found.best = sorted(found.ended, key=lambda one: -one.score)[: rules.kept]
        survivors = _survivors(order, found, rules)
        found.moves.append(SearchMove(tuple(live), table, tuple(survivors), tuple(ended), forced))
        live = [Written((*live[each.parent].ids, each.token), each.total) for each in survivors]
    return found


def _continuations(live: list[Written], table: Array, rules: SearchRules, forced: bool) -> list[Continuation]:
    """All continuations that are allowed, the best first; greedily only the likeliest."""
    found = []
    for parent, (hypothesis, row) in enumerate(zip(live, table, strict=True)):
        never = rules.forbidden | (set(rules.ends) if len(hypothesis.ids) < rules.min_length else set())
        tokens = (
            [rules.ends[0]]
            if forced
            else [token for token in np.argsort(-row, kind="stable").tolist() if token not in never]
        )
        few = tokens[: 1 if rules.beam == 1 else rules.beam + len(rules.ends)]  # of each no more can matter
        found += [Continuation(parent, token, float(row[token]), hypothesis.total + float(row[token])) for token in few]
    return sorted(found, key=lambda each: -each.total)  # stable: of equals the lower hypothesis, then the lower id


def _survivors(order: list[Continuation], found: Searched, rules: SearchRules) -> list[Continuation]:
    """Those that go on: the best that have not ended and can still win."""
    going = [each for each in order if each.token not in rules.ends]
    to_beat = found.best[-1].score if len(found.best) == rules.kept else -math.inf
    if rules.early and len(found.ended) >= rules.beam:
        to_beat = math.inf
    reach = [
        each.total / rules.penalty(rules.limit + 1) > to_beat for each in going
    ]  # the best that it could still score
    if rules.early:
        return going[: rules.beam] if any(reach) else []
    return [each for each, can_win in zip(going, reach, strict=True) if can_win][: rules.beam]


# --- Steps


@dataclass(frozen=True, eq=False)
class SearchWords:
    """How ids read."""

    text: Callable[[Sequence[int]], str]  # of a hypothesis so far
    label: Callable[[int], str]  # of one token


def search_steps(found: Searched, rules: SearchRules, words: SearchWords) -> tuple[Step, ...]:
    """A step for each round of the loop, and one with what ended, ranked."""
    rounds = [_move_step(number, move, rules, words) for number, move in enumerate(found.moves, start=1)]
    return (*rounds, _ranking_step(found, rules, words))


def _move_step(number: int, move: SearchMove, rules: SearchRules, words: SearchWords) -> Step:
    arrays = tuple(_table(number, place, move, rules, words) for place in range(len(move.hypotheses)))
    first = arrays[0].values[0]
    told = (move.hypotheses[0].total, float(first[1]), float(first[2]))
    line = WorkedLine("total = {} + {} = {}", told, (arrays[0].name, 0, 2))
    formula = "total(y w) = total(y) + log p(w | y)"
    return Step(_title(number, move, words), formula, _told(move, rules, words), arrays, (line,))


def _title(number: int, move: SearchMove, words: SearchWords) -> str:
    """The number of the token, and the best text that goes on behind it."""
    if not move.survivors:
        return f"Token {number}: the end"
    best = move.survivors[0]
    return f"Token {number}: {quoted_text(words.text((*move.hypotheses[best.parent].ids, best.token)))}"


def _shown(place: int, move: SearchMove, rules: SearchRules) -> list[int]:
    """The tokens of one hypothesis that its table has: the likeliest, and whatever became of it."""
    many = max(BEAM_SHOWN, rules.beam + 1) if rules.beam > 1 else GREEDY_SHOWN
    first = np.argsort(-move.next[place], kind="stable")[:many].tolist()
    chosen = [each.token for each in (*move.survivors, *move.ended) if each.parent == place]
    return sorted({*first, *chosen}, key=lambda token: (-move.next[place, token], token))


def _table(number: int, place: int, move: SearchMove, rules: SearchRules, words: SearchWords) -> Numbers:
    hypothesis, tokens = move.hypotheses[place], _shown(place, move, rules)
    log_p = move.next[place, tokens]
    values = np.stack([np.exp(log_p), log_p, hypothesis.total + log_p], axis=1)
    remarks = tuple(_fate(place, token, move, rules) for token in tokens)
    after = quoted_text(words.text(hypothesis.ids)) if hypothesis.ids else "the beginning"
    name = f"{number}.{place} after {after}, total {hypothesis.total:.3f}"
    labels = tuple(words.label(token) for token in tokens)
    return Numbers(name, values, labels, ("p", "log p", "total"), shading="plain", remarks=remarks)


def _fate(place: int, token: int, move: SearchMove, rules: SearchRules) -> str:
    for new, each in enumerate(move.survivors):
        if (each.parent, each.token) == (place, token):
            return "goes on" if rules.beam == 1 else f"goes on as {new}"
    for each in move.ended:
        if (each.parent, each.token) == (place, token):
            length = len(move.hypotheses[place].ids) + 1
            return f"ends: {each.total / rules.penalty(length):.3f}"
    return NEVER if token in rules.forbidden else DROPPED


def _told(move: SearchMove, rules: SearchRules, words: SearchWords) -> str:
    if move.forced:
        return "This is the limit of length: the end token is forced, at its own probability."
    if rules.beam == 1:
        (chosen,) = (*move.survivors, *move.ended)[:1] or (None,)
        word = "nothing" if chosen is None else quoted_token(words.label(chosen.token))
        return f"Greedy: the likeliest of all, {word}, and never back." + (" That ends the text." if move.ended else "")
    many = "1 hypothesis" if len(move.hypotheses) == 1 else f"{len(move.hypotheses)} hypotheses"
    text = f"{many} so far. Of all their continuations together the {rules.beam} best totals count: "
    text += f"{len(move.survivors)} go on" if move.survivors else "none goes on"
    text += f", {len(move.ended)} ended" if move.ended else ""
    return text + ("." if move.survivors else ", and nothing that is left could score better than what has ended.")


def _ranking_step(found: Searched, rules: SearchRules, words: SearchWords) -> Step:
    best = found.best
    rows = tuple(words.text(each.ids) or "(nothing)" for each in best)
    values = np.array([[each.total, float(each.length), rules.penalty(each.length), each.score] for each in best])
    text = (
        f"{counted(len(found.ended), 'text')} ended. A longer one multiplies more probabilities and so is less likely; "
        "dividing by the penalty of its length, end counted, makes up for that (Wu et al. 2016, eq. 14)."
    )
    arrays = (Numbers("ended", values, rows, ("log p", "length", "penalty", "score"), shading="plain", marked=0),)
    told = (best[0].total, rules.penalty(best[0].length), best[0].score)
    line = WorkedLine("score = {} / {} = {}", told, ("ended", 0, 3))
    return Step("What ended, ranked", "score(y) = log p(y) / penalty(length)", text, arrays, (line,))
