"""Templates filled with data: pages that are HTML and well-formed XML, with style and script inside, loading nothing.

`templates/base.html` is the frame of every page and `static/theme.css` its colours, light or dark as the reader has it. The
files in `static` have no `<` and no `&`, so that they stand in a page as they are. Scripts are ES modules whose functions
take an element and its data; a page has their text without `export` and `import`, and a line that calls one of them.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from html import escape
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from regard.files import finite
from regard.look.colors import INK, hexadecimal
from regard.look.labels import right_to_left, visible, visible_title

STATIC = files("regard.look") / "static"
RAMP = ",".join(hexadecimal(each) for each in INK)  # for a gradient from no weight to the greatest


def render(template: str, **data: object) -> str:
    """Return the template of that name filled with the data, every text escaped."""
    return environment().get_template(template).render(**data)


@cache
def environment() -> Environment:
    """Return the templates of the package, with the filters and functions that they may use."""
    made = Environment(
        loader=PackageLoader("regard.look"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    made.filters |= {"label": label, "words": words, "json": as_json}
    made.globals |= {"stylesheet": stylesheet, "script": script, "data_uri": data_uri}
    made.globals |= {"right_to_left": right_to_left, "ramp": RAMP}
    return made


def label(text: str) -> Markup:
    """A token with its invisible characters made visible, escaped for elements and attributes."""
    return Markup(escape(visible(text), quote=True))


def words(text: str) -> Markup:
    """A title or a sentence, which keeps its spaces, escaped for elements and attributes."""
    return Markup(escape(visible_title(text), quote=True))


def as_json(value: object) -> Markup:
    """JSON inside markup: no character of it can end or begin an element."""
    text = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


@cache
def stylesheet(*names: str) -> Markup:
    """Return the text of style sheets in `static`, one after another."""
    return Markup("".join((STATIC / name).read_text(encoding="utf-8") for name in names))


@cache
def script(*names: str, call: str) -> Markup:
    """Return the text of modules in `static` as one script that ends with `call`. The modules see each other's functions."""
    text = "".join((STATIC / name).read_text(encoding="utf-8") for name in names)
    text = re.sub(r"(?m)^import .*\n|^export ", "", text)
    return Markup(f"(() => {{\n{text}{call}\n}})();\n")


def data_uri(content: bytes, kind: str) -> str:
    """Return bytes such as those of a picture as an address that holds them: `kind` is their type, image/png."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
