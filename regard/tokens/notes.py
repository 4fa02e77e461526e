"""Music in words: a piece as a text in which each word is an event on a grid of sixteenth notes, and one token.

    bar 4/4 v1 p0 n48 d8 v0 p0 n60 d4 p4 n62 d4 bar v1 p0 ...

The events are those of REMI (Huang & Yang 2020, "Pop Music Transformer"), with voices, one after the other in each bar:

    bar        a bar begins; behind it stands the metre (4/4, 3/4, 6/8, ...) in the first bar, and wherever it changes
    v0 ... v14     what follows in this bar is played by this voice; the last voice comes first, as a bass is figured first
    p0 ... p31     what follows sounds from this step of the bar on
    l0 ... l7      what follows is so loud (16 MIDI velocities each); told where it changes, at first it is l5
    n0 ... n127    a note of this pitch, as MIDI counts them (60 is the middle C)
    d1 ... d32     so many steps it sounds; of a longer one, several words add up

A piece that lies on the grid is written and read back exactly: pitches, times, voices, metres and eight degrees of loudness.
Tempo, instruments and pedals are not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

STEPS = 4  # of the grid in a quarter note: a step is a sixteenth
LOUDNESS = 5  # of a note of which nothing else is told
LOUDNESSES = 8
VOICES = 15  # as many as MIDI has channels beside percussion
LONGEST = 32  # steps that one word tells
METRES = {  # by name, the steps of a bar
    f"{count}/{unit}": count * 4 * STEPS // unit
    for unit, most in ((2, 4), (4, 8), (8, 12))
    for count in range(1, most + 1)
}
METRE = "4/4"  # where nothing else is told
WORDS = (
    "bar",
    *METRES,
    *(f"p{step}" for step in range(max(METRES.values()))),
    *(f"v{voice}" for voice in range(VOICES)),
    *(f"l{degree}" for degree in range(LOUDNESSES)),
    *(f"n{pitch}" for pitch in range(128)),
    *(f"d{steps}" for steps in range(1, LONGEST + 1)),
)
_WORD = re.compile(r"([pvlnd])(\d{1,3})")
_NAMES = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")


@dataclass(frozen=True, order=True)
class Note:
    """A note of a piece; times are in steps of the grid."""

    start: int
    voice: int
    pitch: int
    length: int
    loudness: int = LOUDNESS

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class Piece:
    """Notes in the order in which they are written, and the metres: from which step on, and which.

    `piece_of` makes one of any notes.
    """

    notes: tuple[Note, ...]
    metres: tuple[tuple[int, str], ...] = ((0, METRE),)

    @property
    def length(self) -> int:
        """Steps until the last note ends."""
        return max((note.end for note in self.notes), default=0)

    def bars(self) -> list[tuple[int, str]]:
        """The step at which each bar begins, and its metre, until the last note has begun."""
        last = max((note.start for note in self.notes), default=0)
        found, start, metres = list[tuple[int, str]](), 0, dict(self.metres)
        metre = METRE
        while start <= last:
            metre = metres.get(start, metre)
            found.append((start, metre))
            start += METRES[metre]
        return found

    def notes_of_bars(self) -> list[tuple[Note, ...]]:
        """The notes that begin in each bar."""
        bars = self.bars()
        found: list[list[Note]] = [[] for _ in bars]
        place = 0
        for note in self.notes:
            while place + 1 < len(bars) and bars[place + 1][0] <= note.start:
                place += 1
            found[place].append(note)
        return [tuple(notes) for notes in found]


def piece_of(notes: Iterable[Note], metres: Sequence[tuple[int, str]] = ((0, METRE),)) -> Piece:
    """A piece of any notes: in order, and no note of a voice sounding twice at a time; the later one ends the earlier."""
    kept: list[Note] = []
    for _, same in groupby(sorted(notes, key=lambda note: (note.voice, note.pitch, note.start)), key=_key):
        alike = list(same)
        for note, following in zip(alike, [*alike[1:], None], strict=True):
            if following is not None and following.start == note.start:
                continue
            room = note.length if following is None else min(note.length, following.start - note.start)
            kept.append(Note(note.start, note.voice, note.pitch, max(1, room), note.loudness))
    return Piece(tuple(sorted(kept)), tuple(metres))


def _key(note: Note) -> tuple[int, int]:
    return note.voice, note.pitch


def write_words(piece: Piece) -> str:
    """The piece as a text in which each word is an event."""
    return " ".join(_words(piece))


def _words(piece: Piece) -> Iterator[str]:
    metre, loudness = "", LOUDNESS
    for (start, own), notes in zip(piece.bars(), piece.notes_of_bars(), strict=True):
        yield "bar"
        if own != metre:
            yield own
            metre = own
        for voice in sorted({note.voice for note in notes}, reverse=True):
            yield f"v{voice}"
            played = [note for note in notes if note.voice == voice]
            for step, together in groupby(played, key=lambda note: note.start):
                yield f"p{step - start}"
                for note in together:
                    if note.loudness != loudness:
                        yield f"l{note.loudness}"
                    loudness = note.loudness
                    yield f"n{note.pitch}"
                    yield from _length(note.length)


def _length(steps: int) -> Iterator[str]:
    while steps > LONGEST:
        yield f"d{LONGEST}"
        steps -= LONGEST
    yield f"d{steps}"


def read_words(text: str) -> Piece:
    """The piece that a text in these words tells.

    A model may write what makes no sense, so nothing is an error: a note without a length sounds one step, a length without a
    note is passed over, and so is a word that is none of these.
    """
    return _Reader().read(text.split())


class _Reader:
    """Reads event after event, and notes which word told which note."""

    def __init__(self) -> None:
        self.bar, self.step, self.voice, self.loudness = 0, 0, 0, LOUDNESS
        self.metre, self.begun = METRE, False
        self.pitch: int | None = None
        self.length = 0
        self.notes: list[Note] = []
        self.metres: list[tuple[int, str]] = []
        self.tellers: list[int] = []  # of each word the number of the note that it tells of; -1: of none, or of all

    def read(self, words: Sequence[str]) -> Piece:
        for word in words:
            found = _WORD.fullmatch(word)
            if word == "bar":
                self._begin_bar()
            elif word in METRES:
                self._set_metre(word)
            elif found:
                self._take(found[1], int(found[2]))
            self.tellers.append(len(self.notes) if found else -1)
        self._end_note()
        self.tellers = [number if number < len(self.notes) else -1 for number in self.tellers]
        return piece_of(self.notes, self.metres or ((0, METRE),))

    def _begin_bar(self) -> None:
        self._end_note()
        self.bar += METRES[self.metre] if self.begun else 0
        self.step, self.voice, self.begun = self.bar, 0, True

    def _set_metre(self, metre: str) -> None:
        """A metre counts from the beginning of its bar on, before anything sounds in it."""
        if self.step == self.bar and self.pitch is None and (metre != self.metre or not self.metres):
            self.metre = metre
            self.metres = [*(each for each in self.metres if each[0] != self.bar), (self.bar, metre)]

    def _take(self, what: str, number: int) -> None:
        if what == "d":
            self.length += number
            return
        self._end_note()
        if what == "p":
            self.step = self.bar + min(number, METRES[self.metre] - 1)
        elif what == "v":
            self.step, self.voice = self.bar, min(number, VOICES - 1)
        elif what == "l":
            self.loudness = min(number, LOUDNESSES - 1)
        else:
            self.pitch = min(number, 127)

    def _end_note(self) -> None:
        if self.pitch is not None:
            self.notes.append(Note(self.step, self.voice, self.pitch, max(1, self.length), self.loudness))
        self.pitch, self.length = None, 0


@dataclass(frozen=True)
class ToldNote:
    """A note as a text tells it: itself, the place of the word that names its pitch, and of all words that tell of it."""

    note: Note
    named: int
    words: tuple[int, ...]


def told_notes(words: Sequence[str]) -> list[ToldNote]:
    """The notes of a text in the order in which they are told, and by which words."""
    reader = _Reader()
    reader.read(words)
    places: list[list[int]] = [[] for _ in reader.notes]
    for place, number in enumerate(reader.tellers):
        if number >= 0:
            places[number].append(place)
    return [
        ToldNote(note, next(place for place in own if words[place].startswith("n")), tuple(own))
        for note, own in zip(reader.notes, places, strict=True)
    ]


def whole_bars(text: str, ended: bool) -> str:
    """A text that a model wrote without its last bar, if a limit ended it: nobody knows what would have come."""
    return text if ended else " ".join(text.split()[: max(0, _last_bar(text.split()))])


def _last_bar(words: Sequence[str]) -> int:
    return max((place for place, word in enumerate(words) if word == "bar"), default=0)


def pitch_name(pitch: int) -> str:
    """The name of a pitch: 60 is C4."""
    return f"{_NAMES[pitch % 12]}{pitch // 12 - 1}"
