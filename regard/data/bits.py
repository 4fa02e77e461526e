"""Sequences of bits to remember, made as they are needed (Graves et al. 2014, section 4; Graves 2016, section 3.1).

    copy-bits    some vectors, an end mark; then the same vectors
    repeat-bits  some vectors, and how often (a number beside the end mark); then they come so often, and a mark
    recall-bits  items of three vectors each, one of them again; then the item behind it
    parity-bits  one vector of -1, 0 and 1: is the number of ones odd? The more are not 0, the harder
    sum-bits     one vector, two numbers in bits of -1 and 1; their sum. The more places one carry crosses, the harder

Each batch is a pure function of the seed, the epoch and its number; all its sequences are equally long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.data.batch import BitBatch
from regard.data.batches import generator
from regard.data.config import GeneratedData, generated

ITEM = 3  # vectors of an item of recall-bits
REPEATS = 10  # most times that repeat-bits repeats
MOST = {"copy-bits": 20, "repeat-bits": 10, "recall-bits": 6, "parity-bits": 16, "sum-bits": 8}
ONE_VECTOR = ("parity-bits", "sum-bits")  # a whole question in one input; how hard it is stands for its length
MIXED = ("sum-bits",)  # of these, a batch has easy and hard ones
Sequences = tuple[np.ndarray, np.ndarray, np.ndarray]  # inputs (B, T, I), targets (B, T, O), counted (T,)


def sequences_of(name: str) -> GeneratedData:
    """Read a name such as builtin/copy-bits/20 or builtin/copy-bits/test/40."""
    return generated(name, MOST)


def channels(task: str, width: int, most: int) -> tuple[int, int]:
    """How many numbers a step takes and gives."""
    if task == "parity-bits":
        return most, 1
    if task == "sum-bits":
        return 2 * most, most + 1
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
        if self.length is None and self.task in MIXED:
            return made(self.task, dice, rows, dice.integers(1, self.most + 1, rows), self.width, self.most)
        return made(self.task, dice, rows, self.length or int(dice.integers(1, self.most + 1)), self.width, self.most)


def made(task: str, dice: np.random.Generator, rows: int, length: int | np.ndarray, width: int, most: int) -> BitBatch:
    """`rows` sequences of one length; of MIXED ones, each may have its own."""
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


def _sum(dice: np.random.Generator, rows: int, length: int | np.ndarray, width: int, most: int) -> Sequences:
    """Two numbers of `most` bits, the lowest first, whose longest carry crosses `length` places; their sum has a bit more."""
    wanted, bits = np.broadcast_to(length, rows), np.zeros((rows, 2, most), dtype=np.int64)
    wrong = np.arange(rows)
    while len(wrong):
        bits[wrong] = _with_carry(dice, wanted[wrong], most)
        wrong = np.flatnonzero(longest_carry(bits) != wanted)
    places = 1 << np.arange(most + 1)
    total = (bits * places[:-1]).sum(axis=(1, 2))
    return (2 * bits - 1).reshape(rows, 1, -1), ((total[:, None] & places) > 0)[:, None], np.ones(1, dtype=bool)


def _with_carry(dice: np.random.Generator, lengths: np.ndarray, most: int) -> np.ndarray:
    """Random pairs of bits (rows, 2, most), where a carry begins at a random place and crosses so many."""
    bits = dice.integers(0, 2, (len(lengths), 2, most))
    place = np.arange(most) - dice.integers(0, most - lengths + 1)[:, None]  # from where the carry begins
    bits[:, 1] = np.where((place > 0) & (place < lengths[:, None]), 1 - bits[:, 0], bits[:, 1])  # it goes on
    bits[:, 1] = np.where(place == lengths[:, None], bits[:, 0], bits[:, 1])  # it ends
    return np.where((place == 0)[:, None], 1, bits)


def longest_carry(bits: np.ndarray) -> np.ndarray:
    """How many places the longest carry of each pair of numbers (rows, 2, places) crosses, that of its beginning too."""
    longest = run = np.zeros(len(bits), dtype=np.int64)
    for ones in bits.sum(axis=1).T:
        run = np.select([ones == 2, (ones == 1) & (run > 0)], [1, run + 1], 0)
        longest = np.maximum(longest, run)
    return longest


MAKERS: dict[str, Callable[[np.random.Generator, int, Any, int, int], Sequences]] = {
    "copy-bits": _copy,
    "repeat-bits": _repeat,
    "recall-bits": _recall,
    "parity-bits": _parity,
    "sum-bits": _sum,
}
