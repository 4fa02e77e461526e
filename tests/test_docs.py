"""What documents show can be typed: every command parses, cheap ones run, and every block of code is run or says why not.

A block of sh or python that no test runs says so behind its language: ```sh long, or ```sh illustration. Commands that need
nothing but what comes with Regard are run here, in one process; of all others the verb, the options and their values are
held against the command line's own definition.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import typer
from markdown_it import MarkdownIt
from PIL import Image

import regard
from regard.cli.arguments import plugins_first, take_debug
from regard.cli.main import VERBS, WrongUse, command, run
from regard.data.builtin.scenes import draw_scene
from regard.errors import RegardError
from regard.runs import SHIPPED

ROOT = Path(regard.__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
OWN = [page for page in PAGES if "course" not in page.parts]  # the course's blocks are run by its own test
SHELL, PYTHON = ("sh", "bash", "shell", "console"), ("python", "py")
MARKS = ("long", "illustration")
RUN_ELSEWHERE = {
    "README.md": "test_readme.py",
    "docs/syllabus.md": "test_syllabus.py",
    "docs/pixels.md": "test_painting.py",
}
RUN_HERE = ("docs/engine.md", "docs/plugins.md")


# --- What stands on the pages


@dataclass(frozen=True)
class Block:
    """A fenced block of code, with what its author says of it."""

    page: str
    line: int
    language: str
    mark: str
    text: str


@dataclass(frozen=True)
class Typed:
    """A command as a page shows it; `whole` where it stands in a block and not in a sentence."""

    page: str
    line: int
    words: tuple[str, ...]
    whole: bool

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}: regard {shlex.join(self.words)}"


def blocks_of(page: Path) -> Iterator[Block]:
    name = str(page.relative_to(ROOT))
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map:
            language, _, mark = token.info.strip().partition(" ")
            yield Block(name, token.map[0] + 1, language, mark.strip(), token.content)


def commands_of(page: Path) -> Iterator[Typed]:
    name = str(page.relative_to(ROOT))
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "code_block" or (token.type == "fence" and token.info.split(" ")[0] in ("", *SHELL)):
            for words in typed_in(token.content):
                yield Typed(name, line, words, whole=True)
        for part in token.children or ():
            if part.type == "code_inline" and part.content.startswith("regard "):
                for words in typed_in(part.content):
                    yield Typed(name, line, words, whole=False)


def typed_in(text: str) -> Iterator[tuple[str, ...]]:
    """The commands of a block: comments behind two spaces go, and so do variables, pipes and the marks of what is optional."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for part in re.split(r" (?:\||&&|;|>) ", re.split(r" {2,}", line.strip())[0]):
            try:
                words = shlex.split(re.sub(r"\[(--[^\]]*)\]", r"\1", part), comments=True)
            except ValueError:  # an apostrophe of a sentence
                continue
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words = words[1:]
            if words[:1] == ["regard"]:
                yield tuple(word for word in words[1:] if word != "...")


made_once = cache(command)
COMMANDS = [each for page in PAGES for each in commands_of(page)]
BLOCKS = [each for page in OWN for each in blocks_of(page)]


def test_no_page_waits_for_its_table() -> None:
    """A page was merged whose paragraph was BABI_TABLE, where figures should have come."""
    waiting = re.compile(r"^(?:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|TODO|TBD|FIXME)\b.*$", re.MULTILINE)
    found = [f"{page.name}: {each}" for page in PAGES for each in waiting.findall(page.read_text(encoding="utf-8"))]
    assert not found
    assert waiting.findall("As follows:\n\nBABI_TABLE\n\nIt is") == ["BABI_TABLE"]


# --- Every command can be typed


def trouble(typed: Typed) -> str:
    """Why the command line would refuse a command; empty if it would take it. In a sentence, a command may be cut short."""
    _, words = take_debug(typed.words)
    words = plugins_first(words)
    plugged = False
    while words[:1] == ["--plugin"]:
        words, plugged = words[2:], True
    if not words or words[0] in ("--help", "--version", "-h"):
        return ""
    if words[0] not in VERBS:
        return "" if plugged or words[0].isupper() else f"there is no verb {words[0]}"
    made, rest = made_once(words[0]), words[1:]
    below = getattr(made, "commands", {})
    if below and rest and rest[0] in below:
        made, rest = below[rest[0]], rest[1:]
    elif below:
        made = below.get("model", made) if rest else made
    if "--help" in rest or (below and not rest):
        return ""
    try:
        made.make_context(words[0], list(rest))
    except WrongUse as error:
        cut_short = type(error).__name__ == "MissingParameter" or "requires an argument" in str(error)
        return "" if cut_short and not typed.whole else error.format_message()
    except RegardError as error:
        return str(error)
    return ""


def test_every_command_of_every_page_can_be_typed() -> None:
    assert len(COMMANDS) > 200
    wrong = {each.where: trouble(each) for each in COMMANDS}
    assert {where: why for where, why in wrong.items() if why} == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("regard trane translate", "no verb trane"),
        ("regard train translate --budjet 3m", "--budjet"),
        ("regard walk --digits many", "valid integer"),
        ("regard score RUN", "Missing argument"),
        ("A=b regard bench attention --rounds 0 | cat", "--rounds"),
    ],
)
def test_a_wrong_command_is_told(line: str, words: str) -> None:
    (typed,) = typed_in(line)
    assert words in trouble(Typed("page", 1, typed, whole=True))


def test_commands_are_found_in_a_block() -> None:
    text = (
        "REGARD_DATA=... regard eval RUN --on a.gz [--lowercase]    it's a comment\ncat a | regard translate > b\n"
        'regard look "two  words"\nregard compare a.toml \\\n    b.toml && regard runs\n# regard no\nregarding x\n'
    )
    assert list(typed_in(text)) == [
        ("eval", "RUN", "--on", "a.gz", "--lowercase"),
        ("translate",),
        ("compare", "a.toml", "b.toml"),
        ("runs",),
    ]


# --- Every block is run, or says why not


def test_every_block_of_code_is_run_or_says_why_not() -> None:
    marked = [each for each in BLOCKS if each.language in (*SHELL, *PYTHON)]
    unknown = [f"{each.page}:{each.line}: {each.mark}" for each in marked if each.mark not in ("", *MARKS)]
    assert unknown == [], f"behind the language of a block stands nothing, or one of {MARKS}"
    silent = [each for each in marked if not each.mark and each.page not in (*RUN_ELSEWHERE, *RUN_HERE)]
    assert [f"{each.page}:{each.line}" for each in silent] == [], "no test runs these; mark them long or illustration"


def test_the_python_about_serving_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, with models that come with Regard in the place of the reader's runs."""
    shutil.copytree(SHIPPED / "dates", tmp_path / "runs/translate/3")
    shutil.copytree(SHIPPED / "python", tmp_path / "runs/generate/1")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = [each for each in BLOCKS if each.page == "docs/engine.md"]
    for block in blocks:
        exec(block.text, names)
    served = names["served"]
    try:
        assert len(blocks) == 3 and names["mine"].translate("3 mars 1998").text == "1998-03-03"  # type: ignore[attr-defined]
    finally:
        served.close()  # type: ignore[attr-defined]


def test_the_python_about_plugins_makes_a_plugin(tmp_path: Path) -> None:
    """In a process of its own: what a plugin adds stays added."""
    blocks = [each.text for each in BLOCKS if each.page == "docs/plugins.md" and each.language == "python"]
    (tmp_path / "mine.py").write_text("\n".join(blocks), encoding="utf-8")
    line = [sys.executable, "-m", "regard", "--plugin", str(tmp_path / "mine.py"), "--help"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert len(blocks) == 2 and done.returncode == 0, done.stderr
    assert re.search(r"reverse +\S", done.stdout.partition("Added by plugins")[2])


# --- Cheap commands are run

CHEAP = ("walk", "tokens", "look", "translate", "classify", "generate", "caption", "runs", "config", "data", "score",
         "summary", "experiment", "doctor", "bench")  # fmt: skip
NOT_HERE = {  # what a command holds, and why it is not run
    r"\b(RUN|DIR|FILE|TASK|NAME|THIS_FILE|TEXT)\b": "a name to be filled in",
    r"^experiment \S": "takes minutes; test_experiments.py runs each in its tiny mode",
    r"^bench (?!patterns)": "measures for minutes",
    r"^doctor --world": "starts processes; test_world_doctor.py does",
    r"^data cache": "clears what other tests keep",
    r"--merges 800|It was a dark": "the same as another, and slow",
    r"--engine|--weights": "another library, or large models",
    r"runs/(?!translate/1|generate/1)": "a run of the page",
    r"--layer 3|pictures/|memory\.tmx|\.parquet|reviews\.csv|\.de\b|book\.txt|runs/classify": "a model or file of the reader's",
    r"^(look|classify) (photo|scene)\.": "no classifier of pictures comes with Regard",
    r"^(look|classify) .*--second|^(translate|generate)$": "reads standard input, or a pair",
    r"--as (states|routing|features|pixels) |--exact": "a kind of model that does not come with Regard",
}


def why_not(typed: Typed) -> str:
    text = " ".join(typed.words)
    if typed.words[:1] and typed.words[0] not in CHEAP:
        return "trains, serves or measures"
    return next((why for pattern, why in NOT_HERE.items() if re.search(pattern, text)), "")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what documents take for granted: a run or two, some texts, pictures, numbers."""
    shutil.copytree(SHIPPED / "dates", tmp_path / "runs/translate/1")
    shutil.copytree(SHIPPED / "python", tmp_path / "runs/generate/1")
    rows = "".join(f"{day} mai 2004\t2004-05-{day:02}\n" for day in range(1, 29))
    for name in ("pairs.tsv", "test.tsv"):
        (tmp_path / name).write_text(rows, encoding="utf-8")
    for name in ("text.txt", "file.en", "mine.txt"):
        (tmp_path / name).write_text("3 mai 2004\n4 mai 2004\n", encoding="utf-8")
    for name in ("scene.png", "photo.jpg"):
        Image.fromarray(draw_scene(3).picture).save(tmp_path / name)
    numbers = {"x": [[1, 0], [0, 1], [1, 1]], **{name: [[1, 0], [0, 1]] for name in ("W_q", "W_k", "W_v")}}
    (tmp_path / "numbers.json").write_text(json.dumps(numbers), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_that_need_nothing_else_run(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As they stand, each once; those of the syllabus are run by its own test."""
    there = {each.words for each in COMMANDS if each.page == "docs/syllabus.md"}
    shown = {each.words: each for each in COMMANDS if each.whole and each.words not in there}
    reasons = Counter(why_not(each) or "run" for each in shown.values())
    failed = {}
    for words, each in shown.items():
        if not why_not(each) and run(list(words)) != 0:
            failed[each.where] = capsys.readouterr().err.strip().splitlines()[-1:]
    capsys.readouterr()
    print(dict(reasons), dict(Counter(each.mark or "run" for each in BLOCKS if each.language in (*SHELL, *PYTHON))))
    assert failed == {}
    assert reasons["run"] >= 25


def test_typer_is_the_one_whose_words_are_held_against(capsys: pytest.CaptureFixture[str]) -> None:
    """A context can be made without doing anything: otherwise the test above would train."""
    made = command("train")
    assert isinstance(made, typer.core.TyperCommand)
    made.make_context("train", ["translate", "--budget", "3m"])
    assert capsys.readouterr() == ("", "")
