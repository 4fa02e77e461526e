"""Train a classifier of pictures: read and fitted once, then varied batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.bundle import BundleConfig
from regard.data.pictures.batches import PictureBatches
from regard.data.pictures.load import Part, load_pictures
from regard.evaluate.classification import f1_error, score_labels, top_k_accuracy
from regard.models.table import build
from regard.tasks.config import ClassifyPicturesConfig, RunConfig
from regard.tasks.recipe import (
    Prepared,
    class_weights,
    fingerprint,
    label_metrics,
    made_by,
    note_run,
    saver,
    uneven,
    uneven_notes,
)
from regard.training.events import Tell, counting, silent
from regard.training.loop import Job
from regard.training.state import Fingerprint
from regard.training.validation import Validation, share_error

TOGETHER = 256  # pictures of a batch in validation
SHOWN = 2  # validation pictures shown to the person
MANY = 10  # classes from which on the five likeliest are scored too


def prepare_classify_pictures(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read the pictures, build the model. Nothing is trained yet."""
    assert isinstance(config, ClassifyPicturesConfig)
    sets = load_pictures(config.data, data_root, counting(tell, "reading pictures"))
    if not resume:
        note_run(folder, config, data_root, device)
    torch.manual_seed(config.train.seed)
    smoothing = config.train.smoothing
    model = build("classify-pictures", config.model, labels=len(sets.names), pictures=sets.format, smoothing=smoothing)
    counts = np.bincount(sets.train.labels, minlength=len(sets.names)).tolist()
    model.class_weights = class_weights(config.train.class_weights, sets.names, counts)  # type: ignore[assignment]
    bundle = BundleConfig(task="classify-pictures", labels=sets.names, pictures=sets.format, model=config.model)
    train = PictureBatches(
        sets.train.store,
        sets.train.labels,
        sets.train.rows,
        sets.format,
        config.train.batch_pictures,
        config.train.seed,
        config.data.augment,
    )
    same: Fingerprint = {
        "the training data": [sets.train.store.sha256, len(sets.train.rows)],
        "the labels": list(sets.names),
        "the classes of the pictures": fingerprint([sets.train.labels, sets.train.rows]),
        "the validation data": [sets.valid.store.sha256, fingerprint([sets.valid.labels, sets.valid.rows])],
        "the model": config.model,
    }
    job = Job(
        folder=folder,
        config=config.train,
        model=model,
        width=config.model.width,
        batches=train,
        validate=validation(sets.valid, sets.names, sets.format, uneven(counts)),
        save=saver(folder, bundle, None, made_by(config, device)),
        fingerprint=same,
        device=torch.device(device),
        unit="pictures",
    )
    shape = f"{sets.format.size} x {sets.format.size} x {sets.format.channels}"
    told = (*sets.notes, *uneven_notes(sets.names, counts, "pictures", config.train.class_weights))
    sizes = f"{len(sets.train.rows):,} training and {len(sets.valid.rows):,} validation pictures of {shape}"
    return Prepared(job, (*told, f"{sizes}, {len(sets.names)} labels"))


def validation(
    part: Part, names: Sequence[str], format: object, rare: bool = False
) -> Callable[[nn.Module], Validation]:
    """Loss, accuracy and F1 on unseen pictures; of many classes, also whether the right one is among five."""
    from regard.data.pictures.config import PictureFormat

    assert isinstance(format, PictureFormat)
    batches = PictureBatches(part.store, part.labels, part.rows, format, TOGETHER, 0, None)

    def validate(model: nn.Module) -> Validation:
        device = next(model.parameters()).device
        scores, wanted = [], []
        for start in range(0, len(part.rows), TOGETHER):
            batch = batches.take(np.arange(start, min(start + TOGETHER, len(part.rows)))).to(device)
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
