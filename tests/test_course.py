"""The course: every chapter runs, what it shows is what is printed, and every exercise tells right answers from wrong ones."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from course_answers import RIGHT, WRONG

import regard
from regard.cli.main import run
from regard.course import attention, before, beyond, using, worker
from regard.course.answers import _restored, _sent
from regard.course.checking import check_exercise, judged, solved_in, start_exercise, written
from regard.course.pages import Cell, cells_of, not_printed, notebook_of, words_of
from regard.course.table import CHAPTERS, PAGES
from regard.errors import UsageError
from regard.look.walk.embedding import sinusoid
from regard.look.walk.examples import lectures
from regard.look.walk.examples.given import GivenNumbers
from regard.look.walk.examples.matrices import work_out

ROOT = Path(regard.__file__).parent.parent
TINY = os.environ.get("REGARD_COURSE_TINY", "1") == "1"  # 0: every chapter in full, in about twenty minutes
NUMBERS = list(CHAPTERS)
Captured = pytest.CaptureFixture[str]


def page(number: int) -> str:
    return CHAPTERS[number].page.read_text(encoding="utf-8")


# --- Chapters


def execute(cell: Cell) -> None:
    """Run a cell, each of Python for itself; what the page shows of a command must have been printed."""
    if cell.kind == "python":
        exec(compile(cell.text, "cell", "exec"), {"__name__": "cell"})
    if cell.kind != "sh" or cell.long:
        return
    printed = io.StringIO()
    for command in cell.commands:
        assert command.startswith("regard "), command
        with redirect_stdout(printed):
            assert run(words_of(command, TINY)) == 0, command
    if cell.output is not None:
        assert list(not_printed(cell.output, printed.getvalue())) == []


@pytest.mark.parametrize("number", NUMBERS)
def test_a_chapter_runs_and_prints_what_it_shows(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for cell in cells_of(page(number)):
        execute(cell)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_chapter_has_its_parts(number: int) -> None:
    text, cells = page(number), cells_of(page(number))
    assert text.startswith(f"# {number}. {CHAPTERS[number].title}\n")
    for command in (f"regard course start {number}\n", f"regard course check {number}\n"):
        assert command in text
    assert "## Where it is written" in text and "@@" not in text
    assert any(cell.kind == "sh" for cell in cells) and any(cell.kind == "python" for cell in cells)
    images = re.findall(r"!\[[^\]]+\]\((images/[^)]+)\)", text)
    assert len(images) == 1 and (PAGES / images[0]).stat().st_size < 60_000


def test_all_pages_and_images_belong_to_a_chapter() -> None:
    assert sorted(path.name for path in PAGES.glob("[0-9]*.md")) == [chapter.file for chapter in CHAPTERS.values()]
    shown = {name for number in NUMBERS for name in re.findall(r"\(images/([^)]+)\)", page(number))}
    assert {path.name for path in (PAGES / "images").iterdir()} == shown
    contents = (PAGES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{chapter.title}]({chapter.file})" in contents for chapter in CHAPTERS.values())


def test_a_page_is_cut_into_cells() -> None:
    text = (
        "# A\n\n```sh\nregard a\n\nregard b\n```\n\n```text\none   two\n...\n```\n\n"
        "```sh long\nregard c\n```\nend\n```python\nx = 1\n```\n"
    )
    cells = cells_of(text)
    assert [cell.kind for cell in cells] == ["markdown", "sh", "markdown", "sh", "markdown", "python"]
    assert cells[1].commands == ["regard a", "regard b"] and cells[1].output == "one   two\n...\n"
    assert not cells[1].long and cells[3].long and cells[3].output is None
    assert "one   two" in cells[2].text  # a reader sees it as well
    varies = cells_of("```sh\nregard a\n```\n\n```text once\n1.23\n```\n")
    assert varies[0].output is None


def test_what_is_shown_is_held_against_what_was_printed() -> None:
    assert list(not_printed("a   b\n...\nlong line ...\n", "x\na b\nlong line that goes on\n")) == []
    assert list(not_printed("a c\nlong lines ...\n", "a b\nlong line that goes on\n")) == ["a c", "long lines ..."]


def test_tiny_commands_train_little() -> None:
    assert words_of("regard train fill --steps 9 -o 'a b'", False) == ["train", "fill", "--steps", "9", "-o", "a b"]
    assert words_of("regard train classify --steps 90 -o a", True) == ["train", "classify", "--steps", "3", "-o", "a"]
    assert words_of("regard experiment x", True) == ["experiment", "x", "--tiny"]


# --- Notebooks


@pytest.fixture
def notebooks(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import notebooks

    return notebooks


def test_notebooks_are_up_to_date(notebooks: object, capsys: Captured) -> None:
    assert notebooks.main(["--check"]) == 0, capsys.readouterr().out  # type: ignore[attr-defined]


def test_a_notebook_that_is_old_or_of_no_chapter_is_told(notebooks: object, tmp_path: Path) -> None:
    notebooks.write(tmp_path)  # type: ignore[attr-defined]
    assert notebooks.differing(tmp_path) == []  # type: ignore[attr-defined]
    first, *_ = sorted(tmp_path.iterdir())
    first.write_text(first.read_text(encoding="utf-8").replace("nbformat", "format"), encoding="utf-8")
    (tmp_path / "99-old.ipynb").write_text("{}")
    assert notebooks.differing(tmp_path) == [first.name, "99-old.ipynb"]  # type: ignore[attr-defined]
    assert notebooks.write(tmp_path) == [first.name, "99-old.ipynb"]  # type: ignore[attr-defined]
    assert notebooks.differing(tmp_path) == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_notebook_has_the_form_of_notebooks(number: int) -> None:
    found = notebook_of(page(number), "name")
    assert json.loads(json.dumps(found)) == found and (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    cells = found["cells"]
    assert isinstance(cells, list) and len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"]) and isinstance(cell["source"], list)
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for link in re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", text):
        assert (PAGES / "notebooks" / link).exists(), link


# --- Exercises


class Here:
    """An answer that is run in this process: as the worker runs it, and faster than a hundred processes."""

    def __init__(self, code: str) -> None:
        self.names: dict[str, Any] = {}
        exec(code, self.names)

    def value(self, name: str) -> Any:
        return _restored(worker.packed(self.names[name]))

    def call(self, name: str, *arguments: Any) -> Any:
        sent = worker.unpacked(json.loads(json.dumps(_sent(list(arguments)))))
        return _restored(json.loads(json.dumps(worker.packed(self.names[name](*sent)))))


def answer_file(folder: Path, number: int, code: str) -> Path:
    path = folder / CHAPTERS[number].answer
    path.write_text(code, encoding="utf-8")
    return path


@pytest.mark.parametrize("number", NUMBERS)
def test_a_right_answer_is_right(number: int, tmp_path: Path) -> None:
    found = check_exercise(number, answer_file(tmp_path, number, RIGHT[number]))
    assert found.solved, [point.says for point in found.points if not point.right]
    assert len(found.points) >= 2


@pytest.mark.parametrize("number", NUMBERS)
def test_the_template_runs_and_is_not_solved(number: int, tmp_path: Path) -> None:
    path = start_exercise(number, tmp_path)
    found = check_exercise(number, tmp_path)  # a folder is as good
    assert found.file == path and not any(point.right for point in found.points)
    assert all("not filled in" in point.says or "gives nothing back" in point.says for point in found.points)
    assert all(point.hint for point in found.points)
    assert f"regard course check {number}" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("number", "old", "new", "words"), WRONG, ids=lambda value: str(value)[:24])
def test_a_typical_mistake_is_told(number: int, old: str, new: str, words: str) -> None:
    code = RIGHT[number]
    assert code.count(old) == 1, "the mistake must change one place of the right answer"
    points = judged(CHAPTERS[number].exercise, Here(code.replace(old, new)))
    told = " ".join(f"{point.says} {point.hint}" for point in points if not point.right)
    assert words in told


def test_every_chapter_has_wrong_answers() -> None:
    assert {number for number, *_ in WRONG} == set(NUMBERS) == set(RIGHT)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def attend(*x):\n    while True:\n        pass\n\nFIRST = [1.937, 6.683, 1.595]\n", "took more than 1 s"),
        ("x = 1\nimport numpyy\n", "does not run: line 2: ModuleNotFoundError"),
        ("def attend(:\n", "does not run: line 1: SyntaxError"),
        ("def attend(x, W_q, W_k, W_v):\n    return x @ 3\n\nFIRST = None\n", "attend failed: line 2: ValueError"),
        ("def attend(x, W_q, W_k, W_v):\n    raise SystemExit\n", "attend failed: line 2: SystemExit"),
        ("import os\nos._exit(3)\n", "the program ended before it answered"),
        ("FIRST = [1.937, 6.683, 1.595]\n", "chapter06.py has no attend"),
        ("attend = 3\nFIRST = None\n", "attend is no function"),
        ("def attend(*x):\n    return 'a'\nFIRST = [1, 2]\n", "'a' is not made of numbers"),
        ("def attend(*x):\n    return [1.0]\nFIRST = [1, 2]\n", "yours has the shape (1,), it should be (3, 3)"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_judged_says_why(
    code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "BY_HAND", replace(attention.BY_HAND, seconds=1.0))
    found = check_exercise(6, answer_file(tmp_path, 6, code))
    assert not found.solved and words in " ".join(point.says for point in found.points)


def test_what_a_file_prints_does_not_disturb_its_answers(tmp_path: Path) -> None:
    code = "print('hello')\n" + RIGHT[6].replace("    scores =", "    print(x)\n    scores =")
    assert check_exercise(6, answer_file(tmp_path, 6, code)).solved


def test_the_course_lists_what_is_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["course", "start", "3"]) == 0 and "course/chapter03.py" in capsys.readouterr().err
    assert run(["course", "start", "3"]) == 2 and "there already" in capsys.readouterr().err
    assert run(["course", "check", "3"]) == 1 and "not filled in yet" in capsys.readouterr().out
    answer_file(tmp_path / "course", 1, RIGHT[1])
    assert run(["course", "check", "1"]) == 0 and "next: regard course show 2" in capsys.readouterr().out
    assert run(["course", "--json"]) == 0
    listed = {each["chapter"]: each["solved"] for each in json.loads(capsys.readouterr().out)}
    assert listed == {number: {1: True, 3: False}.get(number) for number in NUMBERS} == dict(solved_in("course"))
    assert run(["course"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("Weights that a person chose" in line and line.rstrip().endswith("solved") for line in lines)
    assert run(["course", "check", "1", "course/chapter01.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["solved"] is True


def test_wrong_use_of_the_course_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run(["course", "check", "2"]) == 2 and "to begin in this one: regard course start 2" in capsys.readouterr().err
    )
    assert run(["course", "show", "19"]) == 2 and "there are 1 to 18" in capsys.readouterr().err
    assert run(["course", "chek", "1"]) == 2 and "did you mean check?" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no chapter 0"):
        start_exercise(0, tmp_path)


def test_a_chapter_is_shown_as_it_is_written(capsys: Captured) -> None:
    assert run(["course", "show", "6"]) == 0 and capsys.readouterr().out == page(6)


def test_listing_and_checking_import_no_torch(tmp_path: Path) -> None:
    import subprocess

    path = answer_file(tmp_path, 6, RIGHT[6])
    program = f"import sys\nfrom regard.cli.main import run\nassert run(['course', 'check', '6', {str(path)!r}]) == 0\n"
    program += "assert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- The computations behind the checks, against torch and the walks


def test_the_worked_example_is_that_of_the_walk() -> None:
    for name in ("X", "W_Q", "W_K", "W_V", "SENTENCE"):
        assert getattr(attention, name) == getattr(lectures, name)
    numbers = [np.array(each, dtype=np.float64) for each in (attention.X, attention.W_Q, attention.W_K, attention.W_V)]
    found = attention.self_attention(*numbers).z
    np.testing.assert_allclose(found, work_out(GivenNumbers(*numbers, scale=1.0)).z, atol=1e-12)
    np.testing.assert_allclose(found[0].round(3), [1.937, 6.683, 1.595])


def test_heads_norm_and_block_equal_torch() -> None:
    dice = np.random.default_rng(3)
    width, heads, tokens = 6, 3, 5
    x = dice.normal(size=(tokens, width))
    w_q, w_k, w_v, w_o = (dice.normal(size=(width, width)) for _ in range(4))
    module = torch.nn.MultiheadAttention(width, heads, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.tensor(np.concatenate([w_q.T, w_k.T, w_v.T])))
        module.out_proj.weight.copy_(torch.tensor(w_o.T))
        row = torch.tensor(x)[None]
        wanted = module(row, row, row)[0][0].numpy()
    np.testing.assert_allclose(attention.many_heads(x, (w_q, w_k, w_v, w_o), heads), wanted, atol=1e-9)
    normed = torch.nn.functional.layer_norm(torch.tensor(x), (width,)).numpy()
    np.testing.assert_allclose(attention.normed(x), normed, atol=1e-9)
    np.testing.assert_allclose(attention.sine_table(7, 6), sinusoid(7, 6), atol=1e-12)
    scores = dice.normal(size=(4, 4))
    hidden = torch.tensor(scores).masked_fill(~torch.ones(4, 4, dtype=torch.bool).tril(), float("-inf"))
    np.testing.assert_allclose(attention.causal_weights(scores), hidden.softmax(dim=-1).numpy(), atol=1e-12)


def test_parameters_are_those_of_a_torch_layer() -> None:
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256)
    biases = 4 * 64  # of the attention, which the exercise leaves out
    assert sum(each.numel() for each in layer.parameters()) - biases == 4 * 64**2 + 2 * 64 * 256 + 256 + 64 + 4 * 64


def test_recurrent_state_equals_torch() -> None:
    dice = np.random.default_rng(2)
    xs, w, u = dice.normal(size=(5, 3)), dice.normal(size=(3, 2)), dice.normal(size=(2, 2))
    cell = torch.nn.RNN(3, 2, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        cell.weight_ih_l0.copy_(torch.tensor(w.T))
        cell.weight_hh_l0.copy_(torch.tensor(u.T))
        wanted = cell(torch.tensor(xs)[None])[1][0, 0].numpy()
    np.testing.assert_allclose(before.read_states(xs, w, u), wanted, atol=1e-12)


def test_patches_and_windows_equal_torch() -> None:
    picture = np.random.default_rng(1).normal(size=(6, 9, 3))
    pixels = torch.tensor(picture).permute(2, 0, 1)[None]
    unfolded = torch.nn.functional.unfold(pixels, 3, stride=3)[0].T.reshape(6, 3, 3, 3)  # patch, channel, row, column
    np.testing.assert_allclose(beyond.cut_patches(picture, 3), unfolded.permute(0, 2, 3, 1).reshape(6, 27).numpy())


def test_a_beam_over_all_sequences_is_exact() -> None:
    table = np.array([[0.1, 0.5, 0.4], [0.4, 0.3, 0.3], [0.05, 0.05, 0.9]])
    assert using.beam_search(table, 1, 2) == [1, 0] and using.beam_search(table, 9, 2) == [2, 2]


def test_every_template_is_a_file_that_compiles() -> None:
    for chapter in CHAPTERS.values():
        compile(written(chapter), chapter.answer, "exec")
