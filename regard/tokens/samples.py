"""Sound in letters: each sample is one of 256 levels, written as one letter, and one token.

    <seven>ƀƁſžƀ...

Levels are finer where a sound is quiet (mu-law companding, ITU-T G.711; van den Oord et al. 2016, section 2.2):

    f(x) = sign(x) · ln(1 + μ|x|) / ln(1 + μ),   μ = 255,  -1 ≤ x ≤ 1

and f is rounded to the nearest of 256 values. The letters are U+0100 to U+01FF. Before the samples may stand a label, which is
one token, too: of what the sound is, such as who speaks or which word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

LEVELS = 256
MU = LEVELS - 1
FIRST = 0x100  # the letter of the lowest level
LETTERS = tuple(chr(FIRST + level) for level in range(LEVELS))
SPLIT = r"<[^<>]*>|[\s\S]"  # a label, or a sample
_LABEL = re.compile(r"<([^<>]*)>")


def levels_of(samples: np.ndarray) -> np.ndarray:
    """The level of each sample from -1 to 1: (N,), 0 to 255; louder ones are cut."""
    samples = np.clip(samples, -1.0, 1.0).astype(np.float64)
    folded = np.sign(samples) * np.log1p(MU * np.abs(samples)) / np.log1p(MU)
    return np.floor((folded + 1) / 2 * MU + 0.5).astype(np.int64)


def samples_of(levels: np.ndarray) -> np.ndarray:
    """The sample that each level stands for: (N,) float32, from -1 to 1."""
    folded = 2 * np.asarray(levels, dtype=np.float64) / MU - 1
    return (np.sign(folded) * np.expm1(np.abs(folded) * np.log1p(MU)) / MU).astype(np.float32)


def write_letters(samples: np.ndarray, label: str = "") -> str:
    """A sound as a text: its label, if it has one, and a letter for each sample."""
    codes = (levels_of(samples) + FIRST).astype("<u2")
    return label_word(label) + codes.tobytes().decode("utf-16-le")


def read_letters(text: str) -> tuple[np.ndarray, str]:
    """The samples (N,) that a text tells, and the label before them; letters that are no samples are passed over."""
    found = _LABEL.match(text)
    codes = np.frombuffer(_LABEL.sub("", text).encode("utf-16-le"), dtype="<u2").astype(np.int64) - FIRST
    return samples_of(codes[(codes >= 0) & (codes < LEVELS)]), "" if found is None else found[1]


def label_word(label: str) -> str:
    """A label as it stands before the samples; brackets in it would end it."""
    return f"<{re.sub('[<>]', '', label)}>" if label else ""


def labels_in(texts: Iterable[str]) -> list[str]:
    """The labels that stand before texts, as they are written, sorted."""
    return sorted({found[0] for text in texts if (found := _LABEL.match(text))})
