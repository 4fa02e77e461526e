"""Texts in zip archives and folders: which file is meant, and its bytes, but no more of them than packed text can have.

A text in an archive is named as if the archive were a folder (`fra-eng.zip/fra.txt`), in errors as in code.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO

from regard.errors import Advice, Option, RegardError, UsageError

ZIP = ".zip"
PACKED = (ZIP, ".gz", ".bz2", ".xz", ".7z", ".tar", ".tgz", ".rar", ".zst")
RATIO = 250  # times as many bytes as are packed: text has 3 to 20, a bomb 1,000
FREE = 1 << 26  # bytes that may be unpacked whatever the ratio
BESIDE = ("readme", "license", "licence", "copying", "about", "changelog", "info")  # what else lies beside a text


class Bounded(io.RawIOBase):
    """The unpacked bytes of a file; too many for what was packed are refused as they come."""

    def __init__(self, file: IO[bytes], packed: int, name: str) -> None:
        self.file, self.most, self.name, self.count = file, most_bytes(packed), name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.file.read(len(buffer))
        self.count += len(data)
        if self.count > self.most:
            raise _bomb(self.name, self.most)
        buffer[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        return self.file.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.count = self.file.seek(offset, whence)
        return self.count

    def close(self) -> None:
        self.file.close()
        super().close()


def most_bytes(packed: int) -> int:
    """How many bytes so many packed ones may become."""
    return max(FREE, RATIO * packed)


def bounded(file: IO[bytes], packed: int, name: str) -> IO[bytes]:
    """The unpacked bytes with their lines, and with an end to them."""
    return io.BufferedReader(Bounded(file, packed, name), 1 << 16)  # type: ignore[type-var]


def _bomb(name: str, most: int) -> RegardError:
    return RegardError(
        f"{name} unpacks to more than {most / 1e6:,.0f} MB, over {RATIO} times what is packed; no text does",
        "unpack it yourself if you trust it, and name what was in it",
    )


# --- Members of zip archives


def split_member(path: Path) -> tuple[Path, str] | None:
    """The archive and the name in it, of a text in an archive."""
    if ZIP not in str(path).lower():
        return None
    archive = next((each for each in path.parents if each.suffix.lower() == ZIP and each.is_file()), None)
    return None if archive is None else (archive, path.relative_to(archive).as_posix())


def open_member(archive: Path, name: str) -> IO[bytes]:
    """The bytes of a text in a zip archive."""
    with _opened(archive) as file:
        info = next((each for each in file.infolist() if _plain_name(each) == name), None)
        if info is None:
            raise RegardError(f"there is no {name} in {archive}")
        if info.file_size > most_bytes(info.compress_size):
            raise _bomb(f"{archive}/{name}", most_bytes(info.compress_size))
        try:
            return bounded(file.open(info), info.compress_size, f"{archive}/{name}")
        except (RuntimeError, NotImplementedError) as error:  # of a password, of a rare way to pack
            raise RegardError(f"cannot unpack {name} of {archive}: {error}", "unpack it yourself first") from error


def member_size(archive: Path, name: str) -> int:
    """Bytes of a text in a zip archive when it is unpacked."""
    with _opened(archive) as file:
        return next((each.file_size for each in file.infolist() if _plain_name(each) == name), 0)


def member_names(archive: Path) -> list[str]:
    """The files in a zip archive, but for those with a path that leads out of it."""
    with _opened(archive) as file:
        names = [_plain_name(each) for each in file.infolist() if not each.is_dir()]
    return sorted(name for name in names if not name.startswith("/") and ".." not in PurePosixPath(name).parts)


def _plain_name(info: zipfile.ZipInfo) -> str:
    return PurePosixPath(info.filename).as_posix()


def _opened(archive: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(archive)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise RegardError(f"{archive} is not a whole zip archive ({error})", "fetch it again") from error
    except OSError as error:
        raise RegardError(f"cannot read {archive}: {error.strerror or error}") from error


# --- Which files are meant


def pair_files(path: Path, languages: tuple[str, str] | None, forms: Sequence[str]) -> tuple[Path, ...]:
    """The file of pairs, or the two parallel files, in a folder or a zip archive; any other path is meant itself.

    Parallel files are called alike but for the language at the end, as Moses and OPUS name them: `corpus.en-de.en`,
    `corpus.en-de.de`. A single one has a suffix of `forms`, or is the only text of an archive.
    """
    is_folder = path.is_dir()
    if path.suffix.lower() in forms if is_folder else path.suffix.lower() != ZIP:
        return (path,)
    names = [each.name for each in path.iterdir() if each.is_file()] if is_folder else member_names(path)
    texts = sorted(name for name in names if not _is_beside(name))
    if not texts:
        raise RegardError(f"there is no text in {path}")
    both = _parallel(texts, languages) if languages else []
    if len(both) > 1:
        named = ", ".join(f"{first} and {second}" for first, second in both[:4])
        raise UsageError(f"{path} has several pairs of files: {named}", "name two of them")
    if both:
        return path / both[0][0], path / both[0][1]
    single = [name for name in texts if _form(name) in forms] or ([] if is_folder else texts)
    if len(single) != 1:
        raise UsageError(f"which files of {path} are the pairs? It has {_some(texts)}", _how(texts, languages))
    if not is_folder and _form(single[0]) in PACKED:
        raise RegardError(f"{path}/{single[0]} is an archive inside an archive", "unpack the outer one first")
    return (path / single[0],)


def _is_beside(name: str) -> bool:
    """Whether a file is hidden, or tells about the others."""
    parts = PurePosixPath(name).parts
    if any(part.startswith((".", "__")) for part in parts):
        return True
    words = re.split(r"[\W_]+", parts[-1].casefold().lstrip("_"))
    return words[0] in BESIDE


def _form(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _parallel(names: Iterable[str], languages: tuple[str, str]) -> list[tuple[str, str]]:
    """The pairs of names that differ only in the language at their end; the exact code is taken before one with a region."""
    sides: dict[str, dict[str, str]] = {}  # beginning -> language -> name
    for name in names:
        begin, language = _ending(name)
        sides.setdefault(begin, {})[language] = name
    both = []
    for found in sides.values():
        first, second = (nearest_language(found, wanted) for wanted in languages)
        if first is not None and second is not None and first != second:
            both.append((found[first], found[second]))
    return both


def _ending(name: str) -> tuple[str, str]:
    """The beginning of a name, and its end where parallel files have their language."""
    name = name.removesuffix(".gz").removesuffix(".txt")
    begin, _, language = name.rpartition("." if "." in PurePosixPath(name).name else "/")
    return begin, language


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more


def _how(names: Sequence[str], languages: tuple[str, str] | None) -> str:
    if languages:
        return f"none end in {languages[0]} and {languages[1]}; name the file, or the two parallel files"
    return Advice("name the file, or say ", Option("languages", "en,de"), " where two end in their languages")


# --- Languages


@lru_cache(maxsize=1000)
def plain_tag(tag: str) -> str:
    return tag.strip().replace("_", "-").casefold()


def nearest_language(tags: Iterable[str], wanted: str) -> str | None:
    """The tag that is a language: the same, else the first with more to it (RFC 4647, 3.3.1): `en` is also `en-GB`, `EN_us`."""
    code, found = plain_tag(wanted), None
    for tag in tags:
        plain = plain_tag(tag)
        if plain == code:
            return tag
        if found is None and plain.startswith(code + "-"):
            found = tag
    return found
