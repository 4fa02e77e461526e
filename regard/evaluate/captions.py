"""Scores of captions against several references each: BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D, as papers count them.

The definitions are those of coco-caption (Chen et al. 2015), by which nearly all papers are compared, except for its
tokenizer, a Java program; `words` says what is done instead, so that numbers differ a little from those of papers.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from regard.errors import RegardError, UsageError
from regard.evaluate.bootstrap import interval
from regard.files import JSON

LONGEST = 4  # words of an n-gram
BETA = 1.2  # of ROUGE-L: how much more recall counts than precision
SIGMA = 6.0  # of CIDEr-D: words by which a length may differ before it costs much
ENDING = re.compile(r"(?<=[^'-])(n't|'(?:s|m|d|ll|re|ve))$")
ENDINGS = {"n't", "'s", "'m", "'d", "'ll", "'re", "'ve"}

Words = list[str]
Counts = Counter[tuple[str, ...]]  # how often each n-gram of 1 to 4 words occurs


@dataclass(frozen=True)
class CaptionScores:
    """How much outputs resemble what people wrote. BLEU and ROUGE-L from 0 to 100, CIDEr-D from 0 to 10.

    Papers print CIDEr-D times 100: 0.943 is their 94.3.
    """

    bleu1: float
    bleu2: float
    bleu3: float
    bleu4: float
    rouge_l: float
    cider_d: float
    bleu4_interval: tuple[float, float]  # 95%; both ends are the score itself when nothing was resampled
    cider_d_interval: tuple[float, float]

    def __str__(self) -> str:
        (low, high), (least, most) = self.bleu4_interval, self.cider_d_interval
        return (
            f"BLEU-4 {self.bleu4:.1f} [{low:.1f}, {high:.1f}], "
            f"CIDEr-D {self.cider_d:.3f} [{least:.3f}, {most:.3f}], ROUGE-L {self.rouge_l:.1f}"
        )

    def data(self) -> dict[str, JSON]:
        """All numbers as JSON holds them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def score_captions(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, resamples: int = 1000, seed: int = 12345
) -> CaptionScores:
    """Score one output a picture against one reference or more. `resamples=0` leaves the intervals out.

    CIDEr-D weighs words by how few pictures of the test set have them in a reference: it compares outputs on one test
    set, not across sets, and with a single picture it is 0.
    """
    _check(outputs, references, resamples)
    said = [words(output) for output in outputs]
    wanted = [[words(reference) for reference in each] for each in references]
    said_counts = [ngrams(each) for each in said]
    wanted_counts = [[ngrams(reference) for reference in each] for each in wanted]
    matches = _matches(said, wanted, said_counts, wanted_counts)  # (N, 2 + 2 * LONGEST)
    one, two, three, four = (bleu(matches.sum(axis=0), order) for order in range(1, LONGEST + 1))
    ciders = _cider_d(said, wanted, said_counts, wanted_counts)  # (N,)
    rouge = 100 * float(np.mean([rouge_l(each, several) for each, several in zip(said, wanted, strict=True)]))
    cider = float(ciders.mean())
    if not resamples:
        return CaptionScores(one, two, three, four, rouge, cider, (four, four), (cider, cider))
    bleu4_interval = _interval(matches, lambda mean: bleu(mean, LONGEST), resamples, seed)
    cider_interval = _interval(ciders[:, None], lambda mean: float(mean[0]), resamples, seed)
    return CaptionScores(one, two, three, four, rouge, cider, bleu4_interval, cider_interval)


# --- Words


def words(text: str) -> Words:
    """The words of a text in lower case, without punctuation and symbols.

    Close to the Penn Treebank's tokens without punctuation, which coco-caption takes: hyphens inside a word stay
    (t-shirt), and n't, 's, 'm, 'd, 'll, 're, 've are words of their own (do n't). Chinese and Japanese, which are
    written without spaces, must come with spaces between their words.
    """
    plain = text.lower().replace("’", "'").replace("--", " ")
    pieces = "".join(each if _in_word(each) else " " for each in plain).split()
    found: Words = []
    for piece in pieces:
        endings: Words = []
        bare = piece if piece in ENDINGS else piece.strip("-'")
        while ending := ENDING.search(bare):  # he'd've has two
            bare, endings = bare[: ending.start()], [ending[0], *endings]
        found += [each for each in (bare, *endings) if each]
    return found


@lru_cache(maxsize=4096)
def _in_word(character: str) -> bool:
    """Letters, numbers and their marks, and what may join them."""
    return character in "-'" or unicodedata.category(character)[0] in "LNM"


def ngrams(of: Words) -> Counts:
    """How often each run of 1 to 4 words occurs."""
    return Counter(tuple(of[at : at + n]) for n in range(1, LONGEST + 1) for at in range(len(of) - n + 1))


# --- BLEU


def bleu(sums: np.ndarray, order: int) -> float:
    """BLEU (Papineni et al. 2002, section 2.3): min(1, e^(1 - r/c)) (p_1 ... p_order)^(1/order), in percent, unsmoothed.

    `sums` over a corpus are c, r, the n-grams found for n = 1 .. 4, and the n-grams said.
    """
    said, wanted = sums[:2]
    found, tried = sums[2 : 2 + order], sums[2 + LONGEST : 2 + LONGEST + order]
    if (found <= 0).any():
        return 0.0
    brevity = min(1.0, math.exp(1 - wanted / said))
    return float(100 * brevity * math.exp(np.log(found / tried).mean()))


def _matches(
    said: list[Words], wanted: list[list[Words]], said_counts: list[Counts], wanted_counts: list[list[Counts]]
) -> np.ndarray:
    """The counts that BLEU adds up, a row for each picture: (N, 2 + 2 * LONGEST)."""
    rows = []
    for one, several, counts, known in zip(said, wanted, said_counts, wanted_counts, strict=True):
        length = len(one)
        closest = min((abs(len(each) - length), len(each)) for each in several)[1]  # of two as close, the shorter
        most = Counter[tuple[str, ...]]()
        for reference in known:
            most |= reference  # an n-gram counts as often as in the reference that has it most
        found = [0] * LONGEST
        for ngram, times in counts.items():
            found[len(ngram) - 1] += min(times, most[ngram])
        rows.append([length, closest, *found, *(max(0, length - n) for n in range(LONGEST))])
    return np.array(rows, dtype=np.float64)


# --- ROUGE-L


def rouge_l(said: Words, wanted: list[Words]) -> float:
    """ROUGE-L (Lin 2004, section 3): (1 + β²) R P / (R + β² P), from the longest common subsequence, 0 to 1.

    As in coco-caption, P and R are the best over the references, and may come from two of them.
    """
    common = [common_length(said, reference) for reference in wanted]
    precision = max(common) / max(1, len(said))
    recall = max(length / max(1, len(reference)) for length, reference in zip(common, wanted, strict=True))
    if not precision or not recall:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def common_length(one: Words, other: Words) -> int:
    """The length of the longest common subsequence."""
    before = [0] * (len(other) + 1)
    for word in one:
        row = [0]
        for at, each in enumerate(other):
            row.append(before[at] + 1 if word == each else max(before[at + 1], row[at]))
        before = row
    return before[-1]


# --- CIDEr-D


def _cider_d(
    said: list[Words], wanted: list[list[Words]], said_counts: list[Counts], wanted_counts: list[list[Counts]]
) -> np.ndarray:
    """CIDEr-D of each picture (Vedantam et al. 2015, section 4 and eq. 5): (N,).

    10/m Σ_j e^(-(l - l_j)² / 2σ²) mean_n min(g, g_j) · g_j / (|g| |g_j|), where g are an output's n-grams, counted and
    weighed by log(N / pictures that have the n-gram in a reference), and g_j those of reference j.
    """
    pictures = Counter(ngram for several in wanted_counts for ngram in set().union(*several))
    rarity = {ngram: math.log(len(said) / count) for ngram, count in pictures.items()}
    unknown = math.log(len(said))  # an n-gram of no reference counts as one of a single picture
    scores = []
    for one, several, counts, known in zip(said, wanted, said_counts, wanted_counts, strict=True):
        mine, total = _weighed(counts, rarity, unknown), 0.0
        for reference, theirs in zip(several, known, strict=True):
            near = math.exp(-((len(one) - len(reference)) ** 2) / (2 * SIGMA**2))
            total += near * _likeness(mine, _weighed(theirs, rarity, unknown))
        scores.append(10 * total / len(several))
    return np.array(scores)


def _weighed(
    counts: Counts, rarity: dict[tuple[str, ...], float], unknown: float
) -> list[dict[tuple[str, ...], float]]:
    """A vector for each n, as a dictionary of what is not zero."""
    vectors: list[dict[tuple[str, ...], float]] = [{} for _ in range(LONGEST)]
    for ngram, times in counts.items():
        vectors[len(ngram) - 1][ngram] = times * rarity.get(ngram, unknown)
    return vectors


def _likeness(mine: list[dict[tuple[str, ...], float]], theirs: list[dict[tuple[str, ...], float]]) -> float:
    """The clipped cosine of each n, averaged. A vector without length is like nothing."""
    total = 0.0
    for g, h in zip(mine, theirs, strict=True):
        lengths = math.sqrt(sum(value**2 for value in g.values()) * sum(value**2 for value in h.values()))
        shared = sum(min(value, h[ngram]) * h[ngram] for ngram, value in g.items() if ngram in h)
        total += shared / lengths if lengths else 0.0
    return total / LONGEST


# --- Uncertainty


def _interval(
    table: np.ndarray, score: Callable[[np.ndarray], float], resamples: int, seed: int
) -> tuple[float, float]:
    """The 95% interval of a score of column means, over pictures drawn anew with replacement (Efron 1979).

    How rare an n-gram is stays as it was counted on all pictures.
    """
    return interval(np.array([score(drawn @ table / len(table)) for drawn in _draws(len(table), resamples, seed)]))


def _draws(pictures: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each picture is drawn: (N,), one test set after another, so that memory stays small."""
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(generator.integers(pictures, size=pictures), minlength=pictures).astype(np.float64)


def _check(outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> None:
    if resamples < 0:
        raise UsageError(f"resamples is {resamples}", "give 0 for no interval, or about 1000")
    if len(outputs) != len(references):
        raise RegardError(
            f"{len(outputs)} outputs but references of {len(references)} pictures",
            "give both for each, in the same order",
        )
    if not len(outputs):
        raise RegardError("nothing to score: 0 outputs and references of 0 pictures")
    for number, each in enumerate(references):
        if isinstance(each, str):
            raise RegardError(f"the references of picture {number} are one text", f"give a list, such as [{each!r}]")
        if not len(each):
            raise RegardError(f"picture {number} has no reference", "give at least one, or leave its output out")
