"""Energy of a computation, and what it costs: measured by the processor's own counter, or from its rated power.

RAPL ("running average power limit") counts the microjoules that each processor package has used; Linux shows it under
/sys/class/powercap, mostly to root alone. It counts the whole package, other programs included, and neither memory on
most machines nor fans nor the power supply. Where nobody may read it, energy is seconds times the rated power:

    joules = seconds · watts · threads / cores · overhead      kWh = joules / 3.6e6
    dollars = kWh · electricity + hours · machine              grams of CO2 = kWh · carbon

Prices are assumptions with a source each, and can be set. No torch here.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import Field

from regard.config import StrictConfig

POWERCAP = Path("/sys/class/powercap")
PACKAGE = re.compile(r"(intel|amd)-rapl:\d+")  # a processor package; "intel-rapl:0:1" is a part of one
JOULES_PER_KWH = 3.6e6


class Prices(StrictConfig):
    """What is paid for energy and for a machine, and what is known of its power."""

    electricity: float = Field(
        0.165, ge=0, description="Dollars a kWh; 0.165: mean of U.S. households in 2024 (EIA, Electric Power Monthly)."
    )
    carbon: float = Field(
        480.0,
        ge=0,
        description="Grams of CO2 a kWh; 480: the world's mean in 2023 (Ember, Global Electricity Review 2024).",
    )
    machine: float = Field(0.0, ge=0, description="Dollars an hour for the machine, rented; 0: it is one's own.")
    watts: float | None = Field(
        None, gt=0, description="Rated power of the whole processor in watts; not set: by the processor's name."
    )
    overhead: float = Field(
        1.0, ge=1, description="Energy in all for each that computes: cooling and supply (1.1 to 1.6 in data centres)."
    )


@dataclass(frozen=True)
class Rated:
    """The rated power (thermal design power) of a processor, as its manufacturer states it."""

    name: str  # how the processor calls itself: a part of its model name
    watts: float
    cores: int


RATED = (  # from the manufacturers' pages of specifications (ark.intel.com, amd.com)
    Rated("EPYC 7742", 225, 64),
    Rated("EPYC 7763", 280, 64),
    Rated("EPYC 9654", 360, 96),
    Rated("Platinum 8280", 205, 28),
    Rated("Platinum 8380", 270, 40),
    Rated("Gold 6248", 150, 20),
    Rated("i5-8250U", 15, 4),
    Rated("i7-8550U", 15, 4),
    Rated("i7-8700", 65, 6),
    Rated("i7-12700", 65, 12),
    Rated("i9-13900K", 125, 24),
    Rated("Ryzen 7 5800X", 105, 8),
    Rated("Ryzen 9 5950X", 105, 16),
    Rated("Ryzen 9 7950X", 170, 16),
)
PER_CORE = (
    5.0  # watts that are assumed where the processor is not known: server processors of the table have 3.5 to 7.5
)


@dataclass(frozen=True)
class Power:
    """Watts of the cores that compute, and how they are known."""

    watts: float
    how: str


def processor() -> str:
    """The processor's model name as the system tells it; empty where it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def rated_power(threads: int, prices: Prices | None = None, name: str | None = None, cores: int | None = None) -> Power:
    """The power of so many threads of a processor: their share of what was set, of its rated power, or an assumption."""
    prices, name = prices or Prices(), processor() if name is None else name
    cores = cores or os.cpu_count() or 1
    if prices.watts is not None:
        share = min(1.0, threads / cores)
        return Power(prices.watts * share, f"{prices.watts:g} W as set, {_share(threads, cores)}")
    known = next((each for each in RATED if re.search(rf"{re.escape(each.name)}\b", name)), None)
    if known is not None:
        share = min(1.0, threads / known.cores)
        how = f"rated {known.watts:g} W of {known.name} (its manufacturer), {_share(threads, known.cores)}"
        return Power(known.watts * share, how)
    what = f"the rated power of {name!r} is not known" if name else "the processor is not known"
    return Power(PER_CORE * threads, f"{what}: {PER_CORE:g} W a core assumed, {threads} in use")


def _share(threads: int, cores: int) -> str:
    return f"{min(threads, cores)} of {cores} cores in use"


@dataclass(frozen=True)
class Bill:
    """Energy, money and CO2 of a computation, and how the energy is known."""

    seconds: float
    joules: float
    how: str
    dollars: float
    grams: float  # of CO2
    prices: Prices

    @property
    def kilowatt_hours(self) -> float:
        return self.joules / JOULES_PER_KWH

    def data(self) -> dict[str, object]:
        """For JSON."""
        values = {name: value for name, value in asdict(self).items() if name != "prices"}
        return {**values, "kilowatt_hours": self.kilowatt_hours, "prices": self.prices.model_dump()}


def bill(seconds: float, threads: int, prices: Prices | None = None, measured: float | None = None) -> Bill:
    """What so many seconds of so many threads cost; `measured` are joules of the processor's own counter."""
    prices = prices or Prices()
    if measured is None:
        power = rated_power(threads, prices)
        joules, how = seconds * power.watts, power.how
    else:
        joules, how = measured, "measured by RAPL: the whole processor package, other programs included"
    joules *= prices.overhead
    energy = joules / JOULES_PER_KWH
    dollars = energy * prices.electricity + seconds / 3600 * prices.machine
    return Bill(seconds, joules, how, dollars, energy * prices.carbon, prices)


class EnergyMeter:
    """The joules of all processor packages since the last reading; None where they cannot be read."""

    def __init__(self, root: Path = POWERCAP) -> None:
        zones = sorted(root.iterdir()) if root.is_dir() else []
        self._zones = [zone for zone in zones if PACKAGE.fullmatch(zone.name)]
        self._last = self._read()

    def since_last(self) -> float | None:
        """Joules since the last call, or since the meter was made. A counter that began anew went through its range once."""
        now, before = self._read(), self._last
        self._last = now
        if now is None or before is None:
            return None
        spans = (
            end - start if end >= start else end - start + range_
            for (end, range_), (start, _) in zip(now, before, strict=True)
        )
        return sum(spans) / 1e6

    def _read(self) -> list[tuple[int, int]] | None:
        """Microjoules and the range of each counter."""
        try:
            found = [(_number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")) for zone in self._zones]
        except (OSError, ValueError):  # only root may read it, or it is gone
            return None
        return found or None


def _number(file: Path) -> int:
    return int(file.read_text())
