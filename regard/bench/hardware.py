"""Accelerators and the links between them, by what their makers state: the constants that `regard plan` computes with.

Operations are floating-point operations a second of dense matrix products (sparsity, which doubles the larger numbers of some
data sheets, is not used). bf16 is 0 where there is none: such a device learns in float32, as Regard has no float16. Bytes of
a link are a second and in one direction: data sheets often give the sum of both. What a program gets of either is less; how
much is an assumption of the plan (`Assumptions`), not of this table. No torch here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from regard.errors import UsageError, nearest

TERA, GIGA, GIB = 1e12, 1e9, 2**30


@dataclass(frozen=True)
class Gpu:
    """One accelerator; `inside` is the link by which those of one machine usually reach each other."""

    name: str
    title: str
    bf16: float  # operations a second; 0: it has none
    float32: float
    memory: float  # bytes
    inside: str
    source: str

    def rate(self, half: bool) -> float:
        """Operations a second at their best, in bf16 or in float32."""
        return self.bf16 if half else self.float32


@dataclass(frozen=True)
class Link:
    """What a message costs: `latency` seconds, and its bytes at `bytes` a second in one direction."""

    name: str
    title: str
    bytes: float
    latency: float
    source: str


NVIDIA = "NVIDIA's data sheet"
GPUS: Mapping[str, Gpu] = {
    each.name: each
    for each in (
        Gpu("v100", "V100 SXM2, 32 GB", 0, 15.7 * TERA, 32 * GIB, "nvlink-2",
            f"{NVIDIA} of the V100 (2020): 15.7 TFLOP/s in float32, 125 in float16, which Regard does not use"),
        Gpu("a100-40", "A100 SXM, 40 GB", 312 * TERA, 19.5 * TERA, 40 * GIB, "nvlink-3", f"{NVIDIA} of the A100 (2020)"),
        Gpu("a100", "A100 SXM, 80 GB", 312 * TERA, 19.5 * TERA, 80 * GIB, "nvlink-3", f"{NVIDIA} of the A100 80GB (2021)"),
        Gpu("h100", "H100 SXM, 80 GB", 989 * TERA, 67 * TERA, 80 * GIB, "nvlink-4",
            f"{NVIDIA} of the H100 (2023): 1,979 TFLOP/s with sparsity, half of it without"),
        Gpu("l4", "L4, 24 GB", 121 * TERA, 30.3 * TERA, 24 * GIB, "pcie-4",
            f"{NVIDIA} of the L4 (2023): 242 TFLOP/s with sparsity, half of it without"),
        Gpu("t4", "T4, 16 GB", 0, 8.1 * TERA, 16 * GIB, "pcie-3",
            f"{NVIDIA} of the T4 (2019): 8.1 TFLOP/s in float32, 65 in float16, which Regard does not use"),
        Gpu("3090", "GeForce RTX 3090, 24 GB", 71 * TERA, 35.6 * TERA, 24 * GIB, "pcie-4",
            "NVIDIA's white paper of the GA102 architecture (2020): bf16 products summed in float32"),
        Gpu("4090", "GeForce RTX 4090, 24 GB", 165.2 * TERA, 82.6 * TERA, 24 * GIB, "pcie-4",
            "NVIDIA's white paper of the Ada architecture (2022): bf16 products summed in float32"),
    )
}  # fmt: skip

SMALL = "latency: an assumption of this project, not of a data sheet"
LINKS: Mapping[str, Link] = {
    each.name: each
    for each in (
        Link("nvlink-2", "NVLink of the V100", 150 * GIGA, 5e-6, f"{NVIDIA}: 300 GB/s in both directions; {SMALL}"),
        Link("nvlink-3", "NVLink of the A100", 300 * GIGA, 5e-6, f"{NVIDIA}: 600 GB/s in both directions; {SMALL}"),
        Link("nvlink-4", "NVLink of the H100", 450 * GIGA, 5e-6, f"{NVIDIA}: 900 GB/s in both directions; {SMALL}"),
        Link("pcie-3", "PCI Express 3.0, 16 lanes", 15.75 * GIGA, 10e-6, f"PCI-SIG: 8 GT/s a lane, 128b/130b; {SMALL}"),
        Link("pcie-4", "PCI Express 4.0, 16 lanes", 31.5 * GIGA, 10e-6, f"PCI-SIG: 16 GT/s a lane, 128b/130b; {SMALL}"),
        Link("infiniband-hdr", "InfiniBand HDR, an adapter", 25 * GIGA, 5e-6, f"200 Gbit/s: NVIDIA ConnectX-6; {SMALL}"),
        Link("infiniband-ndr", "InfiniBand NDR, an adapter", 50 * GIGA, 5e-6, f"400 Gbit/s: NVIDIA ConnectX-7; {SMALL}"),
        Link("ethernet-100", "Ethernet, 100 Gbit/s", 12.5 * GIGA, 30e-6, f"by its name; {SMALL}"),
        Link("ethernet-25", "Ethernet, 25 Gbit/s", 3.125 * GIGA, 30e-6, f"by its name; {SMALL}"),
        Link("ethernet-10", "Ethernet, 10 Gbit/s", 1.25 * GIGA, 30e-6, f"by its name; {SMALL}"),
        Link("loopback", "processes of one machine, by gloo", 0.42 * GIGA, 1900e-6,
             "two processes on two busy cores: docs/results/plan.json; regard doctor --world measures yours"),
        Link("ethernet-1", "Ethernet, 1 Gbit/s", 0.125 * GIGA, 50e-6, f"by its name; {SMALL}"),
    )
}  # fmt: skip

Row = TypeVar("Row")


def named(name: str, table: Mapping[str, Row], what: str) -> Row:
    """The row of that name."""
    if name not in table:
        raise UsageError(f"no {what} {name}", f"{nearest(name, table)}; there is {', '.join(table)}")
    return table[name]


# --- What passes between ranks, in seconds


def all_reduce(size: float, ranks: int, link: Link, trees: bool = False) -> float:
    """The sum of `size` bytes in every rank: each sends (and gets) 2 (n - 1)/n of it.

    ring    in 2 (n - 1) messages (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms), as gloo does
    trees   in 2 log2 n one after another, two trees at once (Sanders et al. 2009, Two-tree algorithms), as NCCL does
            where there are many ranks
    """
    messages = min(2 * (ranks - 1), 2 * math.ceil(math.log2(ranks))) if trees else 2 * (ranks - 1)
    return messages * link.latency + 2 * (ranks - 1) / ranks * size / link.bytes


def gather(size: float, ranks: int, link: Link) -> float:
    """All `size` bytes in every rank of which each had one part, by a ring; as long as a reduce-scatter, its reverse."""
    return (ranks - 1) * (link.latency + size / ranks / link.bytes)
