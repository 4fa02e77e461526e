"""Train a classifier of pictures: read and fitted once, then varied batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.pictures.batch import PictureBatch
from regard.data.pictures.batches import PictureBatches
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.load import LabelledPictures, PicturePart, load_pictures
from regard.evaluate.classification import f1_error, score_labels, top_k_accuracy
from regard.tasks.classify_pictures.config import ClassifyPicturesConfig
from regard.tasks.config import RunConfig
from regard.tasks.recipe import PreparedRun, Setup, class_weights, fingerprint, label_metrics, uneven, uneven_notes
from regard.tasks.subject import (
    NotApplicable,
    SeeingSubject,
)
from regard.tokens import TextTokenizer
from regard.training.events import counting
from regard.training.state import Fingerprint
from regard.training.validation import Validation, share_error

TOGETHER = 256  # pictures of a batch in validation
FEW = 32  # pictures of a batch where some are enough
SHOWN = 2  # validation pictures shown to the person
MANY = 10  # classes from which on the five likeliest are scored too


def prepare_classify_pictures(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the pictures, build the model. Nothing is trained yet."""
    assert isinstance(config, ClassifyPicturesConfig)
    sets = load_pictures(config.data, setup.data_root, counting(setup.emit, "reading pictures"))
    config = _chosen(config, setup, sets)
    setup.note(config)
    model = setup.build(config, labels=len(sets.names), pictures=sets.format)
    counts = np.bincount(sets.train.labels, minlength=len(sets.names)).tolist()
    model.class_weights = class_weights(config.train.class_weights, sets.names, counts)  # type: ignore[assignment]
    about = BundleConfig(task="classify-pictures", labels=sets.names, pictures=sets.format, model=config.model)
    train = _batches(config, sets)
    data: Fingerprint = {
        "the training data": [sets.train.store.sha256, len(sets.train.rows)],
        "the labels": list(sets.names),
    }
    data["the classes of the pictures"] = fingerprint([sets.train.labels, sets.train.rows])
    data["the validation data"] = [sets.valid.store.sha256, fingerprint([sets.valid.labels, sets.valid.rows])]
    validate = validation(sets.valid, sets.names, sets.format, uneven(counts))
    unseen = partial(held_out, sets.valid, sets.format, FEW)
    job = setup.job(config, Bundle(about, model, None, {}), train, validate, data, held_out=unseen, unit="pictures")
    shape = f"{sets.format.size} x {sets.format.size} x {sets.format.channels}"
    told = (*sets.notes, *uneven_notes(sets.names, counts, "pictures", config.train.class_weights))
    sizes = f"{len(sets.train.rows):,} training and {len(sets.valid.rows):,} validation pictures of {shape}"
    return PreparedRun(job, (*told, f"{sizes}, {len(sets.names)} labels"))


def _chosen(config: ClassifyPicturesConfig, setup: Setup, sets: LabelledPictures) -> ClassifyPicturesConfig:
    facts = {"labels": len(sets.names), "size": sets.format.size, "channels": sets.format.channels}
    found = setup.choose(config, examples=len(sets.train.rows), **facts)

    def make(candidate: RunConfig) -> tuple[nn.Module, PictureBatches]:
        assert isinstance(candidate, ClassifyPicturesConfig)
        return setup.build(candidate, labels=len(sets.names), pictures=sets.format), _batches(candidate, sets)

    found = setup.choose_size(found, make)
    assert isinstance(found, ClassifyPicturesConfig)
    return found


def _batches(config: ClassifyPicturesConfig, sets: LabelledPictures) -> PictureBatches:
    part, train = sets.train, config.train
    augment = config.data.augment
    return PictureBatches(part.store, part.labels, part.rows, sets.format, train.batch_pictures, train.seed, augment)


def held_out(part: PicturePart, picture_format: PictureFormat, together: int = TOGETHER) -> Iterator[PictureBatch]:
    """The validation pictures in their order, so many in a batch."""
    batches = PictureBatches(part.store, part.labels, part.rows, picture_format, together, 0, None)
    for start in range(0, len(part.rows), together):
        yield batches.take(np.arange(start, min(start + together, len(part.rows))))


def validation(
    part: PicturePart, names: Sequence[str], picture_format: PictureFormat, rare: bool = False
) -> Callable[[nn.Module], Validation]:
    """Loss, accuracy and F1 on unseen pictures; of many classes, also whether the right one is among five."""

    def validate(model: nn.Module) -> Validation:
        device = next(model.parameters()).device
        scores, wanted = [], []
        for batch in (each.to(device) for each in held_out(part, picture_format)):
            scores.append(model.logits(batch).float().log_softmax(dim=-1).cpu())  # type: ignore[operator]
            wanted.append(batch.labels.cpu())
        told, right = torch.cat(scores), torch.cat(wanted)
        found = score_labels(told.argmax(dim=-1).tolist(), right.tolist(), names)
        loss = float(torch.nn.functional.nll_loss(told, right))
        metrics = {"loss": loss, **label_metrics(found, rare)}
        errors = {"accuracy": share_error(found.accuracy, len(right)), "f1": f1_error(found.confusion)}
        if len(names) > MANY:
            metrics["top_5"] = top_k_accuracy(told.numpy(), right.tolist(), 5)
            errors["top_5"] = share_error(metrics["top_5"], len(right))
        best = told[:SHOWN].argmax(dim=-1).tolist()
        firsts = zip(part.rows[:SHOWN], best, right[:SHOWN].tolist(), strict=True)
        shown = [(Path(part.store.name(row)).name, names[said], names[wanted]) for row, said, wanted in firsts]
        return Validation(metrics, shown, errors)

    return validate


class ClassifyPicturesSubject(SeeingSubject):
    """Pictures with labels."""

    def take(self, rows: Sequence[int]) -> PictureBatch:
        return PictureBatch(self.pixels[list(rows)], self.labels[list(rows)])

    def lengthened(self, batch: PictureBatch) -> PictureBatch:
        raise NotApplicable("pictures have one size: nothing stands behind their end")

    def real(self, outputs: Tensor, batch: PictureBatch) -> list[Tensor]:
        return list(outputs)

    @property
    def tokenizers(self) -> dict[str, TextTokenizer]:
        return {}
