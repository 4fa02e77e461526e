"""Caption: a picture in, a sentence out, and where the model looked at each word."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack, cast, overload

import numpy as np
import torch
from torch import Tensor

from regard.attention import channel, record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.config import check
from regard.data.batch import pad
from regard.data.pictures.batch import CaptionBatch
from regard.decode.config import DecodeConfig, DecodeOptions
from regard.decode.ranking import Hypothesis
from regard.decode.search import Stepper, generate
from regard.errors import UsageError
from regard.files import JSON
from regard.look.layers import check_choice
from regard.look.pictures import Panel, PictureMap
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.pictures.encoder import PictureEncoder
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel, text_data
from regard.tasks.see import Picture, Pictures, SeenPicture, as_list, as_pixels, see
from regard.tokens import BEGIN, END, PAD, UNKNOWN, as_arrays

LONGEST = 40  # tokens of a caption where the options say nothing


@dataclass(frozen=True)
class Caption(Result):
    """One caption. `score` ranks (length penalty included), `log_probability` is the model's own."""

    picture: str
    text: str
    score: float
    log_probability: float
    ids: tuple[int, ...]
    tokens: tuple[str, ...]  # what each id reads as
    alternatives: tuple[Caption, ...] = ()
    attention: PictureMap | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return brief(self, quoted(self.picture), quoted(self.text), score=self.score)

    def each(self) -> tuple[Caption, ...]:
        """This and the alternatives, the best first, each by itself."""
        return replace(self, alternatives=()), *self.alternatives

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {
            "picture": self.picture,
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
        }
        return text_data(found, self.alternatives, self.attention)


class CaptionOptions(DecodeOptions, total=False):
    """Keyword arguments of `Captioner.caption`."""

    attention: bool
    progress: Progress | None
    cancel: Cancel | None


class Captioner(Predictor):
    """A trained writer of captions, ready to use."""

    model: EncoderDecoder

    def __init__(self, bundle: Bundle) -> None:
        assert bundle.config.pictures is not None
        super().__init__(bundle)
        self.tokenizer = bundle.tokenizer
        self.format = bundle.config.pictures

    @overload
    def caption(self, pictures: Picture, **options: Unpack[CaptionOptions]) -> Caption: ...
    @overload
    def caption(self, pictures: Pictures, **options: Unpack[CaptionOptions]) -> list[Caption]: ...

    def caption(
        self,
        pictures: Picture | Pictures,
        *,
        attention: bool = False,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Unpack[DecodeOptions],
    ) -> Caption | list[Caption]:
        """Write the caption of a picture (a file or an array), or of several; `options` are those of decoding.

        `cancel` is asked after each step whether to stop, which raises `Cancelled`.
        """
        listed, several = as_list(pictures)
        decode, out = self.options(options), list[Caption]()
        for start in range(0, len(listed), decode.batch_sentences):
            check_cancel(cancel)
            seen = [see(each, self.format) for each in listed[start : start + decode.batch_sentences]]
            found = self.search(as_pixels(seen, self.format, self.device), decode, first=start, cancel=cancel)
            out += [self._caption(each.name, hypotheses) for each, hypotheses in zip(seen, found, strict=True)]
            if attention:
                out[start:] = [
                    replace(one, attention=self._map(s, one)) for one, s in zip(out[start:], seen, strict=True)
                ]
            if progress is not None:
                progress(len(out), len(listed))
        return out if several else out[0]

    def options(self, over: Mapping[str, object]) -> DecodeConfig:
        """The bundle's own decoding options, laid over by the given ones."""
        return check(DecodeConfig, {**self.config.decode.model_dump(), **over}, "decode")

    def search(
        self, pixels: Tensor, options: DecodeConfig, first: int = 0, cancel: Cancel | None = None
    ) -> list[list[Hypothesis]]:
        """The best captions of pictures as pixels (or as features); `first` is the place of the first among all."""
        limit = LONGEST if options.max_length is None else options.max_length
        places = range(first, first + len(pixels))
        with channel.reading(places, spell=self.tokenizer.labels):
            return generate(
                cast("Stepper[object]", self.model),
                (pixels,),
                torch.full((len(pixels), 1), BEGIN, device=self.device),
                end=END,
                limits=[limit] * len(pixels),
                options=options,
                forbidden=(PAD, BEGIN, UNKNOWN),
                streams=places,
                watch=lambda _: check_cancel(cancel),
            )

    @torch.inference_mode()
    def weights(self, pixels: Tensor, ids: Sequence[int]) -> list[np.ndarray]:
        """Where the model looked while it wrote `ids`: of each layer (H, T, P), the end token's row last."""
        target, lengths = pad(as_arrays([list(ids)], begin=True), PAD)
        batch = CaptionBatch(pixels, target.to(self.device), (lengths - 1).to(self.device), int(lengths.sum()) - 1)
        with record(self.model) as seen:
            self.model.hidden(batch)
        return [call.weights()[0].double().cpu().numpy() for call in seen.only("cross")]

    def look(
        self,
        picture: Picture,
        layer: int | None = None,
        head: int | None = None,
        **options: Unpack[DecodeOptions],
    ) -> PictureMap:
        """A contact sheet: each word of the caption with where the model looked."""
        seen = see(picture, self.format)
        return self._map(seen, self.caption(picture, **options), layer, head)

    def _map(
        self, seen: SeenPicture, caption: Caption, layer: int | None = None, head: int | None = None
    ) -> PictureMap:
        layers = self.weights(as_pixels([seen], self.format, self.device), caption.ids)
        weights, how = chosen_heads(layers, layer, head)  # (T, P)
        grid = cast("PictureEncoder", self.model.encoder).grid
        panels = word_panels(caption.tokens, weights, grid)
        return PictureMap(
            picture=seen.original, boxes=seen.place, grid=grid, panels=panels, title=how, caption=caption.text,
            heads=tuple(map(len, layers)),
        )  # fmt: skip

    def _caption(self, name: str, hypotheses: list[Hypothesis]) -> Caption:
        each = [self._one(name, hypothesis) for hypothesis in hypotheses]
        return each[0] if len(each) == 1 else replace(each[0], alternatives=tuple(each[1:]))

    def text(self, ids: Sequence[int]) -> str:
        """The caption that these ids spell. Word tokens have a space between; before a mark that ends something it goes."""
        return re.sub(r" +([,.;:!?])", r"\1", self.tokenizer.decode(ids))

    def _one(self, name: str, hypothesis: Hypothesis) -> Caption:
        return Caption(
            name,
            self.text(hypothesis.ids),
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.ids,
            tuple(self.tokenizer.labels(hypothesis.ids)),
        )


def chosen_heads(layers: Sequence[np.ndarray], layer: int | None, head: int | None) -> tuple[np.ndarray, str]:
    """The mean of all layers' weights (H, T, P), of one layer's heads, or one head: (T, P), and its name."""
    if not layers:
        raise UsageError("this model has no attention to look at: it sees the picture only once, as one vector")
    check_choice(layer, head, [len(each) for each in layers])
    if layer is None:
        many = len(layers) * len(layers[0]) > 1
        title = f"mean of {len(layers)} layers x {len(layers[0])} heads" if many else "attention"
        return np.concatenate(layers).mean(axis=0), title
    heads = layers[layer]
    of = f"of {len(layers)} layers x {len(heads)} heads, counted from 0"
    if head is None:
        return heads.mean(axis=0), f"layer {layer}, mean of {len(heads)} heads ({of})"
    return heads[head], f"layer {layer}, head {head} ({of})"


def word_panels(words: Sequence[str], weights: np.ndarray, grid: tuple[int, int]) -> tuple[Panel, ...]:
    """A panel for each word: weights (T, P), of which rows behind the last word are left out."""
    return tuple(Panel(word, row.reshape(grid)) for word, row in zip(words, weights, strict=False))
