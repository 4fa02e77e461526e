"""The built-in sentences whose trees are known: what agrees with what over a distance, for telling heads apart by syntax.

    these small dogs near the king see a cat .
    the queen ( a wise friend ( some birds ) ) sings .

A verb agrees in number with its subject, however many words stand between (Linzen et al. 2016); an article agrees with its
noun; what is opened in brackets is closed. The grammar has one reading for each sentence, so that `parse` finds the tree again
in the words alone, in whatever windows a model reads them:

    sentence   phrase verb [phrase] .                  the verb as many as the noun of the first phrase
    phrase     article adjective* noun [modifier]      the article as many as the noun
    modifier   preposition phrase | "that" verb phrase | "(" phrase ")"
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from regard.data.builtin.algorithms import below, split_of
from regard.errors import UsageError, nearest

Relation = Literal["subject", "article", "bracket"]
RELATIONS: dict[Relation, str] = {
    "subject": "the subject of a verb",
    "article": "the article of a noun",
    "bracket": "the bracket that a bracket closes",
}
SPLITS = ("train", "valid", "test")

# One and many of each.
NOUNS = (
    ("dog", "dogs"), ("cat", "cats"), ("boy", "boys"), ("girl", "girls"), ("king", "kings"), ("queen", "queens"),
    ("farmer", "farmers"), ("doctor", "doctors"), ("friend", "friends"), ("bird", "birds"), ("horse", "horses"),
    ("teacher", "teachers"), ("man", "men"), ("woman", "women"), ("child", "children"), ("mouse", "mice"),
)  # fmt: skip
ACTS = (
    ("sees", "see"),
    ("likes", "like"),
    ("follows", "follow"),
    ("helps", "help"),
    ("knows", "know"),
    ("finds", "find"),
)
IDLES = (("sleeps", "sleep"), ("runs", "run"), ("sings", "sing"), ("waits", "wait"), ("laughs", "laugh"))
ARTICLES = (("a", "some"), ("this", "these"), ("every", "many"), ("the", "the"))
ADJECTIVES = ("loud", "small", "happy", "tall", "wise", "young")
PREPOSITIONS = ("near", "behind", "with", "beside")
THAT, OPEN, CLOSE, END = "that", "(", ")", "."

_NOUN = {word: number for pair in NOUNS for number, word in enumerate(pair)}
_ACT = {word: number for pair in ACTS for number, word in enumerate(pair)}
_IDLE = {word: number for pair in IDLES for number, word in enumerate(pair)}
_ARTICLE = {word for pair in ARTICLES for word in pair}
Item = TypeVar("Item")


@dataclass(eq=False)
class Tree:
    """Words, the word that each belongs to (its head; the verb of the sentence to itself), and what is related."""

    words: list[str]
    heads: list[int] = field(default_factory=list)
    related: list[tuple[Relation, int, int]] = field(default_factory=list)  # relation, who looks, at whom


def tree_sentences(split: str, count: int, seed: int = 1, depth: int = 2) -> list[str]:
    """`count` sentences of one split, modifiers nested to a `depth`; a larger count goes on where a smaller ended."""
    if split not in SPLITS:
        raise UsageError(f"there is no split {split!r}", nearest(split, SPLITS))
    draw = random.Random(f"regard sentences {split} {seed} {depth}")
    found: list[str] = []
    while len(found) < count:
        sentence = " ".join(_sentence(depth, draw))
        if split_of(sentence) == split:
            found.append(sentence)
    return found


def tree_documents(split: str, characters: int, together: int = 20) -> list[str]:
    """Documents of `together` sentences, a line each, at most so many characters in all."""
    sentences = tree_sentences(split, max(1, characters // 40))  # which have some 60 characters
    texts = ["\n".join(sentences[at : at + together]) + "\n" for at in range(0, len(sentences), together)]
    kept: list[str] = []
    room = characters
    for text in texts:
        if len(text) > room and kept:
            break
        kept.append(text)
        room -= len(text)
    return kept


def _sentence(depth: int, draw: random.Random) -> list[str]:
    many, subject = _phrase(depth, draw)
    if below(2, draw):
        return [*subject, _pick(IDLES, draw)[many], END]
    return [*subject, _pick(ACTS, draw)[many], *_phrase(depth - 1, draw)[1], END]


def _phrase(depth: int, draw: random.Random) -> tuple[int, list[str]]:
    """Whether it is of several (0 or 1), and its words; a phrase to the left of its verb is seldom without a modifier."""
    many = below(2, draw)
    adjectives = [_pick(ADJECTIVES, draw) for _ in range(max(0, below(4, draw) - 1))]
    words = [_pick(ARTICLES, draw)[many], *adjectives, _pick(NOUNS, draw)[many]]
    if depth > 0 and below(4, draw):
        words += _modifier(depth - 1, many, draw)
    return many, words


def _modifier(depth: int, many: int, draw: random.Random) -> list[str]:
    inner = _phrase(depth, draw)[1]
    return (
        [_pick(PREPOSITIONS, draw), *inner],
        [THAT, _pick(ACTS, draw)[many], *inner],
        [OPEN, *inner, CLOSE],
    )[below(3, draw)]


# --- The tree again, from the words alone


def parse(words: Sequence[str]) -> Tree | None:
    """The tree of one sentence, END included; None where the words are none of this grammar."""
    reader = _Reader(list(words))
    try:
        reader.sentence()
    except (_NoSentence, IndexError):
        return None
    return reader.tree if reader.at == len(words) else None


def related_words(words: Sequence[str]) -> list[tuple[Relation, int, int]]:
    """Relations within the whole sentences of a longer text: (relation, who looks, at whom), by places of words."""
    found: list[tuple[Relation, int, int]] = []
    start = 0
    for place, word in enumerate(words):
        if word == END:
            tree = parse(words[start : place + 1])  # of a window that begins within a sentence, that one is none
            related = [] if tree is None else tree.related
            found += [(relation, start + one, start + other) for relation, one, other in related]
            start = place + 1
    return found


class _NoSentence(Exception):
    pass


class _Reader:
    """Reads a sentence word by word; each rule of the grammar is one method."""

    def __init__(self, words: list[str]) -> None:
        self.at, self.tree = 0, Tree(words, [-1] * len(words))

    def sentence(self) -> None:
        subject = self.phrase()
        verb = self.verb(subject, {**_ACT, **_IDLE})
        self.own(verb, verb)
        self.own(subject, verb)
        if self.word(verb) in _ACT:
            self.own(self.phrase(), verb)
        self.own(self.take({END}), verb)

    def phrase(self) -> int:
        """The place of the noun."""
        before = [self.take(_ARTICLE)]
        while self.tree.words[self.at] in ADJECTIVES:
            before.append(self.take(set(ADJECTIVES)))
        noun = self.take(set(_NOUN))
        if self.word(before[0]) not in {pair[_NOUN[self.word(noun)]] for pair in ARTICLES}:
            raise _NoSentence
        for each in before:
            self.own(each, noun)
        self.tree.related.append(("article", noun, before[0]))
        self.modifier(noun)
        return noun

    def modifier(self, noun: int) -> None:
        word = self.tree.words[self.at]
        if word in PREPOSITIONS:
            preposition = self.take(set(PREPOSITIONS))
            self.own(preposition, noun)
            self.own(self.phrase(), preposition)
        elif word == THAT:
            that = self.take({THAT})
            verb = self.verb(noun, _ACT)
            self.own(that, verb)
            self.own(verb, noun)
            self.own(self.phrase(), verb)
        elif word == OPEN:
            opened = self.take({OPEN})
            self.own(opened, noun)
            self.own(self.phrase(), opened)
            closed = self.take({CLOSE})
            self.own(closed, opened)
            self.tree.related.append(("bracket", closed, opened))

    def verb(self, subject: int, known: dict[str, int]) -> int:
        verb = self.take(set(known))
        if known[self.word(verb)] != _NOUN[self.word(subject)]:
            raise _NoSentence
        self.tree.related.append(("subject", verb, subject))
        return verb

    def take(self, known: set[str]) -> int:
        if self.tree.words[self.at] not in known:
            raise _NoSentence
        self.at += 1
        return self.at - 1

    def own(self, word: int, head: int) -> None:
        self.tree.heads[word] = head

    def word(self, place: int) -> str:
        return self.tree.words[place]


def agreement(words: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """The place of each verb of a sentence, the verb, and the same verb in the wrong number: a test of agreement."""
    tree = parse(words)
    others = {word: pair[1 - number] for pair in (*ACTS, *IDLES) for number, word in enumerate(pair)}
    for relation, verb, _ in [] if tree is None else tree.related:
        if relation == "subject":
            yield verb, words[verb], others[words[verb]]


def _pick(items: Sequence[Item], draw: random.Random) -> Item:
    return items[below(len(items), draw)]
