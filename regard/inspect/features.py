"""Feature maps of a convolutional network for one picture, and what a place of them sees: by formula, measured, by gradient.

What reaches a place is measured without regard to weights: a row of the picture is set to NaN, which every product, sum,
norm, ReLU and maximum hands on. A gradient is of one picture: where a ReLU is shut or another pixel is the greater, it is 0.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from regard.blocks.convolution import ReceptiveField
from regard.errors import Advice, Option, UsageError
from regard.look.features import STRONGEST, FeatureMaps, LayerFeatures, PlaceField
from regard.look.layers import one_layer
from regard.look.panels import Box
from regard.models.pictures.encoder import FeatureMap
from regard.models.protocols import HasFeatureMaps


def feature_maps(
    encoder: HasFeatureMaps,
    pixels: Tensor,
    picture: np.ndarray,
    title: str,
    *,
    layer: int | None = None,
    place: tuple[int, int] | None = None,
) -> FeatureMaps:
    """Maps of all layers for pixels (1, channels, height, width), of which `picture` (height, width, 3) are the bytes.

    `layer` and `place` (row, column) say of which place the field is shown, counted from 0: the last layer, the middle.
    """
    with torch.no_grad():
        maps = list(encoder.feature_maps(pixels))
    number = one_layer(len(maps), layer)
    row, column = _checked(place, maps[number])
    side = pixels.size(-1)
    field = PlaceField(
        number,
        (row, column),
        by_formula(maps[number].field, (row, column), side),
        reached(encoder, pixels, number, (row, column)),
        pixel_gradient(encoder, pixels, number, (row, column)),
    )
    features = tuple(_features(each) for each in maps)
    notes = (f"of each layer the {STRONGEST} channels with the greatest mean, each on its own scale from 0",)
    return FeatureMaps(title, notes, features, field, picture)


def _checked(place: tuple[int, int] | None, found: FeatureMap) -> tuple[int, int]:
    rows, columns = found.values.shape[-2:]
    if place is None:
        return rows // 2, columns // 2
    if not (0 <= place[0] < rows and 0 <= place[1] < columns):
        raise UsageError(
            f"no place {place[0]},{place[1]} of {found.name}, which has {rows} rows and {columns} columns, from 0",
            Advice("choose another with ", Option("place", f"{rows // 2},{columns // 2}")),
        )
    return place


def _features(found: FeatureMap) -> LayerFeatures:
    values = found.values[0].double().cpu().numpy()  # (C, rows, columns)
    order = np.argsort(-values.mean(axis=(1, 2)), kind="stable")[:STRONGEST]
    field = found.field
    size, jump = (None, None) if field is None else (field.size, field.jump)
    return LayerFeatures(found.name, len(values), tuple(map(int, order)), values[order], size, jump)


def by_formula(field: ReceptiveField | None, place: tuple[int, int], side: int) -> Box:
    """The box of pixels that a place sees, as far as it lies on the picture; all of it where there is no field."""
    if field is None:
        return 0, 0, side, side
    rows, columns = (field.pixels(each, side) for each in place)
    return columns.start, rows.start, columns.stop, rows.stop


@torch.no_grad()
def reached(encoder: HasFeatureMaps, pixels: Tensor, layer: int, place: tuple[int, int]) -> Box:
    """The box of pixels that reach a place of a layer: those that hand a NaN on to it, whatever the weights are."""
    side = pixels.size(-1)
    found = []
    for axis in (2, 3):
        broken = torch.zeros_like(pixels).repeat(side, 1, 1, 1)  # (side, channels, height, width)
        for line in range(side):
            broken[line].select(axis - 1, line).fill_(torch.nan)
        values = _values(encoder, broken, layer)[:, :, place[0], place[1]]  # (side, C)
        found.append(values.isnan().any(dim=1).nonzero()[:, 0].tolist())
    rows, columns = found
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1


def pixel_gradient(encoder: HasFeatureMaps, pixels: Tensor, layer: int, place: tuple[int, int]) -> np.ndarray:
    """How much each pixel moves the channels of a place: Σ over colours of |∂ Σ over channels / ∂ pixel|, (height, width)."""
    asked = pixels.detach().clone().requires_grad_()
    value = _values(encoder, asked, layer)[0, :, place[0], place[1]].sum()
    (gradient,) = torch.autograd.grad(value, asked)
    found: np.ndarray = gradient[0].abs().sum(dim=0).double().cpu().numpy()
    return found


def _values(encoder: HasFeatureMaps, pixels: Tensor, layer: int) -> Tensor:
    """The feature maps of one layer for these pixels: (B, C, rows, columns)."""
    return next(each.values for number, each in enumerate(encoder.feature_maps(pixels)) if number == layer)
