"""The built-in sentences to translate: Spanish from templates, with the English of each and which words gave which.

    Yo soy de Canadá                          ->  I am from Canada
    Me puedes traer un tenedor limpio         ->  Can you bring me a clean fork
    Ella quiere una casa roja pero Ana viaja a Japón el lunes  ->  She wants a red house but Ana travels to Japan on Monday

A sentence is one clause or several, joined by "y" and "pero"; how many is how hard it is to carry it through one vector.
Adjectives change places with their nouns, and some verbs with their pronouns. Names of countries, languages and days are
CLDR's, by way of Babel; the rest of the words is here. Each sentence has one right answer, and belongs to train, valid or
test for ever, by its hash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TypeVar

from babel import Locale

from regard.data.builtin.algorithms import below, split_of
from regard.errors import UsageError, nearest

MOST_CLAUSES = 2  # of a sentence, where nothing else is said
LONGEST = 20  # clauses
SPLITS = ("train", "valid", "test")
_TRIES = 100  # draws before a repeated sentence is let through

Item = TypeVar("Item")
Word = tuple[str, str]  # Spanish, English; a space joins two words that are one on the other side
Clause = list[tuple[str, int]]  # English words, each with the number of the Spanish word that gave it


@dataclass(frozen=True)
class SpanishPair:
    """A sentence, its translation, and which words of the one gave words of the other: (Spanish, English), sorted."""

    source: str
    target: str
    links: tuple[tuple[int, int], ...]


# Singular and plural of Spanish nouns with their gender, and of English ones.
NOUNS: tuple[tuple[str, str, str, str, str], ...] = (
    ("tenedor", "tenedores", "m", "fork", "forks"),
    ("cuchillo", "cuchillos", "m", "knife", "knives"),
    ("plato", "platos", "m", "plate", "plates"),
    ("vaso", "vasos", "m", "glass", "glasses"),
    ("libro", "libros", "m", "book", "books"),
    ("sombrero", "sombreros", "m", "hat", "hats"),
    ("coche", "coches", "m", "car", "cars"),
    ("perro", "perros", "m", "dog", "dogs"),
    ("gato", "gatos", "m", "cat", "cats"),
    ("zapato", "zapatos", "m", "shoe", "shoes"),
    ("cuchara", "cucharas", "f", "spoon", "spoons"),
    ("taza", "tazas", "f", "cup", "cups"),
    ("botella", "botellas", "f", "bottle", "bottles"),
    ("mesa", "mesas", "f", "table", "tables"),
    ("silla", "sillas", "f", "chair", "chairs"),
    ("casa", "casas", "f", "house", "houses"),
    ("puerta", "puertas", "f", "door", "doors"),
    ("carta", "cartas", "f", "letter", "letters"),
    ("camisa", "camisas", "f", "shirt", "shirts"),
    ("manzana", "manzanas", "f", "apple", "apples"),
)
ADJECTIVES = (
    ("rojo", "red"), ("blanco", "white"), ("negro", "black"), ("amarillo", "yellow"), ("limpio", "clean"),
    ("nuevo", "new"), ("viejo", "old"), ("pequeño", "small"), ("bonito", "pretty"), ("caro", "expensive"),
)  # fmt: skip
PEOPLE: dict[str, tuple[str, int]] = {  # English, and the person of the verb
    "Yo": ("I", 0), "Tú": ("You", 1), "Él": ("He", 2), "Ella": ("She", 2), "Nosotros": ("We", 3), "Ellos": ("They", 4),
    "Ana": ("Ana", 2), "Pedro": ("Pedro", 2), "Mi hermano": ("My brother", 2), "Mi madre": ("My mother", 2),
    "Mis amigos": ("My friends", 4),
}  # fmt: skip
VERBS: dict[str, tuple[str, str]] = {  # of the five persons; English with its third person behind
    "from": ("soy eres es somos son", "am are is are are"),
    "speak": ("hablo hablas habla hablamos hablan", "speak speak speaks speak speak"),
    "want": ("quiero quieres quiere queremos quieren", "want want wants want want"),
    "have": ("tengo tienes tiene tenemos tienen", "have have has have have"),
    "travel": ("viajo viajas viaja viajamos viajan", "travel travel travels travel travel"),
    "live": ("vivo vives vive vivimos viven", "live live lives live live"),
    "see": ("veo ves ve vemos ven", "see see sees see see"),
}
NUMBERS = (("dos", "two"), ("tres", "three"), ("cuatro", "four"), ("cinco", "five"), ("seis", "six"), ("diez", "ten"))
PLACES = (("detrás de", "behind"), ("debajo de", "under"), ("cerca de", "near"), ("delante de", "in front of"))
HELPERS = (("Me", "me"), ("Nos", "us"), ("Le", "him"))
ASKED = (("traer", "bring"), ("dar", "give"), ("comprar", "buy"), ("enviar", "send"))
COUNTRIES = (
    "CA", "MX", "ES", "FR", "DE", "IT", "PT", "JP", "CN", "IN", "BR", "AR", "CL", "PE", "CO", "VE", "CU", "BO", "EC",
    "UY", "PY", "CR", "PA", "HN", "GT", "NI", "MA", "EG", "TN", "DZ", "KE", "GH", "NG", "ET", "SN", "ML", "AO", "ZW",
    "ZM", "UG", "TR", "GR", "BG", "RO", "HU", "PL", "CZ", "SK", "AT", "CH", "BE", "IE", "IS", "NO", "SE", "FI", "DK",
    "EE", "LV", "LT", "UA", "RU", "GE", "AM", "IR", "IQ", "SY", "JO", "LB", "IL", "YE", "OM", "QA", "KW", "PK", "BD",
    "NP", "LK", "TH", "VN", "LA", "KH", "MY", "SG", "ID", "MN", "KZ", "UZ", "AU", "NZ",
)  # fmt: skip
LANGUAGES = (
    "es", "en", "fr", "de", "it", "pt", "ja", "zh", "ru", "ar", "el", "tr", "pl", "sv", "fi", "da", "hu", "cs", "ko",
    "vi", "th", "he", "hi", "fa", "uk", "ro", "bg", "ca", "nl",
)  # fmt: skip


def spanish_pairs(
    split: str, count: int, most: int = MOST_CLAUSES, length: int | None = None, seed: int = 1
) -> list[SpanishPair]:
    """`count` sentences of one to `most` clauses, or of exactly `length`, each once until nearly all have been drawn.

    A larger count goes on where a smaller ended.
    """
    if split not in SPLITS:
        raise UsageError(f"there is no split {split!r}", nearest(split, SPLITS))
    if max(most, length or 0) > LONGEST:
        raise UsageError(f"builtin/spanish: sentences have {LONGEST} clauses at most, not {max(most, length or 0)}")
    draw = random.Random(f"regard spanish {split} {most} {length} {seed}")
    pairs: list[SpanishPair] = []
    seen: set[str] = set()
    for _ in range(count):
        for _ in range(_TRIES):
            pair = _of_split(split, length or 1 + below(most, draw), draw)
            if pair.source not in seen:
                break
        seen.add(pair.source)
        pairs.append(pair)
    return pairs


def _of_split(split: str, clauses: int, draw: random.Random) -> SpanishPair:
    pair = _sentence(clauses, draw)
    while split_of(pair.source) != split:
        pair = _sentence(clauses, draw)
    return pair


def _sentence(clauses: int, draw: random.Random) -> SpanishPair:
    """So many clauses, each of a template of its own."""
    source: list[str] = []
    target: list[str] = []
    links: list[tuple[int, int]] = []
    for number in range(clauses):
        if number:
            spanish, english = (("y", "and"), ("pero", "but"))[below(2, draw)]
            links.append((len(source), len(target)))
            source.append(spanish)
            target.append(english)
        words, clause = _pick(TEMPLATES, draw)(draw)
        links += [(len(source) + place, len(target) + at) for at, (_, place) in enumerate(clause) if place >= 0]
        source += _inside(words, number)
        target += _inside([word for word, _ in clause], number)
    return SpanishPair(" ".join(source), " ".join(target), tuple(sorted(links)))


def _inside(words: list[str], number: int) -> list[str]:
    """Words of a clause; behind the first, a pronoun or "my" loses its capital, and names keep theirs."""
    first, *rest = words
    small = first.lower() if number and first in _SMALL else first
    return [small, *rest]


_SMALL = {word.split(" ")[0] for who in PEOPLE for word in (who, PEOPLE[who][0])} - {"I", "Ana", "Pedro"}
_SMALL |= {"Can", "The", "El", "La", *(spanish for spanish, _ in HELPERS)}


def _clause(*parts: tuple[str, str | Sequence[str]]) -> tuple[list[str], Clause]:
    """Words of both languages from parts in the order of the Spanish: (Spanish words, English words of these)."""
    spanish: list[str] = []
    english: Clause = []
    for words, given in parts:
        start, own = len(spanish), words.split(" ") if words else []
        spanish += own
        others = given.split(" ") if isinstance(given, str) else list(given)
        one_to_one = len(own) == len(others)
        english += [
            (word, start + at if one_to_one else start if own else -1) for at, word in enumerate(others) if word
        ]
    return spanish, english


def _person(draw: random.Random, *, of: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Somebody, and a verb in that person."""
    who = _pick(list(PEOPLE), draw)
    name, person = PEOPLE[who]
    spanish, english = (forms.split(" ")[person] for forms in VERBS[of])
    return (who, name), (spanish, english)


def _thing(draw: random.Random, article: tuple[str, str, str], *, number: bool = False) -> tuple[list[str], Clause]:
    """A noun with its article, and perhaps an adjective, which stands behind it in Spanish and before it in English."""
    one, many, gender, fork, forks = _pick(NOUNS, draw)
    masculine, feminine, english = article
    noun, thing = (many, forks) if number else (one, fork)
    words, clause = [masculine if gender == "m" else feminine, noun], [(english, 0), (thing, 1)]
    if below(3, draw) < 2:
        adjective, quality = _pick(ADJECTIVES, draw)
        adjective = adjective if gender == "m" else adjective[:-1] + "a"
        words.append(adjective + "s" if number else adjective)
        clause.insert(1, (quality, 2))
    if english == "a" and clause[1][0][0] in "aeiou":
        clause[0] = ("an", 0)
    return words, clause


A, THE, THE_FIRST = ("un", "una", "a"), ("el", "la", "the"), ("El", "La", "The")


def _joined(first: tuple[list[str], Clause], second: tuple[list[str], Clause]) -> tuple[list[str], Clause]:
    shift = len(first[0])
    moved = [(word, place + shift if place >= 0 else place) for word, place in second[1]]
    return [*first[0], *second[0]], [*first[1], *moved]


def _from(draw: random.Random) -> tuple[list[str], Clause]:
    who, verb = _person(draw, of="from")
    return _clause(who, verb, ("de", "from"), _pick(countries(), draw))


def _speak(draw: random.Random) -> tuple[list[str], Clause]:
    who, verb = _person(draw, of="speak")
    first, second = _pick(languages(), draw), _pick(languages(), draw)
    both = () if first == second else (("y", "and"), second)
    return _clause(who, verb, first, *both)


def _ask(draw: random.Random) -> tuple[list[str], Clause]:
    """Me puedes traer un tenedor -> Can you bring me a fork: the pronoun goes behind the verb."""
    (helped, them), (verb, action) = _pick(HELPERS, draw), _pick(ASKED, draw)
    asked: Clause = [("Can", 1), ("you", 1), (action, 2), (them, 0)]
    return _joined(([helped, "puedes", verb], asked), _thing(draw, A))


def _want(draw: random.Random) -> tuple[list[str], Clause]:
    who, verb = _person(draw, of="want" if below(2, draw) else "see")
    return _joined(_clause(who, verb), _thing(draw, A))


def _have(draw: random.Random) -> tuple[list[str], Clause]:
    who, verb = _person(draw, of="have")
    spanish, english = _pick(NUMBERS, draw)
    return _joined(_clause(who, verb), _thing(draw, (spanish, spanish, english), number=True))


def _travel(draw: random.Random) -> tuple[list[str], Clause]:
    who, verb = _person(draw, of="travel")
    day, named = _pick(days(), draw)
    return _clause(who, verb, ("a", "to"), _pick(countries(), draw), ("el", "on"), (day, named))


def _live(draw: random.Random) -> tuple[list[str], Clause]:
    who, verb = _person(draw, of="live")
    return _clause(who, verb, ("en", "in"), _pick(countries(), draw))


def _place(draw: random.Random) -> tuple[list[str], Clause]:
    """El libro rojo está debajo de la mesa -> The red book is under the table; de el is del."""
    where, english = _pick(PLACES, draw)
    found = _joined(_joined(_thing(draw, THE_FIRST), _clause(("está", "is"), (where, english))), _thing(draw, THE))
    return _contracted(*found)


def _contracted(words: list[str], clause: Clause) -> tuple[list[str], Clause]:
    at = next((n for n in range(len(words) - 1) if words[n : n + 2] == ["de", "el"]), None)
    if at is None:
        return words, clause
    shorter = [*words[:at], "del", *words[at + 2 :]]
    return shorter, [(word, place - 1 if place > at else place) for word, place in clause]


TEMPLATES: tuple[Callable[[random.Random], tuple[list[str], Clause]], ...] = (
    *(_from, _speak, _ask, _want, _have, _travel, _live, _place),
)


@cache
def countries() -> tuple[Word, ...]:
    """Names of countries without article, Spanish and English."""
    spanish, english = (Locale.parse(each).territories for each in ("es", "en"))
    return tuple((spanish[code], english[code]) for code in COUNTRIES if code in spanish and code in english)


@cache
def languages() -> tuple[Word, ...]:
    spanish, english = (Locale.parse(each).languages for each in ("es", "en"))
    return tuple(_one_each((spanish[code], english[code]) for code in LANGUAGES))


@cache
def days() -> tuple[Word, ...]:
    spanish, english = (Locale.parse(each).days["format"]["wide"] for each in ("es", "en"))
    return tuple((spanish[day], english[day]) for day in range(7))


def _one_each(names: Iterator[Word]) -> Iterator[Word]:
    """Names, each Spanish one once."""
    return (next(group) for _, group in groupby(sorted(names), key=lambda name: name[0]))


def _pick(items: Sequence[Item], draw: random.Random) -> Item:
    return items[below(len(items), draw)]
