"""Translation memories (TMX 1.4b, LISA 2005), read unit by unit in constant memory, and nothing but their text.

A file of XML can ask its reader to fetch other files or to repeat a text without end. This reader refuses every declaration
of a DTD; a bare `<!DOCTYPE tmx SYSTEM "tmx14.dtd">`, which many tools write, is passed over and never fetched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from regard.data.archives import nearest_language, plain_tag
from regard.data.lines import LONGEST_LINE, opened
from regard.errors import Advice, Option, RegardError, UsageError

TMX = ".tmx"
CODES = ("bpt", "ept", "it", "ph", "ut")  # hold codes of another format, which are no text; so do <sub> texts in them
DEEPEST = 64  # elements inside each other; a segment has ten at most
VARIANTS = 1000  # texts of a unit
TOKEN = 1 << 22  # bytes of a tag or comment
CHUNK = 1 << 16
LOOKED_AT = 1000  # units that tell which languages there are
_SPACE = re.compile(r"[ \t\r\n]+")


class Unit(NamedTuple):
    """A translation unit: the line where it begins, and its text in each language (the first, where it has several)."""

    line: int
    texts: dict[str, str]

    def pair(self, languages: tuple[str, str]) -> tuple[str, str] | None:
        """Its texts in two languages; None if it lacks one."""
        source, target = (nearest_language(self.texts, code) for code in languages)
        return None if source is None or target is None else (self.texts[source], self.texts[target])


def read_units(path: Path) -> Iterator[Unit]:
    """The units of a TMX file, one after the other; what is wrong with it is told with its line."""
    reader = _Reader(path)
    fed = 0
    with opened(path) as file:
        while chunk := file.read(CHUNK):
            fed += len(chunk)
            reader.feed(chunk, last=False)
            yield from reader.taken()
            if fed - max(0, reader.parser.CurrentByteIndex) > TOKEN:
                raise reader.refused(
                    f"a tag or comment of more than {TOKEN >> 20} MiB", "no translation memory has one"
                )
    if not fed:
        raise RegardError(f"{path} is empty", "it should hold translation units in XML (TMX)")
    reader.feed(b"", last=True)
    yield from reader.taken()


def tmx_pairs(
    path: Path, languages: tuple[str, str] | None, notes: list[str] | None = None
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Line and texts of each unit that has both languages; at the end `notes` get how many lack one."""
    languages = languages or two_languages(path, notes)
    units = lacking = 0
    seen: Counter[str] = Counter()
    for unit in read_units(path):
        units += 1
        pair = unit.pair(languages)
        if pair is None:
            lacking += 1
            seen.update(map(plain_tag, unit.texts))
        else:
            yield unit.line, pair
    if lacking == units:
        there = ", ".join(f"{tag} ({count:,})" for tag, count in seen.most_common(12)) or "none"
        wanted = " and ".join(languages)
        raise UsageError(f"{path}: no unit has {wanted}; the languages of its {units:,} units are {there}")
    if lacking and notes is not None:
        notes.append(f"{path}: {lacking:,} of {units:,} units lack {' or '.join(languages)}, and are left out")


def two_languages(path: Path, notes: list[str] | None) -> tuple[str, str]:
    """The languages of a memory that has only two, in the order of its first unit."""
    tags = list(dict.fromkeys(plain_tag(tag) for unit in islice(read_units(path), LOOKED_AT) for tag in unit.texts))
    if len(tags) != 2:
        there = f"there is {', '.join(tags)}" if tags else "no unit names one"
        raise UsageError(
            f"{path}: from which language into which? {there}", Advice("say ", Option("languages", "en,de"))
        )
    if notes is not None:
        says = Option("languages", f"{tags[1]},{tags[0]}")
        notes.append(
            Advice(f"{path}: source is {tags[0]}, target is {tags[1]} (its only two; the other way: ", says, ")")
        )
    return tags[0], tags[1]


class _Reader:
    """What expat calls while it reads: finished units are kept until they are taken."""

    def __init__(self, path: Path) -> None:
        self.path, self.units, self.depth = path, list[Unit](), 0
        self.line, self.language, self.inside, self.code = 0, "", False, 0
        self.texts: dict[str, str] = {}
        self.parts: list[str] = []
        self.length = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.parser.EntityDeclHandler = self.entity
        self.parser.SkippedEntityHandler = self.skipped
        self.parser.ExternalEntityRefHandler = self.skipped

    def feed(self, data: bytes, last: bool) -> None:
        try:
            self.parser.Parse(data, last)
        except expat.ExpatError as error:
            why = expat.ErrorString(error.code)
            hint = "it ends too early: fetch it again" if last else "look at this line; is its encoding what it says?"
            raise RegardError(f"{self.path}, line {error.lineno}: not whole XML ({why})", hint) from error

    def taken(self) -> list[Unit]:
        done, self.units = self.units, []
        return done

    def refused(self, what: str, hint: str = "") -> RegardError:
        return RegardError(f"{self.path}, line {self.parser.CurrentLineNumber}: {what}", hint)

    # --- Elements

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth == 1 and name != "tmx":
            raise self.refused(f"this is XML of <{name[:40]}>, not a translation memory (<tmx>)")
        if self.depth > DEEPEST:
            raise self.refused(f"more than {DEEPEST} elements inside each other", "no translation memory has so many")
        if self.inside:
            self.code += self.code > 0 or name in CODES
        elif name == "tu":
            self.line, self.texts = self.parser.CurrentLineNumber, {}
        elif name == "tuv":
            self.language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg":
            self.inside, self.parts, self.length = True, [], 0

    def end(self, name: str) -> None:
        self.depth -= 1
        if self.code:
            self.code -= 1
        elif name == "seg":
            self.inside = False
            self.texts.setdefault(self.language, _SPACE.sub(" ", "".join(self.parts)).strip())
            if len(self.texts) > VARIANTS:
                raise self.refused(f"a unit of more than {VARIANTS:,} languages")
        elif name == "tu":
            self.units.append(Unit(self.line, self.texts))

    def characters(self, data: str) -> None:
        """Keep text, of an endless one only so much that it is told to be endless."""
        if self.inside and not self.code and self.length <= LONGEST_LINE:
            self.parts.append(data[: LONGEST_LINE + 1 - self.length])
            self.length += len(self.parts[-1])

    # --- What is refused

    def doctype(self, name: str, system: str | None, public: str | None, has_declarations: bool) -> None:
        if has_declarations:
            raise self.refused(
                "a DTD inside the file, which is refused", "take it out: a translation memory needs none"
            )

    def entity(self, name: str, *rest: object) -> None:
        raise self.refused(f"an entity ({name[:40]}), which is refused", "take it out: a translation memory needs none")

    def skipped(self, name: str, *rest: object) -> int:
        raise self.refused(f"the entity {str(name)[:40]}, which is defined elsewhere", "write its text instead")
