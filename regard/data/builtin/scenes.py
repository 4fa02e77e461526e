"""The built-in pictures with captions and questions: scenes of one to three coloured shapes, drawn as they are needed.

First the shapes, then what can be said and asked about a scene, then the scenes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from regard.errors import RegardError, UsageError

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "green": (40, 150, 60),
    "blue": (40, 90, 215),
    "yellow": (235, 195, 20),
    "purple": (150, 60, 185),
    "black": (35, 35, 40),
}
SIZES: dict[str, tuple[float, float]] = {
    "small": (0.105, 0.125),
    "large": (0.18, 0.2),
}  # radius, in parts of the picture


def _circle(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return np.hypot(x, y) - r


def _square(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return np.maximum(abs(x), abs(y)) - 0.86 * r


def _triangle(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    """Its top in (0, -r), its base from (-r, 0.8 r) to (r, 0.8 r)."""
    return np.maximum((1.8 * abs(x) - y - r) / np.hypot(1.8, 1), y - 0.8 * r)


def _cross(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    longer, shorter = np.maximum(abs(x), abs(y)), np.minimum(abs(x), abs(y))
    return np.maximum(longer - r, shorter - 0.34 * r)


def _ring(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return abs(np.hypot(x, y) - 0.76 * r) - 0.24 * r


# How far a point (x, y), seen from the centre, is outside of a shape of radius r; below 0, how far inside.
KINDS: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "cross": _cross,
    "ring": _ring,
}


@dataclass(frozen=True)
class Thing:
    """A shape in a picture of `canvas` x `canvas` pixels. Its centre and radius are in pixels from the top left corner."""

    kind: str
    colour: str
    size: str
    x: float
    y: float
    radius: float
    canvas: int

    @property
    def words(self) -> str:
        return f"{self.size} {self.colour} {self.kind}"

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom: it lies inside."""
        return self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius

    @property
    def mask(self) -> np.ndarray:
        """(canvas, canvas), bool: the pixels whose centre it covers."""
        return self._outside() <= 0

    @property
    def coverage(self) -> np.ndarray:
        """(canvas, canvas), from 0 to 1: how much of each pixel it covers, near enough to draw a smooth edge."""
        return np.clip(0.5 - self._outside(), 0, 1)

    def _outside(self) -> np.ndarray:
        x, y = _centres(self.canvas)
        return KINDS[self.kind](x - np.float32(self.x), y - np.float32(self.y), self.radius)


@lru_cache(maxsize=8)
def _centres(canvas: int) -> tuple[np.ndarray, np.ndarray]:
    """The centres of all pixels: (1, canvas) across and (canvas, 1) down."""
    line = np.arange(canvas, dtype=np.float32) + np.float32(0.5)
    return line[None, :], line[:, None]


NUMBERS = ("one", "two", "three")
ANSWERS = ("yes", "no", *NUMBERS, *COLOURS, *KINDS, *SIZES)

Question = tuple[str, str]  # and its answer, a word of ANSWERS

# By how many pixels the first thing lies further in a direction than the second.
RELATIONS: dict[str, Callable[[Thing, Thing], float]] = {
    "left of": lambda first, second: second.x - first.x,
    "right of": lambda first, second: first.x - second.x,
    "above": lambda first, second: second.y - first.y,
    "below": lambda first, second: first.y - second.y,
}


def clear(canvas: int) -> float:
    """How many pixels things must differ in a direction for it to be told or asked about."""
    return canvas / 12


def caption(things: Sequence[Thing]) -> str:
    """The one sentence about things that are given from left to right.

    Two are told by the direction in which they are further apart, the left or upper one first; three from left to right.
    """
    if len(things) == 2:
        first, second = things
        if abs(first.x - second.x) > abs(first.y - second.y):
            return f"a {first.words} left of a {second.words}"
        upper, lower = sorted(things, key=lambda thing: thing.y)
        return f"a {upper.words} above a {lower.words}"
    *most, last = (f"a {thing.words}" for thing in things)
    return f"{', '.join(most)} and {last}" if most else last


def questions(things: Sequence[Thing], random: np.random.Generator) -> tuple[Question, ...]:
    """How many there are, what each is like, what there is and what not, and what lies where."""
    return (
        ("how many shapes are there?", NUMBERS[len(things) - 1]),
        *_looks(things),
        *_is_there(things, random),
        *_is_where(things, random),
        *_what_is_where(things, random),
    )


def _looks(things: Sequence[Thing]) -> list[Question]:
    """Only of what is the only one of its kind, or of its colour."""
    found = []
    for thing in things:
        if _alone(thing, things):
            found.append((f"what colour is the {thing.kind}?", thing.colour))
            found.append((f"what size is the {thing.kind}?", thing.size))
        if sum(other.colour == thing.colour for other in things) == 1:
            found.append((f"what shape is {thing.colour}?", thing.kind))
    return found


def _is_there(things: Sequence[Thing], random: np.random.Generator) -> list[Question]:
    """One thing that is there, and one that is not although its colour or its kind is."""
    there = {(thing.colour, thing.kind) for thing in things}
    near = [
        (colour, kind)
        for colour in COLOURS
        for kind in KINDS
        if (colour, kind) not in there and any(colour == thing.colour or kind == thing.kind for thing in things)
    ]
    one, other = things[int(random.integers(len(things)))], near[int(random.integers(len(near)))]
    return [(f"is there a {one.colour} {one.kind}?", "yes"), (f"is there a {other[0]} {other[1]}?", "no")]


def _is_where(things: Sequence[Thing], random: np.random.Generator) -> list[Question]:
    """One question for each two things that are unique in a scene, in a direction in which they clearly differ."""
    found = []
    for pair in combinations([thing for thing in things if _alone(thing, things)], 2):
        first, second = pair if random.random() < 0.5 else pair[::-1]
        relations = [name for name in RELATIONS if _differ(name, first, second)]
        if relations:
            name = relations[random.integers(len(relations))]
            answer = "yes" if RELATIONS[name](first, second) > 0 else "no"
            found.append((f"is the {first.kind} {name} the {second.kind}?", answer))
    return found


def _what_is_where(things: Sequence[Thing], random: np.random.Generator) -> list[Question]:
    """One question whose answer is the only thing that lies there."""
    found = []
    for thing in things:
        for name, further in RELATIONS.items():
            others = [other for other in things if other is not thing]
            there = [other for other in others if further(other, thing) > 0]
            if _alone(thing, things) and len(there) == 1 and all(_differ(name, other, thing) for other in others):
                found.append((f"what is {name} the {thing.kind}?", there[0].kind))
    return [found[random.integers(len(found))]] if found else []


def _alone(thing: Thing, things: Sequence[Thing]) -> bool:
    return sum(other.kind == thing.kind for other in things) == 1


def _differ(name: str, first: Thing, second: Thing) -> bool:
    return abs(RELATIONS[name](first, second)) >= clear(first.canvas)


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
        raise RegardError(f"{len(weights)} weights for a grid of {grid[0]} x {grid[1]} patches", "give one for each")
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
