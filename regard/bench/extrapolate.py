"""Losses of language models on windows longer than those of their training, on the validation text of their runs or another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batch import TextBatch
from regard.data.documents import read_documents
from regard.data.stream import TokenStream, evaluation_batches
from regard.data.text_sets import load_texts
from regard.errors import Advice, Option, UsageError, Verb
from regard.models.config import GPTLineConfig
from regard.models.loss import CHUNK_ELEMENTS, target_log_probabilities
from regard.models.table import build
from regard.runs import CONFIG, bundle_task, data_root_of, read_run
from regard.tasks.configure import check_run
from regard.tasks.generate.config import GenerateConfig
from regard.tasks.generate.predictor import Generator


def trained_context(run: str | Path) -> int:
    """Tokens that were predicted in a window of training text."""
    folder = _folder(run)
    if folder is None:
        raise UsageError(
            f"{run} is no run, so its context in training is not known", Advice("say it with ", Option("context"))
        )
    return _config(folder).data.context


def validation_texts(runs: Sequence[str | Path]) -> list[str]:
    """The documents that the runs were validated on, which must be the same ones."""
    found = [_validation_texts(run) for run in runs]
    if any(each != found[0] for each in found):
        raise UsageError(
            "these runs were validated on different texts", Advice("name one text for all of them with ", Option("on"))
        )
    return found[0]


def _validation_texts(run: str | Path) -> list[str]:
    folder = _folder(run)
    if folder is None:
        raise UsageError(
            f"{run} is no run, so its validation text is not known", Advice("name a text with ", Option("on"))
        )
    return list(load_texts(_config(folder).data, data_root_of(read_run(folder))).valid)


def _folder(run: str | Path) -> Path | None:
    """The run's folder; a bundle may lie in one."""
    places = (Path(run), Path(run).resolve().parent)
    return next((place for place in places if (place / CONFIG).exists()), None)


def _config(folder: Path) -> GenerateConfig:
    config = check_run(read_run(folder)["config"], str(folder))
    if not isinstance(config, GenerateConfig):
        raise UsageError(
            f"{folder} is a model to {config.task}", "windows of a text are for language models (generate)"
        )
    return config


TOGETHER = 4096  # tokens of a batch, or one window


@dataclass(frozen=True)
class Stretch:
    """The mean loss of predictions from position `first` of a window on, before `end`."""

    first: int
    end: int
    loss: float
    change: float  # against the same predictions in windows of training: above zero is worse


@dataclass(frozen=True)
class AtLength:
    """The loss of a model on a text read in windows of so many tokens; `loss` is in nats for each token."""

    times: int  # the context of training
    window: int
    loss: float = math.nan
    perplexity: float = math.nan
    bits_per_byte: float = math.nan
    tokens: int = 0
    by_place: tuple[Stretch, ...] = ()  # each as long as a window of training
    cannot: str = ""  # why there is no loss


@dataclass(frozen=True)
class Extrapolation:
    """One model at all lengths."""

    run: str
    positions: str
    trained: int  # tokens of a window in training
    lengths: tuple[AtLength, ...]
    interpolated: bool = False  # rotary positions were divided by the multiple

    @property
    def name(self) -> str:
        return f"{self.run} (interpolated)" if self.interpolated else self.run

    def data(self) -> dict[str, object]:
        return asdict(self)


def extrapolate(
    runs: Sequence[str | Path],
    on: Sequence[str] = (),
    *,
    times: Sequence[int] = (1, 2, 4, 8),
    interpolate: bool = False,
    context: int | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Extrapolation]:
    """Each run at windows of `times` its context of training (`context`, where the run does not tell).

    The text is that of the files `on`, or what the runs were validated on. With `interpolate`, models with rotary
    positions are also told that a longer window is as long as the one of training (Chen et al. 2023).
    """
    if not times or min(times) < 1:
        raise UsageError(f"windows are 1, 2, 4 .. times as long as in training, not {list(times)}")
    for run in runs:
        _check_task(run)
    texts = read_documents(on).texts if on else validation_texts(runs)
    readers = [Reader(str(run), Generator.load(run, device), texts, context or trained_context(run)) for run in runs]
    if interpolate and not any(reader.turns for reader in readers):
        raise UsageError("to interpolate is for rotary positions, which none of these models has", "leave it out")
    ways = (False, True) if interpolate else (False,)
    work = [(reader, turned) for reader in readers for turned in ways if reader.turns or not turned]
    found, total = [], len(work) * len(times)
    for number, (reader, turned) in enumerate(work):
        before = number * len(times)
        found.append(reader.extrapolation(times, turned, partial(_further, progress, before, total)))
    return found


def _further(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    progress(before + done, total)


class Reader:
    """A model with a text in its tokens, ready to be read in windows of any length."""

    def __init__(self, run: str, generator: Generator, texts: list[str], trained: int) -> None:
        self.run, self.generator, self.trained = run, generator, trained
        special = generator.tokenizer.specials
        ids = [np.array([special.begin, *each, special.end]) for each in generator.tokenizer.encode_all(texts)]
        self.stream = TokenStream(np.concatenate(ids), generator.config.vocabulary[0])
        self.bytes = sum(len(text.encode()) for text in texts)
        config = generator.config.model
        self.positions = config.positions if isinstance(config, GPTLineConfig) else "recurrent"

    @property
    def turns(self) -> bool:
        return self.positions == "rotary"

    def extrapolation(
        self, times: Sequence[int], interpolated: bool, tell: Callable[[int], None] = lambda done: None
    ) -> Extrapolation:
        """The model at all lengths; `tell` hears how many of them are done."""
        lengths = []
        for done, factor in enumerate(times, start=1):
            lengths.append(self.at_length(factor, interpolated))
            tell(done)
        return Extrapolation(self.run, self.positions, self.trained, tuple(lengths), interpolated)

    def at_length(self, times: int, interpolated: bool) -> AtLength:
        here, longest = AtLength(times, times * self.trained), self.generator.config.model.longest
        if longest is not None and here.window > longest:
            return replace(here, cannot=f"{longest} {self.positions} positions")
        if here.window > len(self.stream) - 1:
            return replace(here, cannot=f"the text has {len(self.stream):,} tokens")
        losses = self.usual if times == 1 else self.losses(times, interpolated)  # (N - 1,)
        loss = float(losses.mean())
        return replace(
            here,
            loss=loss,
            perplexity=math.exp(min(50.0, loss)),
            bits_per_byte=float(losses.sum()) / math.log(2) / self.bytes,
            tokens=len(losses),
            by_place=_stretches(losses, self.usual, times, self.trained),
        )

    @cached_property
    def usual(self) -> np.ndarray:
        """The losses in windows of training."""
        return self.losses(1, interpolated=False)

    def losses(self, times: int, interpolated: bool) -> np.ndarray:
        model = interpolated_by(times, self.generator) if interpolated else self.generator.model
        return stream_losses(model, self.stream, times * self.trained, self.generator.device)


@torch.inference_mode()
def stream_losses(model: nn.Module, stream: TokenStream, window: int, device: torch.device) -> np.ndarray:
    """The loss of every token of a stream but the first, in order, read in windows of this length: (N - 1,)."""
    batches = evaluation_batches(stream, window, max(1, TOGETHER // window))
    return np.concatenate([token_losses(model, batch.to(device)).flatten().double().cpu() for batch in batches])


def token_losses(model: Any, batch: TextBatch) -> Tensor:
    """The loss of every prediction of a batch without padding: (B, T)."""
    hidden = model.hidden(batch).flatten(0, 1)  # (B T, D)
    wanted, weight = batch.ids[:, 1:].reshape(-1), model.output.weight
    rows = max(1, CHUNK_ELEMENTS // len(weight))
    chunks = zip(hidden.split(rows), wanted.split(rows), strict=True)
    found = torch.cat([target_log_probabilities(vectors, weight, ids) for vectors, ids in chunks])
    return -found.view(len(batch.ids), -1)


def interpolated_by(times: int, generator: Generator) -> nn.Module:
    """The same weights, told that positions are so many times nearer."""
    config = generator.config.model
    assert isinstance(config, GPTLineConfig)
    nearer = config.model_copy(update={"rotary_scale": config.rotary_scale * times})
    model = build("generate", nearer, generator.config.vocabulary)
    model.load_state_dict(generator.model.state_dict())
    return model.to(generator.device).eval()


def _stretches(losses: np.ndarray, usual: np.ndarray, times: int, trained: int) -> tuple[Stretch, ...]:
    """Means over the parts of a window that are as long as one of training; losses and what is usual are (N - 1,)."""
    part = np.arange(len(losses)) // trained % times
    count = np.bincount(part)
    loss, before = np.bincount(part, losses) / count, np.bincount(part, usual) / count
    return tuple(
        Stretch(number * trained, (number + 1) * trained, float(loss[number]), float(loss[number] - before[number]))
        for number in range(times)
    )


def _check_task(run: str | Path) -> None:
    task = bundle_task(run)
    if task == "generate":
        return
    longer = (
        ("; for longer inputs: ", Verb("compare", "RUN RUN --on test.tsv --join 2 4")) if task == "translate" else ()
    )
    raise UsageError(f"{run} is a model to {task}", Advice("to extrapolate is for language models (generate)", *longer))
