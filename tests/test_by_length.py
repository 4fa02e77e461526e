"""Buckets of source length, their scores, joined pairs, and the alignment of chosen heads: by hand and by sacreBLEU."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
from torch import nn

from regard.data.builtin.dates import DatePair
from regard.errors import UsageError
from regard.evaluate.by_length import Bucket, buckets, join_pairs, score_bucket, source_lengths
from regard.look.sentence import SentenceAttention
from regard.tasks.run import RunResult
from regard.tasks.translate.alignment import alignment_error, alignment_errors

# --- Buckets


def test_lengths_in_words_or_characters() -> None:
    assert source_lengths(["two words", "", " a  b c "]) == [2, 0, 3]
    assert source_lengths(["two words", ""], characters=True) == [9, 0]


def test_buckets_by_hand() -> None:
    """1 to 40 in at most 9 steps: five wide. The lone 40 has one neighbour, and joins it."""
    lengths = [7, 1, 2, 3, 6, 8, 12, 13, 40]
    found = buckets(lengths, most=9, least=2)
    assert [(each.low, each.high, each.places) for each in found] == [
        (1, 3, (1, 2, 3)),
        (6, 8, (0, 4, 5)),
        (12, 40, (6, 7, 8)),
    ]
    assert [each.mean for each in found] == [2.0, 7.0, pytest.approx(65 / 3)]


def test_a_small_bucket_joins_its_smaller_neighbour() -> None:
    lengths = [1] * 9 + [2] * 2 + [3] * 5
    assert [(each.low, each.high, len(each.places)) for each in buckets(lengths, least=3)] == [(1, 1, 9), (2, 3, 7)]
    assert [(each.low, each.high) for each in buckets(lengths, least=17)] == [(1, 3)]  # never enough: all in one


def test_every_sentence_is_in_one_bucket() -> None:
    draw = random.Random(5)
    for _ in range(30):
        lengths = [draw.randrange(0, draw.choice([3, 40, 900])) for _ in range(draw.randrange(1, 300))]
        found = buckets(lengths)
        assert sorted(place for each in found for place in each.places) == list(range(len(lengths)))
        assert all(len(each.places) >= 30 for each in found) or len(found) == 1
        assert all(before.high < after.low for before, after in itertools.pairwise(found))
        assert all(each.low <= lengths[place] <= each.high for each in found for place in each.places)
    assert buckets([]) == []


def test_a_bucket_scores_as_sacrebleu_scores_its_sentences() -> None:
    draw = random.Random(7)
    references = [" ".join(draw.choices(["a", "b", "c", "d", "e", "f"], k=draw.randrange(4, 12))) for _ in range(50)]
    outputs = [" ".join(draw.choices([*text.split(), "x"], k=9)) for text in references]
    places = (3, 11, 12, 29, 41, 47)
    found = score_bucket(Bucket(4, 11, 7.0, places), outputs, references, resamples=50)
    direct = sacrebleu.corpus_bleu([outputs[i] for i in places], [[references[i] for i in places]])
    assert found.value == pytest.approx(direct.score) and found.low <= found.value <= found.high
    whole = sacrebleu.corpus_bleu(outputs, [references]).score
    assert abs(found.value - whole) > 0.1  # the bucket, not everything


def test_joined_pairs_by_hand() -> None:
    pairs = [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"), ("e", "E")]
    assert join_pairs(pairs, 2) == [("a b", "A B"), ("c d", "C D")]
    assert join_pairs(pairs, 5) == [("a b c d e", "A B C D E")]
    for count in (1, 0, 6):
        with pytest.raises(UsageError, match=f"cannot join {count} "):
            join_pairs(pairs, count)


# --- Which head aligns

DATE = DatePair(
    "05/03/2004", "2004-03-05", "en", ((0, 8), (1, 9), (3, 5), (4, 6), (6, 0), (7, 1), (8, 2), (9, 3))
)  # fmt: skip
OTHER = DatePair("06/03/2004", "2004-03-06", "en", DATE.alignment)


class Heads:
    """Two layers of two heads; `wrong[source][layer][head]` digits are looked for in the wrong place."""

    def __init__(self, wrong: dict[str, list[list[int]]], kind: str = "character") -> None:
        self.wrong, self.tokenizers, self.target = wrong, self, self
        self.config = SimpleNamespace(tokens=SimpleNamespace(kind=kind, normalise="none"))

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def attention(self, source: str, ids: list[int]) -> SentenceAttention:
        layers = {
            f"layer{number}": np.stack([self._head(n) for n in heads])
            for number, heads in enumerate(self.wrong[source])
        }
        return SentenceAttention((*source, "</s>"), ("?",) * 11, layers, 0.0)

    def _head(self, wrong: int) -> np.ndarray:
        weights = np.full((11, 11), 0.01)  # (T, S)
        for number, (place, target) in enumerate(DATE.alignment):
            weights[target, 2 if number < wrong else place] = 1.0
        return weights


def test_alignment_error_by_hand() -> None:
    """Eight sure links, eight predicted, two of them wrong: 1 - (6 + 6) / (8 + 8)."""
    model = Heads({DATE.source: [[2, 8], [0, 4]]})
    assert alignment_error(model, [DATE], (0, 0)) == pytest.approx(0.25)  # type: ignore[arg-type]
    assert alignment_error(model, [DATE], (0, 1)) == pytest.approx(1.0)  # type: ignore[arg-type]
    assert alignment_error(model, [DATE], (1, 0)) == 0.0  # type: ignore[arg-type]
    assert alignment_error(model, [DATE], (1, 1)) == pytest.approx(0.5)  # type: ignore[arg-type]


def test_the_head_is_chosen_on_other_dates_than_it_is_scored_on() -> None:
    """On the dates to choose on, head 1 of layer 0 errs least; on the others it errs in four of eight links."""
    model = Heads({DATE.source: [[2, 1], [4, 4]], OTHER.source: [[8, 4], [0, 0]]})
    found = alignment_errors(model, choose_on=[DATE], score_on=[OTHER])  # type: ignore[arg-type]
    assert found is not None and (found.layer, found.head, found.sentences) == (0, 1, 1)
    assert found.best == pytest.approx(0.5)


def test_no_alignment_without_attention_or_characters() -> None:
    assert alignment_errors(Heads({DATE.source: []}), [DATE], [DATE]) is None  # type: ignore[arg-type]
    pieces = Heads({DATE.source: [[0]]}, kind="bpe")
    assert alignment_errors(pieces, [DATE], [DATE]) is None  # type: ignore[arg-type]


# --- A model without attention


def test_a_model_without_attention_says_so(tiny_run: RunResult) -> None:
    class Deaf(nn.Module):
        def hidden(self, batch: object) -> None:
            return None

    translator = tiny_run.load()
    translator.model = Deaf()
    seen = translator.attention("3 mai 2004", translator.tokenizers.target.encode("2004-05-03"))
    assert (seen.layers, seen.check()) == ({}, 0.0) and seen.source and seen.target
    for look in (seen.map, lambda: seen.map(0, 0), seen.text):
        with pytest.raises(UsageError, match="this model has no attention to look at"):
            look()
