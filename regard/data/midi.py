"""MIDI files <-> pieces on a grid, by mido (the extra `music`).

Times are rounded to the grid of sixteenth notes. A voice is a channel; of files whose tracks all use one channel, a track.
Percussion (channel 10, as musicians count) is left out.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.form import Form
from regard.errors import RegardError
from regard.files import write_bytes
from regard.tokens.notes import LOUDNESSES, METRES, STEPS, VOICES, Note, Piece, piece_of, write_words

if TYPE_CHECKING:
    import mido

TICKS = 480  # of a quarter note, in files that are written
PERCUSSION = 9  # the channel, from 0
TEMPO = 100  # quarter notes a minute, in files that are written
LARGEST = 64 << 20  # bytes of a file


def read_midi(path: str | Path) -> Piece:
    """The piece in a MIDI file."""
    file = _opened(Path(path))
    grid = _grid(file.ticks_per_beat)
    heard = [_Heard(track) for track in file.tracks]
    metres = _metres([change for each in heard for change in each.metres], grid, path)
    voice_of = _voices(heard)
    notes = [
        Note(
            grid(start), voice_of(number, channel), pitch, max(1, grid(end) - grid(start)), velocity * LOUDNESSES // 128
        )
        for number, each in enumerate(heard)
        for start, end, channel, pitch, velocity in each.notes
        if channel != PERCUSSION
    ]
    if not notes:
        raise RegardError(f"{path} holds no notes (percussion does not count)", "name a file with a melody")
    return piece_of(notes, metres)


def midi_text(path: Path, label: str, form: Form) -> str:
    """The piece in a MIDI file in words; a label and a form have no meaning for it."""
    return write_words(read_midi(path))


def write_midi(path: str | Path, piece: Piece, tempo: float = TEMPO) -> Path:
    """Write a piece as a MIDI file, a track for each voice; `tempo` is in quarter notes a minute."""
    mido = _mido()
    file = mido.MidiFile(type=1, ticks_per_beat=TICKS)
    first = [(0, mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(tempo)))]
    for start, metre in piece.metres:
        count, unit = map(int, metre.split("/"))
        first.append((start, mido.MetaMessage("time_signature", numerator=count, denominator=unit)))
    file.tracks.append(_track(first))
    for voice in sorted({note.voice for note in piece.notes}):
        file.tracks.append(_track(list(_messages(piece, voice, voice + (voice >= PERCUSSION)))))
    data = io.BytesIO()
    file.save(file=data)
    return write_bytes(path, data.getvalue())


def _messages(piece: Piece, voice: int, channel: int) -> Iterator[tuple[int, Any]]:
    """The messages of a voice with their steps; a note ends before the next begins."""
    mido = _mido()
    for note in piece.notes:
        if note.voice == voice:
            velocity = note.loudness * 128 // LOUDNESSES + 64 // LOUDNESSES
            told = {"channel": channel, "note": note.pitch}
            yield note.start, mido.Message("note_on", velocity=velocity, **told)
            yield note.end, mido.Message("note_off", velocity=0, **told)


def _track(timed: list[tuple[int, Any]]) -> mido.MidiTrack:
    mido = _mido()
    track, now = mido.MidiTrack(), 0
    for step, message in sorted(timed, key=lambda each: (each[0], each[1].type != "note_off")):
        track.append(message.copy(time=(step - now) * TICKS // STEPS))
        now = step
    return track


class _Heard:
    """What happens in a track: notes as (start, end, channel, pitch, velocity) and metres as (tick, name)."""

    def __init__(self, track: mido.MidiTrack) -> None:
        self.notes: list[tuple[int, int, int, int, int]] = []
        self.metres: list[tuple[int, str]] = []
        sounding: dict[tuple[int, int], tuple[int, int]] = {}
        now = 0
        for message in track:
            now += message.time
            if message.type == "time_signature":
                self.metres.append((now, f"{message.numerator}/{message.denominator}"))
            elif message.type in ("note_on", "note_off"):
                key = message.channel, message.note
                if key in sounding:
                    self._end(key, sounding.pop(key), now)
                if message.type == "note_on" and message.velocity:
                    sounding[key] = now, message.velocity
        for key, begun in sounding.items():
            self._end(key, begun, now)

    def _end(self, key: tuple[int, int], begun: tuple[int, int], now: int) -> None:
        self.notes.append((begun[0], now, *key, begun[1]))


def _voices(heard: list[_Heard]) -> Callable[[int, int], int]:
    """The voice of a track's number and a channel."""
    channels = {note[2] for each in heard for note in each.notes} - {PERCUSSION}
    tracks = [number for number, each in enumerate(heard) if any(note[2] != PERCUSSION for note in each.notes)]
    if len(channels) == 1 and len(tracks) > 1:
        return lambda track, channel: min(tracks.index(track), VOICES - 1)
    return lambda track, channel: channel - (channel > PERCUSSION)


def _metres(changes: list[tuple[int, str]], grid: Callable[[int], int], path: str | Path) -> list[tuple[int, str]]:
    """The metres in the order of their steps, each once; one that is told inside a bar counts from the next bar on."""
    found: list[tuple[int, str]] = [(0, "4/4")]
    for tick, metre in sorted(changes, key=lambda change: change[0]):
        if metre not in METRES:
            raise RegardError(
                f"{path} is in {metre}, which the grid of sixteenths does not have", f"take {', '.join(METRES)}"
            )
        start, before = found[-1]
        length = METRES[before]
        step = start + -(-(grid(tick) - start) // length) * length
        if step == start:
            found[-1] = start, metre
        elif metre != before:
            found.append((step, metre))
    return found


def _grid(ticks: int) -> Callable[[int], int]:
    """The step nearest to a tick."""
    return lambda tick: (2 * tick * STEPS + ticks) // (2 * ticks)


def _opened(path: Path) -> mido.MidiFile:
    mido = _mido()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > LARGEST:
        raise RegardError(f"{path} has {len(data):,} bytes, more than a piece of music has ({LARGEST:,})")
    try:
        file = mido.MidiFile(file=io.BytesIO(data), clip=True)
    except (OSError, EOFError, ValueError, IndexError, KeyError) as error:
        raise RegardError(
            f"{path} is not a whole MIDI file ({error or 'it ends too early'})", "copy it again"
        ) from error
    if not 0 < file.ticks_per_beat < 1 << 15:
        raise RegardError(f"{path} counts time in frames, not in quarter notes", "export it with musical time")
    return file


def _mido() -> Any:
    """The library, or what to install."""
    if find_spec("mido") is None:
        raise RegardError("MIDI files need the library mido", "pip install 'regard[music]'")
    import mido

    return mido
