"""Pieces of music that follow a rule, so that whatever a model writes can be held against it.

    canon      two voices: the second plays what the first played a bar before, an octave lower
    scales     one voice goes up an octave of a mode and down again
    cadences   chords, one a bar, in a progression that ends at home

The rules themselves are checked in `regard/evaluate/music.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeVar

import numpy as np

from regard.tokens.notes import METRES, Note, Piece, piece_of, write_words

Item = TypeVar("Item")

BAR = METRES["4/4"]
BARS = 8  # that the first voice of a canon plays
OCTAVE = 12
MODES = {  # semitones from the first degree
    "major": (0, 2, 4, 5, 7, 9, 11),
    "minor": (0, 2, 3, 5, 7, 8, 10),
    "dorian": (0, 2, 3, 5, 7, 9, 10),
    "mixolydian": (0, 2, 4, 5, 7, 9, 10),
}
RHYTHMS = (  # lengths of the notes of a bar
    (4, 4, 4, 4),
    (8, 4, 4),
    (4, 4, 8),
    (2, 2, 4, 4, 4),
    (4, 4, 2, 2, 4),
    (8, 8),
    (4, 2, 2, 8),
)
CONSONANT = (0, 3, 4, 7, 8, 9)  # semitones between two voices that sound well together, octaves apart
PROGRESSIONS = {  # degrees from 0, by name
    "I IV V I": (0, 3, 4, 0),
    "I ii V I": (0, 1, 4, 0),
    "I vi IV V I": (0, 5, 3, 4, 0),
    "I V vi IV V I": (0, 4, 5, 3, 4, 0),
    "I IV ii V I": (0, 3, 1, 4, 0),
}
SPLITS = ("train", "valid", "test")


def music_documents(name: str, split: str, size: int, rate: int = 0) -> Iterator[str]:
    """The pieces of builtin/canon, scales or cadences as texts, with about so many characters in all, or all there are."""
    total = 0
    for piece in PIECES[name.removeprefix("builtin/")](split):
        text = write_words(piece)
        total += len(text)
        yield text
        if total >= size:
            return


# --- Canons: without end


def canons(split: str) -> Iterator[Piece]:
    """Canons in any key, no two alike but by chance."""
    number = 0
    while True:
        yield canon(np.random.default_rng((SPLITS.index(split), number, 23)))
        number += 1


def canon(random: np.random.Generator, bars: int = BARS) -> Piece:
    """The first voice plays so many bars, the second repeats them a bar later and an octave lower."""
    leader = _melody(random, bars)
    return piece_of([*leader, *follower(leader)])


def follower(leader: list[Note]) -> list[Note]:
    """The second voice of a canon: the first, a bar later and an octave lower."""
    return [Note(note.start + BAR, 1, note.pitch - OCTAVE, note.length) for note in leader]


def _melody(random: np.random.Generator, bars: int) -> list[Note]:
    """A melody in small steps whose notes go well with what the second voice plays while they begin."""
    tonic, mode = int(random.integers(64, 76)), MODES["major" if random.random() < 0.5 else "minor"]
    degree, notes = 0, list[Note]()
    for bar in range(bars):
        start = bar * BAR
        for length in RHYTHMS[random.integers(len(RHYTHMS))]:
            below = next((note.pitch for note in notes if note.start <= start - BAR < note.end), None)
            degree = _next_degree(random, degree, tonic, mode, below)
            notes.append(Note(start, 0, tonic + _semitones(degree, mode), length))
            start += length
    return notes


def _next_degree(random: np.random.Generator, degree: int, tonic: int, mode: tuple[int, ...], below: int | None) -> int:
    """A degree not far away, within an octave and a half, consonant with the note below."""
    near = [each for each in range(degree - 3, degree + 4) if each != degree and -4 <= each <= 7]
    fits = [
        each for each in near if below is None or (tonic + _semitones(each, mode) - below) % OCTAVE in CONSONANT
    ] or near
    likely = np.array([1 / abs(each - degree) for each in fits])
    return int(random.choice(fits, p=likely / likely.sum()))


def _semitones(degree: int, mode: tuple[int, ...]) -> int:
    return degree // 7 * OCTAVE + mode[degree % 7]


# --- Scales and cadences: all that there are, in an order that looks random


def scales(split: str) -> Iterator[Piece]:
    """Scales from every pitch of two octaves, in four modes and three rhythms."""
    every = list(product(range(48, 73), MODES.values(), (2, 4, 8)))
    return (scale(*each) for each in _shared_out(every, split))


def scale(tonic: int, mode: tuple[int, ...], length: int) -> Piece:
    """An octave up and down again, every note as long."""
    degrees = [*range(8), *reversed(range(7))]
    return piece_of(
        Note(place * length, 0, tonic + _semitones(degree, mode), length) for place, degree in enumerate(degrees)
    )


def cadences(split: str) -> Iterator[Piece]:
    """Cadences in every key, major and minor, with the chords in each of three positions."""
    every = list(product(range(12), ("major", "minor"), PROGRESSIONS.values(), range(3)))
    return (cadence(tonic, MODES[mode], degrees, lowest) for tonic, mode, degrees, lowest in _shared_out(every, split))


def cadence(tonic: int, mode: tuple[int, ...], degrees: tuple[int, ...], lowest: int) -> Piece:
    """A chord a bar: its root in the bass (the second voice), its three notes above, each in the octave from `lowest` on."""
    floor = 60 + 4 * lowest
    notes = list[Note]()
    for bar, degree in enumerate(degrees):
        root = 36 + (tonic + _semitones(degree, mode)) % OCTAVE
        notes.append(Note(bar * BAR, 1, root, BAR))
        for pitch in triad(tonic, mode, degree):
            notes.append(Note(bar * BAR, 0, floor + (pitch - floor) % OCTAVE, BAR))
    return piece_of(notes)


def triad(tonic: int, mode: tuple[int, ...], degree: int) -> tuple[int, ...]:
    """The pitch classes of the chord on a degree; the fifth degree has a major third, in minor too (the leading note)."""
    found = [(tonic + _semitones(degree + above, mode)) % OCTAVE for above in (0, 2, 4)]
    if degree == 4:
        found[1] = (found[0] + 4) % OCTAVE
    return tuple(found)


def _shared_out(every: list[Item], split: str) -> Iterator[Item]:
    """The items of a split: a tenth each to validate and to test on, the rest to learn from."""
    order = np.random.default_rng(29).permutation(len(every))
    share = {"train": range(2, 10), "valid": (0,), "test": (1,)}[split]
    return (every[number] for place, number in enumerate(order) if place % 10 in share)


PIECES: dict[str, Callable[[str], Iterator[Piece]]] = {"canon": canons, "scales": scales, "cadences": cadences}
