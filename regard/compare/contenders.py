"""Who is compared: kinds of models, recorded configurations, trained models. No torch here: mistakes are told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Tables, find_file, merge
from regard.errors import Advice, Option, UsageError, Verb, nearest
from regard.models.kinds import KINDS_OF, all_kinds
from regard.runs import CONFIG, bundle_folder, bundle_task, read_run
from regard.tasks.config import RunConfig
from regard.tasks.configure import data_folder, run_config
from regard.tasks.table import TASKS

# What a kind of model is trained with where the person names nothing else: on the built-in dates, and on their own data.
ON_DATES: Tables = {
    "preset": "demo",
    "data": {"train": "builtin/dates"},
    "tokens": {"kind": "character"},
    "train": {
        "batch_tokens": 2048,
        "lr": 5e-3,
        "schedule": "linear",
        "warmup": 100,
        "smoothing": 0.0,
        "select": "exact",
        "average": 0,
    },
    "validate": {"sentences": 200, "samples": 1},
    "decode": {"beam": 1},
}
ON_OWN_DATA: Tables = {"train": {"batch_tokens": 2048, "schedule": "cosine", "warmup": 400}}
ON_NAMES: Tables = {"preset": "demo", "tokens": {"kind": "character"}, "train": {"batch_tokens": 2048}}

# What must be equal for a comparison to be of models and not of data.
DATA_KEYS = (
    "train",
    "valid",
    "test",
    "fields",
    "hold_out",
    "builtin_size",
    "text",
    "label",
    "heads",
    "second",
    "share",
    "field",
    "size",
    "fit",
)


@dataclass(frozen=True)
class Contender:
    """One model of a comparison: to be trained (it has a configuration), or already trained (it is a folder)."""

    name: str  # unlike every other
    word: str  # as the person typed it
    config: RunConfig | None = None
    data_root: Path | None = None  # where its data files are looked for

    @property
    def files(self) -> tuple[str, ...]:
        """The data that it is to learn from."""
        return () if self.config is None else (*self.config.data.train, *self.config.data.valid)


def read_contenders(
    words: Sequence[str], over: Tables | None = None, assignments: list[str] | None = None
) -> list[Contender]:
    """Each word as what it means; `over` and `assignments` are laid over every configuration."""
    over = over or {}
    names = unique([_plain_name(word) for word in words])
    task = task_of_kinds([word for word in words if word in all_kinds()])
    return [_contender(word, name, task, over, assignments or []) for word, name in zip(words, names, strict=True)]


def task_of_kinds(kinds: Sequence[str]) -> str:
    """The first task that models of all these kinds can do."""
    able = [task for task in TASKS if all(kind in KINDS_OF[task] for kind in kinds)]
    if not able:
        raise UsageError(
            Advice(f"{', '.join(kinds)} do different things and cannot be compared: see ", Verb("train", "--help"))
        )
    return able[0]


def task_of_contender(contender: Contender) -> str:
    """The task by whose rules a model is compared: its own if that has some, else the one that it is like."""
    record = TASKS[contender.config.task if contender.config is not None else bundle_task(contender.word)]
    return record.family if record.comparison is None else record.name


def _contender(word: str, name: str, task: str, over: Tables, assignments: list[str]) -> Contender:
    if word in all_kinds():
        own = over.get("data", {}).get("train")
        base = {"translate": ON_OWN_DATA if own else ON_DATES, "classify": {} if own else ON_NAMES}.get(task, {})
        settings = merge(merge(base, {"model": {"kind": word}}), over)
        return Contender(name, word, run_config(task, settings, assignments), Path.cwd())
    if word.endswith(".toml"):
        return Contender(name, word, run_config(word, over, assignments), data_folder(word))
    if not Path(word).exists():
        raise UsageError(
            f"{word} is no kind of model, no .toml file and no folder of a run", nearest(word, all_kinds())
        )
    bundle_folder(word)  # a run that has no model yet says so
    return Contender(name, word)


def _plain_name(word: str) -> str:
    """A kind's own name, the stem of a configuration, the folder as typed of a trained model."""
    return Path(word).stem if word.endswith(".toml") else word


def unique(names: Sequence[str]) -> list[str]:
    """The names, with -2, -3 behind those that were there before."""
    found: list[str] = []
    for name in names:
        number, fresh = 2, name
        while fresh in found:
            number, fresh = number + 1, f"{name}-{number}"
        found.append(fresh)
    return found


def check_same_data(contenders: Sequence[Contender], test_matters: bool) -> None:
    """All that are to be trained learn from the same pairs; which key differs is said."""
    to_train = [each for each in contenders if each.config is not None]
    for other in to_train[1:]:
        first = to_train[0]
        for key in DATA_KEYS:
            values = [_data_value(each, key) for each in (first, other)]
            if values[0] != values[1] and (key != "test" or test_matters):
                raise UsageError(
                    f"{first.word} and {other.word} differ in data.{key} ({_shown(values[0])}; {_shown(values[1])})",
                    Advice(
                        "models are compared on the same data: make them equal, or compare trained runs with ",
                        Option("on"),
                    ),
                )


def _data_value(contender: Contender, key: str) -> object:
    """The value of a key of the data; files by where they lie, so that two names of one file are equal."""
    assert contender.config is not None
    value = getattr(contender.config.data, key, None)
    if key not in ("train", "valid", "test") or value is None:
        return value
    return tuple(name if name.startswith("builtin/") else str(_place(name, contender.data_root)) for name in value)


def _place(name: str, data_root: Path | None) -> Path:
    return find_file(name, data_root).resolve()


def _shown(value: object) -> str:
    return (" ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


def named_test_set(contenders: Sequence[Contender], on: Sequence[str]) -> tuple[str, ...]:
    """The files of the test set: those that were named, else the configurations' own test set, else fresh dates."""
    if on:
        return tuple(on)
    to_train = [each for each in contenders if each.config is not None]  # these have the same data
    named = {found for each in to_train or contenders if (found := _own_test_set(each))}
    if len(named) == 1:
        return named.pop()
    differ = f" They name different ones ({'; '.join(sorted(' '.join(each) for each in named))})." if named else ""
    raise UsageError(
        f"on what are the models to be tested?{differ}",
        Advice(
            "Name it: ",
            Option("on", "test.tsv"),
            " (or data.test in the .toml), or ",
            Option("on", "builtin/dates/test"),
            " for models of the built-in dates",
        ),
    )


def _own_test_set(contender: Contender) -> tuple[str, ...]:
    """The test set of a model's data, or the one that belongs to its built-in data; empty if there is neither."""
    if contender.config is not None:
        data: Any = contender.config.data.model_dump()
    else:
        config: Any = read_run(contender.word)["config"] if (Path(contender.word) / CONFIG).exists() else {}
        data = config.get("data", {})
    train, test = tuple(data.get("train") or ()), tuple(data.get("test") or ())
    if test or not train or not train[0].startswith("builtin/") or train[0].startswith("builtin/python"):
        return test
    return (f"{train[0].removesuffix('/train')}/test",)
