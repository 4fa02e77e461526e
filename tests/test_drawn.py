"""Drawn scenes and glyphs: masks by matplotlib's polygons, answers by a reader of its own, labels by plain templates."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from matplotlib import get_data_path
from matplotlib.path import Path as Polygon
from PIL import Image, ImageDraw, ImageFont

from regard.data.builtin.glyphs import CHARACTERS, FONTS, TEST_FONTS, glyphs
from regard.data.builtin.scenes import (
    ANSWERS,
    COLOURS,
    KINDS,
    SIZES,
    SPAN,
    Scene,
    SceneSet,
    Thing,
    area_share,
    caption,
    draw_scene,
    new_captions,
    questions,
    scenes,
    share_on,
    touched,
)
from regard.errors import RegardError, UsageError


@cache
def drawn() -> tuple[Scene, ...]:
    return tuple(draw_scene(1000 + number) for number in range(300))


def a(words: str, x: float, y: float) -> Thing:
    size, colour, kind = words.split()
    return Thing(kind, colour, size, x, y, 5.0, 48)


# --- Pictures and masks


def polygon(thing: Thing) -> tuple[list[Polygon], list[Polygon]]:
    """Outlines that a shape fills, and those of its holes."""
    x, y, r = thing.x, thing.y, thing.radius
    turn = np.linspace(0, 2 * np.pi, 301)
    round_ = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    if thing.kind == "circle":
        return [Polygon(round_ * r + (x, y))], []
    if thing.kind == "ring":
        return [Polygon(round_ * r + (x, y))], [Polygon(round_ * 0.52 * r + (x, y))]
    if thing.kind == "triangle":
        corners = [(x, y - r), (x + r, y + 0.8 * r), (x - r, y + 0.8 * r)]
        return [Polygon([*corners, corners[0]], closed=True)], []

    def bar(wide: float, tall: float) -> Polygon:
        corners = [(x - wide, y - tall), (x + wide, y - tall), (x + wide, y + tall), (x - wide, y + tall)]
        return Polygon([*corners, corners[0]], closed=True)

    return ([bar(0.86 * r, 0.86 * r)] if thing.kind == "square" else [bar(r, 0.34 * r), bar(0.34 * r, r)]), []


def test_masks_are_the_pixels_inside_the_outline() -> None:
    centres = np.stack(np.meshgrid(np.arange(48) + 0.5, np.arange(48) + 0.5), axis=-1).reshape(-1, 2)
    for thing in (thing for scene in drawn()[:60] for thing in scene.things):
        filled, holes = polygon(thing)
        inside = np.any([each.contains_points(centres) for each in filled], axis=0)
        for hole in holes:
            inside &= ~hole.contains_points(centres)
        assert (inside.reshape(48, 48) != thing.mask).sum() <= 1  # a centre on the very edge


def test_pixels_have_the_colour_of_their_thing_and_the_ground_is_light() -> None:
    names, values = list(COLOURS), np.array(list(COLOURS.values()))
    for scene in drawn():
        ground = np.ones((48, 48), dtype=bool)
        for thing in scene.things:
            inner = scene.picture[thing.mask].astype(float)
            nearest = names[int(((np.median(inner, axis=0) - values) ** 2).sum(axis=1).argmin())]
            assert nearest == thing.colour
            around = [np.roll(thing.mask, (down, across), (0, 1)) for down in (-1, 0, 1) for across in (-1, 0, 1)]
            deep = scene.picture[np.all(around, axis=0)].astype(float)  # wholly inside: no part is missing
            assert abs(deep - COLOURS[thing.colour]).max(initial=0) < 20
            left, top, right, bottom = thing.box
            assert 0 <= left < right <= 48 and 0 <= top < bottom <= 48
            ground[max(0, int(top) - 1) : int(bottom) + 2, max(0, int(left) - 1) : int(right) + 2] = False
        assert scene.picture.dtype == np.uint8 and scene.picture[ground].min() > 195
        assert 1 < scene.picture[ground].std(axis=0).max() < 8  # a little noise


def test_edges_are_smooth() -> None:
    """A pixel that is half covered has a colour between: counted, and held against 256 points in each pixel."""
    thing = Thing("circle", "red", "large", 23.7, 20.1, 9.3, 48)
    fine = (np.arange(48 * 16) + 0.5) / 16
    inside = (fine[None, :] - 23.7) ** 2 + (fine[:, None] - 20.1) ** 2 <= 9.3**2
    covered = inside.reshape(48, 16, 48, 16).mean(axis=(1, 3))
    assert abs(thing.coverage - covered).max() < 0.12 and abs(thing.coverage.sum() - covered.sum()) < 1


def test_things_keep_apart_and_large_ones_are_larger() -> None:
    radii: dict[str, list[float]] = {word: [] for word in SIZES}
    for scene in drawn():
        for thing in scene.things:
            radii[thing.size].append(thing.radius)
        for one, other in combinations(scene.things, 2):
            assert not (one.mask & other.mask).any()
            assert (one.kind, one.colour) != (other.kind, other.colour)
    assert max(radii["small"]) * 1.3 < min(radii["large"])


def test_everything_occurs_about_equally_often() -> None:
    things = [thing for scene in drawn() for thing in scene.things]
    assert set(Counter(len(scene.things) for scene in drawn())) == {1, 2, 3}
    for counts, choices in (
        (Counter(thing.kind for thing in things), KINDS),
        (Counter(thing.colour for thing in things), COLOURS),
        (Counter(thing.size for thing in things), SIZES),
    ):
        assert set(counts) == set(choices)
        assert min(counts.values()) > 0.7 * len(things) / len(choices)


# --- Captions and questions


def test_captions_by_hand() -> None:
    circle, square, cross = (
        a("large red circle", 10, 10),
        a("small blue square", 30, 14),
        a("small green cross", 40, 40),
    )
    assert caption([circle]) == "a large red circle"
    assert caption([circle, square]) == "a large red circle left of a small blue square"
    assert caption([square, cross]) == "a small blue square above a small green cross"
    low, high = a("large black ring", 10, 40), a("small red triangle", 15, 8)
    assert caption([low, high]) == "a small red triangle above a large black ring"
    assert caption([circle, square, cross]) == "a large red circle, a small blue square and a small green cross"


def middle(thing: Thing) -> tuple[float, float]:
    """Of the box around the pixels of a mask: nothing of the thing's own numbers."""
    down, across = thing.mask.nonzero()
    return (across.min() + across.max()) / 2, (down.min() + down.max()) / 2


def test_a_caption_is_determined_by_its_picture() -> None:
    for scene in drawn():
        told = [thing.split()[-3:] for thing in re.split(r", a | and a | left of a | above a ", scene.caption)]
        places = {(thing.size, thing.colour, thing.kind): middle(thing) for thing in scene.things}
        centres = [places[tuple(words)] for words in told]  # type: ignore[index]
        assert len(told) == len(scene.things)
        if len(told) == 3:
            assert centres[0][0] + 2 < centres[1][0] < centres[2][0] - 2
        elif len(told) == 2:
            across, down = centres[1][0] - centres[0][0], centres[1][1] - centres[0][1]
            if " left of " in scene.caption:
                assert across > abs(down) + 1.5  # clearly so
            else:
                assert " above " in scene.caption and down > abs(across) + 1.5


def answer(question: str, things: tuple[Thing, ...]) -> set[str]:
    """All answers that a careful reader could give, from masks alone."""
    words = question.rstrip("?").split()
    if question == "how many shapes are there?":
        return {{1: "one", 2: "two", 3: "three"}[len(things)]}
    if question.startswith("what colour is the "):
        return {thing.colour for thing in things if thing.kind == words[-1]}
    if question.startswith("what size is the "):
        return {thing.size for thing in things if thing.kind == words[-1]}
    if question.startswith("what shape is "):
        return {thing.kind for thing in things if thing.colour == words[-1]}
    if question.startswith("is there a "):
        return {"yes" if any([thing.colour, thing.kind] == words[-2:] for thing in things) else "no"}
    asked = re.fullmatch(
        r"(is the (?P<first>\w+)|what is) (?P<where>left of|right of|above|below) the (?P<second>\w+)\?", question
    )
    assert asked, question
    axis, sign = {"left of": (0, -1), "right of": (0, 1), "above": (1, -1), "below": (1, 1)}[asked["where"]]
    second = [thing for thing in things if thing.kind == asked["second"]]
    assert len(second) == 1
    there = {
        thing.kind
        for thing in things
        if sign * (middle(thing)[axis] - middle(second[0])[axis]) > 1 and thing is not second[0]
    }
    if asked["first"] is None:
        return there
    assert sum(thing.kind == asked["first"] for thing in things) == 1
    return {"yes" if asked["first"] in there else "no"}


def test_every_question_has_one_answer_and_it_is_right() -> None:
    kinds = Counter()
    for scene in drawn():
        assert len({question for question, _ in scene.questions}) == len(scene.questions) >= 5
        for question, told in scene.questions:
            assert answer(question, scene.things) == {told} and told in ANSWERS, (question, told, scene.caption)
            kinds[" ".join(question.split()[:2]), told in ("yes", "no")] += 1
    assert len(kinds) == 7 and min(kinds.values()) > 100  # how many, what colour/size/shape/is, is there, is the
    assert len(set(ANSWERS)) == len(ANSWERS)


def test_yes_is_as_frequent_as_no() -> None:
    """Also for each direction: nobody can answer without the picture. With about 400 or more of each, 0.1 is far off."""
    random = np.random.default_rng(8)
    asked = [each for scene in drawn() for _ in range(8) for each in questions(scene.things, random)]
    for words in ("is there", "is the .* left of", "is the .* right of", "is the .* above", "is the .* below"):
        told = Counter(right for question, right in asked if re.match(words, question))
        assert told.total() > 300 and abs(told["yes"] / told.total() - 0.5) < 0.1, words


# --- Sets


@cache
def two_sets() -> tuple[SceneSet, SceneSet]:
    return scenes(150, 1), scenes(100, 3)


def test_a_scene_is_a_function_of_its_number() -> None:
    one, again, other = draw_scene(77), draw_scene(77), draw_scene(78)
    assert np.array_equal(one.picture, again.picture) and one.things == again.things
    assert (one.caption, one.questions) == (again.caption, again.questions)
    assert not np.array_equal(one.picture, other.picture)
    assert draw_scene(77, 64).picture.shape == (*draw_scene(77, 64).things[0].mask.shape, 3) == (64, 64, 3)


def test_sets_of_other_seeds_have_no_scene_in_common() -> None:
    train, test = two_sets()
    assert len(train) == 150 and train.pictures.shape == (150, 48, 48, 3)
    single = draw_scene(3 * SPAN + 42)
    assert np.array_equal(test.pictures[42], single.picture) and test.captions[42] == single.caption
    assert test.things[42] == single.things and test.questions[42] == single.questions
    assert np.array_equal(scenes(20, 1).pictures, train.pictures[:20])
    assert not {picture.tobytes() for picture in train.pictures} & {picture.tobytes() for picture in test.pictures}
    with pytest.raises(UsageError, match="16,777,216 scenes"):
        scenes(SPAN + 1, 1)  # would run into the next seed's


def test_new_captions_are_counted() -> None:
    train, test = two_sets()
    assert new_captions(test, train) == len([each for each in test.captions if each not in train.captions]) > 20
    assert new_captions(train, train) == 0


def test_what_cannot_be_drawn_is_refused() -> None:
    for seed, size in ((-1, 48), (1, 12)):
        with pytest.raises(UsageError, match="24 pixels or more"):
            draw_scene(seed, size)
    assert len(scenes(0, 1)) == 0


# --- How much of a map lies on a thing


@pytest.mark.parametrize("grid", [(6, 6), (12, 12), (7, 7), (5, 9), (1, 1), (48, 48), (64, 50)])
def test_touched_patches_by_the_areas_of_pixels_and_patches(grid: tuple[int, int]) -> None:
    mask = draw_scene(1).things[0].mask
    size, wanted = 48, np.zeros(grid, dtype=bool)
    for y, x in zip(*mask.nonzero(), strict=True):
        for row in range(grid[0]):
            if not (Fraction(size * row, grid[0]) < int(y) + 1 and Fraction(size * (row + 1), grid[0]) > int(y)):
                continue
            for column in range(grid[1]):
                left, right = Fraction(size * column, grid[1]), Fraction(size * (column + 1), grid[1])
                wanted[row, column] |= left < int(x) + 1 and right > int(x)
    assert np.array_equal(touched(grid, mask), wanted)
    assert area_share(grid, mask) == pytest.approx(wanted.mean())
    weights = np.random.default_rng(4).random(grid)
    assert share_on(weights.ravel(), grid, mask) == pytest.approx(weights[wanted].sum() / weights.sum())


def test_shares_by_hand() -> None:
    mask = np.zeros((4, 4), dtype=bool)
    mask[1, 1] = mask[1, 2] = True  # the two upper ones of four patches
    assert share_on(np.array([0.5, 0.1, 0.3, 0.1]), (2, 2), mask) == pytest.approx(0.6)
    assert share_on(np.ones(4), (2, 2), mask) == area_share((2, 2), mask) == 0.5
    with pytest.raises(RegardError, match="3 weights for a grid of 2 x 2"):
        share_on(np.ones(3), (2, 2), mask)
    with pytest.raises(RegardError, match="sum to nothing"):
        share_on(np.zeros(4), (2, 2), mask)


# --- Glyphs


def shrunk(ink: np.ndarray) -> np.ndarray:
    """The box around the ink as 12 x 12 numbers without mean, of length 1."""
    down, across = (ink > 0.5).nonzero()
    box = (int(across.min()), int(down.min()), int(across.max()) + 1, int(down.max()) + 1)
    small = np.asarray(Image.fromarray((ink * 255).astype(np.uint8)).crop(box).resize((12, 12), Image.Resampling.BOX))
    values = small.astype(float).ravel() - small.mean()
    return values / np.linalg.norm(values)


@pytest.mark.parametrize("fonts", [FONTS[1::3], TEST_FONTS[:4]])
def test_pictures_show_what_their_labels_say(fonts: tuple[str, ...]) -> None:
    """The most similar of all characters, drawn plainly by Pillow in these fonts, is nearly always the label's."""
    templates, told = [], []
    for name in fonts:
        font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{name}.ttf", 60)
        for character in CHARACTERS:
            image = Image.new("L", (140, 140))
            ImageDraw.Draw(image).text((30, 30), character, fill=255, font=font)
            templates.append(shrunk(np.asarray(image) / 255))
            told.append(character)
    pictures, labels, names = glyphs(200, 5, fonts=fonts)
    right = 0
    for picture, label in zip(pictures[:, :, :, 0].astype(float), labels, strict=True):
        paper, ink = np.percentile(picture, 80), np.percentile(picture, 3)
        found = told[int(np.argmax(np.array(templates) @ shrunk(np.clip((paper - picture) / (paper - ink), 0, 1))))]
        right += found == names[label]
    assert right > 0.75 * 200  # by luck: 6


def test_glyphs_are_a_function_of_the_seed() -> None:
    pictures, labels, names = glyphs(300, 1, fonts=FONTS[:2])
    assert pictures.shape == (300, 28, 28, 1) and pictures.dtype == np.uint8
    assert labels.dtype == np.int64 and names == tuple(CHARACTERS) and len(names) == 34
    again, same, _ = glyphs(40, 1, fonts=FONTS[:2])
    assert np.array_equal(again, pictures[:40]) and np.array_equal(same, labels[:40])
    later, _, _ = glyphs(290, 1, fonts=FONTS[:2])  # into the second chunk
    assert np.array_equal(later, pictures[:290])
    other, _, _ = glyphs(300, 2, fonts=FONTS[:2])
    assert not {picture.tobytes() for picture in pictures} & {picture.tobytes() for picture in other}


def test_labels_are_equally_frequent_and_nothing_is_cut() -> None:
    pictures, labels, _ = glyphs(1280, 4, fonts=FONTS[:2])
    counts = np.bincount(labels, minlength=34)
    assert counts.min() > 15 and counts.max() < 65  # 38 on average
    edge = np.ones((28, 28), dtype=bool)
    edge[1:-1, 1:-1] = False
    values = pictures[:, :, :, 0].astype(float)
    paper, ink = np.percentile(values, 80, axis=(1, 2)), np.percentile(values, 2, axis=(1, 2))
    dark = values < ((paper + ink) / 2)[:, None, None]
    assert (dark & edge).sum() / dark.sum() < 0.02


def test_test_fonts_are_new_and_unknown_ones_refused() -> None:
    assert not set(FONTS) & set(TEST_FONTS) and len(TEST_FONTS) >= 4
    with pytest.raises(UsageError, match="did you mean cmr10"):
        glyphs(1, 1, fonts=("cmr11",))
    with pytest.raises(UsageError, match="8 pixels or more"):
        glyphs(1, 1, size=3)
    assert (
        glyphs(2, 1, size=19, fonts=TEST_FONTS[:1])[0].shape == (2, 19, 19, 1)
        and len(glyphs(0, 1, fonts=FONTS[:1])[0]) == 0
    )
