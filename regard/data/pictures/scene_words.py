"""What can be said about a scene of shapes: one sentence that it determines, and questions with one right answer each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from regard.data.pictures.things import COLOURS, KINDS, SIZES, Thing

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
    """Of each two that are the only ones of their kinds, one question in a direction in which they clearly differ."""
    found = []
    for pair in combinations([thing for thing in things if _alone(thing, things)], 2):
        first, second = pair if random.random() < 0.5 else pair[::-1]
        told = [name for name in RELATIONS if _differ(name, first, second)]
        if told:
            name = told[random.integers(len(told))]
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
