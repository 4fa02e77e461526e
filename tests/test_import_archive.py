"""Models that come in as ZIP files, by the command line and over HTTP: whole ones, and those that somebody made to harm."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import shutil
import socket
import stat
import struct
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served import Answer, Client, save_bundles, serving, small, wait_for

import regard
from regard.cli.main import run
from regard.errors import RegardError
from regard.interop import archive as archives
from regard.interop import export_folder, import_archive
from regard.studio.config import Limits
from regard.studio.service import resident_bytes

TEXT = "two dogs sleep"
ZIP = {"Content_Type": "application/zip"}
TOKEN = "a token of some length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("archives")
    save_bundles(here)
    return here


@pytest.fixture(scope="module")
def bundle(folder: Path) -> dict[str, bytes]:
    """The files of a bundle to translate."""
    return {f"mine/{path.name}": path.read_bytes() for path in sorted((folder / "translate").iterdir())}


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[Client]:
    """A studio that takes in at most two megabytes."""
    limits = Limits(archive_bytes=2_000_000, read_seconds=0.7)
    with serving(small(tmp_path, (folder / "translate",), limits, page=True)) as found:
        yield found


def zipped(files: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def sent(client: Client, data: bytes, name: str = "new", **headers: str) -> Answer:
    return client.ask(f"/api/models?name={name}", data, **{**ZIP, **headers})


# --- Whole ones


def test_a_bundle_comes_in_as_it_went_out(client: Client, folder: Path, tmp_path: Path) -> None:
    exported = client.ask("/api/models/translate/bundle").body
    answer = sent(client, exported, "again.2")
    assert answer.status == 201 and answer.json["name"] == "again.2" and answer.json["scores"] == {"bleu": 1.5}
    for path in (folder / "translate").iterdir():
        assert (tmp_path / "models" / "again.2" / path.name).read_bytes() == path.read_bytes()
    asked = {"text": TEXT, "max_length": 7}
    one, two = (client.json("/api/translate", {"model": name, **asked}) for name in ("translate", "again.2"))
    assert one == two
    for name in ("again.2", "translate"):  # one of a bundle that was named when the service started
        taken = sent(client, exported, name)
        assert taken.status == 409 and taken.json["error"]["message"] == f"there is a model {name} already"


def test_the_folder_of_another_library_comes_in(client: Client, folder: Path, tmp_path: Path) -> None:
    foreign = export_folder(regard.load(folder / "generate").bundle, tmp_path / "for-others")
    answer = sent(client, zipped({f"gpt/{path.name}": path.read_bytes() for path in foreign.iterdir()}), "gpt")
    assert answer.status == 201 and answer.json["task"] == "generate"
    wanted = regard.load(folder / "generate", task="generate").generate(TEXT, sample=False, max_length=6)
    asked = {"model": "gpt", "prompt": TEXT, "sample": False, "beam": 1, "max_length": 6}
    assert client.json("/api/generate", asked)["ids"] == list(wanted.ids)


def test_the_best_of_a_whole_run_comes_in_and_a_macs_own_files_do_not(bundle: dict[str, bytes], tmp_path: Path) -> None:
    files = {f"1/{place}/{name.partition('/')[2]}": data for place in ("best", "last") for name, data in bundle.items()}
    (tmp_path / "run.zip").write_bytes(
        zipped({**files, "__MACOSX/1/._x": b"?", "1/.DS_Store": b"?", "1/run.json": b"{}"})
    )
    import_archive(tmp_path / "run.zip", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(Path(name).name for name in bundle)


def test_the_command_line_takes_the_same_files(
    bundle: dict[str, bytes],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.zip").write_bytes(zipped(bundle))
    assert run(["import", "mine.zip"]) == 0
    assert "models/mine" in capsys.readouterr().out
    assert run(["translate", "-m", "models/mine", TEXT]) == 0
    assert (
        capsys.readouterr().out.rstrip("\n") == regard.load(folder / "translate", task="translate").translate(TEXT).text
    )
    assert run(["import", "mine.zip"]) == 2 and "already exists" in capsys.readouterr().err
    (tmp_path / "bad.zip").write_bytes(b"no archive at all, but long enough for one")
    assert run(["import", "bad.zip"]) == 1 and "bad.zip is not a ZIP file" in capsys.readouterr().err


def test_what_lies_in_models_is_served_if_it_is_whole(client: Client, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fill", tmp_path / "models" / "mine")
    shutil.copytree(folder / "fill", tmp_path / "models" / "half.tmp")
    (tmp_path / "models" / "foreign").mkdir()
    (tmp_path / "models" / "foreign" / "config.json").write_text('{"model_type": "gpt2"}')
    assert [each["name"] for each in client.json("/api/models")["models"]] == ["translate", "mine"]
    assert client.json("/api/fill", {"model": "mine", "text": "two [MASK] sleep"})["text"]


# --- Those that were made to harm


def linked(name: str, kind: int, target: bytes = b"/etc/passwd") -> Callable[[dict[str, bytes]], bytes]:
    """An archive with one entry that is a link, a pipe or a device."""

    def made(files: dict[str, bytes]) -> bytes:
        data = io.BytesIO(zipped(files))
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16
        with zipfile.ZipFile(data, "a") as archive:
            archive.writestr(info, target)
        return data.getvalue()

    return made


def named(name: str) -> Callable[[dict[str, bytes]], bytes]:
    """An archive with one more file, under a name that `zipfile` would not write."""

    def made(files: dict[str, bytes]) -> bytes:
        placeholder = "x" * len(name.encode())
        return zipped({**files, placeholder: b"harm"}).replace(placeholder.encode(), name.encode())

    return made


def with_config(change: Callable[[dict[str, object]], None]) -> Callable[[dict[str, bytes]], bytes]:
    def made(files: dict[str, bytes]) -> bytes:
        values = json.loads(files["mine/config.json"])
        change(values)
        return zipped({**files, "mine/config.json": json.dumps(values).encode()})

    return made


def plus(**more: bytes) -> Callable[[dict[str, bytes]], bytes]:
    return lambda files: zipped(
        {**files, **{name.replace("__", "/").replace("_DOT_", "."): data for name, data in more.items()}}
    )


def pickled(name: str, keep: bool = True) -> Callable[[dict[str, bytes]], bytes]:
    """Weights that would write a file, were they unpickled."""
    harm = b"\x80\x04cposix\nsystem\n(S'touch unpickled'\ntR."

    def made(files: dict[str, bytes]) -> bytes:
        kept = {key: data for key, data in files.items() if not key.endswith(".safetensors")} if keep else {}
        return zipped({**kept, f"mine/{name}": harm})

    return made


def foreign_pickle(files: dict[str, bytes]) -> bytes:
    settings = {"model_type": "gpt2", "vocab_size": 11, "n_embd": 4, "n_layer": 1, "n_head": 1, "n_positions": 8}
    tokenizer = next(data for name, data in files.items() if "tokenizer" in name and name.endswith(".json"))
    return zipped(
        {"config.json": json.dumps(settings).encode(), "tokenizer.json": tokenizer, "pytorch_model.bin": b"\x80\x04"}
    )


def bomb(files: dict[str, bytes]) -> bytes:
    return zipped({**files, "mine/zeros": bytes(60_000_000)})


def lying_bomb(files: dict[str, bytes]) -> bytes:
    """It says that 60 megabytes are 10 bytes."""
    data = bytearray(zipped({**files, "mine/zeros": bytes(60_000_000)}))
    size = struct.pack("<L", 60_000_000)
    while (place := data.find(size)) >= 0:
        data[place : place + 4] = struct.pack("<L", 10)
    return bytes(data)


def twice(files: dict[str, bytes]) -> bytes:
    return zipped({**files, "mine/CONFIG.json": b"{}"})


def many(files: dict[str, bytes]) -> bytes:
    return zipped({**files, **{f"mine/{number}": b"" for number in range(archives.MOST_FILES)}}, zipfile.ZIP_STORED)


def long_list(files: dict[str, bytes]) -> bytes:
    """The list of files at its end is long: it would be read as a whole."""
    data = zipped(files)
    end = struct.pack("<4s4H2LH", archives.END, 0, 0, 7, 7, 3_000_000, len(data), 0)
    return data + end


def of_64(files: dict[str, bytes]) -> bytes:
    """The record for archives over 4 GB, which counts instead of the usual one."""
    data = zipped(files)
    return data[:-22] + archives.END_64 + bytes(16) + data[-22:]


def encrypted(files: dict[str, bytes]) -> bytes:
    data = bytearray(zipped(files))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(mark) + place] |= 1
    return bytes(data)


def altered(files: dict[str, bytes]) -> bytes:
    weights = files["mine/model.safetensors"]
    return zipped({**files, "mine/model.safetensors": weights[:-1] + bytes([weights[-1] ^ 1])})


def two_models(files: dict[str, bytes]) -> bytes:
    return zipped({**files, **{name.replace("mine", "other"): data for name, data in files.items()}})


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], bytes], str]] = {
    "up": (named("../harmed"), "outside"),
    "up from within": (named("mine/../../harmed"), "outside"),
    "absolute": (named("/tmp/harmed"), "outside"),
    "of Windows": (named("..\\harmed"), "outside"),
    "a drive": (named("C:harmed"), "outside"),
    "a name with an end in it": (named("mine/a\0b"), "outside"),
    "a link": (linked("mine/README.md.link", stat.S_IFLNK), "is a link"),
    "a link to a folder": (linked("out", stat.S_IFLNK, b"/tmp"), "is a link"),
    "a pipe": (linked("pipe", stat.S_IFIFO), "is a link, or no file"),
    "a device": (linked("device", stat.S_IFBLK), "is a link, or no file"),
    "a bomb": (bomb, "larger than 2,000,000 bytes"),
    "a bomb that lies": (lying_bomb, "not a whole ZIP file"),
    "one name twice": (twice, "same name"),
    "too many files": (many, "too many files"),
    "a long list": (long_list, "too many files"),
    "of 64 bits": (of_64, "larger than 4 GB"),
    "encrypted": (encrypted, "is encrypted"),
    "packed in another way": (lambda files: zipped(files, zipfile.ZIP_LZMA), "packed in a way"),
    "cut off": (lambda files: zipped(files)[:-50], "not a ZIP file"),
    "spoiled": (lambda files: zipped(files, zipfile.ZIP_STORED).replace(b'"width"', b'"wi*th"', 1), "not a whole ZIP file"),
    "nothing": (lambda files: b"", "not a ZIP file"),
    "no archive": (lambda files: b"x" * 5000, "not a ZIP file"),
    "no model": (lambda files: zipped({"a.txt": b"hello"}), "no config.json"),
    "two models": (two_models, "several"),
    "a pickle by another name": (pickled("model.safetensors"), "is a pickle"),
    "a pickle": (pickled("weights.pt", keep=False), "weights.pt, a pickle"),
    "a pickle that could be of llama2.c": (pickled("weights.bin", keep=False), "weights.bin, a pickle"),
    "a pickle of another library": (foreign_pickle, "pytorch_model.bin, a pickle"),
    "altered weights": (altered, "not the file this bundle was saved with"),
    "a file outside": (with_config(lambda values: values["files"].update({"../../harmed": "0" * 64})), "outside the bundle"),  # type: ignore[attr-defined]
    "an enormous model": (with_config(lambda values: values["model"].update(width=3 * 2**28, feed_forward=2**40)), ""),  # type: ignore[attr-defined]
    "of a later format": (with_config(lambda values: values.update(format=99)), "format 99"),
    "of a plugin": (with_config(lambda values: values.update(plugins=["evil.py"])), "evil.py"),
    "a configuration that is none": (plus(mine__config_DOT_json=b"[" * 100_000), "not whole JSON"),
}  # fmt: skip


def test_what_could_harm_is_refused_and_leaves_nothing(
    client: Client, bundle: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = resident_bytes()
    for what, (make, told) in HOSTILE.items():
        answer = sent(client, make(bundle))
        assert answer.status in (400, 422), (what, answer.status, answer.body)
        message = answer.json["error"]["message"]
        assert told in message and "temporary" not in message, (what, answer.json)
        assert not (tmp_path / "models").exists() or not any((tmp_path / "models").iterdir()), what
        assert not any((tmp_path / "temporary").iterdir()), what
    assert not list(tmp_path.rglob("harmed")) and not list(tmp_path.rglob("unpickled"))
    assert not Path("/tmp/harmed").exists()
    assert resident_bytes() - before < 150e6
    assert sent(client, zipped(bundle)).status == 201  # and a good one still comes in


def test_a_bomb_is_not_unfolded_further_than_allowed(bundle: dict[str, bytes], tmp_path: Path) -> None:
    """Even where what an archive says of itself is not judged first."""
    (tmp_path / "b.zip").write_bytes(bomb(bundle))
    opened = zipfile.ZipFile(tmp_path / "b.zip")
    for info in opened.infolist():
        info.file_size = min(info.file_size, 10) if info.filename.endswith("zeros") else info.file_size
    with pytest.raises((RegardError, zipfile.BadZipFile)):
        archives._unfold(opened, tmp_path / "out", 2_000_000)
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()) <= 2_000_000


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", ".hidden", "-o", "a b", "x.tmp", "x" * 65, "a%00b", "a%2fb"])
def test_a_path_is_no_name(client: Client, bundle: dict[str, bytes], name: str, tmp_path: Path) -> None:
    answer = sent(client, b"", name.replace(" ", "%20"))
    assert answer.status == 422 and "is no name of a model" in answer.json["error"]["message"]
    assert not (tmp_path / "models").exists()


def test_who_may_not_ask_may_not_send(folder: Path, bundle: dict[str, bytes], tmp_path: Path) -> None:
    data = zipped(bundle)
    with serving(small(tmp_path, (), page=True, token=TOKEN)) as client:
        assert sent(client, data).status == 401
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert sent(client, data, Host="evil.example", **bearer).status == 421
        assert sent(client, data, Origin="https://evil.example", **bearer).status == 403
        assert sent(client, data, Sec_Fetch_Site="cross-site", **bearer).status == 403
        assert not (tmp_path / "models").exists()
        assert sent(client, data, **bearer).status == 201
    with serving(small(tmp_path, ())) as client:  # `regard serve` writes nothing
        answer = sent(client, data, "other")
        assert answer.status == 403 and "takes in no models" in answer.json["error"]["message"]
        assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["new"]


# --- How it is sent


def head(length: int) -> bytes:
    """A request that says how long its file is."""
    return b"POST /api/models?name=slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % length


def test_more_than_allowed_is_refused_while_it_comes(client: Client) -> None:
    before, large = resident_bytes(), 100 * 2**20
    for declared in (True, False):
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
        pieces = (b"x" * 65536 for _ in range(large // 65536))
        headers = {"Content-Type": "application/zip", **({"Content-Length": str(large)} if declared else {})}
        try:
            connection.request("POST", "/api/models?name=large", pieces, headers, encode_chunked=not declared)
            answer = connection.getresponse()
            assert answer.status == 413 and "larger than 2,000,000" in json.loads(answer.read())["error"]["message"]
        finally:
            connection.close()
    assert resident_bytes() - before < 60e6


def test_half_a_file_and_a_client_that_leaves_let_the_next_one_in(
    client: Client, bundle: dict[str, bytes], tmp_path: Path
) -> None:
    data = zipped(bundle)
    imports = client.server.guard.app.state.service.imports
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as slow:
        slow.sendall(head(len(data)) + data[: len(data) // 2])
        wait_for(imports.lock.locked)
        busy = sent(client, data)
        assert busy.status == 503 and int(busy.headers["retry-after"]) >= 1  # one at a time
        assert b"408" in slow.recv(4096).split(b"\r\n")[0]
    wait_for(lambda: not imports.lock.locked())
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as leaving:
        leaving.sendall(head(len(data)) + data[:100])
        wait_for(imports.lock.locked)
    wait_for(lambda: not imports.lock.locked())
    assert not (tmp_path / "models").exists()
    assert sent(client, data).status == 201


def test_a_large_file_comes_in_beside_other_requests(folder: Path, bundle: dict[str, bytes], tmp_path: Path) -> None:
    """A hundred megabytes of something beside the model: read piece by piece, not held in memory."""
    noise = hashlib.shake_256(b"seed").digest(2**20)
    data = zipped({**bundle, **{f"mine/extra-{part}": noise for part in range(100)}}, zipfile.ZIP_STORED)
    with serving(small(tmp_path, (folder / "translate",), page=True)) as client:
        client.json("/api/tokens", {"model": "translate", "text": TEXT})
        before, peak, done = resident_bytes(), [0.0], threading.Event()

        def watch() -> None:
            while not done.wait(0.01):
                peak[0] = max(peak[0], resident_bytes())

        thread = threading.Thread(target=watch)
        thread.start()
        answers: list[Answer] = []
        sender = threading.Thread(target=lambda: answers.append(sent(client, data)))
        began = time.monotonic()
        sender.start()
        asked = 0
        while sender.is_alive():
            assert client.ask("/api/tokens", {"model": "translate", "text": TEXT}).status == 200
            asked += 1
        done.set()
        thread.join()
        assert answers[0].status == 201 and asked > 3, time.monotonic() - began
        assert peak[0] - before < 60e6
        kept = sum(path.stat().st_size for path in (tmp_path / "models" / "new").iterdir())
        assert kept == sum(map(len, bundle.values()))  # nothing but the bundle
