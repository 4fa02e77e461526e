"""Is there an induction head? Random tokens that come twice tell (Olsson et al. 2022, "In-context learning and induction
heads", "Prefix matching": A B ... A -> B).

Nothing but the repetition can draw weight to the token behind a token's first occurrence, and nothing else can make the
second half easier than the first. Whether the heads that look there do the work is told by removing them, against
removing as many others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention import Remove, intervene
from regard.errors import UsageError
from regard.evaluate.ratios import Estimate, ratios
from regard.look.heads_findings import HeadName, Induction
from regard.look.roles import measure
from regard.tasks.heads_prepare import stretches
from regard.tasks.heads_texts import Texts

SEQUENCES, LENGTH, DRAWS, SEED = 48, 48, 5, 0
FREQUENT = 1000  # tokens of real text, at most, of which is drawn


def induction(user: Any, stream: np.ndarray | None = None) -> Induction:
    """Of a language model; `stream` are ids of real text, whose frequent tokens are drawn."""
    if user.config.task != "generate":
        raise UsageError(f"induction is asked of language models; the model is one to {user.config.task}")
    length = min(LENGTH, (user.context - 2) // 2)
    if length < 4:
        raise UsageError(f"a model of {user.context} tokens is too short for a text that comes twice")
    texts = repeated(user, _ordinary(user, stream), length)
    scores, previous, chance, queries = _looks(texts, length)
    if not scores:
        raise UsageError("this model has no attention that looks back")
    found = {head: measure("induction", score, chance, queries) for head, score in scores.items()}
    named = tuple(head for head, each in found.items() if each.holds)
    removed = named or (max(scores, key=lambda head: scores[head]),)
    first, second, gain = _halves(texts, length)
    others = [head for head in scores if head not in removed]
    draw = np.random.default_rng(SEED)
    random = []
    for _ in range(DRAWS if others else 0):
        chosen = draw.choice(len(others), size=min(len(removed), len(others)), replace=False)
        random.append(_without(texts, length, tuple(others[n] for n in chosen)).value)
    without = _without(texts, length, removed)
    return Induction(
        len(texts), length, scores, previous, chance, first, second, gain, removed, bool(named), without, tuple(random)
    )


def repeated(user: Any, ordinary: np.ndarray, length: int) -> Texts:
    """Begin token, `length` random tokens, all different if there are enough kinds, and the same again."""
    draw = np.random.default_rng(SEED)
    rows = []
    for _ in range(SEQUENCES):
        once = draw.choice(ordinary, size=length, replace=len(ordinary) < length)
        rows.append(np.array([user.tokenizer.specials.begin, *once, *once]))
    return stretches(user, rows, "random tokens, twice")


def _ordinary(user: Any, stream: np.ndarray | None) -> np.ndarray:
    """Ids that stand for text; of real text, the most frequent."""
    special = sorted(user.tokenizer.specials.all)
    if stream is None or not len(stream):
        return np.setdiff1d(np.arange(user.tokenizer.size), special)
    ids, counts = np.unique(np.asarray(stream), return_counts=True)
    order = ids[np.argsort(-counts, kind="stable")]
    return order[~np.isin(order, special)][:FREQUENT].astype(np.int64)


def _looks(texts: Texts, length: int) -> tuple[dict[HeadName, float], dict[HeadName, float], float, int]:
    """Of each head, the mean weight from a token of the second half to the one behind its first occurrence, and on the
    token before; what an even map gives the first of these, and over how many queries.
    """
    queries = np.arange(length + 1, 2 * length)  # of the second half, but for the last, which predicts nothing
    sums: dict[HeadName, np.ndarray] = {}
    chance = count = 0.0
    for each in texts.maps("causal"):
        behind = each.weights[:, queries, queries - length + 1].sum(axis=1)  # (H,)
        before = each.weights[:, queries, queries - 1].sum(axis=1)
        for head, both in enumerate(np.stack([behind, before], axis=1)):
            sums[each.layer, head] = sums.get((each.layer, head), np.zeros(2)) + both
        chance += float((1 / each.allowed[queries].sum(axis=1)).sum())
        count += len(queries)
    total = len(texts) * len(queries)
    scores = {head: float(both[0]) / total for head, both in sorted(sums.items())}
    previous = {head: float(both[1]) / total for head, both in sorted(sums.items())}
    return scores, previous, chance / max(1.0, count), total


def _halves(texts: Texts, length: int) -> tuple[Estimate, Estimate, Estimate]:
    """The loss of the first half and of the second, a token, and the difference; the first token of each is left out."""
    losses = np.stack(texts.prediction_losses())  # (sequences, 2 * length)
    first, second = losses[:, 1:length].sum(axis=1), losses[:, length + 1 :].sum(axis=1)
    found = ratios(np.stack([first, second, first - second], axis=1), np.full(len(losses), length - 1.0))
    return found[0], found[1], found[2]


def _without(texts: Texts, length: int, heads: tuple[HeadName, ...]) -> Estimate:
    with intervene(texts.user.model, *(Remove("causal", layer, head=head) for layer, head in heads)):
        return _halves(texts, length)[2]
