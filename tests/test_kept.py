"""Data that are read and encoded once: the same ids and batches as from lists, whatever is killed, full, changed or gone."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import pkgutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.cli.main import run
from regard.data import mapped
from regard.data.batches import Batches, LabelBatches, TokenPairs, cut_by_budget, encode_labelled, filter_lengths
from regard.data.builtin.dates import as_pairs, date_pairs
from regard.data.config import LabelledConfig, PairsConfig, TextConfig
from regard.data.kept import cache, encoded_pairs, journal
from regard.data.kept.cache import clear, data_cache, entries, find_kept, kept
from regard.data.kept.encoded_documents import DocumentWriter, encode_documents
from regard.data.kept.encoded_labelled import encode_labelled_sets, fitted
from regard.data.kept.encoded_pairs import encode_pairs
from regard.data.kept.encoding import with_ends
from regard.data.kept.journal import Build, FileBuild, MemoryBuild, open_kept
from regard.data.kept.ragged import Ragged, TextRows, as_bytes, digest_rows
from regard.data.kept.ranks import help_until_told, helped_by
from regard.data.kept.tokenizers import sampled, train_pair_tokenizers
from regard.data.labelled import load_labelled
from regard.data.mapped import ArrayWriter
from regard.data.masking import MaskedBatches, chunks_of
from regard.data.mixed import WeightedBatches, mixture
from regard.data.pair_files import PairReader
from regard.data.pairs import load_pairs
from regard.data.text_sets import DocumentRows, load_texts
from regard.errors import Advice, Option, RegardError, Setting
from regard.tasks.configure import run_config
from regard.tasks.recipe import prepare
from regard.tasks.run import resume_run, start_run
from regard.tokens import BEGIN, END, PAD, TextTokenizer, TokenizerPair, TokensConfig, as_arrays, train_tokenizer
from regard.tokens.encoder import NEAR, Encoder
from regard.world import alone, joined

TEXTS = [
    "A man rides a bike.",
    "Zwei Männer  gehen über\n die Straße",
    "x_1  = 'don't' 3.5\n\n    return  y",
    "</s> is a <unk> word [MASK] here",
] * 3
ODD = st.one_of(
    st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\t ab'1.\u0301\u00a0\u180e\x85\x1c\u3000İΣ¨")
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache in which everything is kept, however small, and committed at once."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALL", 1)
    monkeypatch.setattr(cache, "FRESH", -(10**18))
    monkeypatch.setattr(journal, "EVERY", 0.0)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """All files of all entries; locks and the index say nothing about them."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".lock",) and path.name != cache.INDEX
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# -- ids ---------------------------------------------------------------------------------------------------------------


def tokenizers() -> dict[str, TextTokenizer]:
    kinds = {"bpe": {}, "word": {}, "space": {}, "wordpiece": {}, "character": {}, "nfkc": {"normalise": "nfkc"}}
    kinds |= {"nfc": {"normalise": "nfc", "lowercase": True}}
    made = {}
    for name, settings_ in kinds.items():
        kind = name if name not in ("nfc", "nfkc") else "bpe"
        config = TokensConfig(kind=kind, size=300, min_count=1, **settings_)  # type: ignore[arg-type]
        made[name] = train_tokenizer(TEXTS, config, mask=kind == "bpe")
    return made


TOKENIZERS = tokenizers()
ENCODERS = {name: Encoder(tokenizer) for name, tokenizer in TOKENIZERS.items()}


def test_where_words_can_be_looked_up() -> None:
    by_words = {
        "bpe": "go",
        "word": "go",
        "space": "go",
        "wordpiece": "go",
        "nfc": "go",
        "character": None,
        "nfkc": None,
    }
    assert {name: tokenizer.spaces for name, tokenizer in TOKENIZERS.items()} == by_words


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(ODD, max_size=30), min_size=1, max_size=4))
def test_an_encoder_gives_the_ids_of_the_tokenizer(texts: list[str]) -> None:
    for name, tokenizer in TOKENIZERS.items():
        ids, lengths = ENCODERS[name](texts)
        wanted = tokenizer.encode_all(texts)
        assert lengths.tolist() == [len(each) for each in wanted], name
        assert ids.tolist() == [index for each in wanted for index in each], name


def test_an_encoder_forgets_when_it_knows_too_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.tokens.encoder.KNOWN", 7)
    encode, tokenizer = Encoder(TOKENIZERS["bpe"]), TOKENIZERS["bpe"]
    for start in range(0, len(TEXTS), 2):
        some = TEXTS[start : start + 2]
        assert encode(some)[0].tolist() == [index for text in some for index in tokenizer.encode(text)]
    assert encode([])[0].tolist() == []


@settings(max_examples=10, deadline=None)
@given(st.text(ODD, min_size=3 * NEAR, max_size=700))
def test_a_long_document_is_cut_where_its_tokens_do_not_notice(text: str) -> None:
    data, lengths = as_bytes([text])
    rows = DocumentRows(data, np.zeros(1, dtype=np.uint64), lengths.astype(np.uint64))
    for name, tokenizer in TOKENIZERS.items():
        build = MemoryBuild()
        ids, sizes = build.column("ids", "<u4"), build.column("sizes", "<u8")
        writer = DocumentWriter(rows, tokenizer, ([BEGIN], [END]), ids, sizes)
        states = list(writer.write({"document": 0, "byte": 0, "ids": 0}))
        assert states[-1] == {"document": 1, "byte": 0, "ids": 0}
        assert ids.values().tolist() == [BEGIN, *tokenizer.encode(text), END], name
        assert sizes.values().tolist() == [len(ids.values())]


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.kept.encoded_documents.LONG", 2 * NEAR + 29)


# -- arrays ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=9))
def test_rows_of_different_lengths(lists: list[list[int]]) -> None:
    arrays = [np.array(each, dtype=np.int32) for each in lists]
    rows = Ragged.of(arrays)
    assert [row.tolist() for row in rows] == lists and rows.lengths.tolist() == [len(each) for each in lists]
    assert [row.tolist() for row in rows[1:4]] == lists[1:4]
    flat = with_ends(rows.flat, rows.lengths, [7, 8], [9])
    assert flat.tolist() == [index for each in lists for index in (7, 8, *each, 9)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=3)), min_size=1, max_size=40), st.data())
def test_rows_of_texts(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    bytes_, lengths = as_bytes([side for pair in pairs for side in pair])
    out = sorted(data.draw(st.sets(st.integers(0, len(pairs) - 1))))
    rows = TextRows(bytes_, lengths.reshape(-1, 2), np.array(out, dtype=np.uint64))
    left = [pair for place, pair in enumerate(pairs) if place not in out]
    assert list(rows) == left and len(rows) == len(left) and rows[1:7] == left[1:7] and rows[::3] == left[::3]
    assert rows.at(np.array(out, dtype=np.int64)) == [pairs[place] for place in out]
    assert [rows[place] for place in range(-len(left), len(left))] == [*left, *left]


def test_texts_that_were_read_do_not_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten million pairs, read in order, once had the whole file of their texts in the memory of the process."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells how much of a file is in memory")

    def of_files() -> int:
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if "RssFile" in line)

    texts, size = [f"{number:0997d}" for number in range(16_001)], 997
    with open(tmp_path / "texts", "wb") as file:
        writer = ArrayWriter(file, "text", "u1")
        writer.write(as_bytes(texts)[0])
        values = writer.values()
    lengths = np.full((len(texts), 1), size)
    monkeypatch.setattr(mapped, "HELD", 1 << 21)
    before, most = of_files(), 0
    rows = TextRows(values, lengths)
    for number in range(0, len(texts), 1000):
        assert rows[number : number + 1000] == [(text,) for text in texts[number : number + 1000]]
        most = max(most, of_files() - before)
    assert most < 6 << 20 < len(values)
    digest, expected = hashlib.sha256(), hashlib.sha256(np.full(16_001, size, dtype=np.int64).tobytes())
    digest_rows(digest, Ragged(values, lengths[:, 0]))
    expected.update("".join(texts).encode("utf-32-le"))
    assert digest.digest() == expected.digest() and of_files() - before < 6 << 20


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(30, 200), st.randoms())
def test_batches_are_cut_as_one_by_one(sizes: list[int], budget: int, random: Any) -> None:
    order = np.array(random.sample(range(len(sizes)), len(sizes)))
    groups, longest = [[]], 0
    for row in order.tolist():
        longest = max(longest, sizes[row])
        if (len(groups[-1]) + 1) * longest > budget:
            groups.append([])
            longest = sizes[row]
        groups[-1].append(row)
    assert [group.tolist() for group in cut_by_budget(order, np.array(sizes), budget)] == groups


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 20))
def test_the_longer_text_of_a_pair_gives_way(first: int, second: int, room: int) -> None:
    a, b = first, second
    while a + b > room:
        a, b = (a - 1, b) if a >= b else (a, b - 1)
    found = fitted(np.array([first]), np.array([second]), room)
    assert (int(found[0][0]), int(found[1][0])) == (a, b)


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(1, 13))
def test_chunks_of_documents(sizes: list[int], room: int) -> None:
    wanted = []
    for number, size in enumerate(sizes):
        pieces = -(-size // room)
        wanted += [[number, size * each // pieces, size * (each + 1) // pieces] for each in range(pieces)]
    assert chunks_of(np.array(sizes), room).tolist() == wanted


# -- files -> batches, kept and in memory ------------------------------------------------------------------------------


def dates(count: int) -> list[tuple[str, str]]:
    return as_pairs(date_pairs("train", count))


def write_pairs(path: Path, count: int = 300) -> Path:
    rows = [*dates(count), ("", "x"), ("  spaced ", "y"), ("long " * 40, "z"), *dates(5)]
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return path


def batches_of(source: Any) -> list[list[Any]]:
    found = []
    for epoch in (0, 1):
        for index in range(source.count(epoch)):
            found.append(
                [value.tolist() for value in vars(source.get(epoch, index)).values() if hasattr(value, "tolist")]
            )
    return found


def prepared_pairs(file: Path) -> tuple[Any, TokenizerPair, tuple[TokenPairs, str | None, str]]:
    sets = load_pairs(PairsConfig(train=(str(file),), hold_out=20))
    pair = train_pair_tokenizers([sets], TokensConfig(size=300))
    return sets, pair, encode_pairs(sets, pair, 30, 9.0)


def test_kept_pairs_are_those_of_lists(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference: every pair in a list, every id encoded alone."""
    file = write_pairs(place / "pairs.tsv")
    sets, pair, (train, note, digest) = prepared_pairs(file)
    assert sets.key and isinstance(sets.train, TextRows) and len(sets.valid) > 5
    plain = [row for row in [*dates(300), ("  spaced ", "y"), ("long " * 40, "z"), *dates(5)] if row not in sets.valid]
    assert list(sets.train) == plain and sets.characters == tuple(
        sum(len(row[side]) for row in plain) for side in (0, 1)
    )
    trained = TokenizerPair.train([row[0] for row in plain], [row[1] for row in plain], TokensConfig(size=300))
    assert trained.source.text == pair.source.text
    ids = [
        tokenizer.encode_all([row[side] for row in plain]) for side, tokenizer in enumerate((pair.source, pair.target))
    ]
    lists = TokenPairs(as_arrays(ids[0], begin=False), as_arrays(ids[1], begin=True), PAD)
    wanted, wanted_note = filter_lengths(lists, 30, 9.0)
    assert note == wanted_note and note is not None
    assert batches_of(Batches(train, 200, 3)) == batches_of(Batches(wanted, 200, 3))
    told = hashlib.sha256()
    for side in (wanted.sources, wanted.targets):
        told.update(np.array([len(row) for row in side]).tobytes() + np.concatenate(side).tobytes())
    assert digest == told.hexdigest()  # as runs of an older Regard wrote it down
    monkeypatch.setattr(cache, "SMALL", 1 << 40)
    again, _, (memory, *rest) = prepared_pairs(file)
    assert not again.key and again.train == plain and again.notes == sets.notes and rest == [note, digest]
    assert batches_of(Batches(memory, 200, 3)) == batches_of(Batches(train, 200, 3))


def test_notes_keep_what_they_name() -> None:
    notes = ["plain", Advice("say ", Option("source", "2"), " or ", Setting("train.lr", "1"))]
    again = cache.notes_from_json(json.loads(json.dumps(cache.notes_as_json(notes))))
    assert list(again) == notes and isinstance(again[1], Advice) and again[1].parts == notes[1].parts  # type: ignore[attr-defined]


def test_repeats_and_overlaps_are_told(place: Path) -> None:
    file, test = write_pairs(place / "pairs.tsv"), place / "test.tsv"
    test.write_text("".join(f" {source} \t{target}\n" for source, target in dates(11)) + "never seen\tx\n")
    file.write_text(file.read_text() + "twice\ttold\n" * 9)
    notes = load_pairs(PairsConfig(train=(str(file),), valid=(str(test),), test=(str(test),))).notes
    repeated = 8 + 5 + 300 - len(set(dates(300)))
    assert any(note.startswith(f"{repeated} of 316 training pairs") and "repeat others" in note for note in notes)
    for which in ("validation", "test"):
        assert (
            f"warning: 11 of 12 {which} sentences also occur in training; scores on them flatter: take them out of training"
            in notes
        )


def test_a_sample_for_tokenizers_is_seeded_and_said() -> None:
    rows = [("word " * 3, str(number)) for number in range(3000)]
    some = sampled(rows, 45_000, 4_500)
    assert sampled(rows, 45_000, 45_000) is rows and some == sampled(rows, 45_000, 4_500)
    assert 240 < len(some) < 360 and [row for row in rows if row in set(some)] == some


def write_texts(folder: Path) -> Path:
    folder.mkdir()
    for number in range(7):
        words = " ".join(f"{source} is {target}." for source, target in dates(200)[number * 20 : number * 20 + 20])
        (folder / f"{number}.txt").write_text(words.replace(". ", ".\r\n"), encoding="utf-8", newline="")
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": f"row {n}"}) + "\n" for n in range(9)))
    (folder / "blank.txt").write_text(" \n")
    (folder / "other.bin").write_bytes(b"abc\0")
    return folder


def test_kept_documents_are_those_of_lists(place: Path) -> None:
    folder = write_texts(place / "texts")
    sets = load_texts(TextConfig(train=(str(folder),)))
    whole = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("?.txt"))] + [f"row {n}" for n in range(9)]
    assert sorted([*sets.train, *sets.valid]) == sorted(whole) and sets.key
    assert [text for text in whole if text in set(sets.train)] == list(sets.train)
    assert any("1 that is not UTF-8 text (other.bin)" in note for note in sets.notes)
    assert any("dropped 1 of 17 documents" in note for note in sets.notes)
    tokenizer = TOKENIZERS["bpe"]
    train, valid, found = encode_documents(sets, tokenizer, ([BEGIN], [END]))
    assert [row.tolist() for row in train] == [[BEGIN, *tokenizer.encode(text), END] for text in sets.train]
    assert found.digests is not None and found.digests["valid"] == hashlib.sha256(valid.flat.tobytes()).hexdigest()
    gaps = {"begin": 1, "end": 2, "mask": 4, "pad": 0, "vocabulary": 99, "special": (0, 1, 2, 3, 4)}
    rest = {"length": 17, "batch_tokens": 90, "seed": 3, "pairs": True}
    plain, _, _ = encode_documents(sets, tokenizer, ([], []))
    lists = [np.array(tokenizer.encode(text), dtype=np.int32) for text in sets.train]
    assert batches_of(MaskedBatches(plain, **gaps, **rest)) == batches_of(MaskedBatches(lists, **gaps, **rest))  # type: ignore[arg-type]


@pytest.mark.parametrize("paired", [False, True])
def test_kept_labels_are_those_of_lists(place: Path, paired: bool) -> None:
    rows = [
        {"text": source, "label": target[:3]} | ({"second": target} if paired else {}) for source, target in dates(200)
    ]
    file = place / "labelled.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {**rows[0], "text": " "}]))
    sets = load_labelled(LabelledConfig(train=(str(file),), second="second" if paired else None, hold_out=30))
    found = [(each.text, each.label) for each in (*sets.train, *sets.valid)]
    assert sorted(found) == sorted((row["text"], row["label"]) for row in rows) and sets.pairs is paired and sets.key
    assert {each.label for each in sets.valid} <= {each.label for each in sets.train} == set(sets.labels)
    tokenizer = TOKENIZERS["word"]
    wanted = encode_labelled(list(sets.train), sets.labels, tokenizer, 9, 64, 3)
    encoded = encode_labelled_sets(sets, sets.labels, tokenizer, 9)
    made: LabelBatches = encoded.batches(PAD, 64, 3)
    assert batches_of(made) == batches_of(wanted)
    assert encoded.cut == sum(len(tokenizer.encode(each.text)) > 7 for each in sets.train)


# -- killed, full, changed, gone ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def killing(monkeypatch: pytest.MonkeyPatch, when: int, error: BaseException) -> None:
    """Raise at the n-th call that changes a file."""
    left = [when]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise error
            return call(*arguments, **named)

        return called

    for owner, name in (
        (ArrayWriter, "write"),
        (os, "fsync"),
        (os, "replace"),
        (os, "rename"),
        (ArrayWriter, "finish"),
    ):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


def prepare_all(place: Path) -> None:
    prepared_pairs(place / "pairs.tsv")
    sets = load_texts(TextConfig(train=(str(place / "texts"),)))
    encode_documents(sets, TOKENIZERS["bpe"], ([BEGIN], [END]))
    labelled = load_labelled(LabelledConfig(train=(str(place / "labelled.tsv"),), hold_out=30))
    encode_labelled_sets(labelled, labelled.labels, TOKENIZERS["word"], 9)


@pytest.fixture
def all_kinds(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of every kind of data, and chunks so small that there are many."""
    write_pairs(place / "pairs.tsv", 150)
    write_texts(place / "texts")
    (place / "labelled.tsv").write_text("".join(f"{source}\t{target[:3]}\n" for source, target in dates(150)))
    for module, name, size in (
        ("regard.data.pairs", "TOGETHER", 37),
        ("regard.data.labelled_rows", "TOGETHER", 37),
        ("regard.data.rows", "HEAD", 40),
        ("regard.data.text_sets", "FLUSH", 500),
        ("regard.data.text_sets", "BLOCK", 300),
        ("regard.data.kept.encoded_pairs", "TOGETHER", 31),
        ("regard.data.kept.encoded_labelled", "TOGETHER", 31),
    ):
        monkeypatch.setattr(f"{module}.{name}", size)
    return place


def numbers_of_calls() -> Iterator[int]:
    """Numbers of calls, from 1 on, farther and farther apart."""
    when = 1
    while True:
        yield when
        when += 1 + when // 3


def test_killed_again_and_again_it_ends_with_the_same_files(all_kinds: Path) -> None:
    prepare_all(all_kinds)
    whole = contents(data_cache())
    assert len({name.split("-")[0] for name in whole}) == 5  # kinds of entries
    clear([each.name for each in entries()])
    assert not contents(data_cache())
    kills = 0
    for when in numbers_of_calls():
        with pytest.MonkeyPatch.context() as patch:
            killing(patch, when, Killed())
            try:
                prepare_all(all_kinds)
                break
            except Killed:
                kills += 1
    assert kills >= 10 and contents(data_cache()) == whole


def test_several_processes_write_the_same_files(all_kinds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.kept.encoded_documents.LONG", 700)
    prepare_all(all_kinds)
    wanted = contents(data_cache())
    assert len(wanted) > 8
    clear([each.name for each in entries()])
    for module in ("kept.ranks", "labelled_rows", "text_sets"):
        monkeypatch.setattr(f"regard.data.{module}.worker_count", lambda items: 3)
    prepare_all(all_kinds)
    assert contents(data_cache()) == wanted


def in_processes(place: Path, size: int, dies: tuple[int, int] | None = None) -> tuple[list[int | None], list[str]]:
    """Prepare by so many processes of a world: their exit codes, and who did which piece. `dies`: rank, at which piece."""
    fork, said = multiprocessing.get_context("fork"), place / "said"
    said.unlink(missing_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    common |= {"TOKENIZERS_PARALLELISM": "false"}
    processes = [
        fork.Process(target=one_of_them, args=(place, said, dies, common | {"RANK": str(rank)})) for rank in range(size)
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join(60)
    return [each.exitcode for each in processes], said.read_text().splitlines() if said.exists() else []


def one_of_them(place: Path, said: Path, dies: tuple[int, int] | None, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    with joined(30) as here:
        for name, pieces in (("encoded_pairs", "_encode_some"), ("encoded_documents", "Documents.encoded")):
            noting(f"regard.data.kept.{name}.{pieces}", here.rank, said, dies)
        noting("regard.data.pairs._of_use", here.rank, said, dies)
        if here.rank:
            assert help_until_told(here) == {"done": True}
            return
        with helped_by(here), alone():
            prepare_all(place)
        here.tell({"done": True})


def noting(name: str, rank: int, said: Path, dies: tuple[int, int] | None) -> None:
    """Let a function note in a file who called it, and its process die at some call."""
    owner, _, function = name.rpartition(".")
    at = pkgutil.resolve_name(owner)
    call, calls = getattr(at, function), itertools.count(1)

    def noted(*arguments: Any) -> Any:
        with open(said, "a") as file:
            file.write(f"{rank} {function}\n")
        if dies == (rank, next(calls)):
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments)

    setattr(at, function, noted)


@pytest.mark.parametrize("dies", [(1, 2), (2, 1), (0, 3)])
def test_the_processes_of_a_world_write_the_same_files(
    dies: tuple[int, int], all_kinds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each does a share, one is killed in the middle, all are started again as two: the bytes that one alone writes."""
    monkeypatch.setattr("regard.data.kept.encoded_documents.LONG", 300)
    monkeypatch.setattr("regard.data.pairs.BLOCK", 100)
    prepare_all(all_kinds)
    wanted = contents(data_cache())
    for size, killed in ((3, dies), (2, None)):
        if killed is not None:
            clear([each.name for each in entries()])
        codes, said = in_processes(all_kinds, size, killed)
        if killed is None:
            assert codes == [0] * size
        else:
            assert codes[killed[0]] == -signal.SIGKILL and 0 not in codes
            assert len({line.split()[0] for line in said}) == 3
    assert contents(data_cache()) == wanted


def test_who_cannot_see_the_data_is_not_waited_for(all_kinds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of whom the work fails, the first one does the rest."""
    monkeypatch.setattr("regard.data.pairs.BLOCK", 100)
    prepare_all(all_kinds)
    wanted = contents(data_cache())
    real = encoded_pairs.encoding_again
    ours = os.getpid()

    def fails(key: str, *words: Any) -> Any:
        items, _ = real(key, *words)  # type: ignore[misc]
        return items, lambda item: 1 / (os.getpid() == ours)

    for again in (lambda *words: None, fails):
        clear([each.name for each in entries()])
        monkeypatch.setattr(encoded_pairs, "encoding_again", again)
        codes, said = in_processes(all_kinds, 2)
        assert codes == [0, 0] and contents(data_cache()) == wanted
        assert "1 _encode_some" not in said and "1 _of_use" in said


def written_pairs(place: Path, form: str, pairs: list[tuple[str, str]]) -> list[Path]:
    """Pairs in files of some form; the first lines of tables name their columns."""
    lines = {
        "tsv": [f"{source}\t{target}" for source, target in pairs],
        "titled.tsv": ["source\ttarget", *(f"{source}\t{target}" for source, target in pairs)],
        "csv": [f'"{source}","{target}"' for source, target in pairs],
        "jsonl": [json.dumps({"source": source, "target": target}) for source, target in pairs],
    }
    if form != "parallel":
        path = place / f"pairs.{form}"
        path.write_text("".join(f"{line}\n" for line in lines[form]), encoding="utf-8")
        return [path]
    for side, name in enumerate(("pairs.de", "pairs.en")):
        (place / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return [place / "pairs.de", place / "pairs.en"]


@pytest.mark.parametrize("form", ["tsv", "titled.tsv", "csv", "jsonl", "parallel"])
def test_blocks_hold_what_one_pair_after_the_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Of large files, whoever reads a block decodes its lines; which are blocks does not matter, nor where one begins."""
    monkeypatch.setattr("regard.data.rows.HEAD", 20)
    pairs = [(f"Satz {number} mit é", f"sentence {number} with é" if number % 9 else "") for number in range(100)]
    paths = written_pairs(tmp_path, form, pairs)
    assert list(PairReader().pairs(paths)) == pairs
    for skip, size in ((0, 7), (0, 1000), (14, 7), (99, 4), (100, 4)):
        found = [pair for block in PairReader().blocks(paths, skip, size) for pair in block()]
        assert found == pairs[skip:], (skip, size)


def test_what_is_wrong_with_large_files_is_told_by_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.rows.HEAD", 20)

    def told(paths: list[Path]) -> str:
        with pytest.raises(RegardError) as error:
            for block in PairReader().blocks(paths, 0, 7):
                block()
        return str(error.value)

    pairs = [(f"Satz {number}", f"sentence {number}") for number in range(50)]
    (table,) = written_pairs(tmp_path, "tsv", pairs)
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join([*lines[:40], b"\xff\tnothing\n", *lines[40:]]))
    assert told([table]).startswith(f"{table}, line 41: byte 1 (0xff) is not UTF-8")
    table.write_bytes(b"".join([*lines[:40], b"only one\n", *lines[40:]]))
    assert told([table]).startswith(f"{table}, line 41: no tab")
    sides = written_pairs(tmp_path, "parallel", pairs)
    sides[1].write_text("".join(sides[1].read_text().splitlines(keepends=True)[:30]))
    assert f"{sides[0]} has 50 lines and {sides[1]} has 30" in told(sides)
    sides[0].write_text("")
    sides[1].write_text("")
    assert "is empty" in told(sides)


def test_a_full_disk_loses_nothing(all_kinds: Path) -> None:
    prepare_all(all_kinds)
    whole = contents(data_cache())
    clear([each.name for each in entries()])
    full = 0
    for when in (2, 9, 23, 40, 77):
        with pytest.MonkeyPatch.context() as patch:
            killing(patch, when, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            with pytest.raises(RegardError, match=r"cannot write .*: No space left on device; "):
                prepare_all(all_kinds)
            full += 1
    prepare_all(all_kinds)
    assert contents(data_cache()) == whole and full == 5


def test_what_exists_is_not_made_again_and_a_damaged_entry_is(place: Path) -> None:
    made = []

    def make(build: Build) -> dict[str, Any]:
        made.append(build.state)
        build.column("a", "<u2").append(np.arange(5))
        build.column("scratch", "<u4", kept=False).append(np.arange(3))
        return {"counts": "5", "made_of": "nothing"}

    first = kept("toys", "k", make)
    assert first.arrays["a"].tolist() == [0, 1, 2, 3, 4] and list(first.arrays) == ["a"]
    assert kept("toys", "k", make).key == "toys-k" and len(made) == 1 and find_kept("toys-k") is not None
    file = data_cache() / "toys-k" / "a.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert find_kept("toys-k") is None
    assert kept("toys", "k", make).arrays["a"].tolist() == [0, 1, 2, 3, 4] and len(made) == 2
    assert kept("toys", "", make).key == "" and len(made) == 3  # in memory
    (info,) = entries()
    assert (info.name, info.kind, info.whole, info.counts) == ("toys-k", "toys", True, "5") and info.bytes > 1000


def test_a_journal_that_tells_more_than_is_there_is_not_believed(place: Path) -> None:
    build = FileBuild(place / "entry")
    build.column("a", "<u2").append(np.arange(500))
    build.commit({"rows": 500})
    build.close()
    assert FileBuild(place / "entry").state == {"rows": 500}
    (place / "entry.part" / "a.safetensors").write_bytes(b"short")
    assert FileBuild(place / "entry").state == {} and open_kept(place / "entry") is None


def test_files_are_told_by_size_and_time_before_they_are_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "a.tsv"
    file.write_text("a\tb\n")
    first = cache.content_of(file)
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("it was read again"))
    assert cache.content_of(file) == first
    monkeypatch.undo()
    monkeypatch.setenv("REGARD_CACHE", str(place / "cache"))
    os.utime(file, ns=(1, 1))
    assert cache.content_of(file) == first  # hashed anew, and equal
    file.write_text("c\td\n")
    changed = cache.content_of(file)
    assert changed != first  # as large as before; it changed just now, and is not noted
    file.write_text("e\tf\n")
    assert cache.content_of(file) not in (first, changed)


def test_one_process_makes_an_entry_and_others_wait(place: Path) -> None:
    from filelock import FileLock

    data_cache().mkdir(parents=True)
    lock = FileLock(data_cache() / "toys-k.lock")
    lock.acquire()
    told = []

    def waiting() -> None:
        told.append(time.monotonic())
        lock.release()

    found = kept("toys", "k", lambda build: {"counts": "", "made_of": ""}, waiting)
    assert found.key == "toys-k" and len(told) == 1
    with lock:
        assert clear(["toys-k"])[1][0].name == "toys-k" and find_kept("toys-k") is not None
    assert clear(["toys-k"])[0][0].name == "toys-k" and find_kept("toys-k") is None


# -- several corpora ---------------------------------------------------------------------------------------------------


class Counted:
    """Batches that say which corpus, epoch and index they are of."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size

    def count(self, epoch: int) -> int:
        return self.size

    def get(self, epoch: int, index: int) -> tuple[str, int, int]:
        assert 0 <= index < self.size
        return self.name, epoch, index

    def padding_share(self) -> float:
        return 0.25


@pytest.mark.parametrize(
    ("weights", "temperature", "shares"),
    [
        ((1, 1, 1), 1, (50, 30, 20)),
        ((2, 1, 0), 1, (77, 23, 0)),
        ((1, 1, 1), 2, (42, 32, 26)),
        ((1, 3, 1), 1e9, (20, 60, 20)),
    ],
)
def test_corpora_come_by_weight_and_temperature(
    weights: tuple[float, ...], temperature: float, shares: tuple[int, ...]
) -> None:
    """Shares by hand, of 50, 30 and 20 batches: w n, and √50 : √30 : √20 = 7.07 : 5.48 : 4.47."""
    sources = [Counted(name, size) for name, size in zip("abc", (50, 30, 20), strict=True)]
    batches = mixture(sources, weights, temperature, 3)
    assert batches.count(0) == 100 and batches.padding_share() == pytest.approx(0.25)
    seen: dict[str, list[tuple[int, int]]] = {name: [] for name in "abc"}
    for epoch in range(4):
        for index in range(100):
            name, around, within = batches.get(epoch, index)
            seen[name].append((around, within))
        counts = tuple(sum(batches.get(epoch, index)[0] == name for index in range(100)) for name in "abc")
        assert counts == shares
    for name, size in zip("abc", (50, 30, 20), strict=True):
        assert seen[name] == [divmod(number, size) for number in range(len(seen[name]))]  # each goes on where it was
    again = mixture(sources, weights, temperature, 3)
    assert [again.get(3, index) for index in range(100)] == [batches.get(3, index) for index in range(100)]
    assert mixture(sources[:1], (1.0,), 5.0, 3) is sources[0]


def corpora(place: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """For each task the tables of a run on two corpora, and what its note says of them."""
    for name, rows in (("a", dates(90)), ("b", [*dates(120)[60:], ("only here", "yes")])):
        (place / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
        (place / f"{name}.jsonl").write_text("".join(json.dumps({"text": f"{s} is {t}"}) + "\n" for s, t in rows))
        (place / f"{name}.labels.tsv").write_text("".join(f"{source}\t{target[:1]}\n" for source, target in rows))
    small = {"width": 16, "heads": 2}
    files = {"translate": "tsv", "generate": "jsonl", "fill": "jsonl", "classify": "labels.tsv"}
    rest = {
        "translate": {"hold_out": 9},
        "classify": {"hold_out": 9},
        "generate": {"context": 16},
        "fill": {"context": 16},
    }
    models = {"translate": {**small, "feed_forward": 16}, "generate": small, "fill": small, "classify": {}}
    return {
        task: {
            "data": {
                "train": f"a.{end}",
                "also": [{"train": f"b.{end}", "weight": 0.5}],
                "temperature": 2.0,
                **rest[task],
            },
            "tokens": {"size": 300},
            "model": models[task],
            "train": {"batch_tokens": 128},
        }
        for task, end in files.items()
    }  # type: ignore[return-value]


@pytest.mark.parametrize("task", ["translate", "generate", "fill", "classify"])
def test_a_run_on_two_corpora_keeps_validation_apart_and_says_the_shares(place: Path, task: str) -> None:
    over = corpora(place)[task]
    prepared = prepare(run_config(task, over), place / "run", data_root=place, resume=False)  # type: ignore[arg-type]
    told = [note for note in prepared.notes if note.startswith("shares of the batches at temperature 2: a.")]
    assert len(told) == 1 and "weight 0.5" in told[0], prepared.notes
    assert any(note.startswith("b.") and "which are validated or tested on" in note for note in prepared.notes)
    source = prepared.job.batches
    assert isinstance(source, WeightedBatches) and source.count(0) == sum(each.count(0) for each in source.sources)
    resumed = prepare(run_config(task, over), place / "run", data_root=place, resume=True)  # type: ignore[arg-type]
    assert resumed.job.fingerprint == prepared.job.fingerprint
    for index in range(source.count(1)):
        first, second = (vars(each.get(1, index)) for each in (source, resumed.job.batches))
        assert all(np.array_equal(first[name], second[name]) for name in first if hasattr(first[name], "numpy"))


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_run_goes_on_without_its_files_and_makes_again_what_was_cleared(place: Path) -> None:
    file = write_pairs(place / "pairs.tsv", 120)
    over = {
        "data": {"train": str(file), "hold_out": 9},
        "tokens": {"size": 300},
        "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 16},
        "train": {"steps": 2, "validate_every": 2, "batch_tokens": 256, "precision": "float32"},
        "validate": {"sentences": 2},
        "probes": 0,
    }
    started = start_run(run_config("translate", over), folder=place / "run")
    noted = json.loads((place / "run" / "data.json").read_text())
    assert set(noted) == {"pairs", "tokenizer", "tokens"} and set(noted.values()) == {each.name for each in entries()}
    whole = contents(data_cache())
    text = file.read_text()
    file.unlink()
    assert resume_run(started.folder, steps=3).outcome.progress.step == 3  # it read no text
    file.write_text(text)
    clear(set(noted.values()))
    assert resume_run(started.folder, steps=4).outcome.progress.step == 4
    made = {name: data for name, data in contents(data_cache()).items() if not name.startswith("tokenizer")}
    assert made == {name: data for name, data in whole.items() if not name.startswith("tokenizer")}
    clear(set(noted.values()))
    file.write_text(text + "one\tmore\n")
    with pytest.raises(RegardError, match=r"cannot resume: the files of .* \(pairs\) changed since the run started"):
        resume_run(started.folder, steps=5)


def test_the_command_lists_and_clears(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared_pairs(write_pairs(place / "pairs.tsv", 60))

    def typed(*words: str) -> str:
        assert run(["data", "cache", *words]) == 0
        return capsys.readouterr().out

    table = typed()
    assert all(f"{kind}-" in table for kind in ("pairs", "tokenizer", "tokens")) and table.count("pairs.tsv") == 3
    assert {each["kind"] for each in json.loads(typed("--json"))} == {"pairs", "tokenizer", "tokens"}
    assert [each["kind"] for each in json.loads(typed("tokens", "--clear", "--json"))] == ["tokens"]
    assert {each.kind for each in entries()} == {"pairs", "tokenizer"}
    assert len(json.loads(typed("--clear", "--json"))) == 2 and json.loads(typed("--json")) == []
