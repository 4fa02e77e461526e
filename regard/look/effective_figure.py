"""Effective map, exact map and their difference side by side, on one scale of colour; what is below zero is orange."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from regard.look.colors import scale_top
from regard.look.map import AttentionMap
from regard.look.side_by_side import Panel, draw_side_by_side

# ColorBrewer "Oranges" (Brewer 2003), from its dark end to white: weights below zero, as projected keys may have
BELOW = LinearSegmentedColormap.from_list("below", ["#a63603", "#e6550d", "#fd8d3c", "#fdbe85", "#feedde"])


def draw_effective(maps: Mapping[str, AttentionMap], title: str) -> Figure:
    """A panel for each map."""
    below = any((np.nan_to_num(each.weights) < 0).any() for each in maps.values())
    figure = draw_side_by_side(
        [Panel(name, each) for name, each in maps.items()], f"{title} · orange: below zero" if below else title
    )
    top = max(scale_top(each.weights) for each in maps.values())
    for axes, each in zip(figure.axes, maps.values(), strict=False):  # behind the panels stands the legend
        negative = np.nan_to_num(each.weights) < 0
        if negative.any():
            axes.pcolormesh(
                np.ma.masked_where(~negative, each.weights), cmap=BELOW, norm=Normalize(-top, 0.0),
                edgecolors="white", linewidth=0.5, rasterized=each.weights.size > 20_000,
            )  # fmt: skip
    return figure
