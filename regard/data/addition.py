"""Built-in pairs of texts that need care with places: sums, written in four ways (Shen et al. 2023).

    builtin/addition                   123+45        ->  168
    builtin/addition-reversed          321+54        ->  861          all numbers with their last digit first
    builtin/addition-padded            00123+00045   ->  000168       all with zeros in front, the sum one digit wider
    builtin/addition-reversed-padded   32100+54000   ->  861000       both

A number is the most digits, as in builtin/addition/5 (8 where nothing is said): each of the two has one to so many, all
equally likely. Behind a split both have exactly so many: builtin/addition/5/test/12. Padded numbers are as wide as the
most digits, or as the exact number where that is more: builtin/addition-padded/8/test/12 pads to 12.

A hash of the two numbers, whichever comes first, divides train, valid and test, about 80, 10 and 10%, alike for all four
forms. Of numbers so short that fewer than a thousand sums exist (one digit with one or two), each split draws from all.
"""

from __future__ import annotations

import random

from regard.data.copying import FEW, Pair, below, split_of
from regard.errors import UsageError

FORMS = ("addition", "addition-reversed", "addition-padded", "addition-reversed-padded")
MOST = 8  # digits, where nothing else is said
LONGEST = 4000  # digits that Python makes a number of


def addition_pairs(
    form: str, split: str, count: int, most: int = MOST, length: int | None = None, seed: int = 1
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
