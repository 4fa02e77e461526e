"""Train a model that computes answers from tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad as widened

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import TableBatch
from regard.data.programs import TableQuestion, same_answer
from regard.data.table_batches import EncodedQuestion, TableBatches, encode_question, table_batch
from regard.data.tables import ReadQuestion, load_tables, read_question
from regard.models.programmer import execute
from regard.tasks.compute.config import ComputeConfig
from regard.tasks.compute.predictor import computed
from regard.tasks.config import RunConfig
from regard.tasks.recipe import PreparedRun, Setup, digest_of
from regard.tasks.subject import EXTRA, LENGTHS, ROWS, Model, Subject
from regard.tokens import TokenizerPair
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation questions shown to the person
TOGETHER = 300  # validation questions in a batch


def prepare_compute(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the questions, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, ComputeConfig)
    sets = load_tables(config.data, setup.data_root)
    config = setup.choose(config, examples=len(sets.train))
    assert isinstance(config, ComputeConfig)
    setup.note(config)
    tokenizer = setup.tokenizer(config, lambda most: _texts(sets.train))
    model = setup.build(config, (tokenizer.size,))
    about = BundleConfig(task="compute", tokens=config.tokens, vocabulary=(tokenizer.size,), model=config.model)
    fill, seed = tokenizer.specials.pad, config.train.seed
    encoded = [encode_question(each, tokenizer) for each in sets.train]
    held = [encode_question(each, tokenizer) for each in sets.valid]
    job = setup.job(
        config,
        Bundle(about, model, TokenizerPair(tokenizer, tokenizer), {}),
        TableBatches(encoded, fill, config.train.batch_tokens, seed),
        _validation(sets.valid, held, fill),
        {"the training data": _digest(sets.train), "the validation data": _digest(sets.valid)},
        held_out=lambda: [table_batch(held[place : place + TOGETHER], fill) for place in range(0, len(held), TOGETHER)],
        unit="questions",
    )
    counts = f"{len(sets.train):,} training and {len(sets.valid):,} validation questions"
    return PreparedRun(job, (*sets.notes, counts))


def _texts(questions: Sequence[TableQuestion]) -> list[str]:
    """The questions with marks for columns and numbers, as the tokenizer learns them."""
    return [str(read_question(each.question, each.table.columns)) for each in questions]


def _digest(questions: Sequence[TableQuestion]) -> str:
    return digest_of([str(each) for each in questions])


def _validation(
    questions: Sequence[TableQuestion], encoded: Sequence[EncodedQuestion], fill: int
) -> Callable[[nn.Module], Validation]:
    """Loss, and how many answers of the likeliest programs are right, on unseen tables."""

    def validate(model: nn.Module) -> Validation:
        total, found, device = 0.0, [], next(model.parameters()).device
        for start in range(0, len(questions), TOGETHER):  # few and short: every process answers them all
            part = slice(start, start + TOGETHER)
            total += float(model(table_batch(encoded[part], fill).to(device)).parts["nll"].sum)
            found += computed(model, questions[part], encoded[part], fill)
        right = [same_answer(each.answer, asked.answer) for each, asked in zip(found, questions, strict=True)]
        shown = [
            (asked.question, f"{each} ({'; '.join(map(str, each.program))})", str(asked.answer))
            for each, asked in zip(found[:SHOWN], questions[:SHOWN], strict=True)
        ]
        accuracy = 100 * sum(right) / len(right)
        metrics = {"loss": total / len(questions), "accuracy": accuracy}
        return Validation(metrics, shown, {"accuracy": share_error(accuracy, len(right))})

    return validate


class ComputeSubject(Subject):
    """Questions of random words about tables of random numbers."""

    @cached_property
    def questions(self) -> list[EncodedQuestion]:
        dice = np.random.default_rng(3)
        return [self._question(dice, row, ids) for row, ids in zip(ROWS, self.draw(LENGTHS, special=0), strict=True)]

    def _question(self, dice: np.random.Generator, row: int, ids: np.ndarray) -> EncodedQuestion:
        """As many rows as words and more; every other answer is printed."""
        rows, columns = len(ids) + 2, 2 + row % 3
        cells, prints = dice.integers(-20, 90, (rows, columns)).astype(np.float64), row % 2 == 1
        named = tuple((place, int(dice.integers(columns))) for place in range(len(ids)) if place % 2 == 0)
        numbers = tuple((place, float(dice.integers(0, 60))) for place in range(len(ids)) if place % 2)
        printed = (dice.random(cells.shape) < 0.3) & prints
        wanted = 0.0 if prints else float(dice.integers(0, 200))
        numeric = np.arange(columns) > 0
        return EncodedQuestion(
            ids.astype(np.int64), ReadQuestion((), named, numbers), cells * numeric, numeric, wanted, printed, prints
        )

    def take(self, rows: Sequence[int]) -> TableBatch:
        return table_batch([self.questions[row] for row in rows], self.bundle.tokenizer.specials.pad)

    def lengthened(self, batch: TableBatch) -> TableBatch:
        """Words, rows, columns, names and numbers behind those that count."""
        behind = {name: widened(getattr(batch, name), (0, EXTRA)) for name in ("words", "name_places", "names")}
        cells, printed = (widened(each, (0, EXTRA, 0, EXTRA)) for each in (batch.cells, batch.printed))
        signs = widened(batch.signs, (0, EXTRA, 0, EXTRA, 0, EXTRA))
        numbered = widened(batch.number_places, (0, EXTRA))
        return replace(batch, **behind, cells=cells, printed=printed, signs=signs, number_places=numbered)

    def training(self, seed: int) -> TableBatches:
        return TableBatches(self.questions, self.bundle.tokenizer.specials.pad, 14, seed)

    def outputs(self, model: Model, batch: TableBatch) -> Tensor:
        """The number that is answered, and below it the cells: (B, 1 + R, C)."""
        ran = execute(model.choose(batch), batch)
        return torch.cat([ran.scalar[:, None, None].expand(-1, 1, ran.lookup.size(2)), ran.lookup], dim=1)

    def real(self, outputs: Tensor, batch: TableBatch) -> list[Tensor]:
        sizes = zip(outputs, batch.rows.tolist(), batch.columns.tolist(), strict=True)
        return [each[: 1 + rows, :columns] for each, rows, columns in sizes]

    @property
    def name(self) -> str:
        return f"{super().name} that computes"
