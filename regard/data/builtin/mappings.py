"""Built-in sequences for learning in context: examples of a mapping that is new in each, so that only the examples tell it.

    k>p d>x k>p u>a d>x                 letters: a table of four letters, drawn for this sequence
    1>0 2>1 0>2 2>1 1>0                 sums: a number added, modulo 3
    lap>PAL tis>SIT nog>GON             words: an order of their three letters, small ones or CAPITALS

(Brown et al. 2020, section 3.9.2, asks GPT-3 for such things.) No table of a test was in training, for its sequences belong
to the split (`split_of`). Of words, two of the twelve rules stand only in tests, though their parts were learned with others;
sums have three rules, and all are learned: only their sequences are new.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from string import ascii_lowercase as LETTERS

from regard.data.builtin.algorithms import Pair, below, split_of
from regard.errors import UsageError, nearest

SPLITS = ("train", "valid", "test")
EXAMPLES = 9  # of a sequence: the last has eight before it
KEYS, DIGITS = 4, 3  # letters of a table; digits of sums
Rule = tuple[tuple[int, ...], bool]  # which letter of a word stands at each place; whether they are capitals
WORD_RULES: tuple[Rule, ...] = tuple((order, capital) for order in permutations(range(3)) for capital in (False, True))
UNSEEN: tuple[Rule, ...] = (((2, 1, 0), True), ((1, 2, 0), False))  # stand only in tests
MAP, BETWEEN = ">", " "

Examples = list[Pair]  # what is mapped, and what to


def letter_examples(draw: random.Random, count: int) -> Examples:
    """Letters by a table of four, each of them drawn for each example."""
    keys = _different(LETTERS, KEYS, draw)
    table = {key: LETTERS[below(26, draw)] for key in keys}
    return [(key, table[key]) for key in (keys[below(KEYS, draw)] for _ in range(count))]


def sum_examples(draw: random.Random, count: int) -> Examples:
    """Digits, and each with the same number added, modulo 3."""
    more = below(DIGITS, draw)
    digits = [below(DIGITS, draw) for _ in range(count)]
    return [(str(digit), str((digit + more) % DIGITS)) for digit in digits]


def word_examples(draw: random.Random, count: int) -> Examples:
    """Words of three different letters, in another order, in small letters or capitals; not by the rules of the tests."""
    rules = [rule for rule in WORD_RULES if rule not in UNSEEN]
    return _by_rule(rules[below(len(rules), draw)], draw, count)


def unseen_word_examples(draw: random.Random, count: int) -> Examples:
    """Words by a rule that stands only in tests."""
    return _by_rule(UNSEEN[below(len(UNSEEN), draw)], draw, count)


def _by_rule(rule: Rule, draw: random.Random, count: int) -> Examples:
    order, capital = rule
    words = ["".join(_different(LETTERS, 3, draw)) for _ in range(count)]
    mapped = ["".join(word[place] for place in order) for word in words]
    return [(word, found.upper() if capital else found) for word, found in zip(words, mapped, strict=True)]


def _different(items: Sequence[str], count: int, draw: random.Random) -> list[str]:
    """So many items, no two alike."""
    rest = list(items)
    return [rest.pop(below(len(rest), draw)) for _ in range(count)]


MAPPINGS: dict[str, Callable[[random.Random, int], Examples]] = {
    "letters": letter_examples,
    "sums": sum_examples,
    "words": word_examples,
    "words, unseen rule": unseen_word_examples,
}
LEARNED = ("letters", "sums", "words")  # those that training has


def mapping_examples(mapping: str, split: str, count: int, examples: int = EXAMPLES, seed: int = 1) -> list[Examples]:
    """`count` sequences of one mapping and one split; those that stand only in tests have no others."""
    if mapping not in MAPPINGS:
        raise UsageError(f"there is no mapping {mapping!r}", nearest(mapping, MAPPINGS))
    if mapping not in LEARNED and split != "test":
        raise UsageError(f"{mapping!r} stands only in tests, not in {split}")
    draw = random.Random(f"regard mappings {mapping} {split} {seed}")
    found: list[Examples] = []
    while len(found) < count:
        made = MAPPINGS[mapping](draw, examples)
        if split_of(written(made)) == split:
            found.append(made)
    return found


def written(examples: Examples) -> str:
    """The text of a sequence."""
    return BETWEEN.join(f"{source}{MAP}{target}" for source, target in examples)


def mapping_documents(split: str, characters: int) -> Iterator[str]:
    """Sequences of all mappings in turn, each a document, with about so many characters together."""
    if split not in SPLITS:
        raise UsageError(f"there is no builtin/mappings/{split}", nearest(split, SPLITS))
    draw, made, number = random.Random(f"regard mappings {split}"), 0, 0
    mappings = LEARNED if split != "test" else tuple(MAPPINGS)
    while made < characters:
        text = written(MAPPINGS[mappings[number % len(mappings)]](draw, EXAMPLES))
        if split_of(text) == split:
            yield text
            made, number = made + len(text), number + 1


def best_guess(mapping: str, before: int) -> float:
    """The share of right answers of whoever knows how sequences are made, with so many examples before the question.

    letters: a key that was shown has one answer, another one of 26; sums and words: one example tells the rule.
    """
    if mapping == "letters":
        shown = 1 - (1 - 1 / KEYS) ** before
        return shown + (1 - shown) / len(LETTERS)
    if before:
        return 1.0
    return {"sums": 1 / DIGITS, "words": 1 / (len(WORD_RULES) - len(UNSEEN))}.get(mapping, 0.0)
