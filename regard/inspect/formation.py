"""How a run's attention formed: what its probes kept of one text, beside what its validations found."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import RegardError, UsageError, nearest
from regard.inspect.looking import LETTERS
from regard.inspect.probes import ROLES, Probes
from regard.look.formation import Formation, sharpness
from regard.look.layers import check_choice
from regard.look.map import AttentionMap
from regard.look.sentence import NAMES
from regard.runs import CONFIG, read_run
from regard.training.history import read_history


def formation_of(
    run: str | PathLike[str],
    *,
    text: int = 0,
    role: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    steps: Sequence[int] = (),
    pieces: bool = False,
) -> Formation:
    """Every kept step of one text of a run: one head, the mean of a layer's heads, or what shows most.

    role    cross, causal, self or pool; None: the first of them that there is
    head    None without a layer: of cross-attention and pooling the mean of all, else the sharpest of the last step
    steps   which to show; all are compared with the last
    pieces  leave sub-word pieces as they are; words are made of them otherwise
    """
    if not isinstance(run, (str, PathLike)):
        raise UsageError(
            f"regard.formation_of takes the folder of a run, where its probes are, not a {type(run).__name__}"
        )
    probes, folder = Probes.of(Path(run)), Path(run)
    kept = [_of_role(probes, step, text, role) for step in probes.steps]
    role, layers = kept[-1]
    heads = np.stack(
        [_heads(maps, layers, probes.folder, step) for step, (_, maps) in zip(probes.steps, kept, strict=True)]
    )
    places = [(number, k) for number, each in enumerate(layers.values()) for k in range(len(each))]
    shown, which = _shown(heads[-1], places, role, layer, head)
    rows, columns = labels_of_role(probes.labels[text], role, heads.shape[-2:])
    config: Any = read_run(folder)["config"] if (folder / CONFIG).exists() else {}
    whole = AttentionMap(heads.reshape(-1, *heads.shape[-2:]), columns, rows)
    if not pieces and config.get("tokens", {}).get("kind") not in LETTERS:
        whole = whole.words()
    history = read_history(folder)
    found = {look.step: look.metrics for look in history.looks} if history is not None else {}
    return Formation(
        probes.steps,
        whole.weights.reshape(*heads.shape[:2], *whole.weights.shape[-2:]),
        tuple(f"layer {number}, head {k}" for number, k in places),
        shown,
        whole.columns,
        whole.rows,
        f"{NAMES[role]}, {which}",
        tuple(found.get(step, {}) for step in probes.steps),
        config.get("train", {}).get("select", ""),
        tuple(steps),
        whole.notes,
    )


def _of_role(probes: Probes, step: int, text: int, role: str | None) -> tuple[str, dict[str, np.ndarray]]:
    """The role, and its maps (H, T, S) by path."""
    kept = {name: found.double().numpy() for name, found in probes.maps(step, text).items()}
    known = [each for each in ROLES if any(name.startswith(f"{each}/") for name in kept)]
    if role is not None and role not in known:
        raise UsageError(f"no attention of role {role}", f"{nearest(role, known)}; there is {', '.join(known)}")
    role = role or known[0]
    return role, {name: found for name, found in kept.items() if name.startswith(f"{role}/")}


def _heads(maps: dict[str, np.ndarray], layers: dict[str, np.ndarray], folder: Path, step: int) -> np.ndarray:
    """All heads of all layers, (K, T, S), as the last step has them."""
    shapes = {name: found.shape for name, found in layers.items()}
    if {name: found.shape for name, found in maps.items()} != shapes:
        raise RegardError(f"{folder}/step-{step}.safetensors is of another model or text than the last step; delete it")
    if len({shape[1:] for shape in shapes.values()}) > 1:
        raise RegardError("the layers of this role look at different lengths; there is no one film of them")
    return np.concatenate(list(maps.values()))


def _shown(
    last: np.ndarray, places: Sequence[tuple[int, int]], role: str, layer: int | None, head: int | None
) -> tuple[tuple[int, ...], str]:
    """Which heads are shown, by number, and what to call them."""
    layers = places[-1][0] + 1
    sizes = [sum(each == number for each, _ in places) for number in range(layers)]
    if layer is None and (head is None or layers > 1):
        check_choice(layer, head, sizes)
        if role in ("cross", "pool") or len(places) == 1:
            return tuple(range(len(places))), _mean_of(len(places), layers)
        best = int(sharpness(last).argmax())
        return (best,), f"layer {places[best][0]}, head {places[best][1]}, the sharpest of {len(places)}"
    layer = layer or 0
    check_choice(layer, head, sizes)
    mine = tuple(number for number, (each, _) in enumerate(places) if each == layer)
    if head is None:
        return mine, f"layer {layer}, {_mean_of(len(mine), 1)}"
    return (mine[head],), f"layer {layer}, head {head}"


def _mean_of(heads: int, layers: int) -> str:
    if heads == 1:
        return "its one head"
    return f"mean of {layers} layers x {heads // layers} heads" if layers > 1 else f"mean of {heads} heads"


def labels_of_role(
    known: dict[str, tuple[str, ...]], role: str, shape: tuple[int, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of rows and columns: of source, target and prefix in a translation model; else of the one text."""
    own = "text" if "text" in known else {"causal": "prefix"}.get(role, "source")
    rows, columns = ("target", "source") if role == "cross" else ("" if role == "pool" else own, own)
    found = (
        known.get(rows) or (("text",) if shape[0] == 1 else tuple(map(str, range(shape[0])))),
        known[columns],
    )
    if tuple(map(len, found)) != tuple(shape):
        raise RegardError(f"maps of {shape[0]} x {shape[1]} tokens, but {len(found[0])} and {len(found[1])} labels")
    return found
