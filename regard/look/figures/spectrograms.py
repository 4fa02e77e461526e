"""Spectrograms side by side, each under its wave."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from regard.look.figures.sheet import COLORS, MARGIN, QUIET, RAMP, TEXT, families_of, tidy
from regard.look.labels import visible_title
from regard.look.spectrograms import FLOOR, Spectrograms

WIDE, WAVE, HIGH = 3.2, 0.55, 1.9  # inches of a sound across, of its wave, of its spectrogram
LEFT, ABOVE, BELOW, GAP = 0.6, 0.5, 0.45, 0.35
POINTS = 2000  # of a wave that are drawn


def draw_spectrograms(view: Spectrograms) -> Figure:
    """A column for each sound: its name, its wave, its spectrogram."""
    across = min(view.across, len(view.sounds))
    lines = -(-len(view.sounds) // across)
    title = 0.3 if view.title else 0.0
    cell = ABOVE + WAVE + HIGH + BELOW
    whole = LEFT + across * WIDE + (across - 1) * GAP + 2 * MARGIN, lines * cell + title + MARGIN
    figure = Figure(figsize=whole)
    families = families_of(view.title, *(each.title for each in view.sounds))
    if view.title:
        figure.text(
            MARGIN / whole[0], 1 - 0.2 / whole[1], visible_title(view.title), fontsize=10, weight="bold", color=TEXT,
            va="center", family=families, parse_math=False,
        )  # fmt: skip
    for number in range(len(view.sounds)):
        line, column = divmod(number, across)
        _draw(figure, view, number, LEFT + MARGIN + column * (WIDE + GAP), whole[1] - title - line * cell, families)
    return figure


def _draw(figure: Figure, view: Spectrograms, number: int, left: float, top: float, families: list[str]) -> None:
    """One sound, whose cell has this upper left corner, in inches from below."""
    sound, (width, height) = view.sounds[number], figure.get_size_inches()
    wave = figure.add_axes((left / width, (top - ABOVE - WAVE) / height, WIDE / width, WAVE / height))
    below = figure.add_axes((left / width, (top - ABOVE - WAVE - HIGH) / height, WIDE / width, HIGH / height))
    samples = sound.samples[:: max(1, len(sound.samples) // POINTS)]
    wave.plot(np.linspace(0, sound.seconds, len(samples)), samples, color=COLORS[0], linewidth=0.4)
    most = max(0.05, float(np.abs(samples).max(initial=0.0)))
    wave.set(xlim=(0, max(sound.seconds, 1e-3)), ylim=(-1.05 * most, 1.05 * most), xticks=[], yticks=[])
    wave.set_title(visible_title(sound.title), fontsize=8.5, color=TEXT, family=families, pad=4)
    below.imshow(
        sound.decibels, origin="lower", aspect="auto", cmap=RAMP, vmin=-FLOOR, vmax=0,
        extent=(0, max(sound.seconds, 1e-3), 0, sound.hertz / 1000), interpolation="nearest",
    )  # fmt: skip
    for axes in (wave, below):
        tidy(axes)
        axes.grid(False)
    below.xaxis.set_major_locator(MaxNLocator(5))
    below.set_xlabel("seconds", fontsize=7.5, color=QUIET, labelpad=1)
    if number % view.across == 0:
        below.set_ylabel("kHz", fontsize=7.5, color=QUIET)
    else:
        below.set_yticklabels([])
