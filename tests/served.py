"""A service on a free loopback port, with a small bundle for each task: what several test files share."""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from test_json import bundles
from test_verify import RUNG, make

from regard.bundle import Bundle, save_bundle
from regard.data.builtin.names import LANGUAGES
from regard.models.table import build
from regard.studio.config import Limits, ServeConfig
from regard.studio.server import Server, address_of, listening_socket, make_server


def save_bundles(folder: Path) -> dict[str, Path]:
    """A bundle with random weights for each task, by the name of the task."""
    made = bundles()
    languages = made["translate"]
    config = languages.config.model_copy(update={"languages": ("en", "de")})
    made["translate"] = Bundle(config, languages.model, languages.pair, {"bleu": 1.5})
    made["names"] = names()
    for task, bundle in made.items():
        save_bundle(folder / task, bundle)
    return {task: folder / task for task in made}


def names() -> Bundle:
    """A classifier with the languages of names for labels, of random weights."""
    pair = make("classify", "self-attention", **RUNG)
    config = pair.config.model_copy(update={"labels": LANGUAGES})
    torch.manual_seed(3)
    model = build("classify", config.model, config.vocabulary, labels=len(LANGUAGES)).eval()
    return Bundle(config, model, pair.pair, {})


def picture(width: int = 40, height: int = 48) -> bytes:
    """A PNG of some colours."""
    pixels = np.arange(width * height * 3, dtype=np.uint8).reshape(height, width, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@dataclass
class Client:
    """A plain client of one service."""

    address: str
    server: Server
    log: list[dict[str, object]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(self, path: str, body: object = None, method: str | None = None, **headers: str) -> Answer:
        """Send JSON, or bytes as they are; gives the answer, whatever its status."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            names.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.address + path, data, names, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as found:
                return Answer(found.status, _lower(found.headers), found.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, _lower(error.headers), error.read())

    def json(self, path: str, body: object = None, **headers: str) -> Any:
        """The JSON of an answer that must be a good one."""
        found = self.ask(path, body, **headers)
        assert found.status in (200, 202), found.body
        return found.json


@contextmanager
def serving(config: ServeConfig) -> Iterator[Client]:
    """A service in a thread of this process."""
    listening = listening_socket(config.host, 0)
    log: list[dict[str, object]] = []
    server = make_server(config, log.append)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Client(address_of(config, listening), server, log)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


def small(folder: Path, models: tuple[Path, ...], limits: Limits | None = None, **more: Any) -> ServeConfig:
    """A service of these bundles alone, and of no run."""
    places = {"runs": folder / "no-runs", "imported": folder / "models"}
    return ServeConfig(models=models, **places, shipped=False, limits=limits or Limits(), **more)


def wait_for(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something is true, or fail."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
