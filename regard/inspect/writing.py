"""How a model writes: the likeliest next tokens, those beside each token that was written, and a beam search as a tree.

likeliest_next(reading, tokenizer, 10)       what may come behind a prefix
tokens_written(reading, tokenizer, 0, 10)    each written token, with what else was likely there
beam_tree(search, tokenizer, end)            every hypothesis of a search, step by step
outputs_of(model, "two dogs")                the distribution at each written token, with its entropy, to be shown
beam_of(model, "two dogs", beam=4)           the tree, to be shown
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from regard.decode.config import DecodeConfig
from regard.decode.live import Live
from regard.decode.ranking import Hypothesis
from regard.errors import UsageError
from regard.files import JSON
from regard.inspect.texts import LanguagePredictor, PairPredictor
from regard.look.written import BeamTree, LikelyToken, Node, Outputs, OutputStep
from regard.predictor import Predictor, Reading
from regard.tokens import TextTokenizer

GOES_ON = 12  # tokens that a language model writes where nobody says how many


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


class Searches(Protocol):
    """Writes a text by a search that can be watched: models to translate and to generate."""

    def options(self, over: Mapping[str, object], /) -> DecodeConfig: ...

    def search_one(
        self, text: str, options: DecodeConfig, *, watch: Callable[[Live], None] | None = None
    ) -> list[Hypothesis]: ...


def searches(predictor: Predictor) -> bool:
    """Whether a predictor writes by a search."""
    return isinstance(predictor, PairPredictor | LanguagePredictor) and callable(getattr(predictor, "search_one", None))


def beam_of(predictor: Predictor, text: str, *, beam: int = 4, max_length: int | None = None) -> BeamTree:
    """The beam search of one text as a tree; of a language model at most `max_length` tokens, 12 where nobody says."""
    searching, tokenizer, end = _writer(predictor)
    over: dict[str, object] = {"beam": beam, "n_best": beam, "sample": False}
    if max_length is None and isinstance(predictor, LanguagePredictor):
        max_length = GOES_ON
    over |= {} if max_length is None else {"max_length": max_length}
    options = searching.options(over)
    tree, _ = beam_tree(lambda watch: searching.search_one(text, options, watch=watch), tokenizer, end)
    return replace(tree, title=f"beam search with {beam} hypotheses: {text}")


def outputs_of(predictor: Predictor, text: str, second: str | None = None, *, count: int = 5) -> Outputs:
    """The distribution at each token that was written, with its entropy.

    `second` is what is taken as written: a translation, or how a text goes on; without, what the model writes itself,
    greedily where it is a language model.
    """
    searching, tokenizer, _ = _writer(predictor)
    if isinstance(predictor, PairPredictor):
        reading, first = predictor.read(text, second), 0
    else:
        before = tokenizer.encode(text)
        options = searching.options({"beam": 1, "n_best": 1, "sample": False, "max_length": GOES_ON})
        ids = tokenizer.encode(second) if second is not None else searching.search_one(text, options)[0].ids
        reading, first = predictor.read_ids([*before, *ids]), len(before)
    if not reading.predicted[first:]:
        raise UsageError("nothing was written behind this text: there is no distribution to show")
    steps = _output_steps(reading, tokenizer, first, count)
    whose = "what the model wrote" if second is None else "the given text"
    notes = (*reading.notes, f"{len(steps)} tokens of {whose}; a choice of {tokenizer.size:,} at each, "
             f"{np.log2(tokenizer.size):.1f} bits if all were alike")  # fmt: skip
    return Outputs(f"output distribution over time: {text}", notes, steps)


@torch.inference_mode()
def _output_steps(reading: Reading, tokenizer: TextTokenizer, first: int, count: int) -> tuple[OutputStep, ...]:
    shares = _probabilities(reading.predictor, reading.run()[0, first : len(reading.predicted)], tokenizer)  # (T, V)
    bits = -(torch.special.xlogy(shares, shares)).sum(dim=-1) / math.log(2)  # (T,)
    written = tokens_written(reading, tokenizer, first, count)
    return tuple(
        OutputStep(each.token, each.alternatives, float(entropy)) for each, entropy in zip(written, bits, strict=True)
    )


def _writer(predictor: Predictor) -> tuple[Searches, TextTokenizer, int]:
    """The predictor that searches, the tokenizer of what it writes, and its end token."""
    if not searches(predictor) or not isinstance(predictor, PairPredictor | LanguagePredictor):
        raise UsageError(f"a model to {predictor.config.task} writes no text by a search")
    tokenizer = predictor.tokenizer_of("target")
    return cast("Searches", predictor), tokenizer, tokenizer.specials.end


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
