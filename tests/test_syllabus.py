"""The syllabus: its commands are found on the page, run in their shortest form, and a failure is told."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import syllabus  # noqa: E402

from regard.experiments.table import EXPERIMENTS  # noqa: E402
from regard.look.walk.examples import EXAMPLES  # noqa: E402

LINES = syllabus.lines_of(syllabus.PAGE.read_text(encoding="utf-8"))


def test_the_page_has_every_section_every_example_and_every_experiment() -> None:
    assert {line.section[:2] for line in LINES if not line.is_python} == {"A.", "B.", "C.", "D."}
    words = [shlex.split(line.text) for line in LINES if not line.is_python]
    shown = {each[each.index("--example") + 1] for each in words if "--example" in each}
    assert shown == set(EXAMPLES)
    assert {each[2] for each in words if each[1] == "experiment"} == set(EXPERIMENTS)


def test_the_whole_page_runs_in_its_tiny_mode(tmp_path: Path) -> None:
    """Experiments are run so by test_experiments.py, each with what it must say; here they are only found."""
    lines = [line for line in LINES if " experiment " not in line.text]
    outcomes = list(syllabus.run_lines(lines, tmp_path, tiny=True))
    assert [(each.line.text, each.failed) for each in outcomes if each.failed] == []
    assert sum(each.mark == "✓" for each in outcomes) >= 55
    assert {"scene.png", "numbers.json", "board.png", "runs"} <= {each.name for each in tmp_path.iterdir()}


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    page = "## One\n\n```python\nopen('a.txt', 'w').close()\n```\n\n    regard walk --toy    on paper\n"
    page += "    regard walk --example none\n"
    lines = syllabus.lines_of(page)
    assert [(line.section, line.is_python) for line in lines] == [("One", True), ("One", False), ("One", False)]
    outcomes = list(syllabus.run_lines(lines, tmp_path))
    assert [each.mark for each in outcomes] == ["✓", "✓", "✗"] and (tmp_path / "a.txt").exists()
    table = syllabus.table_of(outcomes)
    assert "no example none" in table and "2 ran, 1 failed, 0 left out" in table


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("regard walk --toy", "regard walk --toy"),
        ("regard experiment scaling", "regard experiment scaling --tiny"),
        ("regard tokens a", "regard tokens a --merges 20"),
        (
            "regard train classify --model tfidf --budget 20s -o a",
            "regard train classify --model tfidf -o a --steps 2 --preset demo --data few.tsv",
        ),
        ("regard train classify --from b --steps 9", "regard train classify --from b --steps 2 --data few.tsv"),
    ],
)
def test_the_shortest_form_of_a_command(command: str, short: str) -> None:
    assert syllabus.shortened(command) == short
