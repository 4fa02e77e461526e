"""The chapters in their order: number, file, title, what each is about, and its exercise. No torch and no NumPy here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import UsageError
from regard.plugins import imported

if TYPE_CHECKING:
    from regard.course.exercise import Exercise

PAGES = Path(__file__).resolve().parents[2] / "docs" / "course"  # beside the package, where its source is


@dataclass(frozen=True)
class Chapter:
    """One chapter; its exercise is named as "module:name" and imported when it is asked for."""

    number: int
    name: str  # of its file, without the number
    title: str
    about: str  # in a line
    place: str

    @property
    def file(self) -> str:
        return f"{self.number:02d}-{self.name}.md"

    @property
    def page(self) -> Path:
        return PAGES / self.file

    @property
    def answer(self) -> str:
        """The name of the reader's file."""
        return f"chapter{self.number:02d}.py"

    @property
    def exercise(self) -> Exercise:
        """Its question, template and checks; imports NumPy."""
        found: Exercise = imported(f"regard.course.{self.place}")
        return found

    def data(self) -> dict[str, object]:
        return {"chapter": self.number, "title": self.title, "about": self.about, "file": self.file}


_ALL = (
    ("counted-weights", "Weights that a person chose", "TF-IDF, and weights that are learned", "before:COUNTED"),
    ("recurrence", "Reading word by word", "a state that is carried on, and how it forgets", "before:RECURRENCE"),
    ("one-vector", "Everything through one vector", "sequence to sequence, and its bottleneck", "before:ONE_VECTOR"),
    ("bahdanau", "Looking back", "Bahdanau: the decoder looks at every word of the source", "before:BAHDANAU"),
    ("scores", "Six ways to compare", "scores, the soft table, temperature and √E", "before:SCORES"),
    ("by-hand", "Self-attention by hand", "three tokens, four dimensions, every number", "attention:BY_HAND"),
    ("matrices-and-masks", "All at once, and not the future", "matrices, and the mask", "attention:MASKS"),
    ("heads", "Several heads", "split, attend, join, W_o", "attention:HEADS"),
    ("positions", "Telling the order", "a bag of words, and positions that mend it", "attention:POSITIONS"),
    ("block-and-model", "The block and the model", "residual, norm, feed-forward, logits", "attention:BLOCK"),
    ("training", "What training needs", "warm-up, label smoothing, dropout and the rest", "using:TRAINING"),
    ("decoding", "From probabilities to text", "greedy, beam, length penalty", "using:DECODING"),
    ("tokens", "What a token is", "words, characters, bytes, byte pairs", "using:TOKENS"),
    ("gpt-and-bert", "Two halves on their own", "GPT goes on, BERT fills gaps", "using:LANGUAGE"),
    ("pictures", "Attention that sees", "convolution, patches, captions", "beyond:PICTURES"),
    ("long-sequences", "When T² is too much", "linear attention, state spaces", "beyond:LONG"),
    ("does-attention-explain", "Does attention explain?", "faithful maps, heads told apart", "beyond:EXPLAIN"),
    ("memory", "A memory to read and write", "hops, a tape, and how long to think", "beyond:MEMORY"),
)

CHAPTERS: Mapping[int, Chapter] = {number: Chapter(number, *each) for number, each in enumerate(_ALL, start=1)}


def find_chapter(number: int) -> Chapter:
    """Return the chapter of that number."""
    if number not in CHAPTERS:
        raise UsageError(f"there is no chapter {number}", f"there are 1 to {len(CHAPTERS)}")
    return CHAPTERS[number]
