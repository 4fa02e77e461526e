"""Written pictures as text: two rows of pixels in a line of characters, or a shade for each pixel."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from regard.look.pixels import PictureSheet, WritingFilm
from regard.look.terminal.map import SHADES

HALVES = " ▄▀█"  # neither, the lower, the upper, both


def draw_sheet(sheet: PictureSheet, width: int, colored: bool) -> Text:
    """Each picture under the other, as many beside each other as there is room for."""
    blocks = [_lines(levels, sheet.count) for row in sheet.rows() for levels in row]
    wide = len(blocks[0][0]) + 2
    across = max(1, (width + 2) // wide)
    lines = [Text(sheet.title, style="bold")] if sheet.title else []
    for at in range(0, len(blocks), across):
        together = blocks[at : at + across]
        lines += [Text("  ".join(each[line] for each in together)) for line in range(len(together[0]))]
        lines.append(Text(""))
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def draw_film(shown: WritingFilm, width: int, colored: bool) -> Text:
    """The picture when it is whole."""
    lines = [Text(shown.title, style="bold"), *map(Text, _lines(shown.picture.levels, shown.count)), Text(shown.how)]
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _lines(levels: np.ndarray, count: int) -> list[str]:
    if count == 2:
        padded = np.pad(levels.clip(min=0), ((0, levels.shape[0] % 2), (0, 0)))
        return [
            "".join(HALVES[2 * a + b] for a, b in zip(*rows, strict=True))
            for rows in padded.reshape(-1, 2, levels.shape[1])
        ]
    top = len(SHADES) - 1
    return ["".join(SHADES[max(0, int(level)) * top // (count - 1)] * 2 for level in row) for row in levels]
