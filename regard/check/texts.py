"""Faults of a single text: broken encodings, control characters, markup, an unusual script."""

from __future__ import annotations

import re
import unicodedata

from regard.tokens.words import SPACELESS

# Flags of a text, each a bit.
MOJIBAKE, REPLACED, CONTROL, HTML, DECOMPOSED, EMPTY, WORDLESS, ENDLESS = (1 << place for place in range(8))

# UTF-8 read as Windows-1252 or Latin-1: "ü" becomes "Ã¼". The first byte of a letter is one of these, the second stands
# for 0x80 to 0xBF; typographic quotes and dashes, which may follow a real letter, are left out but after Ã, Ð and Ñ.
_SECOND = "\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2020-\u2022\u2030\u20ac\u2122"
_MOJIBAKE = re.compile(f"[ÃÐÑ][{_SECOND}\u2013-\u201e\u2039\u203a]|[ÂÄÅÎÏÙØ][{_SECOND}]|â[\u0080\u20ac]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TAGS = """
a b br body center code div em font h[1-6] hr html i img li ol p pre script span strong style sub sup table td tr u ul
"""
_HTML = re.compile(
    rf"</?(?:{'|'.join(_TAGS.split())})(?:\s[^<>]{{0,200}})?/?>"
    r"|&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,6}|#x[0-9a-f]{1,6});|(?<![\w&])(?:#39|#36|quot|amp);",
    re.IGNORECASE,
)
# Marks belong to the word of their letter: those of Latin, Hebrew, Arabic, and all of the scripts of South Asia.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0eff"
_WORD = re.compile(rf"[\w{_MARKS}]+")
_CHARACTER_OR_WORD = re.compile(rf"{SPACELESS.pattern}|(?:(?!{SPACELESS.pattern})[\w{_MARKS}])+")

SCRIPTS = (
    ("Latin", "A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff"),
    ("Greek", "\u0370-\u03ff\u1f00-\u1fff"),
    ("Cyrillic", "\u0400-\u052f"),
    ("Armenian", "\u0530-\u058f"),
    ("Hebrew", "\u0590-\u05ff"),
    ("Arabic", "\u0600-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff"),
    ("Indic", "\u0900-\u0dff"),
    ("Thai or Lao", "\u0e00-\u0eff"),
    ("Georgian", "\u10a0-\u10ff"),
    ("Ethiopic", "\u1200-\u137f"),
    ("Chinese, Japanese or Korean", "\u1100-\u11ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"),
)
_SCRIPTS = tuple(re.compile(f"[{letters}]") for _, letters in SCRIPTS)
PATTERNS = {MOJIBAKE: _MOJIBAKE, REPLACED: re.compile("\ufffd"), CONTROL: _CONTROL, HTML: _HTML}  # to show where
NO_SCRIPT = len(SCRIPTS)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case without punctuation; a Chinese or Japanese character is one by itself."""
    folded = text.casefold()
    if not folded.isascii() and SPACELESS.search(folded):
        return _CHARACTER_OR_WORD.findall(folded)
    return _WORD.findall(folded)


def flags_of(text: str, words: int, longest: int) -> int:
    """The flags of a text. `words` is how many it has; more than `longest` characters are no sentence."""
    if not text.strip():
        return EMPTY
    found = 0 if words else WORDLESS
    found |= ENDLESS if len(text) > longest else 0
    found |= CONTROL if _CONTROL.search(text) else 0
    if "<" in text or ";" in text:
        found |= HTML if _HTML.search(text) else 0
    if text.isascii():
        return found
    found |= MOJIBAKE if _MOJIBAKE.search(text) else 0
    found |= REPLACED if "\ufffd" in text else 0
    found |= 0 if unicodedata.is_normalized("NFC", text) else DECOMPOSED
    return found


def script_of(text: str) -> int:
    """The script that most letters of a text have, by its place in SCRIPTS; NO_SCRIPT of one without letters."""
    if text.isascii() or max(text) < "\u0250":
        return 0 if _SCRIPTS[0].search(text) else NO_SCRIPT
    counts = [len(script.findall(text)) for script in _SCRIPTS]
    return counts.index(max(counts)) if any(counts) else NO_SCRIPT


def spelling_of(text: str) -> str:
    """A text without case, and with everything but letters and digits as one space: what two spellings have in common."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text.casefold()).split())
