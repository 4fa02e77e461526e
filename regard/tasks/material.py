"""Texts on which heads are looked at: those that a person names or gives, or those that a run was validated on.

material = material_of(predictor, "runs/translate/3", on=())
texts = prepare(predictor, material, 200)          the first 200 that fit
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.data.documents import read_documents
from regard.data.labelled import load_labelled
from regard.data.pairs import load_pairs
from regard.data.stream import TokenStream
from regard.errors import Advice, Option, RegardError, UsageError
from regard.inspect.texts import Material, text_predictor
from regard.predictor import Predictor
from regard.runs import CONFIG, data_root_of, read_run
from regard.tasks.classify.config import ClassifyConfig
from regard.tasks.classify.evaluate import read_labelled_test
from regard.tasks.config import RunConfig
from regard.tasks.configure import check_run
from regard.tasks.fill.config import FillConfig
from regard.tasks.generate.config import GenerateConfig
from regard.tasks.generate.recipe import STREAMS, load_texts
from regard.tasks.translate.config import TranslateConfig
from regard.tasks.translate.evaluate import read_test_set

LEARNED = 10_000  # training pairs, at most, for an aligner


@dataclass(frozen=True)
class Named:
    """The way in which texts that a person names are read for one task."""

    example: Advice  # of what to name
    read: Callable[[Sequence[str], str | Path], Sequence[object]]  # from the names of files, and the run


def _documents(names: Sequence[str], run: str | Path) -> Sequence[object]:
    return read_documents(names).texts


PAIRS = Advice(Option("on", "test.de test.en"), " (two parallel files, one .tsv or .jsonl, or builtin/dates/test)")
RUNNING = Advice(Option("on", "book.txt"), " (or builtin/python)")
LABELLED = Advice(Option("on", "test.tsv"), " (or builtin/names/test)")
NAMED = {
    "translate": Named(PAIRS, read_test_set),
    "generate": Named(RUNNING, _documents),
    "fill": Named(RUNNING, _documents),
    "classify": Named(LABELLED, read_labelled_test),
}


def material_of(predictor: Predictor, run: str | Path, on: Sequence[str] = ()) -> Material:
    """Read the texts that a person names with `on`; without them, those that the run was validated on."""
    named, folder = NAMED[text_predictor(predictor).config.task], _folder(run)
    own, missing = (Material(()), "it is no run") if folder is None else _own(folder)
    if on:
        return replace(own, items=named.read(on, folder or run), name=" ".join(on))
    if not len(own.items):
        raise UsageError(Advice(f"{run} has no texts to look at: {missing}. Name some with ", *named.example.parts))
    return own


def _own(folder: Path) -> tuple[Material, str]:
    """The texts that a run was validated on; or none, and why, where they cannot be read any more."""
    values = read_run(folder)
    config = check_run(values["config"], f"{folder}")
    data_root = data_root_of(values)
    try:
        return _validated(config, folder, data_root), "it was validated on none"
    except RegardError as error:
        return Material(()), str(error)


def _validated(config: RunConfig, folder: Path, data_root: Path | None) -> Material:
    name = "its own validation data"
    if isinstance(config, TranslateConfig):
        size = min(LEARNED, config.data.builtin_size)
        pairs = load_pairs(config.data.model_copy(update={"builtin_size": size}), data_root)
        return Material(pairs.valid, name, pairs.train[:LEARNED])
    if isinstance(config, ClassifyConfig):
        return Material(load_labelled(config.data, data_root).valid, name)
    if isinstance(config, GenerateConfig) and (stream := folder / STREAMS[1]).exists():
        return Material(TokenStream.open(stream).ids, name, context=config.data.context)
    assert isinstance(config, GenerateConfig | FillConfig)
    return Material(load_texts(config.data, data_root)[1], name, context=config.data.context)


def _folder(run: str | Path) -> Path | None:
    """The run's folder; a bundle may lie in one."""
    places = (Path(run), Path(run).resolve().parent)
    return next((place for place in places if (place / CONFIG).exists()), None)
