"""Streams of tokens: what is written is read back, and every token is predicted exactly once."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from regard.data.batch import TextBatch
from regard.data.config import TextConfig
from regard.data.stream import TokenStream, Windows, evaluation_batches, sampled_batches, sampled_starts, write_stream
from regard.data.text_sets import load_texts
from regard.errors import RegardError
from regard.tasks.configure import run_config
from regard.tasks.recipe import mean_loss, prepare


def numbered(count: int) -> TokenStream:
    """A stream whose every token is its own place."""
    return TokenStream(np.arange(count, dtype=np.uint32), count)


def counted(batch: TextBatch) -> list[int]:
    """The tokens whose predictions count, by the definition of `lengths` and `skip`."""
    rows = zip(batch.ids.tolist(), batch.lengths.tolist(), strict=True)
    return [token for row, length in rows for token in row[1 + batch.skip : 1 + length]]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocabulary", "bytes_each"), [(300, 2), (65_536, 2), (65_537, 4), (2**31, 4)])
def test_what_is_written_is_read(tmp_path: Path, vocabulary: int, bytes_each: int) -> None:
    sequences = [[1, 5, vocabulary - 1], [], [2], list(range(100))]
    written = write_stream(tmp_path / "new" / "a.tokens", iter(sequences), vocabulary)
    opened = TokenStream.open(tmp_path / "new" / "a.tokens")
    for stream in (written, opened):
        assert stream.ids.tolist() == [token for sequence in sequences for token in sequence] and len(stream) == 104
        assert stream.ids.dtype.itemsize == bytes_each and stream.vocabulary == vocabulary and stream.is_intact()
    assert isinstance(opened.ids, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        opened.ids[0] = 3
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.tokens"]


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tokens"
    write_stream(path, [range(20)], 20)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RegardError, match="not a whole file of tokens"):
            TokenStream.open(path)
    path.write_bytes(whole[:-22] + whole[-20:])  # a token is missing in the middle
    with pytest.raises(RegardError, match="40 bytes of tensors should be there and 38 are"):
        TokenStream.open(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert not TokenStream.open(path).is_intact()
    with pytest.raises(RegardError, match="cannot read"):
        TokenStream.open(tmp_path / "none")


@pytest.mark.parametrize(("vocabulary", "kind"), [(300, torch.uint16), (70_000, torch.uint32)])
def test_any_library_of_safetensors_opens_the_file(tmp_path: Path, vocabulary: int, kind: torch.dtype) -> None:
    ids, path = [5, 1, 299, 0, 7], tmp_path / "a.tokens"
    stream = write_stream(path, [ids[:2], ids[2:]], vocabulary, "of a book")
    with safe_open(path, framework="numpy") as file:
        assert [*file.keys()] == ["tokens"]
        assert file.metadata() == {"vocabulary": str(vocabulary), "sha256": stream.sha256, "origin": "of a book"}
        assert file.get_slice("tokens")[1:3].tolist() == ids[1:3]
    found = safetensors.torch.load_file(path)["tokens"]
    assert found.dtype == kind and found.tolist() == ids
    assert safetensors.numpy.load_file(path)["tokens"].tolist() == ids
    assert hashlib.sha256(found.numpy().tobytes()).hexdigest() == stream.sha256


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tokens"
    deep, flat = (9000).to_bytes(8, "little") + b"[" * 9000, (2).to_bytes(8, "little") + b"[]"
    texts = (b"", b"a text of someone, long enough", bytes(5000), deep, flat)
    for data in texts:
        path.write_bytes(data)
        with pytest.raises(RegardError, match=r"not a whole file of tokens .its? .*header"):
            TokenStream.open(path)
    three = np.zeros(3, np.uint16)
    floats = {"tokens": np.zeros(3, np.float32)}
    for found in ({"weights": three}, {"tokens": three, "more": three}, {"tokens": three[:, None]}, floats):
        safetensors.numpy.save_file(found, path)
        with pytest.raises(RegardError, match="its tensors are others"):
            TokenStream.open(path)
    safetensors.numpy.save_file({"tokens": np.zeros(3, np.float16)}, path)
    with pytest.raises(RegardError, match=r"its header is damaged .KeyError.'F16'"):
        TokenStream.open(path)


def test_a_header_that_lies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tokens"
    write_stream(path, [range(20)], 20)
    whole = path.read_bytes()
    for old, new in ((b"[20]", b"[19]"), (b"[0, 40]", b"[2, 40]"), (b'"U16"', b'"U32"'), (b"[20]", b'"20"')):
        assert whole.count(old) == 1
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(RegardError, match="not a whole file of tokens"):
            TokenStream.open(path)


def test_a_file_of_regard_0_1_is_read(tmp_path: Path) -> None:
    """Its tokens stood at the first byte, and what they are behind them."""
    path, ids = tmp_path / "a.tokens", np.arange(1, 12, dtype="<u2")
    about = {"dtype": "<u2", "count": 11, "vocabulary": 13, "sha256": hashlib.sha256(ids.tobytes()).hexdigest()}
    line = json.dumps({**about, "origin": "of a book"}).encode()
    whole = ids.tobytes() + line + len(line).to_bytes(8, "little") + b"regard tokens 1\n"
    path.write_bytes(whole)
    stream = TokenStream.open(path)
    assert isinstance(stream.ids, np.memmap) and stream.ids.tolist() == ids.tolist() and stream.is_intact()
    assert (stream.vocabulary, stream.origin) == (13, "of a book")
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RegardError, match="not a whole file of tokens"):
            TokenStream.open(path)
    path.write_bytes(whole[2:])  # a token is missing in front
    with pytest.raises(RegardError, match="11 tokens should be there and 20 bytes are"):
        TokenStream.open(path)


def test_a_failed_write_leaves_the_last_good_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tokens"
    write_stream(path, [[1, 2, 3]], 5)
    for bad, message in (([[4], [5]], "outside the vocabulary of 5"), ([[-1]], "outside"), ([[]], "no tokens")):
        with pytest.raises(RegardError, match=message):
            write_stream(path, bad, 5)
        assert TokenStream.open(path).ids.tolist() == [1, 2, 3]
        assert [file.name for file in tmp_path.iterdir()] == ["a.tokens"]


def test_equal_streams_have_equal_digests(tmp_path: Path) -> None:
    digests = [
        write_stream(tmp_path / name, sequences, 9).sha256
        for name, sequences in (("a", [[1, 2], [3]]), ("b", [[1], [2, 3]]), ("c", [[1, 3], [2]]))
    ]
    assert digests[0] == digests[1] != digests[2]


# -- training windows --------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(count=st.integers(2, 200), context=st.integers(1, 23), epoch=st.integers(0, 5), seed=st.integers(0, 3))
def test_windows_predict_every_token_once_but_for_the_edges(count: int, context: int, epoch: int, seed: int) -> None:
    windows = Windows(numbered(count), context, 1, seed)
    batches = [windows.get(epoch, index) for index in range(windows.count(epoch))]
    size = min(context, count - 1)
    for batch in batches:
        row = batch.ids[0].tolist()
        assert row == list(range(row[0], row[0] + size + 1))  # consecutive tokens
        assert batch.lengths.tolist() == [size] and batch.tokens == size and batch.skip == 0
    seen = sorted(token for batch in batches for token in counted(batch))
    assert seen == list(range(seen[0], seen[-1] + 1))  # each once, without a hole
    assert 1 <= seen[0] <= size and count - size <= seen[-1] <= count - 1


def test_batches_of_windows_are_whole_and_each_window_comes_once() -> None:
    windows = Windows(numbered(1 + 7 * 40), 7, 3, seed=1)
    for epoch in range(5):
        starts = []
        for index in range(windows.count(epoch)):
            batch = windows.get(epoch, index)
            assert batch.ids.shape == (3, 8) and batch.tokens == 21
            starts += batch.ids[:, 0].tolist()
        assert len(set(starts)) == len(starts) >= 36 and len({start % 7 for start in starts}) == 1
        assert starts != sorted(starts)
        with pytest.raises(IndexError):
            windows.get(epoch, windows.count(epoch))
    assert windows.padding_share() == 0.0


def test_an_incomplete_batch_comes_only_if_it_is_the_only_one() -> None:
    alone = Windows(numbered(15), 7, 5, seed=1)
    assert alone.count(0) == 1 and len(alone.get(0, 0).ids) in (1, 2)
    short = Windows(numbered(4), 7, 5, seed=1)
    assert short.count(3) == 1 and short.get(3, 0).ids.tolist() == [[0, 1, 2, 3]]
    with pytest.raises(RegardError, match="1 tokens leaves nothing to predict"):
        Windows(numbered(1), 7, 5, seed=1)


def test_a_window_is_a_pure_function_of_seed_epoch_and_index() -> None:
    def rows(windows: Windows, epoch: int) -> list[list[list[int]]]:
        return [windows.get(epoch, index).ids.tolist() for index in range(windows.count(epoch))]

    first, second, other = (Windows(numbered(499), 11, 3, seed) for seed in (5, 5, 6))
    wanted = {epoch: rows(first, epoch) for epoch in range(4)}
    for epoch in (3, 0, 2, 1, 3):
        assert rows(second, epoch) == wanted[epoch]
        assert rows(other, epoch) != wanted[epoch]
    assert wanted[0] != wanted[1]


def test_every_offset_is_equally_likely() -> None:
    """Of 1,000 epochs a fifth for each of five offsets, within five standard deviations."""
    windows = Windows(numbered(101), 5, 1, seed=1)
    offsets = Counter(int(windows.get(epoch, 0).ids[0, 0]) % 5 for epoch in range(1000))
    assert all(abs(offsets[place] - 200) < 5 * (1000 * 0.2 * 0.8) ** 0.5 for place in range(5))


# -- evaluation --------------------------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(count=st.integers(2, 150), context=st.integers(1, 17), rows=st.integers(1, 5), data=st.data())
def test_evaluation_counts_every_token_but_the_first_once_in_order(
    count: int, context: int, rows: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, context - 1))
    batches = list(evaluation_batches(numbered(count), context, rows, overlap))
    assert [token for batch in batches for token in counted(batch)] == list(range(1, count))
    assert sum(batch.tokens for batch in batches) == count - 1
    for batch in batches:
        assert len(batch.ids) <= rows and batch.ids.size(1) <= context + 1
        assert (batch.lengths == batch.ids.size(1) - 1).all()  # no padding
        for row in batch.ids.tolist():
            assert row == list(range(row[0], row[0] + len(row)))
            assert batch.skip == (overlap if row[0] else 0)


def test_evaluation_by_hand() -> None:
    def shown(*arguments: int) -> list[tuple[list[list[int]], int]]:
        return [(batch.ids.tolist(), batch.skip) for batch in evaluation_batches(numbered(10), *arguments)]

    assert shown(4, 2) == [([[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]], 0), ([[8, 9]], 0)]
    assert shown(4, 2, 2) == [
        ([[0, 1, 2, 3, 4]], 0),
        ([[2, 3, 4, 5, 6], [4, 5, 6, 7, 8]], 2),
        ([[6, 7, 8, 9]], 2),
    ]
    assert shown(9, 2, 8) == [([list(range(10))], 0)]
    with pytest.raises(RegardError, match="an overlap of 4 leaves nothing of a context of 4; take 0 to 3"):
        shown(4, 2, 4)


@settings(max_examples=120, deadline=None)
@given(count=st.integers(2, 150), context=st.integers(1, 17), rows=st.integers(1, 5), most=st.integers(1, 160))
def test_a_sample_of_windows_is_bounded_even_and_whole_where_the_text_is_short(
    count: int, context: int, rows: int, most: int
) -> None:
    stream = numbered(count)
    batches = [batch.ids.tolist() for batch in sampled_batches(stream, context, rows, most)]
    assert batches == [batch.ids.tolist() for batch in sampled_batches(stream, context, rows, most)]
    starts = sampled_starts(stream, context, most)
    if count - 1 <= most:
        assert starts is None
    if starts is None:
        assert batches == [batch.ids.tolist() for batch in evaluation_batches(stream, context, rows)]
        assert count - 1 <= most or count - 1 < 2 * context or count - 1 < most + context
        return
    windows = [row for batch in batches for row in batch]
    assert windows == [list(range(start, start + context + 1)) for start in starts]
    assert all(len(batch) <= rows for batch in batches) and windows[-1][-1] < count
    assert len(starts) * context <= max(most, context)
    gaps = {(second - first) // context for first, second in pairwise(starts)}
    assert not gaps or (min(gaps) >= 1 and max(gaps) - min(gaps) <= 1)


def test_a_sample_of_windows_by_hand() -> None:
    """Of 12 windows of 4 tokens 5 have 20: those at 0, 2, 4, 7 and 9."""
    assert sampled_starts(numbered(50), 4, 23) == [0, 8, 16, 28, 36]
    assert sampled_starts(numbered(50), 4, 49) is None and sampled_starts(numbered(50), 4, 3) == [0]


# -- validation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "most"), [("generate", 90), ("generate", 10_000), ("fill", 128), ("fill", 10_000)])
def test_a_validation_reads_at_most_so_many_tokens_and_says_so(tmp_path: Path, task: str, most: int) -> None:
    """Two gigabytes of text held out 200 MB, and every validation read all of it."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number} of some text that goes on and on\n" for number in range(300)))
    over = {
        "data": {"train": str(text), "context": 16},
        "tokens": {"size": 300},
        "model": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16},
        "train": {"batch_tokens": 64, "precision": "float32"},
        "validate": {"tokens": most},
        "probes": 0,
    } | ({"samples": 0} if task == "generate" else {})
    prepared = prepare(run_config(task, over), tmp_path / "run", data_root=None, resume=False)
    model, seen = prepared.job.model.eval(), list[int]()
    model.register_forward_pre_hook(lambda _, batch: seen.append(batch[0].ids.numel() - len(batch[0].ids)))
    with torch.no_grad():
        found, again = prepared.job.validate(model), prepared.job.validate(model)
    assert found.metrics == again.metrics and 0 < sum(seen) // 2 <= most
    told = [note for note in prepared.notes if note.startswith("a validation reads about")]
    assert len(told) == (most < 10_000) and all(f"about {most:,} of" in note for note in told)
    if task == "generate":
        stream = TokenStream.open(tmp_path / "run" / "valid.tokens")
        with torch.no_grad():
            total, count = mean_loss(model, evaluation_batches(stream, 16, 256))
        size = load_texts(TextConfig(train=(str(text),))).valid.sizes.sum()
        whole = {"loss": total / count, "bits_per_byte": total / math.log(2) / size}
        close = 0.0 if most == 10_000 else 0.05  # an untrained model is as wrong everywhere
        assert {name: found.metrics[name] for name in whole} == pytest.approx(whole, rel=close, abs=0.0)
