"""How an attention formed: one text's maps at the steps of a training run, and when it came.

Two numbers follow a map a over the steps, each a mean over queries t:

    alike      1 - Σ_s |a_ts - b_ts| / (Σ_s |a_ts| + Σ_s |b_ts|),  b the last map; for rows that sum to one, one minus
               their total variation: 1 is equal, 0 has nothing in common
    sharpness  max_s a_ts: the greatest weight of a row

A query that may look nowhere does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from regard.brief import brief, quoted
from regard.errors import RegardError, UsageError
from regard.files import JSON, finite, write_bytes
from regard.look.map import AttentionMap
from regard.look.shown import Shown

SUFFIXES = (".png", ".svg", ".gif", ".html", ".json")
PANELS = 6  # maps of a film strip
NAMES = {"bleu": "BLEU", "f1": "F1"}  # of metrics, where they are no words


@dataclass(frozen=True, eq=False)
class Formation(Shown):
    """Every head of one role on one text, at each step; `shown` says of which heads the mean is looked at."""

    steps: tuple[int, ...]
    heads: np.ndarray  # (steps, K, T, S): NaN where masked
    names: tuple[str, ...]  # of the K heads: "layer 2, head 0"
    shown: tuple[int, ...]  # numbers of heads
    columns: tuple[str, ...]  # S labels
    rows: tuple[str, ...]  # T labels
    title: str = ""
    metrics: tuple[dict[str, float], ...] = ()  # what the validation at each step found; empty where none was made
    score: str = ""  # the metric to show beside the loss
    wanted: tuple[int, ...] = ()  # steps that a person asked for
    notes: tuple[str, ...] = ()  # what was done to the maps

    def __repr__(self) -> str:
        return brief(
            self, quoted(self.title) if self.title else "", f"{len(self.steps)} steps", f"{len(self.names)} heads"
        )

    def __post_init__(self) -> None:
        if self.heads.shape != (len(self.steps), len(self.names), len(self.rows), len(self.columns)):
            raise RegardError(
                f"maps of shape {self.heads.shape}, but {len(self.steps)} steps, {len(self.names)} heads, "
                f"{len(self.rows)} row labels and {len(self.columns)} column labels"
            )
        unknown = [step for step in self.wanted if step not in self.steps]
        if unknown:
            raise UsageError(f"no step {unknown[0]}; probes were kept at {', '.join(map(str, self.steps))}")

    @cached_property
    def maps(self) -> np.ndarray:
        """The mean of the heads that are shown: (steps, T, S)."""
        each = self.heads[:, list(self.shown)]
        masked = np.isnan(each)
        mean = np.where(masked, 0.0, each).mean(axis=1)
        return np.where(masked.all(axis=1), np.nan, mean)

    def map(self, number: int = -1) -> AttentionMap:
        """The map that is shown, at one of the steps."""
        title = f"{self.title} · {self.caption(number)}"
        return AttentionMap(self.maps[number], self.columns, self.rows, title, self.notes)

    @cached_property
    def alike(self) -> np.ndarray:
        """Likeness of the map that is shown to its last: (steps,)."""
        return alike(self.maps, self.maps[-1])

    @cached_property
    def sharpness(self) -> np.ndarray:
        return sharpness(self.maps)

    @cached_property
    def heads_alike(self) -> np.ndarray:
        """Each head and its own last map: (steps, K)."""
        return alike(self.heads, self.heads[-1])

    @cached_property
    def heads_sharpness(self) -> np.ndarray:
        return sharpness(self.heads)

    @property
    def halfway(self) -> int:
        """The first step at which the map was at least half of the way from its first look to its last."""
        middle = (self.alike[0] + 1.0) / 2
        return self.steps[int(np.argmax(self.alike >= middle))]

    @property
    def sentence(self) -> str:
        """The result in words: when the map came, and how sharp it became."""
        if len(self.steps) == 1:
            return f"probed at step {self.steps[0]} alone: the greatest weight of a row is {self.sharpness[0]:.2f}"
        return (
            f"half of the way from the first map to the last at step {self.halfway:,}; the greatest weight of a row "
            f"went from {self.sharpness[0]:.2f} to {self.sharpness[-1]:.2f}"
        )

    def frames(self, most: int = PANELS) -> list[int]:
        """Numbers of the steps to show: those asked for, or at most so many, well chosen."""
        if self.wanted:
            return [self.steps.index(step) for step in sorted(set(self.wanted))]
        return spread(self.maps, most)

    def found(self, number: int) -> dict[str, float]:
        """The validation loss and the score of a step, where there are any."""
        metrics = self.metrics[number] if self.metrics else {}
        return {name: metrics[name] for name in ("loss", self.score) if name in metrics}

    def caption(self, number: int) -> str:
        """A step and what its validation found."""
        found = (f"{_name(name)} {_short(name, value)}" for name, value in self.found(number).items())
        return " · ".join([f"step {self.steps[number]:,}", *found])

    def save(self, path: str | Path) -> Path:
        """By suffix: a figure (.png, .svg), a film strip over the curves; a film (.gif, .html); or all numbers (.json)."""
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix == ".gif":
            return write_bytes(path, self._draw("film"))
        if suffix not in SUFFIXES:
            raise UsageError(f"cannot tell how to write a film to {path.name}; use {', '.join(SUFFIXES)}")
        return super().save(path)

    def html(self) -> str:
        """A whole page: a slider over the steps, a button that plays them, the curves beside."""
        page: str = self._draw("page")
        return page

    def json(self) -> str:
        return json.dumps(finite(self.data(maps=True)), indent=2, ensure_ascii=False) + "\n"

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json}

    def _alternative(self) -> str:
        return "; ".join((f"{self.title}: {self.sentence}", *self.notes))

    def data(self, maps: bool = False) -> dict[str, JSON]:
        """The numbers; with `maps`, every head at every step."""
        numbers = zip(self.steps, self.metrics or [{}] * len(self.steps), self.sharpness, self.alike, strict=True)
        heads = [
            {"name": name, "sharpness": self.heads_sharpness[:, k].tolist(), "alike": self.heads_alike[:, k].tolist()}
            | ({"maps": self.heads[:, k].tolist()} if maps else {})
            for k, name in enumerate(self.names)
        ]
        return {
            "title": self.title, "sentence": self.sentence, "halfway": self.halfway, "notes": list(self.notes),
            "steps": [{"step": a, **b, "sharpness": float(c), "alike": float(d)} for a, b, c, d in numbers],
            "rows": list(self.rows), "columns": list(self.columns), "shown": list(self.shown), "heads": heads,
        }  # fmt: skip

    def table(self) -> list[tuple[str, ...]]:
        """Columns and then rows for a terminal: step, validation, sharpness, alike."""
        known = dict.fromkeys(name for number in range(len(self.steps)) for name in self.found(number))
        lines = [("step", *map(_name, known), "sharpness", "alike")]
        for number in self.frames(len(self.steps)):
            found = self.found(number)
            values = (_short(name, found[name]) if name in found else "" for name in known)
            last = (f"{self.sharpness[number]:.3f}", f"{self.alike[number]:.3f}")
            lines.append((f"{self.steps[number]:,}", *values, *last))
        return lines


def _name(metric: str) -> str:
    return NAMES.get(metric, metric.replace("_", " "))


def _short(metric: str, value: float) -> str:
    return f"{value:.2f}" if metric in ("loss", "perplexity", "bits_per_byte") else f"{value:.1f}"


def alike(maps: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Likeness of maps (..., T, S) to others, as at the top of this file: (...)."""
    real = ~np.isnan(maps).all(axis=-1) & ~np.isnan(others).all(axis=-1)  # (..., T)
    ours, theirs = np.nan_to_num(maps), np.nan_to_num(others)
    whole = np.abs(ours).sum(-1) + np.abs(theirs).sum(-1)
    apart = np.abs(ours - theirs).sum(-1) / np.maximum(whole, np.finfo(float).tiny)
    return _mean(1.0 - apart, real)


def sharpness(maps: np.ndarray) -> np.ndarray:
    """The greatest weight of a row of maps (..., T, S), mean over the rows: (...)."""
    real = ~np.isnan(maps).all(axis=-1)
    return _mean(np.where(np.isnan(maps), -np.inf, maps).max(axis=-1), real)


def _mean(values: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Over the last axis, where `real`."""
    found: np.ndarray = np.where(real, values, 0.0).sum(-1) / np.maximum(1, real.sum(-1))
    return found


def spread(maps: np.ndarray, most: int) -> list[int]:
    """Choose at most so many of maps (steps, T, S), by number: the first, the last, and more where more changes.

    Between two of them lies about the same sum of squared changes: of noise little adds up, of a jump much.
    """
    count = len(maps)
    if count <= most:
        return list(range(count))
    changes = 1.0 - alike(maps[1:], maps[:-1])
    way = np.concatenate([[0.0], np.cumsum(changes**2)])
    found = [0]
    for number in range(1, most - 1):
        nearest = int(np.abs(way - way[-1] * number / (most - 1)).argmin())
        found.append(min(max(nearest, found[-1] + 1), count - most + number))
    return [*found, count - 1]
