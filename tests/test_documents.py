"""Documents: what is read, what is left out and told, and what is held out."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batch import LabelBatch, MaskedBatch, TextBatch, label_batch, text_batch
from regard.data.builtin.python_source import python_documents
from regard.data.config import LabelledConfig, TextConfig
from regard.data.documents import read_documents
from regard.data.kept.journal import MemoryBuild
from regard.data.text_sets import DocumentRows, GatheredDocuments, split_rows
from regard.errors import RegardError, UsageError


def write(path: Path, data: bytes | str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


# -- files and folders -------------------------------------------------------------------------------------------------


def test_a_file_is_one_document_with_plain_line_ends(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\n\n\xc3\xa9\n")
    zipped = write(tmp_path / "b.md.gz", gzip.compress(b"no end of line"))
    found = read_documents([file, zipped])
    assert found.texts == ["one\ntwo\n\né\n", "no end of line"] and found.notes == ()


def test_names_are_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    write(tmp_path / "here.txt", "text")
    assert read_documents(["here.txt"], data_root=tmp_path).texts == ["text"]
    with pytest.raises(RegardError, match=r"there is no here\.txt"):
        read_documents(["here.txt"])


def test_jsonl_has_a_document_a_row(tmp_path: Path) -> None:
    rows = [{"text": "a", "body": "b"}, {"text": "c\nd", "body": "e"}]
    plain = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    zipped = write(tmp_path / "a.jsonl.gz", gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert read_documents([plain]).texts == ["a", "c\nd"]
    assert read_documents([zipped], field="body").texts == ["b", "e"]
    with pytest.raises(RegardError, match=r"line 1: no key 'bodi'; did you mean body\?.*data\.field"):
        read_documents([plain], field="bodi")


def test_a_folder_has_the_documents_of_its_text_files_in_order(tmp_path: Path) -> None:
    for name, text in (("b/2.py", "2"), ("b/1.txt", "1"), ("a.txt", "0"), ("c.jsonl", '{"text": "3"}\n{"text": "4"}')):
        write(tmp_path / name, text)
    write(tmp_path / ".git/config", "hidden")
    write(tmp_path / "b/.hidden", "hidden")
    write(tmp_path / "z.png", b"\x89PNG\0\0")
    write(tmp_path / "b/latin.txt", b"caf\xe9")
    write(tmp_path / "empty.txt", " \n")
    write(tmp_path / "empty.jsonl", "")
    found = read_documents([str(tmp_path)])
    assert found.texts == ["0", "1", "2", "3", "4"]
    hidden, not_text, empty = found.notes
    assert "left out 2 that are hidden (.git, .hidden)" in hidden or "(.hidden, .git)" in hidden
    assert "left out 2 that are not UTF-8 text (b/latin.txt, z.png)" in not_text
    assert empty.startswith("dropped 2 of 7 documents")


def test_named_directly_what_is_not_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="is not text: it holds zero bytes"):
        read_documents([write(tmp_path / "a.bin", b"abc\0def")])
    with pytest.raises(RegardError, match=r"line 2: byte 4 \(0xe9\) is not UTF-8.*iconv -f latin1"):
        read_documents([write(tmp_path / "a.txt", b"one\ncaf\xe9\n")])
    with pytest.raises(RegardError, match="iconv -f utf-16"):
        read_documents([write(tmp_path / "b.txt", "two".encode("utf-16"))])
    with pytest.raises(RegardError, match="not a whole gzip file"):
        read_documents([write(tmp_path / "c.txt.gz", gzip.compress(b"text" * 99)[:-9])])


def test_no_text_at_all_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a/b.dat", b"\0")
    with pytest.raises(RegardError, match=r"there is no text in .*left out 1 that is not UTF-8 text \(b\.dat\)"):
        read_documents([str(tmp_path / "a")])
    with pytest.raises(RegardError, match="there is no text in"):
        read_documents([write(tmp_path / "empty.txt", "")])
    with pytest.raises(UsageError, match="built-in texts are builtin/python"):
        read_documents(["builtin/shakespeare"])


# -- held out ----------------------------------------------------------------------------------------------------------


def split_documents(texts: list[str], share: float) -> tuple[list[str], list[str]]:
    """Documents to learn from, and those held out."""
    build = MemoryBuild()
    text = build.column("text", "u1")
    gathered = GatheredDocuments(build, text, "train", {})
    gathered.take((each,) for each in texts)
    train, valid = split_rows(gathered.documents(), text.values(), share)
    return tuple(list(DocumentRows(text.values(), *rows[:, :2].T)) for rows in (train, valid))  # type: ignore[return-value]


def test_of_one_document_the_end_is_held_out() -> None:
    text = "".join(chr(97 + i % 26) for i in range(997))
    assert split_documents([text], 0.1) == ([text[: int(997 * 0.9)]], [text[int(997 * 0.9) :]])
    with pytest.raises(RegardError, match="a single document of 1 characters is too short"):
        split_documents(["a"], 0.1)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.5])
def test_of_many_documents_whole_ones_are_held_out(share: float) -> None:
    texts = [f"{i} " * (i % 37 + 1) for i in range(400)]
    texts += texts[:50]  # copies
    train, valid = split_documents(texts, share)
    assert not set(train) & set(valid)
    assert sorted(train + valid) == sorted(texts)
    assert [text for text in texts if text in set(train)] == train  # in their order
    total = sum(map(len, texts))
    assert abs(sum(map(len, valid)) / total - share) < 0.01
    again = split_documents(texts[::-1], share)
    assert set(again[1]) == set(valid)


def test_which_documents_are_held_out_depends_on_the_text_alone() -> None:
    """Of documents of one size, those with the smallest hashes are held out: another hash, another choice."""
    texts = [f"text {i:03}" for i in range(100)]
    by_hash = sorted(texts, key=lambda text: hashlib.blake2b(text.encode(), digest_size=8).digest())
    assert set(split_documents(texts, 0.2)[1]) == set(by_hash[:20])


@pytest.mark.parametrize("texts", [["a" * 90, "b" * 10], ["a" * 1000, "b"], ["a", "b" * 1000], ["ab", "cd"]])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.9, 0.99])
def test_neither_side_is_ever_empty(texts: list[str], share: float) -> None:
    train, valid = split_documents(texts, share)
    assert train and valid and sorted(train + valid) == sorted(texts)


# -- the library's source ----------------------------------------------------------------------------------------------


def library(folder: Path) -> Path:
    for number in range(30):
        write(folder / f"module{number:02}.py", f"x = {number:02}\n" * 5)  # 35 characters
    write(folder / "package/inner.py", "y = 1\n")
    write(folder / "latin.py", "# -*- coding: latin-1 -*-\ns = 'é'\n".encode("latin-1"))
    write(folder / "broken.py", b"s = '\xe9'\n")
    for name in ("test/a.py", "idlelib/idle_test/b.py", "lib2to3/tests/c.py", "site-packages/d.py", "__pycache__/e.py"):
        write(folder / name, "left out\n")
    write(folder / "module.so", b"\0")
    return folder


def test_the_library_without_tests_and_what_cannot_be_read(tmp_path: Path) -> None:
    texts = python_documents(library=library(tmp_path))
    names = ["latin.py", *(f"module{number:02}.py" for number in range(30)), "package/inner.py"]
    wanted = [(tmp_path / name).read_text(encoding="latin-1") for name in names]
    assert texts == wanted


def test_the_limit_holds_and_the_sample_is_broad_and_stable(tmp_path: Path) -> None:
    texts = python_documents(limit=350, library=library(tmp_path / "a"))
    assert sum(map(len, texts)) <= 350 and len(texts) >= 8
    assert texts == python_documents(limit=350, library=library(tmp_path / "b" / "c"))
    numbers = [int(text[4:6]) for text in texts if text.startswith("x")]
    assert numbers == sorted(numbers) and max(numbers) - min(numbers) > 15
    with pytest.raises(RegardError, match=r"no module has 3 characters.*builtin_size"):
        python_documents(limit=3, library=tmp_path / "a")


def test_a_library_without_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"there is no Python source in .*zip file"):
        python_documents(library=tmp_path / "python311.zip")


def test_this_python_has_a_library() -> None:
    found = read_documents(["builtin/python"], builtin_size=300_000)
    assert 280_000 < sum(map(len, found.texts)) <= 300_000 and len(found.texts) > 10
    assert sum("def " in text for text in found.texts) > len(found.texts) / 2


# -- batches and configurations ----------------------------------------------------------------------------------------


def test_a_text_batch_by_hand() -> None:
    batch = text_batch([np.array([5, 6, 7, 8]), np.array([9, 5])], fill=0, skip=2)
    assert batch.ids.tolist() == [[5, 6, 7, 8], [9, 5, 0, 0]] and batch.lengths.tolist() == [3, 1]
    assert batch.tokens == 1 and batch.counts == {"loss": 1, "nll": 1}  # of the first row only the third prediction
    assert (batch.real_tokens, batch.padded_tokens) == (4, 6)
    assert text_batch([np.array([5, 6, 7, 8])]).tokens == 3


def test_a_label_batch_by_hand() -> None:
    batch = label_batch([np.array([1, 5, 2]), np.array([1, 2])], [3, 0], 0, [np.array([0, 0, 1]), np.array([0, 1])])
    assert batch.ids.tolist() == [[1, 5, 2], [1, 2, 0]] and batch.labels.tolist() == [3, 0]
    assert batch.segments is not None and batch.segments.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert batch.counts == {"loss": 2, "nll": 2, "correct": 2, "language": 3}
    assert (batch.real_tokens, batch.padded_tokens) == (5, 6)


def test_batches_move_with_all_their_tensors() -> None:
    ones = torch.ones(2, 3, dtype=torch.long)
    batches = [
        TextBatch(ones, ones[:, 0], tokens=4, skip=1),
        MaskedBatch(ones, ones[:, 0], ones.bool(), ones.flatten(), None, ones[:, 0]),
        LabelBatch(ones, ones[:, 0], ones[:, 0], predicted=4, segments=ones),
    ]
    for batch in batches:
        moved = batch.to("meta")
        tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
        assert len(tensors) >= 2 and all(tensor.device.type == "meta" for tensor in tensors)
        assert moved.counts == batch.counts and batch.to("cpu") is batch
    assert batches[1].counts == {"loss": 6, "nll": 6, "next": 2}


def test_one_name_may_stand_without_brackets_and_many_may_stand() -> None:
    assert TextConfig(train="a.txt").train == ("a.txt",)  # type: ignore[arg-type]
    assert LabelledConfig(valid=["a", "b", "c"]).valid == ("a", "b", "c")  # type: ignore[arg-type]
