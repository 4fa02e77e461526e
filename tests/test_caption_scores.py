"""Scores of captions: worked out by hand, by sacreBLEU, and by the papers' formulas in plain loops."""

from __future__ import annotations

import json
import math
import random
import time

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from regard.errors import RegardError, UsageError
from regard.evaluate.captions import score_captions, words
from regard.evaluate.classification import top_k_accuracy


def made_captions(pictures: int, references: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Sentences of few words, so that n-grams of every length are shared; each picture has favourites."""
    draw = random.Random(seed)
    vocabulary = list("abcdefghijklmnopqr")

    def sentence(favourites: list[str], least: int) -> str:
        length = draw.randrange(least, 14)
        return " ".join(draw.choice(favourites if draw.random() < 0.8 else vocabulary) for _ in range(length))

    outputs, wanted = [], []
    for _ in range(pictures):
        favourites = draw.sample(vocabulary, 3)
        outputs.append(sentence(favourites, 0))
        wanted.append([sentence(favourites, 1) for _ in range(draw.randint(1, references))])
    return outputs, wanted


# --- Words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('A dog\'s "red" ball, in the grass.', ["a", "dog", "'s", "red", "ball", "in", "the", "grass"]),
        (
            "He doesn’t wear a T-shirt -- it's 9 & hot!",
            ["he", "does", "n't", "wear", "a", "t-shirt", "it", "'s", "9", "hot"],
        ),
        ("the boys' dog - they'd've run...", ["the", "boys", "dog", "they", "'d", "'ve", "run"]),
        ("the dog 's ball does n't fit .", ["the", "dog", "'s", "ball", "does", "n't", "fit"]),  # split already
        ("Ein Mädchen\nläuft; दो कुत्ते", ["ein", "mädchen", "läuft", "दो", "कुत्ते"]),
        ("?! --- '' \"", []),
    ],
)
def test_words_by_hand(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text("abnts'’-. ,!é\n", max_size=30))
def test_words_of_words_are_the_same(text: str) -> None:
    assert words(" ".join(words(text))) == words(text)


# --- By hand


def test_bleu_by_hand() -> None:
    """Papineni's own example, with a second picture.

    1: "the" x 7 against two references: at most 2 of them count, no pair. c = 7; r = 7 (6 is further).
    2: "a red dog runs" against "a red dog sat down": found 3/4, 2/3, 1/2, 0/1. c = 4, r = 5.
    Together: p1 = 5/11, p2 = 2/9, p3 = 1/7, p4 = 0/5; c = 11, r = 12: e^(1 - 12/11).
    """
    scores = score_captions(
        ["the the the the the the the.", "A red dog runs"],
        [["The cat is on the mat", "There is a cat on the mat"], ["a red dog sat down"]],
        resamples=0,
    )
    brevity = math.exp(1 - 12 / 11)
    assert scores.bleu1 == pytest.approx(100 * brevity * 5 / 11)
    assert scores.bleu2 == pytest.approx(100 * brevity * (5 / 11 * 2 / 9) ** (1 / 2))
    assert scores.bleu3 == pytest.approx(100 * brevity * (5 / 11 * 2 / 9 * 1 / 7) ** (1 / 3))
    assert scores.bleu4 == 0.0


def test_of_two_lengths_as_close_the_shorter_counts() -> None:
    """Three words; references of 2 and 4: r = 2, so that there is no penalty. Alone, 4 would cost e^(1 - 4/3)."""
    assert score_captions(["a b c"], [["a b", "a b c d"]], resamples=0).bleu3 == pytest.approx(100.0)
    assert score_captions(["a b c"], [["a b c d"]], resamples=0).bleu3 == pytest.approx(100 * math.exp(1 - 4 / 3))


def test_rouge_by_hand() -> None:
    """Output "a b c d". "a x c" has 2 in common: P 2/4, R 2/3. "b c d e f" has 3: P 3/4, R 3/5.

    The best of each: P = 3/4, R = 2/3. (1 + 1.44) (3/4) (2/3) / (2/3 + 1.44 (3/4)) = 1.22 / 1.7466...
    """
    scores = score_captions(["a b c d"], [["a x c", "b c d e f"]], resamples=0)
    assert scores.rouge_l == pytest.approx(100 * 1.22 / (2 / 3 + 1.08))
    assert score_captions(["a b", "q"], [["a b"], ["r"]], resamples=0).rouge_l == pytest.approx(50.0)


def test_cider_by_hand() -> None:
    """Two pictures; "a" is in references of both (weight log 2/2 = 0), every other word in one (log 2/1 = L).

    1: "a dog dog" against "a dog runs". Words: g = (dog 2L), h = (dog L, runs L); clipped: L·L / (2L √2 L) = 1/(2√2).
       Pairs: g = (a dog, dog dog), h = (a dog, dog runs), all of weight L: 1/2. Triples: nothing shared. Fours: none.
       Equal lengths: no penalty. 10 (1/(2√2) + 1/2) / 4.
    2: "a cat" against "a cat sat there": words L·L / (L √3 L) = 1/√3; pairs 1/√3; two words shorter: e^(-4/72).
    """
    first = 10 * (1 / (2 * math.sqrt(2)) + 1 / 2) / 4
    second = 10 * (2 / math.sqrt(3)) / 4 * math.exp(-4 / 72)
    scores = score_captions(["a dog dog", "a cat"], [["a dog runs"], ["a cat sat there"]], resamples=0)
    assert scores.cider_d == pytest.approx((first + second) / 2)


def test_cider_of_equal_captions_is_ten_and_of_one_picture_zero() -> None:
    captions = ["a dog runs on grass", "two girls sit in snow"]
    assert score_captions(captions, [[each, each] for each in captions], resamples=0).cider_d == pytest.approx(10.0)
    alone = score_captions(captions[:1], [captions[:1]], resamples=0)
    assert (alone.cider_d, alone.bleu4, alone.rouge_l) == pytest.approx((0.0, 100.0, 100.0))


# --- By others


@pytest.mark.parametrize("seed", range(5))
def test_bleu_is_that_of_sacrebleu(seed: int) -> None:
    outputs, references = made_captions(53, 5, seed)
    columns = [[each[place] if place < len(each) else None for each in references] for place in range(5)]
    scores = score_captions(outputs, references, resamples=0)
    for order in range(1, 5):
        metric = BLEU(tokenize="none", smooth_method="none", max_ngram_order=order)
        expected = metric.corpus_score(outputs, columns).score
        assert expected > 1
        assert getattr(scores, f"bleu{order}") == pytest.approx(expected, rel=1e-9), sacrebleu.__version__


def grams(sentence: str, n: int) -> list[str]:
    parts = sentence.split()
    return ["_".join(parts[at : at + n]) for at in range(len(parts) - n + 1)]


def plain_cider(outputs: list[str], references: list[list[str]]) -> float:
    """Vedantam et al. 2015: g_k = h_k log(|I| / Σ_p min(1, Σ_q h_k(s_pq))), over every n-gram that there is."""
    total = 0.0
    for n in (1, 2, 3, 4):
        everything = sorted(
            {gram for s in (*outputs, *(r for each in references for r in each)) for gram in grams(s, n)}
        )
        having = [sum(min(1, sum(grams(r, n).count(gram) for r in each)) for each in references) for gram in everything]
        weight = np.array([math.log(len(references) / max(1, count)) for count in having])

        def vector(
            sentence: str, n: int = n, weight: np.ndarray = weight, everything: list[str] = everything
        ) -> np.ndarray:
            return np.array([grams(sentence, n).count(gram) for gram in everything]) * weight

        for output, several in zip(outputs, references, strict=True):
            candidate = vector(output)
            for reference in several:
                other = vector(reference)
                norms = np.linalg.norm(candidate) * np.linalg.norm(other)
                gap = len(output.split()) - len(reference.split())
                if norms > 0:
                    likeness = np.minimum(candidate, other) @ other / norms
                    total += 10 / len(several) * math.exp(-(gap**2) / (2 * 6**2)) * likeness / 4
    return total / len(outputs)


def plain_common(one: list[str], other: list[str]) -> int:
    """The longest common subsequence by trying every choice of words of the shorter one."""
    shorter, longer = sorted((one, other), key=len)
    best = 0
    for choice in range(2 ** len(shorter)):
        chosen = [word for place, word in enumerate(shorter) if choice >> place & 1]
        rest = iter(longer)
        if len(chosen) > best and all(word in rest for word in chosen):
            best = len(chosen)
    return best


@pytest.mark.parametrize("seed", range(3))
def test_cider_is_that_of_the_formula(seed: int) -> None:
    outputs, references = made_captions(13, 3, seed)
    found = score_captions(outputs, references, resamples=0).cider_d
    assert found == pytest.approx(plain_cider(outputs, references), rel=1e-9)
    assert found > 0.05


def test_rouge_is_that_of_the_formula() -> None:
    outputs, references = made_captions(7, 3, 4)
    shares = []
    for output, several in zip(outputs, references, strict=True):
        common = [plain_common(output.split(), each.split()) for each in several]
        recall = max(length / len(each.split()) for length, each in zip(common, several, strict=True))
        precision = max(common) / len(output.split()) if output else 0
        shares.append(2.44 * recall * precision / (recall + 1.44 * precision) if recall and precision else 0)
    assert score_captions(outputs, references, resamples=0).rouge_l == pytest.approx(100 * float(np.mean(shares)))


# --- Uncertainty


def test_intervals_have_the_width_of_the_standard_error() -> None:
    """CIDEr-D is a mean: 95% of resampled means lie within about 1.96 standard errors of it."""
    captions = [f"w{number} x{number} y{number} z{number}" for number in range(400)]
    outputs = [each if number % 4 else "nothing like it" for number, each in enumerate(captions)]  # 10 or 0
    scores = score_captions(outputs, [[each] for each in captions])
    error = 10 * math.sqrt(0.75 * 0.25 / 400)
    assert scores.cider_d == pytest.approx(7.5)
    assert scores.cider_d_interval == pytest.approx((7.5 - 1.96 * error, 7.5 + 1.96 * error), abs=0.06)
    low, high = scores.bleu4_interval
    assert low < scores.bleu4 < high
    assert scores == score_captions(outputs, [[each] for each in captions])
    assert scores != score_captions(outputs, [[each] for each in captions], seed=1)


def test_bleu_intervals_are_those_of_rescored_test_sets() -> None:
    outputs, references = made_captions(29, 2, 8)
    scores = score_captions(outputs, references, resamples=400)
    draw = np.random.default_rng(5)
    again = []
    for _ in range(120):
        chosen = draw.integers(29, size=29)
        again.append(score_captions([outputs[i] for i in chosen], [references[i] for i in chosen], resamples=0).bleu4)
    spread = np.ptp(np.quantile(again, [0.025, 0.975]))
    assert np.ptp(scores.bleu4_interval) == pytest.approx(spread, rel=0.3)


# --- The rest


def test_a_thousand_pictures_take_seconds_and_the_numbers_are_json() -> None:
    outputs, references = made_captions(1000, 9, 2)
    start = time.process_time()
    scores = score_captions(outputs, references)
    assert time.process_time() - start < 5
    found = json.loads(json.dumps(scores.data()))
    assert found["bleu4"] == scores.bleu4 and found["cider_d_interval"] == list(scores.cider_d_interval)
    assert str(scores).startswith(f"BLEU-4 {scores.bleu4:.1f} [")


def test_empty_outputs_score_nothing() -> None:
    scores = score_captions(["", "?"], [["a dog"], ["a cat", "two"]])
    assert (scores.bleu1, scores.bleu4, scores.rouge_l, scores.cider_d) == (0, 0, 0, 0)
    assert score_captions(["a", "b"], [["!"], ["b"]]).bleu1 == pytest.approx(50.0)  # a reference without words


@pytest.mark.parametrize(
    ("outputs", "references", "message"),
    [
        (["a"], [["a"], ["b"]], "1 outputs but references of 2 pictures"),
        ([], [], "nothing to score"),
        (["a", "b"], [["a"], []], "picture 1 has no reference"),
        (["a"], ["a dog"], r"picture 0 are one text; give a list, such as \['a dog'\]"),
    ],
)
def test_wrong_captions_are_told(outputs: list[str], references: list[list[str]], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        score_captions(outputs, references)
    with pytest.raises(UsageError, match="resamples is -1"):
        score_captions(["a"], [["a"]], resamples=-1)


# --- The k best labels


def test_top_k_by_hand() -> None:
    """Ranks of the wanted labels: 1, 2, 3; and in the last row, where all are equal, 2, for label 1 comes second."""
    scores = np.array([[0.7, 0.2, 0.1], [0.5, 0.2, 0.3], [0.1, 0.5, 0.4], [0.3, 0.3, 0.3]])
    assert [top_k_accuracy(scores, [0, 2, 0, 1], k) for k in (1, 2, 3)] == [25.0, 75.0, 100.0]


def test_top_k_is_that_of_sorting() -> None:
    draw = np.random.default_rng(7)
    scores, wanted = draw.integers(0, 9, (101, 13)), draw.integers(0, 13, 101)  # many scores are equal
    for k in (1, 3, 5, 13):
        right = 0
        for row, label in zip(scores.tolist(), wanted, strict=True):
            best = sorted(range(13), key=lambda place: (-row[place], place))[:k]
            right += label in best
        assert top_k_accuracy(scores, wanted, k) == pytest.approx(100 * right / 101)
    assert top_k_accuracy(scores, wanted, 1) == pytest.approx(100 * (scores.argmax(axis=1) == wanted).mean())


@pytest.mark.parametrize(
    ("scores", "wanted", "k", "message"),
    [
        (np.zeros((2, 3)), [0], 1, r"shape \(2, 3\) for 1 wanted"),
        (np.zeros((0, 3)), [], 1, "nothing to score"),
        (np.zeros((1, 3)), [0], 5, "k is 5, but there are 3 labels"),
        (np.zeros((1, 3)), [0], 0, "k is 0"),
        (np.zeros((1, 3)), [3], 1, "a wanted label is 3"),
        (np.full((1, 3), np.nan), [0], 1, "NaN"),
    ],
)
def test_wrong_scores_are_told(scores: np.ndarray, wanted: list[int], k: int, message: str) -> None:
    with pytest.raises(RegardError, match=message):
        top_k_accuracy(scores, wanted, k)
