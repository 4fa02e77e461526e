"""A text as words, characters, bytes and byte pairs; and byte pairs as they are learned, one merge after another.

Byte-pair encoding (Gage 1994; for words Sennrich et al. 2016; from bytes Radford et al. 2019) begins with 256 bytes and
joins the pair that stands side by side most often, again and again. It joins nothing across words, so that a word has its
pieces wherever it stands; a space belongs to the word behind it. Any Unicode string can be written in these pieces.

This is the plain form, for looking at: `tokenizer.py` trains and runs the real ones.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

Pair = tuple[bytes, bytes]
Piece = bytes

WORD = re.compile(r"\w+|[^\w\s]")  # words of a person: letters and digits, or one other sign
SPACED = re.compile(r" ?\S+|\s+")  # words of byte pairs: what stands between white space, with the space before it


@dataclass(frozen=True)
class Level:
    """A text cut in one way."""

    name: str
    tokens: tuple[str, ...]
    alphabet: str  # how many different tokens there can be


@dataclass(frozen=True)
class Merge:
    """Two pieces that became one: how often they stood side by side, and how many pieces all the text has since."""

    left: Piece
    right: Piece
    count: int
    pieces: int

    @property
    def joined(self) -> Piece:
        return self.left + self.right


def levels(text: str, merges: Sequence[Merge]) -> list[Level]:
    """The text at four levels, from the coarsest to bytes, and in the pieces of some merges."""
    raw = text.encode("utf-8")
    return [
        Level("words", tuple(WORD.findall(text)), "as many as there are words, and new ones every day"),
        Level("characters", tuple(text), "about 150,000 in Unicode"),
        Level("bytes", tuple(f"{byte:02x}" for byte in raw), "256"),
        Level("byte pairs", tuple(map(shown, pieces_of(text, merges))), f"256 + {len(merges):,}"),
    ]


def learn_merges(texts: Iterable[str], most: int, least: int = 2) -> Iterator[Merge]:
    """At most so many merges, the most frequent pair first; of equals, the one whose bytes come first.

    A pair that stands side by side fewer than `least` times is not joined. Counts of pairs are kept from merge to merge: only
    words that have the pair are looked at again, and a heap tells the most frequent one; of its entries those count that are
    still true.
    """
    counts = Counter(word for text in texts for word in SPACED.findall(text))
    words = [[bytes([byte]) for byte in word.encode("utf-8")] for word in counts]
    often = list(counts.values())
    pieces = sum(len(word) * times for word, times in zip(words, often, strict=True))
    pairs, where = _count_pairs(words, often)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapify(heap)
    learned = 0
    while heap and learned < most:
        count, pair = heappop(heap)
        if pairs[pair] != -count or -count < least:
            continue
        changed: set[Pair] = set()
        for number in where.pop(pair):
            before, times = words[number], often[number]
            after = words[number] = joined_in(before, pair)
            pieces -= (len(before) - len(after)) * times
            changed |= _recount(before, after, number, times, pairs, where)
        for each in changed - {pair}:
            heappush(heap, (-pairs[each], each))
        learned += 1
        yield Merge(*pair, -count, pieces)


def _count_pairs(words: list[list[Piece]], often: list[int]) -> tuple[Counter[Pair], defaultdict[Pair, set[int]]]:
    """How often each pair stands side by side in all words, and in which words."""
    pairs: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for number, (word, times) in enumerate(zip(words, often, strict=True)):
        for pair in pairwise(word):
            pairs[pair] += times
            where[pair].add(number)
    return pairs, where


def _recount(
    before: list[Piece],
    after: list[Piece],
    number: int,
    times: int,
    pairs: Counter[Pair],
    where: defaultdict[Pair, set[int]],
) -> set[Pair]:
    """Take the pairs of a word as it was out of the counts, and put those in that it has now; which counts changed."""
    gone, come = Counter(pairwise(before)), Counter(pairwise(after))
    changed = {pair for pair in gone | come if gone[pair] != come[pair]}
    for pair in changed:
        pairs[pair] += (come[pair] - gone[pair]) * times
    for pair in come:
        where[pair].add(number)
    return changed


def joined_in(word: Sequence[Piece], pair: Pair) -> list[Piece]:
    """The word with each occurrence of the pair as one piece, from the left."""
    found: list[Piece] = []
    place = 0
    while place < len(word):
        if place + 1 < len(word) and (word[place], word[place + 1]) == pair:
            found.append(word[place] + word[place + 1])
            place += 2
        else:
            found.append(word[place])
            place += 1
    return found


def pieces_of(text: str, merges: Sequence[Merge]) -> list[Piece]:
    """The text in pieces: in each word, merges are made in the order in which they were learned."""
    ranks = {(merge.left, merge.right): rank for rank, merge in enumerate(merges)}
    return [piece for word in SPACED.findall(text) for piece in _merged(word, ranks)]


def _merged(word: str, ranks: dict[Pair, int]) -> list[Piece]:
    pieces = [bytes([byte]) for byte in word.encode("utf-8")]
    while len(pieces) > 1:
        pairs = set(pairwise(pieces))
        first = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
        if first not in ranks:
            break
        pieces = joined_in(pieces, first)
    return pieces


def lengths_by_size(texts: Sequence[str], merges: Sequence[Merge], sizes: Sequence[int]) -> list[float]:
    """Pieces for each character of texts, with 256 bytes and so many merges as each size leaves."""
    characters = sum(map(len, texts))
    return [sum(len(pieces_of(text, merges[: max(0, size - 256)])) for text in texts) / characters for size in sizes]


def shown(piece: Piece) -> str:
    """A piece for a person: its text, or its bytes where they are only a part of a character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<{byte:02x}>" for byte in piece)
