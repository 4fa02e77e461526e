"""Sampling: the distribution that temperature, top-k and top-p leave, exactly and by counting draws."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode import filters
from regard.decode.config import DecodeConfig
from regard.decode.filters import Filter, TopK, TopP, filters_of
from regard.decode.live import Live, Wants
from regard.decode.search import generate

PROBABILITIES = [0.02, 0.31, 0.17, 0.05, 0.23, 0.09, 0.13]
END = 3
DRAWS = 4001
# Chance of a larger chi-square is 1e-4 for this many degrees of freedom (tables of the distribution).
CHI_SQUARE = {1: 15.14, 2: 18.42, 3: 21.11, 4: 23.51, 5: 25.74, 6: 27.86}


class Dice:
    """A stepper that always gives the same distribution."""

    longest = None

    def start(self, source: None, prefix: Tensor) -> tuple[Tensor, None]:
        return self._logits(len(prefix), 1), None

    def step(self, ids: Tensor, state: None) -> tuple[Tensor, None]:
        return self._logits(*ids.shape), None

    def reorder(self, state: None, parents: Tensor) -> None:
        return None

    def keep(self, state: None, rows: Tensor) -> None:
        return None

    def _logits(self, rows: int, width: int) -> Tensor:
        return (torch.tensor(PROBABILITIES).log() + 2.0).repeat(rows, width, 1)  # logits are not normalised


def first_tokens(**options: object) -> Counter[int]:
    """The first token of many samples; END where a sample is empty (it drew END first)."""
    config = DecodeConfig(sample=True, n_best=DRAWS, **options)
    found = generate(Dice(), None, torch.zeros(1, 1, dtype=torch.long), end=END, limits=[1], options=config)[0]
    assert len(found) == DRAWS
    return Counter(hypothesis.ids[0] if hypothesis.ids else END for hypothesis in found)


def shaped(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> dict[int, float]:
    """What is left of PROBABILITIES, computed on lists."""
    powers = {i: p ** (1 / temperature) for i, p in enumerate(PROBABILITIES)}
    order = sorted(powers, key=lambda i: -powers[i])[: top_k or len(powers)]
    mass = sum(powers[i] for i in order)
    kept: list[int] = []
    while sum(powers[i] for i in kept) / mass < top_p and len(kept) < len(order):
        kept.append(order[len(kept)])
    total = sum(powers[i] for i in kept)
    return {i: powers[i] / total for i in kept}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 1.7},
        {"top_k": 3},
        {"top_k": 101},
        {"top_p": 0.6},
        {"temperature": 1.3, "top_k": 5, "top_p": 0.83},
    ],
)
def test_draws_follow_the_distribution(options: dict[str, float]) -> None:
    counts, expected = first_tokens(**options), shaped(**options)  # type: ignore[arg-type]
    assert set(counts) == set(expected)  # nothing outside, and all of it
    chi_square = sum((counts[i] - DRAWS * p) ** 2 / (DRAWS * p) for i, p in expected.items())
    assert chi_square < CHI_SQUARE[len(expected) - 1]


def test_the_chi_square_test_can_fail() -> None:
    counts, expected = first_tokens(temperature=1.2), shaped()
    assert sum((counts[i] - DRAWS * p) ** 2 / (DRAWS * p) for i, p in expected.items()) > CHI_SQUARE[6]


def test_one_likely_token_is_greedy() -> None:
    assert first_tokens(top_k=1) == {1: DRAWS}
    assert first_tokens(top_p=0.01) == {1: DRAWS}
    assert first_tokens(temperature=0.01) == {1: DRAWS}


def test_samples_of_a_source_and_tokens_of_a_sample_are_independent() -> None:
    """Pairs of neighbouring tokens have the product of their probabilities."""
    options = DecodeConfig(sample=True, n_best=DRAWS)
    prefix = torch.zeros(1, 1, dtype=torch.long)
    found = generate(Dice(), None, prefix, end=END, limits=[2], options=options, forbidden=[END])[0]
    both = Counter(hypothesis.ids == (1, 1) for hypothesis in found)
    likely = (PROBABILITIES[1] / (1 - PROBABILITIES[END])) ** 2
    assert abs(both[True] / DRAWS - likely) < 4 * math.sqrt(likely * (1 - likely) / DRAWS)


def live_of(*options: DecodeConfig) -> Live:
    """One hypothesis of a source for each of these options."""
    count = len(options)
    return Live.beginning(range(count), Wants.of(options, [9] * count, range(count), [None] * count), 1)


def kept(rule: Filter, logits: list[float], **options: Any) -> list[int]:
    left = rule(torch.tensor([[logits]]), live_of(DecodeConfig(sample=True, **options)))[0, 0]
    support = left.isfinite().nonzero()[:, 0].tolist()
    assert left[support].tolist() == torch.tensor(logits)[support].tolist()  # what is left keeps its logits
    return support


def test_top_k_takes_the_lower_ids_of_equals() -> None:
    assert kept(TopK(), [0.0, 1.0, 0.0, 0.0, 2.0], top_k=3) == [0, 1, 4]
    assert kept(TopK(), [0.0, 1.0, 0.0], top_k=7) == [0, 1, 2]


def test_top_p_takes_the_fewest_that_reach_p() -> None:
    logits = [math.log(p) for p in [0.125, 0.5, 0.25, 0.125]]
    assert kept(TopP(), logits, top_p=0.3) == [1]
    assert kept(TopP(), logits, top_p=0.6) == [1, 2]
    assert kept(TopP(), logits, top_p=0.8) == [0, 1, 2]
    assert kept(TopP(), logits, top_p=0.99) == [0, 1, 2, 3]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), p=st.floats(0.01, 0.999), spread=st.floats(0.1, 5))
def test_top_p_agrees_with_a_full_sort(seed: int, p: float, spread: float) -> None:
    """The short way, over the most likely tokens only, and the long way, for flat distributions, are one rule."""
    size = 2 * filters.HEAD + 11
    logits = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread
    probabilities = logits.softmax(0).numpy()
    order = np.argsort(-probabilities)
    needed = int(np.searchsorted(np.cumsum(probabilities[order]), p)) + 1
    left = TopP()(logits[None, None], live_of(DecodeConfig(sample=True, top_p=p)))[0, 0]
    assert set(left.isfinite().nonzero()[:, 0].tolist()) == set(order[:needed].tolist())


def test_each_row_is_shaped_by_its_own_numbers() -> None:
    """Rows of different options in one batch, greedy ones among them, are what each is alone."""
    options = [
        DecodeConfig(beam=1),
        DecodeConfig(sample=True, temperature=0.6, top_k=5),
        DecodeConfig(sample=True, top_p=0.7, min_length=1),
        DecodeConfig(sample=True, temperature=1.9, top_k=11, top_p=0.4, min_p=0.03),
        DecodeConfig(sample=True, min_p=0.2),
        DecodeConfig(beam=1, min_length=2),
    ]
    dice = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(len(options), 1, 29, generator=dice, dtype=torch.float64)
    rules = filters_of([END], [0, 7], [], torch.device("cpu"))

    def shaped_by_rules(rows: list[int]) -> Tensor:
        left, live = logits[rows].clone(), live_of(*(options[row] for row in rows))
        for rule in rules:
            left = rule(left, live)
        return left

    together = shaped_by_rules(list(range(len(options))))
    assert torch.equal(together, torch.cat([shaped_by_rules([row]) for row in range(len(options))]))
    left = together.isfinite().sum(dim=-1)[:, 0].tolist()
    assert left[0] == 27 and left[1] == 5 and left[5] == 26 and len(set(left)) > 4
