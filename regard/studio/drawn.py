"""Pictures to try, drawn by Regard itself: scenes for models that tell or answer, letters and digits for those that sort."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
from PIL import Image

from regard.data.builtin.glyphs import TEST_FONTS, glyphs
from regard.data.builtin.scenes import draw_scene
from regard.files import JSON

SEEING = ("caption", "answer", "classify-pictures")  # tasks whose input is a picture
MANY = 6
SEED = 20_070  # no set of the built-in data begins there
SCENE, GLYPH = 240, 56  # pixels of a side: enough to see on a page; a model takes them smaller


def drawn_examples(name: str, task: str) -> list[JSON]:
    """Where the pictures to try with a model are served; for `answer`, each with a question about it."""
    places: list[dict[str, JSON]] = [{"picture": f"/api/models/{name}/examples/{place}"} for place in range(MANY)]
    if task != "answer":
        return [*places]
    return [{**each, "question": question} for each, question in zip(places, _questions(), strict=True)]


def drawn_picture(task: str, place: int) -> bytes:
    """The picture at that place as a PNG."""
    file = io.BytesIO()
    Image.fromarray(_pictures(task == "classify-pictures")[place]).save(file, "PNG")
    return file.getvalue()


@cache
def _pictures(letters: bool) -> tuple[np.ndarray, ...]:
    if letters:
        return tuple(glyphs(MANY, SEED, GLYPH, TEST_FONTS)[0][..., 0])
    return tuple(draw_scene(SEED + place, SCENE).picture for place in range(MANY))


@cache
def _questions() -> tuple[str, ...]:
    return tuple(draw_scene(SEED + place, SCENE).questions[0][0] for place in range(MANY))
