"""Files and folders that are whole or absent, tensors that are never pickles, and where runs lie."""

from __future__ import annotations

import os
import pickle
import stat
import threading
from pathlib import Path

import pytest
import torch

from regard.errors import RegardError, UsageError
from regard.files import (
    alone_in,
    clear_leftovers,
    new_folder,
    read_json,
    settle,
    sha256,
    standing_folder,
    write_bytes,
    write_json,
    write_text,
)  # fmt: skip
from regard.runs import Run, all_runs, bundle_folder, new_run, newest
from regard.tensors import open_tensors, read_tensors, write_tensors


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "file"
    write_bytes(file, b"one")
    write_text(file, "zwei ü")
    assert file.read_bytes() == "zwei ü".encode() and listing(file.parent) == ["file"]


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes(tmp_path / "file", b"good")
    for error, raised in (
        (OSError(28, "No space left on device"), RegardError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ):
        monkeypatch.setattr(os, "fsync", lambda _, error=error: (_ for _ in ()).throw(error))
        with pytest.raises(raised):
            write_bytes(tmp_path / "file", b"bad")
        assert (tmp_path / "file").read_bytes() == b"good" and listing(tmp_path) == ["file"]


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    """The bug: the pipe was replaced by a file, and whoever read it waited for ever."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_bytes(pipe, b"one")
    reader.join(10)
    assert read == [b"one"] and pipe.is_fifo() and listing(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays_one() -> None:
    """On a terminal of our own, in whose folder nothing can be replaced: the bug, as root, took /dev/null away."""
    ours, theirs = os.openpty()
    device = os.ttyname(theirs)
    try:
        write_bytes(device, b"one")
        assert os.read(ours, 9) == b"one" and stat.S_ISCHR(os.stat(device).st_mode)
    finally:
        os.close(ours)
        os.close(theirs)


def test_standard_output_that_is_a_file_is_not_replaced(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        write_bytes(f"/dev/fd/{file.fileno()}", b"one")
        write_bytes(f"/dev/fd/{file.fileno()}", b"two")
        assert os.fstat(file.fileno()).st_ino == (tmp_path / "file").stat().st_ino
    assert (tmp_path / "file").read_bytes() == b"onetwo"


def test_what_is_written_behind_standard_output_does_not_write_over_it(tmp_path: Path) -> None:
    """`(regard ... -o /dev/stdout; echo done) > file`: opened again, the file had its end in two places."""
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b"before ")
        write_bytes(f"/dev/fd/{file.fileno()}", b"a long line ")
        file.write(b"after")
    assert (tmp_path / "file").read_bytes() == b"before a long line after"


@pytest.mark.parametrize("there", [True, False])
def test_behind_a_symbolic_link_its_target_is_replaced(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    if there:
        (tmp_path / "far" / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("far/file")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "far" / "file").read_bytes() == b"new"
    assert listing(tmp_path) == ["far", "far/file", "link"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match=r"cannot write .*file/inside: (Not a directory|File exists)"):
        write_bytes(tmp_path / "file" / "inside", b"")
    with pytest.raises(RegardError, match=r"cannot write .*file/inside"), new_folder(tmp_path / "file" / "inside"):
        pass


def test_json_there_and_back(tmp_path: Path) -> None:
    value = {"ü\u2028": [1, 0.1 + 0.2, None, True, "日本"], "nested": {"a": float("inf")}}
    assert read_json(write_json(tmp_path / "v.json", value)) == value


@pytest.mark.parametrize("content", [b'{"a": 1', b"", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_json_that_is_not_whole(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v.json").write_bytes(content)
    with pytest.raises(RegardError, match=r"v\.json is not whole JSON"):
        read_json(tmp_path / "v.json")


def test_json_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"there is no .*v\.json"):
        read_json(tmp_path / "v.json")
    with pytest.raises(RegardError, match=r"cannot read .*: Is a directory"):
        read_json(tmp_path)


def test_sha256_of_abc(tmp_path: Path) -> None:
    """FIPS 180-2, appendix B.1."""
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(write_bytes(tmp_path / "f", b"abc")) == digest


# -- folders -----------------------------------------------------------------------------------------------------------


def fill(folder: Path, text: str) -> None:
    with new_folder(folder) as inside:
        write_text(inside / "text", text)


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    fill(tmp_path / "f", "one")
    fill(tmp_path / "f", "two")
    assert (tmp_path / "f" / "text").read_text() == "two" and listing(tmp_path) == ["f", "f/text"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("x"), KeyboardInterrupt()])
def test_a_folder_that_could_not_be_filled(tmp_path: Path, error: BaseException) -> None:
    fill(tmp_path / "f", "one")
    wanted = RegardError if isinstance(error, OSError) else type(error)
    with pytest.raises(wanted) as caught, new_folder(tmp_path / "f") as inside:
        write_text(inside / "text", "two")
        raise error
    assert (tmp_path / "f" / "text").read_text() == "one" and listing(tmp_path) == ["f", "f/text"]
    if isinstance(error, OSError):
        assert str(caught.value).endswith("No space left on device; the last good one is untouched")


def test_between_the_two_renames_the_old_folder_is_found(tmp_path: Path) -> None:
    fill(tmp_path / "f", "one")
    os.rename(tmp_path / "f", tmp_path / "f.old")  # a crash here
    assert standing_folder(tmp_path / "f") == tmp_path / "f.old"  # who reads changes nothing
    assert listing(tmp_path) == ["f.old", "f.old/text"]
    settle(tmp_path / "f")
    assert standing_folder(tmp_path / "f") == tmp_path / "f" and listing(tmp_path) == ["f", "f/text"]


def test_after_the_second_rename_the_new_folder_is_found(tmp_path: Path) -> None:
    fill(tmp_path / "f", "new")
    fill(tmp_path / "f.old", "old")
    assert standing_folder(tmp_path / "f") == tmp_path / "f"
    fill(tmp_path / "f", "newer")
    assert listing(tmp_path) == ["f", "f/text"] and (tmp_path / "f" / "text").read_text() == "newer"


def test_leftovers_of_killed_writers_go_and_nothing_else(tmp_path: Path) -> None:
    for name in ("best.tmp", "best", "last.old", "step-1.old", "step-1"):
        fill(tmp_path / name, name)
    for name in (".state.json.123.tmp", "notes.tmp", "notes.old", "kept"):
        (tmp_path / name).touch()
    clear_leftovers(tmp_path)
    assert listing(tmp_path) == [
        "best",
        "best/text",
        "kept",
        "last",
        "last/text",
        "notes.old",
        "notes.tmp",
        "step-1",
        "step-1/text",
    ]
    assert (tmp_path / "step-1" / "text").read_text() == "step-1" and (
        tmp_path / "last" / "text"
    ).read_text() == "last.old"
    clear_leftovers(tmp_path / "none")


def test_a_lock_keeps_others_out_and_goes(tmp_path: Path) -> None:
    for _ in range(2):
        with alone_in(tmp_path), pytest.raises(RegardError, match="another process is training in"), alone_in(tmp_path):
            pass
    assert listing(tmp_path) == []


# -- tensors -----------------------------------------------------------------------------------------------------------


def test_tensors_there_and_back(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 5, dtype=torch.float64),
        "b.c": torch.arange(7),
        "d": torch.randn(2, 3).T,
        "e": torch.tensor(1.0),
    }
    write_tensors(tmp_path / "t", tensors)
    again = read_tensors(tmp_path / "t")
    assert again.keys() == tensors.keys() and all(torch.equal(again[name], tensors[name]) for name in tensors)


class Bomb:
    """A pickle that would run a program."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch exploded",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.safetensors").write_bytes(pickle.dumps(Bomb(), protocol=protocol))
    with pytest.raises(RegardError, match=r"is a pickle, whatever its name says; .* Convert it where you trust it"):
        read_tensors(Path("model.safetensors"))
    assert not Path("exploded").exists()


@pytest.mark.parametrize("new", [True, False])
def test_a_file_of_torch_save_is_refused(tmp_path: Path, new: bool) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / "m.safetensors", _use_new_zipfile_serialization=new)
    with pytest.raises(RegardError, match="is a pickle"):
        read_tensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize("header", [640, 896, 1152, 1408, 19280])
def test_a_header_as_long_as_a_pickle_begins_is_read(tmp_path: Path, header: int) -> None:
    """A checkpoint whose header had 640 bytes, 80 02 in hexadecimal as it stands in front, was refused as a pickle."""
    path = tmp_path / "m.safetensors"
    name = "a" * (header - len('{"":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'))
    write_tensors(path, {name: torch.arange(3.0)})
    assert int.from_bytes(path.read_bytes()[:8], "little") == header
    assert read_tensors(path)[name].tolist() == [0.0, 1.0, 2.0]
    with open_tensors(path) as opened:
        assert opened.get_tensor(name).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("content", [b"", b"\x00", b"(lp0\n.", b"\xff" * 100, b"\x08" + b"\x00" * 7 + b"{}      "])
def test_a_file_that_is_no_safetensors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    if content.endswith(b"{}      "):
        assert read_tensors(tmp_path / "t") == {}  # whole, and empty
        return
    with pytest.raises(RegardError, match=r"is not a whole safetensors file .*copy it again"):
        read_tensors(tmp_path / "t")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"there is no .*; copy the folder again"):
        read_tensors(tmp_path / "t")


# -- runs --------------------------------------------------------------------------------------------------------------


def test_runs_have_numbers_of_their_own(tmp_path: Path) -> None:
    assert [new_run("translate", tmp_path).name for _ in range(2)] == ["1", "2"]
    (tmp_path / "translate" / "9").mkdir()
    (tmp_path / "translate" / "notes").mkdir()
    assert Run(new_run("translate", tmp_path)).number == 10


def test_runs_that_start_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(new_run("translate", tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8


def test_the_newest_run_is_the_one_that_did_something_last(tmp_path: Path) -> None:
    assert newest("translate", tmp_path) is None
    for number in (1, 2, 3):
        folder = new_run("translate", tmp_path)
        write_json(folder / "run.json", {})
        if number < 3:  # the third has no bundle yet
            fill(folder / "best", "x")
            write_json(folder / "best" / "config.json", {})
        for file in folder.iterdir():
            os.utime(file, (0, 1000 - number))
    assert [run.number for run in all_runs(tmp_path)] == [3, 2, 1]
    found = newest("translate", tmp_path)
    assert found is not None and found.number == 1


def test_which_bundle_a_person_means(tmp_path: Path) -> None:
    run = new_run("translate", tmp_path)
    with pytest.raises(UsageError, match=r"there is no .*; regard runs lists the runs here"):
        bundle_folder(tmp_path / "none")
    write_json(run / "run.json", {})
    with pytest.raises(RegardError, match=f"the run {run} has no bundle yet; go on with: regard train --resume {run}"):
        bundle_folder(run)
    with new_folder(run / "best") as inside:
        write_json(inside / "config.json", {})
    assert bundle_folder(run) == bundle_folder(run / "best") == run / "best"
    os.rename(run / "best", run / "best.old")  # a crash while the best was replaced
    assert bundle_folder(run) == run / "best.old"
