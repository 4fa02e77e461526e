"""Compile the kernels with the system's compiler when they are first needed, keep them in the cache, and load them.

What is compiled is for this processor alone. It lies in `$REGARD_CACHE/native`, a folder that only its owner may write to,
under a name that is a digest of the sources, the compiler and what the processor can do. Whoever has no compiler, or sets
`REGARD_NATIVE=0`, goes on in torch: `status` says why.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import threading
from contextlib import suppress
from ctypes import c_int64, c_void_p
from pathlib import Path
from typing import Any, Literal

from regard.errors import RegardError
from regard.files import cache_of

Real = Literal["float", "double"]

SWITCH = "REGARD_NATIVE"  # an environment variable: 0 turns the kernels off
COMPILERS = ("cc", "gcc", "clang")
SOURCES = ("numbers.h", "products.h", "blocks.h", "steps.c", "choice.c")
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
X86 = platform.machine().lower() in ("x86_64", "amd64", "i686")
TARGETS = (
    (("-march=native",),) if X86 else (("-mcpu=native",), ())
)  # not for any x86: half as fast as torch without AVX
PATIENCE = 120  # seconds for one compilation
OTHERS = stat.S_IWGRP | stat.S_IWOTH

ARGUMENTS: dict[str, tuple[Any, ...]] = {  # of each function, as the sources have them
    "regard_panel": (),
    "regard_multiply": (c_void_p, c_void_p, c_void_p, c_int64),
    "regard_step_scratch": (c_void_p, c_void_p),
    "regard_step": (c_void_p, c_void_p),
    "regard_read_scratch": (c_void_p, c_void_p),
    "regard_read": (c_void_p, c_void_p),
    "regard_remember_scratch": (c_void_p, c_void_p),
    "regard_remember": (c_void_p, c_void_p, c_void_p, c_void_p),
    "regard_output_scratch": (c_int64,),
    "regard_output": (c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
    "regard_digest": (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p),
    "regard_greatest": (c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    "regard_best": (c_void_p, c_void_p, c_void_p, *(c_int64,) * 4, c_void_p, c_void_p),
}
COUNTS = (
    "regard_panel",
    "regard_greatest",
    *(name for name in ARGUMENTS if name.endswith("_scratch")),
)  # give a number

Kernels = ctypes.CDLL

_lock = threading.Lock()
_found: dict[Real, Kernels | str] = {}  # the kernels, or why there are none


def kernels(real: Real) -> Kernels | None:
    """The kernels for numbers of this kind; None where they are turned off, or cannot be made."""
    if not is_wanted():
        return None
    found = _found.get(real)
    if found is None:
        with _lock:
            found = _found.get(real)
            if found is None:
                found = _found[real] = _loaded(real)
    return None if isinstance(found, str) else found


def is_wanted() -> bool:
    return os.environ.get(SWITCH, "1") != "0"


def status() -> str:
    """Whether the kernels are native here, in words."""
    if not is_wanted():
        return f"off ({SWITCH}=0): decoding goes through torch"
    if kernels("float") is not None:
        return "native kernels, compiled here"
    return f"none ({_found['float']}): decoding goes through torch"


def compiler() -> str | None:
    """The system's C compiler."""
    return next((path for name in COMPILERS if (path := shutil.which(name)) is not None), None)


def _loaded(real: Real) -> Kernels | str:
    """The kernels, from the cache or compiled now; or why not."""
    try:
        program = compiler()
        if program is None:
            return "there is no C compiler"
        folder = _private(cache_of("native"))
        path = folder / f"{_digest(program)}-{real}.so"
        if path.exists():
            with suppress(OSError):  # damaged: made anew
                return _opened(path)
        _compile(program, real, path)
        return _opened(path)
    except subprocess.TimeoutExpired:
        return f"the compiler took more than {PATIENCE} seconds"
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {error.returncode}"]
        return f"the compiler failed: {lines[0]}"
    except (OSError, RegardError, AttributeError) as error:
        return str(error)


def _private(folder: Path) -> Path:
    """A folder to load programs from: of this user, and writable by nobody else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & OTHERS):
        raise RegardError(
            f"{folder} can be written by others", "chmod 700 it, or set REGARD_CACHE to a folder of yours"
        )
    return folder


def _digest(program: str) -> str:
    """What the compiled file depends on: the sources, how they are compiled and by what, and for which processor."""
    about = os.stat(program)  # links followed
    who = f"{os.path.realpath(program)} {about.st_size} {about.st_mtime_ns} {FLAGS} {TARGETS} {_processor()}"
    digest = hashlib.sha256(who.encode())
    for name in SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:32]


def _processor() -> str:
    """What the processor can do, as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return " ".join(sorted({line for line in text.splitlines() if line.startswith(told)}))


def _compile(program: str, real: Real, path: Path) -> None:
    """Compile beside the place and move there: a file is whole, or it is not there, whoever else compiles it now."""
    here = Path(__file__).parent
    files = [str(here / name) for name in SOURCES if name.endswith(".c")]
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    os.close(handle)
    try:
        for target in TARGETS:
            words = [program, *FLAGS, *target, f"-DREAL={real}", *files, "-o", made, "-lm"]
            done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
            if done.returncode == 0:
                break
        done.check_returncode()
        os.chmod(made, 0o500)
        os.replace(made, path)
    finally:
        Path(made).unlink(missing_ok=True)


def _opened(path: Path) -> Kernels:
    library = Kernels(str(path))
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int64 if name in COUNTS else None
    return library
