"""A piano roll: notes as bars in the colour of their voice, lines from each note to the one that was looked at most."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from regard.look.figures.sheet import COLORS, FRAME, MARGIN, QUIET, TEXT, families_of, tidy
from regard.look.labels import visible_title
from regard.look.roll import PianoRoll
from regard.tokens.notes import pitch_name

STEP, PITCH = 0.068, 0.13  # inches of a step across and of a pitch up
SMALLEST, WIDEST = 5.5, 15.0  # inches across
LEFT, BELOW = 0.55, 0.5  # inches for the names of pitches, and of bars


def draw_roll(roll: PianoRoll) -> Figure:
    """Title, the notes over a grid of bars, and what the colours mean."""
    low, high = _range(roll)
    width = min(WIDEST, max(SMALLEST, STEP * roll.end))
    height = PITCH * (high - low + 1)
    lines = (
        [visible_title(roll.title), *map(visible_title, roll.told)] if roll.title else [*map(visible_title, roll.told)]
    )
    above = 0.24 * len(lines) + 0.3
    whole = width + LEFT + 2 * MARGIN, height + above + BELOW + MARGIN
    figure = Figure(figsize=whole)
    axes = figure.add_axes(((LEFT + MARGIN) / whole[0], (BELOW) / whole[1], width / whole[0], height / whole[1]))
    families = families_of(*lines)
    _grid(axes, roll, low, high)
    for number in range(len(roll.notes)):
        _note(axes, roll, number)
    for link in roll.links():
        _line(axes, roll, link.source, link.target, link.weight)
    for number, line in enumerate(lines):
        size, weight = (10.0, "bold") if number == 0 and roll.title else (8.0, "normal")
        place = (whole[1] - 0.2 - 0.22 * number) / whole[1]
        figure.text(
            MARGIN / whole[0], place, line, fontsize=size, weight=weight, color=TEXT if number == 0 else QUIET, va="center",
            family=families, parse_math=False,
        )  # fmt: skip
    _legend(axes, roll)
    return figure


def _range(roll: PianoRoll) -> tuple[int, int]:
    """The lowest and the highest pitch that are drawn."""
    pitches = [note.pitch for note in roll.notes] or [60]
    return min(pitches) - 2, max(pitches) + 2


def _grid(axes: Axes, roll: PianoRoll, low: int, high: int) -> None:
    axes.set_xlim(0, roll.end)
    axes.set_ylim(low - 0.5, high + 0.5)
    tidy(axes)
    for bar in roll.bars:
        axes.axvline(bar, color=FRAME, linewidth=0.8, zorder=0)
    named = [pitch for pitch in range(low, high + 1) if pitch % 12 in (0, 7)]
    for pitch in named:
        axes.axhline(pitch, color=FRAME, linewidth=0.4, linestyle=":", zorder=0)
    axes.set_yticks(named, [pitch_name(pitch) for pitch in named])
    axes.set_xticks(list(roll.bars), [str(number + 1) for number in range(len(roll.bars))])
    axes.set_xlabel("bar", fontsize=8, color=QUIET, labelpad=2)


def _note(axes: Axes, roll: PianoRoll, number: int) -> None:
    """One note: full if the model wrote it, hatched if it was given; the chosen one has a frame."""
    note = roll.notes[number]
    color = COLORS[roll.voices.index(note.voice) % len(COLORS)]
    given = number < roll.given
    axes.add_patch(
        Rectangle(
            (note.start + 0.08, note.pitch - 0.42), note.length - 0.16, 0.84,
            facecolor="white" if given else color, edgecolor=TEXT if number == roll.chosen else color,
            linewidth=1.6 if number == roll.chosen else 0.8, hatch="/////" if given else None, zorder=2,
        )
    )  # fmt: skip


def _line(axes: Axes, roll: PianoRoll, source: int, target: int, weight: float) -> None:
    """A bow from the beginning of a note to that which was looked at, the stronger the more."""
    here, there = roll.notes[source], roll.notes[target]
    axes.add_patch(
        FancyArrowPatch(
            (here.start + 0.2, here.pitch), (there.start + there.length / 2, there.pitch),
            connectionstyle="arc3,rad=0.18", arrowstyle="-|>", mutation_scale=5 + 3 * weight, shrinkA=0, shrinkB=0,
            linewidth=0.5 + 1.2 * weight, color=TEXT, alpha=0.2 + 0.7 * weight, zorder=3,
        )
    )  # fmt: skip


def _legend(axes: Axes, roll: PianoRoll) -> None:
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=COLORS[number % len(COLORS)], label=f"voice {voice + 1}")
        for number, voice in enumerate(roll.voices)
    ]
    if roll.given:
        handles.append(Rectangle((0, 0), 1, 1, facecolor="white", edgecolor=QUIET, hatch="/////", label="given"))
    if len(handles) > 1:
        axes.legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), fontsize=7.5, frameon=False,
            borderaxespad=0.2, handlelength=1.2, columnspacing=1.0,
        )  # fmt: skip
