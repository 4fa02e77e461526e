"""Remember: sequences of bits in, what comes back out, how many bits are wrong, and where the heads of a machine were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.bundle import Bundle
from regard.data.batch import BitBatch
from regard.data.batches import generator
from regard.data.bits import ONE_VECTOR, made, sequences_of
from regard.errors import UsageError
from regard.files import JSON
from regard.look.map import AttentionMap
from regard.models.ponder import Ponder
from regard.models.turing_machine import TuringMachine
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel

TOGETHER = 100
TESTED = 7_000_003  # the seed of sequences for tests
SHOWN_ROWS = 64  # of a memory, in a picture
VISITED = 0.1  # a row where a head ever has so much of its weight is in the picture


@dataclass(frozen=True)
class Remembered(Result):
    """How well sequences of one length came back."""

    length: int
    sequences: int
    bits: int
    wrong: int
    whole: int  # sequences without a wrong bit
    steps: float | None = None  # that a network which ponders took for each input, on average

    @property
    def share(self) -> float:
        """Wrong bits in percent."""
        return 100 * self.wrong / self.bits

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {
            "length": self.length,
            "sequences": self.sequences,
            "bits": self.bits,
            "wrong": self.wrong,
            "wrong_percent": self.share,
            "whole": self.whole,
        }
        return found if self.steps is None else {**found, "steps": self.steps}


class Rememberer(Predictor):
    """A trained model that remembers sequences of bits, ready to use."""

    model: Any

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        which = sequences_of(bundle.config.sequences)
        self.sequences, self.most = which.task, which.most
        inputs, outputs = bundle.config.vocabulary
        self.width = inputs - 2 if which.task not in ONE_VECTOR else outputs

    def remember(
        self, length: int, count: int = 1000, progress: Progress | None = None, cancel: Cancel | None = None
    ) -> Remembered:
        """Let `count` sequences of one length come back, the same ones every time."""
        self._check(length)
        bits = wrong = whole = done = 0
        steps = 0.0
        while done < count:
            check_cancel(cancel)
            batch = self.draw(length, min(TOGETHER, count - done), done)
            found, took = self._answers(batch)
            errors = (found != (batch.targets[:, batch.counted] > 0.5)).flatten(1)  # (B, bits)
            bits, wrong = bits + errors.numel(), wrong + int(errors.sum())
            whole, steps, done = whole + int((~errors.any(dim=1)).sum()), steps + took, done + len(errors)
            if progress is not None:
                progress(done, count)
        ponders = isinstance(self.model, Ponder)
        return Remembered(length, count, bits, wrong, whole, steps / count if ponders else None)

    def _check(self, length: int) -> None:
        if length < 1 or (self.sequences in ONE_VECTOR and length > self.most):
            known = f"1 to {self.most}" if self.sequences in ONE_VECTOR else f"1 or more; it learned 1 to {self.most}"
            raise UsageError(f"no sequence has length {length}", f"take {known}")

    def draw(self, length: int, count: int, number: int = 0) -> BitBatch:
        """Sequences of one length: a pure function of it and of their number."""
        return made(self.sequences, generator(TESTED, length, number), count, length, self.width, self.most)

    @torch.inference_mode()
    def _answers(self, batch: BitBatch) -> tuple[torch.Tensor, float]:
        """The bits that come back, at the steps that count, and the steps of thinking about an input, summed."""
        inputs = batch.inputs.to(self.device)
        if isinstance(self.model, Ponder):
            logits, _, steps = self.model.run(inputs)
            took = float(steps.mean(dim=1).sum())
        else:
            logits, took = self.model.logits(BitBatch(inputs, batch.targets, batch.counted)), 0.0
        return logits[:, batch.counted].cpu() > 0, took

    @torch.inference_mode()
    def look(self, length: int, number: int = 0) -> AttentionMap:
        """Where the heads of a machine are at each step of one sequence; or how long a network thinks about each input."""
        self._check(length)
        if isinstance(self.model, TuringMachine):
            return self._heads(self.model, length, number)
        if isinstance(self.model, Ponder):
            return self._thinking(self.model, length, number)
        raise UsageError(f"a {self.config.model.kind} has no heads on a memory", "train a turing-machine, or a ponder")

    def _heads(self, model: TuringMachine, length: int, number: int) -> AttentionMap:
        """First the head that writes, then those that read: over the steps, where on the memory each is."""
        batch = self.draw(length, 1, number)
        logits, trace = model.run(batch.inputs.to(self.device))
        heads = [trace.writing[0], *trace.reading[0].unbind(dim=1)]  # each (T, N)
        weights = torch.stack(heads).double().cpu().numpy()
        used = min(
            weights.shape[2], SHOWN_ROWS, int(np.flatnonzero(weights.max(axis=(0, 1)) > VISITED).max(initial=0)) + 3
        )
        notes = ("head 0 writes, the others read", f"rows 0 to {used - 1} of the memory's {weights.shape[2]}")
        title = f"{self.sequences}, length {length}: {_wrong(logits, batch)} bits wrong"
        return AttentionMap(weights[:, :, :used], tuple(map(str, range(used))), _steps_of(batch), title, notes)

    def _thinking(self, model: Ponder, length: int, number: int) -> AttentionMap:
        """How much each step of thinking counts for each input; of inputs that come alone, one of each difficulty."""
        alone = self.sequences in ONE_VECTOR
        batches = [self.draw(each, 1, number) for each in (range(1, length + 1) if alone else (length,))]
        shares = torch.cat([model.shares(each.inputs.to(self.device))[0] for each in batches])  # (T, steps)
        weights = shares.double().cpu().numpy()
        used = int(np.flatnonzero(weights.max(axis=0) > 0).max(initial=0)) + 1
        wrong = sum(_wrong(model.logits(each.to(self.device)), each) for each in batches)
        names = tuple(str(each) for each in range(1, length + 1)) if alone else _steps_of(batches[0])
        rows = f"one input of each length from 1 to {length}" if alone else "an input after the other"
        notes = (f"rows: {rows}", "columns: steps of thinking, and how much each counts in what is said in the end")
        title = f"{self.sequences}, length {'1 to ' if alone and length > 1 else ''}{length}: {wrong} bits wrong"
        return AttentionMap(weights[:, :used], tuple(str(step + 1) for step in range(used)), names, title, notes)


def _wrong(logits: torch.Tensor, batch: BitBatch) -> int:
    """How many bits of one sequence come back wrong."""
    return int(((logits.cpu() > 0) != (batch.targets > 0.5))[0, batch.counted].sum())


def _steps_of(batch: BitBatch) -> tuple[str, ...]:
    """The steps of a sequence by number, those at which something should come out marked."""
    return tuple(f"{step}{'-out' if out else ''}" for step, out in enumerate(batch.counted.tolist()))
