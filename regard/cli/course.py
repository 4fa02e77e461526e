"""`regard course`: chapters from counted weights to maps that explain, each with an exercise that is checked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.arguments import NearestName
from regard.cli.options import AsJson
from regard.cli.output import print_json, print_table, results, say
from regard.course.table import CHAPTERS, find_chapter
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.course.checking import Checked

FOLDER = Path("course")  # of the reader's answers
BOX = re.compile(r"^```[^\n]*\n(.*?)^```\n", re.DOTALL | re.MULTILINE)  # what is typed, or printed
MARKS = {True: "solved", False: "begun", None: ""}
Number = Annotated[int, typer.Argument(metavar="N", help="The number of a chapter.", show_default=False)]

course = typer.Typer(
    cls=NearestName,
    rich_markup_mode=None,
    add_completion=False,
    help="""Learn attention in eighteen chapters, each with an exercise that is checked.""",
    epilog="Such as: regard course show 1, regard course start 1, regard course check 1",
)


@course.callback(invoke_without_command=True)
def chapters(
    context: typer.Context,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where your answers are.")] = FOLDER,
    as_json: AsJson = False,
) -> None:
    """List the chapters, and which exercises are solved by the files in the folder of your answers."""
    if context.invoked_subcommand is not None:
        return
    from regard.course.checking import solved_in

    solved = solved_in(folder)
    if as_json:
        print_json([{**chapter.data(), "solved": solved[number]} for number, chapter in CHAPTERS.items()])
        return
    rows = [[str(n), chapter.title, chapter.about, MARKS[solved[n]]] for n, chapter in CHAPTERS.items()]
    print_table(("", "chapter", "about", ""), rows, right=("",), fold=("about",), stack=True)
    results().print("\nregard course show N reads one; regard course start N begins its exercise.")


@course.command()
def show(number: Number) -> None:
    """Print a chapter."""
    chapter = find_chapter(number)
    if not chapter.page.is_file():
        raise RegardError("the chapters are not installed with the package", "they are in docs/course of its source")
    text, console = chapter.page.read_text(encoding="utf-8"), results()
    if not console.is_terminal:
        print(text, end="")
        return
    from rich.markdown import Markdown

    for place, part in enumerate(BOX.split(text)):
        if place % 2:  # as it is, so that it can be copied: neither moved nor broken
            console.print(part, markup=False, highlight=False, soft_wrap=True)
        else:
            console.print(Markdown(part))
    say(f"the page with its pictures: {chapter.page}")


@course.command()
def start(
    number: Number,
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the file goes.")] = FOLDER,
) -> None:
    """Write the file of a chapter's exercise, to be filled in."""
    from regard.course.checking import start_exercise

    path = start_exercise(number, folder)
    named = "" if folder == FOLDER else f" {path}"
    say(f"wrote {path}: fill it in, then type: regard course check {number}{named}")


@course.command()
def check(
    number: Number,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Your file, or its folder.", show_default="course/chapterNN.py"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check your answer: what is right, what is wrong with both numbers, and a hint. Exits 0 if all is right, else 1."""
    from regard.course.checking import check_exercise

    found = check_exercise(number, file or FOLDER)
    if as_json:
        print_json(found.data())
    else:
        print_points(found)
    if not found.solved:
        raise typer.Exit(1)


def print_points(found: Checked) -> None:
    """A line for each point, its hint below it, and how it ended."""
    console = results()
    for point in found.points:
        mark, style = ("✓", "green") if point.right else ("✗", "bold red")
        console.print(f"[{style}]{mark}[/] ", end="")
        console.print(point.says, markup=False, soft_wrap=True)
        if point.hint and not point.right:
            console.print(f"  hint: {point.hint}", markup=False, soft_wrap=True, style="dim")
    right = sum(point.right for point in found.points)
    if not found.solved:
        console.print(f"\n{right} of {len(found.points)} right; not solved yet.")
        return
    number = found.chapter.number + 1
    then = f"next: regard course show {number}" if number in CHAPTERS else "that was the last chapter"
    console.print(f"\nChapter {found.chapter.number} is solved; {then}")
