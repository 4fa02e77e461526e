"""Train and tune from Python as the command line does: `regard.train` and `regard.tune`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Tables
from regard.errors import RegardError, UsageError, nearest
from regard.tasks.config import RunConfig
from regard.tasks.configure import asked_settings, data_folder, run_config, time_of
from regard.tasks.examples import FILES, is_examples, keep, rows_of
from regard.tasks.table import TASKS
from regard.training.config import seconds

if TYPE_CHECKING:
    from regard.tasks.run import RunResult
    from regard.tasks.tuned import TuneResult
    from regard.training.events import Event
    from regard.training.show import Show

Data = str | Path | tuple[str, ...] | Mapping[str, object] | Iterable[object]


def train(
    what: str = "translate",
    data: Data | None = None,
    *,
    valid: Data | None = None,
    preset: str | None = None,
    steps: int | None = None,
    max_time: str | float | None = None,
    budget: str | float | None = None,
    folder: str | Path | None = None,
    device: str = "cpu",
    on_event: Callable[[Event], object] | None = None,
    quiet: bool = False,
    show: Show | None = None,
    **tables: Any,
) -> RunResult:
    """Train as the command line does: `regard.train("translate", data="pairs.tsv", preset="tiny", steps=500)`.

    `data` (and `valid`) is the name of a file, a tuple of names, or a list of examples, which are kept in the run's folder:
    (source, target) to translate, (text, label) to classify, texts to generate and to fill; or the whole table of a
    configuration file, such as {"train": texts, "context": 64}. `steps` and `max_time` ("30m")
    bound the run; `budget` ("5m"; without any of these, 15 minutes) is used up by the clock, and what is not said is chosen
    from the data, the machine and the time. `tables` are those of a configuration file (data,
    tokens, model, train, decode); model="bahdanau" is short for model={"kind": "bahdanau"}.

    What happens is shown on stderr; `quiet=True` shows nothing. `on_event` is called with each event of
    `regard.training.events`; what it raises ends the run, which goes on from its last checkpoint.
    """
    began = time.monotonic()
    from regard.tasks.choose import Chooser
    from regard.tasks.run import begin_run, make_place
    from regard.training.show import Show, make_show

    if budget is not None and (steps is not None or max_time is not None):
        raise UsageError("budget says how long to train; leave out steps and max_time")
    table: Tables = {**data} if isinstance(data, Mapping) else {} if data is None else {"train": data}
    table |= {} if valid is None else {"valid": valid}
    given = _examples(table)
    _check_names(train, tables)
    over = _over(tables, preset, {"steps": steps, "max_time": max_time}, table)
    config, asked = run_config(what, over), asked_settings(what, over)
    span = time_of(asked, None if budget is None else _seconds(budget), config.task)
    examples = {part: rows_of(config.task, value) for part, value in given.items()}
    place, data_root = make_place(config.task, folder), data_folder(what)
    if examples:
        config = _with_examples(config, {part: keep(place, part, rows) for part, rows in examples.items()})
    show = show or (Show() if quiet else make_show())
    if span is not None and "train.schedule" in asked:
        config, span = _planned(config, span, data_root, place, device, show), None
    chooser = None if span is None else Chooser(asked, span, began)
    return begin_run(config, place, data_root=data_root, device=device, show=show, on_event=on_event, chooser=chooser)


def tune(
    what: str = "translate",
    data: Data | None = None,
    *,
    valid: Data | None = None,
    preset: str | None = None,
    budget: str | float = "30m",
    trials: int | None = None,
    folder: str | Path | None = None,
    resume: str | Path | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **tables: Any,
) -> TuneResult:
    """Search for good settings as the command line does: `regard.tune("classify", data="texts.tsv", budget="20m")`.

    The learning rate, dropout and size are varied around what `regard.train` would choose, but for those that are given;
    data and `tables` are as for `regard.train`. `result.best` is the best run, `regard.load(result)` its model. An interrupted
    search gives what there is so far; `resume=FOLDER` goes on with it.
    """
    began = time.monotonic()
    from regard.tasks import tuning
    from regard.tasks.tuned import train_words
    from regard.tasks.tuning_show import make_trial_show
    from regard.training.show import Show

    show = Show() if quiet else make_trial_show()
    if resume is not None:
        return tuning.go_on(Path(resume), device, show, asked_at=began)
    table: Tables = {**data} if isinstance(data, Mapping) else {} if data is None else {"train": data}
    table |= {} if valid is None else {"valid": valid}
    given = _examples(table)
    _check_names(tune, tables)
    over = _over(tables, preset, {}, table)
    config, asked = run_config(what, over), asked_settings(what, over)
    examples = {part: rows_of(config.task, value) for part, value in given.items()}
    place = tuning.make_place(folder)
    if examples:
        names = {part: keep(place, part, rows) for part, rows in examples.items()}
        config, over["data"] = _with_examples(config, names), {**over["data"], **names}
    count = tuning.DEFAULT_TRIALS if trials is None else trials
    words, span = train_words(what, over), _seconds(budget)
    request = tuning.Request(config, asked, words, data_folder(what), span, count, device)
    return tuning.tune(request, place, show, asked_at=began)


def _examples(table: Tables) -> Tables:
    """The examples that were given in the place of files."""
    return {part: list(table[part]) for part in FILES if part in table and is_examples(table[part])}


def _with_examples(config: RunConfig, names: Mapping[str, str]) -> RunConfig:
    """The configuration with the files in which its examples are kept."""
    data = config.data.model_copy(update={part: (name,) for part, name in names.items()})
    return config.model_copy(update={"data": data})


def _over(tables: Tables, preset: str | None, bounds: Tables, data: Tables) -> Tables:
    """The arguments as tables of a configuration; examples under the name of the file that they will be."""
    over: Tables = {**tables, **({} if preset is None else {"preset": preset})}
    if isinstance(over.get("model"), str):
        over["model"] = {"kind": over["model"]}
    limits = {name: value for name, value in bounds.items() if value is not None}
    if limits:
        over["train"] = {**over.get("train", {}), **limits}
    if data:
        over["data"] = data | {part: _names(part, data[part]) for part in FILES if part in data}
    return over


def _check_names(function: Callable[..., object], tables: Mapping[str, object]) -> None:
    """Refuse an argument that is neither one of the function nor a table of a configuration."""
    asked = [name for name in signature(function).parameters if name not in ("show", "tables")]
    fields = (each for task in TASKS.values() for each in task.configuration.model_fields.items())
    known = {*asked, *(field.alias or name for name, field in fields)}
    for name in tables:
        if name not in known:
            meant = {"out": "folder", "output": "folder", "epochs": "steps"}.get(name)
            raise UsageError(
                f"regard.{function.__name__}: no {name}", f"say {meant}" if meant else nearest(name, known)
            )


def _names(part: str, data: object) -> object:
    if is_examples(data):
        return FILES[part]
    return [str(name) for name in data] if isinstance(data, tuple) else str(data)


def _seconds(budget: str | float) -> float:
    try:
        return float(seconds(budget))  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"budget: {error}") from error


def _planned(config: RunConfig, span: float, data_root: Path | None, place: Path, device: str, show: Show) -> RunConfig:
    """The configuration of a schedule that must know its steps beforehand, with as many as fit into the time."""
    from regard.tasks.budget import MEASURING, fit
    from regard.tasks.run import find_data_root, leave_nothing

    try:
        trial, root = place.with_name(place.name + MEASURING), find_data_root(config, data_root)
        return fit(str(place), config, root, span, trial, device, show.note, show)
    except RegardError:
        leave_nothing(place)
        raise
