"""Train a model that remembers sequences of bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import pad as widened

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import BitBatch
from regard.data.batches import generator
from regard.data.bits import ONE_VECTOR, BitBatches, channels, made, sequences_of
from regard.tasks.config import RunConfig
from regard.tasks.recipe import PreparedRun, Setup, every_batch
from regard.tasks.remember.config import RememberConfig
from regard.tasks.subject import EXTRA, ROWS, Subject
from regard.training.state import Fingerprint
from regard.training.validation import Validation, share_error
from regard.world import world

VALIDATED = 160  # sequences, of all lengths
UNSEEN = 1_000_003  # added to the seed of a run, for sequences that it does not learn from


def prepare_remember(config: RunConfig, setup: Setup) -> PreparedRun:
    """Build the model; sequences are made as they are needed."""
    assert isinstance(config, RememberConfig)
    config = setup.choose(config, examples=config.data.size)
    assert isinstance(config, RememberConfig)
    setup.note(config)
    which = sequences_of(config.data.train[0])
    sizes = channels(which.task, config.data.width, which.most)
    model = setup.build(config, sizes)
    about = BundleConfig(task="remember", model=config.model, vocabulary=sizes, sequences=config.data.train[0])
    train = batches_of(config, config.train.seed)
    length = sequences_of(config.data.valid[0]).length if config.data.valid else None
    valid = replace(batches_of(config, config.train.seed + UNSEEN), size=VALIDATED, length=length)
    same: Fingerprint = {
        "the training data": [config.data.train[0], config.data.width, config.data.size, config.data.batch]
    }
    bundle = Bundle(about, model, None, {})
    job = setup.job(
        config, bundle, train, _validation(valid), same, held_out=lambda: every_batch(valid), unit="sequences"
    )
    told = f"{which.task}: lengths from 1 to {which.most}, {config.data.size:,} new sequences an epoch"
    return PreparedRun(job, (told,))


def batches_of(config: RememberConfig, seed: int) -> BitBatches:
    which, data = sequences_of(config.data.train[0]), config.data
    return BitBatches(which.task, which.most, data.width, data.size, data.batch, seed)


def _validation(batches: BitBatches) -> Callable[[nn.Module], Validation]:
    """Loss, and the share of bits that are wrong, on sequences that were not learned from."""

    def validate(model: nn.Module) -> Validation:
        device = next(model.parameters()).device

        def measured(batch: BitBatch) -> tuple[float, float, int]:
            parts = model(batch.to(device)).parts
            return float(parts["loss"].sum), float(parts["wrong"].sum), parts["loss"].count

        found = world().share_out(every_batch(batches), measured)
        loss, lost, bits = (sum(each[part] for each in found) for part in range(3))
        wrong = 100 * lost / bits
        metrics = {"loss": loss / bits, "wrong": wrong}
        return Validation(metrics, [], {"wrong": share_error(wrong, bits)})

    return validate


class RememberSubject(Subject):
    """Sequences of random bits."""

    @cached_property
    def whole(self) -> BitBatch:
        """Five sequences to copy, or numbers of as many channels."""
        inputs, outputs = self.bundle.config.vocabulary
        dice = generator(5)
        if outputs + 2 == inputs:
            return made("copy-bits", dice, len(ROWS), 5, outputs, 5)
        x = torch.from_numpy(dice.integers(0, 2, (len(ROWS), 9, inputs)).astype("float32"))
        y = torch.from_numpy(dice.integers(0, 2, (len(ROWS), 9, outputs)).astype("float32"))
        return BitBatch(x, y, torch.arange(9) > 3)

    def take(self, rows: Sequence[int]) -> BitBatch:
        whole = self.whole
        return BitBatch(whole.inputs[list(rows)], whole.targets[list(rows)], whole.counted)

    def lengthened(self, batch: BitBatch) -> BitBatch:
        """Steps behind the sequences, which nobody has read before."""
        steps = batch.inputs.size(1)
        more = [widened(each, (0, 0, 0, EXTRA)) for each in (batch.inputs, batch.targets)]
        return BitBatch(
            more[0], more[1], torch.cat([batch.counted, torch.zeros(EXTRA, dtype=torch.bool)])[: steps + EXTRA]
        )

    def training(self, seed: int) -> BitBatches:
        which, (inputs, _) = sequences_of(self.bundle.config.sequences), self.bundle.config.vocabulary
        most = which.most if which.task in ONE_VECTOR else min(5, which.most)
        return BitBatches(which.task, most, inputs - 2, 12, 4, seed)

    def real(self, outputs: Tensor, batch: BitBatch) -> list[Tensor]:
        return list(outputs[:, : self.whole.inputs.size(1)])

    @property
    def tokenizers(self) -> dict[str, object]:  # type: ignore[override]
        return {}

    @property
    def name(self) -> str:
        return f"{super().name} that remembers"
