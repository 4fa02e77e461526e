"""Labelled texts: the formats people have, where a file goes wrong, and the sets of a run; then batches of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import check
from regard.data.batches import LabelBatches
from regard.data.builtin.names import language_names
from regard.data.config import LabelledConfig
from regard.data.labelled import load_labelled, read_labelled
from regard.data.labelled_files import Labelled
from regard.errors import RegardError, UsageError


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


# -- formats -----------------------------------------------------------------------------------------------------------

TWO = [Labelled("good, bad", "1"), Labelled("ugly", "0")]
PAIRS = [Labelled("it rains", "yes", "it is wet"), Labelled("it snows", "no", "it is hot")]


@pytest.mark.parametrize(
    ("name", "text", "label_first", "wanted"),
    [
        ("a.tsv", "good, bad\t1\nugly\t0\n", False, TWO),
        ("a.tsv", "sentence\tlabel\ngood, bad\t1\n\nugly\t0\n", False, TWO),
        ("a.tsv.gz", "Text\tLabel\r\ngood, bad\t1\r\nugly\t0\r\n", False, TWO),
        ("a.tsv", "1\tgood, bad\n0\tugly\n", True, TWO),
        ("a.tsv", "it rains\tit is wet\tyes\nit snows\tit is hot\tno\n", False, PAIRS),
        ("a.tsv", "sentence1\tsentence2\tlabel\nit rains\tit is wet\tyes\nit snows\tit is hot\tno\n", False, PAIRS),
        ("a.csv", '"good, bad",1\nugly,0\n', False, TWO),
        ("a.csv.gz", 'label,text\n1,"good, bad"\n0,ugly\n', True, TWO),
        ("a.csv", '"yes","it rains","it is wet"\n"no","it snows","it is hot"\n', True, PAIRS),
        (
            "a.csv",
            'a "" b,1\n"two\nlines ""x""",0\n',
            False,
            [Labelled('a "" b', "1"), Labelled('two\nlines "x"', "0")],
        ),
        ("a.csv", "good, bad;1\nugly;0\n", False, TWO),  # as spreadsheets write where the comma is in numbers
        ("a.csv", '\ufeffKommentar;Sterne\r\n"good, bad";1\r\nugly;0\r\n', False, TWO),
        ("a.csv", 'sep=;\nText;Label\n"good, bad";1\nugly;0\n', False, TWO),
        ("a.csv", "good, bad\t1\nugly\t0\n", False, TWO),
        ("a.csv", '"good; bad",1\n"ug;ly",0\n', False, [Labelled("good; bad", "1"), Labelled("ug;ly", "0")]),
        (
            "a.csv",
            'Text;Label\r\n"two\r\nlines; ""x"", y";1\r\nugly;0\r\n',
            False,
            [Labelled('two\nlines; "x", y', "1"), Labelled("ugly", "0")],
        ),
        ("a.all", "1 good, bad\n0 ugly\n", True, TWO),
        ("a.txt", "\n1 good, bad \n0   ugly\n", True, TWO),
        ("a.jsonl", '{"text": "good, bad", "label": 1}\n\n{"text": "ugly", "label": "0"}\n', False, TWO),
        ("a.jsonl.gz", '{"text": "a", "label": true}', False, [Labelled("a", "True")]),
    ],
)
def test_a_file(tmp_path: Path, name: str, text: str, label_first: bool, wanted: list[Labelled]) -> None:
    assert read_labelled([write(tmp_path / name, text)], label_first=label_first) == wanted


def test_keys_of_jsonl_and_several_files(tmp_path: Path) -> None:
    rows = [{"premise": "it rains", "hypothesis": "it is wet", "gold": "yes"}]
    file = write(tmp_path / "a.jsonl", json.dumps(rows[0]))
    keys = {"text": "premise", "second": "hypothesis", "label": "gold"}
    assert read_labelled([file, file], **keys) == PAIRS[:1] * 2


def test_a_folder_for_each_label(tmp_path: Path) -> None:
    for name, text in (("pos/2.txt", "b\n"), ("pos/1.txt", "a\n"), ("neg/1.txt.gz", "c"), (".git/1.txt", "no")):
        write(tmp_path / name, text)
    write(tmp_path / "README.txt", "not one of them")
    wanted = [Labelled("c", "neg"), Labelled("a", "pos"), Labelled("b", "pos")]
    assert read_labelled([tmp_path.name], data_root=tmp_path.parent) == wanted
    (tmp_path / "empty" / "x").mkdir(parents=True)
    with pytest.raises(RegardError, match="should hold a folder for each label"):
        read_labelled([str(tmp_path / "empty")])


def test_the_built_in_names() -> None:
    for split in ("train", "valid", "test"):
        found = read_labelled([f"builtin/names/{split}"])
        assert [(each.text, each.label) for each in found] == language_names(split)
    with pytest.raises(UsageError, match="there is no split 'dev'"):
        read_labelled(["builtin/names/dev"])
    with pytest.raises(UsageError, match="built-in ones are builtin/names"):
        read_labelled(["builtin/dates"])


@pytest.mark.parametrize(
    ("name", "text", "label_first", "message"),
    [
        (
            "a.tsv",
            "a\t1\nb\n",
            False,
            r"line 2: 1 columns where 2 should be; write text \(and second text\), label with a tab",
        ),
        ("a.tsv", "a\t1\nb\tc\t1\n", False, "line 2: 3 columns where 2 should be"),
        ("a.tsv", "a\tb\tc\td\n", True, r"line 1: 4 columns where 2 or 3 should be; write label, text"),
        ("a.tsv", "a\t1\nb\t \n", False, r"line 2: the label is empty \(see data\.label_first\)"),
        ("a.csv", 'a,1\n"b,1\n', False, r"line 2: .*not valid CSV"),
        ("a.csv", "a,1\n\nb\n", False, "line 3: 1 columns where 2 should be; .* with a comma between"),
        ("a.all", "1 a\n0\n", True, "line 2: no text after the label '0'"),
        ("a.all", "1 a\n", False, r"data\.label_first=true"),
        ("a.jsonl", '{"text": "a"}', False, "line 1: no key 'label'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 3, "label": 1}', False, "line 2: text is 3, not a text"),
        ("a.jsonl", '{"text": "a", "label": 0.5}', False, "line 1: label is 0.5, not a text"),
        ("a.jsonl", '{"text": "a", "label": ""}', False, "line 1: label is empty"),
        ("a.jsonl", '{"text": "a", ', False, "line 1: .*each line should be"),
        ("a.tsv", "", False, "is empty"),
        ("a.tsv", "text\tlabel\n", False, "there are no labelled texts in"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, name: str, text: str, label_first: bool, message: str
) -> None:
    with pytest.raises(RegardError, match=message):
        read_labelled([write(tmp_path / name, text)], label_first=label_first)


# -- which column is which ---------------------------------------------------------------------------------------------

OPINIONS = [
    (f"film number {number} was {'good' if number % 3 else 'dull'}", "12345"[number % 5]) for number in range(60)
]
READ = [Labelled(text, label) for text, label in OPINIONS]


def table(names: str, form: str, between: str = ",") -> str:
    """The opinions as lines: `form` has text, label and number."""
    lines = [form.format(text=text, label=label, number=number) for number, (text, label) in enumerate(OPINIONS)]
    return "".join(line.replace(",", between) + "\n" for line in ([names] if names else []) + lines)


@pytest.mark.parametrize(
    ("name", "text", "columns", "note"),
    [
        ("a.csv", table("review,stars", "{text},{label}"), {}, ""),  # the bug: a label "stars" of its own
        ("a.csv", table("label,text", "{label},{text}"), {}, ""),  # the bug: 60 labels, none held out
        ("a.tsv", table("", "{label},{text}", "\t"), {}, "text is column 2, label is column 1 (the label by its 5 values"),
        ("a.csv", table("opinion,verdict", "{text},{label}"), {}, "label is column verdict (in the usual order"),
        ("a.csv", table("verdict,opinion", "{label},{text}"), {}, "label is column verdict (the label by its 5 values"),
        ("a.csv", table("Opinion,Verdict", "{text},v{label}"), {}, "label is column Verdict"),
        ("a.csv", table(",text,label", "{number},{text},{label}"), {}, "label is column label; not read: 1"),
        ("a.csv", table("id,opinion,verdict", "x{number},{text},{label}"), {}, "the text by its words; say otherwise"),
        ("a.csv", table("id,a,b,c", "{number},{label},{text},{label}"), {"text": "a", "label": "B"}, None),
        ("a.csv", table("", "{label},{number},{text}"), {"text": "3", "label": "1"}, "not read: 2"),
        ("a.tsv", table("review,stars,text,label", "{text},{label},x,{number}", "\t"), {"text": "review", "label": "2"}, "n"),
        ("a.tsv", table("", "{number},{text},{label}", "\t"), {}, "column 1 counts the rows"),
        ("a.jsonl", table("", '{{"review": "{text}"; "stars": {label}; "label": 3}}').replace(";", ","),
         {"text": "review", "label": "stars"}, ""),
        ("a.jsonl", table("", '{{"id": {number}; "opinion": "{text}"; "verdict": "{label}"}}').replace(";", ","), {},
         "label is key verdict (the label by its 5 values"),
    ],
)  # fmt: skip
def test_columns(tmp_path: Path, name: str, text: str, columns: dict[str, str], note: str | None) -> None:
    notes: list[str] = []
    file = write(tmp_path / name, text)
    if note is None:  # names that are asked for are taken, whatever stands there
        found = read_labelled([file], **columns)
        assert (found[0].text, found[0].label) == ("1", OPINIONS[0][0])
        return
    found = read_labelled([file], notes=notes, **columns)
    wanted = [Labelled(each.text, f"v{each.label}") for each in READ] if "Verdict" in text else READ
    assert found == wanted
    assert (not notes) if not note else (len(notes) == 1 and note in notes[0])


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", table("", "{number},{text}", "\t"), {}, r"which column is the label\? There is column 1 to 2"),
        (
            "a.csv",
            table("id,day,opinion,verdict", "{number},{label},{text},{label}"),
            {},
            "There is id, day, opinion, ver",
        ),
        ("a.csv", table("category,topic,text", "{label},{label},{text}"), {}, "which column is the label"),
        (
            "a.csv",
            table("id,opinion", "x{number},{text}"),
            {"text": "opinon"},
            "no column 'opinon' .*did you mean opinion",
        ),
        ("a.csv", table("", "{text},{label}"), {"label": "3"}, "label='3': there are 2 columns, 1 to 2"),
        (
            "a.csv",
            table("", "{text},{label}"),
            {"label": "stars"},
            "no column 'stars' .*the first line is 'film number 0 was dull', '1'; a number, 1 to 2",
        ),
        ("a.csv", table("", "{text},{label}"), {"text": "1", "label": "1"}, "two are the same"),
        ("a.jsonl", '{"review": "a", "stars": 1}', {"label": "star"}, "line 1: no key 'star'; did you mean stars"),
    ],
)
def test_columns_that_cannot_be_told_are_asked_for(
    tmp_path: Path, name: str, text: str, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_labelled([write(tmp_path / name, text)], **columns)
    if "which column" in message:  # three ways to say it
        said = str(caught.value)
        assert (
            "write text (and second text), label" in said
            and "in the first line" in said
            and "text='2' label='1'" in said
        )


def test_pairs_of_texts_by_their_names(tmp_path: Path) -> None:
    lines = [f"{number}\tyes\tit is wet\tit rains" for number in (3, 9, 4)]
    file = write(tmp_path / "a.tsv", "\n".join(["idx\tlabel\thypothesis\tpremise", *lines]))
    assert read_labelled([file]) == PAIRS[:1] * 3
    swapped = read_labelled([file], text="3", second="premise")
    assert swapped == [Labelled("it is wet", "yes", "it rains")] * 3
    file = write(tmp_path / "b.tsv", "title\treview\tlabel\nit rains\tit is wet\tyes\n")  # as it always was
    assert read_labelled([file]) == PAIRS[:1]


def test_a_first_row_that_is_no_header_stays(tmp_path: Path) -> None:
    """Names of two words, labels that come again, numbers: they look like a header one by one, and are none."""
    for first in ("Germany\ten", "good\t1", "a fine film\tpositive", "review\tpositive"):
        label = first.split("\t")[1]
        text = "".join(f"text {number}\t{(label, 'other')[number % 2]}\n" for number in range(20))
        found = read_labelled([write(tmp_path / "a.tsv", f"{first}\n{text}")])
        assert len(found) == 21 and found[0] == Labelled(*first.split("\t"))


def test_validation_has_its_columns_where_its_labels_are(tmp_path: Path) -> None:
    """Four rows are too few to tell by their values; that their labels are those of training tells it."""
    train = write(tmp_path / "a.tsv", table("", "{label},{text}", "\t"))
    valid = write(tmp_path / "b.tsv", "1\tsome film\n3\tsome other\n")
    sets = load_labelled(LabelledConfig(train=(train,), valid=(valid,), test=(valid,)))
    assert sets.valid == [Labelled("some film", "1"), Labelled("some other", "3")] and sets.labels == tuple("12345")
    headed = write(tmp_path / "c.csv", "verdict,opinion\n1,some film\n")
    sets = load_labelled(LabelledConfig(train=(train,), valid=(headed,)))
    assert sets.valid == [Labelled("some film", "1")]


def test_a_wrong_encoding_says_how_to_name_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text;label\nGrüße;gut\nÄrger;schlecht\n".encode("latin1"))
    with pytest.raises(RegardError, match=r"line 2: byte 3 \(0xfc\) is not UTF-8.*data\.encoding=latin1"):
        read_labelled([str(tmp_path / "a.csv")])
    found = read_labelled([str(tmp_path / "a.csv")], encoding="latin1")
    assert found == [Labelled("Grüße", "gut"), Labelled("Ärger", "schlecht")]
    (tmp_path / "a.jsonl").write_bytes('{"text": "Grüße", "label": 1}\n'.encode("latin1"))
    with pytest.raises(RegardError, match="not UTF-8; convert it first") as caught:
        read_labelled([str(tmp_path / "a.jsonl")])
    assert "data.encoding" not in str(caught.value)  # which JSON does not have


def test_numbers_of_columns_in_a_configuration() -> None:
    config = check(LabelledConfig, {"text": 2, "label": "1"}, "test")
    assert (config.text, config.label) == ("2", "1")


# -- the sets of a run -------------------------------------------------------------------------------------------------


def rows(labels: str, start: int = 0) -> str:
    return "".join(f"text {start + number}\t{label}\n" for number, label in enumerate(labels))


def test_the_default_is_the_built_in_names() -> None:
    sets = load_labelled(LabelledConfig())
    assert [(each.text, each.label) for each in sets.train] == language_names("train")
    assert [(each.text, each.label) for each in sets.valid] == language_names("valid")
    assert list(sets.labels) == sorted({language for _, language in language_names("train")})
    assert len(sets.notes) == 1 and "spell alike" in sets.notes[0]


def test_the_built_in_names_beside_others_are_those_of_training(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "hello there\ten\n")
    sets = load_labelled(LabelledConfig(train=("builtin/names", file), valid=("builtin/names",)))
    assert [(each.text, each.label) for each in sets.train] == [*language_names("train"), ("hello there", "en")]
    assert [(each.text, each.label) for each in sets.valid] == language_names("valid")


def test_some_are_held_out_where_there_is_no_validation_set(tmp_path: Path) -> None:
    text = rows("abc" * 700) + rows("abc" * 10)  # the first thirty twice
    sets = load_labelled(LabelledConfig(train=(write(tmp_path / "a.tsv", text),), hold_out=100))
    assert len(sets.train) + len(sets.valid) == 2130 and sets.labels == ("a", "b", "c")
    assert not {each.text for each in sets.train} & {each.text for each in sets.valid}
    assert 60 < len(sets.valid) < 140 and f"held out {len(sets.valid)} of 2,130 texts" in sets.notes[0]
    few = load_labelled(LabelledConfig(train=(write(tmp_path / "b.tsv", rows("ab" * 100)),)))
    assert 5 < len(few.valid) < 40  # a tenth at most


def test_a_label_that_only_the_held_out_would_have_stays_in_training(tmp_path: Path) -> None:
    """A thousand labels that occur once each: those of the held-out texts would be unknown."""
    text = rows("ab" * 500) + "".join(f"rare {number}\tlabel {number}\n" for number in range(1000))
    sets = load_labelled(LabelledConfig(train=(write(tmp_path / "a.tsv", text),)))
    assert Counter(each.label for each in sets.valid).keys() == {"a", "b"} and len(sets.labels) == 1002


def test_overlap_is_told(tmp_path: Path) -> None:
    train, other = write(tmp_path / "a.tsv", rows("ab" * 5)), write(tmp_path / "b.tsv", rows("ab" * 5, start=7))
    sets = load_labelled(LabelledConfig(train=(train,), valid=(other,), test=(other,)))
    assert sets.notes == tuple(
        f"warning: 3 of 10 {which} texts also occur in training; scores on them flatter: take them out of training"
        for which in ("validation", "test")
    )


def test_labels_that_are_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "a\t10\nb\t9\nc\t-1\n")
    assert load_labelled(LabelledConfig(train=(file,), valid=(file,))).labels == ("-1", "9", "10")


def test_sets_that_cannot_be_learned_are_refused(tmp_path: Path) -> None:
    ab, c = write(tmp_path / "ab.tsv", rows("ab")), write(tmp_path / "c.tsv", rows("cab"))
    one, pair = write(tmp_path / "one.tsv", rows("aaa")), write(tmp_path / "pair.tsv", "a\tb\ta\n")
    empty = write(tmp_path / "empty.tsv", " \ta\n")
    cases = {
        (ab, c): r"c\.tsv has labels that training lacks: 'c'; training has 'a', 'b'",
        (one, one): "all training texts have the label 'a'; a classifier needs two labels or more",
        (ab,): "2 texts are too few to hold some out",
        (empty, ab): "no training text is left of 1",
    }
    for (train, *valid), message in cases.items():
        with pytest.raises(RegardError, match=message):
            load_labelled(LabelledConfig(train=(train,), valid=tuple(valid)))
    with pytest.raises(RegardError, match="some training texts are pairs and some are not"):
        load_labelled(LabelledConfig(train=(ab, pair), valid=(ab,)))
    sets = load_labelled(LabelledConfig(train=(ab, empty), valid=(ab,)))
    assert sets.notes[0] == "dropped 1 of 3 training texts: empty"


# -- batches -----------------------------------------------------------------------------------------------------------


def numbered(
    count: int, seed: int = 3, longest: int = 23, segments: bool = False
) -> tuple[list, np.ndarray, list | None]:
    """Texts whose every token says which text it is, with that number as label too."""
    random = np.random.default_rng(seed)
    texts = [np.full(random.integers(1, longest), 100 + row) for row in range(count)]
    return texts, np.arange(count), [np.full(len(ids), row % 2) for row, ids in enumerate(texts)] if segments else None


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 60), budget=st.integers(22, 200), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_every_text_once_an_epoch_within_the_budget(count: int, budget: int, seed: int, epoch: int) -> None:
    texts, labels, segments = numbered(count, segments=True)
    batches = LabelBatches(texts, labels, 0, budget, seed, segments)
    found: list[int] = []
    for index in range(batches.count(epoch)):
        batch = batches.get(epoch, index)
        assert batch.ids.numel() <= budget and batch.predicted == int((batch.lengths - 1).sum())
        assert batch.segments is not None
        for row, (number, length) in enumerate(zip(batch.labels.tolist(), batch.lengths.tolist(), strict=True)):
            padding = [0] * (batch.ids.size(1) - length)
            assert batch.ids[row].tolist() == [*texts[number].tolist(), *padding]
            assert batch.segments[row].tolist() == [number % 2] * length + padding
        found += batch.labels.tolist()
    assert sorted(found) == list(range(count))


def test_label_batches_are_full_of_like_lengths_and_a_pure_function_of_the_seed() -> None:
    texts, labels, _ = numbered(997)
    batches, again, other = (LabelBatches(texts, labels, 0, 300, seed) for seed in (1, 1, 2))
    real = padded = 0
    for index in range(batches.count(0)):
        batch = batches.get(0, index)
        real, padded = real + batch.real_tokens, padded + batch.padded_tokens
    assert batches.padding_share() == pytest.approx(1 - real / padded) and batches.padding_share() < 0.03
    assert batches.count(0) < 1.1 * sum(map(len, texts)) / 300

    def members(of: LabelBatches, epoch: int) -> list[list[int]]:
        return [of.get(epoch, index).labels.tolist() for index in range(of.count(epoch))]

    wanted = {epoch: members(batches, epoch) for epoch in range(4)}
    for epoch in (3, 0, 2, 1, 3):
        assert members(again, epoch) == wanted[epoch] != members(other, epoch)
    assert wanted[0] != wanted[1]
    assert batches.take([5, 3]).labels.tolist() == [5, 3]


def test_what_does_not_fit_is_told() -> None:
    texts, labels, _ = numbered(7)
    with pytest.raises(RegardError, match=r"a text has \d+ tokens and a batch only 3; raise train\.batch_tokens"):
        LabelBatches(texts, labels, 0, 3, 1)
    with pytest.raises(RegardError, match="7 texts and 6 labels"):
        LabelBatches(texts, labels[:6], 0, 300, 1)


def test_a_split_of_names_without_the_short_ones() -> None:
    every, longer = (read_labelled([f"builtin/names/test{least}"]) for least in ("", "/5"))
    assert longer == [each for each in every if len(each.text) >= 5]
    assert 0 < len(longer) < len(every)
    with pytest.raises(UsageError, match="write builtin/names/test, or builtin/names/test/5"):
        read_labelled(["builtin/names/test/five"])
