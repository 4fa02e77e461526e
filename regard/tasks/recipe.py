"""The parts that the recipes of all tasks share: a run's tokenizer, model and job, mean losses and predicted labels."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import WEIGHTS, Bundle, Made, load_bundle, load_weights, made_now, save_bundle
from regard.config import Tables
from regard.data.config import CorporaConfig
from regard.data.graphs.config import GraphFormat
from regard.data.kept.cache import Keep, Make, find_kept, kept
from regard.data.kept.journal import Kept
from regard.data.kept.ragged import digest_rows
from regard.data.kept.tokenizers import train_text_tokenizer
from regard.data.mixed import WeightedBatches
from regard.data.pictures.config import PictureFormat
from regard.data.sound.config import SoundFormat
from regard.errors import Advice, RegardError, Setting, UsageError, nearest
from regard.evaluate.classification import ClassificationScores
from regard.files import read_json, write_json
from regard.models.config import ModelConfig
from regard.models.configs.language import BlocksConfig
from regard.models.protocols import FineTunable
from regard.models.table import build, lend_kinds
from regard.plugins import adding
from regard.runs import CONFIG, EXAMPLES, bundle_folder, read_run
from regard.tasks.choose import Chooser
from regard.tasks.config import RunConfig
from regard.tasks.table import TASKS
from regard.tasks.task import Task
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.config import Weights
from regard.training.events import OnEvent, Working, silent
from regard.training.feed import Source
from regard.training.finetune import START, FineTuning
from regard.training.job import Job
from regard.training.precision import precision_here
from regard.training.state import Fingerprint
from regard.training.validation import Validation
from regard.world import world

TOKENS = "tokens"  # folder of the tokenizer in a run
DATA = "data.json"  # in a run whose data are in the cache: the names of the entries
UNEVEN = 10  # times as many examples as of the rarest label


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """What to train, and what to tell the person about it."""

    job: Job
    notes: tuple[str, ...]

    def measured(self) -> Job:
        """The job with validations as long as they will mostly be, for telling how fast it learns."""
        return self.job


@dataclass(frozen=True, eq=False)
class Setup:
    """Where and how a run is prepared: what every recipe is given beside its configuration."""

    folder: Path
    data_root: Path | None  # from where data files are named
    resume: bool
    device: str
    emit: OnEvent
    chooser: Chooser | None = None  # of what the person left open; None: the configuration is complete

    def choose(self, config: RunConfig, **facts: float) -> RunConfig:
        """The configuration with what the task's rules say for data like this, in the time there is."""
        if self.chooser is None:
            return config
        return self.chooser.by_rules(config, TASKS[config.task].rules, facts)

    def choose_context(self, config: RunConfig, context: int) -> RunConfig:
        """The configuration with windows no longer than the model reads, and a model that reads at once no more than they have.

        Windows four times as long as those of training cost 0.28 bits a byte (tiny Shakespeare, rotary positions).
        """
        if self.chooser is None:
            return config
        longest, why = config.model.longest, "the model reads no more"
        config = self.chooser.at_most(config, "data.context", context, longest, why)
        if config.start is not None or not isinstance(config.model, BlocksConfig):
            return config
        learned, why = (
            min(context, longest or context),
            "as much as it learns to read at once; farther on it guesses worse",
        )
        return self.chooser.at_most(config, "model.max_length", config.model.max_length, learned, why)

    def choose_size(self, config: RunConfig, make: Callable[[RunConfig], tuple[nn.Module, Source]]) -> RunConfig:
        """The configuration with the largest model that learns enough in the time; `make` gives it and its batches."""
        sizes = TASKS[config.task].sizes.get(config.model.kind)
        if self.chooser is None or sizes is None or config.start is not None:
            return config
        self.emit(Working("measuring the speed of updates"))
        return self.chooser.size(config, sizes, make)

    def keep(self, part: str = "") -> Keep:
        """How a part of the run's data is found in the cache, or made: a run that goes on takes what it began with.

        The names of the entries are noted in the run's folder. Files may have changed, or be gone: only if an entry is gone,
        too, it is made again, and must be the same.
        """

        def find(kind: str, key: Callable[[], str], make: Make) -> Kept:
            place = f"{part} {kind}".strip()
            noted = self._noted().get(place) if self.resume else None
            if noted is not None and (found := find_kept(noted)) is not None:
                return found
            entry = kept(
                kind, key(), make, lambda: self.emit(Working("waiting for another run that reads the same data"))
            )
            if noted is not None and entry.key != noted:
                raise RegardError(
                    f"cannot resume: the files of {self.folder} ({place}) changed since the run started, and what was made of "
                    "them then is no longer in the cache",
                    "put the old files back, or start a new run",
                )
            if entry.key:
                write_json(self.folder / DATA, self._noted() | {place: entry.key})
            return entry

        return find

    def keep_corpus(self, number: int) -> Keep:
        """How corpus `number` is found: 0 is data.train, the others are data.also."""
        return self.keep(f"corpus {number}" if number else "")

    def _noted(self) -> dict[str, str]:
        return dict(read_json(self.folder / DATA)) if (self.folder / DATA).exists() else {}

    def progress(self, what: str, done: int, total: int) -> None:
        """Tell how far the preparation has come."""
        self.emit(Working(what, done, total))

    def note(self, config: RunConfig) -> None:
        """Write down what the run is, so that one killed at any later moment can be resumed; a resumed run has it."""
        if not self.resume:
            note_run(self.folder, config, self.data_root, self.device, self.chooser)

    def tokenizer(
        self, config: RunConfig, sample: Callable[[int], Iterable[str]], key: str = "", *, mask: bool = False
    ) -> TextTokenizer:
        """The run's own when it goes on, that of the model it starts from, or one trained on the training texts alone.

        `sample` gives some of these with so many characters, and `key` is that of the entry that they are kept in.
        """
        place = self.folder / TOKENS
        if self.resume:
            return TokenizerPair.load(place).target
        if config.start is not None:
            tokenizer = TokenizerPair.load(bundle_folder(config.start)).target
        else:
            assert config.tokens is not None
            say = partial(self.emit, Working("training the tokenizer"))
            tokenizer = train_text_tokenizer(sample, key, config.tokens, mask, self.keep(), say)
        TokenizerPair(tokenizer, tokenizer).save(place)
        return tokenizer

    def build(
        self,
        config: RunConfig,
        vocabulary: tuple[int, ...] = (),
        *,
        labels: int = 0,
        pictures: PictureFormat | None = None,
        sounds: SoundFormat | None = None,
        graphs: GraphFormat | None = None,
        model: ModelConfig | None = None,
    ) -> nn.Module:
        """The model with fresh weights by the run's seed, or with those of the model that the run starts from."""
        torch.manual_seed(config.train.seed)
        smoothing, how = config.train.smoothing, model or config.model
        built = build(
            config.task,
            how,
            vocabulary,
            labels=labels,
            pictures=pictures,
            sounds=sounds,
            graphs=graphs,
            smoothing=smoothing,
        )
        if config.start is not None and not self.resume:
            take_weights(built, config.start)
        elif (self.folder / START).exists():  # features of what does not learn are computed before checkpoints are read
            load_weights(built, self.folder / START)
        return built

    def job(
        self,
        config: RunConfig,
        bundle: Bundle,
        batches: Source,
        validate: Callable[[nn.Module], Validation],
        fingerprint: Fingerprint,
        *,
        held_out: Callable[[], Iterable[Any]] | None = None,
        probe: Callable[[nn.Module, int], None] | None = None,
        unit: str = "tokens",
        tuning: FineTuning | None = None,
    ) -> Job:
        """The job for the training loop: to learn from `batches`, to validate, and to save bundles like `bundle`."""
        return Job(
            folder=self.folder,
            config=config.train,
            model=bundle.model,
            width=config.model.width,
            batches=batches,
            validate=validate,
            save=saver(self.folder, bundle, made_by(config, self.device)),
            fingerprint={**fingerprint, "the model": config.model},
            device=torch.device(self.device),
            clock=time.monotonic if self.chooser is None else self.chooser.clock,
            asked=None if self.chooser is None else self.chooser.asked_at,
            held_out=held_out,
            probe=probe,
            unit=unit,
            tuning=tuning,
        )


def add_task(task: Task, example: str = "") -> None:
    """Put a task of one's own beside ours; `example` is what to type to use the model in {model}.

    Its kinds of models are those of the task that it is `like`, and those that plugins add for it.
    """
    adding("task", task.name, TASKS)
    TASKS[task.name] = task
    lend_kinds(task.like, task.name)
    if example:
        EXAMPLES[task.name] = example


class Prepare(Protocol):
    """A recipe: read the data, make or reload the tokenizer, build the model. Nothing is trained yet."""

    def __call__(self, config: RunConfig, setup: Setup, /) -> PreparedRun: ...


def prepare(
    config: RunConfig,
    folder: Path,
    *,
    data_root: Path | None,
    resume: bool,
    device: str = "cpu",
    emit: OnEvent = silent,
    chooser: Chooser | None = None,
) -> PreparedRun:
    """Read the data, make or reload the tokenizer, build the model, as the task's recipe says. Nothing is trained yet."""
    emit(Working("reading the data"))
    if chooser is not None:
        config = chooser.timed(config)
    return TASKS[config.task].prepare(config, Setup(folder, data_root, resume, device, emit, chooser))


def note_run(
    folder: Path, config: RunConfig, data_root: Path | None, device: str, chooser: Chooser | None = None
) -> None:
    """Before anything else is made, so that a run killed at any later moment can be resumed.

    A run that starts over keeps the configuration that it began with, and so the names that a person gave its data; one
    whose settings are still being chosen does not yet have one.
    """
    place, made = None if data_root is None else str(data_root.absolute()), made_by(config, device)
    keeps = chooser is None and (folder / CONFIG).exists()
    began = read_run(folder)["config"] if keeps else config.dump()
    about: Tables = {"config": began, "beside": place, "made": made.model_dump(mode="json")}
    if chooser is not None:
        about["chosen"] = [asdict(choice) for choice in chooser.choices]
    write_json(folder / CONFIG, about)


def made_by(config: RunConfig, device: str) -> Made:
    """With what a run learns here."""
    return made_now(device, precision_here(config.train.precision, torch.device(device)))


def take_weights(model: nn.Module, start: str) -> None:
    """Give a model the weights of the one that its run starts from: all of them, or those below a classifier."""
    folder = bundle_folder(start)
    if isinstance(model, FineTunable):
        model.load_body(dict(load_bundle(folder).model.named_parameters()))
        return
    try:
        load_weights(model, folder / WEIGHTS)
    except RegardError as error:
        raise RegardError(f"start: the model of {start} does not fit: {error}") from error


def saver(folder: Path, bundle: Bundle, made: Made) -> Callable[[nn.Module, str, Any], None]:
    """Make the function that writes the bundle `name` of a run, with the model's weights and metrics of the moment."""
    config = bundle.config.model_copy(update={"made": made})

    def save(model: nn.Module, name: str, metrics: Tables) -> None:
        save_bundle(folder / name, Bundle(config, model, bundle.pair, metrics))

    return save


def mean_loss(model: nn.Module, batches: Iterable[Any]) -> tuple[float, float]:
    """The negative log-likelihood summed over batches, and over how many tokens."""
    device = next(model.parameters()).device

    def measured(batch: Any) -> tuple[float, float]:
        part = model(batch.to(device)).parts["nll"]
        return float(part.sum), part.count

    found = world().share_out(batches, measured)
    return sum(total for total, _ in found), sum(count for _, count in found)


def loss_metrics(total: float, count: float) -> dict[str, float]:
    return {"loss": total / count, "perplexity": math.exp(min(50.0, total / count))}


@dataclass(frozen=True)
class SomeBatches(Sequence[Any]):
    """Batches of the first epoch, each made when it is asked for."""

    source: Source
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return SomeBatches(self.source, self.numbers[index])
        return self.source.get(0, self.numbers[index])


def every_batch(source: Source) -> SomeBatches:
    """The batches of the first epoch, one after the other."""
    return SomeBatches(source, range(source.count(0)))


def some_batches(source: Source, most: int) -> SomeBatches:
    """At most so many batches of the first epoch, from all over it, the same each time."""
    count = source.count(0)
    taken = min(most, count)
    return SomeBatches(source, [number * count // taken for number in range(taken)])


def sampled_note(read: int, total: int) -> tuple[str, ...]:
    """A note that a validation reads only some of its tokens."""
    told = f"a validation reads about {read:,} of {total:,} tokens, from all over the text, the same each time; "
    return (Advice(told, Setting("validate.tokens", str(total)), " reads all"),)


def predicted_labels(model: Any, batches: Any, count: int) -> tuple[np.ndarray, float]:
    """The likeliest label of each of `count` examples, and the mean cross-entropy of the right ones."""
    device, predicted, plan = next(model.parameters()).device, np.zeros(count, dtype=np.int64), batches.plan(0)

    def measured(rows: Any) -> tuple[list[int], float]:
        batch = batches.take(rows).to(device)
        logits = model.logits(batch)
        loss = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum")
        return logits.argmax(dim=-1).tolist(), float(loss)

    found = world().share_out(plan, measured)
    for rows, (labels, _) in zip(plan, found, strict=True):
        predicted[rows] = labels
    return predicted, sum(loss for _, loss in found) / count


def digest_of(*texts: Iterable[str]) -> str:
    """A digest of texts in their order."""
    digest = hashlib.sha256()
    for group in texts:
        for text in group:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        digest.update(b"end")
    return digest.hexdigest()


def fingerprint(*groups: Sequence[np.ndarray]) -> str:
    """A digest of every id in order: equal only for the same data and the same tokens."""
    digest = hashlib.sha256()
    for group in groups:
        digest_rows(digest, group)
    return digest.hexdigest()


def corpora_note(data: CorporaConfig, batches: object, counts: Sequence[str]) -> tuple[str, ...]:
    """A sentence on how often each of several corpora comes; `counts` say how much each has."""
    if not isinstance(batches, WeightedBatches):
        return ()
    names = [", ".join(each) for each in ((getattr(data, "train", ())), *(each.train for each in data.further))]
    rows = zip(names, counts, batches.shares, data.weights, strict=True)
    told = "; ".join(f"{name} ({count}, weight {weight:g}) {share:.1%}" for name, count, share, weight in rows)
    return (f"shares of the batches at temperature {data.temperature:g}: {told}",)


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
    balanced = Setting("train.class_weights", "balanced")
    return (Advice(f"{told}look at F1; ", balanced, " lets rare labels count as much"),)
