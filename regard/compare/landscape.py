"""Landscapes of the loss of several runs beside each other, on their own validation examples, and their way there.

regard.landscape_of(["runs/translate/1", "runs/translate/2"]).save("landscape.png")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.bundle import WEIGHTS, load_weights
from regard.errors import Advice, RegardError, Setting, UsageError
from regard.inspect.landscape import surface
from regard.inspect.probes import Probes
from regard.look.landscape import ByLayer, Landscape, Surface
from regard.models.operations import layer_of
from regard.runs import bundle_folder, read_run
from regard.tasks.run import prepare_again
from regard.training.history import LOG, rows_of

OnProgress = Callable[[str, int, int], None]
GRADIENTS = "gradient_norms"


def landscape_of(
    runs: Sequence[str | PathLike[str]],
    *,
    names: Sequence[str] = (),
    points: int = 21,
    reach: float = 1.0,
    examples: int = 64,
    directions: int = 5,
    iterations: int = 20,
    seed: int = 1,
    device: str = "cpu",
    on_progress: OnProgress = lambda what, done, total: None,
) -> Landscape:
    """The loss around the best weights of each run, in one and two directions, its sharpness, gradients and entropies.

    points      of a side of the map, and of the line
    reach       the farthest distance, in lengths of the filters
    examples    validation examples that the loss is a mean over: batches chosen by the seed, with at least so many
    directions  random ones, over which the rises are means
    iterations  most applications of the Hessian; 0: no eigenvalues
    """
    if isinstance(runs, str | PathLike) or not runs:
        raise UsageError("landscape_of takes a list of runs, at least one")
    if points < 3 or points % 2 == 0:
        raise UsageError(f"{points} points? take an odd number from 3 on, so that the model itself is one of them")
    folders = [Path(run) for run in runs]
    called = list(names) or _names(folders)
    surfaces = [
        _surface(
            name, folder, device, examples, on_progress,
            points=points, reach=reach, directions=max(1, directions), iterations=iterations, seed=seed,
        )
        for name, folder in zip(called, folders, strict=True)
    ]  # fmt: skip
    gradients = {name: each for name, folder in zip(called, folders, strict=True) if (each := gradients_of(folder))}
    entropies = {name: each for name, folder in zip(called, folders, strict=True) if (each := entropies_of(folder))}
    notes = _notes(surfaces, reach, seed, len(gradients) < len(folders), len(entropies) < len(folders))
    return Landscape("The loss around a trained model", notes, tuple(surfaces), gradients, entropies)


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' names, with those above them where they would be alike."""
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _surface(name: str, folder: Path, device: str, examples: int, tell: OnProgress, **how: Any) -> Surface:
    read_run(folder)  # a bundle has no validation examples, and is told so
    weights = bundle_folder(folder) / WEIGHTS
    tell(f"{name}: reading its data", 0, 0)
    job = prepare_again(folder, device).job
    if job.held_out is None:
        raise RegardError(
            f"{folder}: its task does not tell its validation examples", "a recipe gives them as held_out"
        )
    load_weights(job.model, weights)
    model, batches = job.model.to(job.device), _some(list(job.held_out()), examples, how["seed"])
    batches = [batch.to(torch.device(device)) for batch in batches]
    return surface(name, model, batches, advance=lambda done, total: tell(name, done, total), **how)


def _some(batches: Sequence[Any], examples: int, seed: int) -> list[Any]:
    """Batches with at least so many examples together, chosen by the seed: those of a length often stand together."""
    order = np.random.default_rng(seed).permutation(len(batches))
    before = np.cumsum([0, *(_rows(batches[number]) for number in order)])[:-1]
    return [batches[number] for number, count in zip(order, before, strict=True) if count < examples]


def _rows(batch: Any) -> int:
    """How many examples a batch has."""
    return next((len(value) for value in vars(batch).values() if isinstance(value, Tensor) and value.dim()), 1)


def _notes(
    surfaces: Sequence[Surface], reach: float, seed: int, some_gradients: bool, some_entropies: bool
) -> tuple[str, ...]:
    rises = surfaces[0].directions
    notes = [
        f"random directions of filters' own lengths (Li et al. 2018), seed {seed}; the mean loss over "
        f"{surfaces[0].examples:,} tokens (or texts, pictures) of the validation examples; distances to {reach:g}",
        f"a rise is the mean over {rises} direction{'s' * (rises > 1)}, both ways; eigenvalues of the Hessian with ‖Hv - λv‖",
    ]
    if some_gradients:
        notes.append("runs of earlier versions have no gradients by layer in their logs")
    if some_entropies:
        probes = Advice(
            "entropies are of texts that a run probes (", Setting("probes", "2"), "), if its model attends to tokens"
        )
        notes.append(str(probes))
    return tuple(notes)


# --- On the way


def gradients_of(folder: Path) -> ByLayer | None:
    """The norm of each layer's gradient at the rows of a run's log; None where it has none."""
    rows = [row for row in rows_of(folder / LOG) if row.get("kind") == "train" and row.get(GRADIENTS)]
    if not rows:
        return None
    names = list(dict.fromkeys(name for row in rows for name in row[GRADIENTS]))
    values = {name: np.array([row[GRADIENTS].get(name, np.nan) for row in rows]) for name in names}
    return ByLayer(np.array([row["step"] for row in rows]), values)


def entropies_of(folder: Path) -> ByLayer | None:
    """The mean entropy of each layer's attention on the probed texts of a run, in nats; None where it kept none."""
    try:
        probes = Probes.of(folder)
    except (RegardError, UsageError):
        return None
    rows: list[dict[str, list[float]]] = []
    for step in probes.steps:
        found: dict[str, list[float]] = {}
        for text in range(len(probes.labels)):
            for name, maps in probes.maps(step, text).items():
                role, _, path = name.partition("/")
                found.setdefault(f"{layer_of(path)} {role}", []).append(mean_entropy(maps))
        rows.append(found)
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {name: np.array([np.mean(row.get(name, [np.nan])) for row in rows]) for name in names}
    return ByLayer(np.array(probes.steps), values)


def mean_entropy(maps: Tensor) -> float:
    """The mean of -Σ a ln a over heads and queries: maps (H, T, S), NaN where a query must not look.

    A query that may look at one place alone has nothing to choose, and does not count.
    """
    allowed = (~maps.isnan()).sum(dim=-1)  # (H, T)
    weights = maps.double().nan_to_num(0.0)
    entropy = -torch.xlogy(weights, weights).sum(dim=-1)  # (H, T)
    chooses = allowed > 1
    return float(entropy[chooses].mean()) if chooses.any() else float("nan")
