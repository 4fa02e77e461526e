"""Score a reader of stories: how many answers are right, and whether the hops read the sentences that tell them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.stories import Story
from regard.evaluate.classification import ClassificationScores, score_labels
from regard.files import JSON
from regard.predictor import Cancel, Result
from regard.tasks.ask.predictor import StoryAnswer, StoryReader


@dataclass(frozen=True)
class Support:
    """How often the sentences that an answer follows from are the ones that were read most."""

    found: float  # % of supporting sentences that some hop read most of all
    chance: float  # % if each hop read a sentence at random
    questions: int  # for which it is known which they are


@dataclass(frozen=True)
class Needing:
    """Questions whose answers follow from so many sentences, and how many of them are right."""

    sentences: int
    questions: int
    right: int

    def data(self) -> dict[str, JSON]:
        return {"sentences": self.sentences, "questions": self.questions, "right": self.right}


@dataclass(frozen=True, eq=False)
class StoryEvaluation(Result):
    """The scores of a reader on a test set. An answer that the model never learned is wrong."""

    scores: ClassificationScores
    predicted: np.ndarray  # (questions,) numbers of answers
    wanted: np.ndarray
    seconds: float
    support: Support | None = None
    needing: tuple[Needing, ...] = ()  # by the number of supporting sentences, where these are known
    notes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def right(self) -> list[bool]:
        return [bool(same) for same in self.predicted == self.wanted]

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {**self.scores.data(), "questions": len(self.wanted), "seconds": self.seconds}
        if self.needing:
            found["needing"] = [each.data() for each in self.needing]
        if self.support is None:
            return found
        read = {"found": self.support.found, "chance": self.support.chance, "questions": self.support.questions}
        return {**found, "support": read}


def evaluate_stories(
    reader: StoryReader,
    stories: Sequence[Story],
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
) -> StoryEvaluation:
    """Answer the questions of a test set and compare, also what was read with what should be."""
    names = [*reader.labels, *sorted({story.answer for story in stories} - set(reader.labels))]
    place = {answer: number for number, answer in enumerate(names)}
    started = time.perf_counter()
    found = reader.answers(stories, hops=reader.has_hops, progress=progress, cancel=cancel)
    seconds = time.perf_counter() - started
    predicted = np.array([place[each.answer] for each in found])
    wanted = np.array([place[story.answer] for story in stories])
    unknown = sum(number >= len(reader.labels) for number in wanted.tolist())
    notes = (f"{unknown:,} questions have answers that the model never learned: counted as wrong",) if unknown else ()
    scores = score_labels(predicted.tolist(), wanted.tolist(), names)
    needing = by_need(stories, predicted == wanted)
    return StoryEvaluation(scores, predicted, wanted, seconds, support_of(found, stories), needing, notes)


def by_need(stories: Sequence[Story], right: np.ndarray) -> tuple[Needing, ...]:
    """Right answers by how many sentences they follow from; nothing where that is not known of every question."""
    needs = np.array([len(story.support) for story in stories])
    if not needs.all():
        return ()
    return tuple(Needing(int(n), int((needs == n).sum()), int(right[needs == n].sum())) for n in np.unique(needs))


def support_of(found: Sequence[StoryAnswer], stories: Sequence[Story]) -> Support | None:
    """How often the supporting sentences are the ones that a hop read most; None if nobody knows them, or there are no hops."""
    hits, chances, total, questions = 0, 0.0, 0, 0
    for answer, story in zip(found, stories, strict=True):
        cut = len(story.sentences) - len(answer.story)
        wanted = {place - cut for place in story.support if place >= cut}
        if not wanted or not answer.hops:
            continue
        read = {int(np.argmax(hop)) for hop in answer.hops}
        hits, total, questions = hits + len(wanted & read), total + len(wanted), questions + 1
        chances += len(wanted) * (1 - (1 - 1 / len(answer.story)) ** len(answer.hops))
    return Support(100 * hits / total, 100 * chances / total, questions) if total else None
