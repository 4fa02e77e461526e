"""Which pieces of a text are one word, told from what a person reads for each piece.

A piece starts a word if it brings its own space (" man", "Ġman", "▁man"), or, where pieces that go on begin with ##, if
it does not. Special tokens, punctuation alone, and Chinese and Japanese characters are words by themselves. Where no
piece brings a space, every piece is a word: so tokenizers of words write it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

GOES_ON = "##"
SPACES = ("Ġ", "▁", "Ċ")  # what byte-level BPE and SentencePiece write for a space, and for a new line
SPECIAL = re.compile(r"<[^<>\s]{1,24}>|\[[A-Z]{1,8}\]")
SPACELESS = re.compile(
    "[\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

Words = list[tuple[int, ...]]  # numbers of pieces


def is_special(label: str) -> bool:
    """Whether a label names a token that stands for no text: <s>, </s>, [CLS], <|endoftext|>."""
    return bool(SPECIAL.fullmatch(label))


def words_of(labels: Sequence[str]) -> Words:
    """The pieces of each word, in order: every piece belongs to one word."""
    if any(label.startswith(GOES_ON) and label != GOES_ON for label in labels):
        starts = [not label.startswith(GOES_ON) for label in labels]
    elif any(_brings_space(label) for label in labels):
        starts = [_brings_space(label) for label in labels]
    else:
        starts = [True] * len(labels)
    words: Words = []
    for place, label in enumerate(labels):
        alone = place > 0 and (_alone(label) or _alone(labels[place - 1]))
        if place == 0 or (label and (starts[place] or alone)):  # one without text is a part of the letter before
            words.append((place,))
        else:
            words[-1] = (*words[-1], place)
    return words


def word_label(labels: Sequence[str], word: Sequence[int]) -> str:
    """The label of a word for a person."""
    pieces = [labels[place] for place in word]
    text = "".join(piece.removeprefix(GOES_ON) if number else piece for number, piece in enumerate(pieces))
    for space in SPACES:
        text = text.replace(space, " ")
    return text.strip() or text


def _brings_space(label: str) -> bool:
    return label[:1].isspace() or label.startswith(SPACES)


def _alone(label: str) -> bool:
    text = label.strip()
    return is_special(label) or bool(SPACELESS.search(text)) or (bool(text) and all(map(_is_punctuation, text)))


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith(("P", "S"))
