"""The functions that draw each class in each medium: one explicit table of names, imported only when something is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Medium = Literal["figure", "picture", "film", "page", "fragment", "terminal"]


@dataclass(frozen=True)
class Renderers:
    """The functions that draw one class, each as "module:function"; empty where it has no such form."""

    figure: str = ""  # (data, **options) -> a matplotlib figure
    picture: str = ""  # data -> the bytes of a PNG, where no figure of matplotlib is drawn
    film: str = ""  # data -> the bytes of a GIF
    page: str = ""  # data -> a whole HTML page
    fragment: str = ""  # data -> one HTML element, for notebooks
    terminal: str = ""  # (data, width, colored) -> something that rich prints


FIGURE_FILE = "regard.look.figures.sheet:render"  # (figure, png or svg) -> bytes
TERMINAL_TEXT = "regard.look.terminal.map:written"  # (what rich prints, width, color) -> text

RENDERERS = {
    "AttentionMap": Renderers(
        figure="regard.look.figures.map:draw_map",
        page="regard.look.pages.map:map_page",
        fragment="regard.look.pages.map:map_table",
        terminal="regard.look.terminal.map:draw_map",
    ),
    "AllHeads": Renderers(
        figure="regard.look.figures.heads:draw_all_heads",
        page="regard.look.pages.map:all_heads_page",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.map:draw_all_heads",
    ),
    "EffectiveAttention": Renderers(
        figure="regard.look.figures.map:draw_effective",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.map:draw_effective",
    ),
    "Lines": Renderers(
        figure="regard.look.figures.text:draw_lines",
        page="regard.look.pages.text:lines_page",
        fragment="regard.look.pages.text:lines_fragment",
        terminal="regard.look.terminal.text:draw_lines",
    ),
    "DrawnGraph": Renderers(
        figure="regard.look.figures.graph:draw_graph",
        page="regard.look.pages.graph:graph_page",
        fragment="regard.look.pages.graph:graph_fragment",
        terminal="regard.look.terminal.graph:draw_graph",
    ),
    "WeighedText": Renderers(
        figure="regard.look.figures.text:draw_words",
        page="regard.look.pages.text:words_page",
        fragment="regard.look.pages.text:words_fragment",
        terminal="regard.look.terminal.text:draw_words",
    ),
    "RowTexts": Renderers(terminal="regard.look.terminal.text:draw_rows"),
    "PictureMap": Renderers(
        figure="regard.look.figures.pictures:draw_pictures",
        page="regard.look.pages.pictures:pictures_page",
        fragment="regard.look.pages.pictures:pictures_fragment",
        terminal="regard.look.terminal.pictures:draw_pictures",
    ),
    "HeadReport": Renderers(
        figure="regard.look.figures.heads:draw_heads",
        page="regard.look.pages.report:heads_page",
        fragment="regard.look.pages.report:heads_fragment",
        terminal="regard.look.terminal.map:draw_brief",
    ),
    "Formation": Renderers(
        figure="regard.look.figures.formation:draw_formation",
        film="regard.look.figures.formation:film",
        page="regard.look.pages.formation:formation_page",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.map:draw_formation",
    ),
    "Walk": Renderers(
        figure="regard.look.figures.board:draw_board",
        page="regard.look.walk.page:render_page",
        fragment="regard.look.walk.page:render_fragment",
        terminal="regard.look.walk.terminal:draw",
    ),
    "ChannelWeights": Renderers(
        figure="regard.look.figures.layers:draw_channels",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.pictures:draw_channels",
    ),
    "MixingMatrices": Renderers(
        figure="regard.look.figures.layers:draw_mixing",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.pictures:draw_mixing",
    ),
    "Panels": Renderers(
        figure="regard.look.figures.panels:draw_panels",
        page="regard.look.pages.panels:panels_page",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.panels:draw_panels",
    ),
    "PianoRoll": Renderers(
        figure="regard.look.figures.roll:draw_roll",
        page="regard.look.pages.map:picture_page",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.roll:draw_roll",
    ),
    "Spectrograms": Renderers(
        figure="regard.look.figures.spectrograms:draw_spectrograms",
        page="regard.look.pages.map:picture_page",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.spectrograms:draw_spectrograms",
    ),
    "PictureSheet": Renderers(
        picture="regard.look.figures.pixels:draw_sheet",
        page="regard.look.pages.pixels:sheet_page",
        fragment="regard.look.pages.pixels:sheet_fragment",
        terminal="regard.look.terminal.pixels:draw_sheet",
    ),
    "WritingFilm": Renderers(
        picture="regard.look.figures.pixels:draw_strip",
        film="regard.look.figures.pixels:film",
        page="regard.look.pages.pixels:film_page",
        fragment="regard.look.pages.pixels:film_fragment",
        terminal="regard.look.terminal.pixels:draw_film",
    ),
    "HeardView": Renderers(
        figure="regard.look.figures.hearing:draw_heard",
        page="regard.look.pages.panels:panels_page",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.panels:draw_panels",
    ),
    "BeamTree": Renderers(
        figure="regard.look.figures.tree:draw_tree",
        page="regard.look.pages.tree:tree_page",
        fragment="regard.look.pages.map:picture_of",
        terminal="regard.look.terminal.tree:draw_tree",
    ),
}
