"""What many callers at once need: sources that end beside others that go on, room for newcomers, steps on several threads."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.decode.choice import BLOCK, Beam, StepLogits, log_norm
from regard.decode.config import DecodeConfig
from regard.decode.live import Live, Wants
from regard.decode.search import generate
from regard.decode.tickets import Request, Ticket
from regard.decode.waiting import Part, Room, Waiting
from regard.models.config import TransformerConfig
from regard.models.fast.stepper import LaidOut
from regard.models.fast.translation import FastDecoder
from regard.models.transformer import Transformer
from regard.native.threads import LEAST, on_threads, shares_of
from regard.threads import is_alone

END, BEAM, VOCABULARY = 2, 3, 30 * BLOCK + 13


@pytest.mark.parametrize("seed", range(5))
def test_sources_at_their_limit_are_chosen_beside_others_as_by_hypothesis(seed: int) -> None:
    """One source at its limit sent all of a batch the long way; callers of an engine are hardly ever at it together."""
    dice = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(5, BEAM, VOCABULARY, generator=dice)
    logits[..., END] += 9 * torch.rand(5, BEAM, generator=dice)
    norms, ends = log_norm(logits), logits[..., END].double().numpy()
    wants = Wants.of([DecodeConfig(beam=BEAM)] * 5, [9] * 5, range(5), [None] * 5)
    totals = -9 * torch.rand(5, BEAM, generator=dice).double().numpy()
    live = replace(Live.beginning(range(5), wants, BEAM), totals=totals)
    at_limit = np.array([True, False, False, True, False])
    scores, choice = StepLogits(logits, norms, ends, logits, at_limit), Beam(BEAM, (END,))
    found, expected = choice.candidates(scores, live), choice._best_of_each_hypothesis(scores, live)
    for row in range(5):
        count = BEAM if at_limit[row] else int((np.cumsum(found.ids[row] != END) <= BEAM).sum())
        for name in ("parents", "ids", "willing") if at_limit[row] else ("parents", "ids"):
            assert getattr(found, name)[row, :count].tolist() == getattr(expected, name)[row, :count].tolist()
        for name in ("totals", "log_probs"):
            np.testing.assert_allclose(
                getattr(found, name)[row, :count], getattr(expected, name)[row, :count], atol=1e-12
            )
    assert (found.totals[at_limit][:, BEAM:] == -math.inf).all()


def test_those_that_do_not_all_fit_wait_until_some_of_the_room_is_free() -> None:
    waiting = Waiting(Room(rows=32))
    for number in range(40):
        ticket = Ticket(Request([1], DecodeConfig(beam=1), 3), lambda _: None)
        waiting.add(Part(number, ticket, 0, 1, 5, 1))
    assert not waiting.should_wait(0.125)  # all of the room is free
    assert len(waiting.admit(1024)) == 32 and waiting.should_wait(0.125)
    for number in range(3):
        waiting.leave(number)
    assert waiting.should_wait(0.125)  # three of 32 are free, and eight wait
    waiting.leave(3)
    assert not waiting.should_wait(0.125) and len(waiting.admit(1024)) == 4
    for number in range(4, 8):
        waiting.leave(number)
    assert len(waiting.admit(1024)) == 4 and not waiting.should_wait(0.125)  # nobody waits any more


def test_shares_are_all_rows_once_in_order() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for rows in (1, LEAST, 2 * LEAST, 3 * LEAST - 1, 331):
            shares = shares_of(rows)
            assert [row for begin, end in shares for row in range(begin, end)] == list(range(rows))
            assert len(shares) == max(1, min(3, rows // LEAST))
    finally:
        torch.set_num_threads(before)
    done: list[int] = []
    with pytest.raises(ZeroDivisionError):
        on_threads([lambda: done.append(1), lambda: 1 // 0])
    assert done == [1]


def test_threads_of_kernels_keep_nobody_from_having_helpers() -> None:
    """After one step on two threads a process was taken for one that computes elsewhere, and files went without helpers."""
    on_threads([lambda: None, lambda: None])
    assert is_alone()


@pytest.mark.parametrize("beam", [1, 4])
def test_steps_on_several_threads_give_the_bits_of_one(beam: int) -> None:
    torch.manual_seed(5)
    config = TransformerConfig(
        encoder_layers=2, decoder_layers=2, width=24, heads=3, feed_forward=40, positions="rotary"
    )
    model = Transformer(config, 311, 311).eval()
    source = torch.randint(5, 311, (53, 11), generator=torch.Generator().manual_seed(6))
    lengths = torch.full((53,), 11)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            stepper = LaidOut(model, FastDecoder.of).stepper()
            prefix = torch.full((len(source), 1), 3)
            options = DecodeConfig(beam=beam, scores=True)
            found.append(
                generate(stepper, (source, lengths), prefix, end=END, limits=[13] * len(source), options=options)
            )
    finally:
        torch.set_num_threads(before)
    assert [[each.ids for each in one] for one in found[0]] == [[each.ids for each in one] for one in found[1]]
    assert [one[0].log_probability for one in found[0]] == [one[0].log_probability for one in found[1]]
