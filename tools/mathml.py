"""A Markdown extension for the documentation site: `$...$` and `$$...$$` become MathML when the pages are built.

Browsers draw MathML themselves, so that a page with formulas loads no script and no font from anywhere. A dollar sign
opens a formula only before something other than a space, and closes it only behind one and not before a digit: "5 $ and
6 $" stays as it is, and so does `\\$`. Inside code nothing is a formula.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as tree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

DISPLAY = r"\$\$(?P<formula>.+?)\$\$"
INLINE = r"(?<![\\$\w])\$(?P<formula>(?=\S)(?:\\\$|[^$])+?(?<=\S))\$(?![\d$])"
PRIORITY = 186  # between code (190) and backslashes (180), which belong to the formula


class Formula(InlineProcessor):
    """One way to write a formula in a line."""

    def __init__(self, pattern: str, md: Markdown, display: str) -> None:
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:
        return self.md.htmlStash.store(mathml(m["formula"], self.display)), m.start(0), m.end(0)


def mathml(formula: str, display: str = "inline") -> str:
    """Return a formula as MathML, with its source as a note for those who copy it."""
    made = tree.fromstring(convert(" ".join(formula.split()), display=display))
    made.set("alttext", " ".join(formula.split()))
    tree.register_namespace("", "http://www.w3.org/1998/Math/MathML")
    return tree.tostring(made, encoding="unicode")


class FormulaExtension(Extension):
    """Formulas between dollar signs."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.ESCAPED_CHARS.append("$")
        md.inlinePatterns.register(Formula(DISPLAY, md, "block"), "display-formula", PRIORITY + 1)
        md.inlinePatterns.register(Formula(INLINE, md, "inline"), "inline-formula", PRIORITY)


def makeExtension(**settings: object) -> FormulaExtension:
    """Python-Markdown's name of the way to get an extension from a module."""
    return FormulaExtension(**settings)
