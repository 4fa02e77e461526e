"""Small files of every kind that Regard learns from, made of nothing but arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image, ImageDraw

WORDS = {
    "the red": "der rote", "a small": "ein kleiner", "the old": "der alte", "a green": "ein grüner",
    "dog": "hund", "fox": "fuchs", "bird": "vogel", "cat": "kater",
    "sees": "sieht", "hears": "hört", "follows": "verfolgt", "likes": "mag",
}  # fmt: skip
COLORS = {"red": (200, 30, 30), "green": (20, 140, 40), "blue": (30, 60, 200)}


def sentences(count: int, first: int = 0) -> list[tuple[str, str]]:
    """Pairs of sentences, each another one: of two nouns with their adjectives, and a verb."""
    words = list(WORDS.items())
    made = []
    for n in range(first, first + count):
        places = (n % 4, 4 + n // 3 % 4, 8 + n // 2 % 4, (n + n // 4) % 4, 4 + n // 5 % 4)
        made.append(tuple(" ".join(words[place][side] for place in places) + "." for side in (0, 1)))
    return made  # type: ignore[return-value]


def make_data() -> None:
    """Small files of every kind that Regard learns from, made of nothing but arithmetic."""
    pairs, held = sentences(90), sentences(8, 90)
    text_of = {"pairs.tsv": pairs, "held.tsv": held}
    for name, rows in text_of.items():
        Path(name).write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    Path("lines.txt").write_text("".join(f"{source}\n" for source, _ in held[:3]), encoding="utf-8")
    for name, rows in {"text.txt": pairs, "held.txt": held * 2}.items():
        lines = [" ".join(source for source, _ in rows[start : start + 5]) for start in range(0, len(rows), 5)]
        Path(name).write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    labelled = [(source, source.split()[2]) for source, _ in [*pairs, *held]]
    for name, some in {"labels.tsv": labelled[:90], "held-labels.tsv": labelled[90:]}.items():
        Path(name).write_text("".join(f"{text}\t{label}\n" for text, label in some), encoding="utf-8")
    both = [(labelled[n][0], labelled[n + 1][0], str(labelled[n][1] == labelled[n + 1][1])) for n in range(40)]
    rows = [("text", "second", "label"), *both]
    Path("labelled-pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    trees = [{"text": text, "label": label, "heads": tree(text)} for text, label in labelled[:40]]
    Path("trees.jsonl").write_text("".join(json.dumps(row) + "\n" for row in trees), encoding="utf-8")
    Path("recipe.toml").write_text(RECIPE, encoding="utf-8")
    make_pictures()


RECIPE = """task = "classify"
preset = "demo"
data = { train = "labels.tsv", valid = "held-labels.tsv" }
tokens = { kind = "word" }
model = { kind = "additive" }
train = { steps = 3, validate_every = 2 }
"""


def tree(text: str) -> list[int]:
    """For each word the place of its head: the next word, and of the last its own."""
    count = len(text.split())
    return [min(place + 1, count - 1) for place in range(count)]


def make_pictures() -> None:
    """Rings, crosses and squares of three colours, with captions and questions."""
    captions, questions = [], []
    for split, count in {"train": 9, "valid": 3}.items():
        for shape in ("ring", "cross", "square"):
            folder = Path("pictures") / split / shape
            folder.mkdir(parents=True)
            for n in range(count):
                name, color = folder / f"{n}.png", list(COLORS)[n % 3]
                draw(shape, color, n).save(name)
                captions.append({"picture": str(name), "caption": f"a {color} {shape} on white"})
                questions.append({"picture": str(name), "question": "what colour is it?", "answer": color})
                questions.append({"picture": str(name), "question": "what is it?", "answer": shape})
    for file, rows in {"captions.jsonl": captions, "questions.jsonl": questions}.items():
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def draw(shape: str, color: str, n: int) -> Image.Image:
    picture = Image.new("RGB", (16, 16), "white")
    pen, left, top = ImageDraw.Draw(picture), 1 + n % 4, 1 + n // 4
    box = (left, top, left + 10, top + 10)
    if shape == "ring":
        pen.ellipse(box, outline=COLORS[color], width=2)
    elif shape == "square":
        pen.rectangle(box, fill=COLORS[color])
    else:
        pen.line(box, fill=COLORS[color], width=2)
        pen.line((left, top + 10, left + 10, top), fill=COLORS[color], width=2)
    return picture
