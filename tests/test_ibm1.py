"""IBM Model 1 against Brown et al.'s equations in plain loops, and on corpora whose alignment is known."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest

from regard.errors import RegardError
from regard.evaluate.alignment import Aligner, Model1

TOY = [("das haus", "the house"), ("das buch", "the book"), ("ein buch", "a book")]


def split(pairs: list[tuple[str, str]]) -> list[tuple[list[str], list[str]]]:
    return [(first.split(), second.split()) for first, second in pairs]


def by_loops(pairs: list[tuple[list[str], list[str]]], rounds: int) -> dict[tuple[str, str], float]:
    """t(f | e) of pairs (e, f), with the empty word, as the paper writes it."""
    t: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        for e, f in pairs:
            for word in f:
                total = sum(t[word, other] for other in ["", *e])
                for other in ["", *e]:
                    counts[word, other] += t[word, other] / total
        sums: dict[str, float] = defaultdict(float)
        for (_, other), count in counts.items():
            sums[other] += count
        t = defaultdict(float, {key: count / sums[key[1]] for key, count in counts.items()})
    return t


def corpus(seed: int, count: int = 60, words: int = 11) -> list[tuple[list[str], list[str]]]:
    """Sentences whose translation is word for word, in another order."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        source = [f"s{draw.randrange(words)}" for _ in range(draw.randint(2, 7))]
        target = [word.replace("s", "t") for word in source]
        draw.shuffle(target)
        pairs.append((source, target))
    return pairs


@pytest.mark.parametrize("rounds", [1, 3])
def test_translation_probabilities_are_those_of_the_equations(rounds: int) -> None:
    pairs = [*split(TOY), *corpus(3, count=13)]
    model, wanted = Model1(pairs, rounds), by_loops(pairs, rounds)
    for (word, other), value in wanted.items():
        assert model.t(word, other or None) == pytest.approx(value, abs=1e-12)
    assert model.t("house", "buch") == 0.0 and model.t("nowhere", "das") == 0.0 and model.t("house", "nowhere") == 0.0


def test_probabilities_of_a_word_sum_to_one() -> None:
    pairs = corpus(5)
    model = Model1(pairs, 4)
    targets = {word for _, f in pairs for word in f}
    for word in [None, *{word for e, _ in pairs for word in e}]:
        assert sum(model.t(target, word) for target in targets) == pytest.approx(1.0)


def test_every_round_raises_the_likelihood() -> None:
    pairs = corpus(7)

    def likelihood(model: Model1) -> float:
        return float(
            np.sum([np.log(np.sum([model.t(word, other) for other in [None, *e]])) for e, f in pairs for word in f])
        )

    values = [likelihood(Model1(pairs, rounds)) for rounds in (1, 2, 4, 8)]
    assert values == sorted(values) and values[0] < values[-1]


def test_the_toy_of_the_textbooks() -> None:
    """das occurs with the and house, but the occurs again without house."""
    aligner = Aligner(split(TOY), rounds=20)
    for source, target in split(TOY):
        assert aligner.links(source, target) == {(0, 0), (1, 1)}


def test_words_that_changed_places_find_each_other() -> None:
    pairs = corpus(11)
    aligner = Aligner(pairs)
    assert aligner.pairs == 60
    for source, target in (pair for pair in pairs if len(set(pair[0])) == len(pair[0])):
        assert aligner.links(source, target) == {
            (s, target.index(word.replace("s", "t"))) for s, word in enumerate(source)
        }


def test_only_links_of_both_directions_are_kept() -> None:
    """The second of two equal target words is nobody's best, so the source word keeps one link."""
    pairs = corpus(13)
    aligner = Aligner(pairs)
    assert aligner.links(["s1", "s2"], ["t2", "t1", "t1"]) == {(0, 1), (1, 0)}


def test_words_never_seen_have_no_link() -> None:
    aligner = Aligner(corpus(17))
    assert aligner.links(["s1", "new"], ["new", "t1"]) == {(0, 1)}
    assert aligner.links([], ["t1"]) == frozenset() and aligner.links(["s1"], []) == frozenset()


def test_sides_that_are_empty_or_endless_are_left_out_of_learning() -> None:
    pairs = corpus(19)
    odd = [([], ["t1"]), (["s1"], []), (["s1"] * 101, ["t9"])]
    assert Model1([*pairs, *odd], 2).t("t1", "s1") == Model1(pairs, 2).t("t1", "s1")
    with pytest.raises(RegardError, match="pairs of 1 to 100 words on each side, and there are none"):
        Model1(odd)


def test_the_likelihood_of_a_word_is_the_mean_over_the_words_it_may_come_from() -> None:
    model = Model1(split(TOY), 3)
    found = model.likelihoods(["das", "buch"], ["the", "book", "nowhere"])
    wanted = [(model.t(f, None) + model.t(f, "das") + model.t(f, "buch")) / 3 for f in ("the", "book", "nowhere")]
    assert found.tolist() == pytest.approx(wanted) and found[2] == 0.0
