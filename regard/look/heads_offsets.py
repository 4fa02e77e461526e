"""Where heads look by distance, as small bars: a panel for each head of a role, all on one scale."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.look.colors import scale_top
from regard.look.heads_report import HeadReport
from regard.look.role_measures import OFFSETS
from regard.look.series import COLORS
from regard.look.sheet import DPI, FRAME, QUIET, TEXT

PANEL = (1.5, 0.9)  # inches


def draw_offsets(report: HeadReport, role: str) -> Figure:
    """A grid of layers and heads."""
    heads = [head for head in report.of(role) if head.offsets]
    across, layers = max(head.head for head in heads) + 1, sorted({head.layer for head in heads})
    figure = Figure(
        figsize=(across * PANEL[0] + 0.5, len(layers) * (PANEL[1] + 0.25) + 0.3), dpi=DPI, layout="constrained"
    )
    FigureCanvasAgg(figure)
    figure.set_facecolor("white")
    panels = figure.subplots(len(layers), across, sharex=True, sharey=True, squeeze=False)
    last = 0 if role == "causal" else OFFSETS  # nobody looks ahead there
    distances = np.arange(-OFFSETS, OFFSETS + 1)
    top = scale_top(np.array([head.offsets for head in heads]))
    for head in heads:
        axes = panels[layers.index(head.layer), head.head]
        weights = np.nan_to_num(np.array(head.offsets))
        axes.bar(distances, weights, width=0.8, color=[COLORS[1] if at == 0 else COLORS[0] for at in distances])
        axes.set_title(f"{head.layer}.{head.head}  {head.rule}", fontsize=7, color=TEXT, loc="left", pad=2)
    for axes in panels.flat:
        axes.set(ylim=(0, top), xlim=(-OFFSETS - 0.6, last + 0.6), xticks=range(-OFFSETS, last + 1, 4), yticks=[0, top])
        axes.tick_params(labelsize=6.5, length=2, color=FRAME, labelcolor=QUIET)
        axes.set_yticklabels(["0", f"{top:g}"])
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(FRAME)
    return figure
