"""A run that is ready to start or to go on, and what preparing one means for every task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig, Made, load_bundle, load_weights, made_now, save_bundle
from regard.errors import RegardError, UsageError, nearest
from regard.evaluate.classification import ClassificationScores
from regard.files import write_json
from regard.runs import CONFIG, bundle_folder, read_run
from regard.tasks.config import RunConfig
from regard.tokens import TextTokenizer, TokenizerPair, train_tokenizer
from regard.training.config import Weights
from regard.training.events import Tell, Working, counting, silent
from regard.training.loop import Job
from regard.training.optimiser import autocast

TOKENS = "tokens"  # folder of the tokenizer in a run
ENCODED = 2000  # texts encoded at once
UNEVEN = 10  # times as many examples as of the rarest label

Ids = list[int]


@dataclass(frozen=True, eq=False)
class Prepared:
    """What to train, and what to tell the person about it."""

    job: Job
    notes: tuple[str, ...]

    def measured(self) -> Job:
        """The job with validations as long as they will mostly be, for telling how fast it learns."""
        return self.job


def note_run(folder: Path, config: RunConfig, data_root: Path | None, device: str) -> None:
    """Before anything else is made, so that a run killed at any later moment can be resumed.

    A run that starts over keeps the configuration that it began with, and so the names that a person gave its data.
    """
    place, made = None if data_root is None else str(data_root.absolute()), made_by(config, device)
    began = read_run(folder)["config"] if (folder / CONFIG).exists() else config.dump()
    write_json(folder / CONFIG, {"config": began, "beside": place, "made": made.model_dump(mode="json")})


def made_by(config: RunConfig, device: str) -> Made:
    """With what a run learns here."""
    rounded = not isinstance(autocast(config.train.precision, torch.device(device)), nullcontext)
    return made_now(device, "bf16" if rounded else "float32")


def make_tokenizer(
    config: RunConfig, folder: Path, texts: Iterable[str], *, resume: bool, mask: bool = False, tell: Tell = silent
) -> TextTokenizer:
    """The run's own when it goes on, that of the model it starts from, or one trained on the training texts alone."""
    place = folder / TOKENS
    if resume:
        return TokenizerPair.load(place).target
    if config.start is not None:
        tokenizer = TokenizerPair.load(bundle_folder(config.start)).target
    else:
        assert config.tokens is not None
        tell(Working("training the tokenizer"))
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
    folder: Path, config: BundleConfig, tokenizers: TokenizerPair | None, made: Made
) -> Callable[[nn.Module, str, Any], None]:
    config = config.model_copy(update={"made": made})

    def save(model: nn.Module, name: str, metrics: dict[str, Any]) -> None:
        save_bundle(folder / name, Bundle(config, model, tokenizers, metrics))

    return save


def encoded(
    tokenizer: TextTokenizer, texts: Sequence[str], tell: Tell = silent, what: str = "encoding"
) -> Iterator[Ids]:
    """The ids of each text, made in chunks, so that one hears how far it has come."""
    count = counting(tell, what)
    for start in range(0, len(texts), ENCODED):
        count(start, len(texts))
        yield from tokenizer.encode_all(texts[start : start + ENCODED])


def digest_of(*texts: Iterable[str]) -> str:
    """A digest of texts in their order."""
    digest = hashlib.sha256()
    for group in texts:
        for text in group:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        digest.update(b"end")
    return digest.hexdigest()


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
            f"train.class_weights: no label {unknown[0]!r} in the training data", nearest(unknown[0], labels)
        )
    weights = [float(asked.get(label, 1.0)) for label in labels]
    mean = sum(weight * count for weight, count in zip(weights, counts, strict=True)) / sum(counts)
    return torch.tensor([weight / mean for weight in weights])


def uneven(counts: Sequence[int]) -> bool:
    """Whether one label has so many more examples than another that accuracy alone says little."""
    return max(counts) >= UNEVEN * max(1, min(counts))


def label_metrics(found: ClassificationScores, rare: bool) -> dict[str, float]:
    """Accuracy and macro F1; where some labels are `rare`, also the accuracy of always answering the most frequent."""
    always = {"majority": found.majority} if rare else {}
    return {"accuracy": found.accuracy, **always, "f1": found.macro_f1}


def uneven_notes(labels: Sequence[str], counts: Sequence[int], what: str, asked: Weights) -> tuple[str, ...]:
    """A warning where some labels are rare, and what to do about it."""
    if not uneven(counts):
        return ()
    most, least = (labels[list(counts).index(extreme(counts))] for extreme in (max, min))
    share = f"{max(counts):,} of {sum(counts):,} training {what} ({100 * max(counts) / sum(counts):.1f}%) are {most!r}"
    told = f"labels are uneven: {share}, and {min(counts):,} {least!r}; whoever always answers {most!r} has that accuracy: "
    if asked is not None:
        return (f"{told}look at F1; labels count by train.class_weights",)
    return (f"{told}look at F1; --set train.class_weights=balanced lets rare labels count as much",)
