"""The candidates of a beam by source, against those by hypothesis, and both against lists."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.decode.choice import BLOCK, Beam, StepLogits, best_continuations, log_norm
from regard.decode.config import DecodeConfig
from regard.decode.live import Live, Wants
from regard.decode.search import generate
from regard.errors import ModelError

END, BEAM = 2, 3
VOCABULARY = 30 * BLOCK + 13  # enough for blocks, and no whole number of them


def drawn(seed: int, sources: int = 5, width: int = BEAM) -> tuple[StepLogits, Live]:
    dice = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(sources, width, VOCABULARY, generator=dice)
    logits[..., END] += 9 * torch.rand(sources, width, generator=dice)  # often among the best
    norms, ends = log_norm(logits), logits[..., END].double().numpy()
    logits[..., [0, 1]] = -math.inf
    wants = Wants.of([DecodeConfig(beam=BEAM)] * sources, [9] * sources, range(sources), [None] * sources)
    live = Live.beginning(range(sources), wants, width)
    totals = -9 * torch.rand(sources, width, generator=dice).double().numpy()
    totals[0, 1:] = -np.inf  # empty places
    return StepLogits(logits, norms, ends, logits, None), replace(live, totals=totals)


@pytest.mark.parametrize("ends", [(END,), (END, 17)])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_a_source_are_the_best_of_its_hypotheses(seed: int, ends: tuple[int, ...]) -> None:
    choice, (scores, live) = Beam(BEAM, ends), drawn(seed)
    few = choice._best_of_each_source(scores, live)
    all_ = choice._best_of_each_hypothesis(scores, live)
    assert few is not None
    there = few.totals > -np.inf
    assert there.sum() > 5 * BEAM
    for name in ("parents", "ids", "totals", "log_probs"):
        found, expected = getattr(few, name), getattr(all_, name)[:, : few.ids.shape[1]]
        width = min(found.shape[1], expected.shape[1])
        both = there[:, :width] & (all_.totals[:, :width] > -np.inf)
        # By hypothesis only width + ends of each are known; the first that go on or end are the same.
        first = both & (np.cumsum(few.ids[:, :width] != END, axis=1) <= BEAM)
        assert first.any(axis=1).all()
        np.testing.assert_allclose(found[:, :width][first], expected[:, :width][first], rtol=0, atol=1e-12)


def test_the_best_of_a_source_are_the_head_of_a_sorted_list() -> None:
    dice = torch.Generator().manual_seed(1)
    logits = torch.randn(7, 3, 31 * BLOCK + 5, generator=dice)
    offsets = torch.randn(7, 3, generator=dice, dtype=torch.float64)
    values, places = best_continuations(logits, offsets.numpy(), 11)
    for row in range(7):
        flat = (logits[row].double() + offsets[row][:, None]).flatten().tolist()
        expected = sorted(range(len(flat)), key=lambda place: -flat[place])[:11]
        assert places[row].tolist() == expected
        assert values[row].tolist() == [flat[place] for place in expected]


def test_equals_at_the_cut_are_told_apart_by_hypothesis() -> None:
    choice, (scores, live) = Beam(BEAM, (END,)), drawn(3)
    scores.allowed[1, 0, 50:60] = 30.0  # ten equals, and six are wanted
    scores, live.totals[1, 0] = replace(scores, norms=log_norm(scores.allowed)), 0.0
    assert choice._best_of_each_source(scores, live) is None
    found = choice.candidates(scores, live)
    assert found.ids[1, :BEAM].tolist() == [50, 51, 52]


@pytest.mark.parametrize("ends", [(END,), (END, 17)])
@pytest.mark.parametrize("seed", range(3))
def test_where_all_must_end_nothing_else_is_asked(seed: int, ends: tuple[int, ...]) -> None:
    """Ends that are forced are those of the way that sorts all tokens; equals of the end, before it and behind, as well."""
    choice, (scores, live) = Beam(BEAM, ends), drawn(seed)
    scores.allowed[1, 0, END] = scores.allowed[1, 0].max() + 1
    scores.allowed[1, 1, [5, END]] = 40.0
    scores.allowed[2, 0, [END - 1, END]] = 40.0  # 1 is the lower id
    forced = replace(scores, at_limit=np.ones(5, np.bool_))
    found, expected = choice.candidates(forced, live), choice._best_of_each_hypothesis(forced, live)
    assert found.willing.any() and not found.willing.all()
    for name in ("parents", "ids", "totals", "log_probs", "willing"):
        there = expected.totals[:, : found.ids.shape[1]] > -np.inf
        assert there.sum() > 9
        both = getattr(found, name)[there], getattr(expected, name)[:, : found.ids.shape[1]][there]
        assert both[0].tolist() == both[1].tolist()


def test_a_source_with_few_tokens_has_few_candidates() -> None:
    logits = torch.full((2, 3, 31 * BLOCK), -math.inf)
    logits[0, 1, [70, 5]] = torch.tensor([2.0, 3.0])
    logits[1] = torch.randn(3, 31 * BLOCK, generator=torch.Generator().manual_seed(1))
    values, places = best_continuations(logits, np.zeros((2, 3)), 11)
    assert values[0].tolist() == [3.0, 2.0] + [-math.inf] * 9
    assert places[0, :2].tolist() == [31 * BLOCK + 5, 31 * BLOCK + 70]
    assert values[1].tolist() == logits[1].flatten().double().sort(descending=True).values[:11].tolist()


class Broken:
    """A stepper whose logits are not numbers at the second step."""

    longest = None

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, None]:
        return drawn(0, len(prefix), 1)[0].logits, None

    def step(self, ids: Tensor, state: None) -> tuple[Tensor, None]:
        logits = drawn(1, *ids.shape)[0].logits
        logits[1] = math.nan
        return logits, None

    def reorder(self, state: None, parents: Tensor) -> None:
        return None

    def keep(self, state: None, rows: Tensor) -> None:
        return None


def test_what_is_not_a_number_is_told() -> None:
    options = DecodeConfig(beam=BEAM, min_length=4, max_length=9)
    with pytest.raises(ModelError, match="at step 2, for source 1"):
        generate(Broken(), None, torch.zeros(3, 1, dtype=torch.long), end=END, limits=[9] * 3, options=options)
