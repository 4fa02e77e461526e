"""Spectrograms as text: a line for each band of frequencies, a character for each stretch of time."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from regard.look.labels import visible_title
from regard.look.spectrograms import FLOOR, Spectrogram, Spectrograms
from regard.look.terminal.map import SHADES

ROWS = 12  # bands


def draw_spectrograms(view: Spectrograms, width: int, colored: bool) -> Text:
    """Title, and each sound under the other."""
    lines = [Text(visible_title(view.title), style="bold")] if view.title else []
    for sound in view.sounds:
        lines += [Text(visible_title(f"{sound.title}  {sound.seconds:.2f} s"), style="bold"), *_lines(sound, width - 8)]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _lines(sound: Spectrogram, room: int) -> list[Text]:
    bands = np.array_split(sound.decibels, ROWS)[::-1]
    times = np.array_split(np.arange(sound.decibels.shape[1]), min(room, sound.decibels.shape[1]))
    found = []
    for number, band in enumerate(bands):
        shares = [1 + float(band[:, time].max()) / FLOOR for time in times]
        top = sound.hertz * (ROWS - number) / ROWS / 1000
        cells = "".join(SHADES[min(len(SHADES) - 1, int(share * len(SHADES)))] for share in shares)
        found.append(Text(f"{top:4.1f}k ", style="dim") + Text(cells, style=""))
    return found
