"""Stories as ids, and batches of them: a pure function of the seed, the epoch and their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from regard.data.batch import StoryBatch, pad
from regard.data.batches import generator, plan_by_length
from regard.data.stories import Story
from regard.errors import RegardError
from regard.tokens import TextTokenizer


@dataclass(frozen=True)
class EncodedStory:
    """A story as ids, the last sentences of a long one."""

    sentences: tuple[np.ndarray, ...]
    question: np.ndarray

    @property
    def words(self) -> int:
        return sum(map(len, self.sentences)) + len(self.question)


def encode_stories(
    stories: Sequence[Story], tokenizer: TextTokenizer, most_sentences: int, longest: int | None = None
) -> list[EncodedStory]:
    """Stories as ids; at most so many sentences of each, and words (with one before them) if the model reads no more.

    A sentence that comes in many stories is encoded once.
    """
    texts = list(dict.fromkeys(text for each in stories for text in (*each.sentences[-most_sentences:], each.question)))
    ids = {
        text: np.array(found, dtype=np.int64) for text, found in zip(texts, tokenizer.encode_all(texts), strict=True)
    }
    return [_encoded(each, ids, most_sentences, longest) for each in stories]


def _encoded(story: Story, ids: Mapping[str, np.ndarray], most_sentences: int, longest: int | None) -> EncodedStory:
    question, told = ids[story.question], [ids[each] for each in story.sentences[-most_sentences:]]
    told = [each for each in told if len(each)]
    while longest is not None and told and sum(map(len, told)) + len(question) + 1 > longest:
        told = told[1:]
    if not len(question):
        raise RegardError(f"there is no word in the question {story.question!r}", "ask such as: Where is the ring?")
    if not told:
        raise RegardError(
            f"nothing is left of the story before {story.question!r}", "give it a sentence and a question"
        )
    return EncodedStory(tuple(told), question)


class StoryBatches:
    """`batches.get(epoch, index)`. A batch holds at most `batch_tokens` words, padding included.

    Its stories are about equally long, or `mixed`: any of them.
    """

    def __init__(
        self,
        stories: Sequence[EncodedStory],
        labels: np.ndarray,
        fill: int,
        batch_tokens: int,
        seed: int,
        mixed: bool = False,
    ) -> None:
        if len(stories) != len(labels):
            raise RegardError(f"{len(stories)} stories and {len(labels)} answers", "each question has one answer")
        self.stories, self.labels, self.pad = stories, np.asarray(labels, dtype=np.int64), fill
        self.batch_tokens, self.seed, self.mixed = batch_tokens, seed, mixed
        self._counts = np.array([len(each.sentences) for each in stories])
        self._widest = np.array([max(map(len, each.sentences)) for each in stories])
        self._sizes = np.array([len(each.sentences) * wide + len(each.question) for each, wide in self._wide()])
        if self._sizes.max(initial=0) > batch_tokens:
            raise RegardError(
                f"a story has {self._sizes.max()} words with its padding and a batch only {batch_tokens}",
                "raise train.batch_tokens or lower data.max_sentences",
            )
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the rows of each batch

    def _wide(self) -> zip[tuple[EncodedStory, int]]:
        return zip(self.stories, self._widest.tolist(), strict=True)

    def __len__(self) -> int:
        return len(self.stories)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> StoryBatch:
        return self.take(self.plan(epoch)[index])

    def take(self, rows: Sequence[int] | np.ndarray) -> StoryBatch:
        found = [self.stories[int(row)] for row in rows]
        return story_batch(found, self.labels[np.asarray(rows, dtype=np.int64)], self.pad)

    def padding_share(self) -> float:
        """The share of padding among all positions of the first epoch."""
        batches = [self.take(rows) for rows in self.plan(0)]
        return 1 - sum(each.real_tokens for each in batches) / sum(each.padded_tokens for each in batches)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        if self.mixed:
            asked = max(len(each.question) for each in self.stories)
            rows = max(1, self.batch_tokens // int(self._counts.max() * self._widest.max() + asked))
            order = generator(self.seed, epoch).permutation(len(self.stories))
            return [order[start : start + rows] for start in range(0, len(order), rows)]
        return plan_by_length((self._widest, self._counts), self._sizes, self.batch_tokens, (self.seed, epoch))


def story_batch(stories: Sequence[EncodedStory], labels: np.ndarray | Sequence[int], fill: int) -> StoryBatch:
    """A batch of stories with the numbers of their answers."""
    counts = [len(each.sentences) for each in stories]
    widest = max(len(sentence) for each in stories for sentence in each.sentences)
    story = np.full((len(stories), max(counts), widest), fill, dtype=np.int64)
    for row, each in enumerate(stories):
        for place, sentence in enumerate(each.sentences):
            story[row, place, : len(sentence)] = sentence
    question, _ = pad([each.question for each in stories], fill)
    numbers = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    return StoryBatch(torch.from_numpy(story), torch.tensor(counts), question, numbers, fill)
