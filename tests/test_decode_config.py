"""Options of decoding: what is refused and in which words; how sources are grouped."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import check
from regard.decode.config import DecodeConfig, DecodeOptions
from regard.decode.search import groups
from regard.errors import UsageError
from regard.tasks.translate.recipe import length_limits


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sample": True, "temperature": 0.001}, "temperature 0.001 is under 0.01; .* use greedy search: .* beam = 1"),
        ({"temperature": 0.7}, "set sample = true"),
        ({"top_k": 5}, "set sample = true"),
        ({"top_p": 0.9}, "set sample = true"),
        (
            {"n_best": 3, "temperature": 0},
            "greedy and finds one sequence, not n_best 3; leave temperature out .* more than 0",
        ),
        ({"n_best": 7}, "n_best 7 is more than beam 5; set beam = 7"),
        ({"min_length": 5, "max_length": 3}, "min_length 5 is more than max_length 3"),
        ({"beam": 0}, "beam: must be 1 or more, not 0"),
        ({"sample": True, "top_p": 1.5}, "top_p: must be 1 or less, not 1.5"),
        ({"alpha": -1}, "alpha: must be 0 or more, not -1"),
        ({"length_penalty": "gmnt"}, "length_penalty: .*'gnmt'"),
        ({"beem": 3}, "no key beem; did you mean beam?"),
    ],
)
def test_refusals_say_what_to_type(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(DecodeConfig, values, "decode")


def test_a_temperature_of_0_is_greedy() -> None:
    shaped = {"sample": True, "temperature": 0, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "beam": 7}
    assert check(DecodeConfig, shaped, "decode") == DecodeConfig(sample=False, beam=1)


def test_samples_may_be_more_than_the_beam() -> None:
    assert DecodeConfig(sample=True, n_best=11).n_best == 11


def test_every_field_is_described() -> None:
    assert all(field.description for field in DecodeConfig.model_fields.values())


def test_limit_follows_the_source_or_is_fixed() -> None:
    assert DecodeConfig(max_ratio=1.5, max_extra=3).limit_for(7) == 13
    assert DecodeConfig(max_ratio=1.5, max_extra=3, min_length=17).limit_for(7) == 17
    assert DecodeConfig(max_length=0).limit_for(7) == 0


def test_options_and_groups_need_no_torch() -> None:
    code = "import sys, regard.decode.config, regard.decode.ranking; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 23), max_size=31), sentences=st.integers(1, 7), tokens=st.integers(1, 61))
def test_groups_hold_every_source_once_within_the_budget(lengths: list[int], sentences: int, tokens: int) -> None:
    found = groups(lengths, DecodeConfig(batch_sentences=sentences, batch_tokens=tokens))
    assert sorted(place for group in found for place in group) == list(range(len(lengths)))
    for group in found:
        assert len(group) <= sentences
        assert len(group) == 1 or len(group) * max(lengths[place] for place in group) <= tokens
    in_order = [lengths[place] for group in found for place in group]
    assert in_order == sorted(lengths, reverse=True)


@pytest.mark.parametrize(
    ("sources", "expected"), [(0, []), (96, [96]), (97, [49, 48]), (193, [49, 48, 48, 48]), (1000, [84] * 4 + [83] * 8)]
)
def test_groups_are_alike_and_their_number_suits_workers(sources: int, expected: list[int]) -> None:
    """11 groups of 96 left one of two workers with 96 sources more than the other."""
    assert [len(group) for group in groups([7] * sources, DecodeConfig(batch_sentences=96))] == expected


def test_predictors_take_the_keys_of_the_configuration() -> None:
    assert DecodeOptions.__annotations__.keys() == DecodeConfig.model_fields.keys()


def test_limits_of_length_are_those_that_training_pairs_keep() -> None:
    draw = np.random.default_rng(1)
    read = draw.integers(6, 28, 5000)
    assert length_limits(read, np.full(5000, 10)) == (0.0, 14)  # dates, however they are written: 10 signs and some
    assert length_limits(read, read) == (1.1, 3)  # copies; of longer sources, too
    assert length_limits(np.full(50, 9), np.full(50, 9)) == (1.1, 3)  # no length but one: the steepest that is as tight
    written = np.round(1.2 * read + draw.normal(0, 2, 5000)).clip(1).astype(int)
    ratio, extra = length_limits(read, written)
    within = written <= ratio * read + extra
    assert within.mean() > 0.999 and (ratio * read + extra).mean() < (2 * read + 20).mean() - 12
    outliers = written.copy()
    outliers[:3] = 400
    assert length_limits(read, outliers) == pytest.approx((ratio, extra), abs=2)
