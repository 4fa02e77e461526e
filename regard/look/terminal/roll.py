"""A piano roll as text: a line for each pitch, a character for each step, the voice of a note as a number."""

from __future__ import annotations

from rich.text import Text

from regard.look.labels import visible_title
from regard.look.roll import PianoRoll
from regard.tokens.notes import pitch_name

NAME = 5  # characters of the name of a pitch
STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red")


def draw_roll(roll: PianoRoll, width: int, colored: bool) -> Text:
    """Title, as many steps as fit, and what was left out."""
    room = max(8, width - NAME - 1)
    lines = [Text(visible_title(roll.title), style="bold")] if roll.title else []
    lines += [Text(visible_title(each), style="dim") for each in roll.told]
    pitches = sorted({note.pitch for note in roll.notes}, reverse=True)
    lines += [_line(roll, pitch, min(room, roll.end), colored) for pitch in pitches]
    if roll.end > room:
        lines.append(Text(f"the first {room} of {roll.end} steps", style="dim"))
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _line(roll: PianoRoll, pitch: int, steps: int, colored: bool) -> Text:
    line = Text(f"{pitch_name(pitch):>{NAME}} ", style="dim")
    voices: list[int | None] = [None] * steps
    for note in roll.notes:
        if note.pitch == pitch:
            voices[note.start : note.end] = [note.voice] * (min(steps, note.end) - min(steps, note.start))
    for step, voice in enumerate(voices[:steps]):
        if voice is None:
            line.append("|" if step in roll.bars else "·", style="dim")
        else:
            line.append(str((voice + 1) % 10), style=STYLES[voice % len(STYLES)] if colored else "")
    return line
