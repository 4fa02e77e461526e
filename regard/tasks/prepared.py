"""A run that is ready to start or to go on, and what preparing one means for every task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig, load_bundle, load_weights, save_bundle
from regard.errors import RegardError, UsageError, nearest
from regard.evaluate.classification import ClassificationScores
from regard.files import write_json
from regard.runs import CONFIG, bundle_folder
from regard.tasks.config import RunConfig
from regard.tokens import TextTokenizer, TokenizerPair, train_tokenizer
from regard.training.config import Weights
from regard.training.loop import Job

TOKENS = "tokens"  # folder of the tokenizer in a run
UNEVEN = 10  # times as many examples as of the rarest label


@dataclass(frozen=True, eq=False)
class Prepared:
    """What to train, and what to tell the person about it."""

    job: Job
    notes: tuple[str, ...]

    def measured(self) -> Job:
        """The job with validations as long as they will mostly be, for telling how fast it learns."""
        return self.job


def note_run(folder: Path, config: RunConfig, beside: Path | None) -> None:
    """Before anything else is made, so that a run killed at any later moment can be resumed."""
    write_json(folder / CONFIG, {"config": config.dump(), "beside": None if beside is None else str(beside)})


def make_tokenizer(
    config: RunConfig, folder: Path, texts: Iterable[str], *, resume: bool, mask: bool = False
) -> TextTokenizer:
    """The run's own when it goes on, that of the model it starts from, or one trained on the training texts alone."""
    place = folder / TOKENS
    if resume:
        return TokenizerPair.load(place).target
    if config.start is not None:
        tokenizer = TokenizerPair.load(bundle_folder(config.start)).target
    else:
        assert config.tokens is not None
        tokenizer = train_tokenizer(texts, config.tokens, mask=mask)
    TokenizerPair(tokenizer, tokenizer).save(place)
    return tokenizer


def take_weights(model: nn.Module, config: RunConfig, *, resume: bool) -> None:
    """The weights of the model that the run starts from, if it does; a resumed run has its own."""
    if config.start is None or resume:
        return
    folder = bundle_folder(config.start)
    if hasattr(model, "load_body"):  # a classifier on top of what was pre-trained
        body = load_bundle(folder).model
        model.load_body(dict(body.named_parameters()))  # type: ignore[operator]
        return
    try:
        load_weights(model, folder / "model.safetensors")
    except RegardError as error:
        raise RegardError(f"start: the model of {config.start} does not fit: {error}") from error


def saver(
    folder: Path, config: BundleConfig, tokenizers: TokenizerPair | None
) -> Callable[[nn.Module, str, Any], None]:
    def save(model: nn.Module, name: str, metrics: dict[str, Any]) -> None:
        save_bundle(folder / name, Bundle(config, model, tokenizers, metrics))

    return save


def fingerprint(*groups: Iterable[np.ndarray]) -> str:
    """A digest of every id in order: equal only for the same data and the same tokens."""
    digest = hashlib.sha256()
    for group in groups:
        sequences = list(group)
        digest.update(np.array([len(ids) for ids in sequences]).tobytes())
        digest.update(np.concatenate(sequences).tobytes())
    return digest.hexdigest()


def class_weights(asked: Weights, labels: Sequence[str], counts: Sequence[int]) -> Tensor | None:
    """How much each label counts in the loss: (labels,), of mean 1 over the training data; None if all count alike.

    "balanced" gives every label the same share of the loss: N / (C n) for each of n of N texts with one of C labels.
    """
    if asked is None:
        return None
    if asked == "balanced":
        asked = {label: 1 / max(1, count) for label, count in zip(labels, counts, strict=True)}
    unknown = sorted(asked.keys() - set(labels))
    if unknown:
        raise UsageError(
            f"train.class_weights: no label {unknown[0]!r} in the training data{nearest(unknown[0], labels)}"
        )
    weights = [float(asked.get(label, 1.0)) for label in labels]
    mean = sum(weight * count for weight, count in zip(weights, counts, strict=True)) / sum(counts)
    return torch.tensor([weight / mean for weight in weights])


def uneven(counts: Sequence[int]) -> bool:
    """Whether one label has so many more examples than another that accuracy alone says little."""
    return max(counts) >= UNEVEN * max(1, min(counts))


def label_metrics(found: ClassificationScores, rare: bool) -> dict[str, float]:
    """What a validation of labels says; where some are `rare`, beside accuracy what always answering one label gives."""
    always = {"majority": found.majority} if rare else {}
    return {"accuracy": found.accuracy, **always, "f1": found.macro_f1}


def uneven_notes(labels: Sequence[str], counts: Sequence[int], what: str, asked: Weights) -> tuple[str, ...]:
    """What to tell of labels of which some are rare."""
    if not uneven(counts):
        return ()
    most, least = (labels[list(counts).index(extreme(counts))] for extreme in (max, min))
    share = f"{max(counts):,} of {sum(counts):,} training {what} ({100 * max(counts) / sum(counts):.1f}%) are {most!r}"
    told = f"labels are uneven: {share}, and {min(counts):,} {least!r}; whoever always answers {most!r} has that accuracy: "
    if asked is not None:
        return (f"{told}look at F1; labels count by train.class_weights",)
    return (f"{told}look at F1; --set train.class_weights=balanced lets rare labels count as much",)
