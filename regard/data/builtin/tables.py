"""Small tables with questions, their answers, and the programs that give them.

A table has a column of words and two to four of numbers. Questions need one operation ("What is the total of price?"), two
("How many rows have price over 5?"), or four, where two comparisons are joined by `and` or `or`. Every comparison selects at
least one row.
"""

from __future__ import annotations

import random

from regard.data.programs import Step, Table, TableQuestion, run_program

BUILTIN = "builtin/tables"
OPERATIONS = (1, 2, 4)  # that questions may need
SEEDS = {"train": 1, "valid": 2, "test": 3}
WORDS = {
    "name": ("Ada", "Bela", "Carl", "Dora", "Emil", "Frida", "Gustav", "Hanna", "Ivan", "Julia", "Karl", "Lena"),
    "city": ("Paris", "Oslo", "Rome", "Lima", "Kyoto", "Cairo", "Bern", "Quito", "Delhi", "Accra", "Riga", "Turin"),
    "fruit": ("apple", "pear", "plum", "fig", "lemon", "cherry", "grape", "melon", "lime", "mango", "peach", "date"),
    "animal": ("cat", "dog", "horse", "cow", "goat", "hen", "duck", "mouse", "fox", "bear", "wolf", "owl"),
}
NUMBERS = (
    "price", "weight", "age", "height", "width", "length", "year", "score", "speed", "distance", "points", "goals",
    "visitors", "rooms", "pages", "depth", "income", "stock",
)  # fmt: skip
LARGEST = (9, 99, 999)  # cells of a column are at most one of these
ROWS = (3, 10)
ASK = {
    "sum": ("What is the sum of {0}", "What is the total of {0}", "Add up {0}", "What is the total {0}", "Sum of {0}"),
    "print": ("Print {0}", "What are the {0}", "List the {0}", "Show {0}", "Which {0} are there"),
    "count": ("How many rows are there", "Count the rows", "What is the number of rows"),
}
COUNT_THOSE = ("How many rows have", "Count the rows with", "How many have", "What is the number of rows with")
WHERE = ("where", "with", "of rows with", "of those with", "in rows where")
COMPARE = {
    "greater": ("greater than", "more than", "over", "above", "larger than"),
    "lesser": ("lesser than", "less than", "under", "below", "smaller than"),
}


def table_questions(split: str, count: int, most: int = max(OPERATIONS)) -> list[TableQuestion]:
    """`count` questions of at most so many operations, each about a table of its own; splits have different tables."""
    dice, found = random.Random(SEEDS.get(split, 4)), list[TableQuestion]()
    sizes = [size for size in OPERATIONS if size <= most]
    while len(found) < count:
        table = draw_table(dice)
        if _belongs(table, split):
            asked = draw_question(dice, table, sizes[len(found) % len(sizes)])
            found += [] if asked is None else [asked]
    return found


def draw_table(dice: random.Random) -> Table:
    """A table of random cells, no word in it twice."""
    word, count = dice.choice(sorted(WORDS)), dice.randint(*ROWS)
    columns = [word, *dice.sample(NUMBERS, dice.randint(2, 4))]
    cells: list[list[int | str]] = [list(dice.sample(WORDS[word], count))]
    for _ in columns[1:]:
        largest = dice.choice(LARGEST)
        cells.append([dice.randint(0, largest) for _ in range(count)])
    order = dice.sample(range(len(columns)), len(columns))
    return Table(tuple(columns[place] for place in order), tuple(zip(*(cells[place] for place in order), strict=True)))


def draw_question(dice: random.Random, table: Table, operations: int) -> TableQuestion | None:
    """A question that needs so many operations; None where what was drawn selects no row."""
    last = dice.choice(("sum", "print", "count"))
    numeric = [name for name, is_number in zip(table.columns, table.numeric, strict=True) if is_number]
    column = "" if last == "count" else dice.choice(table.columns if last == "print" else numeric)
    asked = dice.choice(ASK[last]).format(column)
    compared = [_comparison(dice, table, numeric) for _ in range(operations // 2)]
    if not compared:
        program: tuple[Step, ...] = (Step(last, column),)
    else:
        joined = dice.choice(("and", "or"))
        phrase = f" {joined} ".join(text for _, text in compared)
        opening = dice.choice(COUNT_THOSE) if last == "count" else f"{asked} {dice.choice(WHERE)}"
        asked = f"{opening} {phrase}"
        join = (Step(joined),) if len(compared) > 1 else ()
        program = (*(step for step, _ in compared), *join, Step(last, column))
    answer, rows = run_program(table, program)
    selects = [run_program(table, (step, Step("count")))[0] for step, _ in compared]
    same = len(compared) > 1 and compared[0][0].column == compared[1][0].column
    if not rows or not all(selects) or same:
        return None
    place = table.columns.index(column) if column else 0
    cells = tuple((row, place) for row in rows) if last == "print" else ()
    return TableQuestion(table, f"{asked}{dice.choice(('?', ''))}", answer, cells, program)


def _comparison(dice: random.Random, table: Table, numeric: list[str]) -> tuple[Step, str]:
    """A comparison with a cell of the column, or with a number beside one; and how it is asked."""
    operation, column = dice.choice(sorted(COMPARE)), dice.choice(numeric)
    cell = dice.choice(table.rows)[table.columns.index(column)]
    assert not isinstance(cell, str)
    number = cell + dice.choice((-1, 0, 1))
    verb = dice.choice(("", "", "is "))
    return Step(operation, column, number), f"{column} {verb}{dice.choice(COMPARE[operation])} {number}"


def _belongs(table: Table, split: str) -> bool:
    """Whether a table is of a split, by its cells alone: of ten, eight are trained on, one validates, one tests."""
    number = sum(ord(letter) for row in table.rows for cell in row for letter in str(cell)) % 10
    return {"valid": number == 8, "test": number == 9}.get(split, number < 8)
