"""What a language model was trained on, from the folder of its run: the length of its windows, its validation text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.errors import UsageError
from regard.runs import CONFIG, read_run
from regard.tasks.config import GenerateConfig, check_run
from regard.tasks.learn_generate import load_texts


def trained_context(run: str | Path) -> int:
    """Tokens that were predicted in a window of training text."""
    folder = _folder(run)
    if folder is None:
        raise UsageError(f"{run} is no run, so its context in training is not known; say it with --context")
    return _config(folder).data.context


def validation_texts(runs: Sequence[str | Path]) -> list[str]:
    """The documents that the runs were validated on, which must be the same ones."""
    found = [_validation_texts(run) for run in runs]
    if any(each != found[0] for each in found):
        raise UsageError("these runs were validated on different texts; name one text for all of them with --on")
    return found[0]


def _validation_texts(run: str | Path) -> list[str]:
    folder = _folder(run)
    if folder is None:
        raise UsageError(f"{run} is no run, so its validation text is not known; name a text with --on")
    beside = read_run(folder).get("beside")
    return load_texts(_config(folder).data, None if beside is None else Path(str(beside)))[1]


def _folder(run: str | Path) -> Path | None:
    """The run's folder; a bundle may lie in one."""
    places = (Path(run), Path(run).resolve().parent)
    return next((place for place in places if (place / CONFIG).exists()), None)


def _config(folder: Path) -> GenerateConfig:
    config = check_run(read_run(folder)["config"], f"{folder}")  # type: ignore[arg-type]
    if not isinstance(config, GenerateConfig):
        raise UsageError(f"{folder} is a model to {config.task}; windows of a text are for language models (generate)")
    return config
