"""Numbers of several models beside each other: scores by length, learning, costs, and maps of one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.look.map import AttentionMap


@dataclass(frozen=True)
class Column:
    """A place on the axis of lengths."""

    label: str  # "6 to 10"
    sentences: int
    joined: int = 1  # how many neighbours make one input


@dataclass(frozen=True)
class Bars:
    """One model's scores, one for each column, with their intervals."""

    name: str
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


@dataclass(frozen=True)
class Curve:
    """One model's validations: minutes of training, and a value of each metric (NaN for none)."""

    name: str
    minutes: Sequence[float]
    bleu: Sequence[float]
    loss: Sequence[float]


@dataclass(frozen=True)
class LengthLine:
    """One model. Lengths and places are multiples of its context of training; NaN where it could not."""

    name: str
    times: Sequence[float]
    losses: Sequence[float]
    places: Sequence[float]  # middles of stretches of its longest window
    changes: Sequence[float]  # of the loss there, against the same predictions in windows of training


@dataclass(frozen=True)
class TrialPoint:
    """A run of a search: which option of a setting it had, its score (NaN: it failed), its rung, whether it is the best."""

    place: int
    score: float
    rung: int
    best: bool = False


@dataclass(frozen=True)
class SettingPanel:
    """One setting of a search: its options as they read, which of them the rules chose, and the runs."""

    name: str
    options: Sequence[str]
    own: int
    points: Sequence[TrialPoint]


@dataclass(frozen=True)
class Costs:
    """One kind of attention: seconds and bytes at each length, and the length from which on it beats exact attention."""

    name: str
    seconds: Mapping[int, float]
    bytes: Mapping[int, float]
    pays_from: float | None = None


@dataclass(frozen=True)
class MapPanel:
    """One model: its name, and its map, or None if it has no attention."""

    name: str
    map: AttentionMap | None
