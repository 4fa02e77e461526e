"""Learning in context: built-in mappings by their rules, what must not stand in training, answers as a model writes them."""

from __future__ import annotations

import random
from itertools import islice, product

import numpy as np
import pytest
import torch

from regard.cli.main import run
from regard.data.builtin.algorithms import split_of
from regard.data.builtin.mappings import (
    BETWEEN,
    EXAMPLES,
    KEYS,
    LEARNED,
    MAPPINGS,
    UNSEEN,
    WORD_RULES,
    best_guess,
    mapping_documents,
    mapping_examples,
    written,
)
from regard.data.documents import read_documents
from regard.errors import UsageError
from regard.experiments.in_context import answers, right_by_examples
from regard.tasks.generate.predictor import Generator


def pairs_of(text: str) -> list[tuple[str, str]]:
    return [(word.split(">")[0], word.split(">")[1]) for word in text.split(BETWEEN)]


def word_rules(pairs: list[tuple[str, str]]) -> set[tuple[tuple[int, ...], bool]]:
    """The rules by which all pairs of words hold, tried one by one."""

    def mapped(source: str, order: tuple[int, ...], capital: bool) -> str:
        found = "".join(source[place] for place in order)
        return found.upper() if capital else found

    return {rule for rule in WORD_RULES if all(mapped(source, *rule) == target for source, target in pairs)}


def kind_of(text: str) -> str:
    source, _ = pairs_of(text)[0]
    return "words" if len(source) == 3 else "sums" if source.isdigit() else "letters"


@pytest.mark.parametrize("split", ["train", "test"])
def test_each_sequence_has_one_rule_of_its_own(split: str) -> None:
    texts = list(mapping_documents(split, 20_000))
    assert 20_000 <= sum(map(len, texts)) < 20_100 and all(split_of(text) == split for text in texts)
    rules: set[tuple[tuple[int, ...], bool]] = set()
    for text in texts:
        pairs = pairs_of(text)
        assert len(pairs) == EXAMPLES
        match kind_of(text):
            case "letters":
                assert len(dict(pairs)) == len(set(pairs)) <= KEYS  # a key has one value
            case "sums":
                assert len({(int(target) - int(source)) % 3 for source, target in pairs}) == 1
            case _:
                assert len(word_rules(pairs)) == 1  # and no other
                rules |= word_rules(pairs)
    learned = set(WORD_RULES) - set(UNSEEN)
    assert rules == (learned if split == "train" else set(WORD_RULES))
    kinds = [kind_of(text) for text in texts]
    assert {kinds.count(kind) for kind in LEARNED} <= set(range(len(texts) // 4 - 1, len(texts) // 2 + 2))


def test_no_sequence_of_a_test_is_learned_from() -> None:
    learned = set(mapping_documents("train", 60_000))
    tested = {written(each) for mapping in MAPPINGS for each in mapping_examples(mapping, "test", 53)}
    assert not learned & tested and all(split_of(text) == "test" for text in tested)
    assert list(islice(mapping_documents("train", 900), 5)) == list(islice(mapping_documents("train", 60_000), 5))
    unseen = [word_rules(each) for each in mapping_examples("words, unseen rule", "test", 19)]
    assert all(rules <= set(UNSEEN) for rules in unseen)
    for split in ("train", "valid"):
        with pytest.raises(UsageError, match="stands only in tests"):
            mapping_examples("words, unseen rule", split, 1)


def test_they_are_read_as_documents_and_a_wrong_split_is_told() -> None:
    assert read_documents(["builtin/mappings"], builtin_size=700).texts == list(mapping_documents("train", 700))
    assert read_documents(["builtin/mappings/test"], builtin_size=9_000).texts == list(mapping_documents("test", 450))
    with pytest.raises(UsageError, match="did you mean test"):
        read_documents(["builtin/mappings/tset"])
    with pytest.raises(UsageError, match="builtin/mappings"):
        read_documents(["builtin/mapping"])


@pytest.mark.parametrize("before", [0, 1, 3, 5])
def test_the_best_guess_by_counting_all_sequences_of_keys(before: int) -> None:
    """A key that was shown is known, another is one letter of 26."""
    every = list(product(range(KEYS), repeat=before + 1))
    known = sum(keys[-1] in keys[:-1] for keys in every) / len(every)
    assert best_guess("letters", before) == pytest.approx(known + (1 - known) / 26)
    assert best_guess("sums", before) == (1.0 if before else pytest.approx(1 / 3))
    assert best_guess("words", before) == (1.0 if before else pytest.approx(0.1))
    assert best_guess("words, unseen rule", before) == (1.0 if before else 0.0)


def test_an_answer_is_right_if_all_its_letters_are() -> None:
    examples = [("ab", "ba"), ("c", "x"), ("de", "ed")]  # "ab>ba c>x de>ed": answers at 3-4, 8, 13-14
    right = np.ones(15, dtype=bool)
    assert answers(right, examples) == [True, True, True]
    for place, wanted in (
        (4, [False, True, True]),
        (8, [True, False, True]),
        (13, [True, True, False]),
        (5, [True] * 3),
    ):
        missed = right.copy()
        missed[place] = False
        assert answers(missed, examples) == wanted


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    """A model that was trained on mappings by their name for two updates; then its weights are drawn anew, and large."""
    place = tmp_path_factory.mktemp("mappings")
    words = ["train", "generate", "--data", "builtin/mappings", "--steps", "2", "--set", "data.builtin_size=2000"]
    small = [
        "--set",
        "model.width=8",
        "--set",
        "model.layers=1",
        "--set",
        "model.heads=2",
        "--set",
        "model.feed_forward=8",
    ]
    rest = [
        "--set",
        "tokens.kind=character",
        "--set",
        "samples=0",
        "--set",
        "data.context=16",
        "-o",
        str(place / "run"),
    ]
    assert run([*words, *small, *rest]) == 0
    model = Generator.load(place / "run")
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw))
        model.model.output.weight[sorted(model.tokenizer.specials.all)] = (
            0.0  # decoding never writes what stands for no text
        )
    return model


def test_right_answers_are_those_that_greedy_decoding_writes(writer: Generator) -> None:
    """Each answer is what the model writes behind its prompt, or, at every third, something else."""
    sequences, wanted = [], []
    for start in range(7):
        examples: list[tuple[str, str]] = []
        right = []
        for k in range(4):
            source = "abcdefgh"[start : start + 1 + k % 2]
            prompt = BETWEEN.join([*([written(examples)] if k else []), f"{source}>"])
            text = writer.generate(prompt, beam=1, sample=False, max_length=2).text.removeprefix(prompt)
            right.append(len(text) == 2 and (start + k) % 3 != 0)
            examples.append((source, text if right[-1] else "zq"))
        sequences.append(examples)
        wanted.append(right)
    assert 5 < np.sum(wanted) < 23
    assert right_by_examples(writer, sequences).tolist() == wanted


def test_draws_are_the_same_in_every_python() -> None:
    """Only `random()` itself is promised to stay."""
    draw = random.Random("a")
    assert MAPPINGS["sums"](random.Random("a"), 2)[0][0] == str((int(draw.random() * 3), int(draw.random() * 3))[1])
