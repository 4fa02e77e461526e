"""Small worlds told in sentences, with questions of where things and people are, and the sentences that answer them.

People go to places, take things, drop, leave and give them; "there" is the place of the sentence before. Whoever takes a thing
is where it lies, and a thing that is carried is where its carrier is. Which sentences support an answer is known, so that what
a model read can be scored. The names of the story of the ring are among the others; neither it nor its events in other words
are told.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

BUILTIN = "builtin/stories"
PEOPLE = ("Bilbo", "Frodo", "Gollum", "Sauron", "Mary", "John", "Sandra", "Daniel", "Sam", "Julie")
PLACES = (
    "the cave", "the Shire", "Mount-Doom", "the Grey-havens", "the kitchen", "the garden", "the office",
    "the school", "the park", "the bridge",
)  # fmt: skip
THINGS = ("ring", "apple", "football", "milk", "sword", "book", "lamp", "map")
GO = ("went to", "went back to", "travelled to", "journeyed to", "moved to")
TAKE = ("took", "got", "picked up", "grabbed")
DROP = ("dropped", "left", "put down")
ELSE = ("slept", "sang", "died", "laughed", "waited")  # which changes nothing
SHORTEST, LONGEST = 3, 14  # sentences
SEEDS = {"train": 1, "valid": 2, "test": 3}
RING = (
    "Bilbo travelled to the cave.",
    "Gollum dropped the ring there.",
    "Bilbo took the ring.",
    "Bilbo went back to the Shire.",
    "Bilbo left the ring there.",
    "Frodo got the ring.",
    "Frodo journeyed to Mount-Doom.",
    "Frodo dropped the ring there.",
    "Sauron died.",
    "Frodo went back to the Shire.",
    "Bilbo travelled to the Grey-havens.",
)  # as lectures tell it
Told = tuple[tuple[str, ...], str, str, tuple[int, ...]]  # sentences, question, answer, support


@dataclass(frozen=True)
class Known:
    """A fact, and the sentences from which it follows."""

    value: str
    support: tuple[int, ...]


@dataclass
class World:
    """Who and what is where, as far as it was told."""

    dice: random.Random
    people: list[str]
    things: list[str]
    places: list[str]
    sentences: list[str] = field(default_factory=list)
    where: dict[str, Known] = field(default_factory=dict)  # of people
    holder: dict[str, Known] = field(default_factory=dict)  # of things that are carried
    lies: dict[str, Known] = field(default_factory=dict)  # where other things are
    there: Known | None = None  # the place that the sentence before names

    def tell(self) -> None:
        """Let something happen that can."""
        can = [self._go, self._go, self._nothing]
        if self._takes():
            can += [self._take] * 3
        if self.holder and self.there is not None:
            can += [self._drop] * 3
        if self.there is not None and not all(map(self._is_told, self.things)):
            can.append(self._find)
        if self.holder and len(self.people) > 1:
            can.append(self._give)
        self.dice.choice(can)()

    def questions(self) -> list[Told]:
        """A question about each person and thing whose place is known: sentences, question, answer, support."""
        found = [(f"Where is {person}", known) for person, known in self.where.items()]
        for thing in self.things:
            if (known := self._place_of(thing)) is not None:
                found.append((f"Where is the {thing}", known))
        return [
            (tuple(self.sentences), f"{question}{self.dice.choice(('?', ' now?'))}", _name(known.value), known.support)
            for question, known in found
        ]

    def _place_of(self, thing: str) -> Known | None:
        if thing in self.lies:
            return self.lies[thing]
        if thing not in self.holder:
            return None
        held = self.holder[thing]
        where = self.where[held.value]  # whoever has a thing got it somewhere
        return Known(where.value, _both(held.support, where.support))

    def _is_told(self, thing: str) -> bool:
        return thing in self.lies or thing in self.holder

    def _say(self, sentence: str, there: Known | None = None) -> int:
        self.there = there
        self.sentences.append(sys.intern(sentence))  # of a million there are some thousand different ones
        return len(self.sentences) - 1

    def _go(self) -> None:
        person, place = self.dice.choice(self.people), self.dice.choice(self.places)
        number = len(self.sentences)
        self.where[person] = Known(place, (number,))
        self._say(f"{person} {self.dice.choice(GO)} {place}.", Known(place, (number,)))

    def _nothing(self) -> None:
        self._say(f"{self.dice.choice(self.people)} {self.dice.choice(ELSE)}.")

    def _takes(self) -> list[tuple[str, str]]:
        """Who may take what: people who are where it lies, or of whom nobody has heard."""
        return [
            (person, thing)
            for thing, place in self.lies.items()
            for person in self.people
            if self._may_be_at(person, place.value)
        ]

    def _may_be_at(self, person: str, place: str) -> bool:
        return person not in self.where or self.where[person].value == place

    def _take(self) -> None:
        person, thing = self.dice.choice(self._takes())
        lay = self.lies.pop(thing)
        number = self._say(f"{person} {self.dice.choice(TAKE)} the {thing}.")
        self.holder[thing] = Known(person, (number,))
        if person not in self.where:
            self.where[person] = Known(lay.value, _both(lay.support, (number,)))

    def _drop(self) -> None:
        """Whoever has just arrived drops there what they carry."""
        assert self.there is not None
        here = [thing for thing, held in self.holder.items() if self._is_there(held.value)]
        if not here:
            self._go()
            return
        thing, there = self.dice.choice(here), self.there
        person = self.holder.pop(thing).value
        number = self._say(f"{person} {self.dice.choice(DROP)} the {thing} there.", there)
        self.lies[thing] = Known(there.value, _both(there.support, (number,)))

    def _is_there(self, person: str) -> bool:
        return self.there is not None and self.where.get(person) == self.there

    def _find(self) -> None:
        """Somebody drops a thing that nobody has heard of, where the sentence before was."""
        assert self.there is not None
        new = [thing for thing in self.things if not self._is_told(thing)]
        unheard = [person for person in self.people if person not in self.where]
        able = unheard or [person for person in self.people if self._is_there(person)]
        if not able:
            self._go()
            return
        person, thing, there = self.dice.choice(able), self.dice.choice(new), self.there
        number = self._say(f"{person} {self.dice.choice(DROP)} the {thing} there.", there)
        self.lies[thing] = Known(there.value, _both(there.support, (number,)))
        if person in unheard:
            self.where[person] = Known(there.value, _both(there.support, (number,)))

    def _give(self) -> None:
        """A thing changes hands; whoever gets it is where the giver is."""
        thing = self.dice.choice(list(self.holder))
        giver = self.holder[thing].value
        where = self.where[giver]
        able = [each for each in self.people if each != giver and self._may_be_at(each, where.value)]
        if not able:
            self._go()
            return
        taker = self.dice.choice(able)
        number = self._say(f"{giver} gave the {thing} to {taker}.")
        self.holder[thing] = Known(taker, (number,))
        if taker not in self.where:
            self.where[taker] = Known(where.value, _both(where.support, (number,)))


def told_stories(split: str, count: int) -> list[Told]:
    """`count` questions, each about a story of its own. Those of different splits have different stories."""
    dice, found = random.Random(SEEDS.get(split, 4)), list[Told]()
    while len(found) < count:
        asked = story(dice)
        if asked and _belongs(asked[0][0], split):
            found.append(dice.choice(_evenly(asked)))
    return found


def story(dice: random.Random) -> list[Told]:
    """A story, with every question that it answers."""
    world = World(
        dice,
        dice.sample(PEOPLE, dice.randint(2, 4)),
        dice.sample(THINGS, dice.randint(1, 2)),
        dice.sample(PLACES, dice.randint(3, 5)),
    )
    for _ in range(dice.randint(SHORTEST, LONGEST)):
        world.tell()
    return [] if is_ring(world.sentences) else world.questions()


def is_ring(sentences: Sequence[str]) -> bool:
    """Whether a story begins with the first three events of the ring's, or has all of them in order, in whatever words."""
    if sentences[0].startswith("Bilbo ") and [_event(each) for each in sentences[:3]] == RING_EVENTS[:3]:
        return True
    if len(sentences) < len(RING_EVENTS) or not any(each.startswith("Gollum ") for each in sentences):
        return False
    told = iter([_event(each) for each in sentences])
    return all(event in told for event in RING_EVENTS)  # `in` goes on from where the event before was found


def _event(sentence: str) -> tuple[str, str]:
    """What happens in a sentence, without its wording: a kind of action, and who and what take part."""
    for kind, verbs in (("go", GO), ("take", TAKE), ("drop", DROP)):
        for verb in verbs:
            if f" {verb} " in sentence:
                return kind, sentence.replace(f" {verb} ", " ")
    return "other", sentence


RING_EVENTS = [event for event in map(_event, RING) if event[0] != "other"]


def _evenly(asked: list[Told]) -> list[Told]:
    """The questions about things as often as those about people: about things more must be read."""
    things = [each for each in asked if each[1].startswith("Where is the ")]
    people = [each for each in asked if not each[1].startswith("Where is the ")]
    return things * max(1, len(people)) + people * max(1, len(things))


def _belongs(sentences: tuple[str, ...], split: str) -> bool:
    """Whether a story is of a split, by its sentences alone: of ten, eight are trained on, one validates, one tests."""
    number = sum(map(ord, "".join(sentences))) % 10
    return {"valid": number == 8, "test": number == 9}.get(split, number < 8)


def _both(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*first, *second}))


def _name(place: str) -> str:
    """A place as an answer: "Shire", "Mount-Doom"."""
    return place.removeprefix("the ")
