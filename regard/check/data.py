"""Check any data that a model can be trained on: what task it is for is said, or told by its form and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.check.labelled import check_labelled, check_plain
from regard.check.pairs import check_pairs
from regard.check.pictures import caption_rows, check_captions, check_pictures, pictures_of
from regard.check.reading import Rows, builtin_rows, columns_of, labelled_rows, pair_rows, plain_rows
from regard.check.report import CHECKED, Report
from regard.check.scan import OnProgress
from regard.config import find_file
from regard.data.archives import ZIP
from regard.data.graphs.config import are_graphs
from regard.data.labelled_files import LABEL_NAMES, Keys
from regard.data.lines import suffix_of
from regard.data.pair_files import FIELDS, LANGUAGES, SOURCE_NAMES, TARGET_NAMES
from regard.data.parquet import PARQUET
from regard.data.pictures.captions import read_captions, read_questions
from regard.data.pictures.config import are_pictures
from regard.data.pictures.sets import CaptionSet, PictureSet, QuestionSet, read_picture_set
from regard.data.rows import FORMATS, few_values, words_of
from regard.data.tmx import TMX
from regard.errors import Advice, Option, UsageError, Verb, nearest

BUILTIN = {
    "dates": "translate", "copy": "translate", "recall": "translate", "addition": "translate", "names": "classify",
    "listops": "classify", "python": "generate", "glyphs": "classify-pictures", "spanish": "translate",
    "sentences": "generate",
}  # fmt: skip
PICTURES = {"picture", "image", "file_name", "filename", "image_path"}
HARMLESS = ("duplicates", "contradiction", "leak", "leak-alike", "leak-near")  # in what is said of pictures


@dataclass(frozen=True)
class Asked:
    """Options of a check, besides the files."""

    task: str | None = None
    text: str = "text"
    label: str = "label"
    second: str | None = None
    fields: tuple[str, str] = FIELDS
    languages: tuple[str, str] | None = None
    examples: int = 3


def check_data(
    files: Sequence[str],
    asked: Asked | None = None,
    *,
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    data_root: Path | None = None,
    progress: OnProgress | None = None,
) -> Report:
    """Check training data, and that validation and test are apart from it."""
    asked = asked or Asked()
    if not files:
        raise UsageError("there is nothing to check", "name files, or built-in data such as builtin/dates")
    if asked.task is not None and asked.task not in CHECKED:
        raise UsageError(f"no check for data to {asked.task}", nearest(asked.task, CHECKED))
    if are_graphs([str(_place(name, data_root)) for name in files]):
        raise UsageError(
            "graphs are not checked beforehand",
            Advice(
                "what is wrong with them is told when they are read: ",
                Verb("train", f"classify --data {files[0]} --dry-run"),
            ),
        )
    task, why = (asked.task, "") if asked.task else guess_task(files, asked, data_root)
    if task == "classify" and are_pictures([str(_place(name, data_root)) for name in files]):
        task = "classify-pictures"
    sets = {name: names for name, names in (("train", files), ("valid", valid), ("test", test)) if names}
    report = _check(task, sets, asked, data_root, progress)
    return replace(report, notes=(*((why,) if why else ()), *report.notes))


def _check(
    task: str, sets: dict[str, Sequence[str]], asked: Asked, data_root: Path | None, progress: OnProgress | None
) -> Report:
    if task == "classify-pictures":
        found = {name: _pictures(names, data_root) for name, names in sets.items()}
        return _check_pictures(found, sets, asked, progress)
    if task in ("caption", "answer"):
        return _check_said(task, sets, asked, data_root, progress)
    rows = {name: _rows(task, names, asked, data_root, name) for name, names in sets.items()}
    train = rows.pop("train")
    if task == "translate":
        return check_pairs(train, rows, examples=asked.examples, progress=progress)
    if task == "classify":
        return check_labelled(train, rows, examples=asked.examples, progress=progress)
    return check_plain(train, rows, examples=asked.examples, task=task, progress=progress)


def _rows(task: str, names: Sequence[str], asked: Asked, data_root: Path | None, split: str) -> Rows:
    if names[0].startswith("builtin/"):
        return builtin_rows(task, names, split)
    paths = [find_file(name, data_root) for name in names]
    if task == "translate":
        return pair_rows(paths, asked.fields, asked.languages)
    if task == "classify":
        return labelled_rows(paths, Keys(asked.text, asked.label, asked.second))
    return plain_rows(paths, asked.text)


def _pictures(names: Sequence[str], data_root: Path | None) -> PictureSet:
    if names[0].startswith("builtin/"):
        from regard.data.pictures.load import read_pictures  # draws with torch

        return read_pictures(names, data_root)
    return read_picture_set([find_file(name, data_root) for name in names])


def _check_pictures(
    found: dict[str, PictureSet],
    sets: dict[str, Sequence[str]],
    asked: Asked,
    progress: OnProgress | None,
    task: str = "classify-pictures",
) -> Report:
    files = {name: tuple(names) for name, names in sets.items()}
    others = {name: each for name, each in found.items() if name != "train"}
    return check_pictures(
        found["train"], others, files=files, examples=asked.examples, task=task, progress=progress
    )  # fmt: skip


def _check_said(
    task: str, sets: dict[str, Sequence[str]], asked: Asked, data_root: Path | None, progress: OnProgress | None
) -> Report:
    """Pictures, and captions or questions about them: equal texts of different pictures are no trouble."""
    found: dict[str, CaptionSet | QuestionSet] = {}
    for name, names in sets.items():
        path = find_file(names[0], data_root)
        found[name] = read_captions(path) if task == "caption" else read_questions(path)
    rows = {name: caption_rows(each, tuple(sets[name])) for name, each in found.items()}
    train = rows.pop("train")
    if task == "caption":
        texts = check_plain(train, rows, examples=asked.examples)
    else:
        texts = check_labelled(train, rows, examples=asked.examples, unit="questions")
    kept = tuple(finding for finding in texts.findings if finding.kind not in HARMLESS)
    texts = replace(texts, findings=kept, unit="captions" if task == "caption" else "questions")
    pictures = {name: pictures_of(each) for name, each in found.items()}
    return check_captions(texts, _check_pictures(pictures, sets, asked, progress, task), task)


# --- What the data is for


def _place(name: str, data_root: Path | None) -> str | Path:
    return name if name.startswith("builtin/") else find_file(name, data_root)


def guess_task(files: Sequence[str], asked: Asked, data_root: Path | None = None) -> tuple[str, str]:
    """The task that data is for, and a sentence that says what it was taken for."""
    if files[0].startswith("builtin/"):
        name = files[0].split("/")[1]
        known = next((task for start, task in BUILTIN.items() if name.startswith(start)), None)
        if known is None:
            raise UsageError(f"there is no built-in data {files[0]}", nearest(name, BUILTIN))
        return known, ""
    paths = [find_file(name, data_root) for name in files]
    if are_pictures([str(path) for path in paths]) or paths[0].suffix == ".bin":
        return _taken("classify-pictures", "pictures with a class a folder")
    if (form := suffix_of(paths[0]).lower()) in (TMX, ZIP, PARQUET):
        return _taken("translate", f"pairs in {form}")
    if paths[0].is_dir() and asked.languages:
        return _taken("translate", "a folder with a file for each language")
    if paths[0].is_dir():
        labelled = any(paths[0].glob("*/*.txt")) or any(paths[0].glob("*/*.txt.gz"))
        return _taken("classify", "a folder of texts for each label") if labelled else _taken("generate", "plain text")
    if suffix_of(paths[0]) in FORMATS:
        return _by_columns(paths[0], asked)
    return _taken("translate", "two parallel files") if len(paths) == 2 else _taken("generate", "plain text")


def _taken(task: str, form: str) -> tuple[str, str]:
    otherwise = Advice(f"taken for data to {task}: {form}; say otherwise with ", Option("task"))
    return task, otherwise


def _by_columns(path: Path, asked: Asked) -> tuple[str, str]:
    """The task of a table, by the names of its columns or by what is in them."""
    if asked.fields != FIELDS or asked.languages:
        return "translate", ""
    if asked.label != "label" or asked.second:
        return "classify", ""
    names, columns = columns_of(path)
    folded = {name.strip().casefold() for name in names}
    if folded & PICTURES:
        asking = bool(folded & {"question", "query"})
        return _taken("answer" if asking else "caption", f"columns {', '.join(names)}")
    languages = [name for name in names if words_of(name) & LANGUAGES]
    if len(languages) >= 2 or (folded & set(SOURCE_NAMES) and folded & set(TARGET_NAMES)):
        return _taken("translate", f"columns {', '.join(names)}")
    if folded & set(LABEL_NAMES):
        return _taken("classify", f"columns {', '.join(names)}")
    if len(columns) == 1 or (names and folded & {"text", "content", "document", "body"} and suffix_of(path) != ".tsv"):
        return _taken("generate", "one column of text")
    if any(few_values(column) for column in columns):
        return _taken("classify", "a column has few different values")
    return _taken("translate", "columns of different texts")
