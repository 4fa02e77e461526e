"""TF-IDF, attention that is counted and not learned (Spärck Jones 1972): the lecture's formula beside the smoothed one.

weight = tf · log(N / n_j);   smoothed (scikit-learn's): tf · (log((1 + N) / (1 + n_j)) + 1), each text of length 1

tf is how often a word occurs in a text, n_j in how many of the N texts it occurs; logarithms are natural.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from regard.errors import UsageError
from regard.look.walk.examples.given import check_names
from regard.look.walk.steps import (
    About,
    Array,
    Numbers,
    Step,
    Walk,
    WorkedLine,
    column,
    counted,
    quoted_text,
    quoted_token,
)

TEXTS = ("the dog bit the man", "the man fed the dog", "the cat saw the bird", "the bird sang")
KEYS = ("texts",)
MOST_WORDS = 40  # different ones, that a person can follow


def count_walk(query: int | str | None = None) -> Walk:
    """TF-IDF of four short texts."""
    if query is not None:
        raise UsageError("weights that are counted have no query", "leave out the query")
    return texts_walk(TEXTS)


def read_texts(values: Mapping[str, object], name: str, query: int | str | None) -> Walk:
    """TF-IDF of a person's own texts: {"texts": ["...", "..."]}."""
    check_names(values, KEYS, KEYS, name)
    texts = values["texts"]
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) and words_of(each) for each in texts):
        raise UsageError(f"{name}: texts is no list of texts with words in them", '["one text", "another"]')
    if query is not None:
        raise UsageError("weights that are counted have no query", "leave out the query")
    return texts_walk(texts)


def words_of(text: str) -> list[str]:
    """The words of a text, small."""
    return re.findall(r"\w+", text.lower())


def texts_walk(texts: Sequence[str]) -> Walk:
    """Counts, rarity by both formulas, and the weights that both give."""
    split = [words_of(text) for text in texts]
    words = tuple(dict.fromkeys(word for each in split for word in each))
    if len(words) > MOST_WORDS:
        raise UsageError(f"the texts have {len(words)} different words; a walk goes through at most {MOST_WORDS}")
    tf = np.array([[each.count(word) for word in words] for each in split], dtype=np.float64)  # (N, words)
    rows = tuple(f"text {number}" for number in range(1, len(texts) + 1))
    occurs = (tf > 0).sum(axis=0)
    lecture = np.log(len(texts) / occurs)
    smoothed = np.log((1 + len(texts)) / (1 + occurs)) + 1
    plain, long = tf * lecture, tf * smoothed
    length = np.linalg.norm(long, axis=1, keepdims=True)
    steps = (
        _counts(texts, tf, rows, words),
        _rarity(len(texts), occurs, lecture, smoothed, words),
        _lecture(tf, lecture, plain, rows, words),
        _smoothed(long, length, rows, words),
        _beside(tf, plain, long / length, rows, words),
    )
    about: About = {"role": "pool", "queries": list(rows), "keys": list(words)}
    sizes = f"{counted(len(texts), 'text')}, {counted(len(words), 'word')}"
    summary = f"{sizes}: a word weighs much if it is here often and elsewhere seldom."
    return Walk("TF-IDF: weights that are counted", summary, steps, about)


def _counts(texts: Sequence[str], tf: Array, rows: tuple[str, ...], words: tuple[str, ...]) -> Step:
    told = "; ".join(f"{row}: {quoted_text(text)}" for row, text in zip(rows, texts, strict=True))
    return Step("How often each word occurs", "tf", f"{told}.", (Numbers("tf", tf, rows, words, shading="weight"),))


def _rarity(texts: int, occurs: Array, lecture: Array, smoothed: Array, words: tuple[str, ...]) -> Step:
    most, least = int(occurs.argmax()), int(occurs.argmin())
    text = (
        f"In how many of the {counted(texts, 'text')} a word occurs, n_j, and what its rarity counts for. "
        f"{quoted_token(words[most])} occurs in {occurs[most]}: by the lecture's formula "
        + ("it weighs nothing at all, whatever the text" if occurs[most] == texts else "it weighs least")
        + ". The smoothed one adds a text in which every word occurs, so that nothing is divided by zero, and 1, so that "
        "nothing weighs nothing."
    )
    arrays = (
        column("n_j", occurs, words, shading="plain"),
        column("log(N / n_j)", lecture, words, shading="weight", beside=True),
        column("smoothed idf", smoothed, words, shading="weight", beside=True),
    )
    word, numbers = words[least], (float(texts), float(occurs[least]))
    by_lecture, by_smooth = (*numbers, float(lecture[least])), (*numbers, float(smoothed[least]))
    lines = (
        WorkedLine(f"{word}: log({{}} / {{}}) = {{}}", by_lecture, ("log(N / n_j)", least, 0)),
        WorkedLine(f"{word}: log((1 + {{}}) / (1 + {{}})) + 1 = {{}}", by_smooth, ("smoothed idf", least, 0)),
    )
    return Step("How rare each word is", "log(N / n_j)   and   log((1 + N) / (1 + n_j)) + 1", text, arrays, lines)


def _lecture(tf: Array, lecture: Array, plain: Array, rows: tuple[str, ...], words: tuple[str, ...]) -> Step:
    best = int(plain[0].argmax())
    numbers = (float(tf[0, best]), float(lecture[best]), float(plain[0, best]))
    line = WorkedLine(f"{words[best]} in text 1: {{}} · {{}} = {{}}", numbers, ("tf · log(N / n_j)", 0, best))
    text = (
        f"In text 1 {quoted_token(words[best])} counts most. Weights are the same whatever is asked: static attention."
    )
    arrays = (Numbers("tf · log(N / n_j)", plain, rows, words, shading="weight"),)
    return Step("The lecture's weights", "tf · log(N / n_j)", text, arrays, (line,))


def _smoothed(long: Array, length: Array, rows: tuple[str, ...], words: tuple[str, ...]) -> Step:
    found = long / length
    best = int(found[0].argmax())
    arrays = (
        Numbers("tf · smoothed idf", long, rows, words, shading="weight"),
        column("length", length, rows, shading="plain"),
        Numbers("smoothed weights", found, rows, words, shading="weight"),
    )
    numbers = (float(long[0, best]), float(length[0, 0]), float(found[0, best]))
    line = WorkedLine(f"{words[best]} in text 1: {{}} / {{}} = {{}}", numbers, ("smoothed weights", 0, best))
    text = (
        "Each text is divided by its length, so that long texts do not weigh more: what `regard train classify` with "
        "model.kind=tfidf, and scikit-learn, count."
    )
    return Step("The smoothed weights", "tf · idf / ‖tf · idf‖", text, arrays, (line,))


def _beside(tf: Array, plain: Array, found: Array, rows: tuple[str, ...], words: tuple[str, ...]) -> Step:
    here = [place for place in range(len(words)) if tf[0, place]]
    named = tuple(words[place] for place in here)
    shares = [
        each[0, here] / each[0, here].sum() if each[0, here].sum() > 0 else each[0, here] for each in (plain, found)
    ]
    text = (
        "Text 1 by both, as shares of one: attention that a person chose. What a word means, which words stand beside it and "
        "what is asked do not count; that is what learned attention adds."
    )
    arrays = (
        column("share by the lecture", shares[0], named, shading="weight"),
        column("share, smoothed", shares[1], named, shading="weight", beside=True),
    )
    place = int(np.argmax(shares[0]))
    total = float(plain[0, here].sum())
    numbers = (float(plain[0, here[place]]), total if total else math.nan, float(shares[0][place]))
    lines = (
        (WorkedLine(f"{named[place]}: {{}} / {{}} = {{}}", numbers, ("share by the lecture", place, 0)),)
        if total
        else ()
    )
    return Step("Text 1 by both formulas", "weight / Σ weights", text, arrays, lines)
