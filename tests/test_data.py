"""Files -> pairs -> batches: order is a pure function of the seed, each pair comes once, and budgets hold."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batch import pad, pair_batch
from regard.data.batches import Batches, TokenPairs, filter_lengths
from regard.data.config import PairsConfig
from regard.data.held_out import hashes_of, held_rows
from regard.data.pairs import builtin_pairs, load_pairs, overlap, read_pairs
from regard.errors import RegardError, UsageError
from regard.tokens import BEGIN, END, PAD

FIELDS = ("source", "target")


def hold_out(pairs: list[tuple[str, str]], most: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs to learn from, and those held out."""
    held = held_rows(hashes_of(source for source, _ in pairs), most, "pairs")
    sides = [[pair for pair, out in zip(pairs, held, strict=True) if out == side] for side in (False, True)]
    return sides[0], sides[1]


def random_pairs(count: int, seed: int = 3, longest: int = 23) -> TokenPairs:
    """Pairs whose every token says which pair it is of."""
    random = np.random.default_rng(seed)
    sources = [np.full(random.integers(1, longest), 100 + row, dtype=np.int32) for row in range(count)]
    targets = [np.full(random.integers(2, longest), 100 + row, dtype=np.int32) for row in range(count)]
    return TokenPairs(sources, targets, PAD)


def members(batches: Batches, epoch: int) -> list[list[int]]:
    """The pairs of each batch of an epoch, in order."""
    return [(batches.get(epoch, i).source[:, 0] - 100).tolist() for i in range(batches.count(epoch))]


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_by_hand() -> None:
    batch = pair_batch(
        [np.array([7, END]), np.array([8, 9, END])], [np.array([BEGIN, 5, 6, END]), np.array([BEGIN, END])], PAD
    )
    assert batch.source.tolist() == [[7, END, PAD], [8, 9, END]] and batch.source_lengths.tolist() == [2, 3]
    assert batch.target.tolist() == [[BEGIN, 5, 6, END], [BEGIN, END, PAD, PAD]]
    assert batch.target_lengths.tolist() == [3, 1] and batch.target_tokens == 4
    assert batch.counts == {"loss": 4, "nll": 4}
    assert (batch.real_tokens, batch.padded_tokens) == (9, 12)
    assert pad([np.array([3])], fill=9)[0].tolist() == [[3]]


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 60), budget=st.integers(22, 200), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_every_pair_once_an_epoch_within_the_budget(count: int, budget: int, seed: int, epoch: int) -> None:
    batches = Batches(random_pairs(count), budget, seed)
    assert sorted(row for batch in members(batches, epoch) for row in batch) == list(range(count))
    for index in range(batches.count(epoch)):
        batch = batches.get(epoch, index)
        assert batch.source.numel() <= budget
        assert batch.target[:, 1:].numel() <= budget  # the begin token is not predicted


def test_budgets_are_used_and_batches_hold_pairs_of_like_length() -> None:
    """With equal sides, batches are nearly full, and next to nothing is padding."""
    pairs = random_pairs(997)
    equal = TokenPairs(pairs.sources, [np.append(ids, END) for ids in pairs.sources], PAD)
    batches = Batches(equal, 300, 1)
    assert batches.padding_share() < 0.03
    assert batches.count(0) < 1.1 * sum(map(len, equal.sources)) / 300


def test_a_batch_is_a_pure_function_of_seed_epoch_and_index() -> None:
    pairs = random_pairs(151)
    first, second = Batches(pairs, 100, seed=5), Batches(random_pairs(151), 100, seed=5)
    wanted = {epoch: members(first, epoch) for epoch in range(5)}
    for epoch in (3, 0, 4, 2, 1, 3):  # in any order, with a cache of two epochs
        assert members(second, epoch) == wanted[epoch]
    assert wanted[0] != wanted[1]
    assert sorted(map(sorted, wanted[0])) != sorted(map(sorted, wanted[1]))  # not only the order of batches
    assert members(Batches(pairs, 100, seed=6), 0) != wanted[0]


def test_another_process_gets_the_same_batches() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_data import *\nimport json\n"
        "print(json.dumps(members(Batches(random_pairs(53), 90, seed=7), 2)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == members(Batches(random_pairs(53), 90, seed=7), 2)


def test_the_share_of_padding_by_brute_force() -> None:
    batches = Batches(random_pairs(211), 120, 4)
    padding = positions = 0
    for index in range(batches.count(0)):
        batch = batches.get(0, index)
        for side in (batch.source, batch.target[:, 1:]):
            padding += int((side == PAD).sum())
            positions += side.numel()
    assert batches.padding_share() == pytest.approx(padding / positions)
    assert 0 < padding / positions < 0.35


def test_a_pair_larger_than_a_batch() -> None:
    with pytest.raises(RegardError, match=r"a pair has 22 tokens and a batch only 21; raise train\.batch_tokens"):
        Batches(random_pairs(100), 21, 1)


def test_long_and_unlike_pairs_are_counted() -> None:
    lengths = [(5, 5), (31, 5), (5, 32), (3, 28), (9, 1), (30, 30)]  # source; target without begin
    pairs = TokenPairs([np.zeros(s, int) for s, _ in lengths], [np.zeros(t + 1, int) for _, t in lengths], PAD)
    kept, note = filter_lengths(pairs, max_length=30, max_ratio=9.0)
    assert [len(source) for source in kept.sources] == [5, 9, 30]  # (9, 1) is unlike, but short
    assert note == "dropped 3 of 6 training pairs: 2 with a side over 30 tokens, 1 with a length ratio over 9"
    assert filter_lengths(kept, 30, 9.0) == (kept, None)
    with pytest.raises(RegardError, match=r"no training pair is left: dropped 3 of 3 .*raise data\.max_length"):
        filter_lengths(kept, 2, 9.0)
    unlike = pairs.keep(np.array([3]))
    with pytest.raises(RegardError, match=r"ratio over 9; check that source and target .* raise data\.max_ratio$"):
        filter_lengths(unlike, 30, 9.0)  # a longer max_length would not help


# -- pairs -------------------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(folder / name)


PAIRS = [("a man", "ein Mann"), ("two dogs", "zwei Hunde")]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_three_ways_to_write_pairs(tmp_path: Path, end: str) -> None:
    tsv = write(tmp_path, f"p.tsv{end}", "a man\tein Mann\ntwo dogs\tzwei Hunde\tignored\n")
    rows = ['{"source": "a man", "target": "ein Mann", "id": 1}', '{"target": "zwei Hunde", "source": "two dogs"}']
    jsonl = write(tmp_path, f"p.jsonl{end}", "\n".join(rows))
    two = [write(tmp_path, f"p.en{end}", "a man\ntwo dogs\n"), write(tmp_path, f"p.de{end}", "ein Mann\nzwei Hunde")]
    for names in ([tsv], [jsonl], two):
        assert read_pairs(names, FIELDS) == PAIRS


SENTENCES = [("a man, with a red hat", "ein Mann mit rotem Hut"), ("two dogs in the snow", "zwei Hunde im Schnee")]


@pytest.mark.parametrize(
    ("name", "text", "fields", "languages"),
    [
        ("p.csv", '"{0}",{1}\n', FIELDS, None),
        ("p.csv", 'id,target,source\n7,{1},"{0}"\n', FIELDS, None),
        ("p.csv", 'en,de\n"{0}",{1}\n', FIELDS, None),
        ("p.tsv", "de\ten\n{1}\t{0}\n", FIELDS, ("en", "de")),
        ("p.tsv", "english_text\tgerman_text\n{0}\t{1}\n", FIELDS, None),
        ("p.tsv", "id\tfrom here\tto there\n7\t{0}\t{1}\n", ("2", "3"), None),
        ("p.tsv", "a\tb\n{1}\t{0}\n", ("b", "a"), None),
        ("p.jsonl", '{{"de": "{1}", "en": "{0}"}}\n', ("en", "de"), None),
        ("p.jsonl", '{{"de": "{1}", "en": "{0}"}}\n', FIELDS, ("en", "de")),
    ],
)
def test_columns_of_pairs(
    tmp_path: Path, name: str, text: str, fields: tuple[str, str], languages: tuple[str, str] | None
) -> None:
    """The help promised .csv, which was refused; a header became a pair of its own."""
    *header, row = text.splitlines(keepends=True)
    file = write(tmp_path, name, "".join(header) + "".join(row.format(*pair) for pair in SENTENCES))
    assert read_pairs([file], fields, languages=languages) == SENTENCES


def test_what_is_guessed_of_pairs_is_told_and_the_rest_asked_for(tmp_path: Path) -> None:
    notes: list[str] = []
    read_pairs([write(tmp_path, "p.csv", "en,de\na longer sentence here,ein etwas laengerer Satz\n")], notes=notes)
    assert len(notes) == 1 and "source is column en, target is column de" in notes[0]
    dictionary = write(tmp_path, "d.tsv", "es\tit\nist\tis\nich\tI\n")  # words, and no names of languages
    assert read_pairs([dictionary])[0] == ("es", "it")
    numbered = write(tmp_path, "n.tsv", "".join(f"{number}\ta b\tc d\n" for number in (5, 9, 2)))
    with pytest.raises(
        UsageError,
        match=r"which column is the source\? .*first two columns, or .*or say source= and .*source='2' target='3'",
    ):
        read_pairs([numbered])
    assert read_pairs([numbered], ("2", "3")) == [("a b", "c d")] * 3


@pytest.mark.parametrize("first", [("He is here", "Il est de Paris"), ("Is it no good at all", "Es ist it und de da")])
def test_a_first_pair_with_words_that_are_codes_of_languages_stays(tmp_path: Path, first: tuple[str, str]) -> None:
    """Words such as "is", "it" and "de" are also codes of languages: the first pair was taken for a header and lost."""
    pairs = [first, *SENTENCES]
    file = write(tmp_path, "p.tsv", "".join(f"{source}\t{target}\n" for source, target in pairs))
    assert read_pairs([file]) == pairs


def test_json_fields_have_names(tmp_path: Path) -> None:
    file = write(tmp_path, "p.jsonl", '{"en": "a man", "de": "ein Mann"}\n\n')
    assert read_pairs([file], ("en", "de")) == [("a man", "ein Mann"), ("", "")]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """Both files of a pair must count alike, whatever stands inside of a line."""
    odd = "a\u2028b\x0bc\x85d\x0ce\u2029f\rg"
    files = [write(tmp_path, "p.en", f"{odd}\nsecond\n"), write(tmp_path, "p.de", "eins\nzwei\n")]
    assert read_pairs(files, FIELDS) == [(odd, "eins"), ("second", "zwei")]
    assert read_pairs([write(tmp_path, "p.tsv", f"{odd}\teins\n")], FIELDS) == [(odd, "eins")]
    line = json.dumps({"source": odd, "target": "x"}, ensure_ascii=False)
    assert read_pairs([write(tmp_path, "p.jsonl", line)], FIELDS) == [(odd, "x")]


def test_marks_and_line_ends_of_windows(tmp_path: Path) -> None:
    files = [
        write(tmp_path, "p.en", b"\xef\xbb\xbfa man\r\ntwo dogs\r\n"),
        write(tmp_path, "p.de", "ein Mann\nzwei Hunde\n"),
    ]
    assert read_pairs(files, FIELDS) == PAIRS
    inside = write(tmp_path, "p.tsv", "a \ufeffman\tein Mann\r\n")
    assert read_pairs([inside], FIELDS) == [("a \ufeffman", "ein Mann")]


def test_builtin_sets() -> None:
    train, valid = load_pairs(PairsConfig(builtin_size=50)).train, load_pairs(PairsConfig(builtin_size=50)).valid
    assert (len(train), len(valid)) == (50, 500)
    assert read_pairs(["builtin/dates/valid"], FIELDS)[:500] == valid == builtin_pairs("valid", 500)
    assert read_pairs(["builtin/dates"], FIELDS) == builtin_pairs("test", 1000)


def test_builtin_training_with_a_validation_set_of_ones_own(tmp_path: Path) -> None:
    """The bug: data.valid was passed over in silence."""
    own = write(tmp_path, "v.tsv", "March 3rd, 1998\t1998-03-03\n")
    sets = load_pairs(PairsConfig(builtin_size=50, valid=(own,)))
    assert len(sets.train) == 50 and sets.valid == [("March 3rd, 1998", "1998-03-03")]


def test_holding_out_keeps_equal_sources_together(tmp_path: Path) -> None:
    pairs = [(f"source {i % 400}", f"target {i}") for i in range(1200)]
    train, valid = hold_out(pairs, 1000)
    assert sorted(train + valid) == sorted(pairs) and not {s for s, _ in train} & {s for s, _ in valid}
    assert 0.05 < len(valid) / len(pairs) < 0.16  # a tenth
    assert hold_out(pairs[::-1], 1000)[1] == valid[::-1]  # whatever the order
    assert len(hold_out(pairs, 12)[1]) < 40
    file = write(tmp_path, "p.tsv", "".join(f"{s}\t{t}\n" for s, t in pairs))
    sets = load_pairs(PairsConfig(train=(file,)))
    assert sets.notes == (f"no validation set: held out {len(valid)} of 1,200 pairs (by source text)",)


def test_of_a_few_different_pairs_some_are_held_out() -> None:
    """The bug: of 64 pairs of 8 sources chance held out none, and "64 pairs are too few" was said of them."""
    for first in range(40):
        pairs = [(f"source {first + number}", str(number)) for number in range(5)] * 3
        train, valid = hold_out(pairs, 1000)
        assert train and valid and not {source for source, _ in train} & {source for source, _ in valid}
        assert len(train) + len(valid) == 15
    with pytest.raises(RegardError, match=r"^12 pairs \(4 different\) are too few to hold some out; name a validation"):
        hold_out([(str(number), "b") for number in range(4)] * 3, 1000)


def test_too_few_pairs_to_hold_out() -> None:
    with pytest.raises(
        RegardError, match=r"2 pairs are too few to hold some out; name a validation set \(data\.valid\)"
    ):
        hold_out([("a", "b"), ("c", "d")], 1000)


def test_overlap_is_a_warning() -> None:
    train = [("a man", "x"), ("two dogs", "y")]
    assert overlap(train, [("a man ", "z"), ("other", "w")], "test") == [
        "warning: 1 of 2 test sentences also occur in training; scores on them flatter: take them out of training"
    ]
    assert overlap(train, [("other", "x")], "test") == []
