"""What is compared of a text or a file: all that it says, without times, places and names drawn at random."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageSequence
from safetensors.torch import load_file

import regard

PACKAGE = Path(regard.__file__).resolve().parent.parent

OF_TIME = re.compile(  # keys of JSON
    r"seconds|\w+_per_second|age|made|commit|speed|rate|beside|memory|clock\.jsonl|machine|conditions"
)
TIMED = ("learning.png", "learning.svg", "report.html")  # of `regard compare`: drawn over seconds, or with speeds
SPAN = re.compile(r"\b(?:about )?\d[\d.,]*(?: ?(?:s|ms|min|h|GiB|MiB|MB)\b|(?= \w+/s\b| a second\b))")


def placeless(text: str) -> str:
    """The text without names of folders of this machine, and without commits."""
    for place, name in ((str(Path.cwd()), "HERE"), (str(PACKAGE), "PACKAGE"), (tempfile.gettempdir(), "TEMPORARY")):
        text = text.replace(place, name)
    return re.sub(r"\b[0-9a-f]{40}(-dirty)?\b", "COMMIT", text)


def timeless(text: str) -> str:
    """The text without spans of time, speeds and amounts of memory, and without the room that they take in a table."""
    if not SPAN.search(text):
        return text.rstrip()
    return re.sub(r"(?<=\S) {2,}", "  ", re.sub(r"#( #)+", "#", SPAN.sub("#", text))).rstrip()


def numberless(text: str) -> str:
    return re.sub(r"\d[\d.,]*|–", "#", re.sub(r" +", " ", text)).strip()


def lasting(told: Any) -> Any:
    """Lines of stderr without those that come by the clock: how far some work is, and how long it will take."""
    passing = re.compile(r" … #$|  epoch \d|/s\b| in #, ")
    return [line for line in told if not (isinstance(line, str) and passing.search(line))]


def lines_of(text: str, clean: Callable[[str], str]) -> Any:
    """JSON as what it says; a JSON object a line as a list of them; else the lines of a text."""
    with contextlib.suppress(ValueError):
        return without_time(json.loads(text), clean)
    with contextlib.suppress(ValueError):
        return [without_time(json.loads(line), clean) for line in text.splitlines()]
    lines = [clean(line) for line in text.splitlines()]
    if lines and lines[0].endswith("/s"):  # a table whose last column is a speed
        return [re.sub(r"^(models/.*?) +[\d.,]+$", r"\1 #", re.sub(r"(?<=\S) {2,}", "  ", line)) for line in lines]
    return lines


def without_time(value: Any, clean: Callable[[str], str] = timeless) -> Any:
    if isinstance(value, dict):
        return {key: "#" if OF_TIME.fullmatch(key) else without_time(each, clean) for key, each in value.items()}
    if isinstance(value, list):
        return [without_time(each, clean) for each in value]
    return placeless(clean(value)) if isinstance(value, str) else value


def content(file: Path) -> Any:
    """What is compared of a file, by its suffix: data as data, drawings as words and paths, pictures by their pixels."""
    suffix = file.suffix.lower()
    if suffix == ".safetensors":
        return tensors(file)
    if suffix in (".png", ".gif"):
        return "#" if file.name in TIMED else pixels(file)
    if file.name == "clock.jsonl" or suffix in (".lock", ".tokens", ".bin"):
        return "#" if file.name == "clock.jsonl" else digest(file.read_bytes())
    text = placeless(file.read_text(encoding="utf-8"))
    if suffix == ".svg":
        return drawing(text) if file.name not in TIMED else [numberless(word) for word in drawing(text)["words"]]
    if suffix == ".html":
        return page(text) if file.name not in TIMED else [numberless(timeless(word)) for word in page(text)["words"]]
    if suffix == ".csv":
        return list(csv.reader(text.splitlines()))
    return lines_of(text, timeless)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tensors(file: Path) -> dict[str, Any]:
    """A digest of all tensors by their values alone, and one of their names."""
    found = load_file(file)
    values = sorted(digest(f"{t.dtype} {tuple(t.shape)}".encode() + as_bytes(t)) for t in found.values())
    return {"weights": digest("".join(values).encode()), "tensors": len(found), "names": sorted(found)}


def as_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def pixels(file: Path) -> list[str]:
    with Image.open(file) as picture:
        return [digest(np.asarray(frame.convert("RGBA")).tobytes()) for frame in ImageSequence.Iterator(picture)]


def drawing(svg: str) -> dict[str, Any]:
    """The words of a drawing and its paths; names that are drawn at random become numbers in their order."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    numbers: dict[str, str] = {}
    for name in re.findall(r'\bid="([^"]+)"', svg):
        numbers.setdefault(name, f"id{len(numbers)}")
    svg = re.sub(r'(\bid="|url\(#|href="#)([^")]+)', lambda at: at[1] + numbers.get(at[2], at[2]), svg)
    words = [word.strip() for pair in re.findall(r"<!--(.*?)-->|>([^<]+)<", svg, re.DOTALL) for word in pair]
    paths = [" ".join(path.split()) for path in re.findall(r'\bd="([^"]*)"', svg)]
    return {"words": [word for word in words if word], "paths": paths, "whole": digest(svg.encode())}


class VisibleText(HTMLParser):
    """What a person reads on a page, and what is said of it in titles."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in ("style", "script")
        self.words += [str(value) for name, value in attrs if name in ("title", "aria-label", "alt", "d")]

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.words.append(" ".join(data.split()))


def page(html: str) -> dict[str, Any]:
    """What a person reads on a page, its pictures, and a digest of its scripts."""
    reader = VisibleText()
    reader.feed(html)
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
    images = [embedded(*each) for each in re.findall(r'"data:image/([a-z+]+);base64,([^"]+)"', html)]
    return {"words": reader.words, "images": images, "scripts": digest("".join(scripts).encode())}


def embedded(kind: str, data: str) -> Any:
    return drawing(base64.b64decode(data).decode()) if kind == "svg+xml" else digest(data.encode())
