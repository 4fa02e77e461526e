"""A weighed text as HTML: colours behind the words, which tell their weight under the pointer."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from regard.look.colors import INK, color, hexadecimal
from regard.look.contrast import ink_on
from regard.look.labels import visible_title
from regard.look.wrapping import right_to_left, shown_text, stretches
from regard.tokens.words import SPECIAL

if TYPE_CHECKING:
    from regard.look.words import WeighedText

QUIET = "#5b646c"
SHEET = "background:#fff;color:#000;padding:.8em 1em;max-width:46em"  # the same in a dark notebook
TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.75;margin:.5em 0"
PIECE = "padding:.15em 0;border-radius:.15em"
PAGE = "margin:0;padding:2em 1em;background:#fff;font:17px/1.5 system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif"


def fragment(weighed: WeighedText) -> str:
    """Title, caption, text and legend in one element, for a notebook or a page."""
    title = (
        f"<div{_direction(weighed.title)}><b>{escape(visible_title(weighed.title))}</b></div>" if weighed.title else ""
    )
    caption = (
        f"<div{_direction(weighed.caption)}>{escape(visible_title(weighed.caption))}</div>" if weighed.caption else ""
    )
    text, owners = shown_text(weighed.text, weighed.spans)
    pieces = "".join(
        _unweighed(part) if owner < 0 else _piece(part, weighed.weights[owner], weighed.top)
        for part, owner in stretches(text, owners)
    )
    body = f'<div dir="auto" style="{TEXT}">{pieces}</div>'
    return f'<div style="{SHEET};width:fit-content">{title}{caption}{body}{_legend(weighed)}</div>'


def page(weighed: WeighedText) -> str:
    """The fragment as a whole page, which is also well-formed XML."""
    title = escape(visible_title(weighed.title or weighed.caption or "A weighed text"))
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title></head>"
        f'<body style="{PAGE}"><div style="max-width:48em;margin:0 auto">{fragment(weighed)}</div></body></html>\n'
    )


def _direction(text: str) -> str:
    return ' dir="rtl"' if right_to_left(text) else ""


def _piece(text: str, weight: float, top: float) -> str:
    if math.isnan(weight):
        return _unweighed(text)
    ground = color(INK, weight / top)
    style = f"{PIECE};background:{hexadecimal(ground)};color:{hexadecimal(ink_on(ground))}"
    side = ' dir="ltr"' if SPECIAL.fullmatch(text) else ""  # in Hebrew, </s> would be turned to <s/>
    return f'<span style="{style}" title="{weight:.3g}"{side}>{escape(text)}</span>'


def _unweighed(text: str) -> str:
    return escape(text) if text.isspace() else f'<span style="color:{QUIET}">{escape(text)}</span>'


def _legend(weighed: WeighedText) -> str:
    ramp = ",".join(hexadecimal(each) for each in INK)
    box = f"display:inline-block;height:.8em;width:8em;background:linear-gradient(to right,{ramp})"
    scale = f'weight 0 <span style="{box}"></span> {weighed.top:g}'
    grey = f' &#8195; <span style="color:{QUIET}">not weighed</span>' if weighed.unweighed else ""
    outside = f" &#8195; {weighed.outside:.2g} outside the text" if weighed.outside else ""
    return f'<div style="font-size:85%">{scale}{grey}{outside}</div>'
