"""The neural programmer against the paper's equations in plain loops, and against plain programs where its choices are hard."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.attention import record
from regard.bundle import Bundle, load_bundle
from regard.cli.main import run as run_verb
from regard.data.batch import TableBatch
from regard.data.builtin.tables import table_questions
from regard.data.programs import (
    ANSWER,
    COMPARE,
    OF_COLUMN,
    OPERATIONS,
    Step,
    Table,
    TableQuestion,
    run_program,
    selections,
)
from regard.data.table_batches import EncodedQuestion, encode_question, table_batch
from regard.data.tables import read_question
from regard.errors import UsageError
from regard.models.config import ProgrammerConfig
from regard.models.programmer import Choice, Choices, Programmer, answer_loss, execute, hardened
from regard.tasks.compute.evaluate import evaluate_tables
from regard.tasks.compute.predictor import TableComputer, table_of
from regard.tokens import TokensConfig, train_tokenizer

ASKED = table_questions("train", 23)
TOKENIZER = train_tokenizer(
    [str(read_question(each.question, each.table.columns)) for each in ASKED], TokensConfig(kind="space", min_count=1)
)
ENCODED = [encode_question(each, TOKENIZER) for each in ASKED]


def batch_of(encoded: list[EncodedQuestion] = ENCODED) -> TableBatch:
    return table_batch(encoded, 0)


def drawn(batch: TableBatch, steps: int, seed: int) -> list[Choices]:
    """Random weights that sum to one, over the operations, and over what each question names."""
    dice = torch.Generator().manual_seed(seed)

    def shares(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=dice, dtype=torch.float64).log().mul(-3).softmax(dim=-1)

    rows, columns, numbers = len(batch.words), batch.cells.size(2), batch.number_places.size(1)
    found = []
    for _ in range(steps):
        column = shares(rows, columns) * (torch.arange(columns) < batch.columns[:, None])
        number = shares(rows, numbers) * (torch.arange(numbers) < batch.number_counts[:, None])
        found.append(Choices(shares(rows, len(OPERATIONS)), column, number))
    return found


def soft_by_hand(
    table: Table, numbers: list[float], steps: list[list[list[float]]]
) -> tuple[list[float], float, list[list[float]]]:
    """The operations of the paper for one question, one number after the other; comparisons are mixed over the numbers."""
    R, C = len(table.rows), len(table.columns)
    before, last, scalar, lookup = [1.0] * R, [1.0] * R, 0.0, [[0.0] * C for _ in range(R)]
    for operation, column, number in steps:
        a = dict(zip(OPERATIONS, operation, strict=True))
        scalar = a["count"] * sum(last)
        selected = []
        for i in range(R):
            greater = lesser = 0.0
            for j in range(C):
                cell = table.rows[i][j]
                lookup[i][j] = a["print"] * column[j] * last[i]
                if isinstance(cell, str):
                    continue
                scalar += a["sum"] * column[j] * last[i] * cell
                greater += sum(column[j] * share for share, n in zip(number, numbers, strict=False) if cell > n)
                lesser += sum(column[j] * share for share, n in zip(number, numbers, strict=False) if cell < n)
            both, either = min(before[i], last[i]), max(before[i], last[i])
            selected.append(
                a["reset"] + a["greater"] * greater + a["lesser"] * lesser + a["and"] * both + a["or"] * either
            )
        before, last = last, selected
    return last, scalar, lookup


def test_soft_operations_are_the_equations_of_the_paper() -> None:
    batch = batch_of()
    choices = drawn(batch, 4, seed=1)
    ran = execute(choices, batch)
    for row, (asked, encoded) in enumerate(zip(ASKED, ENCODED, strict=True)):
        numbers = [number for _, number in encoded.read.numbers]
        steps = [[each[row].tolist() for each in (c.operation, c.column, c.number)] for c in choices]
        rows, scalar, lookup = soft_by_hand(asked.table, numbers, steps)
        r, c = len(asked.table.rows), len(asked.table.columns)
        assert ran.selected[-1][row, :r].tolist() == pytest.approx(rows)
        assert float(ran.scalar[row]) == pytest.approx(scalar)
        assert ran.lookup[row, :r, :c].tolist() == [pytest.approx(line) for line in lookup]
        assert not ran.selected[-1][row, r:].any() and not ran.lookup[row, r:].any()


def one_hot_program(dice: np.random.Generator, encoded: EncodedQuestion, table: Table, steps: int) -> list[Step]:
    numbers = [number for _, number in encoded.read.numbers]
    can = [name for name in OPERATIONS if numbers or name not in COMPARE]
    names = [*dice.choice(can, steps - 1), dice.choice(ANSWER)]
    return [
        Step(
            str(name),
            str(dice.choice(table.columns)) if name in OF_COLUMN else "",
            float(dice.choice(numbers)) if name in COMPARE else None,
        )
        for name in names
    ]


def as_choices(programs: list[list[Step]], batch: TableBatch) -> list[Choices]:
    found = []
    for place in range(len(programs[0])):
        operation = torch.zeros(len(programs), len(OPERATIONS), dtype=torch.float64)
        column = torch.zeros(len(programs), batch.cells.size(2), dtype=torch.float64)
        number = torch.zeros(len(programs), batch.number_places.size(1), dtype=torch.float64)
        for row, program in enumerate(programs):
            step, numbers = program[place], [each for _, each in ENCODED[row].read.numbers]
            operation[row, OPERATIONS.index(step.operation)] = 1
            column[row, ASKED[row].table.columns.index(step.column) if step.column else 0] = 1
            if numbers:
                number[row, 0 if step.number is None else numbers.index(step.number)] = 1
        found.append(Choices(operation, column, number))
    return found


@pytest.mark.parametrize("steps", [1, 2, 4, 7])
def test_soft_operations_are_hard_ones_where_weights_are_one_hot(steps: int) -> None:
    """Programs drawn at random, run by plain Python on the table as it is."""
    dice, batch = np.random.default_rng(steps), batch_of()
    for _ in range(15):
        programs = [one_hot_program(dice, e, a.table, steps) for e, a in zip(ENCODED, ASKED, strict=True)]
        ran = execute(as_choices(programs, batch), batch)
        for row, (asked, program) in enumerate(zip(ASKED, programs, strict=True)):
            for place, wanted in enumerate(selections(asked.table, program)):
                assert ran.selected[place][row].nonzero().flatten().tolist() == list(wanted)
            answer, rows = run_program(asked.table, program)
            if isinstance(answer, tuple):
                column = asked.table.columns.index(program[-1].column)
                assert ran.lookup[row].nonzero().tolist() == [[at, column] for at in rows] and not ran.scalar[row]
            else:
                assert float(ran.scalar[row]) == answer and not ran.lookup[row].any()


def test_empty_cells_are_neither_under_nor_over_a_number() -> None:
    """A sum over a column with one empty cell was nought, as all of the column counted as words."""
    table = Table(("name", "price"), (("Ada", 3), ("Bo", ""), ("Cy", 8)))
    asked = TableQuestion(table, "How many rows have price under 5", 1)
    batch = table_batch([encode_question(asked, TOKENIZER)], 0)
    price = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    for name, wanted in (("lesser", 0), ("greater", 2), ("sum", 11)):
        operation = torch.tensor([[float(each == name) for each in OPERATIONS]], dtype=torch.float64)
        ran = execute([Choices(operation, price, torch.ones(1, 1, dtype=torch.float64))], batch)
        if name == "sum":
            assert float(ran.scalar) == wanted == run_program(table, [Step("sum", "price")])[0]
        else:
            assert ran.selected[0][0].nonzero().tolist() == [[wanted]]
            assert selections(table, [Step(name, "price", 5)]) == [(wanted,)]


def test_true_programs_give_the_answers_and_no_loss() -> None:
    batch, steps = batch_of(), 4
    programs = [[*([Step("reset")] * (steps - len(each.program))), *each.program] for each in ASKED]
    losses = answer_loss(execute(as_choices(programs, batch), batch), batch)
    assert float(losses.max()) < 1e-5
    wrong = [[*program[:-1], Step("count" if program[-1].operation != "count" else "sum", ASKED[row].table.columns[0])]
             for row, program in enumerate(programs)]  # fmt: skip
    assert float(answer_loss(execute(as_choices(wrong, batch), batch), batch).min()) > 1e-3


def test_the_loss_is_huber_of_numbers_and_the_log_loss_of_cells() -> None:
    batch = batch_of()
    ran = execute(drawn(batch, 3, seed=2), batch)
    found = answer_loss(ran, batch).tolist()
    for row, asked in enumerate(ASKED):
        r, c = len(asked.table.rows), len(asked.table.columns)
        if isinstance(asked.answer, tuple):
            parts = [
                -math.log(p) if (i, j) in asked.cells else -math.log(1 - p)
                for i in range(r)
                for j in range(c)
                if (p := min(max(float(ran.lookup[row, i, j]), 1e-6), 1 - 1e-6))
            ]
            assert found[row] == pytest.approx(sum(parts) / (r * c))
            continue
        squash = [math.copysign(math.log(1 + abs(x)), x) for x in (float(ran.scalar[row]), float(asked.answer))]
        off = abs(squash[0] - squash[1])
        assert found[row] == pytest.approx(off**2 / 2 if off < 1 else off - 0.5, rel=1e-5)


def fresh(**over: object) -> Programmer:
    torch.manual_seed(1)
    return Programmer(ProgrammerConfig(width=5, hidden=6, **over), TOKENIZER.size).double().eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("tied", [False, True])
def test_choices_are_softmaxes_of_the_question_and_the_history(tied: bool) -> None:
    """The selector of the paper by hand, from what was read of one question at a time; and what the recorder sees is it."""
    model, batch = fresh(tied=tied, steps=3), batch_of()
    with record(model) as seen:
        found = model.choose(batch)
    assert [call.path.split(".", 1)[1] for call in seen.calls] == [
        f"{step}.{each}" for step in range(3) for each in ("operation", "column", "number")[: 3 if step < 2 else 2]
    ]
    U = model.operations
    for row, encoded in enumerate(ENCODED):
        ids = torch.from_numpy(encoded.ids)[None]
        states, last = model.reader(model.tokens(ids), torch.tensor([len(encoded.ids)]))
        q, h = last[-1][0][0], torch.zeros(6, dtype=torch.float64)
        V = [states[0, place] for place, _ in encoded.read.columns]
        Z = [states[0, place] for place, _ in encoded.read.numbers]
        for number, choices in enumerate(found):
            ask, mixed = model.asks[0 if tied else number], []
            for name, keys, weights in zip(
                ("operation", "column", "number"),
                (U, V, Z),
                (choices.operation, choices.column, choices.number),
                strict=True,
            ):
                if weights is None:  # the last step compares nothing
                    assert number == 2 and name == "number"
                    break
                query = torch.tanh(ask[name].weight @ torch.cat([q, h]) + ask[name].bias)
                scores = [math.exp(float(key.detach() @ query.detach())) for key in keys]
                shares = [score / sum(scores) for score in scores]
                mixed.append(
                    sum((s * k for s, k in zip(shares, keys, strict=True)), torch.zeros(6, dtype=torch.float64))
                )
                wanted = [0.0] * weights.size(1)
                for place, share in enumerate(shares):
                    wanted[encoded.read.columns[place][1] if name == "column" else place] += share
                assert weights[row].tolist() == pytest.approx(wanted)
            if len(mixed) < 3:
                break
            h = torch.tanh(model.remembers.weight @ torch.cat([*mixed, h]) + model.remembers.bias)


def test_noise_draws_programs_by_their_weights_in_training_alone() -> None:
    """The largest score with Gumbel noise is a draw from the softmax (Gumbel 1954): counted over many draws."""
    choice, dice = Choice(noise=1.0), torch.Generator().manual_seed(4)
    query, keys = torch.randn(1, 3, generator=dice), torch.randn(1, 4, 3, generator=dice)
    wanted = (keys[0] @ query[0]).softmax(dim=-1)
    rows, stand_for = 20_000, torch.eye(4).expand(20_000, -1, -1)
    torch.manual_seed(5)
    drawn_most = choice(query.expand(rows, -1), keys.expand(rows, -1, -1), stand_for)[0].argmax(dim=-1)
    shares = torch.bincount(drawn_most, minlength=4) / rows
    assert shares.tolist() == pytest.approx(wanted.tolist(), abs=0.015)
    assert torch.allclose(choice.eval()(query, keys, stand_for[:1])[0][0], wanted)


def test_a_hard_choice_is_one_that_can_be_done() -> None:
    """No comparison where the question names no number, nothing of a column where it names none; an answer at the end."""
    batch = batch_of()
    none = [row for row, each in enumerate(ENCODED) if not each.read.columns]
    assert none and any(not each.read.numbers for each in ENCODED)
    for seed in range(5):
        hard = hardened(drawn(batch, 3, seed), batch)
        for place, each in enumerate(hard):
            names = [OPERATIONS[number] for number in each.operation.argmax(dim=-1).tolist()]
            assert each.operation.sum(dim=-1).tolist() == [1.0] * len(names)
            for row, name in enumerate(names):
                assert ENCODED[row].read.columns or name not in OF_COLUMN
                assert ENCODED[row].read.numbers or name not in COMPARE
                assert place < 2 or name in ANSWER


# --- The task


def written(path: Path, asked: list[TableQuestion]) -> Path:
    """Questions as a file of one's own."""
    rows = [
        {"table": [dict(zip(each.table.columns, row, strict=True)) for row in each.table.rows], "question": each.question,
         "answer": list(each.answer) if isinstance(each.answer, tuple) else each.answer,
         "program": [str(step) for step in each.program]}
        for each in asked
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some updates on questions of one operation in a file: enough for most of them."""
    folder = tmp_path_factory.mktemp("compute") / "run"
    data = written(folder.parent / "questions.jsonl", table_questions("train", 400, 1))
    options = ["data.hold_out=30", "train.steps=60", "train.warmup=5", "train.lr=0.01", "model.hidden=32",
               "model.steps=2", "train.validate_every=60"]  # fmt: skip
    settings = [word for each in options for word in ("--set", each)]
    assert not run_verb(["train", "compute", "--data", str(data), *settings, "-o", str(folder)])
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "fruit.csv"
    path.write_text("fruit,unit price\napple,3\npear,7.5\nplum,5\n", encoding="utf-8")
    return path


def test_the_verb_answers_and_tells_its_program(trained: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["How many rows are there?", "What is the total of unit price", "List the fruits"]
    assert not run_verb(["compute", "-m", str(trained), str(table), *asked])
    assert capsys.readouterr().out.splitlines() == ["3", "15.5", "apple, pear, plum"]
    assert not run_verb(["compute", "-m", str(trained), str(table), asked[1], "--steps"])
    out = capsys.readouterr().out
    assert out.startswith("15.5\n") and "sum" in out and "unit price" in out and "%" in out
    assert not run_verb(["compute", "-m", str(trained), str(table), asked[2], "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["answer"] == ["apple", "pear", "plum"] and found["program"][-1] == "print fruit"
    page = Path(__file__).parent.parent / "docs" / "json.md"
    shown = json.loads(page.read_text(encoding="utf-8").split("```json compute\n")[1].split("```")[0])
    assert found.keys() == shown.keys()
    for mine, told in zip(found["steps"], shown["steps"], strict=True):
        assert mine.keys() == told.keys() and mine["weights"].keys() == told["weights"].keys()
    last = found["steps"][-1]
    assert last["column"] == "fruit" and 0 < last["weights"]["operation"] <= 1 and last["used"]
    table.write_text("fruit,unit price\napple,3\npear,\nplum,5\n", encoding="utf-8")
    assert not run_verb(["compute", "-m", str(trained), str(table), asked[1]])
    out, err = capsys.readouterr()
    assert out == "8\n" and "unit price: 1 of 3 cells hold no number ('') and do not count" in err


def test_a_program_is_drawn(trained: Path, table: Path, tmp_path: Path) -> None:
    for name in ("p.png", "p.html", "p.json"):
        assert not run_verb(
            ["compute", "-m", str(trained), str(table), "Sum of unit price over 4", "-o", str(tmp_path / name)]
        )
        assert (tmp_path / name).stat().st_size > 300
    drawn_as = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert drawn_as["columns"] == ["fruit", "unit price"] and drawn_as["numbers"] == [4]
    assert all(sum(step["operation"]) == pytest.approx(1, abs=1e-5) for step in drawn_as["steps"])


def test_scores_count_answers_and_programs(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = table_questions("valid", 40, 2)
    path, saved = written(tmp_path / "test.jsonl", asked), tmp_path / "answers.txt"
    assert not run_verb(["eval", str(trained), "--on", str(path), "--json", "--save", str(saved)])
    found = json.loads(capsys.readouterr().out)
    assert found["questions"] == 40 and [each["operations"] for each in found["by_operations"]] == [1, 2]
    assert found["by_operations"][0]["accuracy"] > 80 and found["programs"] <= found["questions"]
    again = evaluate_tables(TableComputer(load(trained)), asked)
    assert again.data() | {"seconds": 0} == {name: found[name] for name in again.data()} | {"seconds": 0}
    wanted = [run_program(q.table, [s.step for s in each.steps])[0] for q, each in zip(asked, again.found, strict=True)]
    assert [each.answer for each in again.found] == wanted
    assert list(again.right) == [a == q.answer for a, q in zip(wanted, asked, strict=True)]
    assert saved.read_text(encoding="utf-8").splitlines() == [str(each) for each in again.found]


def load(folder: Path) -> Bundle:
    return load_bundle(folder / "best")


def test_tables_are_given_as_columns_and_mistakes_are_told(
    trained: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    computer = TableComputer(load(trained))
    found = computer.compute({"price": [3, 4], "name": ["a", "b"]}, "What is the total price?")
    assert found.answer == 7 and str(found) == "7" and "sum price" in repr(found)
    for wrong in ({}, {"a": []}, {"a": [1], "b": [1, 2]}, {"a": [1, "x"]}):
        with pytest.raises(UsageError):
            table_of(wrong)
    for words, why in (
        ([str(tmp_path / "none.csv"), "How many?"], "there is no file"),
        ([str(table), "?"], "no word in '?'"),
    ):
        assert run_verb(["compute", "-m", str(trained), *words]) == 2
        assert why in capsys.readouterr().err
