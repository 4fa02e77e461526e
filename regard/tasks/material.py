"""On what heads are looked at: texts that a person names or gives, or those that a run was validated on.

material = material_of(predictor, "runs/translate/3", on=())
texts = prepare(predictor, material, 200)          the first 200 that fit
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.data.documents import read_documents
from regard.data.labelled import load_labelled
from regard.data.pairs import load_pairs
from regard.data.stream import TokenStream
from regard.errors import RegardError, UsageError
from regard.inspect.texts import Material, check_task
from regard.runs import CONFIG, read_run
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
TYPE = {
    "translate": "--on test.de test.en (two parallel files, one .tsv or .jsonl, or builtin/dates/test)",
    "generate": "--on book.txt (or builtin/python)",
    "fill": "--on book.txt (or builtin/python)",
    "classify": "--on test.tsv (or builtin/names/test)",
}


def material_of(predictor: Any, run: str | Path, on: Sequence[str] = ()) -> Material:
    """What `--on` names; without it, what the run was validated on."""
    check_task(predictor)
    task, folder = predictor.config.task, _folder(run)
    own, missing = (Material(()), "it is no run") if folder is None else _own(predictor, folder)
    if on:
        read: dict[str, Callable[[], Sequence[Any]]] = {
            "translate": lambda: read_test_set(on, folder or run),
            "classify": lambda: read_labelled_test(on, folder or run),
        }
        items = read[task]() if task in read else read_documents(on).texts
        return replace(own, items=items, name=" ".join(on))
    if not len(own.items):
        raise UsageError(f"{run} has no texts to look at: {missing}. Name some with {TYPE[task]}")
    return own


def _own(predictor: Any, folder: Path) -> tuple[Material, str]:
    """What a run was validated on, or nothing where that cannot be read any more; and then why."""
    values = read_run(folder)
    config = check_run(values["config"], f"{folder}")  # type: ignore[arg-type]
    data_root = None if values.get("beside") is None else Path(str(values["beside"]))
    try:
        return _validated(predictor, config, folder, data_root), "it was validated on none"
    except RegardError as error:
        return Material(()), str(error)


def _validated(predictor: Any, config: RunConfig, folder: Path, data_root: Path | None) -> Material:
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
