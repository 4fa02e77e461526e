"""Lay out the picture sets of REGARD_DATA as a person would have them: files, JSON Lines, CIFAR's own rows.

    REGARD_DATA=... python benchmarks/prepare_pictures.py FOLDER

FOLDER/flickr8k/{train,valid,test}.jsonl with images/, FOLDER/easy_vqa/{train,test}.jsonl with their images, and
FOLDER/cifar10/{train,test}.bin with batches.meta.txt. What is there already is left.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
LISTS = {"train": "trainImages", "valid": "devImages", "test": "testImages"}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tiny", action="store_true", help="made sets of a picture or two, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            make(Path(place) / "data")
            prepare(Path(place) / "data", Path(place) / "out")
        return
    if options.folder is None or not os.environ.get("REGARD_DATA"):
        parser.error("name a folder, and set REGARD_DATA to that of the public sets (or --tiny)")
    prepare(Path(os.environ["REGARD_DATA"]), options.folder)


def make(data: Path) -> None:
    """Each set as it is given away, of one picture for each part."""
    grey = np.full((4, 4, 3), 127, dtype=np.uint8)
    for name in ("flickr8k", "easy_vqa", "cifar10"):
        (data / name).mkdir(parents=True)
    pictures = {part: f"{part}.jpg" for part in LISTS}
    pack(data / "flickr8k" / "images_128.tar", {f"images_128/{name}": grey for name in pictures.values()})
    lines = "".join(f"{name}#{number}\tA dog .\n" for name in pictures.values() for number in range(5))
    (data / "flickr8k" / "Flickr8k.token.txt.gz").write_bytes(gzip.compress(lines.encode()))
    for part, listed in LISTS.items():
        (data / "flickr8k" / f"Flickr_8k.{listed}.txt").write_text(pictures[part] + "\n")
    pack(data / "easy_vqa" / "images.tgz", {f"{part}/images/0.png": grey for part in ("train", "test")})
    for part in ("train", "test"):
        asked = json.dumps([["is it grey?", "yes", 0]]).encode()
        (data / "easy_vqa" / f"{part}_questions.json.gz").write_bytes(gzip.compress(asked))
        (data / "cifar10" / f"{part}_lables.json").write_text("[3, 4]")
    for name in ("data_batch_1.png", "test_batch.png"):
        Image.fromarray(np.zeros((2, 32 * 32, 3), dtype=np.uint8)).save(data / "cifar10" / name)


def pack(path: Path, pictures: dict[str, np.ndarray]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
        for name, pixels in pictures.items():
            file = BytesIO()
            Image.fromarray(pixels).save(file, Path(name).suffix[1:].replace("jpg", "jpeg"))
            entry = tarfile.TarInfo(name)
            entry.size = file.tell()
            file.seek(0)
            tar.addfile(entry, file)


def prepare(data: Path, out: Path) -> None:
    for name, work in (("flickr8k", flickr8k), ("easy_vqa", easy_vqa), ("cifar10", cifar10)):
        if not (out / name).exists():
            (out / f"{name}.tmp").mkdir(parents=True, exist_ok=True)
            work(data / name, out / f"{name}.tmp")
            (out / f"{name}.tmp").rename(out / name)
        print(out / name)


def flickr8k(data: Path, out: Path) -> None:
    """The official split; captions without the space before their full stop."""
    with tarfile.open(data / "images_128.tar") as tar:
        tar.extractall(out, filter="data")
    captions = defaultdict(list)
    with gzip.open(data / "Flickr8k.token.txt.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            key, text = line.rstrip("\n").split("\t")
            captions[key.partition("#")[0]].append(text.removesuffix(" .").strip())
    for part, listed in LISTS.items():
        names = (data / f"Flickr_8k.{listed}.txt").read_text().split()
        rows = [{"picture": f"images_128/{name}", "captions": captions[name]} for name in names]
        write_jsonl(out / f"{part}.jsonl", rows)


def easy_vqa(data: Path, out: Path) -> None:
    with tarfile.open(data / "images.tgz") as tar:
        tar.extractall(out, filter="data")
    for part in ("train", "test"):
        with gzip.open(data / f"{part}_questions.json.gz", "rt", encoding="utf-8") as file:
            asked = json.load(file)
        rows = [
            {"picture": f"{part}/images/{number}.png", "question": question, "answer": answer}
            for question, answer, number in asked
        ]
        write_jsonl(out / f"{part}.jsonl", rows)


def cifar10(data: Path, out: Path) -> None:
    """A row of a PNG is a picture; a row of CIFAR's own file is a label and three planes of colour."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    for part, picture in (("train", "data_batch_1.png"), ("test", "test_batch.png")):
        pixels = np.asarray(Image.open(data / picture)).reshape(-1, 32, 32, 3)
        labels = np.array(json.loads((data / f"{part}_lables.json").read_text())[: len(pixels)], dtype=np.uint8)
        planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        np.concatenate([labels[:, None], planes], axis=1).tofile(out / f"{part}.bin")
    Image.MAX_IMAGE_PIXELS = limit
    (out / "batches.meta.txt").write_text("\n".join(CIFAR) + "\n")


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


if __name__ == "__main__":
    main()
