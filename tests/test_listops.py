"""ListOps against a plain reader of its texts, its trees, its splits; trees in files, on tokens, and through a run."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.data import labelled
from regard.data.batch import label_batch
from regard.data.batches import LabelBatches, token_parents, with_trees
from regard.data.builtin.listops import listops
from regard.data.config import LabelledConfig
from regard.data.labelled import load_labelled, read_labelled
from regard.data.labelled_files import Labelled, as_tree
from regard.errors import RegardError, UsageError
from regard.tasks.classify.evaluate import evaluate_labels, read_labelled_test
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.configure import run_config
from regard.tasks.run import start_run
from regard.tokens import TextTokenizer, train_tokenizer
from regard.tokens.config import TokensConfig


@pytest.fixture(scope="module")
def texts() -> list[Labelled]:
    return listops("train", 300, 60)


def read_aloud(text: str) -> tuple[int, int, list[int], list[int]]:
    """What an expression comes to, how deep its deepest digit is, how many arguments each has, and its heads."""
    open_: list[tuple[str, int, list[int]]] = []  # operator, its place, its arguments
    heads, arguments, deepest, value = [], [], 0, -1
    for place, word in enumerate(text.split(" ")):
        heads.append(open_[-1][1] if open_ else place)
        if word.startswith("["):
            open_.append((word, place, []))
            continue
        if word == "]":
            operator, start, inside = open_.pop()
            arguments.append(len(inside))
            assert heads[-1] == start
            if operator == "[MED":
                value = int(np.median(inside))
            else:
                value = {"[MIN": min(inside), "[MAX": max(inside), "[SM": sum(inside) % 10}[operator]
        else:
            value = int(word)
            deepest = max(deepest, len(open_) + 1)
        if open_:
            open_[-1][2].append(value)
    assert not open_
    return value, deepest, arguments, heads


# -- texts -------------------------------------------------------------------------------------------------------------


def test_labels_and_heads_are_those_of_a_plain_reader(texts: list[Labelled]) -> None:
    for each in texts:
        value, deepest, arguments, heads = read_aloud(each.text)
        assert each.label == str(value) and list(each.parents or ()) == heads
        assert deepest <= 10 and all(2 <= count <= 10 for count in arguments)
        assert 15 <= len(heads) <= 60
    assert {each.label for each in texts} == set("0123456789")
    assert read_aloud("[MAX 4 [MIN 2 3 ] 0 ]")[0] == 4 and read_aloud("[MED 1 4 ]")[0] == 2


def test_trees_are_drawn_as_the_arena_draws_them() -> None:
    """Operators are alike, digits are alike, and so are numbers of arguments, of which 3/4 are digits."""
    words: Counter[str] = Counter()
    found = listops("train", 1500, 12)
    for each in found:
        words.update(each.text.split(" "))
    operators = [words[name] for name in ("[MIN", "[MAX", "[MED", "[SM")]
    assert sum(operators) == words["]"]
    assert all(abs(count - sum(operators) / 4) < 5 * math.sqrt(sum(operators) / 4) for count in operators)
    digits = [words[str(digit)] for digit in range(10)]
    assert all(abs(count - sum(digits) / 10) < 5 * math.sqrt(sum(digits) / 10) for count in digits)
    # Of trees with one operator and n digits (n + 2 tokens) the share falls as (3/4)^n, for n is drawn alike.
    flat = Counter(len(each.parents or ()) - 2 for each in found if all(head == 0 for head in each.parents or ()))
    total = sum(0.75**n for n in range(3, 11))
    alone = sum(flat[n] for n in range(3, 11))
    for n in range(3, 11):  # two digits make but 400 texts, of which no two are alike
        wanted = alone * 0.75**n / total
        assert abs(flat[n] - wanted) < 5 * math.sqrt(wanted)


def test_the_deepest_are_nine_operators_deep() -> None:
    deepest = [read_aloud(each.text)[1] for each in listops("train", 200, 500)]
    assert max(deepest) == 10 and min(deepest) >= 4


def test_splits_share_nothing_and_are_the_same_again(texts: list[Labelled]) -> None:
    splits = {split: listops(split, 300, 60) for split in ("train", "valid", "test")}
    every = [each.text for found in splits.values() for each in found]
    assert len(set(every)) == 900
    assert splits["train"] == texts and listops("train", 37, 60) == texts[:37]
    assert listops("train", 5, 61)[0] != texts[0]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer texts to validate and test on than people have."""
    assert labelled.SIZES == {"valid": 1000, "test": 2000}
    monkeypatch.setattr(labelled, "SIZES", {"valid": 70, "test": 90})


@pytest.mark.usefixtures("small")
def test_names_of_built_in_listops() -> None:
    assert read_labelled(["builtin/listops/60/valid"]) == listops("valid", 70, 60)
    short = read_labelled(["builtin/listops/test/40"])
    assert len(short) == 90 and all(10 <= len(each.text.split()) <= 40 for each in short)
    assert len(read_labelled(["builtin/listops/40/train"], builtin_size=17)) == 17
    sets = load_labelled(LabelledConfig(train=("builtin/listops/40",), builtin_size=500))
    assert (len(sets.train), len(sets.valid)) == (500, 70) and sets.labels == tuple("0123456789") and not sets.notes
    for name in ("builtin/listops/dev", "builtin/listops/test/many", "builtin/listops/0"):
        with pytest.raises(UsageError, match=r"write builtin/listops or builtin/listops/500 .* builtin/listops/test"):
            read_labelled([name])
    with pytest.raises(UsageError, match="the built-in ones are builtin/names and builtin/listops"):
        read_labelled(["builtin/listopses"])
    with pytest.raises(UsageError, match="write 8000 or fewer tokens"):
        read_labelled(["builtin/listops/test/20000"])
    with pytest.raises(UsageError, match="write 12 or more tokens"):
        read_labelled(["builtin/listops/8"])


# -- trees in files ----------------------------------------------------------------------------------------------------


def rows(path: Path, *values: dict[str, Any]) -> str:
    path.write_text("\n".join(map(json.dumps, values)), encoding="utf-8")
    return str(path)


def test_a_tree_in_a_file(tmp_path: Path) -> None:
    file = rows(
        tmp_path / "a.jsonl",
        {"text": "the dog  barks", "label": 1, "heads": [1, 2, -1], "head": [2, 2, 2]},
        {"text": "he sleeps", "label": 0, "heads": None},
        {"text": "it", "label": 0},
    )
    assert [each.parents for each in read_labelled([file])] == [(1, 2, 2), None, None]
    assert [each.parents for each in read_labelled([file], heads="head")] == [(2, 2, 2), None, None]
    with pytest.raises(RegardError, match="some training texts have a tree and some have none"):
        load_labelled(LabelledConfig(train=(file,)))


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([1, 1], r"line 2: heads: 2 heads for 3 words"),
        ([1, 1, 3], r"no word 3; words are 0 to 2"),
        ([1, 1, -2], r"no word -2"),
        ([1, 2, 0], r"a cycle through word [012]"),
        ([0, 2, 1], r"a cycle through word [12]"),
        ([1, 1, 1.0], r"a list of whole numbers"),
        ([1, 1, True], r"a list of whole numbers"),
        ("1 1 1", r"a list of whole numbers"),
    ],
)
def test_what_is_no_tree_is_told_with_its_line(tmp_path: Path, heads: object, message: str) -> None:
    good = {"text": "a b c", "label": 1, "heads": [1, 1, 1]}
    with pytest.raises(RegardError, match=message):
        read_labelled([rows(tmp_path / "a.jsonl", good, {**good, "heads": heads})])


def test_pairs_of_texts_have_no_tree(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.jsonl", {"text": "a", "other": "b", "label": 1, "heads": [0]})
    with pytest.raises(RegardError, match=r"line 1: heads: a tree is of one text, and here are two"):
        read_labelled([file], second="other")


def test_a_long_chain_is_a_tree() -> None:
    assert as_tree([-1, *range(4000)], 4001) == (0, *range(4000))
    with pytest.raises(ValueError, match="a cycle"):
        as_tree([4000, *range(4000)], 4001)


# -- trees of tokens ---------------------------------------------------------------------------------------------------

SENTENCE, TREE = "Hé  élan brûle vite", (2, 2, 2, 0)


def tokenizer(kind: Any, **options: Any) -> TextTokenizer:
    return train_tokenizer(
        [SENTENCE, "brave new word " * 3], TokensConfig(kind=kind, min_count=1, **options), mask=True
    )


def plain_heads(text: str, tree: tuple[int, ...], spans: list[tuple[int, int]], length: int) -> list[int]:
    """Token by token, with a walk up the tree for each."""
    begins, end = [], 0
    for word in text.split():
        begins.append((text.index(word, end), text.index(word, end) + len(word)))
        end = begins[-1][1]

    def owner(span: tuple[int, int]) -> int | None:
        found = [w for w, (start, stop) in enumerate(begins) if start < span[1] and span[0] < stop]
        return found[0] if found else None

    owners = [owner(span) for span in spans[: length - 2]]
    heads = [0]
    for place, (mine, span) in enumerate(zip(owners, spans, strict=False)):
        if mine is None:
            before = [w for w, (start, _) in enumerate(begins) if start < span[1]]
            heads.append(owners.index(before[-1]) + 1 if before and before[-1] in owners else 0)
        elif owners.index(mine) < place:
            heads.append(owners.index(mine) + 1)
        else:
            while tree[mine] != mine and tree[mine] not in owners:
                mine = tree[mine]
            heads.append(owners.index(tree[mine]) + 1 if tree[mine] != mine else 0)
    return [*heads, 0]


@pytest.mark.parametrize("kind", ["space", "word", "wordpiece", "character", "byte", "bpe"])
@pytest.mark.parametrize("text", [SENTENCE, f" {SENTENCE}\n"])
def test_heads_of_tokens(kind: str, text: str) -> None:
    spans = tokenizer(kind, size=270).spans(text)
    for length in (2, 3, 4, 5, 9, len(spans) + 2):
        if length <= len(spans) + 2:
            assert token_parents(text, TREE, spans, length).tolist() == plain_heads(text, TREE, spans, length)


def test_heads_of_tokens_by_hand() -> None:
    """[CLS] H é _ _ é l a n ...: letters hang on the first of their word, spaces on the word before, a root on [CLS]."""
    spans = [(place, place + 1) for place in range(len(SENTENCE))]
    assert token_parents(SENTENCE, TREE, spans, len(spans) + 2).tolist() == [
        *(0, 10, 1, 1, 1),  # [CLS], Hé and two spaces: the head of Hé is brûle
        *(10, 5, 5, 5, 5),  # élan and a space
        *(0, 10, 10, 10, 10, 10),  # brûle, the root, and a space
        *(1, 16, 16, 16, 0),  # vite, [SEP]
    ]
    assert token_parents(SENTENCE, TREE, spans, 9).tolist() == [0, 0, 1, 1, 1, 0, 5, 5, 0]  # brûle is cut off
    assert token_parents("a b c", (1, 2, 2), [(0, 1), (4, 5)], 4).tolist() == [0, 2, 0, 0]  # b has no token
    assert token_parents("", (), [], 2).tolist() == [0, 0]


def test_tokens_that_join_words_are_refused() -> None:
    with pytest.raises(RegardError, match=r"'a b' is one token, but two words of a tree; .* tokens\.kind = space"):
        token_parents("a b", (0, 0), [(0, 3)], 3)


def test_every_token_of_a_batch_leads_to_the_begin_token_and_padding_to_itself(texts: list[Labelled]) -> None:
    few = texts[:9]
    tokens = train_tokenizer([each.text for each in few], TokensConfig(kind="space", min_count=1))
    ids = [np.array([1, *tokens.encode(each.text), 2]) for each in few]
    plain = LabelBatches(ids, np.arange(9), 0, 10_000, 1)
    assert plain.take([0]).parents is None
    words, trees = [each.text for each in few], [each.parents for each in few]
    batch = with_trees(plain, words, trees, tokens).take([4, 2, 7])
    assert batch.parents is not None and batch.parents.shape == batch.ids.shape and batch.parents.dtype == torch.int64
    for row, each in enumerate([few[4], few[2], few[7]]):
        length, own = int(batch.lengths[row]), list(each.parents or ())
        inside = [0] + [0 if head == place else head + 1 for place, head in enumerate(own)] + [0]
        assert batch.parents[row].tolist() == inside + list(range(length, batch.ids.size(1)))
    assert with_trees(plain, words, [*trees[:-1], None], tokens).take([0]).parents is None


def test_label_batch_pads_heads_with_their_own_places() -> None:
    batch = label_batch(
        [np.array([5, 6, 7, 8]), np.array([5])], [0, 1], 0, parents=[np.array([0, 0, 1, 1]), np.array([0])]
    )
    assert batch.parents is not None and batch.parents.tolist() == [[0, 0, 1, 1], [0, 1, 2, 3]]


# -- through a run -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_trees_travel_through_training_and_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that looks at nothing but heads sees those of the texts, in training, validation, and `regard eval`."""
    from regard.models.classifier import BertClassifier

    seen: list[tuple[int, int]] = []  # of each row: its number of tokens, the sum of its heads

    def logits(self: BertClassifier, batch: Any) -> torch.Tensor:
        assert batch.parents is not None
        for heads, length in zip(batch.parents, batch.lengths.tolist(), strict=True):
            seen.append((length, int(heads[:length].sum())))
        return self.scores(self.features(batch))

    monkeypatch.setattr(BertClassifier, "logits", logits)
    model = {
        "kind": "bert",
        "layers": 1,
        "width": 8,
        "heads": 2,
        "feed_forward": 8,
        "max_length": 64,
        "positions": "tree",
    }
    settings = {
        "data": {"train": "builtin/listops/20", "builtin_size": 300, "max_length": 64},
        "tokens": {"kind": "space"},
        "model": model,
        "train": {"steps": 2, "validate_every": 2, "batch_tokens": 512, "warmup": 1, "precision": "float32"},
    }
    run = start_run(run_config("classify", settings), folder=tmp_path / "run")
    assert len(seen) >= 70
    seen.clear()
    texts = read_labelled_test(["builtin/listops/test/20"], run.folder)[:40]
    classifier = TextClassifier.load(run.folder)
    evaluate_labels(classifier, texts)
    wanted = []
    for each in texts:
        own = list(each.parents or ())
        wanted.append((len(own) + 2, sum(0 if head == place else head + 1 for place, head in enumerate(own))))
    assert sorted(seen) == sorted(wanted)
    alone = classifier.classify(texts[0].text, heads=[-1, *texts[0].parents[1:]])  # type: ignore[index]
    assert alone.text == texts[0].text
    with pytest.raises(UsageError, match=r"1 heads for \d+ words"):
        classifier.classify([texts[0].text], heads=[[0]])
    with pytest.raises(UsageError, match="heads are the tree of one text"):
        classifier.classify("1", "2", heads=[0])


@pytest.mark.usefixtures("small")
def test_a_key_heads_means_nothing_to_a_model_without_tree_positions(tmp_path: Path) -> None:
    """Rows may have keys of any meaning; only tree positions take `heads` for a tree."""
    lines = [{"text": f"word {n} of many", "label": "ab"[n % 2], "heads": "of state"} for n in range(40)]
    file = rows(tmp_path / "texts.jsonl", *lines)
    settings = {
        "data": {"train": file},
        "model": {"kind": "bert", "layers": 1, "width": 8, "heads": 2, "feed_forward": 8, "max_length": 64},
        "train": {"steps": 2, "validate_every": 2, "warmup": 1},
    }
    run = start_run(run_config("classify", settings), folder=tmp_path / "run")
    assert len(read_labelled_test([file], run.folder)) == 40
    settings["model"]["positions"] = "tree"  # type: ignore[index]
    with pytest.raises(RegardError, match="heads"):
        start_run(run_config("classify", settings), folder=tmp_path / "other")
