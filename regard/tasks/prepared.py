"""A run that is ready to start or to go on, and what preparing one means for every task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from regard.bundle import Bundle, BundleConfig, load_bundle, load_weights, save_bundle
from regard.errors import RegardError
from regard.files import write_json
from regard.runs import CONFIG, bundle_folder
from regard.tasks.config import RunConfig
from regard.tokens import TextTokenizer, TokenizerPair, train_tokenizer
from regard.training.loop import Job

TOKENS = "tokens"  # folder of the tokenizer in a run


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
