"""Items that a verb is asked about, from arguments, files and standard input as it comes; a bad item costs itself and no other.

Lines are taken as they arrive: as soon as the input pauses, what there is of it is answered. The first answers come
first: the first item is asked alone, then four together, sixteen, and so on.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import IO, Annotated, Any, Generic, TypeVar

import typer

from regard.cli.output import Advance, progress, say
from regard.data.lines import decode_line, opened
from regard.errors import ModelError, RegardError, UsageError
from regard.files import writing
from regard.threads import only_waits

GROWTH = 4  # how many times more items are asked together each time, up to what is fast
PAUSE = 0.05  # seconds without a new line after which those that are there are answered
BLOCK = 1 << 16  # bytes read at once
AHEAD = 16  # blocks read while the model is at work
SUFFIXES = ["txt", "text", "md", "tsv", "csv", "json", "jsonl", "log", "src", "tgt", "tok", "bpe", "gz"]

AsText = Annotated[bool, typer.Option("--text", help="Each TEXT is a text, also where a file has its name.")]
OutFile = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write there instead of to standard output.")
]

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Item:
    """One thing that a model is asked, or what is wrong with it."""

    place: int  # from 0, in all that is asked
    where: str  # what an error calls it: "file.en, line 3"
    value: Any = None
    error: RegardError | None = None


@dataclass(frozen=True)
class Answered(Generic[Answer]):
    """An item and what the model makes of it: an answer or an error."""

    item: Item
    found: Answer | None
    error: RegardError | None = None


@dataclass(frozen=True)
class InputReader:
    """Items in chunks: `chunks(most)` gives at most so many together; `total` is 0 where nobody knows it yet."""

    chunks: Callable[[int], Iterator[list[Item]]]
    total: int = 0
    alone: bool = False  # one argument: what is wrong with it is what is wrong at all
    typed: bool = False  # by a person, who sees the answers come
    digest: Callable[[], str] | None = None  # of what can be read again from its beginning; None: it cannot


class Unanswered(RegardError):
    """Some items had no answer; all others had theirs."""


# --- Where items come from


def texts_or_lines(texts: Sequence[str] | None, *, as_text: bool = False, what: str = "a text") -> InputReader:
    """The arguments, each a text or a file of lines; without any, the lines of standard input."""
    if not texts:
        return lines_of_stdin(what)
    files = [] if as_text else [text for text in texts if _is_file(text)]
    for text in [] if as_text else texts:
        _check_path(text)
    if not files:
        if len(texts) > 1 and not any(" " in text for text in texts):
            say(f'{len(texts)} texts, one for each argument; quotes make them one: "{" ".join(texts)}"')
        return arguments(texts)
    if len(files) < len(texts):
        other = next(text for text in texts if text not in files)
        raise UsageError(f"{files[0]} is a file and {other[:40]!r} is a text; ask for one or the other, or add --text")
    for file in files:
        say(f"reading {file} line by line (--text takes its name for the text)")
    return _lines_of_files([Path(file) for file in files])


def arguments(
    values: Sequence[object],
    names: Sequence[str] | None = None,
    bad: Mapping[int, RegardError] = MappingProxyType({}),
) -> InputReader:
    """Items of what was typed; `bad` are errors that are known already, by the places of the items."""
    called = names or [f"text {number} ({str(value)[:30]!r})" for number, value in enumerate(values, start=1)]
    items = [
        Item(place, where, value, bad.get(place))
        for place, (where, value) in enumerate(zip(called, values, strict=True))
    ]
    digest = partial(_digest, [json.dumps(values).encode()])
    return InputReader(lambda most: _grown(iter(items), most), len(items), alone=len(items) == 1, digest=digest)


def pictures(files: Sequence[str] | None, verb: str) -> InputReader:
    """Files of pictures; without any, those that the lines of standard input name."""
    return files_named(files, verb, "sees pictures", "photo.jpg")


def sounds(files: Sequence[str] | None, verb: str) -> InputReader:
    """Files of sounds; without any, those that the lines of standard input name."""
    return files_named(files, verb, "hears sounds", "talk.wav")


def files_named(files: Sequence[str] | None, verb: str, does: str, example: str) -> InputReader:
    """Files that a person names; without any, those that the lines of standard input name."""
    if files:
        return arguments(files, files)
    if sys.stdin.isatty():
        raise UsageError(f"this model {does}; name their files, as in: regard {verb} {example}")
    lines = lines_of_stdin("")

    def named(most: int) -> Iterator[list[Item]]:
        for chunk in lines.chunks(most):
            yield [Item(each.place, each.value or each.where, each.value, each.error) for each in chunk]

    return InputReader(named, lines.total)


def lines_of_stdin(what: str) -> InputReader:
    """The lines of standard input: those of a file at once, those of a pipe or a person as they come."""
    file = sys.stdin.buffer
    if not _can_pause(file):
        return InputReader(lambda most: _grown(_items(file, "stdin"), most), _count(file))

    def chunks(most: int) -> Iterator[list[Item]]:
        if sys.stdin.isatty():
            say(f"type {what} and press Enter; Ctrl-D ends")
        yield from _arriving(file.fileno(), "stdin", most)

    return InputReader(chunks, typed=sys.stdin.isatty())


def _lines_of_files(files: Sequence[Path]) -> InputReader:
    total = 0
    for file in files:
        if file.is_file():
            with opened(file) as stream:
                _check_is_text(file, stream.read(8192))
                stream.seek(0)
                total += sum(1 for _ in stream)

    def items() -> Iterator[Item]:
        for file in files:
            with opened(file) as stream:
                yield from _items(stream, str(file))

    def chunks(most: int) -> Iterator[list[Item]]:
        if len(files) == 1 and not files[0].is_file():  # a named pipe
            with open(files[0], "rb") as stream:
                yield from _arriving(stream.fileno(), str(files[0]), most)
            return
        numbered = (Item(place, each.where, each.value, each.error) for place, each in enumerate(items()))
        yield from _grown(numbered, most)

    def blocks() -> Iterator[bytes]:
        for file in files:
            with opened(file) as stream:
                yield from iter(partial(stream.read, BLOCK), b"")

    again = all(file.is_file() for file in files)
    return InputReader(chunks, total, digest=(lambda: _digest(blocks())) if again else None)


def _digest(blocks: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for block in blocks:
        found.update(block)
    return found.hexdigest()


def _is_file(text: str) -> bool:
    try:
        return os.path.exists(text) and not os.path.isdir(text)
    except ValueError:  # a null character
        return False


def _check_path(text: str) -> None:
    """Refuse a name of no file: what has no space, and the suffix of a file of text or an existing folder before its name."""
    if _is_file(text) or not text or re.search(r"\s", text) or len(text) > 255:
        return
    suffix, folder = Path(text).suffix[1:], Path(text).parent
    named = bool(Path(text).stem) and (suffix in SUFFIXES or re.fullmatch("[a-z]{2}", suffix) is not None)
    if os.path.isdir(text):
        if os.sep in text:
            raise UsageError(f"{text} is a folder; name a file in it, or add --text if that is the text")
    elif named or (os.sep in text and folder.is_dir()):
        raise UsageError(f"there is no file {text}; check its name, or add --text if that is the text")


def _check_is_text(file: Path, start: bytes) -> None:
    if b"\0" in start:
        raise RegardError(
            f"{file} is not UTF-8 text (it holds null bytes); if it is UTF-16, convert it: iconv -f utf-16 -t utf-8 {file}"
        )


# --- Lines as they come


def _items(lines: Iterable[bytes], name: str, start: int = 0) -> Iterator[Item]:
    for place, raw in enumerate(lines, start=start):
        where = f"{name}, line {place + 1}"
        try:
            yield Item(place, where, decode_line(raw, place + 1, name))
        except RegardError as error:
            yield Item(place, where, error=RegardError(str(error).removeprefix(f"{where}: ")))


def _sizes(most: int) -> Iterator[int]:
    size = 1
    while True:
        yield size
        size = min(most, size * GROWTH)


def sizes_of(total: int, most: int) -> Iterator[int]:
    """How many items each chunk of so many has."""
    for size in _sizes(most):
        if total <= 0:
            return
        yield min(size, total)
        total -= size


def _grown(items: Iterator[Item], most: int) -> Iterator[list[Item]]:
    """Chunks of items that are all there: small ones first."""
    for size in _sizes(most):
        chunk = [item for _, item in zip(range(size), items, strict=False)]
        if not chunk:
            return
        yield chunk


def _arriving(descriptor: int, name: str, most: int) -> Iterator[list[Item]]:
    """Chunks of the lines of a pipe: what is there when it pauses, and at most so many.

    A thread reads, so that this works where pipes cannot be waited for with a timeout, as on Windows. It reads from the
    descriptor: at the end of the program nobody holds the lock of a buffer.
    """
    blocks: queue.Queue[bytes | OSError] = queue.Queue(AHEAD)

    def read() -> None:
        try:
            while block := os.read(descriptor, BLOCK):
                blocks.put(block)
            blocks.put(b"")
        except OSError as error:
            blocks.put(error)

    reader = threading.Thread(target=read, daemon=True)
    only_waits(reader)
    reader.start()
    ready: list[bytes] = []
    parts: list[bytes] = []  # of a line that has not ended yet; joined once, however many there are
    done, sizes, ended = 0, _sizes(most), False
    while not ended or ready:
        size = next(sizes)
        while len(ready) < size and not ended:
            try:
                block = blocks.get(timeout=PAUSE if ready else None)
            except queue.Empty:
                break
            if isinstance(block, OSError):
                raise RegardError(f"cannot read {name}: {block.strerror or block}") from block
            first, *others = block.split(b"\n")
            parts.append(first)
            if others:
                ready += [b"".join(parts), *others[:-1]]
                parts = [others[-1]]
            if not block:
                ended = True
                ready += [rest] if (rest := b"".join(parts)) else []
        chunk, ready = ready[:size], ready[size:]
        if chunk:
            yield list(_items(chunk, name, done))
        done += len(chunk)


def _can_pause(file: IO[bytes]) -> bool:
    """Whether a file may keep its reader waiting, as a pipe or a person does."""
    try:
        return not os.path.isfile(file.fileno()) and not file.seekable()
    except (OSError, ValueError, AttributeError):  # no file of the system, such as bytes in memory
        return False


def _count(file: IO[bytes]) -> int:
    """The lines that are still to be read of a file that can be read twice."""
    try:
        start = file.tell()
        lines = sum(1 for _ in file)
        file.seek(start)
    except (OSError, AttributeError):
        return 0
    return lines


# --- What is made of them


@contextmanager
def answers(
    inputs: InputReader, ask: Callable[[list[Item]], Iterable[Answer]], most: int, what: str
) -> Iterator[Iterator[Answered[Answer]]]:
    """Each item with its answer, in order, as soon as its chunk is done; `ask` answers items, at most so many together.

    A bad item is named on stderr and has no answer; at the end of the block there is an error that counts them.
    """
    count = {"done": 0, "bad": 0}
    yield _answered(inputs, ask, most, what, count)
    check_answered(count["bad"], count["done"])


def check_answered(bad: int, done: int) -> None:
    """Raise an error that counts the items without an answer, if there are any."""
    if bad:
        raise Unanswered(
            f"{bad:,} of {done:,} got no answer; they are named above, and their places in the output are empty"
        )


def _answered(
    inputs: InputReader, ask: Callable[[list[Item]], Iterable[Answer]], most: int, what: str, count: dict[str, int]
) -> Iterator[Answered[Answer]]:
    with _progress(what, inputs.typed or inputs.alone) as advance:
        for chunk in inputs.chunks(most):
            for each in ask_together(chunk, ask):
                count["done"] += 1
                if each.error is not None:
                    if inputs.alone:
                        raise each.error
                    say(named(each.item.where, str(each.error)))
                    count["bad"] += 1
                yield each
            sys.stdout.flush()
            advance(count["done"], inputs.total)


def named(where: str, problem: str) -> str:
    """Put the name of an item before what is wrong with it, unless an error about a file has said it."""
    return problem if problem.startswith(where) else f"{where}: {problem}"


def ask_together(items: list[Item], ask: Callable[[list[Item]], Iterable[Answer]]) -> list[Answered[Answer]]:
    """The answers to items that are asked together; where one of them is bad, to both halves by themselves."""
    good = [item for item in items if item.error is None]
    found = {each.item.place: each for each in _halved(good, ask)} if good else {}
    return [found.get(item.place, Answered(item, None, item.error)) for item in items]


def _halved(items: list[Item], ask: Callable[[list[Item]], Iterable[Answer]]) -> list[Answered[Answer]]:
    try:
        return [Answered(item, found) for item, found in zip(items, ask(items), strict=True)]
    except ModelError:
        raise
    except RegardError as error:
        if len(items) == 1:
            return [Answered(items[0], None, error)]
        half = len(items) // 2
        return _halved(items[:half], ask) + _halved(items[half:], ask)


@contextmanager
def _progress(what: str, silent: bool) -> Iterator[Advance]:
    """A progress line, except where results or a person are on the same terminal, or there is but one item."""
    if sys.stdout.isatty() or silent:
        yield lambda done, total: None
        return
    with progress(what) as advance:
        yield advance


@contextmanager
def output_to(path: Path | None) -> Iterator[None]:
    """Inside this block, what is printed goes into a file, if there is one: whole, or as FILE.part where it was cut short."""
    if path is None:
        yield
        return
    some_bad = None
    with writing(path, kept=lambda part: say(f"what was done until then is in {part}")) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
        try:
            with redirect_stdout(text):
                yield
        except Unanswered as error:  # all that there is to write has been written
            some_bad = error
        finally:
            text.detach()  # the file is closed by who opened it
    say(f"wrote {path}")
    if some_bad is not None:
        raise some_bad
