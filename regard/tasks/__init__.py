"""What a person wants done. `load` and `train` are the Python side of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.tasks.config import RunConfig, data_folder, run_config


def load(path: str | Path, device: str = "cpu") -> Any:
    """A trained model from a run's or a bundle's folder: `regard.load("runs/translate/3").translate("...")`."""
    from regard.tasks.trained import load_model

    return load_model(path, device)


def train(
    what: str = "translate",
    data: str | tuple[str, str] | dict[str, Any] | None = None,
    *,
    preset: str | None = None,
    folder: str | Path | None = None,
    device: str = "cpu",
    show: Any = None,
    **tables: Any,
) -> Any:
    """Train as the command line does: `regard.train("translate", data="pairs.tsv", preset="tiny", train={"steps": 500})`.

    `data` is a file, two, or the table of a configuration file, such as {"train": "reviews.csv", "text": "review"};
    `tables` are the other ones (tokens, model, train, decode). Returns a `RunResult`.
    """
    from regard.tasks.run import start_run

    over: dict[str, Any] = dict(tables)
    if preset is not None:
        over["preset"] = preset
    if data is not None:
        over["data"] = data if isinstance(data, dict) else {"train": data}
    return start_run(run_config(what, over), beside=data_folder(what), folder=folder, device=device, show=show)


__all__ = ["RunConfig", "load", "run_config", "train"]
