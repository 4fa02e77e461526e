"""Train a classifier of sounds: decoded once, then varied batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.sound.batch import SoundBatch
from regard.data.sound.batches import SoundBatches
from regard.data.sound.load import SoundPart, load_sounds
from regard.evaluate.classification import f1_error, score_labels
from regard.files import JSON
from regard.tasks.classify_sounds.config import ClassifySoundsConfig
from regard.tasks.config import RunConfig
from regard.tasks.hear import HearingSubject
from regard.tasks.recipe import (
    PreparedRun,
    Setup,
    class_weights,
    digest_of,
    fingerprint,
    label_metrics,
    predicted_labels,
    uneven,
    uneven_notes,
)
from regard.tasks.subject import ROWS
from regard.tokens import TextTokenizer
from regard.training.events import counting
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation sounds shown to the person


def prepare_classify_sounds(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the sounds, build the model. Nothing is trained yet."""
    assert isinstance(config, ClassifySoundsConfig)
    sets = load_sounds(config.data, "label", setup.data_root, counting(setup.emit, "reading sounds"))
    labels = sets.labels()
    config = setup.choose(config, examples=len(sets.train), labels=len(labels))
    assert isinstance(config, ClassifySoundsConfig)
    setup.note(config)
    model = setup.build(config, labels=len(labels), sounds=sets.format)
    counts = [sets.train.told.count(label) for label in labels]
    model.class_weights = class_weights(config.train.class_weights, labels, counts)  # type: ignore[assignment]
    about = BundleConfig(task="classify-sounds", labels=labels, sounds=sets.format, longest=None, model=config.model)
    batch = config.train.batch_tokens
    train = SoundBatches(sets.train, labels, batch, config.train.seed, config.data.augment)
    valid = SoundBatches(sets.valid, labels, batch, 0)
    job = setup.job(
        config,
        Bundle(about, model, None, {}),
        train,
        _validation(valid, sets.valid, labels, uneven(counts)),
        {"the training data": heard_digest(sets.train), "the validation data": heard_digest(sets.valid)},
        unit="sounds",
    )
    seconds = float(sets.train.store.seconds[sets.train.rows].sum())
    told = (*sets.notes, *uneven_notes(labels, counts, "sounds", config.train.class_weights))
    sizes = f"{len(sets.train):,} training and {len(sets.valid):,} validation sounds, {seconds / 60:,.1f} minutes"
    return PreparedRun(job, (*told, f"{sizes} at {sets.format.rate:,} Hz, {len(labels)} labels"))


def heard_digest(part: SoundPart) -> list[JSON]:
    """All that tells one set of sounds with words or labels from another."""
    return [part.store.sha256, fingerprint([part.rows]), digest_of(part.told)]


def _validation(
    batches: SoundBatches, part: SoundPart, labels: Sequence[str], rare: bool
) -> Callable[[nn.Module], Validation]:
    """Loss, accuracy and F1 on unseen sounds."""

    def validate(model: nn.Module) -> Validation:
        predicted, loss = predicted_labels(model, batches, len(part))
        found = score_labels(predicted.tolist(), batches.labels.tolist(), labels)
        errors = {"accuracy": share_error(found.accuracy, len(part)), "f1": f1_error(found.confusion)}
        firsts = zip(part.names()[:SHOWN], predicted[:SHOWN].tolist(), part.told[:SHOWN], strict=True)
        shown = [(name, labels[said], wanted) for name, said, wanted in firsts]
        return Validation({"loss": loss, **label_metrics(found, rare)}, shown, errors)

    return validate


class ClassifySoundsSubject(HearingSubject):
    """Sounds with labels."""

    @cached_property
    def labels(self) -> Tensor:
        return torch.from_numpy(np.random.default_rng(3).integers(0, len(self.bundle.config.labels), len(ROWS)))

    def take(self, rows: Sequence[int]) -> SoundBatch:
        return SoundBatch(*self.heard(rows), self.labels[list(rows)])

    def lengthened(self, batch: SoundBatch) -> SoundBatch:
        return replace(batch, frames=self.longer(batch.frames))

    def real(self, outputs: Tensor, batch: SoundBatch) -> list[Tensor]:
        return list(outputs)

    @property
    def tokenizers(self) -> dict[str, TextTokenizer]:
        return {}
