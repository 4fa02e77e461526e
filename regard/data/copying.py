"""Built-in pairs of texts that need memory: copying, and associative recall.

    builtin/copy      hqzab          ->  hqzab    one to 20 random letters (Graves et al. 2014, section 4.1)
    builtin/recall    a 3 k 7 q 1 k  ->  7        one to 10 letters with a digit each, then one of them again
                                                  (Ba et al. 2016, section 4.1)

A number is the most letters or keys, as in builtin/copy/40; behind a split it is exactly so many: builtin/copy/test/80,
builtin/recall/10/test/20. Lengths are equally likely. Recall of more than 26 keys has keys of two letters.

A hash of the source divides train, valid and test, about 80, 10 and 10%. Where a length has fewer than a thousand
sources (one or two letters, one key), each split draws from all of them, so these repeat, and validation says how many.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from string import ascii_lowercase as LETTERS

from regard.data.held_out import hash_of
from regard.errors import UsageError

MOST = {"copy": 20, "recall": 10}  # letters and keys, where nothing else is said
FEW = 1000  # so many sources of a length are too few to be divided

Pair = tuple[str, str]


def copy_pairs(
    split: str, count: int, most: int = MOST["copy"], length: int | None = None, seed: int = 1
) -> list[Pair]:
    """`count` texts of one to `most` letters, or of exactly `length`; a larger count goes on where a smaller ended."""
    draw = random.Random(f"regard copy {split} {most} {length} {seed}")
    pairs = []
    for _ in range(count):
        letters = length or 1 + below(most, draw)
        text = of_split(split, 26**letters, partial(_letters, letters, draw))
        pairs.append((text, text))
    return pairs


def recall_pairs(
    split: str, count: int, most: int = MOST["recall"], length: int | None = None, seed: int = 1
) -> list[Pair]:
    """`count` lists of one to `most` keys with their values, or of exactly `length`, each with a question."""
    keys = _keys(most)
    if max(most, length or 1) > len(keys):
        wanted = f"builtin/recall/{length}/{split}" if length and most < length <= 676 else "676 keys or fewer"
        raise UsageError(f"{max(most, length or 1)} keys cannot differ in {len(keys[0])} letters; write {wanted}")
    draw = random.Random(f"regard recall {split} {most} {length} {seed}")
    pairs = []
    for _ in range(count):
        listed = length or 1 + below(most, draw)
        possible = math.perm(len(keys), listed) * 10**listed * listed
        source = of_split(split, possible, partial(_recall, keys, listed, draw))
        words = source.split(" ")
        pairs.append((source, words[words.index(words[-1]) + 1]))
    return pairs


def of_split(split: str, possible: int, make: Callable[[], str]) -> str:
    """One of the texts that `make` gives which belongs to the split; where only few are possible, any of them."""
    text = make()
    while possible >= FEW and split_of(text) != split:
        text = make()
    return text


def split_of(text: str) -> str:
    """The split that a generated text belongs to, for ever."""
    share = hash_of("regard " + text) % 100
    return "train" if share < 80 else "valid" if share < 90 else "test"


def below(bound: int, draw: random.Random) -> int:
    """A number from 0 to bound - 1. Python promises the same `random()` in every version, but no more than that."""
    return int(draw.random() * bound)


def _letters(count: int, draw: random.Random) -> str:
    return "".join(LETTERS[below(26, draw)] for _ in range(count))


def _keys(most: int) -> list[str]:
    return list(LETTERS) if most <= 26 else [first + second for first in LETTERS for second in LETTERS]


def _recall(keys: list[str], count: int, draw: random.Random) -> str:
    """Distinct keys, each with its value, and one of the keys."""
    chosen = list(keys)
    for place in range(count):
        other = place + below(len(chosen) - place, draw)
        chosen[place], chosen[other] = chosen[other], chosen[place]
    listed = [f"{key} {below(10, draw)}" for key in chosen[:count]]
    return " ".join([*listed, chosen[below(count, draw)]])
