"""A checkup of this machine and installation, with advice on how to make them better."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from regard import __version__
from regard.native.compiled import status

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"  # beside the package in a checkout
LITTLE_MEMORY, LITTLE_DISK = 2 * 2**30, 2**30
CJK = "年월の"


@dataclass(frozen=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True)
class Checkup:
    """Findings about the machine, and advice that a person can act on."""

    facts: tuple[Fact, ...]
    versions: dict[str, str]  # of the dependencies
    warnings: tuple[str, ...]

    def data(self) -> dict[str, object]:
        return asdict(self)


def checkup(seconds: float = 1.0) -> Checkup:
    """Look at everything; a matrix product is measured for that many seconds."""
    load = load_average()  # before we add to it ourselves
    versions = installed_versions()
    facts = [*_software(), *_machine(load), *_torch(seconds), *_data()]
    warnings = [*_busy(load), *_scarce(), *_mismatched(versions), *_unused_gpu(), *_missing_fonts(), *_wrong_data()]
    return Checkup(tuple(facts), versions, tuple(warnings))


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_average() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def memory() -> tuple[int, int]:
    """Bytes of memory in all and free to use; 0 where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        return total, 0
    found = {name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"(\w+):\s+(\d+) kB", text)}
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)


def installed_versions() -> dict[str, str]:
    """The version of each package that Regard needs ("missing" if it is not there)."""
    needs = metadata.requires("regard") or []
    names = [re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need]
    return {name: _version(name) for name in names}


def pinned_versions() -> dict[str, str]:
    """The versions that recorded results were measured with; empty outside a checkout."""
    if not CONSTRAINTS.exists():
        return {}
    return dict(re.findall(r"^([\w.-]+)==(\S+)", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE))


def matrix_speed(seconds: float, size: int = 1024) -> float:
    """Billions of multiplications and additions a second in float32 matrix products."""
    import torch

    a, b = torch.rand(size, size), torch.rand(size, size)
    a @ b  # the first one also wakes the threads
    started, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < seconds or not count:
        a @ b
        count += 1
    return 2 * size**3 * count / max(spent, 1e-9) / 1e9


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _software() -> list[Fact]:
    return [
        Fact("Regard", __version__),
        Fact("Python", f"{platform.python_version()} on {platform.system()} ({platform.machine()})"),
    ]


def _machine(load: float) -> list[Fact]:
    total, free = memory()
    disk = shutil.disk_usage(Path.cwd())
    return [
        Fact("cores", f"{cores()} (load average {load:.1f})"),
        Fact("memory", f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} free" if total else "unknown"),
        Fact("disk here", f"{disk.free / 2**30:.1f} of {disk.total / 2**30:.1f} GiB free"),
    ]


def _torch(seconds: float) -> list[Fact]:
    import torch

    from regard.training.precision import has_fast_bf16

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return [
        Fact("torch", f"{torch.__version__}, {torch.get_num_threads()} threads"),
        Fact("CPU capability", torch.backends.cpu.get_cpu_capability()),
        Fact("GPU", gpu()),
        Fact("fast bf16", f"{'yes' if has_fast_bf16(device) else 'no'} (on {device.type})"),
        Fact("matrix products", f"{matrix_speed(seconds):,.0f} GFLOP/s in float32 on the CPU"),
        Fact("decoding", status()),
    ]


def gpu() -> str:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return f"cuda: {', '.join(names)}"
    return "mps" if torch.backends.mps.is_available() else "none"


def _data() -> list[Fact]:
    fonts = ", ".join(cjk_fonts()) or "none"
    return [Fact("REGARD_DATA", os.environ.get("REGARD_DATA") or "not set"), Fact("fonts for CJK", fonts)]


def cjk_fonts() -> list[str]:
    """Installed fonts that draw Chinese, Japanese and Korean."""
    from regard.look.figures.fonts import BASE, families_for

    return [family for family in families_for([CJK]) if family != BASE]


def _busy(load: float) -> list[str]:
    import torch

    threads = torch.get_num_threads()
    if threads == 1 and load > cores():
        return [
            f"other programs are busy (load average {load:.1f} on {cores()} cores): everything is slower than it could be"
        ]
    if threads == 1 or load + threads <= cores() + 0.5:
        return []
    fewer = max(1, min(threads - 1, round(cores() - load)))
    return [
        f"other programs are busy (load average {load:.1f} on {cores()} cores): training with {threads} threads may be "
        f"several times slower; close them, or try OMP_NUM_THREADS={fewer}"
    ]


def _scarce() -> list[str]:
    free, disk = memory()[1], shutil.disk_usage(Path.cwd()).free
    warnings = []
    if 0 < free < LITTLE_MEMORY:
        warnings.append(f"only {free / 2**30:.1f} GiB of memory is free: close programs, or lower train.batch_tokens")
    if disk < LITTLE_DISK:
        warnings.append(f"only {disk / 2**30:.1f} GiB of disk is free here: a run may not be able to save")
    return warnings


def _mismatched(versions: dict[str, str]) -> list[str]:
    missing = [name for name, version in versions.items() if version == "missing"]
    pinned = pinned_versions()
    other = {name: version for name, version in versions.items() if name in pinned and version != "missing"}
    differ = [f"{name} {has} (not {pinned[name]})" for name, has in other.items() if has.split("+")[0] != pinned[name]]
    warnings = [f"not installed: {', '.join(missing)}; pip install regard again"] if missing else []
    if differ:
        warnings.append(
            f"other versions than recorded results were measured with: {', '.join(differ)}; numbers may differ "
            "(pip install -c constraints.txt regard)"
        )
    return warnings


def _unused_gpu() -> list[str]:
    import torch

    if not Path("/proc/driver/nvidia/version").exists() or torch.cuda.is_available():
        return []
    return ["there is an NVIDIA GPU that this torch cannot use; install a CUDA build of torch (pytorch.org says how)"]


def _missing_fonts() -> list[str]:
    if cjk_fonts():
        return []
    return ["no font for Chinese, Japanese or Korean: figures show U+5E74 for 年; install one, such as fonts-noto-cjk"]


def _wrong_data() -> list[str]:
    folder = os.environ.get("REGARD_DATA")
    if not folder or Path(folder).is_dir():
        return []
    return [f"REGARD_DATA names {folder}, which is not a folder"]
