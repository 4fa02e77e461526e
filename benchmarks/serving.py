"""Load on the service, over loopback: many clients for a while, against one after the other; the same answers, and memory.

    python benchmarks/serving.py [--model RUN] [--clients 64] [--seconds 120] [--out FILE]

Starts `regard serve` in a process of its own, on a bundle that comes with Regard (dates) or the given one; without either, on
a Transformer of the same size with random weights. Dates of the built-in test set are translated with the model's own beam:
first one after the other over one connection, then by all clients at once, each asking again as soon as it has its answer.
Every answer is compared with what `Translator.translate` gives for that text alone (a text of another beam that scores the
same but for rounding is a tie). Resident memory is read from /metrics while they ask, and must not grow from a third of the
time on by more than a twentieth. Prints texts a second, percentiles of latency, and the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.bundle import Bundle, BundleConfig, save_bundle
from regard.data.builtin.dates import date_pairs
from regard.decode.config import DecodeConfig
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.runs import bundle_folder, shipped_bundles
from regard.tasks.translate.predictor import Translator
from regard.tokens import TokenizerPair, TokensConfig

TIE = 1e-3  # nats: scores of two texts that are as good as equal
FLAT = 1.05  # how much memory may grow


@dataclass
class Load:
    """What some clients asked, and got."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answers: list[tuple[str, str, float]] = field(default_factory=list)  # source, text, score
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # seconds since the start, bytes

    def data(self) -> dict[str, Any]:
        found = sorted(self.latencies)
        at = {
            f"p{share}": round(1000 * found[min(len(found) - 1, len(found) * share // 100)], 1)
            for share in (50, 90, 99)
        }
        rate = round(len(found) / self.seconds, 1)
        return {"texts": len(found), "texts_per_second": rate, "milliseconds": at, "errors": len(self.errors)}


async def ask(port: int, path: str, body: object, streams: tuple[Any, Any]) -> tuple[int, bytes]:
    """One request over a connection that stays open."""
    reader, writer = streams
    data = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    assert length is not None
    return int(answer.split(b" ", 2)[1]), await reader.readexactly(int(length[1]))


async def client(port: int, name: str, texts: Iterator[str], until: float, load: Load) -> None:
    streams = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until and (text := next(texts, None)) is not None:
        began = time.perf_counter()
        status, body = await ask(port, "/api/translate", {"model": name, "text": text}, streams)
        load.latencies.append(time.perf_counter() - began)
        found = json.loads(body)
        if status == 200:
            load.answers.append((text, found["text"], found["score"]))
        else:
            load.errors.append(str(found))
    streams[1].close()


async def watch_memory(port: int, load: Load, began: float, every: float) -> None:
    streams = await asyncio.open_connection("127.0.0.1", port)
    while True:
        _, body = await ask(port, "/metrics", None, streams)
        found = re.search(rb"^process_resident_memory_bytes (\S+)", body, re.MULTILINE)
        assert found is not None
        load.memory.append((time.perf_counter() - began, float(found[1])))
        await asyncio.sleep(every)


async def measure(port: int, name: str, texts: Sequence[str], clients: int, seconds: float) -> Load:
    """So many clients for so long, each with its next text as soon as it has the answer to the last."""
    load, began = Load(), time.perf_counter()
    every = (texts[place % len(texts)] for place in range(10**9))
    watcher = asyncio.ensure_future(watch_memory(port, load, began, max(0.05, seconds / 60)))
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(port, name, every, began + seconds, load))
    load.seconds = time.perf_counter() - began
    if watcher.done():
        await watcher  # it ends only by an error
    watcher.cancel()
    return load


@contextmanager
def served(model: Path, threads: int) -> Iterator[tuple[int, str]]:
    """A service in a process of its own: its port, and the name of the model."""
    words = [sys.executable, "-m", "regard", "serve", "--port", "0", "--no-shipped", "--runs", str(model / "none")]
    words += ["-m", str(model)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(words, stderr=log, env=environment)
        try:
            while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", _read(log))):
                if process.poll() is not None:
                    raise SystemExit(f"the service did not start: {_read(log)}")
                time.sleep(0.05)
            names = json.loads(asyncio.run(_models(int(found[1]))))["models"]
            yield int(found[1]), names[0]["name"]
        finally:
            process.terminate()
            process.wait(60)


def _read(log: Any) -> str:
    log.seek(0)
    text: str = log.read()
    return text


async def _models(port: int) -> bytes:
    streams = await asyncio.open_connection("127.0.0.1", port)
    _, body = await ask(port, "/api/models", None, streams)
    streams[1].close()
    return body


def random_bundle(folder: Path, tiny: bool) -> Path:
    """A Transformer for dates with random weights, so large as the one that comes with Regard."""
    width = 16 if tiny else 128
    config = TransformerConfig(
        encoder_layers=1 if tiny else 4, decoder_layers=1 if tiny else 4, width=width, heads=4, feed_forward=2 * width
    )
    pairs = date_pairs("train", 500, seed=1)
    tokens = TokensConfig(kind="character", min_count=1)
    both = TokenizerPair.train([each.source for each in pairs], [each.target for each in pairs], tokens)
    sizes = (both.source.size, both.target.size)
    torch.manual_seed(1)
    model = Transformer(config, *sizes).eval()
    decode = DecodeConfig(max_length=10)  # as long as a date: without training it would not end
    values = BundleConfig(tokens=tokens, vocabulary=sizes, model=config, decode=decode)
    return save_bundle(folder / "random", Bundle(values, model, both, {}))


def differences(load: Load, alone: dict[str, tuple[str, float]]) -> list[tuple[str, str]]:
    """Answers that are not those of the text alone, nor as good."""
    return [
        (source, text) for source, text, score in load.answers
        if text != alone[source][0] and abs(score - alone[source][1]) > TIE
    ]  # fmt: skip


def growth(load: Load) -> float:
    """Resident memory in the last third of the time against that in the second."""
    third = load.seconds / 3
    middle = [size for when, size in load.memory if third <= when < 2 * third]
    last = [size for when, size in load.memory if when >= 2 * third]
    return statistics.median(last) / statistics.median(middle) if middle and last else math.inf  # nobody looked


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a run or a bundle that translates dates")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--alone", type=float, default=20.0, help="seconds of one after the other")
    parser.add_argument("--threads", type=int, default=1, help="of the service's torch")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--tiny", action="store_true", help="next to nothing, in seconds: to see that it runs")
    options = parser.parse_args(words)
    if options.tiny:
        options.clients, options.seconds, options.alone = 5, 0.6, 0.3
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        shipped = None if options.tiny else shipped_bundles().get("dates")
        model = bundle_folder(options.model) if options.model else shipped or random_bundle(Path(folder), options.tiny)
        texts = [pair.source for pair in date_pairs("test", 20 if options.tiny else 200, seed=3)]
        translator = Translator.load(model)
        alone = {text: (found.text, found.score) for text in texts for found in [translator.translate(text)]}
        with served(model, options.threads) as (port, name):
            asyncio.run(measure(port, name, texts, 1, options.alone / 10))  # the first requests load and warm up
            single = asyncio.run(measure(port, name, texts, 1, options.alone))
            many = asyncio.run(measure(port, name, texts, options.clients, options.seconds))
    return report(options, single, many, alone)


def report(options: argparse.Namespace, single: Load, many: Load, alone: dict[str, tuple[str, float]]) -> int:
    one, all_ = single.data(), many.data()
    wrong = differences(single, alone) + differences(many, alone)
    ratio = all_["texts_per_second"] / one["texts_per_second"]
    figures = {
        "clients": options.clients, "seconds": round(many.seconds, 1), "threads": options.threads, "one_by_one": one,
        "together": all_, "ratio": round(ratio, 2), "different": len(wrong), "memory_growth": round(growth(many), 4),
        "memory_bytes": [int(size) for _, size in many.memory[:: max(1, len(many.memory) // 12)]],
        "torch": torch.__version__, "cores": os.cpu_count(),
    }  # fmt: skip
    for label, row in (("one by one", one), (f"{options.clients} clients", all_)):
        ms = row["milliseconds"]
        print(f"{label:12} {row['texts_per_second']:8.1f} texts/s   p50 {ms['p50']} p90 {ms['p90']} p99 {ms['p99']} ms")
    print(f"ratio {ratio:.2f} · errors {len(single.errors) + len(many.errors)} · different answers {len(wrong)} · "
          f"memory grew by {figures['memory_growth']:.3f}")  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    steady = options.tiny or figures["memory_growth"] <= FLAT
    return 0 if steady and not wrong and not single.errors and not many.errors else 1


if __name__ == "__main__":
    sys.exit(main())
