"""The built-in labelled pictures: digits and capitals in the fonts that come with matplotlib, drawn as they are needed.

I and O are left out, because some fonts draw them like 1 and 0. Each picture has its own size, place, slant, turn, weight of
the pen, ink, paper and noise. `TEST_FONTS` are never drawn in training, so that a test also asks for unseen fonts. Another
version of FreeType may draw some pixels a little darker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from regard.errors import RegardError, UsageError, nearest

CHARACTERS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic", "STIXGeneral", "STIXGeneralBolIta"),
    *("cmr10", "cmss10", "cmti10"),
)
TEST_FONTS = ("DejaVuSans-BoldOblique", "DejaVuSerif-Italic", "STIXGeneralBol", "STIXGeneralItalic", "cmb10", "cmtt10")
SMALLEST = 8  # pixels

_TALL, _ROOM = 64, 112  # pixels of a character, and of the picture of it from which others are drawn
_PENS = (0, 2, 4)  # how much wider the pen is on each side, in those pixels
_CHUNK = 256  # pictures drawn at once, of which only the last may not be wanted


def glyphs(
    count: int, seed: int, size: int = 28, fonts: Sequence[str] = FONTS
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Pictures (count, size, size, 1) as bytes, their labels (count,), and what each label is called.

    They are a pure function of seed, size and fonts; a larger set begins with the same pictures.
    """
    if count < 0 or seed < 0 or size < SMALLEST:
        raise UsageError(
            f"glyphs have {SMALLEST} pixels or more and a seed from 0 on, not {size} pixels and seed {seed}"
        )
    pictures, labels = np.empty((count, size, size, 1), dtype=np.uint8), np.empty(count, dtype=np.int64)
    bank = torch.from_numpy(np.concatenate([_bank(font) for font in fonts]))  # (fonts · characters, pens, room, room)
    for start in range(0, count, _CHUNK):
        drawn, found = _draw(bank, (seed, start // _CHUNK), size)
        pictures[start : start + _CHUNK] = drawn[: count - start]
        labels[start : start + _CHUNK] = found[: count - start]
    return pictures, labels, tuple(CHARACTERS)


def _draw(bank: Tensor, key: tuple[int, int], size: int) -> tuple[np.ndarray, np.ndarray]:
    """A chunk of pictures (chunk, size, size, 1) and labels (chunk,)."""
    random = np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))
    which = random.integers(len(bank), size=_CHUNK)
    pens = random.uniform(0, len(_PENS) - 1, _CHUNK)
    inked = _inked(bank, which, pens, _transforms(random), size)
    ink, paper, rough = random.uniform((0, 165, 0), (90, 255, 14), (_CHUNK, 3)).astype(np.float32).T[:, :, None, None]
    noise = random.standard_normal(inked.shape, dtype=np.float32)
    drawn = paper + inked * (ink - paper) + rough * noise
    return np.clip(np.rint(drawn), 0, 255).astype(np.uint8)[..., None], which % len(CHARACTERS)


def _inked(bank: Tensor, which: np.ndarray, pens: np.ndarray, transforms: np.ndarray, size: int) -> np.ndarray:
    """(chunk, size, size): how much of each pixel is inked, 0 to 1; between two pens, a mixture of both."""
    chosen, pen = torch.from_numpy(which), torch.from_numpy(pens.astype(np.float32))
    thin = pen.long().clamp(max=len(_PENS) - 2)
    rooms = torch.lerp(bank[chosen, thin].float(), bank[chosen, thin + 1].float(), (pen - thin)[:, None, None])
    grid = affine_grid(torch.from_numpy(transforms), [len(which), 1, 2 * size, 2 * size], align_corners=False)
    fine = grid_sample(rooms[:, None], grid, align_corners=False)  # (chunk, 1, 2 · size, 2 · size)
    return (avg_pool2d(fine, 2)[:, 0] / 255).numpy()


def _transforms(random: np.random.Generator) -> np.ndarray:
    """(chunk, 2, 3): from places in a picture, -1 to 1 each way, to those in the room around a character."""
    tall = random.uniform(0.5, 0.78, _CHUNK)  # of the picture
    wide = tall * random.uniform(0.85, 1.15, _CHUNK)
    turn, slant = random.uniform(-0.14, 0.14, _CHUNK), random.uniform(-0.25, 0.25, _CHUNK)
    across, down = random.uniform(-1, 1, (2, _CHUNK)) * 0.65 * (1 - tall)
    scale = _TALL / _ROOM  # of a character in its room
    cosine, sine = np.cos(turn), np.sin(turn)
    matrix = np.empty((_CHUNK, 2, 3))
    matrix[:, 0, 0], matrix[:, 0, 1] = scale * (cosine + slant * sine) / wide, scale * (slant * cosine - sine) / wide
    matrix[:, 1, 0], matrix[:, 1, 1] = scale * sine / tall, scale * cosine / tall
    matrix[:, :, 2] = -(matrix[:, :, 0] * across[:, None] + matrix[:, :, 1] * down[:, None])
    return matrix.astype(np.float32)


@cache
def _bank(name: str) -> np.ndarray:
    """(characters, pens, room, room), bytes: every character of a font, drawn with each pen, its middle in the middle."""
    from matplotlib import get_data_path

    if name not in (*FONTS, *TEST_FONTS):
        raise UsageError(f"there is no font {name!r}", nearest(name, (*FONTS, *TEST_FONTS)))
    path = Path(get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    try:
        tall = ImageFont.truetype(str(path), 100).getbbox("H", anchor="ls")
        font = ImageFont.truetype(str(path), round(100 * _TALL / -tall[1]))  # capitals of all fonts are equally tall
    except OSError as error:
        raise RegardError(f"matplotlib's font {path} cannot be read: {error}", "install matplotlib again") from error
    return np.stack([[_character(font, character, pen) for pen in _PENS] for character in CHARACTERS])


def _character(font: ImageFont.FreeTypeFont, character: str, pen: int) -> np.ndarray:
    """(room, room), bytes: 255 where there is ink."""
    left, top, right, bottom = font.getbbox(character, anchor="ls")
    image = Image.new("L", (_ROOM, _ROOM))
    place = ((_ROOM - left - right) / 2, (_ROOM - top - bottom) / 2)
    ImageDraw.Draw(image).text(place, character, fill=255, font=font, anchor="ls", stroke_width=pen)
    return np.asarray(image)
