"""Train a model that answers questions about stories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad as widened

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import StoryBatch
from regard.data.stories import Story, StorySets, load_stories
from regard.data.story_batches import EncodedStory, StoryBatches, encode_stories, story_batch
from regard.evaluate.classification import score_labels
from regard.tasks.ask.config import AskConfig
from regard.tasks.config import RunConfig
from regard.tasks.recipe import PreparedRun, Setup, digest_of, every_batch, predicted_labels
from regard.tasks.subject import EXTRA, LENGTHS, ROWS, Subject
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation questions shown to the person


def prepare_ask(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the stories, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, AskConfig)
    sets = load_stories(config.data, setup.data_root)
    config = setup.choose(config, examples=len(sets.train), labels=len(sets.answers))
    assert isinstance(config, AskConfig)
    setup.note(config)
    tokenizer = setup.tokenizer(config, lambda most: _texts(sets.train))
    model = setup.build(config, (tokenizer.size,), labels=len(sets.answers))
    about = BundleConfig(
        task="ask",
        labels=sets.answers,
        longest=config.data.max_sentences,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=config.model,
    )
    train = _batches(config, sets.train, sets, tokenizer, config.train.seed)
    valid = _batches(config, sets.valid, sets, tokenizer, seed=0)
    job = setup.job(
        config,
        Bundle(about, model, TokenizerPair(tokenizer, tokenizer), {}),
        train,
        _validation(valid, sets.valid, sets.answers),
        {"the training data": _digest(sets.train), "the validation data": _digest(sets.valid)},
        held_out=lambda: every_batch(valid),
        unit="questions",
    )
    counts = f"{len(sets.train):,} training and {len(sets.valid):,} validation questions, {len(sets.answers)} answers"
    return PreparedRun(job, (*sets.notes, *_cut_note(config, sets.train), counts))


def _texts(stories: Sequence[Story]) -> list[str]:
    """All that a tokenizer learns from; a sentence that comes in many questions counts once."""
    return list(dict.fromkeys(text for story in stories for text in (*story.sentences, story.question)))


def _digest(stories: Sequence[Story]) -> str:
    parts = [text for story in stories for text in (*story.sentences, story.question, story.answer)]
    return digest_of(parts, [str(len(story.sentences)) for story in stories])


def _cut_note(config: AskConfig, stories: Sequence[Story]) -> tuple[str, ...]:
    most = config.data.max_sentences
    cut = sum(len(story.sentences) > most for story in stories)
    return (f"{cut:,} of {len(stories):,} stories are cut to their last {most} sentences",) if cut else ()


def _batches(
    config: AskConfig, stories: Sequence[Story], sets: StorySets, tokenizer: TextTokenizer, seed: int
) -> StoryBatches:
    place = {answer: number for number, answer in enumerate(sets.answers)}
    encoded = encode_stories(stories, tokenizer, config.data.max_sentences, config.model.longest)
    labels = np.array([place[story.answer] for story in stories])
    fill, mixed = tokenizer.specials.pad, config.data.mixed
    return StoryBatches(encoded, labels, fill, config.train.batch_tokens, seed, mixed)


def _validation(
    batches: StoryBatches, stories: Sequence[Story], answers: Sequence[str]
) -> Callable[[nn.Module], Validation]:
    """Loss and accuracy on questions about unseen stories, beside the accuracies of guessing."""
    latest = 100 * float(np.mean([named_last(story, answers) == story.answer for story in stories]))

    def validate(model: nn.Module) -> Validation:
        predicted, loss = predicted_labels(model, batches, len(stories))
        found = score_labels(predicted.tolist(), batches.labels.tolist(), answers)
        shown = [
            (f"{' '.join(story.sentences[-3:])} {story.question}"[-160:], answers[predicted[row]], story.answer)
            for row, story in enumerate(stories[:SHOWN])
        ]
        metrics = {"loss": loss, "accuracy": found.accuracy, "majority": found.majority, "latest": latest}
        return Validation(metrics, shown, {"accuracy": share_error(found.accuracy, len(stories))})

    return validate


def named_last(story: Story, answers: Sequence[str]) -> str | None:
    """The answer whose word is the last in the story: all that a reader knows who only looks back; None if there is none."""
    known = {answer.lower(): answer for answer in answers}
    words = (
        word.strip(".,!?").lower() for sentence in reversed(story.sentences) for word in reversed(sentence.split())
    )
    return next((known[word] for word in words if word in known), None)


class AskSubject(Subject):
    """Stories of random words with questions."""

    @cached_property
    def stories(self) -> list[EncodedStory]:
        rows = self.draw(tuple(6 * length for length in LENGTHS), special=0)
        cuts = [np.array_split(row, max(1, len(row) // 5)) for row in rows]
        return [EncodedStory(tuple(parts[:-1]) or (parts[0],), parts[-1]) for parts in cuts]

    @cached_property
    def labels(self) -> np.ndarray:
        return np.random.default_rng(3).integers(0, len(self.bundle.config.labels), len(ROWS))

    def take(self, rows: Sequence[int]) -> StoryBatch:
        pad = self.bundle.tokenizer.specials.pad
        return story_batch([self.stories[row] for row in rows], self.labels[list(rows)], pad)

    def lengthened(self, batch: StoryBatch) -> StoryBatch:
        """Columns of padding behind words and questions, and sentences behind those that count, which a mask hides."""
        story = widened(batch.story, (0, EXTRA), value=batch.pad)
        hidden = (
            batch.story[:, :1].expand(-1, EXTRA, -1) if self._reads_memories else batch.story[:, :1] * 0 + batch.pad
        )
        story = torch.cat([story, widened(hidden, (0, EXTRA), value=batch.pad)], dim=1)
        return replace(batch, story=story, question=widened(batch.question, (0, EXTRA), value=batch.pad))

    @property
    def _reads_memories(self) -> bool:
        return self.bundle.config.model.kind == "memory-network"

    def training(self, seed: int) -> StoryBatches:
        return StoryBatches(self.stories, self.labels, self.bundle.tokenizer.specials.pad, 200, seed)

    def real(self, outputs: Tensor, batch: StoryBatch) -> list[Tensor]:
        """The scores of each story's answers: (labels,)."""
        return list(outputs)

    @property
    def name(self) -> str:
        return f"{super().name} reader of stories"
