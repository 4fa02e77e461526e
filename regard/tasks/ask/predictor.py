"""Ask: a story and a question in, an answer out, and which sentences each hop read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch

from regard.attention import record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.stories import Story, split_story
from regard.data.story_batches import encode_stories, story_batch
from regard.errors import UsageError
from regard.files import JSON
from regard.look.map import AttentionMap
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel, label_list

TOGETHER = 256
SENTENCES = 50  # that are kept where a bundle does not say it


@dataclass(frozen=True)
class StoryAnswer(Result):
    """A question about a story, and the answer of the model."""

    story: tuple[str, ...]
    question: str
    answer: str
    probability: float
    probabilities: dict[str, float]  # of every answer, the likeliest first
    hops: tuple[tuple[float, ...], ...] = ()  # of each hop, how much it read of each sentence; empty if not kept

    def __str__(self) -> str:
        return self.answer

    def __repr__(self) -> str:
        return brief(self, quoted(self.question), repr(self.answer), probability=self.probability)

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {
            "story": list(self.story),
            "question": self.question,
            "text": self.answer,
            "probability": self.probability,
            "labels": label_list(self.probabilities),
        }
        return found if not self.hops else {**found, "hops": [list(hop) for hop in self.hops]}

    @property
    def attention(self) -> AttentionMap:
        """Each sentence with how much every hop read of it."""
        if not self.hops:
            raise UsageError("no hops were kept", "ask with hops=True, of a memory network")
        names = [f"hop-{number}" for number in range(1, len(self.hops) + 1)]
        title = f"{self.question} {self.answer} ({self.probability:.0%})"
        notes = ("columns sum to one: each hop divides itself among the sentences",)
        return AttentionMap(np.array(self.hops).T, tuple(names), self.story, title, notes)


class StoryReader(Predictor):
    """A trained model that answers questions about stories, ready to use."""

    model: Any

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizer, self.labels = bundle.tokenizer, bundle.config.labels
        self.most_sentences = bundle.config.reads(SENTENCES)

    @property
    def has_hops(self) -> bool:
        """Whether it reads sentence by sentence, in hops."""
        return self.config.model.kind == "memory-network"

    @overload
    def ask(self, story: str | Sequence[str], question: str, *, hops: bool = ...) -> StoryAnswer: ...
    @overload
    def ask(
        self, story: str | Sequence[str], question: list[str] | tuple[str, ...], *, hops: bool = ...
    ) -> list[StoryAnswer]: ...

    def ask(
        self, story: str | Sequence[str], question: str | Sequence[str], *, hops: bool = False
    ) -> StoryAnswer | list[StoryAnswer]:
        """Answer a question about a story, or several. `hops`: keep which sentence each hop read."""
        told = tuple(split_story(story) if isinstance(story, str) else story)
        if not told:
            raise UsageError("the story is empty", "give it a sentence")
        asked = [question] if isinstance(question, str) else list(question)
        found = self.answers([Story(told, each, "") for each in asked], hops=hops)
        return found[0] if isinstance(question, str) else found

    def predict(self, inputs: Sequence[str]) -> list[StoryAnswer]:
        """Answer questions, each the last sentence of its text."""
        told = [split_story(text) or [text] for text in inputs]
        return self.answers([Story(tuple(each[:-1]) or (each[-1],), each[-1], "") for each in told])

    def answers(
        self,
        stories: Sequence[Story],
        *,
        hops: bool = False,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> list[StoryAnswer]:
        """Answer the question of each story; `cancel` is asked before each batch whether to stop."""
        out: list[StoryAnswer] = []
        for start in range(0, len(stories), TOGETHER):
            check_cancel(cancel)
            part = stories[start : start + TOGETHER]
            shares, read = self._together(part, hops and self.has_hops)
            out += [self._one(story, shares[row], read[row]) for row, story in enumerate(part)]
            if progress is not None:
                progress(len(out), len(stories))
        return out

    @torch.inference_mode()
    def _together(self, stories: Sequence[Story], hops: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        """The probability of every answer (N, answers), and of each story how much each hop read of each sentence."""
        reads = encode_stories(stories, self.tokenizer, self.most_sentences, self.config.model.longest)
        batch = story_batch(reads, np.zeros(len(stories), dtype=np.int64), self.tokenizer.specials.pad).to(self.device)
        with record(self.model) as seen:
            shares = self.model.logits(batch).double().softmax(dim=-1).cpu().numpy()
        calls = [call.weights()[:, 0, 0].double().cpu().numpy() for call in seen.calls] if hops else []  # each (N, S)
        counts = [len(each.sentences) for each in reads]
        return shares, [np.array([np.nan_to_num(call[row, :n]) for call in calls]) for row, n in enumerate(counts)]

    def _one(self, story: Story, shares: np.ndarray, read: np.ndarray) -> StoryAnswer:
        order = np.argsort(-shares, kind="stable")
        every = {self.labels[place]: float(shares[place]) for place in order}
        told = story.sentences[-read.shape[1] :] if read.size else story.sentences
        hops = tuple(tuple(map(float, hop)) for hop in read)
        return StoryAnswer(told, story.question, self.labels[order[0]], float(shares[order[0]]), every, hops)
