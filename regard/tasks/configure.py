"""The configuration of a run from what a person names: a task or a TOML file, options, the task's defaults. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from regard.config import Tables, check, from_assignments, merge, read_toml
from regard.errors import Advice, Option, Setting, UsageError, nearest
from regard.models.kinds import KINDS_OF
from regard.models.presets import preset
from regard.plugins import imported
from regard.tasks.config import RunConfig
from regard.tasks.rules import RATE
from regard.tasks.start import brought_along, started_from
from regard.tasks.table import TASKS
from regard.training.config import TrainConfig

_A_KEY = {"model": "width", "train": "lr", "tokens": "size"}


def run_config(
    what: str,
    over: Tables | None = None,
    assignments: list[str] | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> RunConfig:
    """The configuration of a run: a task's name or a TOML file, laid over by options, then by `--set` assignments.

    `note` hears what was changed that nobody asked for.
    """
    values = merge(_named(what), over or {})
    values = _meant(merge(values, from_assignments(assignments or [])))
    return check_run(_short_warmup(_filled(values, what), values, note), what)


DEFAULT_TIME = 15 * 60.0  # seconds of a run of which nobody says how long it shall be


def asked_settings(what: str, over: Tables | None = None, assignments: list[str] | None = None) -> frozenset[str]:
    """The settings that a person gave, as train.lr; of `preset`, only that."""
    values = merge(merge(_named(what), over or {}), from_assignments(assignments or []))
    return frozenset(_flat(values))


def _flat(values: Tables, before: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield before + name
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")


def time_of(asked: frozenset[str], budget: float | None, task: str = "translate") -> float | None:
    """Seconds that a run has by the clock: those asked for, or the usual ones unless something else says how long it is."""
    if not TASKS[task].timed:
        return budget
    bounded = asked & {"train.steps", "train.max_time", "train.schedule"}
    return DEFAULT_TIME if budget is None and not bounded else budget


def task_named(what: str) -> str:
    """The task that a person names, or that of a TOML file."""
    return str(_named(what).get("task", "translate"))


def _named(what: str) -> Tables:
    if what in TASKS:
        return {"task": what}
    if what.endswith(".toml"):
        return read_toml(what)
    if (task := next((task for task, kinds in KINDS_OF.items() if what in kinds), None)) is not None:
        hint = Advice(f"it is a kind of model: {TASKS[task].verb} ", Option("model", what))
        raise UsageError(f"no task {what}", hint)
    raise UsageError(f"no task {what}", f"{nearest(what, TASKS)} (or name a .toml file)")


def _meant(values: Tables) -> Tables:
    """The values with the task that they mean: to classify is one word for texts and pictures."""
    task = TASKS.get(values.get("task", "translate"))
    return values if task is None or task.meant is None else {**values, "task": imported(task.meant)(values)}


def check_run(values: Tables, origin: str) -> RunConfig:
    """The configuration of the task that the values name."""
    return check(_kind_of_run(values, origin), values, origin)


def _kind_of_run(values: Tables, origin: str) -> type[RunConfig]:
    task = values.get("task", "translate")
    if task not in TASKS:
        raise UsageError(f"{origin}: no task {task}", nearest(str(task), TASKS))
    return TASKS[task].configuration


def _filled(values: Tables, origin: str) -> Tables:
    """The values with what they leave open: the task's defaults, the preset, or the model that the run starts from."""
    _check_tables(values, origin)
    values = {"task": "translate", **values}
    kind_of_run = _kind_of_run(values, origin)
    defaults = kind_of_run.defaults_for(values)
    size, model = values.pop("preset", None), values.get("model", {})
    if values.get("start") is not None:
        if size is not None:
            raise UsageError(f"{origin}: start = {values['start']!r} brings its own model; leave out preset")
        brought = started_from(values["start"], values["task"], TASKS[values["task"]].starts_from)
        if kind_of_run.fine_tunes:
            brought = merge(brought, brought_along(values["start"], values.get("data", {})))
        return kind_of_run.completed(
            merge(merge(defaults, _lower_rate(defaults, values["task"])), merge(brought, values))
        )
    kind = model.get("kind") or kind_of_run.kind_for(values)
    values = merge(merge(defaults, {"model": preset(size or kind_of_run.size, kind)}), values)
    return kind_of_run.completed(values)


def _lower_rate(defaults: Tables, task: str) -> Tables:
    """The learning rate of a run that goes on from a model of its own task, where nobody sets it."""
    if task not in TASKS[task].starts_from:
        return {}
    usual = defaults.get("train", {}).get("lr", TrainConfig.model_fields["lr"].default)
    return {"train": {"lr": RATE * usual}}


def _short_warmup(values: Tables, asked: Tables, note: Callable[[str], None]) -> Tables:
    """A warm-up that nobody asked for gives way in a run that is shorter than usual."""
    train = values.get("train", {})
    usual: int = TrainConfig.model_fields["warmup"].default
    steps, warmup = train.get("steps"), train.get("warmup", usual)
    if "warmup" in asked.get("train", {}) or not isinstance(steps, int) or not isinstance(warmup, int):
        return values
    if steps < 1:
        return values  # refused later, by its own name
    most = steps // 10 if "warmup" in train or warmup >= steps else warmup  # the task's own, or one that never ends
    if warmup <= most:
        return values
    why = f"train.warmup is {most}, not {warmup}, as there are only {steps:,} steps; "
    note(Advice(why, Setting("train.warmup", "N"), " sets it"))
    return merge(values, {"train": {"warmup": most}})


def _check_tables(values: Tables, origin: str) -> None:
    """Refuse tables that are no tables, which are read before the whole is checked."""
    for name in ("model", "train", "tokens"):
        if not isinstance(values.get(name, {}), dict):
            hint = f"set a key of it, such as {name}.{_A_KEY[name]}"
            raise UsageError(f"{origin}: {name} is a table, not {values[name]!r}; {hint}")
    for name in ("preset", "start"):
        if not isinstance(values.get(name, ""), str):
            raise UsageError(f"{origin}: {name} is a name, not {values[name]!r}")


def data_folder(what: str) -> Path | None:
    """Beside which folder data files are looked for: that of the configuration file."""
    return Path(what).resolve().parent if what.endswith(".toml") else None
