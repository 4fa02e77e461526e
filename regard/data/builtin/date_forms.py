"""The ways people write a date, language by language: CLDR's own patterns and a few that CLDR does not have.

A pattern ("EEEE d MMMM y") is read once into slots; each slot holds the text of every value its field can take, so
writing a date is a few look-ups. The letters are CLDR's (Unicode TR 35, part 4, "Date Field Symbols"), with one of our
own: `do`, the ordinal day that people write in "March 3rd" and "1er mars".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from babel import Locale

FIRST_YEAR, LAST_YEAR = 1900, 2099

# Each language with the regions that write it differently: "Sept" in Britain, "Jänner" in Austria, 週二 in Taiwan.
LOCALES: dict[str, tuple[str, ...]] = {
    "en": ("en", "en_GB"),
    "de": ("de", "de_AT"),
    "fr": ("fr", "fr_CA"),
    "es": ("es", "es_MX"),
    "it": ("it",),
    "pt": ("pt", "pt_PT"),
    "nl": ("nl",),
    "sv": ("sv",),
    "fi": ("fi",),
    "pl": ("pl",),
    "cs": ("cs",),
    "ru": ("ru",),
    "uk": ("uk",),
    "el": ("el",),
    "tr": ("tr",),
    "ja": ("ja",),
    "zh": ("zh", "zh_Hant"),
    "ko": ("ko",),
}

SKELETONS = ("yMMMd", "yMMMEd", "yMMMMd", "yMMMMEd", "yMMMMEEEEd", "yMd", "yMEd")

# What people write and CLDR leaves out: lead-in words, ordinals, a plain space where CLDR has a narrow one.
HUMAN_PATTERNS: dict[str, tuple[str, ...]] = {
    "en": (
        "MMMM do, y",
        "EEEE, MMMM do, y",
        "do MMMM y",
        "EEEE do MMMM y",
        "'the' do 'of' MMMM y",
        "'on' MMMM d, y",
        "'on' EEEE, MMMM do, y",
        "d-MMM-y",
        "y MMM d",
        "y-MM-dd",
        "y/MM/dd",
    ),
    "de": ("'am' d. MMMM y", "'am' EEEE, 'dem' d. MMMM y", "EEEE, 'den' d. MMMM y", "d. LLL y", "dd. MMMM y"),
    "fr": ("do MMMM y", "EEEE do MMMM y", "'le' do MMMM y", "'le' EEEE do MMMM y"),
    "es": ("d MMMM y", "d 'de' MMMM 'del' y", "'el' d 'de' MMMM 'de' y", "'el' EEEE d 'de' MMMM 'de' y"),
    "it": ("do MMMM y", "EEEE do MMMM y", "EEEE, d MMMM y"),
    "pt": ("do 'de' MMMM 'de' y", "'em' d 'de' MMMM 'de' y", "'dia' d 'de' MMMM 'de' y"),
    "nl": ("'op' d MMMM y", "'op' EEEE d MMMM y"),
    "sv": ("'den' d MMMM y", "EEEE 'den' d MMMM y"),
    "fi": ("cccc, d. MMMM y",),
    "pl": ("'dnia' d MMMM y", "d MMMM y 'r'.", "EEEE, d MMMM y 'r'."),
    "cs": ("'dne' d. MMMM y", "EEEE, d. MMMM y"),
    "ru": ("d MMMM y", "d MMMM y 'г'.", "d MMMM y 'года'", "EEEE, d MMMM y", "d MMM y"),
    "uk": ("d MMMM y", "d MMMM y 'р'.", "d MMMM y 'року'", "EEEE, d MMMM y", "d MMM y"),
    "el": ("EEEE, d MMMM y", "dd MMMM y"),
    "tr": ("d MMMM y, EEEE", "dd MMMM y"),
    "ja": ("y年MM月dd日", "y年M月d日(EEEE)", "y.M.d"),
    "zh": ("y年MM月dd日", "y年M月d号", "y-MM-dd", "y.M.d"),
    "ko": ("y년M월d일", "y.M.d"),
}

# Patterns written in another set of numerals than 0 to 9: (language, numerals, pattern).
OTHER_NUMERALS = (
    ("ja", "fullwidth", "y年M月d日"),
    ("zh", "han", "y年M月d日"),
    ("zh", "han", "y年M月d日EEEE"),
)


@dataclass(frozen=True)
class Slot:
    """One place of a form: `texts` has what stands there for each value of `field` ("" is text that never changes)."""

    field: str  # "year", "month", "day", "weekday" or ""
    texts: tuple[str, ...]

    def changed(self, change: Callable[[str], str]) -> Slot:
        return Slot(self.field, tuple(change(text) for text in self.texts))


@dataclass(frozen=True)
class Form:
    """One way of writing any date."""

    language: str
    locale: str
    pattern: str
    numerals: str
    touch: str  # one of TOUCHES
    slots: tuple[Slot, ...]


@cache
def forms_of(language: str) -> tuple[tuple[Form, ...], ...]:
    """Every form of a language, a group for each pattern: first as it stands, then with each touch that changes it."""
    groups: dict[tuple[Slot, ...], tuple[Form, ...]] = {}  # regions share most patterns: keep the first of the equals
    for locale, numerals, pattern in _patterns_of(language):
        plain = read_pattern(pattern, locale, language, numerals)
        if plain not in groups:
            touched = {name: touch(plain, language) for name, touch in TOUCHES.items()}
            kept = {slots: name for name, slots in reversed(touched.items())}  # of equal touches, the first
            groups[plain] = tuple(
                Form(language, locale, pattern, numerals, name, slots)
                for name, slots in touched.items()
                if kept[slots] == name
            )
    return tuple(groups.values())


def is_unambiguous(pattern: str) -> bool:
    """True if anybody can tell day, month and year apart: a whole year, and a named month or the year in front.

    It leaves out 03/04/1998, which is March or April according to who reads, and every year of two digits.
    """
    fields = [field for field, _ in _tokens(pattern) if field]
    month = next(field for field in fields if field[0] in "ML")
    return "y" in fields and (len(month) >= 3 or fields.index("y") < fields.index(month))


def read_pattern(pattern: str, locale: str, language: str, numerals: str = "latin") -> tuple[Slot, ...]:
    """The slots of a pattern, with the names that its letters ask of CLDR."""
    return tuple(
        _slot(field, locale, language, numerals) if field else Slot("", (text,)) for field, text in _tokens(pattern)
    )


def _patterns_of(language: str) -> Iterator[tuple[str, str, str]]:
    """(locale, numerals, pattern) of everything a language writes."""
    for name in LOCALES[language]:
        locale = Locale.parse(name)
        skeletons = locale.datetime_skeletons
        found = [locale.date_formats[length] for length in ("full", "long", "medium", "short")]
        found += [skeletons[skeleton] for skeleton in SKELETONS if skeleton in skeletons]
        yield from ((name, "latin", each.pattern) for each in found if is_unambiguous(each.pattern))
    yield from ((language, "latin", pattern) for pattern in HUMAN_PATTERNS[language])
    yield from ((language, numerals, pattern) for of, numerals, pattern in OTHER_NUMERALS if of == language)


_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<field>do|([a-zA-Z])\3*)|(?P<between>[^a-zA-Z']+)")


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """(field, "") or ("", text), in order; neighbouring texts are joined, as in "y 'г'." whose tail is " г."."""
    tokens: list[tuple[str, str]] = []
    for match in _TOKEN.finditer(pattern):
        field, text = match["field"] or "", match["quoted"] or match["between"] or ""
        if not field and tokens and not tokens[-1][0]:
            tokens[-1] = ("", tokens[-1][1] + text)
        else:
            tokens.append((field, text))
    return tokens


@cache
def _slot(field: str, locale: str, language: str, numerals: str) -> Slot:
    """The texts of a field such as "MMMM". Names come from CLDR, in the context (format, stand-alone) of the letter."""
    digits, number = NUMERALS[numerals]
    letter, width = field[0], "wide" if len(field) == 4 else "abbreviated"
    if field == "y":
        return Slot("year", tuple(digits(str(year)) for year in range(FIRST_YEAR, LAST_YEAR + 1)))
    if field == "do":
        return Slot("day", tuple(ORDINALS[language](day) for day in range(1, 32)))
    if letter == "d":
        return Slot("day", tuple(number(day, len(field)) for day in range(1, 32)))
    if letter in "ML" and len(field) <= 2:
        return Slot("month", tuple(number(month, len(field)) for month in range(1, 13)))
    context = "format" if letter in "ME" else "stand-alone"
    if letter in "ML" and len(field) <= 4:
        names = Locale.parse(locale).months[context][width]
        return Slot("month", tuple(names[month] for month in range(1, 13)))
    if field in ("E", "EE", "EEE", "EEEE", "ccc", "cccc"):
        names = Locale.parse(locale).days[context][width]
        return Slot("weekday", tuple(names[weekday] for weekday in range(7)))
    raise AssertionError(f"the field {field} of {locale} is none of y, M, L, d, do, E, c in words or numbers")


# Numerals: for each set, how to write the digits of a year, and a number of one or two digits.

_FULLWIDTH = {ord("0") + digit: chr(0xFF10 + digit) for digit in range(10)}
_HAN = "〇一二三四五六七八九"


def _han_number(value: int, width: int) -> str:
    tens, ones = divmod(value, 10)
    return ("" if tens < 2 else _HAN[tens]) + ("十" if tens else "") + (_HAN[ones] if ones else "")


NUMERALS: dict[str, tuple[Callable[[str], str], Callable[[int, int], str]]] = {
    "latin": (str, lambda value, width: f"{value:0{width}d}"),
    "fullwidth": (
        lambda digits: digits.translate(_FULLWIDTH),
        lambda value, width: f"{value:0{width}d}".translate(_FULLWIDTH),
    ),
    "han": (lambda digits: "".join(_HAN[int(digit)] for digit in digits), _han_number),
}


def _english_ordinal(day: int) -> str:
    suffix = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


# In the other languages only the first of the month is an ordinal.
ORDINALS: dict[str, Callable[[int], str]] = {
    "en": _english_ordinal,
    "fr": lambda day: "1er" if day == 1 else str(day),
    "it": lambda day: "1º" if day == 1 else str(day),
    "pt": lambda day: "1º" if day == 1 else str(day),
}


# Touches: what a hurried or a loud hand does to a form. Each works slot by slot, so that a field stays a field.


def upper(text: str, language: str) -> str:
    """Capitals as the language writes them: Turkish i becomes İ, and Greek capitals lose their accents."""
    if language == "tr":
        text = text.replace("i", "İ")
    if language == "el":
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).replace("\u0301", ""))
    return text.upper()


def lower(text: str, language: str) -> str:
    """Small letters as the language writes them: Turkish I becomes ı."""
    if language == "tr":
        text = text.replace("I", "ı").replace("İ", "i")
    return text.lower()


def _lower(slots: tuple[Slot, ...], language: str) -> tuple[Slot, ...]:
    return tuple(slot.changed(lambda text: lower(text, language)) for slot in slots)


def _upper(slots: tuple[Slot, ...], language: str) -> tuple[Slot, ...]:
    return tuple(slot.changed(lambda text: upper(text, language)) for slot in slots)


def _capital(slots: tuple[Slot, ...], language: str) -> tuple[Slot, ...]:
    """As at the start of a sentence: "Mardi 3 mars 1998"."""
    return (slots[0].changed(lambda text: upper(text[0], language) + text[1:]), *slots[1:])


def _bare(slots: tuple[Slot, ...], language: str) -> tuple[Slot, ...]:
    """Without commas, nor the full stop of a shortened name: "Di 3. Okt 1995"."""
    return tuple(
        slot.changed(lambda text: text.rstrip(".")) if slot.field else slot.changed(lambda text: text.replace(",", ""))
        for slot in slots
    )


def _spaced(slots: tuple[Slot, ...], language: str) -> tuple[Slot, ...]:
    """With every space between the fields struck twice."""
    return tuple(slot if slot.field else slot.changed(lambda text: text.replace(" ", "  ")) for slot in slots)


TOUCHES: dict[str, Callable[[tuple[Slot, ...], str], tuple[Slot, ...]]] = {
    "plain": lambda slots, language: slots,
    "lower": _lower,
    "upper": _upper,
    "capital": _capital,
    "bare": _bare,
    "spaced": _spaced,
}
