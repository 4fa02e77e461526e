"""Where a model looked when it wrote the pixels of a picture: its attention, or, where it has none, the gradient.

The gradient of ln p(pixel i | pixels before it) with respect to the vector of each earlier pixel, by its length: what would
have changed the prediction most. It is zero outside of the receptive field of a convolution.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import RegardError, UsageError
from regard.inspect.texts import LanguagePredictor
from regard.look.recorded import sentence_of
from regard.models.configs.pixels import BEFORE
from regard.models.language import LanguageModel
from regard.predictor import Predictor, Reading


def has_pixels(predictor: Predictor) -> bool:
    """Whether a model writes pictures pixel by pixel."""
    tokens = predictor.config.tokens
    return tokens is not None and tokens.kind == "pixels"


def looks_of(
    predictor: LanguagePredictor,
    reading: Reading,
    ids: Sequence[int],
    places: Sequence[int],
    layer: int | None = None,
    head: int | None = None,
) -> tuple[np.ndarray, str]:
    """How much each pixel of `places` looked at every pixel (places, pixels), and what that is.

    `ids` are those of a whole picture, begin and label included, and `reading` is of them.
    """
    found = sentence_of(reading.look(), "causal")
    if found.layers:
        chosen = found.map(layer, head)
        weights = np.nan_to_num(chosen.weights)  # (T, S) of tokens, begin the first
        name = "mean of all layers and heads" if layer is None else f"layer {layer}, {_which(head)}"
        looks = np.stack([weights[BEFORE - 1 + place, BEFORE:] for place in places])
        return _up_to(looks, places, len(ids) - BEFORE), f"its attention, {name}"
    if layer is not None or head is not None:
        raise UsageError(f"a {predictor.config.model.kind} has no attention", "leave out --layer and --head")
    looks = gradients_of(predictor.model, predictor.as_row(ids), places)
    return _up_to(looks, places, len(ids) - BEFORE), "the gradient of ln p of the pixel, by its length"


def gradients_of(model: nn.Module, ids: Tensor, places: Sequence[int]) -> np.ndarray:
    """The length of the gradient of ln p(pixel i) with respect to the vector of each pixel, for each i: (places, pixels)."""
    assert isinstance(model, LanguageModel)
    pixels, found = ids.size(1) - BEFORE, list[np.ndarray]()
    with torch.inference_mode(False), torch.enable_grad(), _embedded(model) as seen:
        ids = ids.clone()
        scores = model.output(model.read(ids[:, :-1]))[0].log_softmax(dim=-1)
        if not seen:
            raise RegardError("this model does not look its pixels up in a table", "name one of ours")
        for place in places:
            wanted = scores[BEFORE - 1 + place, ids[0, BEFORE + place]]
            (gradient,) = torch.autograd.grad(wanted, seen[0], retain_graph=True, allow_unused=True)
            lengths = torch.zeros(pixels) if gradient is None else gradient[0].norm(dim=-1)[-(pixels - 1) :].cpu()
            found.append(np.pad(lengths.numpy(), (0, pixels - len(lengths))))
    return np.stack(found)


@contextmanager
def _embedded(model: LanguageModel) -> Iterator[list[Tensor]]:
    """What the table of tokens gives first in this thread."""
    table = next(
        each for each in model.modules() if isinstance(each, nn.Embedding) and each.num_embeddings == model.vocabulary
    )
    seen, thread = list[Tensor](), threading.get_ident()

    def keep(module: nn.Module, given: object, out: Tensor) -> None:
        if threading.get_ident() == thread:
            seen.append(out)

    handle = table.register_forward_hook(keep)
    try:
        yield seen
    finally:
        handle.remove()


def _up_to(looks: np.ndarray, places: Sequence[int], pixels: int) -> np.ndarray:
    """The looks over all pixels; none is looked at before it is written."""
    whole = np.zeros((len(places), pixels))
    for row, place in enumerate(places):
        whole[row, :place] = looks[row, :place]
    return whole


def _which(head: int | None) -> str:
    return "mean of its heads" if head is None else f"head {head}"
