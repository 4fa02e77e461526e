"""Masked batches: every token of every document is there once, 15% are hidden as the paper says, pairs are what they claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batch import MaskedBatch
from regard.data.masking import MaskedBatches, choose
from regard.errors import RegardError

PAD, BEGIN, END, UNKNOWN, MASK = 0, 1, 2, 3, 7
SPECIAL = (PAD, BEGIN, END, UNKNOWN, MASK)
FIRST = 10  # the lowest token of documents


def batches_of(documents: list[np.ndarray], **changed: Any) -> MaskedBatches:
    ids = {"begin": BEGIN, "end": END, "mask": MASK, "pad": PAD, "special": SPECIAL, "vocabulary": 10_000}
    return MaskedBatches(documents, **{**ids, "length": 17, "batch_tokens": 170, "seed": 1, **changed})  # type: ignore[arg-type]


def numbered(sizes: list[int]) -> list[np.ndarray]:
    """Documents in which every token occurs once, counting on from document to document."""
    edges = np.cumsum([FIRST, *sizes])
    return [np.arange(start, start + size, dtype=np.int32) for start, size in zip(edges, sizes, strict=False)]


def epoch_of(batches: MaskedBatches, epoch: int = 0) -> list[MaskedBatch]:
    return [batches.get(epoch, index) for index in range(batches.count(epoch))]


def true_rows(batch: MaskedBatch) -> Iterator[list[int]]:
    """The sequences before anything was hidden, without padding."""
    ids = batch.ids.clone()
    wanted = iter(batch.wanted.tolist())
    for row, column in batch.places.nonzero().tolist():  # row by row
        ids[row, column] = next(wanted)
    for row, length in zip(ids.tolist(), batch.lengths.tolist(), strict=True):
        assert row[length:] == [PAD] * (len(row) - length)
        yield row[:length]


# -- sequences ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 70), min_size=1, max_size=12).filter(any),
    length=st.integers(3, 17),
    epoch=st.integers(0, 2),
)
def test_every_token_of_every_document_is_in_one_sequence(sizes: list[int], length: int, epoch: int) -> None:
    documents = numbered(sizes)
    batches = batches_of(documents, length=length)
    seen: list[int] = []
    chunks: list[int] = []
    for batch in epoch_of(batches, epoch):
        assert batch.ids.numel() <= 170 and batch.segments is None and batch.follows is None
        for row in true_rows(batch):
            assert len(row) <= length and row[0] == BEGIN and row[-1] == END
            assert row[1:-1] == list(range(row[1], row[1] + len(row) - 2))  # consecutive
            assert any(set(row[1:-1]) <= set(document.tolist()) for document in documents)  # of one document
            seen += row[1:-1]
            chunks.append(len(row) - 2)
    assert sorted(seen) == [token for document in documents for token in document]
    assert len(chunks) == sum(-(-size // (length - 2)) for size in sizes)  # no more than are needed


def test_a_batch_holds_like_lengths_and_its_padding_is_told() -> None:
    random = np.random.default_rng(1)
    batches = batches_of(numbered(random.integers(1, 15, size=500).tolist()))
    real = sum(batch.real_tokens for batch in epoch_of(batches))
    padded = sum(batch.padded_tokens for batch in epoch_of(batches))
    assert batches.padding_share() == pytest.approx(1 - real / padded) and batches.padding_share() < 0.05


# -- what is hidden ----------------------------------------------------------------------------------------------------


def test_fifteen_percent_of_each_sequence_and_at_least_one() -> None:
    batches = batches_of(numbered([1, 2, 3, 7, 10, 13, 15] * 5))
    for batch in epoch_of(batches):
        for row, length in enumerate(batch.lengths.tolist()):
            chosen = batch.places[row].nonzero().flatten().tolist()
            assert len(chosen) == max(1, round(0.15 * (length - 2)))
            assert all(0 < place < length - 1 for place in chosen)  # never [CLS], [SEP] or padding
        assert batch.counts == {"loss": int(batch.places.sum()), "nll": int(batch.places.sum())}


def test_the_shares_of_the_paper() -> None:
    """Of 30,000 places to be guessed 80% show [MASK], 10% a random token, 10% the true one; all else is untouched."""
    documents = numbered([1500] * 5)
    batches = batches_of(documents, length=102, batch_tokens=5000)
    masked = stayed = changed = 0
    drawn: list[int] = []
    for epoch in range(27):
        for batch in epoch_of(batches, epoch):
            shown = batch.ids[batch.places]
            is_mask, is_same = shown == MASK, shown == batch.wanted
            masked, stayed = masked + int(is_mask.sum()), stayed + int(is_same.sum())
            changed += int((~is_mask & ~is_same).sum())
            drawn += shown[~is_mask & ~is_same].tolist()
            assert (batch.ids[~batch.places] != MASK).all()
            list(true_rows(batch))
    total = masked + stayed + changed
    assert total > 30_000
    for found, wanted in ((masked, 0.8), (stayed, 0.1), (changed, 0.1)):
        assert abs(found / total - wanted) < 5 * (wanted * (1 - wanted) / total) ** 0.5
    assert min(drawn) < 200 and max(drawn) > 9800 and not set(drawn) & set(SPECIAL)
    assert abs(np.mean(drawn) - 5000) < 5 * 10_000 / 12**0.5 / len(drawn) ** 0.5


def test_random_tokens_are_never_special_even_where_special_ids_lie_between() -> None:
    batches = batches_of([np.array([8, 9] * 7)] * 20, vocabulary=10, special=(0, 1, 2, 3, 5, 7), rate=1.0)
    shown = {token for epoch in range(5) for batch in epoch_of(batches, epoch) for token in batch.ids.unique().tolist()}
    assert shown == {PAD, BEGIN, END, MASK, 4, 6, 8, 9} - {PAD}


def test_every_place_is_equally_likely() -> None:
    random = np.random.default_rng(5)
    text = np.zeros((3, 11), dtype=bool)
    text[0, 1:10], text[1, 2:5], text[2, 4] = True, True, True
    total = np.zeros((3, 11))
    for _ in range(4000):
        chosen = choose(text, 0.3, random)
        assert not (chosen & ~text).any() and chosen.sum(axis=1).tolist() == [3, 1, 1]  # rounded 2.7, 0.9, 0.3
        total += chosen
    assert np.abs(total[0, 1:10] / 4000 - 1 / 3).max() < 0.04 and np.abs(total[1, 2:5] / 4000 - 1 / 3).max() < 0.04


# -- pairs -------------------------------------------------------------------------------------------------------------


def test_pairs_are_what_they_claim() -> None:
    documents = numbered([2, 5, 14, 15, 29, 60, 100, 101])
    of = {token: number for number, document in enumerate(documents) for token in document.tolist()}
    batches = batches_of(documents, pairs=True)
    follows = others = 0
    firsts: set[tuple[int, int]] = set()
    for epoch in range(80):
        for batch in epoch_of(batches, epoch):
            assert batch.segments is not None and batch.follows is not None
            assert batch.counts["next"] == len(batch.ids) and batch.ids.numel() <= 170
            for row, ids in enumerate(true_rows(batch)):
                middle = ids.index(END)
                first, second = ids[1:middle], ids[middle + 1 : -1]
                assert ids[0] == BEGIN and ids[-1] == END and first and second and len(ids) <= 17
                segments = batch.segments[row].tolist()
                assert segments[: len(ids)] == [0] * (middle + 1) + [1] * (len(second) + 1) and not any(
                    segments[len(ids) :]
                )
                for text in (first, second):
                    assert text == list(range(text[0], text[0] + len(text))) and of[text[0]] == of[text[-1]]
                places = batch.places[row].nonzero().flatten().tolist()
                assert not {0, middle, len(ids) - 1} & set(places) and max(places) < len(ids)
                assert len(places) == max(1, round(0.15 * (len(ids) - 3)))
                if batch.follows[row]:
                    follows += 1
                    assert second[0] == first[-1] + 1 and of[second[0]] == of[first[0]]
                else:
                    others += 1
                    assert of[second[0]] != of[first[0]]
                firsts.add((first[0], len(first)))
    assert abs(follows / (follows + others) - 0.5) < 5 * 0.5 / (follows + others) ** 0.5
    assert len(firsts) > 60  # cut in many places, over the epochs


def test_a_false_second_text_is_not_told_by_its_length() -> None:
    """Where some other document is long enough, both kinds of pairs are as long as the chunk."""
    batches = batches_of(numbered([14] * 9 + [1, 2]), pairs=True)
    lengths = {follow: set() for follow in (0, 1)}  # type: dict[int, set[int]]
    for epoch in range(10):
        for batch in epoch_of(batches, epoch):
            for follow, length in zip(batch.follows.tolist(), batch.lengths.tolist(), strict=True):  # type: ignore[union-attr]
                lengths[follow].add(length)
    assert lengths == {0: {17, 5}, 1: {17, 5}}


def test_only_shorter_documents_elsewhere_are_taken_whole() -> None:
    batches = batches_of(numbered([14, 3]), pairs=True)
    for epoch in range(10):
        for batch in epoch_of(batches, epoch):
            for row, ids in enumerate(true_rows(batch)):
                if not batch.follows[row] and ids[1] == FIRST:  # type: ignore[index]
                    assert ids[ids.index(END) + 1 : -1] in ([24, 25, 26], [24], [25], [26], [24, 25], [25, 26])


# -- pure, and refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [False, True])
def test_a_batch_is_a_pure_function_of_seed_epoch_and_index(pairs: bool) -> None:
    documents = numbered([30, 41, 52, 7] * 5)
    first, second, other = (batches_of(documents, pairs=pairs, seed=seed) for seed in (5, 5, 6))

    def shown(batches: MaskedBatches, epoch: int) -> list[tuple[Any, Any]]:
        return [(batch.ids.tolist(), batch.wanted.tolist()) for batch in epoch_of(batches, epoch)]

    wanted = {epoch: shown(first, epoch) for epoch in range(4)}
    for epoch in (3, 0, 2, 1, 3):
        assert shown(second, epoch) == wanted[epoch] != shown(other, epoch)
    again = second.get(2, 1), second.get(2, 0), second.get(2, 1)  # in any order
    assert again[0].ids.equal(again[2].ids) and again[1].ids.tolist() == wanted[2][0][0]
    gaps = [{token for batch in epoch_of(first, epoch) for token in batch.wanted.tolist()} for epoch in range(4)]
    assert all(len(gaps[0] & gap) < len(gap) / 2 for gap in gaps[1:])  # other gaps in another epoch


def test_what_cannot_be_masked_is_refused() -> None:
    documents = numbered([5, 9])
    cases: list[tuple[list[np.ndarray], dict[str, Any], str]] = [
        (documents, {"length": 2}, "sequences of 2 tokens are too short; raise data.context to 3"),
        (documents, {"length": 5, "pairs": True}, "raise data.context to 6"),
        (documents, {"batch_tokens": 16}, "up to 17 tokens and a batch only 16"),
        (documents[:1], {"pairs": True}, "two documents or more"),
        ([documents[0], documents[1][:0]], {"pairs": True}, "two documents or more"),
        ([], {}, "no text to hide"),
        (numbered([1, 1]), {"pairs": True}, "no text to hide"),
        (documents, {"vocabulary": 4}, "every token of the vocabulary is special"),
    ]
    for texts, changed, message in cases:
        with pytest.raises(RegardError, match=message):
            batches_of(texts, **changed)
