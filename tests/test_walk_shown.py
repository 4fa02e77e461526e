"""The worked example by hand, and what a person sees of a walk: terminal, page, JSON, and the command line."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len
from test_walk import LLAMA, OTHER, PAIR, TEXT, check_lines, predictor_of

from regard.cli import main
from regard.errors import RegardError, UsageError
from regard.inspect.walk import walk
from regard.look.colors import Color, contrast, ink_on, luminance
from regard.look.walk import Numbers, Step, Walk, WorkedLine
from regard.look.walk.examples.toy import toy_walk
from regard.look.walk.picture import draw_picture as picture
from regard.look.walk.shades import signed
from regard.look.walk.steps import format_cells, format_line, format_number
from regard.tasks.run import RunResult

Captured = pytest.CaptureFixture[str]
E1, E2 = math.exp(-1), math.exp(-2)

# Done by hand: x W for "books" (1, 1, 0, 1), and so on.
BY_HAND: dict[str, Any] = {
    "x": [[1, 0, 1, 0], [0, 2, 0, 1], [1, 1, 0, 1]],
    "table": [[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
              [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]],
    "W_q": [[1, 0, 2, 0], [1, 0, 0, 0], [0, 2, 0, 2], [0, 0, 0, 2]],
    "W_k": [[0, 0, 3, 0], [0, 0, 0, 1], [0, 3, 0, 0], [0, 0, 0, 0]],
    "W_v": [[1, 0, 0, 2], [0, 3, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]],
    "q": [[2, 0, 2, 2]],
    "k": [[0, 3, 3, 0], [0, 0, 0, 2], [0, 0, 3, 1]],
    "v": [[1, 0, 1, 2], [1, 6, 0, 1], [2, 3, 0, 3]],
    "products": [[0, 0, 6, 0], [0, 0, 0, 4], [0, 0, 6, 2]],
    "sums": [[6], [4], [8]],
    "scaled": [[3], [2], [4]],
    "masked scores": [[3], [2], [4]],
    "max": [[4]],
    "shifted": [[-1], [-2], [0]],
    "exp": [[E1], [E2], [1]],
    "sum": [[1 + E1 + E2]],
    "weights": [[0.24472847], [0.09003057], [0.66524096]],
    "weighted v": [[0.24472847, 0, 0.24472847, 0.48945694], [0.09003057, 0.54018342, 0, 0.09003057],
                   [1.33048192, 1.99572288, 0, 1.99572288]],
    "head output": [[1.66524096, 2.53590630, 0.24472847, 2.57521039]],
}  # fmt: skip
CAUSAL: dict[str, Any] = {  # "reads" sees "she" and itself: scores 0 and 2
    "q": [[2, 0, 0, 2]],
    "products": [[0, 0, 0, 0], [0, 0, 0, 4], [0, 0, 0, 2]],
    "sums": [[0], [4], [2]],
    "scaled": [[0], [2], [1]],
    "allowed": [[1], [1], [0]],
    "masked scores": [[0], [2], [-math.inf]],
    "max": [[2]],
    "shifted": [[-2], [0], [-math.inf]],
    "exp": [[E2], [1], [0]],
    "sum": [[1 + E2]],
    "weights": [[0.11920292], [0.88079708], [0]],
    "weighted v": [[0.11920292, 0, 0.11920292, 0.23840584], [0.88079708, 5.28478247, 0, 0.88079708], [0, 0, 0, 0]],
    "head output": [[1, 5.28478247, 0.11920292, 1.11920292]],
}


@pytest.mark.parametrize(("role", "wanted"), [("self", BY_HAND), ("causal", {**BY_HAND, **CAUSAL})])
def test_the_worked_example_is_that_of_paper_and_pencil(role: str, wanted: dict[str, Any]) -> None:
    found = toy_walk(role)
    arrays = [array for step in found.steps for array in step.arrays]
    for array in arrays:
        assert array.name in wanted, f"no oracle for {array.name}"
        np.testing.assert_allclose(array.values, wanted[array.name], atol=1e-8, err_msg=array.name)
    assert check_lines(found) >= 4 and found.difference == 0.0
    whole = {"x", "q", "k", "v", "products", "sums", "scaled"}
    assert all((array.values == array.values.round()).all() for array in arrays if array.name in whole)


def test_the_worked_example_takes_a_query_and_refuses_what_it_has_not() -> None:
    assert toy_walk("self", "she").about["query"] == 0 and toy_walk("causal", "2").about["query"] == 2
    with pytest.raises(UsageError, match="no query dog in the worked example; there is she, reads, books"):
        toy_walk("self", "dog")
    with pytest.raises(UsageError, match="self and causal, not cross"):
        toy_walk("cross")


# --- JSON


@pytest.fixture(scope="module")
def found() -> Walk:
    return walk(predictor_of("translate", PAIR), TEXT, OTHER, role="causal", query=2)


def refuse(name: str) -> float:
    raise AssertionError(f"{name} is not strict JSON")


def test_json_is_strict_and_holds_every_number_in_full(found: Walk) -> None:
    data = json.loads(found.json(), parse_constant=refuse)
    read = {each["name"]: each for step in data["steps"] for each in step["arrays"]}
    for step in found.steps:
        for array in step.arrays:
            numbers = [[-math.inf if cell is None else cell for cell in row] for row in read[array.name]["values"]]
            assert (np.array(numbers) == array.values).all(), array.name  # to the last bit
            assert read[array.name]["rows"] == list(array.rows) and read[array.name]["columns"] == list(array.columns)
    assert [step["number"] for step in data["steps"]] == list(range(len(found.steps)))
    assert (
        data["differences"] == found.differences and data["role"] == "causal" and data["token"] == found.about["token"]
    )


# --- Figures of numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.12345, "0.123"), (-2.0, "-2"), (0.0, "0"), (6.12e-8, "6.1e-8"), (-math.inf, "-∞"), (1234567.5, "1.2e6")],
)  # fmt: skip
def test_a_number_as_a_person_reads_it(value: float, shown: str) -> None:
    assert format_number(value, 3) == shown


def test_cells_of_an_array_are_alike() -> None:
    assert format_cells(np.array([[1.0, -2.0], [-np.inf, 0.0]]), 3) == [["1", "-2"], ["-∞", "0"]]
    assert format_cells(np.array([[1.0, 0.25, 0.0]]), 2) == [["1.00", "0.25", "0.00"]]


def test_a_line_puts_brackets_around_negative_numbers_after_operators() -> None:
    line = WorkedLine("a = {} · {} + [2 more: {}] = {}", (-1.5, -2.25, -3.0, 0.375), ("a", 0, 0))
    assert format_line(line, 2) == "a = -1.50 · (-2.25) + [2 more: -3] = 0.38"


# --- Terminal


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_terminal_fits_its_width_and_holds_the_numbers(found: Walk, width: int) -> None:
    text = found.text(width)
    assert max(map(cell_len, text.splitlines())) <= width
    for number, step in enumerate(found.steps):
        assert f"{number} · {step.title}" in text
    for weight in found["weights"][:, 0]:
        assert format_number(weight, 3) in text
    assert "later than the query" in text and "-∞" in text
    assert re.search(
        r"recomputed = the model's output, difference \de-1\d \(the largest number is \d", " ".join(text.split())
    )
    assert "\x1b" not in text and "\x1b[" in found.text(width, color=True)


def test_wide_vectors_are_cut_in_the_middle_and_say_how_many_more(found: Walk) -> None:
    wide = Walk("t", "s", (Step("a", "b", "c", (Numbers("many", np.arange(40.0) + 0.5, ("x",)),)),))
    text = wide.text(80, digits=2)
    line = next(line for line in text.splitlines() if "more" in line)
    shown = [int(word) for word in line.split() if word.isdigit()]
    assert shown[0] == 0 and shown[-1] == 39
    left_out = shown[shown.index(next(n for n in shown if f"… {n} more" in line))]
    assert left_out == 40 - (len(shown) - 1)
    assert "0.50" in text and "39.50" in text and "20.50" not in text


def test_long_tables_are_cut_too() -> None:
    rows = tuple(f"row{n}" for n in range(100))
    text = Walk("t", "s", (Step("a", "b", "c", (Numbers("many", np.ones((100, 2)) / 3, rows),)),)).text()
    assert "… 60 more" in text and "row19" in text and "row20" not in text and "row99" in text


def test_digits_are_the_persons(found: Walk) -> None:
    weight = float(found["weights"][0, 0])
    assert f"{weight:.6f}" in found.text(digits=6) and f"{weight:.6f}" in found.html(digits=6)


# --- Page


def elements(html: str) -> ET.Element:
    return ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))


def test_the_page_is_well_formed_and_loads_nothing(found: Walk) -> None:
    html = found.html()
    page = elements(html)
    for each in page.iter():
        for name, value in each.attrib.items():
            assert name not in ("src", "href", "srcset", "poster") or value.startswith(
                ("data:image/png;base64,", "#step-")
            )
    assert "url(" not in html and "@import" not in html and page.find(".//link") is None
    (script,) = page.iter("script")
    assert not script.attrib and "fetch" not in (script.text or "") and "import" not in (script.text or "")
    links = [each.attrib["href"][1:] for each in page.iter("a")]
    sections = [each.attrib["id"] for each in page.iter("section")]
    assert links == sections == [f"step-{number}" for number in range(len(found.steps))]


def test_the_page_holds_every_number_of_its_tables(found: Walk) -> None:
    """Wide rows are not cut on a page: each array that is shown has all its cells."""
    page = elements(found.html())
    shown = 0
    for number, step in enumerate(found.steps):
        section = next(each for each in page.iter("section") if each.attrib["id"] == f"step-{number}")
        cells = [each.text for each in section.iter("td") if each.text]
        headings = " ".join("".join(each.itertext()) for each in (*section.iter("h3"), *section.iter("th")))
        for array in step.arrays:
            if array.picture:
                assert section.find(".//img") is not None
                continue
            assert array.name in headings or any(array.name in (each.text or "") for each in section.iter("summary"))
            for text in (text for row in array.cells(3) for text in row):
                assert text in cells or f"= {text}" in headings, (array.name, text)
                shown += 1
    assert shown > 700


def test_labels_are_escaped_and_control_codes_never_arrive() -> None:
    label = "<b>&\x1b[31m"
    step = Step("<i>", "a < b", "x & y", (Numbers("n", np.array([[0.5]]), (label,), ("<s>",)),))
    for html in (Walk("<t>", "s", (step,)).html(), Walk("<t>", "s", (step,))._repr_html_()):
        assert "<b>" not in html and "\x1b" not in html and "&lt;b&gt;&amp;" in html and "&lt;i&gt;" in html
    assert "\x1b" not in Walk("t", "s", (step,)).text()


def test_masked_cells_have_no_colour_and_weights_do(found: Walk) -> None:
    page = elements(found.html())
    cells = [each for each in page.iter("td") if each.text == "-∞"]
    assert cells and all(each.attrib["class"] == "masked" for each in cells)
    best = format_number(float(found["weights"].max()), 3)
    assert any(
        each.text == best and each.attrib["class"].startswith("w") for each in page.iter("td") if "class" in each.attrib
    )
    legends = [each for each in page.iter("p") if each.attrib.get("class") == "legend"]
    assert len(legends) > 10 and all(each.find(".//i") is not None for each in legends)


def test_many_numbers_aside_are_left_to_the_json() -> None:
    big = Numbers("W", np.ones((80, 80)) / 3, tuple(map(str, range(80))), folded=True)
    html = Walk("t", "s", (Step("a", "b", "c", (big,)),)).html()
    assert "W (80 x 80): too many for a page" in html and "0.333" not in html


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_colours_of_signed_numbers_are_monotone_in_lightness_and_can_be_read_on(dark: bool, sign: int) -> None:
    ramp: list[Color] = [signed(sign * share, dark) for share in np.linspace(0, 1, 40)]
    lightness = [luminance(each) for each in ramp]
    steps = np.diff(lightness if dark else lightness[::-1])
    assert (steps >= -1e-9).all() and abs(lightness[0] - lightness[-1]) > 0.5
    assert all(contrast(ink_on(each), each) >= 4.5 for each in ramp)


def test_the_picture_of_the_table_frames_the_row_of_the_query(found: Walk) -> None:
    array = next(array for step in found.steps for array in step.arrays if array.picture)
    axes = picture(array).axes[0]
    mesh = axes.collections[0].get_array()
    assert mesh is not None and (np.asarray(mesh).reshape(array.values.shape) == array.values).all()
    (frame,) = axes.patches
    assert frame.get_y() == 2 and frame.get_height() == 1  # type: ignore[attr-defined]
    assert [each.get_text() for each in axes.texts] == ["this token"]


def test_the_picture_has_the_ground_of_the_page(found: Walk) -> None:
    """A white picture on a dark page dazzled: there is one for each ground, and paper has the light one."""
    picture = next(elements(found.html()).iter("picture"))
    dark, light = picture[0].attrib, picture[1].attrib
    assert dark["media"] == "screen and (prefers-color-scheme: dark)"
    corners = []
    for address in (dark["srcset"], light["src"]):
        content = base64.b64decode(address.removeprefix("data:image/png;base64,"))
        corners.append(luminance(Image.open(io.BytesIO(content)).convert("RGB").getpixel((0, 0))))
    assert corners[0] < 0.02 and corners[1] == pytest.approx(1.0)


def test_matrices_that_are_folded_stand_before_their_biases_on_a_page(found: Walk) -> None:
    number = next(number for number, step in enumerate(found.steps) if step.title == "x becomes q, k and v")
    section = next(each for each in elements(found.html()).iter("section") if each.attrib["id"] == f"step-{number}")
    names = [(each.text or "").split()[0] for each in section.iter() if each.tag in ("summary", "h3")]
    assert names == ["W_q", "W_k", "W_v", "b_q", "b_k", "b_v", "q", "k", "v"]


# --- Files and the command line


def test_files_by_suffix(found: Walk, tmp_path: Path) -> None:
    assert found.save(tmp_path / "a.html").read_text(encoding="utf-8") == found.html()
    assert found.save(tmp_path / "a.json").read_text(encoding="utf-8") == found.json()
    assert found.save(tmp_path / "a.txt").read_text(encoding="utf-8") == found.text() + "\n"
    assert found.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"ends in \.gif; use \.png, \.svg, \.html, \.json, \.txt"):
        found.save(tmp_path / "a.gif")


def test_an_array_checks_its_labels() -> None:
    with pytest.raises(RegardError, match="2 rows and 3 columns"):
        Numbers("n", np.zeros((2, 2)), ("a", "b"), ("c", "d", "e"))
    with pytest.raises(KeyError, match="no numbers 'nothing' in this walk"):
        toy_walk()["nothing"]


def typed(capsys: Captured, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main.run(["walk", *words])
    return code, *capsys.readouterr()


def test_the_worked_example_needs_no_model(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(capsys, "--toy")
    assert code == 0 and not err and "0.665" in out and "score of “books” = 2 · 0 + 0 · 0 + 2 · 3 + 2 · 1 = 8" in out
    code, out, err = typed(capsys, "--toy", "--json")
    assert code == 0 and json.loads(out)["steps"][3]["arrays"][0]["values"][2] == [0, 0, 6, 2]
    code, out, err = typed(capsys, "--toy", "-o", "toy.html")
    assert code == 0 and not out and err == "wrote toy.html\n" and (tmp_path / "toy.html").exists()


def test_a_walk_through_a_trained_run(capsys: Captured, tiny_run: RunResult) -> None:
    run = str(tiny_run.folder)
    code, out, _ = typed(
        capsys, "3 May 1999", "1999-05-03", "-m", run, "--layer", "0", "--head", "1", "--query", "2", "--json"
    )
    data = json.loads(out)
    assert code == 0 and (data["role"], data["layer"], data["head"], data["query"]) == ("cross", 0, 1, 2)
    assert max(data["differences"].values()) < 1e-5
    code, out, _ = typed(capsys, "3 May 1999", "-m", run, "--role", "self", "--digits", "2")
    assert code == 0 and "Recomputed = the model's output" in out and "Where" in out.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), 'which text? type: regard walk "A man rides a bike." (or regard walk --toy'),
        (("--toy", "a text"), "leave out the text"),
        (("--toy", "--role", "cross"), "self and causal, not cross"),
        (("a text",), "there is no trained run here"),
        (("a text", "-o", "a.gif"), "end it in .html, .json, .txt, .png, .svg"),
    ],
)
def test_wrong_use_says_what_to_type(
    words: tuple[str, ...], message: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.runs.SHIPPED", tmp_path)  # no bundle comes with the package
    code, out, err = typed(capsys, *words)
    assert code == 2 and not out and message in err


def test_a_notebook_gets_the_same_steps() -> None:
    found = walk(predictor_of("generate", LLAMA), TEXT)
    fragment = elements(found._repr_html_())
    assert fragment.attrib["class"] == "walk" and len(list(fragment.iter("section"))) == len(found.steps)
