"""The built-in labelled texts: names of countries, languages, scripts and currencies in twenty languages.

    Республика Корея  ->  ru
    coréen            ->  fr
    한국어             ->  ko

The names are CLDR's, by way of Babel; another version of Babel may bring other names. A name that a second language
spells alike, but for accents and capitals, is left out, so that each has one right answer: Bermuda is no German word.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

from babel import Locale

from regard.errors import UsageError, nearest

# No two of them are so close that their names cannot be told apart, as those of Czech and Slovak.
LATIN = ("en", "de", "fr", "pl", "tr", "vi")
LANGUAGES = (*LATIN, "el", "ru", "uk", "ar", "fa", "he", "hi", "ta", "ja", "ko", "zh", "th", "ka", "hy")

# Languages that are only looked at to see what else is spelt alike.
RELATED = (
    *("es", "it", "pt", "ca", "gl", "ro", "nl", "sv", "da", "nb", "is", "fi", "et", "hu", "cs", "sk", "sl", "hr"),
    *("lt", "lv", "sq", "id", "bg", "sr", "mk", "be", "ur"),
)
SPLITS = ("train", "valid", "test")

_PSEUDO = {"XA", "XB"}  # territories for testing software
_ACCENTS = re.compile("[\u0300-\u036f]")
_REMARK = re.compile(r"\s*[(\[（].*")


@dataclass(frozen=True)
class Name:
    text: str
    language: str


def language_names(split: str, languages: Sequence[str] = LANGUAGES, least: int = 1) -> list[tuple[str, str]]:
    """(name, language) of one split, of names with `least` characters or more; language by language."""
    if split not in SPLITS:
        raise UsageError(f"there is no split {split!r}", nearest(split, SPLITS))
    for language in languages:
        if language not in LANGUAGES:
            raise UsageError(f"there are no names in {language!r}", nearest(language, LANGUAGES))
    return [
        (name.text, name.language)
        for name in all_names()
        if name.language in languages and len(name.text) >= least and split_of(name.text) == split
    ]


@cache
def all_names() -> tuple[Name, ...]:
    """Every name that only one language spells so."""
    return tuple(
        Name(text, language)
        for language in LANGUAGES
        for plain, text in sorted(spelt(language).items())
        if _speakers()[plain] == 1
    )


def left_out() -> int:
    """How many names were left out because another language spells them alike."""
    return sum(len(spelt(language)) for language in LANGUAGES) - len(all_names())


@cache
def split_of(text: str) -> str:
    """The split a name belongs to, for ever: about 80% train, 10% valid, 10% test. Remarks in brackets do not count."""
    plain = _REMARK.sub("", plain_spelling(text)) or text
    digest = hashlib.blake2b(plain.encode(), digest_size=8, key=b"regard names").digest()
    share = int.from_bytes(digest, "big") % 100
    return "train" if share < 80 else "valid" if share < 90 else "test"


def plain_spelling(text: str) -> str:
    """The name in lower case and without accents."""
    return _ACCENTS.sub("", unicodedata.normalize("NFD", text.casefold())).replace("ı", "i")


@cache
def spelt(language: str) -> dict[str, str]:
    """The names of a language by their plain spellings; of those that differ in capitals or accents, one."""
    found: dict[str, str] = {}
    for code, name in _names(language):
        if code not in _PSEUDO and name != code and _is_native(name, language):
            found.setdefault(plain_spelling(name), name)
    return found


@cache
def _speakers() -> Counter[str]:
    """How many languages spell a name so, whether it is a word of theirs or only a code."""
    spellings = ({plain_spelling(name) for _, name in _names(language)} for language in (*LANGUAGES, *RELATED))
    return Counter(chain.from_iterable(spellings))


@cache
def _names(language: str) -> tuple[tuple[str, str], ...]:
    """(code, name) of the countries, languages, scripts and currencies for which CLDR has a name in the language."""
    locale = Locale.parse(language)
    tables = (locale.territories, locale.languages, locale.scripts, locale.currencies)
    named = chain.from_iterable(sorted(table.items()) for table in tables)
    return tuple((code, unicodedata.normalize("NFC", " ".join(name.split()))) for code, name in named)


def _is_native(name: str, language: str) -> bool:
    """Whether a name has letters, and in a language that is not written with Latin ones, most are others."""
    letters = [character for character in name if character.isalpha()]
    latin = sum("LATIN" in unicodedata.name(letter, "") for letter in letters)
    return bool(letters) and (language in LATIN or latin * 2 < len(letters))
