"""Built-in pairs that need memory or care with places, against plain arithmetic; and the recorded long experiments."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

import regard
from regard.data.builtin.algorithms import FORMS, addition_pairs, copy_pairs, recall_pairs
from regard.data.config import LabelledConfig, PairsConfig
from regard.data.pairs import builtin_pairs, is_builtin, load_pairs, read_pairs
from regard.errors import UsageError
from regard.tasks.configure import run_config

LONG = sorted((Path(regard.__file__).parent.parent / "configs" / "long").glob("*.toml"))
SPLITS = ("train", "valid", "test")


def read(name: str) -> list[tuple[str, str]]:
    return read_pairs([name], ("source", "target"))


def about_alike(counts: Counter[int], values: range, total: int) -> bool:
    wanted = total / len(values)
    return counts.keys() == set(values) and all(
        abs(count - wanted) < 5 * math.sqrt(wanted) for count in counts.values()
    )


@pytest.mark.parametrize("split", SPLITS)
def test_copies(split: str) -> None:
    pairs = copy_pairs(split, 1300, most=13)
    assert all(source == target and source.isascii() and source.islower() for source, target in pairs)
    assert about_alike(Counter(len(source) for source, _ in pairs), range(1, 14), 1300)
    assert {len(source) for source, _ in copy_pairs(split, 50, most=13, length=29)} == {29}


@pytest.mark.parametrize("split", SPLITS)
def test_recall(split: str) -> None:
    pairs = recall_pairs(split, 700, most=7)
    for source, target in pairs:
        *listed, asked = source.split(" ")
        keys, values = listed[::2], listed[1::2]
        assert len(set(keys)) == len(keys) == len(values) and all(len(key) == 1 for key in keys)
        assert dict(zip(keys, values, strict=True))[asked] == target
    lengths = Counter(source.count(" ") // 2 for source, _ in pairs)
    assert about_alike(lengths, range(1, 8), 700)
    places = Counter(
        source.split(" ").index(source.split(" ")[-1]) // 2 for source, _ in recall_pairs(split, 700, 7, 7)
    )
    assert about_alike(places, range(7), 700)


def test_recall_of_many_keys() -> None:
    source, target = recall_pairs("test", 1, most=40, length=676)[0]
    *listed, asked = source.split(" ")
    assert len(set(listed[::2])) == 676 and all(len(key) == 2 for key in listed[::2])
    assert listed[listed.index(asked) + 1] == target
    with pytest.raises(UsageError, match="30 keys cannot differ in 1 letters; write builtin/recall/30/test"):
        read("builtin/recall/test/30")
    with pytest.raises(UsageError, match="write 676 keys or fewer"):
        read("builtin/recall/677")


@pytest.mark.parametrize("split", SPLITS)
def test_sums_in_four_forms(split: str) -> None:
    plain, backwards, padded, both = (addition_pairs(form, split, 400, most=5) for form in FORMS)
    assert FORMS == ("addition", "addition-reversed", "addition-padded", "addition-reversed-padded")
    for (source, target), (_, turned), (wide, wider), (last, end) in zip(plain, backwards, padded, both, strict=True):
        first, second = source.split("+")
        assert int(first) + int(second) == int(target) and target == str(int(target))
        assert str(int(first)) == first and str(int(second)) == second
        assert turned == target[::-1] and wide == f"{int(first):05}+{int(second):05}" and wider == f"{int(target):06}"
        assert last == "+".join(number[::-1] for number in wide.split("+")) and end == wider[::-1]
    assert [source for source, _ in backwards] == ["+".join(n[::-1] for n in source.split("+")) for source, _ in plain]
    digits = Counter(tuple(map(len, source.split("+"))) for source, _ in addition_pairs("addition", split, 900, most=3))
    assert len(digits) == 9 and all(abs(count - 100) < 50 for count in digits.values())


def test_sums_of_an_exact_number_of_digits() -> None:
    for source, target in read("builtin/addition/test/12"):
        assert [len(number) for number in source.split("+")] == [12, 12] and len(target) in (12, 13)
    for name, wide in (("builtin/addition-padded/8/test/12", 12), ("builtin/addition-padded/8/test/3", 8)):
        for source, target in read(name):
            assert [len(number) for number in source.split("+")] == [wide, wide] and len(target) == wide + 1
    with pytest.raises(UsageError, match="4,000 digits at most, not 5,000"):
        read("builtin/addition/5000")


@pytest.mark.parametrize("name", ["builtin/copy/9", "builtin/recall/4", *(f"builtin/{form}/4" for form in FORMS)])
def test_splits_share_nothing_but_the_shortest(name: str) -> None:
    train, valid, test = (builtin_pairs(split, 1000, name) for split in SPLITS)
    assert train == builtin_pairs("train", 1000, name) and train[:17] == builtin_pairs("train", 17, name)
    short = {"copy": 2, "recall": len("a 1 a")}.get(name.split("/")[1], 0)

    def is_short(source: str) -> bool:
        if short:
            return len(source) <= short
        turned = source if "reversed" not in name else "+".join(number[::-1] for number in source.split("+"))
        return sum(len(str(int(number))) for number in turned.split("+")) <= 3

    sets = [{source for source, _ in pairs if not is_short(source)} for pairs in (train, valid, test)]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    assert all(len(found) > 400 for found in sets)
    note = load_pairs(PairsConfig(train=(name,), builtin_size=1000)).notes
    assert len(note) == 1 and "of 500 validation sentences also occur in training" in note[0]


def test_a_sum_and_its_mirror_image_are_of_one_split() -> None:
    train = {source for source, _ in builtin_pairs("train", 12_000, "builtin/addition/2/train/2")}
    test = {source for source, _ in builtin_pairs("test", 1000, "builtin/addition/2/test/2")}
    assert len(train) > 4000 and len(test) > 300
    assert not train & {"+".join(reversed(source.split("+"))) for source in test}


def test_names_and_sizes() -> None:
    sets = load_pairs(PairsConfig(train=("builtin/copy/6",), builtin_size=123))
    assert (len(sets.train), len(sets.valid)) == (123, 500) and max(len(source) for source, _ in sets.train) == 6
    assert sets.train == builtin_pairs("train", 123, "builtin/copy/6") and sets.valid[0] in read("builtin/copy/6/valid")
    assert read("builtin/copy") == read("builtin/copy/20/test") == copy_pairs("test", 1000)
    assert PairsConfig(train="builtin/copy").train == ("builtin/copy",) and LabelledConfig().heads == "heads"
    assert is_builtin(["builtin/recall/test"]) and not is_builtin(["a.tsv"]) and not is_builtin(["a.en", "a.de"])
    for name in ("builtin/copy/dev", "builtin/copy/test/x", "builtin/copy/0", "builtin/copy/5/6", "builtin/copy/"):
        with pytest.raises(UsageError, match=r"write builtin/copy or builtin/copy/20 .* builtin/copy/test/40"):
            read(name)
    with pytest.raises(UsageError, match=r"no pairs builtin/names; the built-in ones are builtin/dates, builtin/copy"):
        load_pairs(PairsConfig(train=("builtin/names",)))


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.stem)
def test_the_long_experiments_are_read_without_their_data(path: Path) -> None:
    config = run_config(str(path))
    assert config.train.steps >= 300
    first = path.read_text(encoding="utf-8").splitlines()
    assert first[0].startswith("# ") and any(f"regard train configs/long/{path.name}" in line for line in first)
    if config.task != "translate":
        over = run_config(str(path), assignments=["model.attention=performer"])
        assert over.model.attention.kind == "performer"  # type: ignore[union-attr]


def test_all_long_experiments_are_there() -> None:
    wanted = {"listops", "imdb-bytes", "shakespeare-512", "enwik8", "copy", "recall", "addition"}
    assert {path.stem for path in LONG} >= wanted
