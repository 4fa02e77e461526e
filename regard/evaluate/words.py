"""Errors of transcripts: words and characters that must be changed, taken out or put in, as a share of the right text's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.evaluate.bootstrap import Estimate, ratios
from regard.evaluate.translation import check_pairs
from regard.files import JSON


@dataclass(frozen=True)
class Edits:
    """The fewest edits from the right sequence to another (Levenshtein 1966)."""

    substitutions: int
    deletions: int
    insertions: int

    @property
    def total(self) -> int:
        return self.substitutions + self.deletions + self.insertions


@dataclass(frozen=True)
class WordScores:
    """Error rates in percent, with 95% intervals by resampling sounds."""

    wer: Estimate  # of words
    cer: Estimate  # of characters
    edits: Edits  # of words, in all
    words: int
    exact: float  # percent of texts without an error

    def data(self) -> dict[str, JSON]:
        return {
            "wer": self.wer.data(),
            "cer": self.cer.data(),
            "substitutions": self.edits.substitutions,
            "deletions": self.edits.deletions,
            "insertions": self.edits.insertions,
            "words": self.words,
            "exact": self.exact,
        }


def edits_between(wanted: Sequence[str], found: Sequence[str]) -> Edits:
    """The fewest substitutions, deletions and insertions that make `found` of `wanted`."""
    row = [(place, 0, 0, place) for place in range(len(found) + 1)]  # (total, substitutions, deletions, insertions)
    for number, word in enumerate(wanted, start=1):
        above, row = row, [(number, 0, number, 0)]
        for place, other in enumerate(found, start=1):
            changed, out, into = above[place - 1], above[place], row[place - 1]
            different = int(word != other)
            row.append(
                min(
                    (changed[0] + different, changed[1] + different, changed[2], changed[3]),
                    (out[0] + 1, out[1], out[2] + 1, out[3]),
                    (into[0] + 1, into[1], into[2], into[3] + 1),
                )
            )
    return Edits(*row[-1][1:])


def score_words(found: Sequence[str], wanted: Sequence[str]) -> WordScores:
    """Word and character error rates of transcripts against the right texts."""
    check_pairs(found, wanted, "transcripts")
    words = [edits_between(right.split(), said.split()) for said, right in zip(found, wanted, strict=True)]
    letters = [edits_between(right, said).total for said, right in zip(found, wanted, strict=True)]
    tops = 100.0 * np.array([[each.total, other] for each, other in zip(words, letters, strict=True)])
    sizes = np.array([[len(right.split()), len(right)] for right in wanted], dtype=np.float64)
    wer, cer = ratios(tops, sizes)
    edits = Edits(
        *(sum(getattr(each, name) for each in words) for name in ("substitutions", "deletions", "insertions"))
    )
    exact = 100 * float(np.mean([each.total == 0 for each in words]))
    return WordScores(wer, cer, edits, int(sizes[:, 0].sum()), exact)
