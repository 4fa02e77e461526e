"""Sheets and films of written pictures as HTML: the picture itself, and what is on it in words."""

from __future__ import annotations

from markupsafe import Markup

from regard.look.figures.pixels import film
from regard.look.pages import template
from regard.look.pages.map import picture_of
from regard.look.pixels import PictureSheet, WritingFilm


def sheet_page(sheet: PictureSheet) -> str:
    """Return a page with nothing but the sheet."""
    return template.render(
        "sheet.html", title=sheet.title or sheet.called, fragment=Markup(picture_of(sheet)), widest="110em"
    )


def film_fragment(shown: WritingFilm) -> str:
    """Return the film as one element."""
    address = template.data_uri(film(shown), "image/gif")
    return template.render("picture.html", address=address, alt=shown._alternative())


def film_page(shown: WritingFilm) -> str:
    """Return a page with nothing but the film."""
    return template.render("sheet.html", title=shown.title, fragment=Markup(film_fragment(shown)), widest="110em")
