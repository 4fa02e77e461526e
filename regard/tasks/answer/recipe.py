"""Train a model that answers questions about pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.bundle import BundleConfig
from regard.data.pictures.batches import AnswerBatches
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.load import Asked, load_questions
from regard.evaluate.classification import score_labels
from regard.models.config import AnswererConfig
from regard.models.table import build
from regard.tasks.answer.predictor import encode_question
from regard.tasks.caption.features import Features
from regard.tasks.caption.recipe import source_of, with_path, without_path
from regard.tasks.config import AnswerConfig, RunConfig
from regard.tasks.recipe import Prepared, digest_of, made_by, make_tokenizer, note_run, saver
from regard.tokens import PAD, TextTokenizer, TokenizerPair
from regard.training.events import Tell, counting, silent
from regard.training.loop import Job
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation questions shown to the person


def prepare_answer(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read pictures and questions, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, AnswerConfig) and isinstance(config.model, AnswererConfig)
    train, valid, format, notes = load_questions(config.data, data_root, counting(tell, "reading pictures"))
    if not resume:
        note_run(folder, config, data_root, device)
    tokenizer = make_tokenizer(config, folder, train.questions, resume=resume, tell=tell)
    answers = tuple(sorted(set(train.answers)))
    valid, unknown = known_answers(valid, answers)
    torch.manual_seed(config.train.seed)
    model: Any = build(
        "answer",
        with_path(config.model, data_root),
        (tokenizer.size,),
        labels=len(answers),
        pictures=format,
        smoothing=config.train.smoothing,
    )
    bundle = BundleConfig(
        task="answer",
        labels=answers,
        longest=config.data.max_length,
        pictures=format,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=without_path(config.model),
    )
    batches = _batches(config, train, answers, tokenizer, format, model, config.train.seed, tell)
    held = _batches(config, valid, answers, tokenizer, format, model, None, tell)
    job = Job(
        folder=folder,
        config=config.train,
        model=model,
        width=config.model.width,
        batches=batches,
        validate=_validation(held, valid, answers),
        save=saver(folder, bundle, TokenizerPair(tokenizer, tokenizer), made_by(config, device)),
        fingerprint={
            "the training data": [train.store.sha256, len(train.rows)],
            "the questions": digest_of(train.questions, train.answers),
            "the validation data": [valid.store.sha256, digest_of(valid.questions, valid.answers)],
            "the model": config.model,
        },
        device=torch.device(device),
        unit="questions",
    )
    counts = f"{len(train.rows):,} training and {len(valid.rows):,} validation questions, {len(answers)} answers"
    return Prepared(job, (*notes, *unknown, counts))


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
    format: PictureFormat,
    model: Any,
    seed: int | None,
    tell: Tell,
) -> AnswerBatches:
    place = {answer: number for number, answer in enumerate(answers)}
    source = source_of(model, asked.store, format, tell)
    return AnswerBatches(
        source,
        asked.rows,
        [encode_question(tokenizer, text, config.data.max_length) for text in asked.questions],
        np.array([place[answer] for answer in asked.answers]),
        format,
        config.train.batch_pictures,
        seed or 0,
        pad=PAD,
        augment=None if seed is None else config.data.augment,
        by_length=isinstance(source, Features),  # batch norm must not learn that pictures of a batch are alike
    )


def _validation(batches: AnswerBatches, asked: Asked, answers: Sequence[str]) -> Callable[[nn.Module], Validation]:
    """Loss and accuracy on questions about unseen pictures."""

    def validate(model: nn.Module) -> Validation:
        device = next(model.parameters()).device
        predicted, total = np.zeros(len(asked.rows), dtype=np.int64), 0.0
        for rows in batches.plan(0):
            batch = batches.take(rows).to(device)
            logits = model.logits(batch)  # type: ignore[operator]
            predicted[rows] = logits.argmax(dim=-1).cpu().numpy()
            total += float(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
        found = score_labels(predicted.tolist(), batches.labels.tolist(), answers)
        shown = [
            (
                f"{Path(asked.store.name(asked.rows[row])).name}: {asked.questions[row]}",
                answers[predicted[row]],
                asked.answers[row],
            )
            for row in range(min(SHOWN, len(asked.rows)))
        ]
        metrics = {"loss": total / len(asked.rows), "accuracy": found.accuracy}
        return Validation(metrics, shown, {"accuracy": share_error(found.accuracy, len(asked.rows))})

    return validate
