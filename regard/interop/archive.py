"""A model in a ZIP file, from whoever sends one: unfolded into a folder of its own, read there, and kept only as a bundle.

    import_archive("mine.zip", "models/mine")

Nothing of the archive itself stays: what is written into the new folder are the files that a bundle is made of. Names that
lead elsewhere, links, secrets and bombs are refused before anything is unfolded, and nothing unpickles.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from regard.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from regard.errors import RegardError
from regard.files import new_folder, read_json
from regard.interop.folder import import_folder, refuse_to_replace
from regard.interop.llama2c import import_llama2c
from regard.interop.weights import PICKLES

MOST_BYTES = 4 * 2**30  # of all files, unfolded
MOST_FILES = 1_000
DIRECTORY_BYTES = 2**20  # of the list of files at the end of an archive, which is read as a whole
CHUNK = 2**20
END, END_64 = b"PK\x05\x06", b"PK\x06\x07"  # the record at the end, and what stands before it in archives over 4 GB
END_RECORD = struct.Struct("<4s4H2LH")  # signature, disk, disk of the list, files here, files, bytes of the list, ...
SYSTEM = ("__MACOSX", ".DS_Store")  # what a Mac adds
BESIDE = ("metrics.json", "README.md")  # files of a bundle that no SHA-256 is kept of
TOKENS = "tok"  # how the name of a tokenizer of llama2.c begins


def import_archive(
    archive: str | Path,
    out: str | Path,
    *,
    most: int = MOST_BYTES,
    report: Callable[[str], None] = lambda words: None,
    check: Callable[[], None] = lambda: None,
) -> Bundle:
    """Make a bundle in `out` of the model in a ZIP file; `check` is called before it is written, and may raise.

    A bundle of Regard stays as it is, file by file; the folder of another library is read as `import_folder` reads it.
    """
    archive, out = Path(archive), Path(out)
    refuse_to_replace(out)
    with unfolded(archive, most) as folder:
        place = _model_in(folder)
        if _is_bundle(place):
            bundle = load_bundle(place)  # which checks every file
            check()
            _copy(place, out, bundle.config)
        else:
            files = _weights_of_llama2c(place)
            bundle = import_llama2c(files[0]) if files else import_folder(place, report)
            check()
            save_bundle(out, bundle)
    return bundle


# --- Unfolding


@contextmanager
def unfolded(archive: Path, most: int = MOST_BYTES) -> Iterator[Path]:
    """The files of an archive in a folder that is removed afterwards; errors name the archive instead of that folder."""
    with tempfile.TemporaryDirectory(prefix="regard-import-") as place:
        folder = Path(place)
        try:
            _check_end(archive)
            with zipfile.ZipFile(archive) as opened:
                _unfold(opened, folder, most)
        except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, UnicodeError) as error:
            raise RegardError(f"{archive.name} is not a whole ZIP file ({error})", "make it again") from error
        except OSError as error:
            raise RegardError(f"{archive.name} cannot be unfolded: {error.strerror or error}") from error
        try:
            yield folder
        except RegardError as error:
            told = (text.replace(f"{folder}/", "").replace(place, archive.name) for text in (error.wrong, error.hint))
            raise type(error)(*told) from error


def _check_end(archive: Path) -> None:
    """Refuse an archive whose list of files is long: it is read as a whole before any of it can be judged."""
    size = archive.stat().st_size
    with open(archive, "rb") as file:
        file.seek(max(0, size - END_RECORD.size - 2**16 - 20))
        tail = file.read()
    plain = tail[-END_RECORD.size :]
    place = len(tail) - len(plain) if plain.startswith(END) and plain.endswith(b"\0\0") else tail.rfind(END)
    if place < 0 or len(tail) - place < END_RECORD.size:
        raise RegardError(f"{archive.name} is not a ZIP file", "send the folder of a model as one")
    files, length = END_RECORD.unpack_from(tail, place)[4:6]
    if files > MOST_FILES or length > DIRECTORY_BYTES or tail[max(0, place - 20) :].startswith(END_64):
        raise RegardError(f"{archive.name} has too many files, or is larger than 4 GB", "send the files of one model")


def _unfold(opened: zipfile.ZipFile, folder: Path, most: int) -> None:
    """Write every file below `folder`, after all of them were judged by what the archive says of them."""
    files = [info for info in opened.infolist() if not info.is_dir() and not _is_system(info)]
    found = {_place(info): info for info in files}
    if len({str(path).casefold() for path in found}) < len(files):
        raise RegardError("two files of the archive have the same name", "make it again")
    if len(files) > MOST_FILES:
        raise RegardError(
            f"the archive has {len(files):,} files, more than {MOST_FILES:,}", "send the files of one model"
        )
    if sum(info.file_size for info in found.values()) > most:
        raise _too_large(most)
    written = 0
    for path, info in found.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with opened.open(info) as source, open(target, "xb") as file:
            while chunk := source.read(CHUNK):
                written += len(chunk)
                if written > most:
                    raise _too_large(most)
                file.write(chunk)


def _too_large(most: int) -> RegardError:
    return RegardError(f"unfolded, the archive is larger than {most:,} bytes", "send the files of one model")


def _is_system(info: zipfile.ZipInfo) -> bool:
    parts = info.filename.split("/")
    return parts[0] in SYSTEM or parts[-1] in SYSTEM


def _place(info: zipfile.ZipInfo) -> PurePosixPath:
    """Where a file goes, below the folder; anything but a plain file with a plain name is refused."""
    name, kind = info.orig_filename, stat.S_IFMT(info.external_attr >> 16)
    path = PurePosixPath(name)
    odd = (
        any(ord(letter) < 32 or letter in '\\:*?"<>|' for letter in name) or max(map(len, path.parts), default=0) > 200
    )
    if odd or not path.parts or path.is_absolute() or ".." in path.parts or len(path.parts) > 8:
        raise RegardError(f"the archive names a file outside of it, or none at all: {name[:100]!r}", "make it again")
    if kind not in (0, stat.S_IFREG):
        raise RegardError(f"{name[:100]} is a link, or no file at all", "put the file itself into the archive")
    if info.flag_bits & 1:
        raise RegardError(f"{name[:100]} is encrypted", "make the archive without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RegardError(
            f"{name[:100]} is packed in a way that is not read", "make the archive with deflate, or stored"
        )
    return path


# --- What is in it


def _model_in(folder: Path) -> Path:
    """The folder of the one model among the files: the highest that has a configuration, or weights of llama2.c."""
    marks = [path.parent for path in folder.rglob("config.json")] or [
        path.parent for path in folder.rglob("*.bin") if _weights_of_llama2c(path.parent)
    ]
    depth = min((len(place.parts) for place in marks), default=0)
    highest = sorted({place for place in marks if len(place.parts) == depth})
    best = [place for place in highest if place.name == "best"]  # of a whole run
    if len(best or highest) == 1:
        return (best or highest)[0]
    if highest:
        names = " and ".join(str(place.relative_to(folder)) for place in highest[:2])
        raise RegardError(f"there are several models in it, {names}", "send the folder of one")
    pickles = [path.name for path in sorted(folder.rglob("*")) if path.suffix in PICKLES]
    if pickles:
        raise RegardError(
            f"its weights are in {pickles[0]}, a pickle",
            "loading one can run any program, so it is refused. Save them as safetensors where you trust them",
        )
    raise RegardError("there is no model in it: it has no config.json", "send the folder of a model")


def _weights_of_llama2c(place: Path) -> list[Path]:
    """The files that can be weights of llama2.c, where nothing says that the folder is another library's."""
    if (place / "config.json").exists():
        return []
    return [path for path in sorted(place.glob("*.bin")) if not path.name.startswith(TOKENS) and not _is_pickle(path)]


def _is_pickle(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(2)
    return start == b"PK" or start[:1] == b"\x80"


def _is_bundle(place: Path) -> bool:
    if not (place / "config.json").exists():
        return False
    values = read_json(place / "config.json")
    return isinstance(values, dict) and isinstance(values.get("format"), int)


def _copy(place: Path, out: Path, config: BundleConfig) -> None:
    """Write a bundle's own files, whose names were checked, into a new folder."""
    with new_folder(out) as inside:
        for name in ("config.json", *config.files, *BESIDE):
            if (place / name).is_file():
                shutil.copyfile(place / name, inside / os.path.basename(name))
