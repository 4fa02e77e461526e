"""Contact sheets of a captioner: pictures of a test set chosen at random, each word with where the model looked.

    REGARD_DATA=FOLDER python benchmarks/contact_sheets.py RUN --on flickr8k/test.jsonl --out DIR [--mosaic 14]

or of a model that answers questions, each word of the question with where it looked:

    REGARD_DATA=FOLDER python benchmarks/contact_sheets.py RUN --questions --on easy_vqa/test.jsonl --out DIR --mosaic 16

With `--mosaic N` a picture is shown as N x N squares of its mean colours: enough to guess what is there where the picture
itself may not be passed on. Also prints a Markdown list of names and captions.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from regard.config import find_file
from regard.data.builtin.scenes import scenes
from regard.data.pictures.captions import read_captions, read_questions
from regard.data.pictures.decode import read_picture
from regard.look.pictures import PictureMap
from regard.tasks.answer.predictor import QuestionAnswerer
from regard.tasks.caption.predictor import Captioner
from regard.tasks.configure import run_config
from regard.tasks.run import start_run


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--on")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mosaic", type=int, default=0)
    parser.add_argument("--questions", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="two models that learn next to nothing, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            for questions in (False, True):
                draw(made(Path(folder) / str(questions), questions))
        return
    if not (options.run and options.on and options.out):
        parser.error("RUN, --on and --out are needed (or --tiny)")
    draw(options)


def draw(options: argparse.Namespace) -> None:
    """A sheet for each picture, and its line of Markdown."""
    options.out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(options.seed)
    sheets = asked(options, random) if options.questions else captioned(options, random)
    for number, (path, shown, text) in enumerate(sheets, 1):
        if options.mosaic:
            shown = replace(shown, picture=mosaic(read_picture(path), options.mosaic))
        file = shown.save(options.out / f"{number:02}.png")
        print(f"{number}. `{path.name}`: {text}  \n   ![{text}]({file})\n")


def made(folder: Path, questions: bool) -> argparse.Namespace:
    """A model that learned next to nothing from drawn scenes, and two of them as files."""
    data, train = {"builtin_size": 16, "size": 32}, {"steps": 1, "validate_every": 1}
    config = run_config("answer" if questions else "caption", {"preset": "demo", "data": data, "train": train})
    start_run(config, folder=folder / "run")
    drawn, rows = scenes(2, 3), []
    for number, picture in enumerate(drawn.pictures):
        Image.fromarray(picture).save(folder / f"{number}.png")
        said = {"question": "is there a circle?", "answer": "yes"} if questions else {"captions": ["a circle"]}
        rows.append(json.dumps({"picture": f"{number}.png", **said}))
    (folder / "test.jsonl").write_text("\n".join(rows) + "\n")
    places = {"run": str(folder / "run"), "on": str(folder / "test.jsonl"), "out": folder / "sheets"}
    return argparse.Namespace(**places, count=1, seed=1, mosaic=4, questions=questions)


def captioned(options: argparse.Namespace, random: np.random.Generator) -> Iterator[tuple[Path, PictureMap, str]]:
    """Pictures chosen at random, each with the words that the model finds."""
    captioner, paths = Captioner.load(options.run), read_captions(find_file(options.on)).paths
    for place in sorted(random.choice(len(paths), options.count, replace=False)):
        found = captioner.caption(paths[place], attention=True)
        assert found.attention is not None
        yield paths[place], found.attention, found.text


def asked(options: argparse.Namespace, random: np.random.Generator) -> Iterator[tuple[Path, PictureMap, str]]:
    """Questions chosen at random, each with the model's answer and the right one."""
    user, found = QuestionAnswerer.load(options.run), read_questions(find_file(options.on))
    for place in sorted(random.choice(len(found.questions), options.count, replace=False)):
        path, question = found.paths[found.pictures[place]], found.questions[place]
        answer = user.answer(path, question).answer
        right = "" if answer == found.answers[place] else f" (right: {found.answers[place]})"
        yield path, user.look(path, question), f"{question} {answer}{right}"


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
