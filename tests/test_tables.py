"""Tables, programs and questions about them, against plain sums and hand-computed answers; and mistakes in files."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from regard.data.builtin.tables import table_questions
from regard.data.config import TablesConfig
from regard.data.programs import (
    OPERATIONS,
    Step,
    Table,
    effect,
    operations_in,
    run_program,
    same_answer,
    selections,
    used_steps,
)
from regard.data.table_batches import TableBatches, encode_question, table_batch
from regard.data.tables import load_tables, question_from, read_question, read_tables, table_of_file
from regard.errors import RegardError, UsageError
from regard.tokens import TokensConfig, train_tokenizer

FRUIT = Table(("fruit", "price", "weight"), (("apple", 3, 120), ("pear", 7.5, 90), ("plum", 5, 20), ("fig", 9, 15)))
OVER, UNDER = Step("greater", "price", 5), Step("lesser", "weight", 100)


@pytest.mark.parametrize(
    ("program", "wanted", "rows"),
    [
        ([Step("sum", "weight")], 245, (0, 1, 2, 3)),
        ([Step("count")], 4, (0, 1, 2, 3)),
        ([OVER, Step("count")], 2, (1, 3)),  # 5 is not greater than 5
        ([UNDER, Step("print", "fruit")], ("pear", "plum", "fig"), (1, 2, 3)),
        ([Step("lesser", "price", 5), UNDER, Step("or"), Step("sum", "price")], 24.5, (0, 1, 2, 3)),
        ([OVER, Step("lesser", "weight", 50), Step("and"), Step("print", "price")], (9,), (3,)),
        ([OVER, Step("reset"), Step("and"), Step("count")], 2, (1, 3)),
        ([Step("count"), Step("sum", "price")], 0, ()),  # what gives an answer selects nothing
        ([Step("greater", "fruit", 0), Step("count")], 0, ()),  # words are not compared
        ([Step("sum", "fruit")], 0, (0, 1, 2, 3)),
    ],
)
def test_programs_give_what_is_computed_by_hand(program: list[Step], wanted: object, rows: tuple[int, ...]) -> None:
    assert run_program(FRUIT, program) == (wanted, rows)
    assert selections(FRUIT, program)[-1] == ()


def test_a_program_that_gives_no_answer_is_refused() -> None:
    for program in ([], [OVER]):
        with pytest.raises(ValueError, match="gives no answer"):
            run_program(FRUIT, program)


def test_programs_with_one_effect_give_one_answer_and_others_can_differ() -> None:
    """All programs of three steps over a few: where the trees are equal, so are the answers on random tables."""
    dice = np.random.default_rng(1)
    tables = [Table(("a", "b"), tuple(map(tuple, dice.integers(0, 9, (5, 2)).tolist()))) for _ in range(12)]
    steps = [Step("reset"), Step("greater", "a", 4), Step("lesser", "b", 4), Step("and"), Step("or"), Step("count")]
    found: dict[object, tuple[object, ...]] = {}
    for program in product(steps, repeat=3):
        whole = (*program, Step("sum", "a"))
        answers = tuple(run_program(table, whole)[0] for table in tables)
        assert found.setdefault(effect(whole), answers) == answers
    assert len(set(found.values())) == len(found) == 6  # all, none, one comparison, the other, both, either


def test_steps_that_change_nothing_are_told() -> None:
    program = [Step("count"), OVER, UNDER, Step("and"), Step("sum", "price")]
    assert used_steps(program) == {1, 2, 3, 4}
    assert used_steps([OVER, UNDER, Step("count")]) == {1, 2} and used_steps([OVER, Step("reset")]) == {1}
    assert operations_in([Step("reset"), OVER, Step("count")]) == 2


def test_answers_are_compared_as_numbers_or_sets() -> None:
    assert same_answer(0.1 + 0.2, 0.3) and not same_answer(7, 8) and not same_answer(1_000_001, 1_000_003)
    assert same_answer(("a", "b", "a"), ("b", "a")) and not same_answer(("a",), ("a", "b"))
    assert not same_answer(7, (7,)) and not same_answer((7,), 7)


# --- Built-in questions

PHRASE = re.compile(
    r"(\w+) (?:is )?(greater than|more than|over|above|larger than|lesser than|less than|under|below|smaller than) (-?\d+)"
)
LESS = ("lesser than", "less than", "under", "below", "smaller than")


def by_reading(table: Table, question: str) -> object:
    """The answer by the words of the question alone: an understanding of it that knows nothing of programs."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    found = PHRASE.findall(question)
    tests = [(lambda row, c=c, n=int(n), less=word in LESS: row[c] < n if less else row[c] > n) for c, word, n in found]
    joined = any if " or " in question else all
    kept = [row for row in rows if joined(test(row) for test in tests)] if tests else rows
    if re.match(r"How many|Count|What is the number", question):
        return len(kept)
    head = PHRASE.split(question)[0]
    column = next(word for word in re.findall(r"\w+", head) if word in table.columns)
    if re.match(r"What is|Add up|Sum", question):
        return sum(row[column] for row in kept)
    return tuple(row[column] for row in kept)


def test_built_in_answers_are_right_and_splits_apart() -> None:
    sets = {split: table_questions(split, 300) for split in ("train", "valid", "test")}
    for asked in sets["train"]:
        assert asked.answer == by_reading(asked.table, asked.question), asked.question
        assert run_program(asked.table, asked.program)[0] == asked.answer
        if asked.prints:
            assert tuple(asked.table.rows[row][column] for row, column in asked.cells) == asked.answer
    tables = [{asked.table for asked in found} for found in sets.values()]
    assert not (tables[0] & tables[1] or tables[0] & tables[2] or tables[1] & tables[2])
    assert [operations_in(asked.program) for asked in sets["test"]] == [1, 2, 4] * 100
    assert sets["test"] == table_questions("test", 300) and {o for q in sets["train"] for o in map(str, q.program)}
    two = table_questions("test", 60, 2)
    assert {operations_in(asked.program) for asked in two} == {1, 2}
    used = {step.operation for asked in sets["train"] for step in asked.program}
    assert used == set(OPERATIONS) - {"reset"}


# --- Reading


def test_a_question_is_read_with_marks_for_columns_and_numbers() -> None:
    read = read_question(
        "Sum of unit_prices where Price over 1,250.5 or weight < -3?", ("unit price", "price", "Weight")
    )
    assert read.words == ("sum", "of", "@", "where", "@", "over", "#", "or", "@", "#")
    assert read.columns == ((2, 0), (4, 1), (8, 2)) and read.numbers == ((6, 1250.5), (9, -3.0))
    assert read_question("rows of 2019 over 5", ("2019", "x")).columns == ((2, 0),)  # a name before a number


def test_a_table_of_a_csv_file_has_numbers_where_all_cells_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('name;price;size\nAda; 3 ;7.5\n\n"B;C";-1,200;large\n', encoding="utf-8")
    table = table_of_file(path)
    assert table.columns == ("name", "price", "size") and table.numeric == (False, True, False)
    assert table.rows == (("Ada", 3, "7.5"), ("B;C", -1200, "large"))
    path.write_text("name,price,none,net\nAda,-3.5,,1e3\nBo,,,+2\nCy,12,,50%\n", encoding="utf-8")
    table = table_of_file(path)
    assert table.numeric == (False, True, False, False)  # one that is empty has no numbers
    assert table.rows[:2] == (("Ada", -3.5, "", "1e3"), ("Bo", "", "", "+2"))
    assert run_program(table, [Step("sum", "price")])[0] == 8.5
    path.write_text("a\n1e3\n+2\n", encoding="utf-8")
    assert table_of_file(path).rows == ((1000.0,), (2,))
    for text, why in (("a,b\n1\n", "1 cells, and 2 columns"), ("a,b\n", "has 1 lines"), ("a,a\n1,2\n", "one name")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(RegardError, match=why):
            table_of_file(path)


ROWS = [{"name": "Ada", "price": 3}, {"name": "Bo", "price": 8}, {"name": "Cy", "price": 8}]


def line(**changed: object) -> dict[str, object]:
    return {"table": ROWS, "question": "Which name has price over 5", "answer": ["Bo", "Cy"], **changed}


def test_a_question_of_ones_own_knows_its_cells() -> None:
    found = question_from(line(program=["greater price 5", "print name"]))
    assert found.cells == ((1, 0), (2, 0)) and found.program == (Step("greater", "price", 5.0), Step("print", "name"))
    assert question_from(line(answer=[8])).cells == ((1, 1), (2, 1)) and question_from(line(answer=19.0)).cells == ()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([], "a list, not an object"),
        (line(rows=3), "'rows' is none of table, question"),
        (line(table=[]), "table is not a list of rows"),
        (line(table=[{"a": 1}, {"b": 1}]), "row 2 of the table has b, and row 1 a"),
        (line(table=[{"a": 1}, {"a": "x"}]), "column 'a' has numbers, and the word 'x'"),
        (line(table=[{"a": None}]), "None under 'a' is neither a number nor a word"),
        (line(question=" "), "no text under 'question'"),
        (line(answer=True), "True is no answer"),
        (line(answer="Bo"), "'Bo' is no answer"),
        (line(answer=["Zoe"]), "no column of the table holds Zoe"),
        (line(answer=[]), "no column of the table holds an empty answer"),
        (line(program="sum price"), "program is not a list"),
        (line(program=["mean price"]), "'mean' is none of the operations"),
        (line(program=["sum size"]), "needs one of the columns name, price"),
        (line(program=["count price"]), "count takes no column"),
        (line(program=["greater price"]), "ends with no number"),
        (line(program=["sum price"], answer=18), "the program gives 19, and the answer is 18"),
    ],
)  # fmt: skip
def test_mistakes_in_a_question_are_told(row: object, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        question_from(row)


def test_files_are_held_out_by_table_and_mistakes_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    rows = [
        line(table=[{"a": n}, {"a": n + 1}], question="sum of a", answer=2 * n + 1) for n in range(60) for _ in "ab"
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sets = load_tables(TablesConfig(train=(str(path),)))
    held, kept = ({asked.table for asked in each} for each in (sets.valid, sets.train))
    assert held and not held & kept and len(sets.train) + len(sets.valid) == 120 and "by table" in sets.notes[0]
    path.write_text(json.dumps(line()) + "\n{}\n", encoding="utf-8")
    with pytest.raises(RegardError, match="line 2: table is not a list of rows"):
        read_tables([str(path)])
    (tmp_path / "t.csv").write_text("a\n1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="jsonl"):
        read_tables([str(tmp_path / "t.csv")])


def test_batches_are_all_questions_once_with_their_tables() -> None:
    asked = table_questions("train", 40)
    tokenizer = train_tokenizer(
        [str(read_question(each.question, each.table.columns)) for each in asked],
        TokensConfig(kind="space", min_count=1),
    )
    encoded = [encode_question(each, tokenizer) for each in asked]
    batches = TableBatches(encoded, 0, 64, seed=3)
    rows = sorted(int(row) for part in batches.plan(1) for row in part)
    assert rows == list(range(40)) and all(batches.get(0, i).padded_tokens <= 64 for i in range(batches.count(0)))
    batch = table_batch(encoded, 0)
    for row, each in enumerate(asked):
        table = each.table
        for place, (_, number) in enumerate(encoded[row].read.numbers):
            for r, c in product(range(len(table.rows)), range(len(table.columns))):
                cell = table.rows[r][c]
                wanted = 0 if isinstance(cell, str) or cell == number else 1 if cell > number else -1
                assert int(batch.signs[row, place, r, c]) == wanted
        assert not batch.cells[row, len(table.rows) :].any() and int(batch.printed[row].sum()) == len(each.cells)
