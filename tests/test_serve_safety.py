"""Who is refused by the service, and what it outlives: hostile pages, bundles, pictures and clients, and a stop under load."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Client, save_bundles, serving, small, wait_for

from regard.cli.main import run
from regard.errors import RegardError, UsageError
from regard.studio.config import Limits, ServeConfig, read_token
from regard.studio.service import resident_bytes

TEXT = "two dogs sleep"
ASKED = {"model": "translate", "text": TEXT, "max_length": 4}
TOKEN = "a token of some length"
LONG = {"model": "generate", "prompt": TEXT, "max_length": 4096, "sample": True, "seed": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("safety")
    save_bundles(here)
    return here


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    models = tuple(folder / name for name in ("translate", "generate", "caption"))
    limits = Limits(read_seconds=1.5, send_seconds=1.0, seconds=30.0)
    with serving(small(folder, models, limits, origins=("https://known.example",))) as found:
        yield found


# --- Who asks


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8088", "localhost@evil.example"])
def test_a_foreign_host_is_refused(client: Client, host: str) -> None:
    """A name that someone makes point to this machine is not a name of it."""
    assert client.ask("/api/translate", ASKED, Host=host).status == 421
    assert client.ask("/health", Host=host).status == 421
    for own in (f"localhost:{client.port}", "LOCALHOST.", "[::1]:1", "127.0.0.1"):
        assert client.ask("/health", Host=own).status == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
     {"Origin": "http://127.0.0.1:1"}],
)  # fmt: skip
def test_a_page_of_another_site_is_refused(client: Client, headers: dict[str, str]) -> None:
    for path, body in (("/api/translate", ASKED), ("/translate", {"q": TEXT, "source": "en", "target": "de"})):
        answer = client.ask(path, body, **headers)
        assert answer.status == 403 and "another site" in json.dumps(answer.json)
        assert "access-control-allow-origin" not in answer.headers
    own = {"Origin": client.address, "Sec_Fetch_Site": "same-origin"}
    assert client.ask("/api/translate", ASKED, **own).status == 200


def test_a_page_whose_origin_was_named_may_ask(client: Client) -> None:
    known = {"Origin": "https://known.example", "Sec_Fetch_Site": "cross-site"}
    before = client.ask("/api/translate", method="OPTIONS", Access_Control_Request_Method="POST", **known)
    assert before.status == 204 and before.headers["access-control-allow-origin"] == "https://known.example"
    answer = client.ask("/api/translate", ASKED, **known)
    assert answer.status == 200 and answer.headers["access-control-allow-origin"] == "https://known.example"
    assert "access-control-allow-origin" not in client.ask("/health").headers


def test_every_answer_has_the_headers_that_keep_a_browser_in(client: Client) -> None:
    for answer in (client.ask("/health"), client.ask("/nowhere"), client.ask("/health", Host="evil"), client.ask("/docs"),
                   client.ask("/api/translate", b"{")):  # fmt: skip
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; img-src 'self' data: blob:") and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_beyond_loopback_a_token_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGARD_TOKEN", raising=False)
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org"):
        with pytest.raises(UsageError, match="anyone who reaches this machine"):
            ServeConfig(host=host).check()
        ServeConfig(host=host, token=TOKEN).check()
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        ServeConfig(host=host).check()
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "--host", "0.0.0.0"]) == 2
    assert "--token-file FILE" in capsys.readouterr().err
    with pytest.raises(UsageError, match="can be guessed"):
        ServeConfig(token="short").check()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert read_token(tmp_path / "token", {"REGARD_TOKEN": "other"}) == TOKEN
    assert read_token(None, {"REGARD_TOKEN": TOKEN}) == TOKEN and read_token(None, {}) is None
    (tmp_path / "token").write_text("\n")
    with pytest.raises(RegardError, match="holds no token"):
        read_token(tmp_path / "token")
    assert TOKEN not in repr(ServeConfig(token=TOKEN))


def test_without_the_token_nothing_is_told(folder: Path) -> None:
    with serving(small(folder, (folder / "translate",), token=TOKEN)) as client:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert client.ask("/health").status == client.ask("/ready").status == client.ask("/docs").status == 200
        for path in ("/api/models", "/metrics", "/v1/models", "/api/runs", "/hf/translate", "/nowhere"):
            assert client.ask(path).status == 401
            assert client.ask(path, Authorization=f"Bearer {TOKEN}x").status == 401
        for path in ("/languages", "/translate"):  # whose key may stand in the body
            assert client.ask(path, b"{}" if path == "/translate" else None).status == 403
        assert (
            client.ask("/api/models", **bearer).status
            == client.ask(f"/api/models?api_key={TOKEN.replace(' ', '+')}").status
            == 200
        )
        assert client.ask("/api/translate", ASKED, **bearer).status == 200


# --- What is asked for


@pytest.mark.parametrize(
    "name", ["../translate", "/etc/passwd", "translate/../translate", "..", ".", "", "translate\x00", "%2e%2e"]
)
def test_a_path_is_no_name_of_a_model(client: Client, name: str) -> None:
    answer = client.ask("/api/translate", {**ASKED, "model": name})
    assert answer.status == 404 and answer.json["error"]["message"].startswith("there is no model")
    assert client.ask("/v1/completions", {"model": name, "prompt": TEXT}).status == 404
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    for path in (f"/api/models/{quoted}", f"/hf/{quoted}", f"/api/runs/{quoted}", f"/static/{quoted}"):
        assert client.ask(path, b"{}" if "/hf/" in path else None).status in (307, 404, 405) or name == ""


def test_a_hostile_bundle_is_refused_and_the_others_are_served(folder: Path, tmp_path: Path) -> None:
    made = {}
    for name in ("pickled", "outside", "altered", "enormous", "whole"):
        made[name] = shutil.copytree(folder / "translate", tmp_path / name)
    (made["pickled"] / "model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    for name, change in {
        "outside": lambda values: values["files"].update({"../../secret": "0" * 64}),
        "altered": lambda values: values.update(labels=["changed"], vocabulary=[7, 7]),
        "enormous": lambda values: values["model"].update(width=3 * 2**28, feed_forward=2**40),
    }.items():
        values = json.loads((made[name] / "config.json").read_text())
        change(values)
        (made[name] / "config.json").write_text(json.dumps(values))
    with serving(small(folder, tuple(made.values()))) as client:
        for name in ("pickled", "outside", "altered", "enormous"):
            answer = client.ask("/api/translate", {**ASKED, "model": name})
            assert answer.status == 422, (name, answer.body)
        assert client.ask("/api/translate", {**ASKED, "model": "whole"}).status == 200


def bomb(width: int, height: int) -> bytes:
    """A small PNG that says it is large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(10_000_000)))
        + chunk(b"IEND", b"")
    )


def test_a_picture_bomb_is_refused_before_it_unfolds(client: Client) -> None:
    before = resident_bytes()
    for data in (bomb(60_000, 60_000), b"no picture", b"\x10", b""):
        answer = client.ask("/api/caption", {"model": "caption", "picture": base64.b64encode(data).decode()})
        assert answer.status == 422
        assert client.ask("/hf/caption", data, Content_Type="image/png").status == 400
    assert resident_bytes() - before < 100e6


# --- How it is asked


def test_a_body_of_100_megabytes_is_refused_while_it_is_read(client: Client) -> None:
    before = resident_bytes()
    large = 100 * 2**20
    for declared in (True, False):
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
        body = (b"x" * 65536 for _ in range(large // 65536))
        headers = {"Content-Type": "application/json", **({"Content-Length": str(large)} if declared else {})}
        try:
            connection.request("POST", "/api/translate", body, headers, encode_chunked=not declared)
            answer = connection.getresponse()
            assert answer.status == 413 and "larger than" in json.loads(answer.read())["error"]["message"]
        finally:
            connection.close()
    assert resident_bytes() - before < 100e6
    assert client.ask("/api/translate", ASKED).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"\xff\xfe", 400), (b"[" * 100_000, 400), (b"[]", 422), (b"null", 422), (b'{"model": NaN, "text": 1}', 422),
     (b'{"model": "translate", "text": "\\ud800"}', 422), (b'{"model": "translate", "text": "a", "beam": 1e99}', 422),
     (b'{"model": "translate", "text": "a", "other": 1}', 422), (b'{"model": "translate", "text": "a", "beam": 999}', 422),
     (b'{"model": "translate", "text": "' + b"a" * 30_000 + b'"}', 413)],
)  # fmt: skip
def test_bad_requests_are_told_so(client: Client, body: bytes, status: int) -> None:
    answer = client.ask("/api/translate", body)
    assert answer.status == status and answer.json["error"]["message"]
    theirs = client.ask("/v1/completions", body)
    assert 400 <= theirs.status < 500 and theirs.json["error"]["type"] == "invalid_request_error"


def written(asked: object) -> bytes:
    """A request to generate, as it goes over the wire."""
    data = json.dumps(asked).encode()
    head = b"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(data) + data


def connected(client: Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.port), timeout=10)


def test_half_a_request_is_not_waited_for(client: Client) -> None:
    with connected(client) as headers, connected(client) as body, connected(client) as nothing:
        headers.sendall(b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-")
        body.sendall(b'POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{"model": ')
        assert client.ask("/api/translate", ASKED).status == 200  # others are served meanwhile
        assert b"408" in body.recv(4096).split(b"\r\n")[0]
        assert headers.recv(4096) == b"" and nothing.recv(4096) == b""


def test_computing_stops_when_the_client_leaves(client: Client) -> None:
    work = client.server.guard.app.state.service.work
    for asked in ({**LONG, "stream": True}, LONG):
        with connected(client) as mine:
            mine.sendall(written(asked))
            wait_for(lambda: work.pending > 0)
            if asked.get("stream"):
                assert b"event: piece" in mine.recv(65536) + mine.recv(65536)
        began = time.monotonic()
        wait_for(lambda: work.pending == 0)
        assert time.monotonic() - began < 2.0  # of many seconds that 4,096 tokens take
    wait_for(lambda: [line["status"] for line in client.log if line["path"] == "/api/generate"][-1] == 499)


def test_a_slow_reader_is_cut_off_and_holds_nobody_up(folder: Path) -> None:
    """It asks for megabytes and never reads: they wait in buffers, others are served, then the connection is cut."""
    limits = Limits(seconds=3.0, read_seconds=0.5, send_seconds=0.5, queue=1)
    large = {"model": "generate", "prompt": "two dogs " * 120, "max_length": 1, "attention": True}
    with serving(small(folder, (folder / "generate",), limits)) as client:
        with connected(client) as mine:
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            mine.sendall(written(large))
            work = client.server.guard.app.state.service.work
            wait_for(lambda: work.pending == 1)
            wait_for(lambda: work.pending == 0)  # computed, and not yet taken away
            assert client.ask("/api/generate", {**LONG, "max_length": 3}).status == 200
            assert mine.fileno() > 0 and len(client.server.server_state.connections) >= 1
            wait_for(lambda: not client.server.server_state.connections, 5)
        assert len(client.ask("/api/generate", large).body) > 8e6


def test_a_full_queue_says_come_again(folder: Path) -> None:
    with serving(small(folder, (folder / "generate",), Limits(queue=1))) as client:
        client.json("/api/generate", {**LONG, "max_length": 1})
        work = client.server.guard.app.state.service.work
        with connected(client) as mine:
            mine.sendall(written({**LONG, "stream": True}))
            wait_for(lambda: work.pending == 1)
            for path, asked in (("/api/generate", LONG), ("/v1/completions", {"model": "generate", "prompt": TEXT})):
                answer = client.ask(path, asked)
                assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1
        wait_for(lambda: work.pending == 0)
        assert client.ask("/api/generate", {**LONG, "max_length": 1}).status == 200


def test_a_deadline_is_kept(folder: Path) -> None:
    """The text is so long that no machine has written it by then; 4,096 tokens took one of them half a second."""
    with serving(small(folder, (folder / "generate",), Limits(seconds=0.5, tokens=400_000))) as client:
        client.ask("/api/tokens", {"model": "generate", "text": TEXT})
        began = time.monotonic()
        answer = client.ask("/api/generate", {**LONG, "max_length": 400_000, "sample": False})
        assert answer.status == 504 and time.monotonic() - began < 3
        wait_for(lambda: client.server.guard.app.state.service.work.pending == 0, 3)


# --- The process


def test_a_stop_under_load_loses_no_accepted_request(folder: Path, tmp_path: Path) -> None:
    words = ["-m", "regard", "serve", "--port", "0", "-m", str(folder / "translate"), "--runs", str(tmp_path / "none")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, *words], stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    assert process.stderr is not None
    started = process.stderr.readline()
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)", started)[1])  # type: ignore[index]
    answered: list[int] = []
    broken: list[Any] = []
    stopping = threading.Event()

    def ask(number: int) -> None:
        data = json.dumps({"model": "translate", "text": f"{number} dogs sleep", "max_length": 30}).encode()
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.connect()
            except OSError:
                return  # nobody listens any more
            try:
                connection.request("POST", "/api/translate", data, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                json.loads(answer.read())
                answered.append(answer.status)
            except (http.client.HTTPException, OSError, ValueError) as error:
                if (
                    not isinstance(error, ConnectionResetError | http.client.RemoteDisconnected)
                    or not stopping.is_set()
                ):
                    broken.append(error)
                return
            finally:
                connection.close()

    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
    reader.start()
    clients = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(8)]
    for each in clients:
        each.start()
    try:
        wait_for(lambda: len(answered) >= 24, 60)
        stopping.set()
        process.send_signal(signal.SIGTERM)
        for each in clients:
            each.join(60)
        assert process.wait(60) == 0
    finally:
        process.kill()
        reader.join(10)
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    assert broken == [] and set(answered) == {200}
    assert [line["status"] for line in logged] == [200] * len(answered), lines[-5:]
