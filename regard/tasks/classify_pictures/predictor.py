"""Classify pictures: a photo in, its label out, and where the model looked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import torch

from regard.attention import Seen, channel, record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.pictures.augment import normalise
from regard.data.pictures.batch import PictureBatch
from regard.errors import Advice, Option, Setting, UsageError
from regard.files import JSON
from regard.look.layers import ChannelWeights, MixingMatrices, one_layer
from regard.look.pictures import Panel, PictureMap
from regard.models.pictures.classifier import PictureClassifier
from regard.models.protocols import LooksFromClassToken, MixesPlaces
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel, label_list
from regard.tasks.see import Picture, Pictures, SeenPicture, as_list, as_pixels, see

TOGETHER = 64


@dataclass(frozen=True)
class ClassifiedPicture(Result):
    """A picture and what the model makes of it."""

    picture: str
    label: str
    probability: float
    probabilities: dict[str, float]  # of every label, the likeliest first

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return brief(self, quoted(self.picture), repr(self.label), probability=self.probability)

    def data(self) -> dict[str, JSON]:
        return {
            "picture": self.picture,
            "label": self.label,
            "probability": self.probability,
            "labels": label_list(self.probabilities),
        }


class PictureLabeller(Predictor):
    """A trained classifier of pictures, ready to use."""

    model: PictureClassifier

    def __init__(self, bundle: Bundle) -> None:
        assert bundle.config.pictures is not None
        super().__init__(bundle)
        self.format, self.labels = bundle.config.pictures, bundle.config.labels

    @overload
    def classify(
        self, pictures: Picture, progress: Progress | None = ..., cancel: Cancel | None = ...
    ) -> ClassifiedPicture: ...
    @overload
    def classify(
        self, pictures: Pictures, progress: Progress | None = ..., cancel: Cancel | None = ...
    ) -> list[ClassifiedPicture]: ...

    def classify(
        self, pictures: Picture | Pictures, progress: Progress | None = None, cancel: Cancel | None = None
    ) -> ClassifiedPicture | list[ClassifiedPicture]:
        """Classify a picture (a file or an array), or several; `cancel` is asked before each batch whether to stop."""
        listed, several = as_list(pictures)
        out: list[ClassifiedPicture] = []
        for start in range(0, len(listed), TOGETHER):
            check_cancel(cancel)
            seen = [see(each, self.format) for each in listed[start : start + TOGETHER]]
            shares = self.probabilities(np.stack([each.shown for each in seen]), start)
            out += [self._one(each.name, row) for each, row in zip(seen, shares, strict=True)]
            if progress is not None:
                progress(len(out), len(listed))
        return out if several else out[0]

    @torch.inference_mode()
    def probabilities(self, shown: np.ndarray, first: int = 0) -> np.ndarray:
        """The probability of every label for fitted pictures (N, size, size, channels), of which `first` is the place of the
        first among all that were given: (N, labels).
        """
        pixels = normalise(torch.from_numpy(np.ascontiguousarray(shown)).permute(0, 3, 1, 2), self.format)
        batch = PictureBatch(pixels.to(self.device), torch.zeros(len(shown), dtype=torch.long, device=self.device))
        with channel.reading(range(first, first + len(shown))):
            found: np.ndarray = self.model.logits(batch).double().softmax(dim=-1).cpu().numpy()
        return found

    def _one(self, name: str, shares: np.ndarray) -> ClassifiedPicture:
        order = np.argsort(-shares, kind="stable")
        every = {self.labels[place]: float(shares[place]) for place in order}
        return ClassifiedPicture(name, self.labels[order[0]], float(shares[order[0]]), every)

    def look(
        self, picture: Picture, layer: int | None = None, head: int | None = None
    ) -> PictureMap | MixingMatrices | ChannelWeights:
        """Where the model looked: a ViT's class token, or the places that a network's spatial attention kept.

        Where there is none, what there is: weights of channels, or an MLP-Mixer's mixing of places.
        """
        seen, calls = self._recorded(picture)
        encoder = self.model.encoder
        if isinstance(encoder, MixesPlaces):
            matrices = tuple(matrix.detach().double().cpu().numpy() for matrix in encoder.mixing())
            return MixingMatrices(matrices, self.model.encoder.grid, "how each layer mixes places")
        if not isinstance(encoder, LooksFromClassToken) and not calls.only("spatial") and calls.only("channel"):
            return self.channels(picture)
        panels, grid = self._panels(calls, layer, head)
        found = self.classify(picture)
        return PictureMap(
            picture=seen.original,
            boxes=seen.place,
            grid=grid,
            panels=panels,
            title=self.config.model.kind,
            caption=f"{found.label} {found.probability:.0%}",
            heads=self._heads(calls),
        )

    def _heads(self, seen: Seen) -> tuple[int, ...]:
        """The heads of each layer of a ViT; elsewhere there are none to choose from."""
        encoder = self.model.encoder
        if not isinstance(encoder, LooksFromClassToken):
            return ()
        layers, _, heads = encoder.class_attention(seen).shape[:3]
        return (heads,) * layers

    def _panels(self, seen: Seen, layer: int | None, head: int | None) -> tuple[tuple[Panel, ...], tuple[int, int]]:
        encoder, grid = self.model.encoder, self.model.encoder.grid
        if isinstance(encoder, LooksFromClassToken):
            return _vit_panels(encoder, grid, seen, layer, head), grid
        if head is not None:
            raise UsageError(f"a {self.config.model.kind} has no heads", Advice("leave out ", Option("head")))
        calls = seen.only("spatial")
        if not calls:
            raise UsageError(
                f"this {self.config.model.kind} has no attention over places to look at",
                Advice("train one with ", Option("model", "vit"), ", or with ", Setting("model.attention", "cbam")),
            )
        number = one_layer(len(calls), layer)
        weights = calls[number].weights()[0, 0, 0].double().cpu().numpy()  # (P,)
        side = round(len(weights) ** 0.5)
        panel = Panel(f"spatial attention, layer {number} (of {len(calls)}, from 0)", weights.reshape(side, side))
        return (panel,), (side, side)

    def channels(self, picture: Picture) -> ChannelWeights:
        """How much of each channel was let through, in every layer that has channel attention."""
        seen, calls = self._recorded(picture)
        found = {call.path: call.weights()[0, 0, 0].double().cpu().numpy() for call in calls.only("channel")}
        if not found:
            raise UsageError(
                "this model has no attention over channels", Advice("train one with ", Setting("model.attention", "se"))
            )
        return ChannelWeights(found, Path(seen.name).name)

    def _recorded(self, picture: Picture) -> tuple[SeenPicture, Seen]:
        seen = see(picture, self.format)
        labels = torch.zeros(1, dtype=torch.long, device=self.device)
        with torch.inference_mode(), record(self.model) as calls:
            self.model.logits(PictureBatch(as_pixels([seen], self.format, self.device), labels))
        return seen, calls


def _vit_panels(
    encoder: LooksFromClassToken, grid: tuple[int, int], seen: Seen, layer: int | None, head: int | None
) -> tuple[Panel, ...]:
    """The rollout and the last layer's heads; or the heads of one layer; or one head."""
    found = encoder.class_attention(seen)[:, 0].double().cpu().numpy()  # (layers, H, P)
    number = one_layer(len(found), layer, head, found.shape[1])
    heads = found[number].reshape(-1, *grid)
    chosen = range(len(heads)) if head is None else [head]
    panels = [Panel(f"layer {number}, head {each}", heads[each]) for each in chosen]
    if layer is None:
        flow = encoder.rollout_map(seen)[0].double().cpu().numpy().reshape(grid)
        panels = [
            Panel("rollout over all layers", flow),
            Panel(f"layer {number}, mean", heads.mean(axis=0)),
            *panels,
        ]
    return tuple(panels)
