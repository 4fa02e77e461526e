"""Built-in pairs of texts with one right answer: sums (Shen et al. 2023), copying, and associative recall."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from string import ascii_lowercase as LETTERS

from regard.data.held_out import hash_of
from regard.errors import UsageError

FORMS = ("addition", "addition-reversed", "addition-padded", "addition-reversed-padded")
MOST_DIGITS = 8  # digits, where nothing else is said
LONGEST = 4000  # digits that Python makes a number of


def addition_pairs(
    form: str, split: str, count: int, most: int = MOST_DIGITS, length: int | None = None, seed: int = 1
) -> list[Pair]:
    """`count` sums of numbers with up to `most` digits, or exactly `length`; the same ones in all forms."""
    if max(most, length or 0) > LONGEST:
        raise UsageError(f"builtin/{form}: numbers have {LONGEST:,} digits at most, not {max(most, length or 0):,}")
    draw = random.Random(f"regard addition {split} {most} {length} {seed}")
    wide = max(most, length or 0) if "padded" in form else 0
    backwards = "reversed" in form
    pairs = []
    for _ in range(count):
        digits = [length or 1 + below(most, draw) for _ in range(2)]
        first, second = _of_split(split, digits, draw)
        total = _written(first + second, wide + 1 if wide else 0, backwards)
        pairs.append((f"{_written(first, wide, backwards)}+{_written(second, wide, backwards)}", total))
    return pairs


def _of_split(split: str, digits: list[int], draw: random.Random) -> list[int]:
    """Two numbers with so many digits that belong to the split."""
    numbers = [_number(count, draw) for count in digits]
    possible = 10 ** sum(digits)  # to the order of magnitude
    while possible > FEW and split_of("{}+{}".format(*sorted(numbers))) != split:
        numbers = [_number(count, draw) for count in digits]
    return numbers


def _number(digits: int, draw: random.Random) -> int:
    """Digit by digit, for a random number has no more than 53 bits; only 0 itself begins with 0."""
    first = below(10, draw) if digits == 1 else 1 + below(9, draw)
    return int("".join(map(str, [first, *(below(10, draw) for _ in range(digits - 1))])))


def _written(number: int, wide: int, backwards: bool) -> str:
    text = str(number).zfill(wide)
    return text[::-1] if backwards else text


MOST_LETTERS = {"copy": 20, "recall": 10}  # letters and keys, where nothing else is said
FEW = 1000  # so many sources of a length are too few to be divided

Pair = tuple[str, str]


def copy_pairs(
    split: str, count: int, most: int = MOST_LETTERS["copy"], length: int | None = None, seed: int = 1
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
    split: str, count: int, most: int = MOST_LETTERS["recall"], length: int | None = None, seed: int = 1
) -> list[Pair]:
    """`count` lists of one to `most` keys with their values, or of exactly `length`, each with a question."""
    keys = _keys(most)
    if max(most, length or 1) > len(keys):
        wanted = f"builtin/recall/{length}/{split}" if length and most < length <= 676 else "676 keys or fewer"
        raise UsageError(f"{max(most, length or 1)} keys cannot differ in {len(keys[0])} letters", f"write {wanted}")
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
