"""How a model writes: the likeliest next tokens, those beside each token that was written, and a beam search as a tree.

likeliest_next(translator, source_ids, prefix_ids)    what may come behind a prefix
tokens_written(generator, prompt_ids, ids)            each written token, with what else was likely there
beam_tree(translator, "two dogs", beam=4)             every hypothesis of a search, step by step
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.decode.live import Live
from regard.decode.ranking import Hypothesis
from regard.files import JSON
from regard.predictor import Predictor, Reading
from regard.tokens import TextTokenizer


@dataclass(frozen=True)
class LikelyToken:
    """A token with its probability under the model."""

    id: int
    label: str
    probability: float

    def data(self) -> dict[str, JSON]:
        return {"id": self.id, "label": self.label, "probability": self.probability}


@dataclass(frozen=True)
class WrittenToken:
    """A token that was written, and the likeliest that could have been."""

    token: LikelyToken
    alternatives: tuple[LikelyToken, ...]

    def data(self) -> dict[str, JSON]:
        return {**self.token.data(), "alternatives": [each.data() for each in self.alternatives]}


@torch.inference_mode()
def likeliest_next(reading: Reading, tokenizer: TextTokenizer, count: int, place: int = -1) -> list[LikelyToken]:
    """The likeliest tokens behind one place of a reading, by default the last."""
    return _likeliest(_probabilities(reading.predictor, reading.run()[0, place][None], tokenizer)[0], tokenizer, count)


@torch.inference_mode()
def tokens_written(reading: Reading, tokenizer: TextTokenizer, first: int, count: int) -> list[WrittenToken]:
    """The predicted tokens of a reading from the place `first` on, each with the `count` likeliest at its place."""
    ids = reading.predicted[first:]
    shares = _probabilities(reading.predictor, reading.run()[0, first : first + len(ids)], tokenizer)  # (T, V)
    labels = tokenizer.labels(ids)
    found = []
    for token, label, row in zip(ids, labels, shares, strict=True):
        written = LikelyToken(int(token), label, float(row[token]))
        found.append(WrittenToken(written, tuple(_likeliest(row, tokenizer, count)) if count else ()))
    return found


def _probabilities(predictor: Predictor, vectors: Tensor, tokenizer: TextTokenizer) -> Tensor:
    """The model's own probabilities of the next token behind each vector: (T, D) -> (T, V)."""
    logits = (vectors @ predictor.output_table().T).double()
    return logits.softmax(dim=-1)[:, : tokenizer.size]


def _likeliest(shares: Tensor, tokenizer: TextTokenizer, count: int) -> list[LikelyToken]:
    values, ids = shares.topk(min(count, len(shares)))
    labels = [tokenizer.labels([token])[0] for token in ids.tolist()]
    return [LikelyToken(*each) for each in zip(ids.tolist(), labels, values.tolist(), strict=True)]


@dataclass(frozen=True)
class Node:
    """A hypothesis after one step: where it goes on from, its newest token, and what became of it."""

    parent: int | None  # its place among the nodes of the step before; None at the first step
    id: int
    label: str
    log_probability: float  # of its newest token
    total: float  # of all its tokens
    score: float | None  # what ranks it, once it has ended
    state: Literal["alive", "ended", "dropped"]  # dropped: no candidate of the next step is of it

    def data(self) -> dict[str, JSON]:
        return {
            "parent": self.parent,
            "id": self.id,
            "label": self.label,
            "log_probability": self.log_probability,
            "total": self.total,
            "score": self.score,
            "state": self.state,
        }


@dataclass(frozen=True)
class BeamTree:
    """A beam search of one source, step by step. Its ended hypotheses are those that were ranked at the end."""

    steps: tuple[tuple[Node, ...], ...]

    def data(self) -> dict[str, JSON]:
        return {"steps": [[node.data() for node in step] for step in self.steps]}


Level = dict[tuple[int, ...], tuple[float, float]]  # ids of a hypothesis -> log-probability of the newest, and of all


def beam_tree(
    search: Callable[[Callable[[Live], None]], list[Hypothesis]], tokenizer: TextTokenizer, end: int
) -> tuple[BeamTree, list[Hypothesis]]:
    """Run a search of one source, which tells what goes on after each step; gives it as a tree, and the best hypotheses.

    Who ended is known only at the end, from what was ranked; a hypothesis without descendants that did not end was dropped.
    """
    levels: list[Level] = []

    def watch(live: Live) -> None:
        rows = zip(live.ids[0].tolist(), live.log_probs[0].tolist(), live.totals[0].tolist(), strict=True)
        levels.append({tuple(ids): (parts[-1], total) for ids, parts, total in rows if total > -math.inf})

    hypotheses = search(watch)
    return _as_tree(levels, hypotheses, tokenizer, end), hypotheses


def _as_tree(
    levels: list[Level],
    hypotheses: Sequence[Hypothesis],
    tokenizer: TextTokenizer,
    end: int,
) -> BeamTree:
    ended: dict[int, list[Hypothesis]] = {}  # by the step at which the end was written
    for each in hypotheses:
        ended.setdefault(len(each.ids), []).append(each)
    steps: list[tuple[Node, ...]] = []
    for depth in range(max([len(levels), *(place + 1 for place in ended)], default=0)):
        here = levels[depth] if depth < len(levels) else {}
        before = {ids: place for place, ids in enumerate(levels[depth - 1])} if depth else {}
        after = {ids[:-1] for ids in levels[depth + 1]} if depth + 1 < len(levels) else set()
        after |= {each.ids for each in ended.get(depth + 1, ())}
        nodes = []
        for ids, (newest, total) in here.items():
            state: Literal["alive", "dropped"] = "alive" if ids in after else "dropped"
            label = tokenizer.labels([ids[-1]])[0]
            nodes.append(Node(before.get(ids[:-1]), ids[-1], label, newest, total, None, state))
        for each in ended.get(depth, ()):
            last = each.token_log_probabilities[-1]
            label = tokenizer.labels([end])[0]
            nodes.append(Node(before.get(each.ids), end, label, last, each.log_probability, each.score, "ended"))
        steps.append(tuple(nodes))
    return BeamTree(tuple(steps))
