"""Sequences of bits to remember, made as they are needed (Graves et al. 2014, section 4; Graves 2016, section 3.1).

    copy-bits    some vectors, an end mark; then the same vectors
    repeat-bits  some vectors, and how often (a number beside the end mark); then they come so often, and a mark
    recall-bits  items of three vectors each, one of them again; then the item behind it
    parity-bits  one vector of -1, 0 and 1: is the number of ones odd? The more are not 0, the harder

Each batch is a pure function of the seed, the epoch and its number; all its sequences are equally long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from regard.data.batch import BitBatch
from regard.data.batches import generator
from regard.data.config import GeneratedData, generated

ITEM = 3  # vectors of an item of recall-bits
REPEATS = 10  # most times that repeat-bits repeats
MOST = {"copy-bits": 20, "repeat-bits": 10, "recall-bits": 6, "parity-bits": 16}
Sequences = tuple[np.ndarray, np.ndarray, np.ndarray]  # inputs (B, T, I), targets (B, T, O), counted (T,)


def sequences_of(name: str) -> GeneratedData:
    """Read a name such as builtin/copy-bits/20 or builtin/copy-bits/test/40."""
    return generated(name, MOST)


def channels(task: str, width: int, most: int) -> tuple[int, int]:
    """How many numbers a step takes and gives."""
    if task == "parity-bits":
        return most, 1
    return width + 2, width + (task == "repeat-bits")


@dataclass(frozen=True)
class BitBatches:
    """`batches.get(epoch, index)`: lengths from 1 to `most`, or exactly `length`."""

    task: str
    most: int
    width: int
    size: int  # sequences of an epoch
    batch: int
    seed: int
    length: int | None = None

    def count(self, epoch: int) -> int:
        return -(-self.size // self.batch)

    def padding_share(self) -> float:
        """There is none: all sequences of a batch are equally long."""
        return 0.0

    def get(self, epoch: int, index: int) -> BitBatch:
        dice = generator(self.seed, epoch, index)
        rows = min(self.batch, self.size - index * self.batch)
        return made(self.task, dice, rows, self.length or int(dice.integers(1, self.most + 1)), self.width, self.most)


def made(task: str, dice: np.random.Generator, rows: int, length: int, width: int, most: int) -> BitBatch:
    """`rows` sequences of one length."""
    inputs, targets, counted = MAKERS[task](dice, rows, length, width, most)
    kinds = (torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(targets.astype(np.float32)))
    return BitBatch(*kinds, torch.from_numpy(counted))


def _copy(dice: np.random.Generator, rows: int, length: int, width: int, most: int) -> Sequences:
    bits = dice.integers(0, 2, (rows, length, width))
    inputs, targets = np.zeros((rows, 2 * length + 2, width + 2)), np.zeros((rows, 2 * length + 2, width))
    inputs[:, 0, width] = inputs[:, length + 1, width + 1] = 1  # marks of the beginning and of the end
    inputs[:, 1 : length + 1, :width] = bits
    targets[:, length + 2 :] = bits
    return inputs, targets, np.arange(2 * length + 2) >= length + 2


def _repeat(dice: np.random.Generator, rows: int, length: int, width: int, most: int) -> Sequences:
    bits, times = dice.integers(0, 2, (rows, length, width)), int(dice.integers(1, REPEATS + 1))
    steps = length + 2 + length * times + 1
    inputs, targets = np.zeros((rows, steps, width + 2)), np.zeros((rows, steps, width + 1))
    inputs[:, 0, width] = 1
    inputs[:, length + 1, width + 1] = times / REPEATS
    inputs[:, 1 : length + 1, :width] = bits
    targets[:, length + 2 : -1, :width] = np.tile(bits, (1, times, 1))
    targets[:, -1, width] = 1  # that was all
    return inputs, targets, np.arange(steps) >= length + 2


def _recall(dice: np.random.Generator, rows: int, length: int, width: int, most: int) -> Sequences:
    """Items behind a mark each, then one of them, but the last, between two other marks."""
    count = max(2, length)
    items = dice.integers(0, 2, (rows, count, ITEM, width))
    asked = dice.integers(0, count - 1, rows)
    steps = (ITEM + 1) * (count + 1) + 1 + ITEM
    inputs, targets = np.zeros((rows, steps, width + 2)), np.zeros((rows, steps, width))
    for number in range(count):
        at = number * (ITEM + 1)
        inputs[:, at, width] = 1
        inputs[:, at + 1 : at + 1 + ITEM, :width] = items[:, number]
    at = count * (ITEM + 1)
    inputs[:, at, width + 1] = inputs[:, at + ITEM + 1, width + 1] = 1
    inputs[:, at + 1 : at + 1 + ITEM, :width] = items[np.arange(rows), asked]
    targets[:, -ITEM:] = items[np.arange(rows), asked + 1]
    return inputs, targets, np.arange(steps) >= steps - ITEM


def _parity(dice: np.random.Generator, rows: int, length: int, width: int, most: int) -> Sequences:
    inputs = np.zeros((rows, 1, most))
    for row in inputs[:, 0]:
        row[dice.permutation(most)[:length]] = dice.choice((-1, 1), length)
    odd = (inputs == 1).sum(axis=2) % 2
    return inputs, odd[:, :, None], np.ones(1, dtype=bool)


MAKERS: dict[str, Callable[[np.random.Generator, int, int, int, int], Sequences]] = {
    "copy-bits": _copy,
    "repeat-bits": _repeat,
    "recall-bits": _recall,
    "parity-bits": _parity,
}
