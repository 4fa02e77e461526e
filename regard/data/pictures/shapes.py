"""The built-in pictures with captions and questions: scenes of one to three coloured shapes, drawn as they are needed.

    a large red circle left of a small blue square        is the square right of the circle?  ->  yes

A scene is a pure function of its number. Sets of different seeds have no number in common, so a test set shares no scene
with a training set; `new_captions` counts how many of its sentences are new as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.pictures.scene_words import Question, caption, clear, questions
from regard.data.pictures.things import COLOURS, KINDS, SIZES, Thing
from regard.errors import RegardError, UsageError

MOST = 3  # things in a scene
SPAN = 1 << 24  # scenes of a seed
SMALLEST = 24  # pixels, below which a ring cannot be told from a circle

_TRIES = 32  # placements drawn at once
_PAIRS = {count: np.triu_indices(count, 1) for count in range(1, MOST + 1)}


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture, what is in it from left to right, and what can be said about it."""

    picture: np.ndarray  # (size, size, 3), uint8
    things: tuple[Thing, ...]
    caption: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, eq=False)
class SceneSet:
    """N scenes."""

    pictures: np.ndarray  # (N, size, size, 3), uint8
    things: tuple[tuple[Thing, ...], ...]
    captions: tuple[str, ...]
    questions: tuple[tuple[Question, ...], ...]

    def __len__(self) -> int:
        return len(self.captions)


def scenes(count: int, seed: int, size: int = 48) -> SceneSet:
    """`count` scenes; a larger set of the same seed begins with the same scenes."""
    if not 0 <= count <= SPAN:
        raise UsageError(f"a seed has {SPAN:,} scenes, and {count:,} are asked for")
    drawn = [draw_scene(seed * SPAN + number, size) for number in range(count)]
    pictures = np.empty((count, size, size, 3), dtype=np.uint8)
    for place, scene in enumerate(drawn):
        pictures[place] = scene.picture
    return SceneSet(
        pictures,
        tuple(scene.things for scene in drawn),
        tuple(scene.caption for scene in drawn),
        tuple(scene.questions for scene in drawn),
    )


def draw_scene(seed: int, size: int = 48) -> Scene:
    """The scene of this number."""
    if seed < 0 or size < SMALLEST:
        raise UsageError(f"scenes are numbered from 0 and have {SMALLEST} pixels or more, not {seed} and {size}")
    random = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))
    things = _things(random, size)
    return Scene(_picture(things, random, size), things, caption(things), questions(things, random))


def new_captions(test: SceneSet, train: SceneSet) -> int:
    """How many test scenes have a caption that never occurs in training."""
    known = set(train.captions)
    return sum(each not in known for each in test.captions)


def share_on(weights: np.ndarray, grid: tuple[int, int], mask: np.ndarray) -> float:
    """The share of an attention map's weight (P,) that lies on patches which a thing touches, from 0 to 1."""
    weights = np.asarray(weights, dtype=np.float64).reshape(-1)
    if len(weights) != grid[0] * grid[1]:
        raise RegardError(f"{len(weights)} weights for a grid of {grid[0]} x {grid[1]} patches; give one for each")
    if not weights.sum() > 0:
        raise RegardError("the weights of a map sum to nothing, so that no share of them can be told")
    return float(weights[touched(grid, mask).reshape(-1)].sum() / weights.sum())


def area_share(grid: tuple[int, int], mask: np.ndarray) -> float:
    """The share of patches that a thing touches: what `share_on` gives for a map that looks everywhere alike."""
    return float(touched(grid, mask).mean())


def touched(grid: tuple[int, int], mask: np.ndarray) -> np.ndarray:
    """(rows, columns), bool: the patches of a picture on which at least a part of one pixel of the mask lies."""
    height, width = mask.shape
    return np.array(
        [[mask[down, across].any() for across in _spans(width, grid[1])] for down in _spans(height, grid[0])]
    )


def _spans(pixels: int, patches: int) -> list[slice]:
    """The pixels on which each patch of a line lies, also where patches end within a pixel."""
    return [slice(i * pixels // patches, -(-(i + 1) * pixels // patches)) for i in range(patches)]


def _things(random: np.random.Generator, size: int) -> tuple[Thing, ...]:
    """From left to right. No two are alike in both kind and colour."""
    count = int(random.integers(1, MOST + 1))
    pairs = random.choice(len(KINDS) * len(COLOURS), count, replace=False)
    sizes = [tuple(SIZES)[number] for number in random.integers(len(SIZES), size=count)]
    radii = np.array([random.uniform(*SIZES[word]) for word in sizes]) * size
    places = _places(random, radii, size)
    found = [
        Thing(
            tuple(KINDS)[pair // len(COLOURS)], tuple(COLOURS)[pair % len(COLOURS)], word, float(x), float(y), r, size
        )
        for pair, word, (x, y), r in zip(pairs, sizes, places, radii.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda thing: thing.x))


def _places(random: np.random.Generator, radii: np.ndarray, size: int) -> np.ndarray:
    """Centres (n, 2) of things that lie in the picture, apart from each other, and so that the caption is beyond doubt."""
    lowest = radii + 1
    while True:
        tries = lowest[:, None] + random.random((_TRIES, len(radii), 2)) * (size - 2 * lowest)[:, None]
        good = _apart(tries, radii) & _told(tries, clear(size))
        if good.any():
            return np.asarray(tries[good.argmax()])


def _apart(places: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """(tries,), bool: no two boxes come nearer than two pixels."""
    one, other = _PAIRS[len(radii)]
    gaps = abs(places[:, one] - places[:, other]).max(axis=-1)  # (tries, pairs)
    return np.asarray((gaps >= radii[one] + radii[other] + 2).all(axis=-1))


def _told(places: np.ndarray, least: float) -> np.ndarray:
    """(tries,), bool: which of two directions is the larger one, or the order from left to right, is clear."""
    if places.shape[1] == 2:
        across, down = abs(places[:, 0] - places[:, 1]).T
        return np.asarray(abs(across - down) >= least)
    return np.asarray((np.diff(np.sort(places[:, :, 0], axis=1), axis=1) >= least).all(axis=1))


def _picture(things: Sequence[Thing], random: np.random.Generator, size: int) -> np.ndarray:
    """Smooth shapes on a light ground, with a little noise over everything."""
    ground = random.uniform(222, 246) + random.uniform(-6, 6, 3)
    planes = np.empty((3, size, size), dtype=np.float32)
    planes[:] = ground[:, None, None]
    for thing in things:
        colour = (COLOURS[thing.colour] + random.uniform(-10, 10, 3)).astype(np.float32)
        left, top, right, bottom = thing.box
        place = (slice(int(top) - 1, int(bottom) + 2), slice(int(left) - 1, int(right) + 2))
        planes[:, *place] += thing.coverage[place] * (colour[:, None, None] - planes[:, *place])
    noise = np.frombuffer(random.bytes(planes.size), dtype=np.uint8).reshape(planes.shape)
    planes += noise >> 4  # 0 .. 15
    planes -= 7  # half of it, and rounded to the nearest
    return np.ascontiguousarray(np.clip(planes, 0, 255).astype(np.uint8).transpose(1, 2, 0))
