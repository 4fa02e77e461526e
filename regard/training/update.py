"""An update of the weights: from batches to a loss, its gradient, a step of the optimiser, and a row of the log."""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

from torch import nn
from torch.autograd.graph import increment_version

from regard.blocks import recompute
from regard.errors import UsageError
from regard.models.loss import Loss
from regard.noise import Place as NoisePlace
from regard.noise import noise
from regard.training.compiled import compile_as_asked
from regard.training.energy import EnergyMeter
from regard.training.events import OnEvent
from regard.training.feed import Feed, Place, Portion
from regard.training.guard import ALL_FINITE, check_update, locate
from regard.training.history import CLOCK, RunLog
from regard.training.job import Job
from regard.training.optimiser import (
    clip_gradient,
    layer_norms,
    learning_rate,
    make_optimiser,
    set_rate,
)
from regard.training.precision import Scaling, autocast, products_in
from regard.training.shares import Batch, Share
from regard.training.state import (
    Learner,
    MadeWhileLearning,
    MovingAverage,
    TrainingProgress,
)
from regard.training.stopwatch import Stopwatch, peak_memory
from regard.training.together import Together

Number = TypeVar("Number", int, float)
COUNT = "count."  # before the name of a part of the loss: over how many items its sum goes


class Updates(ABC):
    """A model that learns update by update; when to validate, save and stop is for others to say (`Trainer`)."""

    def __init__(self, job: Job, emit: OnEvent) -> None:
        self.job, self.config, self.emit, self.world = job, job.config, emit, job.world
        self.model = job.model.to(job.device)
        if job.config.recompute:
            recompute(self.model)
        compile_as_asked(self.model, job.config, job.world, job.device)
        made = job.batches if isinstance(job.batches, MadeWhileLearning) else None
        if made is not None and job.config.shard and not job.world.is_alone:
            raise UsageError("train.shard cuts weights, and what learns from its own answers writes with whole ones")
        self.together = Together(self.model, job.world, job.device, job.config, job.clock)
        self.clock = self.together.clock
        self.parameters = list(self.model.parameters())
        optimiser = make_optimiser(self.model, job.config)
        self.together.replicate()
        ema = MovingAverage(self.model, job.config.ema) if job.config.ema else None
        self.learner = Learner(self.model, optimiser, ema, TrainingProgress(), made)
        self.scaling = Scaling(job.config.precision, job.device, job.world)
        self.feed = Feed(job.batches, job.config, job.world, job.device)
        self.log = RunLog(job.folder, writes=job.world.is_first)
        self.checkpoints, self.snapshots = job.folder / "checkpoints", job.folder / "snapshots"
        epoch = max(1, job.batches.count(0) // job.config.accumulate)  # updates
        self.every = job.config.validate_every or min(1000, max(100, epoch))
        self.most_steps = math.ceil(min(job.config.steps, (job.config.epochs or math.inf) * epoch))
        self.started = self.clock()
        self.waited = 0.0  # seconds spent on making batches since the last row of the log
        self.meter = EnergyMeter()
        self.watch = self.new_watch()
        self.asked: list[str] = []  # the signals by which a person asked to stop

    @property
    def progress(self) -> TrainingProgress:
        return self.learner.progress

    def learn(self) -> None:
        """Update the weights from `accumulate` batches, whose losses add up before they are divided."""
        portion = self.next_portion()
        if not self.model.training:  # telling every module costs a millisecond
            self.model.train()
        sums: dict[str, float] = {}
        for share in portion.shares:
            with self.together.reducing(now=share is portion.shares[-1]), products_in(self.config.precision):
                _add(sums, self.backward(share, portion.totals))
        sums = self.together.tally(sums, bool(self.asked))
        loss, optimiser = sums["loss"] / portion.totals["loss"], self.learner.optimiser
        if self.scaling.overflows(optimiser) and math.isfinite(loss):
            self.skip()
            return
        norm = clip_gradient(self.parameters, self.config.clip)
        layers = layer_norms(self.model, self.config.clip, norm) if self.logs_at(self.progress.step + 1) else {}
        trouble = check_update(loss, norm, self.progress.first_loss, portion.totals["loss"])
        if trouble:
            self.go_back(trouble, portion.shares)
            return
        self.apply(norm, sums, portion.totals, layers)

    def skip(self) -> None:
        """Leave out an update whose gradient overflowed in fp16; the next one has a smaller scale."""
        self.learner.optimiser.zero_grad(set_to_none=True)
        self.scaling.update()
        self.progress.skipped += 1

    @abstractmethod
    def go_back(self, trouble: str, shares: Sequence[Share]) -> None:
        """What to do about an update that went wrong."""

    def backward(self, share: Share, totals: dict[str, int]) -> dict[str, float]:
        """The sum of each part of the loss, and its count as `count.NAME`."""
        loss = self.forward(share.batch, share.number, share.place, self.together.replica)
        objective = loss.objective(totals)
        self.scaling.scale(objective if share.counts else 0.0 * objective).backward()
        sums = {name: float(part.sum.detach()) for name, part in loss.parts.items()}
        sums |= {COUNT + name: float(part.count) for name, part in loss.parts.items()}
        return sums if share.counts else dict.fromkeys(sums, 0.0)

    def forward(self, batch: Batch, number: int, place: NoisePlace = None, model: nn.Module | None = None) -> Loss:
        """The loss of micro-batch `number`; its dropout is seeded here, by (seed, step, micro-batch).

        `place`: of the batch's rows in a whole that several processes share.
        """
        key = (self.config.seed, self.progress.step, number)
        with noise(*key, place=place), autocast(self.config.precision, self.job.device):
            return (model or self.model)(batch)

    def locate(self, shares: Sequence[Share]) -> str:
        """Where it went wrong, in the rows of the first process that sees it."""
        found = ""
        with contextlib.suppress(RuntimeError):
            forwards = [partial(self.forward, each.batch, each.number, each.place) for each in shares]
            found = locate(self.model, forwards)
        told = [each for each in self.world.gather(found) if each]
        told = [each for each in told if each != ALL_FINITE] or told
        return f", {told[0]}" if told else ""

    def next_portion(self) -> Portion:
        """What this update learns from; progress stands behind it in the data then."""
        began, progress = time.monotonic(), self.progress
        portion = self.feed.next(Place(progress.epoch, progress.index))
        progress.epoch, progress.index = portion.behind.epoch, portion.behind.index
        self.waited += time.monotonic() - began
        return portion

    def apply(self, norm: float, sums: dict[str, float], totals: dict[str, int], layers: Mapping[str, float]) -> None:
        """Update the weights; `layers` are the norms of each layer's gradient, where the log gets them."""
        progress, optimiser = self.progress, self.learner.optimiser
        rate = self.rate(progress.step + 1) * progress.rate_factor
        set_rate(optimiser, rate)
        optimiser.step()
        increment_version(self.parameters)  # fused steps do not count themselves, and what is laid out would grow stale
        optimiser.zero_grad(set_to_none=True)
        self.scaling.update()
        progress.step += 1
        progress.tokens += totals["loss"]
        if progress.first_loss is None:
            progress.first_loss = sums["loss"] / totals["loss"]
        if self.learner.ema is not None:
            self.learner.ema.update(self.model, progress.step)
        _add(progress.interval, sums)
        self.record(rate, norm, layers)
        self.emit_forecast()

    def rate(self, step: int) -> float:
        """The learning rate of update `step`."""
        return learning_rate(step, self.config, self.job.width)

    def record(self, rate: float, norm: float, layers: Mapping[str, float]) -> None:
        """A row of the log every so often, with the means since the last row; the person hears of it more often."""
        progress = self.progress
        logged = self.logs_at(progress.step)
        if not logged and not self.watch.is_due():
            return
        means = _means(progress.interval)
        if logged:
            progress.interval = {}
            place = {"kind": "train", "step": progress.step, "epoch": progress.epoch}
            gradient = {"gradient_norm": norm, "gradient_norms": layers, **self.scaled()}
            self.log.write({**place, **means, "learning_rate": rate, **gradient, "tokens": progress.tokens})
            clock = {"seconds": round(self.spent(), 3), "waited": round(self.waited, 4), "memory": peak_memory()}
            joules = self.meter.since_last()
            self.log.write({"step": progress.step, **clock, **({} if joules is None else {"joules": joules})}, CLOCK)
            self.waited = 0.0
        so_far = (progress.step, progress.epoch, progress.tokens, self.spent())
        self.emit(self.watch.progress(*so_far, means, self.last_update()))

    def scaled(self) -> dict[str, float]:
        """In fp16, by how much the loss is multiplied, and how many updates were left out so far."""
        scaling = self.scaling
        return {"scale": scaling.get_scale(), "skipped": self.progress.skipped} if scaling.is_enabled() else {}

    def logs_at(self, step: int) -> bool:
        """Whether the log gets a row after this update."""
        return step % self.every == 0 or step % self.config.log_every == 0

    def last_update(self) -> int | None:
        """The last update, if the clock has decided which that is."""
        return None

    def emit_forecast(self) -> None:
        """Tell, once, how long the run will take."""
        progress, padding = self.progress, self.job.batches.padding_share
        found = self.watch.forecast(progress.step, progress.tokens, self.spent(), padding)
        if found is not None:
            self.emit(found)

    def new_watch(self) -> Stopwatch:
        progress, config = self.progress, self.config
        span = None if config.budget is None else config.budget - progress.prepared
        return Stopwatch(config, self.job.unit, progress.step, progress.tokens, self.spent(), self.most_steps, span)

    def spent(self) -> float:
        """Seconds of training, over all resumes."""
        return self.progress.seconds + self.clock() - self.started

    def spent_in_all(self) -> float:
        """Seconds since the run was asked for, without those between a stop and a resume."""
        return self.progress.prepared + self.spent()


def _add(sums: dict[str, Number], more: Mapping[str, Number]) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, 0) + value


def _means(interval: Mapping[str, float]) -> dict[str, float]:
    """The mean of each part of the loss over what it counted; of what counted nothing there is none."""
    counts = {name: count for name in interval if (count := interval.get(COUNT + name))}
    return {name: interval[name] / count for name, count in counts.items()}
