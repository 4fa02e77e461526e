"""Built-in sentences whose answers are known: Spanish from templates, and English with its trees."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from regard.data.builtin import spanish
from regard.data.builtin.sentences import (
    ACTS,
    ARTICLES,
    IDLES,
    NOUNS,
    agreement,
    parse,
    related_words,
    tree_documents,
    tree_sentences,
)
from regard.data.builtin.spanish import countries, days, languages, spanish_pairs
from regard.data.config import PairsConfig, TextConfig
from regard.data.documents import read_documents
from regard.data.pairs import load_pairs, read_pairs
from regard.data.text_sets import load_texts
from regard.errors import UsageError
from regard.look.roles import Looked, Tally, rules_for

# --- Spanish


def test_the_sentences_of_the_lecture_are_among_them() -> None:
    wanted = {
        "Yo soy de Canadá": "I am from Canada",
        "Me puedes traer un tenedor": "Can you bring me a fork",
        "Ella quiere una casa roja": "She wants a red house",
    }
    made: dict[str, str] = {}
    draw = random.Random(1)
    for make in (spanish._from, spanish._ask, spanish._want):
        for _ in range(12_000):
            words, clause = make(draw)
            made[" ".join(words)] = " ".join(word for word, _ in clause)
    assert {source: made.get(source) for source in wanted} == wanted


def test_a_sentence_has_one_translation_and_one_split() -> None:
    of: dict[str, tuple[str, str]] = {}
    for split in ("train", "valid", "test"):
        for pair in spanish_pairs(split, 1500):
            assert of.setdefault(pair.source, (pair.target, split)) == (pair.target, split)
    assert spanish_pairs("test", 50) == spanish_pairs("test", 90)[:50]
    assert len({pair.source for pair in spanish_pairs("train", 3000)}) == 3000


def test_every_english_word_is_linked_and_names_to_their_own() -> None:
    names = dict((*countries(), *days(), *languages()))
    single = {spanish: english for spanish, english in names.items() if " " not in spanish + english}
    seen: Counter[str] = Counter()
    for pair in spanish_pairs("train", 600, 3):
        source, target = pair.source.split(), pair.target.split()
        assert {place for _, place in pair.links} == set(range(len(target)))
        for one, other in pair.links:
            if source[one] in single:
                assert target[other] == single[source[one]]
                seen[source[one]] += 1
    assert len(seen) > 80


def test_nouns_and_adjectives_change_places() -> None:
    noun, adjective = {one for one, *_ in spanish.NOUNS}, dict(spanish.ADJECTIVES)
    turned = 0
    for pair in spanish_pairs("train", 300, 1):
        source, target, links = pair.source.split(), pair.target.split(), dict(pair.links)
        for place, word in enumerate(source[1:], start=1):
            if source[place - 1] in noun and word in adjective:
                turned += 1
                assert target[links[place]] == adjective[word] and links[place - 1] == links[place] + 1
    assert turned > 20


def test_as_many_clauses_as_are_asked_for() -> None:
    longer = read_pairs(["builtin/spanish/test/6"])
    assert len(longer) == 1000 and np.mean([len(source.split()) for source, _ in longer]) > 25
    sets = load_pairs(PairsConfig(train=("builtin/spanish",), builtin_size=700))
    assert (len(sets.train), len(sets.valid)) == (700, 500)
    assert not {source for source, _ in sets.train} & {source for source, _ in sets.valid}
    with pytest.raises(UsageError, match="20 clauses at most"):
        read_pairs(["builtin/spanish/test/21"])


# --- Sentences with their trees


def test_every_sentence_is_read_again_as_it_was_made() -> None:
    """Agreement by hand: verbs with the noun that the tree names, articles with theirs, brackets in pairs."""
    number = {word: many for pair in (*NOUNS, *ACTS, *IDLES) for many, word in enumerate(pair)}
    for sentence in tree_sentences("train", 300):
        words = sentence.split()
        tree = parse(words)
        assert tree is not None and len(tree.heads) == len(words) and min(tree.heads) >= 0
        root = [place for place, head in enumerate(tree.heads) if head == place]
        assert len(root) == 1 and words[root[0]] in {word for pair in (*ACTS, *IDLES) for word in pair}
        for relation, one, other in tree.related:
            assert other < one
            if relation == "subject":
                assert number[words[one]] == number[words[other]]
            elif relation == "article":
                assert words[other] in {pair[number[words[one]]] for pair in ARTICLES}
            else:
                assert (words[one], words[other]) == (")", "(")
                inside = words[other + 1 : one]
                assert inside.count("(") == inside.count(")")
        verbs = sum(word in {each for pair in (*ACTS, *IDLES) for each in pair} for word in words)
        assert sum(relation == "subject" for relation, _, _ in tree.related) == verbs


@pytest.mark.parametrize(
    ("sentence", "heads", "related"),
    [
        ("the queen sings .", [1, 2, 2, 2], {("article", 1, 0), ("subject", 2, 1)}),
        (
            "these wise dogs near the king see a cat .",
            [2, 2, 6, 2, 5, 3, 6, 8, 6, 6],
            {("article", 2, 0), ("article", 5, 4), ("subject", 6, 2), ("article", 8, 7)},
        ),
        (
            "a boy ( some birds ) that",
            None,
            set(),
        ),
        (
            "a boy ( some birds ) runs .",
            [1, 6, 1, 4, 2, 2, 6, 6],
            {("article", 1, 0), ("article", 4, 3), ("bracket", 5, 2), ("subject", 6, 1)},
        ),
        ("a boy run .", None, set()),
        ("some boy runs .", None, set()),
        ("the boys that helps a girl run .", None, set()),
    ],
)
def test_trees_by_hand(sentence: str, heads: list[int] | None, related: set[Any]) -> None:
    tree = parse(sentence.split())
    assert (tree is None) == (heads is None)
    if tree is not None:
        assert tree.heads == heads and set(tree.related) == related


def test_a_window_knows_its_whole_sentences_only() -> None:
    words = ["king", "sings", ".", "the", "queen", "sings", ".", "a", "boy", "(", "some", "birds"]
    assert set(related_words(words)) == {("article", 4, 3), ("subject", 5, 4)}
    assert related_words(["def", "f", "(", "x", ")", ":", "return", "x", "."]) == []


def test_agreement_names_the_verb_and_the_wrong_one() -> None:
    words = ["the", "dogs", "that", "see", "a", "cat", "sleep", "."]
    assert list(agreement(words)) == [(3, "see", "sees"), (6, "sleep", "sleeps")]


def test_documents_and_splits() -> None:
    texts = read_documents(["builtin/sentences/test"], builtin_size=200_000).texts
    assert 5_000 < sum(map(len, texts)) <= 10_000
    assert tree_documents("train", 5000) == tree_documents("train", 9000)[: len(tree_documents("train", 5000))]
    train, test = (set(tree_sentences(split, 2000)) for split in ("train", "test"))
    assert not train & test
    sets = load_texts(TextConfig(train=("builtin/sentences",), valid=("builtin/sentences/valid",), builtin_size=40_000))
    assert len(sets.train) > 20 and len(sets.valid) >= 1
    with pytest.raises(UsageError, match="did you mean test"):
        read_documents(["builtin/sentences/tset"])
    with pytest.raises(UsageError, match="builtin/python, builtin/sentences, builtin/mappings, builtin/canon"):
        read_documents(["builtin/nothing"])


# --- Heads told apart by syntax


def heads_on(sentence: str, *chooses: Any) -> Tally:
    """Maps of causal heads, each of which looks where its function says."""
    words = sentence.split()
    syntax: dict[str, list[tuple[int, int]]] = {}
    for relation, one, other in related_words(words):
        syntax.setdefault(relation, []).append((one, other))
    weights = np.zeros((len(chooses), len(words), len(words)))
    for head, choose in enumerate(chooses):
        for place in range(len(words)):
            weights[head, place, choose(words, place)] = 1.0
    tally = Tally("causal", len(chooses))
    tally.add(Looked(weights, np.tri(len(words), dtype=bool), words, words, None, syntax))
    return tally


LONG = "these small wise kings ( a loud young girl ) sing . every tall queen near the dogs sleeps ."


def test_each_head_is_named_by_the_relation_it_follows() -> None:
    related = {(one, relation): other for relation, one, other in related_words(LONG.split())}

    def follow(relation: str, early: int = 0) -> Any:
        return lambda words, place: related.get((place + early, relation), place)

    relations = ("subject", "article", "bracket")
    follows = [follow(relation, early) for early in (0, 1) for relation in relations]
    tally = heads_on(LONG, *follows, lambda words, place: max(0, place - 1))
    rules = ("subject of a verb", "article of a noun", "opening bracket")
    rules += ("subject of the next verb", "article of the next noun", "bracket to close")
    for head, rule in enumerate(rules):
        found = tally.measures(head)
        assert found[rule].value == pytest.approx(1.0) and found[rule].holds
        assert not any(found[other].holds for other in rules if other != rule)
    before = tally.measures(6)
    assert before["previous token"].holds and not any(before[rule].holds for rule in rules)


def test_texts_without_known_trees_have_nothing_to_measure() -> None:
    tally = heads_on("nobody knows this text here .", lambda words, place: place)
    assert not {rule for rule in tally.measures(0) if "verb" in rule or "bracket" in rule}
    assert {rule.name for rule in rules_for("cross")}.isdisjoint({"subject of a verb", "opening bracket"})
