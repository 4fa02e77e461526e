"""Questions about tables as numbers, and batches of them: a pure function of the seed, the epoch and their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from regard.data.batch import TableBatch, pad
from regard.data.batches import padding_of, plan_by_length
from regard.data.programs import Table, TableQuestion
from regard.data.tables import ReadQuestion, read_question
from regard.errors import RegardError
from regard.tokens import TextTokenizer


@dataclass(frozen=True, eq=False)
class EncodedQuestion:
    """A question as ids, with its table and its answer as numbers."""

    ids: np.ndarray  # (words,)
    read: ReadQuestion
    cells: np.ndarray  # (rows, columns); zeros where there is no number
    numeric: np.ndarray  # (rows, columns), bool: the cells that are numbers
    wanted: float  # the number that is the answer; 0 where cells are printed
    printed: np.ndarray  # (rows, columns), bool: the cells that are printed
    prints: bool


def cells_of(table: Table) -> np.ndarray:
    """The numbers of a table, zeros where there is none: (rows, columns)."""
    rows = [[0.0 if isinstance(cell, str) else float(cell) for cell in row] for row in table.rows]
    return np.array(rows, dtype=np.float64).reshape(len(table.rows), len(table.columns))


def encode_question(asked: TableQuestion, tokenizer: TextTokenizer) -> EncodedQuestion:
    """A question and its table as numbers."""
    read = read_question(asked.question, asked.table.columns)
    ids = np.array(tokenizer.encode(str(read)), dtype=np.int64)
    if not len(ids) or len(ids) != len(read.words):
        raise RegardError(f"{asked.question!r} is {len(read.words)} words and {len(ids)} tokens", "ask it in words")
    cells = cells_of(asked.table)
    printed = np.zeros(cells.shape, dtype=bool)
    for row, column in asked.cells:
        printed[row, column] = True
    wanted = 0.0 if isinstance(asked.answer, tuple) else float(asked.answer)
    numeric = np.array([[not isinstance(cell, str) for cell in row] for row in asked.table.rows])
    return EncodedQuestion(ids, read, cells, numeric, wanted, printed, asked.prints)


class TableBatches:
    """`batches.get(epoch, index)`. A batch holds at most `batch_tokens` words of questions, padding included."""

    def __init__(self, questions: Sequence[EncodedQuestion], fill: int, batch_tokens: int, seed: int) -> None:
        self.questions, self.pad, self.batch_tokens, self.seed = questions, fill, batch_tokens, seed
        self._lengths = np.array([len(each.ids) for each in questions])
        if self._lengths.max(initial=0) > batch_tokens:
            raise RegardError(
                f"a question has {self._lengths.max()} words and a batch only {batch_tokens}",
                "raise train.batch_tokens",
            )
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the rows of each batch

    def __len__(self) -> int:
        return len(self.questions)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> TableBatch:
        return self.take(self.plan(epoch)[index])

    def take(self, rows: Sequence[int] | np.ndarray) -> TableBatch:
        return table_batch([self.questions[int(row)] for row in rows], self.pad)

    def padding_share(self) -> float:
        """The share of padding among all words of the first epoch."""
        return padding_of(self.plan(0), self._lengths)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.batch_tokens, (self.seed, epoch))


def table_batch(questions: Sequence[EncodedQuestion], fill: int) -> TableBatch:
    """A batch of questions with their tables."""
    words, lengths = pad([each.ids for each in questions], fill)
    count, rows = len(questions), max(len(each.cells) for each in questions)
    columns = max(each.cells.shape[1] for each in questions)
    names, numbers = [len(each.read.columns) for each in questions], [len(each.read.numbers) for each in questions]
    name_places, which = (np.zeros((count, max(1, *names, 0)), dtype=np.int64) for _ in range(2))
    number_places = np.zeros((count, max(1, *numbers, 0)), dtype=np.int64)
    signs = np.zeros((count, number_places.shape[1], rows, columns), dtype=np.float32)
    cells, printed = np.zeros((count, rows, columns), dtype=np.float32), np.zeros((count, rows, columns), dtype=bool)
    for row, each in enumerate(questions):
        tall, wide = each.cells.shape
        cells[row, :tall, :wide], printed[row, :tall, :wide] = each.cells, each.printed
        for place, named in enumerate(each.read.columns):
            name_places[row, place], which[row, place] = named
        for place, (at, number) in enumerate(each.read.numbers):
            number_places[row, place] = at
            signs[row, place, :tall, :wide] = np.sign(each.cells - number) * each.numeric
    return TableBatch(
        words=words,
        lengths=lengths,
        name_places=torch.from_numpy(name_places),
        names=torch.from_numpy(which),
        name_counts=torch.tensor(names),
        number_places=torch.from_numpy(number_places),
        number_counts=torch.tensor(numbers),
        signs=torch.from_numpy(signs),
        cells=torch.from_numpy(cells),
        rows=torch.tensor([len(each.cells) for each in questions]),
        columns=torch.tensor([each.cells.shape[1] for each in questions]),
        wanted=torch.tensor([each.wanted for each in questions], dtype=torch.float32),
        printed=torch.from_numpy(printed),
        prints=torch.tensor([each.prints for each in questions]),
    )
