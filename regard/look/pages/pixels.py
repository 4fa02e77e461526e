"""Sheets and films of written pictures as HTML: the picture itself, and what is on it in words."""

from __future__ import annotations

from markupsafe import Markup

from regard.look.figures.pixels import film
from regard.look.pages import template
from regard.look.pixels import PictureSheet, WritingFilm


def sheet_fragment(sheet: PictureSheet) -> str:
    """Return the sheet as one element."""
    return _element(sheet._repr_png_(), "image/png", sheet._alternative())


def sheet_page(sheet: PictureSheet) -> str:
    """Return a page with nothing but the sheet."""
    return _page(sheet.title or sheet.called, sheet_fragment(sheet))


def film_fragment(shown: WritingFilm) -> str:
    """Return the film as one element."""
    return _element(film(shown), "image/gif", shown._alternative())


def film_page(shown: WritingFilm) -> str:
    """Return a page with nothing but the film."""
    return _page(shown.title, film_fragment(shown))


def _element(picture: bytes, kind: str, alternative: str) -> str:
    return template.render("picture.html", address=template.data_uri(picture, kind), alt=alternative)


def _page(title: str, fragment: str) -> str:
    return template.render("sheet.html", title=title, fragment=Markup(fragment), widest="110em")
