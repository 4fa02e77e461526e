"""A sound as a model heard it: its spectrogram, which token each frame tells, and where attention looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import UsageError
from regard.files import JSON
from regard.look.layers import check_choice
from regard.look.panels import Chart, Facts, Gallery, HeatMap, OnePanel, Panels, numbers


@dataclass(frozen=True)
class HeardWord:
    """A word, when it was said, in seconds, and how sure the model was of its frames."""

    text: str
    start: float
    end: float
    probability: float

    def data(self) -> dict[str, JSON]:
        return {"word": self.text, "start": self.start, "end": self.end, "probability": self.probability}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeardView(Panels):
    """Panels over one time: the spectrogram with the words, the tokens of the CTC path, and attention."""

    frames: np.ndarray  # (T, M), log-mel
    hop: float  # seconds from frame to frame
    step: int  # frames of sound for each frame that the blocks see
    words: tuple[HeardWord, ...] = ()
    path: np.ndarray | None = None  # (T', tokens), the probability of each shown token in each frame
    tokens: tuple[str, ...] = ()  # of the columns of `path`
    cross: np.ndarray | None = None  # (written, T'), from each written token to the frames
    written: tuple[str, ...] = ()
    cross_title: str = ""
    own: np.ndarray | None = None  # (T', T'), from frame to frame
    own_title: str = ""

    @property
    def seconds(self) -> float:
        return len(self.frames) * self.hop

    def panels(self) -> Sequence[OnePanel]:
        """The same numbers as maps without a common axis, for pages and terminals."""
        low = self.frames.T[::-1] - self.frames.min()
        found: list[OnePanel] = [_picture(f"spectrogram of {self.seconds:.2f} s, low bands below", low)]
        if self.words:
            lines = tuple((w.text, f"{w.start:.2f}", f"{w.end:.2f}", f"{w.probability:.2f}") for w in self.words)
            found.append(Facts("words", ("word", "from s", "to s", "probability"), lines))
        if self.path is not None:
            across = np.arange(len(self.path)) * self.hop * self.step
            tracks = {name: self.path[:, place] for place, name in enumerate(self.tokens)}
            found.append(Chart("CTC path", across, tracks, "seconds", "probability"))
        if self.cross is not None:
            found.append(HeatMap(self.cross_title, self.cross, self.written, self._times(), "weight"))
        if self.own is not None:
            found.append(_picture(self.own_title, self.own))
        return found

    def _times(self) -> tuple[str, ...]:
        assert self.cross is not None
        return tuple(f"{place * self.hop * self.step:.2f}" for place in range(self.cross.shape[1]))

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {"title": self.title, "seconds": self.seconds, "words": [w.data() for w in self.words]}
        if self.path is not None:
            found["path"] = {"tokens": list(self.tokens), "probabilities": numbers(self.path)}
        if self.cross is not None:
            found["attention"] = {"tokens": list(self.written), "weights": numbers(self.cross)}
        if self.own is not None:
            found["frames"] = {"title": self.own_title, "weights": numbers(self.own)}
        return found


def _picture(title: str, values: np.ndarray) -> Gallery:
    return Gallery(title, (HeatMap("", values),))


def head_title(layers: Sequence[np.ndarray], layer: int | None, head: int | None) -> tuple[np.ndarray, str]:
    """The weights (T, S) of one head, or the mean of a layer's, of the layers (H, T, S); without a layer, the last."""
    if not layers:
        raise UsageError("this model has no attention to look at")
    check_choice(layer, head, [len(each) for each in layers])
    number = len(layers) - 1 if layer is None else layer
    of = f"of {_counted(len(layers), 'layer')} x {_counted(len(layers[number]), 'head')}, counted from 0"
    if head is None:
        return layers[number].mean(axis=0), f"attention, layer {number}, mean of its heads ({of})"
    return layers[number][head], f"attention, layer {number}, head {head} ({of})"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
