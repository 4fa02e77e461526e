"""Train a model that answers questions about pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import pad as padded
from regard.data.pictures.batch import AnswerBatch
from regard.data.pictures.batches import AnswerBatches
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.load import Asked, load_questions
from regard.evaluate.classification import score_labels
from regard.models.config import AnswererConfig
from regard.tasks.answer.config import AnswerConfig
from regard.tasks.answer.predictor import encode_question
from regard.tasks.caption.features import PictureFeatures
from regard.tasks.caption.recipe import source_of, with_path, without_path
from regard.tasks.config import RunConfig
from regard.tasks.recipe import PreparedRun, Setup, digest_of, every_batch, predicted_labels
from regard.tasks.subject import (
    EXTRA,
    LENGTHS,
    SeeingSubject,
)
from regard.tokens import PAD, TextTokenizer, TokenizerPair, as_arrays
from regard.training.events import OnEvent, counting
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation questions shown to the person


def prepare_answer(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read pictures and questions, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, AnswerConfig) and isinstance(config.model, AnswererConfig)
    train, valid, picture_format, notes = load_questions(
        config.data, setup.data_root, counting(setup.emit, "reading pictures")
    )
    config = setup.choose(config, examples=len(train.rows), size=picture_format.size)
    assert isinstance(config, AnswerConfig) and isinstance(config.model, AnswererConfig)
    setup.note(config)
    tokenizer = setup.tokenizer(config, lambda most: train.questions)
    answers = tuple(sorted(set(train.answers)))
    valid, unknown = known_answers(valid, answers)
    found = with_path(config.model, setup.data_root)
    model = setup.build(config, (tokenizer.size,), labels=len(answers), pictures=picture_format, model=found)
    about = BundleConfig(
        task="answer",
        labels=answers,
        longest=config.data.max_length,
        pictures=picture_format,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=without_path(config.model),
    )
    batches = _batches(config, train, answers, tokenizer, picture_format, model, config.train.seed, setup.emit)
    held = _batches(config, valid, answers, tokenizer, picture_format, model, None, setup.emit)
    job = setup.job(
        config,
        Bundle(about, model, TokenizerPair(tokenizer, tokenizer), {}),
        batches,
        _validation(held, valid, answers),
        {
            "the training data": [train.store.sha256, len(train.rows)],
            "the questions": digest_of(train.questions, train.answers),
            "the validation data": [valid.store.sha256, digest_of(valid.questions, valid.answers)],
        },
        held_out=lambda: every_batch(held),
        unit="questions",
    )
    counts = f"{len(train.rows):,} training and {len(valid.rows):,} validation questions, {len(answers)} answers"
    return PreparedRun(job, (*notes, *unknown, counts))


def known_answers(asked: Asked, answers: Sequence[str]) -> tuple[Asked, tuple[str, ...]]:
    """The questions whose answers a model knows, and a note if there are others."""
    inside = [row for row, answer in enumerate(asked.answers) if answer in set(answers)]
    if len(inside) == len(asked.answers):
        return asked, ()
    left = f"{len(asked.answers) - len(inside):,} validation questions have answers that training has not: left out"
    questions, wanted = ([texts[row] for row in inside] for texts in (asked.questions, asked.answers))
    return Asked(asked.store, asked.rows[inside], questions, wanted), (left,)


def _batches(
    config: AnswerConfig,
    asked: Asked,
    answers: Sequence[str],
    tokenizer: TextTokenizer,
    picture_format: PictureFormat,
    model: nn.Module,
    seed: int | None,
    emit: OnEvent,
) -> AnswerBatches:
    place = {answer: number for number, answer in enumerate(answers)}
    source = source_of(model, asked.store, picture_format, emit)
    return AnswerBatches(
        source,
        asked.rows,
        [encode_question(tokenizer, text, config.data.max_length) for text in asked.questions],
        np.array([place[answer] for answer in asked.answers]),
        picture_format,
        config.train.batch_pictures,
        seed or 0,
        pad=PAD,
        augment=None if seed is None else config.data.augment,
        together=1 if seed is None else config.data.together,
        by_length=isinstance(source, PictureFeatures),  # batch norm must not learn that pictures of a batch are alike
    )


def _validation(batches: AnswerBatches, asked: Asked, answers: Sequence[str]) -> Callable[[nn.Module], Validation]:
    """Loss and accuracy on questions about unseen pictures."""

    def validate(model: nn.Module) -> Validation:
        predicted, loss = predicted_labels(model, batches, len(asked.rows))
        found = score_labels(predicted.tolist(), batches.labels.tolist(), answers)
        shown = [
            (
                f"{Path(asked.store.name(asked.rows[row])).name}: {asked.questions[row]}",
                answers[predicted[row]],
                asked.answers[row],
            )
            for row in range(min(SHOWN, len(asked.rows)))
        ]
        metrics = {"loss": loss, "accuracy": found.accuracy}
        return Validation(metrics, shown, {"accuracy": share_error(found.accuracy, len(asked.rows))})

    return validate


class AnswerSubject(SeeingSubject):
    """Pictures with questions."""

    @cached_property
    def questions(self) -> list[np.ndarray]:
        return as_arrays([ids.tolist() for ids in self.draw(LENGTHS, special=1)], begin=False)

    def take(self, rows: Sequence[int]) -> AnswerBatch:
        ids, lengths = padded([self.questions[row] for row in rows], PAD)
        return AnswerBatch(self.pixels[list(rows)], ids, lengths, self.labels[list(rows)])

    def lengthened(self, batch: AnswerBatch) -> AnswerBatch:
        return replace(batch, ids=torch.cat([batch.ids, batch.ids[:, :1].expand(-1, EXTRA)], dim=1))

    def real(self, outputs: Tensor, batch: AnswerBatch) -> list[Tensor]:
        return list(outputs)
