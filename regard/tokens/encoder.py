"""Many texts -> ids, as `TextTokenizer.encode_all` gives them, at the cost of looking up each word.

Where a tokenizer cuts at every single space, the ids of a text are those of its words, one after the other. A word that came
before is looked up, and only a new one goes to the library: in running text, one of some hundreds. Where each letter is a
token, as of sound and of pictures, all are looked up at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, repeat

import numpy as np

from regard.tokens.tokenizer import TextTokenizer

KNOWN = 500_000  # words that are remembered, some 150 MB; then all are forgotten
NEAR = 64  # characters on either side of a cut, by which is told whether the tokens notice it
TRIED = 50  # places to cut that are tried

Ids = np.ndarray  # (N,), uint32


class Encoder:
    """`encoder(texts)`: the ids of all texts in one array, and how many each has."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        self._words = _cutter(tokenizer.spaces)
        self._labels: dict[str, np.ndarray] = {}
        self._known: dict[str, int] = {}  # the number of each word
        self._ids = np.empty(0, dtype=np.uint32)  # of all known words
        self._lengths = self._starts = np.empty(0, dtype=np.int64)  # of each word among them

    def __call__(self, texts: Sequence[str]) -> tuple[Ids, np.ndarray]:
        if not texts:
            return np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.int64)
        if self.tokenizer.letters is not None:
            return self._by_letters(texts, self.tokenizer.letters)
        return self._by_texts(texts) if self._words is None else self._by_words([self._words(text) for text in texts])

    def _by_texts(self, texts: Sequence[str]) -> tuple[Ids, np.ndarray]:
        found = self.tokenizer.encode_all(texts)
        lengths = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
        return np.fromiter(chain.from_iterable(found), dtype=np.uint32, count=int(lengths.sum())), lengths

    def _by_letters(self, texts: Sequence[str], table: np.ndarray) -> tuple[Ids, np.ndarray]:
        """Of each text a label, if it begins with one, and its letters; a text with others goes to the library."""
        found = list[np.ndarray]()
        for text in texts:
            label, letters = _label_and_letters(text)
            codes = np.frombuffer(letters.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
            if "<" in letters or (len(codes) and codes.max() >= len(table)):
                found.append(np.array(self.tokenizer.encode(text), dtype=np.uint32))
                continue
            found.append(np.concatenate([self._label(label), table[codes]]) if label else table[codes])
        return np.concatenate(found), np.fromiter(map(len, found), dtype=np.int64, count=len(found))

    def _label(self, label: str) -> np.ndarray:
        if label not in self._labels:
            self._labels[label] = np.array(self.tokenizer.encode(label), dtype=np.uint32)
        return self._labels[label]

    def _by_words(self, texts: Sequence[Sequence[str]]) -> tuple[Ids, np.ndarray]:
        words = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        numbers = self._numbers(list(chain.from_iterable(texts)))
        lengths = self._lengths[numbers]
        ends = np.cumsum(lengths)
        places = np.repeat(self._starts[numbers] - (ends - lengths), lengths) + np.arange(ends[-1])
        return self._ids[places], np.add.reduceat(lengths, np.cumsum(words) - words)  # a text has a word, be it empty

    def _numbers(self, words: list[str]) -> np.ndarray:
        """The number of each word; those that are not known yet are encoded first."""
        numbers = np.fromiter(map(self._known.get, words, repeat(-1)), dtype=np.int64, count=len(words))
        missing = np.flatnonzero(numbers < 0).tolist()
        if not missing:
            return numbers
        if self._known and len(self._known) + len(missing) > KNOWN:
            self._forget()
            return self._numbers(words)
        self._learn(list(dict.fromkeys(words[place] for place in missing)))
        numbers[missing] = [self._known[words[place]] for place in missing]
        return numbers

    def _learn(self, words: list[str]) -> None:
        ids, lengths = self._by_texts(words)
        self._known.update(zip(words, range(len(self._known), len(self._known) + len(words)), strict=True))
        self._ids, self._lengths = np.concatenate([self._ids, ids]), np.concatenate([self._lengths, lengths])
        self._starts = np.cumsum(self._lengths) - self._lengths

    def _forget(self) -> None:
        self._known.clear()
        self._ids, self._lengths, self._starts = self._ids[:0], self._lengths[:0], self._starts[:0]

    def cut(self, text: str) -> tuple[int, int] | None:
        """Where a long text can be cut so that its tokens do not notice: the first piece ends, and the rest begins.

        The ids of both are together those of the text, also if more follows. None if no place near the end will do.
        """
        return next((cut for cut in islice(_places(text), TRIED) if self._is_unnoticed(text, *cut)), None)

    def _is_unnoticed(self, text: str, end: int, start: int) -> bool:
        left, right = text[max(0, end - NEAR) : end], text[start : start + NEAR]
        whole, first, second = self.tokenizer.encode_all([left + text[end:start] + right, left, right])
        return whole == first + second


def _label_and_letters(text: str) -> tuple[str, str]:
    """The label in brackets that a text begins with, or "", and the rest."""
    end = text.find(">") + 1 if text.startswith("<") else 0
    return text[:end], text[end:]


def _cutter(spaces: str | None) -> Callable[[str], list[str]] | None:
    """The function that cuts a text into words, at single spaces that "go" or "stay"; None where tokens may cross spaces."""
    if spaces is None:
        return None
    if spaces == "stay":
        return re.compile(r"(?<=\S)(?= \S)").split
    rare = re.compile(r"(?<=\S) (?=\S)").split

    def cut(text: str) -> list[str]:
        words = text.split()  # many times as fast, and right where nothing but single spaces stands between words
        return words if words and " ".join(words) == text else rare(text)

    return cut


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Places to cut a text, the last first: at a single space, which goes or stays; at a line end; anywhere."""
    for found in islice(re.finditer(r"(?<!\s) (?!\s)", text[: -NEAR - 1][::-1]), TRIED // 4):
        if place := len(text) - NEAR - 2 - found.start():
            yield place, place + 1
            yield place, place
    line = text.rfind("\n", 0, -NEAR)
    if line > 0:
        yield line + 1, line + 1
    yield from ((place, place) for place in range(len(text) - NEAR, max(0, len(text) - NEAR - TRIED), -1))
