"""`regard compare`: several models on one test set, in one report; with a budget, they are trained first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.arguments import as_typed
from regard.cli.eval import check_tokenizer
from regard.cli.model import about, check_device, check_files, choose_device
from regard.cli.options import (
    AsJson,
    Beam,
    Device,
    LabelColumn,
    Lowercase,
    PairColumn,
    Softness,
    SourceColumn,
    Tables,
    TargetColumn,
    TextColumn,
    Tokenize,
    column_settings,
    given,
)
from regard.cli.output import print_json, print_table, progress, results, say, show_run
from regard.compare.contenders import (
    Contender,
    check_same_data,
    named_test_set,
    read_contenders,
    task_of_contender,
)
from regard.config import check
from regard.decode.config import DecodeConfig
from regard.errors import UsageError, spelled
from regard.files import write_json
from regard.runs import new_run
from regard.tasks.translate.config import TranslateConfig
from regard.training.config import TrainConfig

if TYPE_CHECKING:
    from regard.compare.quality import QualityReport
    from regard.compare.translation import Entry, Report, TestSet
    from regard.tasks.comparison import TestData


def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT WHAT...",
            help="Trained runs; or, with --budget, kinds of models (transformer, bahdanau, ...) and .toml files.",
            show_default=False,
        ),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="FILE...",
            show_default="data.test, or built-in dates",
            help="Test data: one .tsv, .csv or .jsonl file, two parallel files, or built-in, as builtin/dates/test.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Train each for so long, as 90s or 15m: steps are always set from its measured speed, so that its "
            "schedule ends with the time, and patience is off.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Training pairs.", show_default="built-in dates, or the .toml's"),
    ] = None,
    valid: Annotated[list[str] | None, typer.Option(metavar="FILE...", help="Validation pairs.")] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    pair: PairColumn = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Size of the models: demo, tiny, base or big.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="A key of every configuration, as train.seed=2.")
    ] = None,
    join: Annotated[
        list[int] | None,
        typer.Option(metavar="N...", help="Also test longer inputs, each N neighbours joined, as --join 2 3 4."),
    ] = None,
    sentence: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Show attention on this source.", show_default="one of the test set"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Folder of the runs and the report.", show_default="runs/compare/NUMBER"
        ),
    ] = None,
    beam: Beam = None,
    softness: Softness = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """One report for several models: quality, significance, size, speed.

    With --budget they are trained first, each for so long. Stopped? The same command with the same -o goes on.
    """
    if len(what) < 2:
        raise UsageError("a comparison needs two models or more: regard compare RUN RUN --on test.tsv")
    check_tokenizer(tokenize)
    check_device(device)
    tables = given(train=data or None, valid=valid or None)
    over = given(preset=preset, data=tables or None)
    contenders = read_contenders(what, over, settings)
    task = one_task(contenders)
    columns = column_settings(task, text=text, label=label, pair=pair, source=source, target=target)
    if columns:  # what they are called depends on the task, which the contenders tell
        contenders = read_contenders(what, {**over, "data": tables | columns}, settings)
    check_same_data(contenders, test_matters=not on)
    seconds = read_budget(budget, contenders)
    decode = given(beam=beam, softness=softness)
    check_options(
        task, contenders, decode, {"join": join or None, "lowercase": lowercase or None, "tokenize": tokenize}
    )
    names = named_test_set(contenders, on or [])
    for each in contenders:
        check_files(each.files, each.data_root)
    check_files(names, contenders[0].data_root, task)
    device = choose_device(device)
    from regard.tasks.comparison import TestData

    test = read_test(task, contenders, names, join or [], columns)
    place = new_run("compare") if out is None and seconds is not None else out
    folders = train_all(contenders, seconds, place, device)
    shown: Tables = {"sentence": sentence, "budget": seconds, "device": device}
    if isinstance(test, TestData):
        compare_quality(task, folders, test, place, as_json, **shown)
        return
    shown |= {"lowercase": lowercase, "tokenize": tokenize, "training_data": training_files(contenders)}
    compare_translators(folders, test, place, as_json, **shown, **decode)


def read_test(
    task: str, contenders: list[Contender], names: tuple[str, ...], join: list[int], columns: Tables
) -> TestSet | TestData:
    """Read and check the test set before anything is trained."""
    from regard.compare import contest, quality, translation

    notes: list[str] = []
    if task != "translate":
        found = quality.read_test(task, contenders, names, columns, notes)
        say_all(notes)
        return found
    test = translation.read_test_pairs(contenders, names, join, columns, notes)
    say_all(notes)
    contest.check_reach(contenders, test.sources())  # what a model cannot read is told now, not when all are trained
    return test


def say_all(notes: list[str]) -> None:
    for note in notes:
        say(note)


def compare_translators(
    folders: dict[str, Path], test: TestSet, place: Path | None, as_json: bool, **options: Any
) -> None:
    """Translate the test set with each of them, write the report, then print it."""
    from regard.compare import report, translation

    with progress("translating") as advance:
        found = translation.compare(folders, test, progress=advance, **options)
    # Written before anything is printed: a reader that leaves early loses nothing.
    written = [] if place is None else report.write_report(found, place)
    if as_json:
        print_json(found.data())
    else:
        print_report(found)
    for path in written:
        print(f"wrote {path}", file=sys.stderr if as_json else sys.stdout)


def one_task(contenders: list[Contender]) -> str:
    """Return the task that all of them do."""
    tasks = {each.word: task_of_contender(each) for each in contenders}
    if len(set(tasks.values())) > 1:
        what = ", ".join(f"{word} is to {task}" for word, task in tasks.items())
        raise UsageError(f"models are compared at one task: {what}")
    return tasks[contenders[0].word]


def read_budget(budget: str | None, contenders: list[Contender]) -> float | None:
    """The budget in seconds. It is needed, and allowed, only where something is to be trained."""
    to_train = [each.word for each in contenders if each.config is not None]
    if budget is None:
        if to_train:
            raise UsageError(f"{to_train[0]} is to be trained: say for how long, as --budget 15m")
        return None
    if not to_train:
        raise UsageError("these models are all trained: leave out --budget, and name a test set with --on")
    seconds = check(TrainConfig, {"max_time": budget}, "--budget").max_time
    assert seconds is not None
    return seconds


def check_options(task: str, contenders: list[Contender], decode: Tables, scoring: Tables) -> None:
    """Check that options of decoding and of scores of translations have a meaning for the task, and fit every model."""
    if task != "translate":
        asked = given(**decode, **scoring)
        if asked:
            raise UsageError(f"--{next(iter(asked))} has no meaning for models to {task}; leave it out")
        return
    for each in contenders:
        config = each.config
        own = config.decode.model_dump() if isinstance(config, TranslateConfig) else about(each.word).decode
        check(DecodeConfig, {**own, **decode}, "decode")


def training_files(contenders: list[Contender]) -> tuple[str, ...]:
    """The training data of those that were trained here: all have the same."""
    return next((each.config.data.train for each in contenders if each.config is not None), ())


def train_all(contenders: list[Contender], budget: float | None, place: Path | None, device: str) -> dict[str, Path]:
    """A folder for each; whatever has to be trained is trained, and shown while it learns."""
    if budget is None:
        return {each.name: Path(each.word) for each in contenders}
    assert place is not None
    from regard.compare import contest

    say(f"comparison: {place}")
    try:
        return contest.train_all(contenders, budget, place, device=device, say=say, make_show=show_run)
    except (KeyboardInterrupt, contest.Interrupted):
        say(f"interrupted; go on with the same command and -o {place}")
        raise typer.Exit(130) from None


def print_report(report: Report) -> None:
    entries = report.entries
    rows = {name: [form(entry) for entry in entries] for name, form in COLUMNS.items()}
    shown = {name: cells for name, cells in rows.items() if any(cells)}
    print_table(tuple(shown), list(zip(*shown.values(), strict=True)), right=tuple(shown)[1:], fold=("model",))
    console = results()
    console.print(
        f"{report.sentences:,} sentences of {' '.join(report.on)}; differences are to {entries[0].name}", markup=False
    )
    console.print("p: how often luck alone makes such a difference (paired bootstrap)", style="dim")
    if any(entry.alignment for entry in entries):
        console.print("AER: alignment error rate of the mean attention map, 0% is perfect", style="dim")
    console.print(entries[0].bleu.signature, style="dim", markup=False, soft_wrap=True)
    for note in report.notes:
        console.print(spelled(note, as_typed), markup=False)


COLUMNS: dict[str, Callable[[Entry], str]] = {  # a column that has nothing for any model is left out
    "model": lambda entry: entry.name,
    "BLEU": lambda entry: f"{entry.bleu.value:.1f}",
    "95% interval": lambda entry: f"{entry.bleu.low:.1f} to {entry.bleu.high:.1f}",
    "diff.": lambda entry: "" if entry.against_first is None else f"{entry.against_first.difference:+.1f}",
    "p": lambda entry: "" if entry.against_first is None else f"{entry.against_first.p_value:.3f}",
    "chrF": lambda entry: f"{entry.chrf.value:.1f}",
    "exact": lambda entry: "" if entry.exact is None else f"{entry.exact:.1f}%",
    "AER": lambda entry: (
        "" if entry.exact is None else "none" if entry.alignment is None else f"{entry.alignment.mean:.1%}"
    ),
    "parameters": lambda entry: f"{entry.parameters:,}",
    "steps": lambda entry: "" if entry.training is None else f"{entry.training.steps:,}",
    "sent./s": lambda entry: f"{entry.sentences_per_second:,.0f}",
}


def compare_quality(
    task: str, folders: dict[str, Path], test: TestData, place: Path | None, as_json: bool, **options: Any
) -> None:
    """Test the trained models, write the report and print it."""
    from regard.compare.quality import compare_models

    with progress("testing") as advance:
        report = compare_models(task, folders, test, progress=advance, **options)
    say_all(list(report.notes))
    written = None if place is None else write_json(place / "report.json", report.data())
    if as_json:
        print_json(report.data())
    else:
        print_quality(report)
    if written is not None:
        say(f"wrote {written}")


def print_quality(report: QualityReport) -> None:
    names = list(report.entries[0].scores)
    unit = report.unit
    several = report.entries[0].interval is not None
    columns = ["model", *names, *(["95% interval", "p"] if several else []), "parameters", "steps"]
    columns.append(f"{unit}/s")
    rows = []
    for entry in report.entries:
        digits = 1 if several else 3
        cells = [entry.name, *(f"{entry.scores[name]:.{digits}f}" for name in names)]
        if entry.interval is not None:
            cells += [f"{entry.interval[0]:.1f} to {entry.interval[1]:.1f}"]
            cells += ["" if entry.p_value is None else f"{entry.p_value:.3f}"]
        steps = "" if entry.training is None else f"{entry.training.steps:,}"
        rows.append([*cells, f"{entry.parameters:,}", steps, f"{entry.rate:,.0f}"])
    print_table(tuple(columns), rows, right=tuple(columns)[1:], fold=("model",))
    console = results()
    console.print(f"{report.count:,} {unit} of {' '.join(report.on)}", markup=False)
    if any(entry.p_value is not None for entry in report.entries):
        console.print(f"p: of the difference to {report.entries[0].name} (McNemar's test)", style="dim")
    for entry in report.entries:
        if entry.looked is not None:
            console.print()
            console.print(entry.looked)
