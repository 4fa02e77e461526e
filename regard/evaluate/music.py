"""Pieces held against the rule that they should follow: in which bars it is kept.

The rules are those of the built-in pieces (`regard/data/builtin/music.py`), read off a piece by what it says itself: what the
second voice of a canon must play is told by the first, the mode of a scale and the key of a cadence by its notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from regard.data.builtin.music import MODES, OCTAVE, PROGRESSIONS, triad
from regard.errors import UsageError, nearest
from regard.evaluate.bootstrap import share_interval
from regard.files import JSON
from regard.tokens.notes import Note, Piece

Heard = tuple[tuple[int, int, int], ...]  # start, pitch and length of each note
Kept = tuple[bool | None, ...]  # of each bar; None where the rule asks nothing of it


@dataclass(frozen=True)
class RuleScore:
    """How far pieces keep a rule. `different` is the share of pieces that equal no earlier one: copies prove little."""

    rule: str
    pieces: int
    bars: int  # that the rule asks something of
    kept: int  # of these
    whole: int  # pieces in which it is kept in every bar
    different: float

    @property
    def share(self) -> float:
        return self.kept / self.bars if self.bars else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Where the share lies with 95%."""
        return share_interval(self.kept, self.bars)

    def data(self) -> dict[str, JSON]:
        return {**asdict(self), "share": self.share, "interval": list(self.interval)}


def score_rule(rule: str, pieces: Sequence[Piece]) -> RuleScore:
    """Hold pieces against a rule; one without any bar counts as a bar in which it is not kept."""
    if rule not in RULES:
        raise UsageError(f"there is no rule of music {rule}", nearest(rule, RULES))
    found = [[each for each in RULES[rule](piece) if each is not None] or [False] for piece in pieces]
    different = len({piece.notes for piece in pieces}) / max(1, len(pieces))
    bars = sum(map(len, found))
    return RuleScore(rule, len(pieces), bars, sum(map(sum, found)), sum(map(all, found)), different)


def canon_kept(piece: Piece) -> Kept:
    """Whether the second voice plays in each bar what the first played in the bar before, an octave lower, and nothing else.

    The first bar is asked nothing but that the second voice is silent in it, and a bar in which both have nothing to play
    nothing at all.
    """
    found: list[bool | None] = []
    led: Heard = ()
    for (start, _), notes in zip(piece.bars(), piece.notes_of_bars(), strict=True):
        leader, second = (_told(notes, voice, start) for voice in (0, 1))
        must = tuple((step, pitch - OCTAVE, length) for step, pitch, length in led)
        found.append(None if not must and not second else second == must)
        led = leader
    return tuple(found)


def _told(notes: Sequence[Note], voice: int, start: int) -> Heard:
    """When each note of a voice begins, counted from a step on, its pitch and its length."""
    return tuple((note.start - start, note.pitch, note.length) for note in notes if note.voice == voice)


def scale_kept(piece: Piece) -> Kept:
    """Whether each bar's notes are those of a scale up an octave and down, in the mode that fits the piece best.

    The bars in which notes are missing at the end count as not kept.
    """
    notes = [note for note in piece.notes if note.voice == 0]
    if not notes:
        return ()
    return max((_scale_kept(piece, notes, mode) for mode in MODES.values()), key=lambda kept: kept.count(True))


def _scale_kept(piece: Piece, notes: Sequence[Note], mode: tuple[int, ...]) -> Kept:
    first = notes[0]
    degrees = [*mode, OCTAVE, *reversed(mode)]
    must = {
        (first.start + place * first.length, first.pitch + semitones, first.length)
        for place, semitones in enumerate(degrees)
    }
    bars = [set(_told(each, 0, 0)) for each in piece.notes_of_bars()]
    starts = [start for start, _ in piece.bars()]
    ends = [*starts[1:], max(starts[-1] + 1, max(note.start for note in notes) + 1)]
    found = [
        played == {each for each in must if start <= each[0] < end}
        for played, start, end in zip(bars, starts, ends, strict=True)
    ]
    missing = [each for each in must if each[0] >= ends[-1]]
    return (*found[:-1], found[-1] and not missing)


def cadence_kept(piece: Piece) -> Kept:
    """Whether each bar has the chord that a progression has there, in the key of the last bass note; the best fit counts."""
    chords = [_chord(notes) for notes in piece.notes_of_bars()]
    bass = [note for note in piece.notes if note.voice == 1]
    if not chords or not bass:
        return tuple(False for _ in chords)
    tonic = bass[-1].pitch % OCTAVE
    wanted = (
        [_wanted(tonic, MODES[mode], degree) for degree in degrees]
        for mode in ("major", "minor")
        for degrees in PROGRESSIONS.values()
    )
    return max((_same(chords, each) for each in wanted), key=lambda kept: (kept.count(True), -len(kept)))


def _same(chords: Sequence[object], wanted: Sequence[object]) -> Kept:
    """Chord by chord; those too many or too few are not kept."""
    longest = max(len(chords), len(wanted))
    padded = [[*each, *[None] * (longest - len(each))] for each in (chords, wanted)]
    return tuple(chord == must and chord is not None for chord, must in zip(*padded, strict=True))


def _chord(notes: Sequence[Note]) -> tuple[int | None, frozenset[int]]:
    """The pitch class of the bass, and of all notes above it."""
    bass = [note.pitch % OCTAVE for note in notes if note.voice == 1]
    return (bass[0] if len(bass) == 1 else None), frozenset(note.pitch % OCTAVE for note in notes if note.voice == 0)


def _wanted(tonic: int, mode: tuple[int, ...], degree: int) -> tuple[int, frozenset[int]]:
    classes = triad(tonic, mode, degree)
    return classes[0], frozenset(classes)


RULES: dict[str, Callable[[Piece], Kept]] = {
    "canon": canon_kept,
    "scales": scale_kept,
    "cadences": cadence_kept,
}
