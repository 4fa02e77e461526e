"""Sets of pictures as people have them, where a file goes wrong, and the store of decoded pictures."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
from PIL import Image
from safetensors import safe_open

from regard.data.pictures.config import PictureFormat
from regard.data.pictures.decode import read_picture
from regard.data.pictures.sets import (
    PictureSet,
    read_captions,
    read_idx,
    read_idx_folder,
    read_picture_folder,
    read_questions,
    read_rows_bin,
    read_rows_png,
)
from regard.data.pictures.store import ArrayStore, cache_folder, open_store
from regard.errors import RegardError, UsageError

RANDOM = np.random.default_rng(7)


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def draw(path: Path, colour: tuple[int, int, int] = (1, 2, 3), size: tuple[int, int] = (5, 5)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, "PNG")
    return path


def fails(call: object, *arguments: object) -> str:
    with pytest.raises(RegardError) as caught:
        call(*arguments)  # type: ignore[operator]
    return str(caught.value)


# -- sets --------------------------------------------------------------------------------------------------------------


def test_a_set_is_of_paths_or_of_arrays() -> None:
    zeros = np.zeros((3, 2, 2, 1), dtype=np.uint8)
    assert len(PictureSet(arrays=zeros)) == 3 and len(PictureSet((Path("a"), Path("b")))) == 2
    assert "either" in fails(PictureSet) and "either" in fails(PictureSet, (Path("a"),), zeros)
    assert "float64" in fails(PictureSet, (), zeros / 2)
    assert "3 pictures and 2 labels" in fails(PictureSet, (), zeros, np.array([0, 1]))


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    wanted = [("ant", "1.PNG"), ("ant", "below/3.jpeg"), ("bee", "0.webp"), ("bee", "2.jpg")]
    for name, file in reversed(wanted):
        draw(tmp_path / name / file)
    draw(tmp_path / "ant" / ".hidden.png")
    draw(tmp_path / ".cache" / "a.png")
    draw(tmp_path / "loose.png")
    write(tmp_path / "bee" / "notes.txt", "x")
    write(tmp_path / "cat" / "notes.txt", "x")
    os.symlink(tmp_path, tmp_path / "ant" / "loop")
    found = read_picture_folder(tmp_path)
    assert found.paths == tuple(tmp_path / name / file for name, file in wanted)
    assert found.names == ("ant", "bee") and found.labels is not None and found.labels.tolist() == [0, 0, 1, 1]
    assert found.labels.dtype == np.int64 and found.arrays is None
    assert len(found.notes) == 2
    assert "left out 3 files" in found.notes[0] and "loose.png, bee/notes.txt, cat/notes.txt" in found.notes[0]
    assert "1 classes without a picture (cat)" in found.notes[1]


def test_a_folder_needs_two_classes(tmp_path: Path) -> None:
    assert "there are none" in fails(read_picture_folder, tmp_path)
    draw(tmp_path / "ant" / "a.png")
    assert "only ant has any" in fails(read_picture_folder, tmp_path)
    assert "cannot read" in fails(read_picture_folder, tmp_path / "nowhere")


# -- MNIST's idx -------------------------------------------------------------------------------------------------------

DIGITS = RANDOM.integers(0, 256, (5, 7, 3), dtype=np.uint8)  # (N, height, width)
LABELS = [2, 0, 1, 2, 4]
IMAGES_IDX = struct.pack(">IIII", 0x803, 5, 7, 3) + DIGITS.tobytes()
LABELS_IDX = struct.pack(">II", 0x801, 5) + bytes(LABELS)


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("sign", ["-", "."])
def test_idx(tmp_path: Path, end: str, sign: str) -> None:
    write(tmp_path / f"t10k-images{sign}idx3-ubyte{end}", IMAGES_IDX)
    write(tmp_path / f"t10k-labels{sign}idx1-ubyte{end}", LABELS_IDX)
    found = read_idx_folder(tmp_path, "test")
    assert found.arrays is not None and found.arrays.shape == (5, 7, 3, 1)
    np.testing.assert_array_equal(found.arrays[..., 0], DIGITS)
    assert found.labels is not None and found.labels.tolist() == LABELS and found.labels.dtype == np.int64
    assert found.names == ("0", "1", "2", "3", "4")
    assert "there is no train-images-idx3-ubyte in" in fails(read_idx_folder, tmp_path, "train")
    assert "train or test" in fails(read_idx_folder, tmp_path, "valid")


def test_idx_without_labels(tmp_path: Path) -> None:
    found = read_idx(write(tmp_path / "a", IMAGES_IDX))
    assert found.labels is None and found.names == () and len(found) == 5


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        (IMAGES_IDX[:-1], "truncated: it says 5 x 7 x 3 and has 104 bytes"),
        (IMAGES_IDX + b"x", "too long: it says 5 x 7 x 3 and has 106 bytes"),
        (IMAGES_IDX[:9], "truncated"),
        (LABELS_IDX, "begins with 0x00000801, not with 0x00000803"),
        (b"", "begins with 0x, not"),
        (struct.pack(">IIII", 0x803, 0, 7, 3), "empty: it says 0 x 7 x 3"),
        (struct.pack(">IIII", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1) + b"12", "truncated"),
    ],
)
def test_a_wrong_idx_says_so(tmp_path: Path, data: bytes, trouble: str, end: str) -> None:
    path = write(tmp_path / f"a{end}", data)
    message = fails(read_idx, path)
    assert trouble in message and str(path) in message


def test_idx_of_unequal_length(tmp_path: Path) -> None:
    images = write(tmp_path / "a", IMAGES_IDX)
    labels = write(tmp_path / "b", struct.pack(">II", 0x801, 4) + bytes(4))
    assert "5 pictures" in (message := fails(read_idx, images, labels)) and "4 labels" in message
    cut = tmp_path / "c.gz"
    cut.write_bytes(gzip.compress(IMAGES_IDX)[:-20])
    assert "not a whole gzip file" in fails(read_idx, cut)


# -- CIFAR's rows ------------------------------------------------------------------------------------------------------

ROWS = RANDOM.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(3, 1024, 3), (3, 3072)])
def test_rows_of_a_png(tmp_path: Path, shape: tuple[int, ...]) -> None:
    Image.fromarray(ROWS.reshape(shape)).save(tmp_path / "a.png")
    labels = write(tmp_path / "a.json", "[1, 0, 1]")
    found = read_rows_png(tmp_path / "a.png", labels)
    assert found.arrays is not None and found.labels is not None
    np.testing.assert_array_equal(found.arrays, ROWS)
    assert found.labels.tolist() == [1, 0, 1] and found.names == ("0", "1") and found.notes == ()
    assert read_rows_png(tmp_path / "a.png", labels, ("cat", "dog")).names == ("cat", "dog")
    assert "entry 1 has class 1" in fails(read_rows_png, tmp_path / "a.png", labels, ("cat",))


def test_rows_of_one_png_of_several(tmp_path: Path) -> None:
    """One list has the labels of all files; the classes are those of the whole list."""
    Image.fromarray(ROWS.reshape(3, 1024, 3)).save(tmp_path / "a.png")
    labels = write(tmp_path / "a.json", "[1, 0, 1, 0, 0, 7]")
    for start, wanted, said in ((0, [1, 0, 1], "1 to 3"), (2, [1, 0, 0], "3 to 5"), (3, [0, 0, 7], "4 to 6")):
        found = read_rows_png(tmp_path / "a.png", labels, start=start)
        assert found.labels is not None and found.labels.tolist() == wanted and len(found.names) == 8
        assert "3 rows" in found.notes[0] and "6 labels" in found.notes[0] and said in found.notes[0]
    assert "3 rows, and there are 2 labels" in fails(read_rows_png, tmp_path / "a.png", labels, (), 4)


def test_the_limit_is_lifted_for_rows_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(ROWS.reshape(3, 1024, 3)).save(tmp_path / "a.png")
    labels = write(tmp_path / "a.json", "[1, 0, 1]")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    np.testing.assert_array_equal(read_rows_png(tmp_path / "a.png", labels).arrays, ROWS)
    assert Image.MAX_IMAGE_PIXELS == 100
    assert "too large" in fails(read_picture, tmp_path / "a.png")


@pytest.mark.parametrize(
    ("labels", "trouble"),
    [
        ("[1, 0]", "a.png has 3 rows, and there are 2 labels"),
        ("[1, -1, 0]", "a.json, entry 2: -1 is not"),
        ("[1, 0, true]", "a.json, entry 3: True is not"),
        ('[1, 0, "x"]', "entry 3: 'x' is not"),
        ("{}", "a.json should be a list"),
        ("[1,", "a.json is not whole JSON"),
    ],
)
def test_wrong_labels_of_rows(tmp_path: Path, labels: str, trouble: str) -> None:
    Image.fromarray(ROWS.reshape(3, 1024, 3)).save(tmp_path / "a.png")
    assert trouble in fails(read_rows_png, tmp_path / "a.png", write(tmp_path / "a.json", labels))


def test_wrong_rows_of_a_png(tmp_path: Path) -> None:
    labels = write(tmp_path / "a.json", "[1, 0, 1]")
    Image.fromarray(ROWS[:, :, 1:].reshape(3, 992, 3)).save(tmp_path / "narrow.png")
    assert "992 x RGB in a row" in fails(read_rows_png, tmp_path / "narrow.png", labels)
    Image.fromarray(ROWS.reshape(3, 1024, 3)).save(tmp_path / "a.jpg")
    assert "not a whole PNG" in fails(read_rows_png, tmp_path / "a.jpg", labels)
    Image.fromarray(ROWS.reshape(3, 1024, 3)).save(tmp_path / "cut.png")
    cut = write(tmp_path / "cut.png", (tmp_path / "cut.png").read_bytes()[:2000])
    assert "truncated" in fails(read_rows_png, cut, labels)
    assert "cannot read" in fails(read_rows_png, tmp_path / "none.png", labels)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_rows_of_binary_files(tmp_path: Path, end: str) -> None:
    """The layout that CIFAR-10's page describes: a label, then all red bytes row by row, then all green, then all blue."""
    for number, (picture, label) in enumerate(zip(ROWS, [9, 0, 3], strict=True)):
        planes = [picture[y, x, c] for c in range(3) for y in range(32) for x in range(32)]
        write(tmp_path / f"data_batch_{number}.bin{end}", bytes([label, *planes]))
    found = read_rows_bin(*(tmp_path / f"data_batch_{number}.bin{end}" for number in range(3)))
    np.testing.assert_array_equal(found.arrays, ROWS)
    assert found.labels is not None and found.labels.tolist() == [9, 0, 3]
    assert found.names == tuple("0123456789")
    write(tmp_path / "batches.meta.txt", "\n".join("abcdefghij") + "\n\n")
    assert read_rows_bin(tmp_path / f"data_batch_0.bin{end}").names == tuple("abcdefghij")


def test_wrong_binary_rows(tmp_path: Path) -> None:
    assert "3,072 bytes, which are no rows of 3,073" in fails(read_rows_bin, write(tmp_path / "a.bin", bytes(3072)))
    assert "0 bytes" in fails(read_rows_bin, write(tmp_path / "a.bin", b""))
    two = bytes(3073) + bytes([10]) + bytes(3072)
    assert "a.bin, row 2: label 10" in fails(read_rows_bin, write(tmp_path / "a.bin", two))
    assert "at least one" in fails(read_rows_bin)


# -- captions and questions --------------------------------------------------------------------------------------------

CAPTIONS = {
    "a.jsonl": '{"picture": "x/1.png", "caption": " a cat, asleep "}\n\n{"picture": "2.png", "captions": ["a dog", "it"]}\n'
    '{"picture": "./x/1.png", "caption": "the cat"}',
    "b.jsonl.gz": '{"image": "x/1.png", "captions": ["a cat, asleep", "the cat"]}\n'
    '{"file": "2.png", "caption": "a dog"}\n{"file": "2.png", "caption": "it"}\n',
    "c.csv": 'x/1.png,"a cat, asleep"\n2.png,a dog\nx/1.png,the cat\n2.png,it\n',
    "d.csv.gz": 'id,Caption,Image\r\n1,"a cat, asleep",x/1.png\r\n2,a dog,2.png\r\n3,the cat,x/1.png\r\n4,it,2.png\r\n',
    "e.tsv": "x/1.png\ta cat, asleep\nx/1.png\tthe cat\n2.png\ta dog\n2.png\tit\n",
    "f.tsv": "\ufefffile\tcaption\nx/1.png\ta cat, asleep\nx/1.png\tthe cat\n2.png\ta dog\n2.png\tit\n",
}


CAPTIONS |= {  # as Hugging Face lays out folders of pictures
    "metadata.jsonl": '{"file_name": "x/1.png", "text": "a cat, asleep"}\n{"file_name": "x/1.png", "text": "the cat"}\n'
    '{"file_name": "2.png", "text": "a dog"}\n{"file_name": "2.png", "text": "it"}\n',
    "metadata.csv": 'file_name,text\nx/1.png,"a cat, asleep"\nx/1.png,the cat\n2.png,a dog\n2.png,it\n',
    # columns that could also be meant were refused beside those of our own names
    "more.csv": 'path,image,caption,description\n/,x/1.png,"a cat, asleep",-\n/,x/1.png,the cat,-\n/,2.png,a dog,-\n'
    "/,2.png,it,-\n",
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_captions(tmp_path: Path, name: str) -> None:
    pictures = draw(tmp_path / "x" / "1.png"), draw(tmp_path / "2.png")
    found = read_captions(write(tmp_path / name, CAPTIONS[name]))
    assert found.paths == pictures and len(found) == 2
    assert found.captions == (("a cat, asleep", "the cat"), ("a dog", "it"))
    assert found.notes == ()


def test_pictures_may_be_named_from_the_root(tmp_path: Path) -> None:
    picture = draw(tmp_path / "there" / "1.png")
    found = read_captions(write(tmp_path / "here" / "a.tsv", f"{picture}\tx\n../there/1.png\ty\n"))
    assert found.paths == (picture,) and found.captions == (("x", "y"),)


def test_what_is_left_out_of_captions_is_counted(tmp_path: Path) -> None:
    draw(tmp_path / "1.png")
    rows = [
        {"picture": "1.png", "caption": "kept"},
        {"picture": "1.png"},
        {"picture": "none.png", "caption": "x"},
        {"picture": "1.png", "captions": ["", "kept too", " "]},
        {"picture": "1.png", "captions": []},
        {"picture": "n" * 5000 + ".png", "caption": "x"},
        {"picture": "1.png", "caption": "  "},
        {"picture": "1.png", "caption": None},
    ]
    found = read_captions(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    assert found.captions == (("kept", "kept too"),)
    start = f"{tmp_path / 'a.jsonl'}: left out"
    assert found.notes == (
        f"{start} 3 rows without a caption (first in line 2)",
        f"{start} 2 rows whose picture is missing (first in line 3: none.png)",
        f"{start} 3 empty captions (first in line 4)",
    )
    message = fails(read_captions, write(tmp_path / "b.jsonl", json.dumps(rows[2])))
    assert "there are no captions in" in message and "none.png" in message


@pytest.mark.parametrize(
    ("name", "text", "trouble"),
    [
        ("a.jsonl", '{"picture": "1.png", "caption": "x"}\n{"picture', "line 2: Unterminated string"),
        ("a.jsonl", '{"pictures": "1.png", "caption": "x"}', "line 1: no key picture; did you mean pictures?"),
        ("a.jsonl", "[1]", "line 1: a list; each line should be"),
        ("a.jsonl", '\n{"picture": 7, "caption": "x"}', "line 2: picture is 7, not a text"),
        ("a.jsonl", '{"picture": "1.png", "caption": 3}', "line 1: caption is 3, not a text"),
        ("a.jsonl", '{"picture": "1.png", "captions": ["a", {}]}', "line 1: caption is {}, not a text"),
        ("a.jsonl", "[" * 9999, "line 1: "),
        ("a.csv", "1.png,a,b\n", "line 1: 3 columns where 2 should be; write picture, caption"),
        ("a.csv", "1.png,a\n1.png\n", "line 2: 1 columns where 2"),
        ("a.csv", "picture,capton\n1.png,a\n", "line 1: no column caption; did you mean capton?"),
        ("a.csv", "picture,image,caption\n1.png,1.png,a\n", "line 1: two columns for picture"),
        (
            "a.csv",
            "img,txt\n1.png,a\n",
            "no column picture; there is img, txt, and picture, image, file, file_name, file",
        ),
        (
            "a.csv",
            "file,txt\n1.png,a\n",
            "no column caption; there is file, txt, and caption, captions, text, sentence or",
        ),
        (
            "a.jsonl",
            '{"img": "1.png", "caption": "x"}',
            "no key picture; there is img, caption, and picture, image, file,",
        ),
        (
            "a.jsonl",
            '{"image": "1.png", "txt": "x"}',
            "no key caption; there is image, txt, and caption, captions, text",
        ),
        ("a.csv", '1.png,"a\n', "not valid CSV"),
        ("a.tsv", "1.png\ta\n\tb\n", "line 2: the name of the picture is empty"),
        ("a.tsv", "", "is empty"),
        ("a.tsv", "picture\tcaption\n", "there are no captions in"),
        ("a.txt", "1.png a\n", "come as .jsonl, .csv or .tsv"),
    ],
)
def test_wrong_captions_name_file_and_line(tmp_path: Path, name: str, text: str, trouble: str) -> None:
    draw(tmp_path / "1.png")
    path = write(tmp_path / name, text)
    message = fails(read_captions, path)
    assert trouble in message and str(path) in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.jsonl",
            '{"image": "1.png", "question": "how many?", "answer": 2}\n{"picture": "2.png", "question": "red?",'
            ' "answer": true}\n{"picture": "1.png", "question": "what?", "answer": "dog"}\n',
        ),
        ("a.csv.gz", "1.png,how many?,2\n2.png,red?,True\n1.png,what?,dog\n"),
        ("a.csv", "answer,question,file\n2,how many?,1.png\nTrue,red?,2.png\ndog,what?,1.png\n"),
        ("a.tsv", "1.png\thow many?\t2\n2.png\tred?\tTrue\n1.png\twhat?\tdog\n"),
        ("b.csv", "label,answer,question,file\n-,2,how many?,1.png\n-,True,red?,2.png\n-,dog,what?,1.png\n"),
    ],
)
def test_questions(tmp_path: Path, name: str, text: str) -> None:
    pictures = draw(tmp_path / "1.png"), draw(tmp_path / "2.png")
    found = read_questions(write(tmp_path / name, text))
    assert found.paths == pictures and found.pictures.tolist() == [0, 1, 0] and len(found) == 3
    assert found.questions == ("how many?", "red?", "what?") and found.answers == ("2", "True", "dog")
    assert found.notes == ()


def test_what_is_left_out_of_questions_is_counted(tmp_path: Path) -> None:
    draw(tmp_path / "1.png")
    text = "1.png,what?,dog\n1.png,,cat\n1.png,who?, \nno.png,who?,me\n1.png,whom?,\n"
    found = read_questions(write(tmp_path / "a.csv", text))
    assert found.questions == ("what?",)
    start = f"{tmp_path / 'a.csv'}: left out"
    assert found.notes == (
        f"{start} 1 rows without a question (first in line 2)",
        f"{start} 2 rows without an answer (first in line 3)",
        f"{start} 1 rows whose picture is missing (first in line 4: no.png)",
    )
    assert found.left_out == tuple(
        (f"{tmp_path / 'a.csv'}, line {where}", f"rows {why}")
        for where, why in (
            ("2", "without a question"),
            ("3", "without an answer"),
            ("4: no.png", "whose picture is missing"),
            ("5", "without an answer"),
        )
    )
    unknown = write(tmp_path / "d.jsonl", '{"picture": "1.png", "question": "a", "reply": "b"}')
    assert "no key answer; there is picture, question, reply, and answer or label would do" in fails(
        read_questions, unknown
    )
    wrong = write(tmp_path / "b.jsonl", '{"picture": "1.png", "question": "a", "answer": [1]}')
    assert "b.jsonl, line 1: answer is [1], not a text" in fails(read_questions, wrong)
    assert "there are no questions in" in fails(read_questions, write(tmp_path / "c.csv", "no.png,a,b\n"))


# -- the store ---------------------------------------------------------------------------------------------------------

FORMAT = PictureFormat(size=5)


def some(folder: Path, count: int = 7) -> list[Path]:
    """Pictures of one colour each, with its number in it."""
    return [draw(folder / f"{number}.png", (number, 10 * number, 255 - number)) for number in range(count)]


def colours(numbers: list[int]) -> np.ndarray:
    return np.array([[number, 10 * number, 255 - number] for number in numbers])


def check(store: object, numbers: list[int]) -> None:
    """Every pixel of the store's pictures has the colour of its number."""
    pictures = store.take(np.arange(len(store)))  # type: ignore[attr-defined, arg-type]
    assert pictures.shape == (len(numbers), 5, 5, 3) and pictures.dtype == np.uint8
    np.testing.assert_array_equal(pictures, np.broadcast_to(colours(numbers)[:, None, None], pictures.shape))


def test_a_store_is_built_once_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    paths, told = some(tmp_path), []
    store = open_store(paths, FORMAT, progress=lambda done, total: told.append((done, total)))
    check(store, list(range(7)))
    assert told == [(7, 7)] and store.kept.tolist() == list(range(7)) and store.notes == ()
    assert store.sha256 == hashlib.sha256(store.pictures.tobytes()).hexdigest()
    taken = store.take(np.array([6, 0, 6]))
    np.testing.assert_array_equal(taken[:, 2, 3], colours([6, 0, 6]))
    assert taken.flags.writeable and type(taken) is np.ndarray
    [file] = (tmp_path / "cache" / "pictures").iterdir()
    monkeypatch.setattr("regard.data.pictures.store.read_picture", None)  # nothing is decoded again
    again = open_store(PictureSet(tuple(paths)), FORMAT)
    check(again, list(range(7)))
    assert again.sha256 == store.sha256 and [*file.parent.iterdir()] == [file]


def test_a_store_belongs_to_its_files_and_its_format(tmp_path: Path) -> None:
    paths, folder = some(tmp_path), tmp_path / "cache"
    open_store(paths, FORMAT, folder)
    others = [
        (paths[:-1], FORMAT),
        (paths[::-1], FORMAT),
        (paths, PictureFormat(size=6)),
        (paths, PictureFormat(size=5, channels=1)),
        (paths, PictureFormat(size=5, fit="pad")),
        (paths, PictureFormat(size=5, fit="pad", mean=(0.1,))),  # its borders have another colour
    ]
    for number, (these, format) in enumerate(others, start=2):
        open_store(these, format, folder)
        assert len([*folder.iterdir()]) == number
    same = [
        (paths, PictureFormat(size=5, mean=(0.3,), deviation=(0.1,))),
        ([Path(os.path.relpath(p)) for p in paths], FORMAT),
    ]
    for these, format in same:
        open_store(these, format, folder)
        assert len([*folder.iterdir()]) == 7
    draw(paths[3], (9, 9, 9))
    os.utime(paths[3], ns=(1, 1))
    assert open_store(paths, FORMAT, folder).take(np.array([3]))[0, 0, 0].tolist() == [9, 9, 9]


def test_broken_pictures_are_left_out(tmp_path: Path) -> None:
    paths = some(tmp_path)
    whole = paths[2].read_bytes()
    paths[2].write_bytes(whole[:-30])
    paths[4].write_text("no picture")
    paths.append(tmp_path / "none.png")
    for _ in range(2):  # built, and opened
        store = open_store(paths, FORMAT, tmp_path / "cache")
        check(store, [0, 1, 3, 5, 6])
        assert store.kept.tolist() == [0, 1, 3, 5, 6] and len(store) == 5
        assert store.notes == (f"3 of 8 pictures left out: {paths[2]}: truncated (and 2 more)",)
    note = open_store(paths[2:4], FORMAT, tmp_path / "cache").notes
    assert note == (f"1 of 2 pictures left out: {paths[2]}: truncated",)
    message = fails(open_store, [paths[2], paths[4]], FORMAT, tmp_path / "cache")
    assert "none of the pictures can be read; 2 of 2" in message and str(paths[2]) in message
    assert not [*(tmp_path / "cache").glob(".*")]
    assert "there are no pictures" in fails(open_store, [], FORMAT)


def test_a_picture_that_can_be_read_again_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right to read that was missing changes neither the size nor the time of a file."""
    paths = some(tmp_path)

    def refuse(path: Path, channels: int = 3) -> np.ndarray:
        return read_picture(tmp_path if path == paths[1] else path, channels)

    with monkeypatch.context() as patch:
        patch.setattr("regard.data.pictures.store.read_picture", refuse)
        assert open_store(paths, FORMAT, tmp_path / "cache").kept.tolist() == [0, 2, 3, 4, 5, 6]
    check(open_store(paths, FORMAT, tmp_path / "cache"), list(range(7)))


@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "end", "head", "number"])
def test_a_damaged_store_is_made_again(tmp_path: Path, damage: str) -> None:
    paths, folder = some(tmp_path), tmp_path / "cache"
    open_store(paths, FORMAT, folder)
    [file] = folder.iterdir()
    whole = file.read_bytes()
    damaged = {
        "cut": whole[:-40],
        "longer": whole + b"x",
        "empty": b"",
        "end": whole[:-1] + b"x",
        "head": whole[75:],  # a picture is missing
        "number": whole.replace(b'"shape": [7', b'"shape": [9'),
    }[damage]
    assert damaged != whole
    file.write_bytes(damaged)
    check(open_store(paths, FORMAT, folder), list(range(7)))
    assert file.read_bytes() == whole


def test_any_library_of_safetensors_opens_a_store(tmp_path: Path) -> None:
    paths = some(tmp_path)
    paths[2].write_text("no picture")
    store = open_store(paths, FORMAT, tmp_path / "cache")
    [file] = (tmp_path / "cache").iterdir()
    for load in (safetensors.numpy.load_file, safetensors.torch.load_file):
        found = load(file)
        assert sorted(found) == ["left_out", "pictures"]
        np.testing.assert_array_equal(np.asarray(found["pictures"]), store.pictures)
        [[number, reason]] = json.loads(bytes(found["left_out"].tolist()))
        assert number == 2 and store.left_out == ((str(paths[2]), reason),)
    with safe_open(file, framework="numpy") as opened:
        assert opened.metadata() == {"sha256": store.sha256}


def test_a_store_of_regard_0_1_is_made_again_in_its_place(tmp_path: Path) -> None:
    paths, folder = some(tmp_path), tmp_path / "cache"
    store = open_store(paths, FORMAT, folder)
    [file] = folder.iterdir()
    line = json.dumps({"shape": [7, 5, 5, 3], "sha256": store.sha256, "left_out": []}).encode()
    file.write_bytes(store.pictures.tobytes() + line + len(line).to_bytes(8, "little") + b"regard pictures 1\n")
    again = open_store(paths, FORMAT, folder)
    check(again, list(range(7)))
    assert again.sha256 == store.sha256 and [*folder.iterdir()] == [file]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known before the work begins, and in the middle of it: a limit on the size of files makes the write fail."""
    paths, folder = some(tmp_path), tmp_path / "cache"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        message = fails(open_store, paths, PictureFormat(size=64), folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot write" in message and "File too large" in message and "REGARD_CACHE" in message
    assert [*folder.iterdir()] == []
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10, 10))
    message = fails(open_store, paths, FORMAT, folder)
    assert "0 MB are free" in message and "REGARD_CACHE" in message
    assert [*folder.iterdir()] == []


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_store(some(tmp_path), FORMAT, tmp_path / "cache", stop)
    assert [*(tmp_path / "cache").iterdir()] == []


def test_what_a_killed_writer_left_goes_after_a_day_and_a_living_one_is_spared(tmp_path: Path) -> None:
    old = write(tmp_path / "cache" / ".a.pictures.1.ff.tmp", "x")
    os.utime(old, (1, 1))
    new = write(tmp_path / "cache" / ".b.pictures.1.ff.tmp", "x")
    open_store(some(tmp_path), FORMAT, tmp_path / "cache")
    assert not old.exists() and new.exists()


def test_two_processes_build_the_same_at_once(tmp_path: Path) -> None:
    """Each waits inside its own build until the other is there too; both end with the whole store."""
    paths = some(tmp_path, 70)
    program = (
        "import sys, time\nimport numpy as np\nfrom pathlib import Path\n"
        "from regard.data.pictures.config import PictureFormat\nfrom regard.data.pictures.store import open_store\n"
        "folder, me, *names = sys.argv[1:]\n"
        "def meet(done, total):\n"
        "    Path(folder, me).touch()\n"
        "    end = time.monotonic() + 60\n"
        "    while len(list(Path(folder).glob('at-*'))) < 2 and time.monotonic() < end:\n"
        "        time.sleep(0.01)\n"
        "store = open_store([Path(n) for n in names], PictureFormat(size=5), Path(folder, 'cache'), meet)\n"
        "print(store.sha256, store.take(np.arange(70))[:, 2, 2, 0].tolist() == list(range(70)))\n"
    )
    names = [str(path) for path in paths]
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), f"at-{me}", *names], stdout=subprocess.PIPE)
        for me in "ab"
    ]
    printed = [process.communicate(timeout=120)[0].decode().split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert printed[0] == printed[1] and printed[0][1] == "True"
    assert len([*(tmp_path / "cache").iterdir()]) == 1 and len([*tmp_path.glob("at-*")]) == 2


def test_arrays_of_the_right_size_need_no_file(tmp_path: Path) -> None:
    arrays = RANDOM.integers(0, 256, (11, 5, 5, 3), dtype=np.uint8)
    store = open_store(PictureSet(arrays=arrays), FORMAT, tmp_path / "cache")
    assert isinstance(store, ArrayStore) and not (tmp_path / "cache").exists()
    assert len(store) == 11 and store.kept.tolist() == list(range(11)) and store.notes == ()
    np.testing.assert_array_equal(store.take(np.array([7, 2])), arrays[[7, 2]])
    other = arrays.copy()
    other[10, 4, 4, 2] ^= 1
    assert len({ArrayStore(each).sha256 for each in (arrays, arrays.copy(), other)}) == 2


def test_arrays_of_another_size_are_kept_in_a_file(tmp_path: Path) -> None:
    arrays = np.zeros((4, 10, 10, 1), dtype=np.uint8) + np.array([3, 50, 90, 7], dtype=np.uint8)[:, None, None, None]
    for _ in range(2):
        store = open_store(PictureSet(arrays=arrays), FORMAT, tmp_path)
        assert store.pictures.shape == (4, 5, 5, 3) and store.pictures[:, 1, 2].tolist() == [
            [v] * 3 for v in (3, 50, 90, 7)
        ]
        assert len([*tmp_path.iterdir()]) == 1
    open_store(PictureSet(arrays=arrays + 1), FORMAT, tmp_path)
    assert len([*tmp_path.iterdir()]) == 2


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "pictures"
    monkeypatch.setenv("REGARD_CACHE", "")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/regard/pictures")
    (tmp_path / "file").write_text("")
    message = fails(open_store, some(tmp_path), FORMAT, tmp_path / "file")
    assert "cannot" in message and "REGARD_CACHE" in message


def test_unknown_kinds_are_the_persons_request() -> None:
    with pytest.raises(UsageError):
        read_captions("a.docx")
