"""Masks against plain predicates, cell by cell: what `dense`, `&` and `keep` mean, alone and in any combination."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import Blocks, Causal, Dense, Lengths, Mask, Window
from regard.attention.masks import as_mask

B, H, T, S = 3, 2, 5, 7
LENGTHS = [4, 0, 7]
QUERIES_IN = [[0, 0, 1, 1, 2], [5, 5, 5, 5, 5], [3, 2, 1, 0, 9]]
KEYS_IN = [[0, 0, 0, 1, 1, 2, 2], [5, 4, 5, 4, 5, 4, 5], [0, 1, 2, 3, 3, 2, 1]]
PATTERN = torch.rand(B, H, T, S, generator=torch.Generator().manual_seed(11)) < 0.5

Predicate = Callable[[int, int, int, int], bool]  # (b, h, t, s): may query t of row b look at key s?


def causal(offset: int) -> tuple[Mask, Predicate]:
    return Causal(offset), lambda b, h, t, s: s <= t + offset


def window(left: int, right: int) -> tuple[Mask, Predicate]:
    return Window(left, right), lambda b, h, t, s: t - left <= s <= t + right


def lengths(values: list[int]) -> tuple[Mask, Predicate]:
    return Lengths(torch.tensor(values)), lambda b, h, t, s: s < values[b]


def blocks(queries_in: list[list[int]], keys_in: list[list[int]]) -> tuple[Mask, Predicate]:
    mask = Blocks(torch.tensor(queries_in), torch.tensor(keys_in))
    return mask, lambda b, h, t, s: queries_in[b][t] == keys_in[b][s]


def dense(pattern: Tensor) -> tuple[Mask, Predicate]:
    """`pattern` has four axes, each of full size or 1."""
    cells = pattern.expand(B, H, T, S).tolist()
    return Dense(pattern), lambda b, h, t, s: cells[b][h][t][s]


MASKS = {
    **{f"causal {offset}": causal(offset) for offset in (-7, -3, -1, 0, 1, 2, 6)},
    **{f"window {left} {right}": window(left, right) for left, right in ((0, 0), (2, 1), (7, 7), (-1, 3), (1, -1))},
    "lengths": lengths(LENGTHS),
    "blocks": blocks(QUERIES_IN, KEYS_IN),
    "dense": dense(PATTERN),
    "dense for all rows": dense(PATTERN[:1]),
    "dense for all queries": dense(PATTERN[:, :1, :1]),
}


def cells_of(predicate: Predicate, rows: list[int]) -> Tensor:
    """What a predicate allows, for these rows of the batch: (rows, H, T, S)."""
    cells = [[[[predicate(b, h, t, s) for s in range(S)] for t in range(T)] for h in range(H)] for b in rows]
    return torch.tensor(cells)


def full(mask: Mask, rows: int = B) -> Tensor:
    allowed = mask.dense(T, S)
    assert allowed.dtype == torch.bool
    return allowed.expand(rows, H, T, S)


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_its_predicate(name: str) -> None:
    mask, predicate = MASKS[name]
    assert torch.equal(full(mask), cells_of(predicate, [0, 1, 2]))


@pytest.mark.parametrize("rows", [[0, 1, 2], [2], [1, 2], [2, 0], [1, 1, 0, 2]])
@pytest.mark.parametrize("name", MASKS)
def test_keep_is_the_mask_of_those_rows(name: str, rows: list[int]) -> None:
    mask, predicate = MASKS[name]
    kept = mask.keep(torch.tensor(rows))
    assert torch.equal(full(kept, len(rows)), cells_of(predicate, rows))


@st.composite
def mask_and_predicate(draw: st.DrawFn) -> tuple[Mask, Predicate]:
    numbers = st.integers(-9, 9)
    one = st.one_of(
        st.builds(causal, numbers),
        st.builds(window, numbers, numbers),
        st.builds(lengths, st.lists(st.integers(0, S), min_size=B, max_size=B)),
        st.sampled_from([blocks(QUERIES_IN, KEYS_IN), dense(PATTERN), dense(PATTERN[:1])]),
    )
    mask, allows = draw(one)
    for other, too in draw(st.lists(one, max_size=3)):
        mask, allows = mask & other, (lambda first, second: lambda *at: first(*at) and second(*at))(allows, too)
    return mask, allows


@settings(max_examples=80, deadline=None)
@given(pair=mask_and_predicate(), rows=st.lists(st.integers(0, B - 1), min_size=1, max_size=4))
def test_joined_masks_allow_what_all_of_them_allow(pair: tuple[Mask, Predicate], rows: list[int]) -> None:
    mask, predicate = pair
    assert torch.equal(full(mask), cells_of(predicate, [0, 1, 2]))
    assert torch.equal(full(mask.keep(torch.tensor(rows)), len(rows)), cells_of(predicate, rows))


@settings(max_examples=80, deadline=None)
@given(pair=mask_and_predicate())
def test_a_mask_that_says_always_somewhere_never_leaves_a_query_with_nothing(pair: tuple[Mask, Predicate]) -> None:
    """`attend` trusts this to skip a pass over its output."""
    mask, predicate = pair
    if mask.always_somewhere:
        assert cells_of(predicate, [0, 1, 2]).any(dim=-1).all()


def test_the_common_masks_say_that_they_are_always_somewhere() -> None:
    assert Causal().always_somewhere
    assert Lengths(torch.tensor([3, 1])).always_somewhere
    assert not Causal(-1).always_somewhere
    assert not Lengths(torch.tensor([3, 0])).always_somewhere


def test_a_plain_tensor_is_a_mask_and_must_be_boolean() -> None:
    mask = as_mask(PATTERN)
    assert mask is not None
    assert torch.equal(mask.dense(T, S), PATTERN)
    assert as_mask(None) is None
    assert as_mask(mask) is mask
    with pytest.raises(ValueError, match=r"True where a query may attend.*float32"):
        as_mask(PATTERN.float())
