"""The language of a text by a classifier that has learned names: stretches as long as names vote, as they are and capitalised.

A name begins with a capital in some languages and in others not, so that a classifier of names tells languages by that; in a
sentence it tells nothing. Votes are multiplied: the shares of a text are the softmax of the mean log-probabilities of its
stretches.
"""

from __future__ import annotations

import string

import numpy as np

from regard.predictor import Cancel
from regard.tasks.classify.predictor import TextClassifier

MARKS = string.punctuation + "«»„“”‘’…–—、。！？"  # around words; names have none
WORDS = 4  # of a stretch: names of countries, languages and currencies have at most about as many
LEAST = 1e-4  # of a probability: no stretch alone rules a language out


def language_shares(classifier: TextClassifier, text: str, cancel: Cancel | None = None) -> dict[str, float]:
    """How likely each language is, the likeliest first; a text of a few words is read as the name that it may be."""
    read = _stretches(text)
    found = [each.probabilities for each in classifier.classify(read, cancel=cancel)]
    if len(found) == 1:
        return dict(found[0])
    votes = np.log(np.array([[each[label] for label in found[0]] for each in found]) + LEAST).mean(axis=0)
    shares = np.exp(votes - votes.max())
    shares /= shares.sum()
    told = zip(found[0], shares.tolist(), strict=True)
    return dict(sorted(told, key=lambda each: -each[1]))


def _stretches(text: str) -> list[str]:
    words = [bare for word in text.split() if (bare := word.strip(MARKS))]
    if len(words) <= WORDS:
        return [text]
    cut = [words[place : place + WORDS] for place in range(0, len(words), WORDS)]
    return [" ".join(form(word) for word in each) for each in cut for form in (str, _capital)]


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]
