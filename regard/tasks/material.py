"""Texts on which heads are looked at: those that a person names or gives, or those that a run was validated on.

material = material_of(predictor, "runs/translate/3", on=())
texts = prepare(predictor, material, 200)          the first 200 that fit
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from regard.bundle import read_config
from regard.config import StrictConfig
from regard.data.config import LabelledConfig, PairsConfig, TextConfig
from regard.data.documents import read_documents
from regard.data.form import form_of
from regard.data.labelled import load_labelled
from regard.data.pairs import load_pairs
from regard.data.text_sets import load_texts
from regard.errors import Advice, Option, RegardError, UsageError
from regard.inspect.texts import Material, text_predictor
from regard.predictor import Predictor
from regard.runs import CONFIG, bundle_folder, data_root_of, read_run
from regard.tasks.classify.evaluate import read_labelled_test
from regard.tasks.config import RunConfig
from regard.tasks.configure import check_run
from regard.tasks.generate.recipe import validation_stream
from regard.tasks.table import part_of
from regard.tasks.translate.evaluate import read_test_set

LEARNED = 10_000  # training pairs, at most, for an aligner


@dataclass(frozen=True)
class TextSource:
    """Where the texts of a task come from: its record names one as `texts`."""

    example: Advice  # of what a person may name
    named: Callable[[Sequence[str], str | Path], Sequence[object]]  # texts of the named files; and the run
    validated: Callable[[RunConfig, Path, Path | None], Material]  # texts of a run, its folder, where its data lie


def material_of(predictor: Predictor, run: str | Path, on: Sequence[str] = ()) -> Material:
    """Read the texts that a person names with `on`; without them, those that the run was validated on."""
    source, folder = _source(text_predictor(predictor).config.task), _folder(run)
    own, missing = (Material(()), "it is no run") if folder is None else _own(folder, source)
    if on:
        return replace(own, items=source.named(on, folder or run), name=" ".join(on))
    if not len(own.items):
        raise UsageError(Advice(f"{run} has no texts to look at: {missing}. Name some with ", *source.example.parts))
    return own


def _source(task: str) -> TextSource:
    source: TextSource | None = part_of(task, "texts")
    if source is None:
        raise UsageError(f"models to {task} have no texts of their own to look at", "give the texts from Python")
    return source


def _own(folder: Path, source: TextSource) -> tuple[Material, str]:
    """The texts that a run was validated on; or none, and why, where they cannot be read any more."""
    values = read_run(folder)
    config = check_run(values["config"], f"{folder}")
    data_root = data_root_of(values)
    try:
        found = source.validated(config, folder, data_root)
    except RegardError as error:
        return Material(()), str(error)
    return replace(found, name="its own validation data"), "it was validated on none"


def _folder(run: str | Path) -> Path | None:
    """The run's folder; a bundle may lie in one."""
    places = (Path(run), Path(run).resolve().parent)
    return next((place for place in places if (place / CONFIG).exists()), None)


# --- Our tasks


def _validated_pairs(config: RunConfig, folder: Path, data_root: Path | None) -> Material:
    data = _data(config, PairsConfig)
    size = min(LEARNED, data.builtin_size)
    pairs = load_pairs(data.model_copy(update={"builtin_size": size}), data_root)
    return Material(pairs.valid, learned=pairs.train[:LEARNED])


def _validated_labelled(config: RunConfig, folder: Path, data_root: Path | None) -> Material:
    return Material(load_labelled(_data(config, LabelledConfig), data_root).valid)


def _validated_texts(config: RunConfig, folder: Path, data_root: Path | None) -> Material:
    data = _data(config, TextConfig)
    return Material(load_texts(data, data_root).valid, context=data.context)


def _validated_stream(config: RunConfig, folder: Path, data_root: Path | None) -> Material:
    """The tokens that a language model was validated on, or the texts where they are gone."""
    if (ids := validation_stream(folder)) is None:
        return _validated_texts(config, folder, data_root)
    return Material(ids, context=_data(config, TextConfig).context)


Data = TypeVar("Data", bound=StrictConfig)


def _data(config: RunConfig, kind: type[Data]) -> Data:
    """The configuration of a run's data, which must be of this kind."""
    if not isinstance(config.data, kind):
        raise RegardError(f"its data are no {kind.__name__}, which the texts of its task come from")
    return config.data


def _documents(names: Sequence[str], run: str | Path) -> Sequence[object]:
    return read_documents(names, form=form_of(read_config(bundle_folder(run)).tokens)).texts


_RUNNING = Advice(Option("on", "book.txt"), " (or builtin/python)")
PAIRS = TextSource(
    Advice(Option("on", "test.de test.en"), " (two parallel files, one .tsv or .jsonl, or builtin/dates/test)"),
    read_test_set,
    _validated_pairs,
)
STREAM = TextSource(_RUNNING, _documents, _validated_stream)
RUNNING = TextSource(_RUNNING, _documents, _validated_texts)
LABELLED = TextSource(
    Advice(Option("on", "test.tsv"), " (or builtin/names/test)"), read_labelled_test, _validated_labelled
)
