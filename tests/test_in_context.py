"""Learning in context: built-in mappings by their rules, what must not stand in training, and answers as a model writes them."""

from __future__ import annotations

import random
from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest

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
from regard.tasks.configure import run_config
from regard.tasks.run import start_run


def pairs_of(text: str) -> list[tuple[str, str]]:
    return [(word.split(">")[0], word.split(">")[1]) for word in text.split(BETWEEN)]


def word_rules(pairs: list[tuple[str, str]]) -> set[tuple[tuple[int, ...], bool]]:
    """The rules by which all pairs of words hold, tried one by one."""
    return {
        (order, capital)
        for order, capital in WORD_RULES
        if all((mapped := "".join(source[i] for i in order)) == target.lower() and (mapped.upper() if capital else mapped) == target
               for source, target in pairs)
    }  # fmt: skip


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
                assert len(found := word_rules(pairs)) == 1  # and no other
                rules |= found
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
    for place, wanted in ((4, [False, True, True]), (8, [True, False, True]), (13, [True, True, False]), (5, [True] * 3)):
        missed = right.copy()
        missed[place] = False
        assert answers(missed, examples) == wanted


def test_right_answers_are_those_that_greedy_decoding_writes(tmp_path: Path) -> None:
    """After some updates on sums, so that some answers are right: each prompt by itself, against one pass over all."""
    (tmp_path / "sums.txt").write_text(" ".join(written(each) for each in mapping_examples("sums", "train", 90)))
    config = run_config(
        "generate",
        {
            "data": {"train": str(tmp_path / "sums.txt"), "context": 32},
            "tokens": {"kind": "character"},
            "model": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 24},
            "train": {"steps": 100, "batch_tokens": 128, "warmup": 5, "validate_every": 500},
            "samples": 0,
            "probes": 0,
        },
    )
    model = start_run(config, folder=tmp_path / "run").load()
    sequences = mapping_examples("sums", "test", 7, examples=4)
    found = right_by_examples(model, sequences)
    assert found.shape == (7, 4) and 0 < found.mean() < 1
    for row, sequence in enumerate(sequences):
        for k, (source, target) in enumerate(sequence):
            prompt = BETWEEN.join([*([written(sequence[:k])] if k else []), f"{source}>"])
            text = model.generate(prompt, beam=1, sample=False, max_length=len(target)).text
            assert (text.removeprefix(prompt) == target) == found[row, k], (prompt, text, target)


def test_a_model_can_be_trained_on_them_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "generate", "--data", "builtin/mappings", "--steps", "2", "--set", "data.builtin_size=2000"]
    small = ["--set", "model.width=8", "--set", "model.layers=1", "--set", "model.heads=2", "--set", "model.feed_forward=8"]
    assert run([*words, *small, "--set", "tokens.kind=character", "--set", "samples=0", "-o", "run"]) == 0


def test_draws_are_the_same_in_every_python() -> None:
    """Only `random()` itself is promised to stay."""
    draw = random.Random("a")
    assert MAPPINGS["sums"](random.Random("a"), 2)[0][0] == str((int(draw.random() * 3), int(draw.random() * 3))[1])
