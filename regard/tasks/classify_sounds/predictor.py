"""Classify sounds: a file in, its label out, and what the model attended to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch

from regard.attention import channel, record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.sound.batch import SoundBatch
from regard.data.sound.waves import Sound
from regard.files import JSON
from regard.look.hearing import HeardView, head_title
from regard.models.conformer import SoundClassifier
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel, label_list
from regard.tasks.hear import Audio, Sounds, frames_of, name_of, sounds_of, whole_sound

TOGETHER = 32
LONGEST = 60.0  # seconds of a sound that has one label


@dataclass(frozen=True)
class ClassifiedSound(Result):
    """A sound and what the model makes of it."""

    audio: str
    label: str
    probability: float
    probabilities: dict[str, float]  # of every label, the likeliest first

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return brief(self, quoted(self.audio), repr(self.label), probability=self.probability)

    def data(self) -> dict[str, JSON]:
        return {
            "audio": self.audio,
            "label": self.label,
            "probability": self.probability,
            "labels": label_list(self.probabilities),
        }


class SoundLabeller(Predictor):
    """A trained classifier of sounds, ready to use."""

    model: SoundClassifier

    def __init__(self, bundle: Bundle) -> None:
        assert bundle.config.sounds is not None
        super().__init__(bundle)
        self.format, self.labels = bundle.config.sounds, bundle.config.labels

    @overload
    def classify(
        self, sounds: Audio, progress: Progress | None = ..., cancel: Cancel | None = ...
    ) -> ClassifiedSound: ...
    @overload
    def classify(
        self, sounds: Sounds, progress: Progress | None = ..., cancel: Cancel | None = ...
    ) -> list[ClassifiedSound]: ...

    def classify(
        self, sounds: Audio | Sounds, progress: Progress | None = None, cancel: Cancel | None = None
    ) -> ClassifiedSound | list[ClassifiedSound]:
        """Classify a sound (a file, or a `Sound`), or several; `cancel` is asked before each batch whether to stop."""
        listed, several = sounds_of(sounds)
        out: list[ClassifiedSound] = []
        for start in range(0, len(listed), TOGETHER):
            check_cancel(cancel)
            asked = listed[start : start + TOGETHER]
            shares = self.probabilities([self._whole(each) for each in asked], start)
            out += [self._one(name_of(each), row) for each, row in zip(asked, shares, strict=True)]
            if progress is not None:
                progress(len(out), len(listed))
        return out if several else out[0]

    @torch.inference_mode()
    def probabilities(self, sounds: Sequence[Sound], first: int = 0) -> np.ndarray:
        """The probability of every label for sounds at the model's rate: (N, labels)."""
        with channel.reading(range(first, first + len(sounds))):
            found: np.ndarray = self.model.logits(self._batch(sounds)).double().softmax(dim=-1).cpu().numpy()
        return found

    def look(self, sound: Audio, layer: int | None = None, head: int | None = None) -> HeardView:
        """The spectrogram, and which frames look at which in a layer (the last, if none is named)."""
        whole = self._whole(sound)
        batch = self._batch([whole])
        with torch.inference_mode(), record(self.model) as seen:
            self.model.logits(batch)
        layers = [call.weights()[0].double().cpu().numpy() for call in seen.calls]  # each (H, T, T)
        weights, title = head_title(layers, layer, head)
        found = self.classify(sound)
        return HeardView(
            title=f"{found.label}, {found.probability:.1%}", notes=(), frames=batch.frames[0].cpu().numpy(),
            hop=self.format.seconds(1), step=self.model.config.subsampling, own=weights, own_title=title,
        )  # fmt: skip

    def _whole(self, sound: Audio) -> Sound:
        return whole_sound(sound, self.format.rate, LONGEST)

    def _batch(self, sounds: Sequence[Sound]) -> SoundBatch:
        frames, lengths = frames_of(sounds, self.format, self.device)
        return SoundBatch(frames, lengths, torch.zeros(len(sounds), dtype=torch.long, device=self.device))

    def _one(self, name: str, shares: np.ndarray) -> ClassifiedSound:
        order = np.argsort(-shares, kind="stable")
        every = {self.labels[place]: float(shares[place]) for place in order}
        return ClassifiedSound(name, self.labels[order[0]], float(shares[order[0]]), every)
