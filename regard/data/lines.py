"""Lines of text from files that may be gzipped, truncated, or in the wrong encoding: each trouble says where it is."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from regard.data.archives import bounded, member_size, open_member, split_member
from regard.errors import RegardError

Bad = dict[int, RegardError]  # what is wrong with single lines or pairs, by their number, where others are read on


class EncodingError(RegardError):
    """A line is not encoded as it should be."""


LONGEST_LINE = 100_000  # characters; a longer one is not a sentence


def read_lines(path: Path, encoding: str = "utf-8", bad: Bad | None = None) -> list[str]:
    """The lines of a text file. Only a line feed ends a line, so that both files of a pair count alike.

    Where `bad` is given, a line that cannot be decoded is empty, and `bad` has its number, from 1.
    """
    return list(lines_of(path, encoding, bad))


def lines_of(path: Path, encoding: str = "utf-8", bad: Bad | None = None) -> Iterator[str]:
    """The lines of a text file one after the other, as `read_lines` has them."""
    is_empty = True
    with opened(path) as file:
        for line in decode_lines(file, str(path), encoding, bad):
            is_empty = False
            yield line
    if is_empty:
        raise RegardError(f"{path} is empty", "it should hold one sentence or pair a line")


def line_blocks(path: Path, skip: int, size: int) -> Iterator[list[bytes]]:
    """The lines of a file behind the first `skip`, so many at once, each still to be decoded by `decode_line`."""
    with opened(path) as file:
        lines = islice(file, skip, None)
        while found := list(islice(lines, size)):
            yield found


def read_text(path: Path, data: bytes, encoding: str = "utf-8") -> str:
    """The bytes of a whole text file as text: lines end with a line feed alone, and a byte order mark goes."""
    return "\n".join(decode_lines(io.BytesIO(data), str(path), encoding)) + ("\n" if data.endswith(b"\n") else "")


def decode_lines(file: Iterable[bytes], name: str, encoding: str = "utf-8", bad: Bad | None = None) -> Iterator[str]:
    """Lines without their line ends; a byte order mark at the start and a carriage return at the end go."""
    for number, raw in enumerate(file, start=1):
        try:
            line = decode_line(raw, number, name, encoding)
        except RegardError as error:
            if bad is None:
                raise
            bad[number], line = error, ""
        yield line


def decode_line(raw: bytes, number: int, name: str, encoding: str = "utf-8") -> str:
    """Line `number` of a file as text, or an error that says which byte is wrong."""
    try:
        line = raw.decode(encoding)
    except UnicodeDecodeError as error:
        likely = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin1"
        raise EncodingError(
            f"{name}, line {number}: byte {error.start + 1} ({raw[error.start]:#04x}) is not {encoding.upper()}",
            f"convert it first, for example with: iconv -f {likely} -t utf-8{_redirected(name)}",
        ) from error
    if number == 1:
        line = line.removeprefix("\ufeff")
    return line.removesuffix("\n").removesuffix("\r")


def _redirected(name: str) -> str:
    """A file and where its conversion goes: `iconv` writes to the terminal."""
    if name == "stdin":
        return ""
    path = Path(name)
    return f" {name} > {path.with_name(f'utf8-{path.name}')}"


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unzipped if it is gzipped or in an archive; what goes wrong while they are read becomes a sentence."""
    try:
        with open_binary(path) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        kind = "gzip file" if split_member(path) is None else "text of a zip archive"
        raise RegardError(f"{path} is not a whole {kind} ({error})", "fetch it again") from error
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error


def open_binary(path: Path) -> IO[bytes]:
    if (member := split_member(path)) is not None:
        return open_member(*member)
    if path.suffix != ".gz":
        return open(path, "rb")
    return bounded(gzip.open(path, "rb"), path.stat().st_size, str(path))  # type: ignore[arg-type]


def text_size(path: Path) -> int:
    """Bytes of a text when it is unpacked, about; 0 if that is not known beforehand."""
    member = split_member(path)
    if member is not None:
        return member_size(*member)
    if not path.is_file() or path.suffix.lower() == ".zip":
        return 0
    size = path.stat().st_size
    if path.suffix != ".gz" or size < 4:
        return size
    with open(path, "rb") as file:
        file.seek(-4, io.SEEK_END)
        return int.from_bytes(file.read(), "little")  # RFC 1952, ISIZE


def suffix_of(path: Path) -> str:
    """The suffix of a file's name in lower case, without a trailing .gz."""
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
