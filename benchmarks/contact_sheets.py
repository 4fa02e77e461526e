"""Contact sheets of a captioner: pictures of a test set chosen at random, each word with where the model looked.

    REGARD_DATA=FOLDER python benchmarks/contact_sheets.py RUN --on flickr8k/test.jsonl --out DIR [--mosaic 14]

With `--mosaic N` a picture is shown as N x N squares of its mean colours: enough to guess what is there where the picture
itself may not be passed on. Also prints a Markdown list of names and captions.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from regard.config import find_file
from regard.data.pictures.captions import read_captions
from regard.data.pictures.decode import read_picture
from regard.tasks.caption import Captioner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--on", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mosaic", type=int, default=0)
    options = parser.parse_args()
    captioner = Captioner.load(options.run)
    paths = read_captions(find_file(options.on)).paths
    chosen = np.random.default_rng(options.seed).choice(len(paths), options.count, replace=False)
    options.out.mkdir(parents=True, exist_ok=True)
    for number, place in enumerate(sorted(chosen), 1):
        found = captioner.caption(paths[place], attention=True)
        shown = found.attention
        assert shown is not None
        if options.mosaic:
            shown = replace(shown, picture=mosaic(read_picture(paths[place]), options.mosaic))
        file = shown.save(options.out / f"{number:02}.png")
        print(f"{number}. `{paths[place].name}`: {found.text}  \n   ![{found.text}]({file})\n")


def mosaic(picture: np.ndarray, squares: int) -> np.ndarray:
    """The picture as squares of its mean colours, of the same size."""
    height, width = picture.shape[:2]
    rows, columns = (np.linspace(0, side, squares + 1).astype(int) for side in (height, width))
    out = picture.copy()
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            out[top:bottom, left:right] = picture[top:bottom, left:right].mean(axis=(0, 1))
    return out


if __name__ == "__main__":
    main()
