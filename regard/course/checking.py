"""Start an exercise, check a reader's file, and tell which are solved: nothing is kept but the reader's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from regard.course.answers import AnswerFile
from regard.course.exercise import Answer, AnswerError, Exercise, Point
from regard.course.table import CHAPTERS, Chapter, find_chapter
from regard.errors import Advice, UsageError, Verb
from regard.files import write_text


@dataclass(frozen=True)
class Checked:
    """The answer to one exercise, point by point."""

    chapter: Chapter
    file: Path
    points: tuple[Point, ...]

    @property
    def solved(self) -> bool:
        return bool(self.points) and all(point.right for point in self.points)

    def data(self) -> dict[str, object]:
        points = [point.data() for point in self.points]
        return {
            "chapter": self.chapter.number, "file": str(self.file), "solved": self.solved, "points": points
        }  # fmt: skip


def start_exercise(number: int, folder: str | Path) -> Path:
    """Write the file of an exercise, to be filled in; one that is there stays as it is."""
    chapter = find_chapter(number)
    path = Path(folder) / chapter.answer
    if path.exists():
        raise UsageError(f"{path} is there already", Advice(Verb("course check", str(number)), " checks it"))
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_text(path, written(chapter))


def written(chapter: Chapter) -> str:
    """The file of an exercise: the question as a docstring, then what is to be filled in."""
    exercise = chapter.exercise
    question = exercise.question.strip()
    return f'"""Chapter {chapter.number}: {chapter.title}\n\n{question}\n"""\n\n{exercise.template.strip()}\n'


def check_exercise(number: int, file: str | Path) -> Checked:
    """Run a reader's file beside an independent computation."""
    chapter, path = find_chapter(number), Path(file)
    if path.is_dir():
        path /= chapter.answer
    if not path.is_file():
        where = "if you began in another folder, go there; to begin in this one: "
        raise UsageError(f"there is no {path} here", Advice(where, Verb("course start", str(number))))
    exercise = chapter.exercise
    with AnswerFile(path, exercise.seconds) as answer:
        return Checked(chapter, path, judged(exercise, answer))


def judged(exercise: Exercise, answer: Answer) -> tuple[Point, ...]:
    """The points of all parts; where a part cannot be judged, those before it and why. What is said twice is told once."""
    points: dict[Point, None] = {}
    for check in exercise.checks:
        try:
            for point in check(answer):
                points[point] = None
        except AnswerError as error:
            points[Point(False, error.wrong, error.hint)] = None
    return tuple(points)


def solved_in(folder: str | Path) -> Mapping[int, bool | None]:
    """Whether each exercise is solved by its file in this folder; None where there is no file."""
    found: dict[int, bool | None] = {}
    for number, chapter in CHAPTERS.items():
        path = Path(folder) / chapter.answer
        found[number] = check_exercise(number, path).solved if path.is_file() else None
    return found
