"""A training on many accelerators, on paper: memory of each rank, what passes between them, time, efficiency and money.

A step of T tokens (of one text that goes in, and of one that comes out) costs

    compute    3 · T · (operations forward of a token) / (ranks · rate · share of it that is reached)
    exchange   what the layout sends, on the slowest link of its way: messages · latency + bytes / bandwidth
    step       compute + what of the exchange does not hide behind it

and efficiency is compute / step: how much of what is paid for learns. The layouts are those of torch's own tools: every rank
has all (DDP), shards of all (Rajbhandari et al. 2020, ZeRO, stage 3; FSDP), shards of all but the weights (stage 2), and shards
within a machine with copies on all (HSDP). All that is assumed is in `Assumptions` and `hardware.py`. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from regard.bench.hardware import Gpu, Link, all_reduce, gather
from regard.bench.published import BACKWARD
from regard.look.growth import Growth

WEIGHT, HALF = 4, 2  # bytes of a number in float32, and in bf16
BUCKET = 25 * 2**20  # bytes of gradients that DDP sends together (its default)
CHUNK_LOGITS = 2**22  # logits that the output layer holds at once (`regard.models.loss`)
MANY = 128  # ranks from which on the messages of a ring are felt
FEW = 1024  # tokens of a rank under which the share of the peak is not reached
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Assumptions:
    """What no data sheet says. Each can be set."""

    share: float = 0.4  # of the peak operations that a large model reaches: 0.3 to 0.6 in published trainings
    link_share: float = 0.8  # of a link's bandwidth that a collective operation reaches
    overlap: float = 0.8  # of the computing behind which an exchange can hide
    reserved: float = 1.5e9  # bytes that the driver, libraries and buffers of the links take of each device
    trees: bool = True  # whether sums over many ranks go by trees, as NCCL's do; else by rings, as gloo's
    fragments: float = 1.1  # memory that the allocator takes for each byte in use


@dataclass(frozen=True)
class Workload:
    """A model and one update of it."""

    name: str
    parameters: int
    largest_unit: int  # parameters of the largest part that is gathered at once: a block, or the embeddings
    units: int
    matrices: int  # parameters of those that are multiplied with each token; tables that are only looked up are not
    pairs: int  # multiply-adds of attention for a token: scores, and sums of values
    kept: tuple[
        float, float
    ]  # bytes that the forward pass of a token leaves for the backward pass: in float32, in bf16
    state: float  # bytes of the optimiser's own numbers (and of an average of the weights) for each parameter
    tokens: int  # of an update, on its larger side
    accumulate: int = 1  # batches that make an update
    steps: int = 0  # updates of the whole run
    vocabulary: int = 0

    @property
    def operations(self) -> float:
        """Floating-point operations of an update."""
        return BACKWARD * 2.0 * (self.matrices + self.pairs) * self.tokens


@dataclass(frozen=True)
class Machine:
    """Devices, so many in each node, and the links among them."""

    gpu: Gpu
    inside: Link
    between: Link
    per_node: int = 8
    adapters: int = 1  # of the network, in each node
    assumed: Assumptions = field(default_factory=Assumptions)

    def link(self, ranks: int, sharing: int = 1) -> Link:
        """The link that rules a ring of so many neighbours, of which `sharing` rings leave each node at once."""
        worst = replace(self.inside, bytes=self.inside.bytes * self.assumed.link_share)
        if ranks > self.per_node:
            network = self.between.bytes * self.adapters * self.assumed.link_share
            worst = replace(self.between, bytes=min(worst.bytes, network / sharing))
        return worst


@dataclass(frozen=True)
class Layout:
    """How weights, gradients and the optimiser's state lie: each in `shards` parts, the same on ranks of other groups."""

    name: str
    title: str
    shards: int
    keeps_weights: bool  # whole on each rank from the first gathering to the update


def layouts(ranks: int, per_node: int) -> list[Layout]:
    """The layouts for so many ranks, the plainest first."""
    found = [Layout("replicated", "all on every rank (DDP)", 1, True)]
    if ranks > 1:
        found.append(Layout("shared-state", "gradients and optimiser sharded, weights kept (ZeRO 2)", ranks, True))
    if ranks > per_node and ranks % per_node == 0:
        found.append(Layout("node-sharded", f"sharded among {per_node} of a node, copies on others", per_node, False))
    if ranks > 1:
        found.append(Layout("sharded", "all sharded (FSDP, ZeRO 3)", ranks, False))
    return found


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank."""

    weights: float
    gradients: float
    optimiser: float
    activations: float
    gathered: float  # parts whose whole is there while they compute
    reserved: float

    @property
    def total(self) -> float:
        return sum(asdict(self).values())


@dataclass(frozen=True)
class Estimate:
    """One layout on so many ranks."""

    layout: Layout
    ranks: int
    accumulate: int  # batches that make an update, each as large as fits
    memory: Memory
    fits: bool
    sent: float  # bytes that each rank sends in a step
    compute: float  # seconds of a step
    exchange: float  # seconds of sending alone
    step: float

    @property
    def efficiency(self) -> float:
        return self.compute / self.step

    def data(self) -> dict[str, object]:
        """For JSON."""
        names = ("ranks", "accumulate", "fits", "sent", "compute", "exchange", "step")
        values = {name: getattr(self, name) for name in names}
        memory = {**asdict(self.memory), "total": self.memory.total}
        return {"layout": self.layout.name, **values, "efficiency": self.efficiency, "memory": memory}


# --- One layout


def estimate(work: Workload, machine: Machine, layout: Layout, ranks: int, half: bool) -> Estimate:
    """What a layout costs on so many ranks, in as few batches as memory allows; where none fits, in those asked for."""
    for batches in (work.accumulate * 2**power for power in range(11)):
        split = replace(work, accumulate=batches)
        memory = memory_of(split, machine, layout, ranks, half)
        if memory.total <= machine.gpu.memory or work.tokens / ranks < 2 * batches:
            break
    fits = memory.total <= machine.gpu.memory
    if not fits:
        split, memory = work, memory_of(work, machine, layout, ranks, half)
    compute = work.operations / ranks / (machine.gpu.rate(half) * machine.assumed.share)
    sent, exchange, pieces, behind = exchanged(split, machine, layout, ranks, half)
    hidden = machine.assumed.overlap * compute * behind
    shown = max(exchange - hidden, exchange / pieces)  # what comes last has nothing to hide behind
    return Estimate(layout, ranks, split.accumulate, memory, fits, sent, compute, exchange, compute + shown)


def exchanged(
    work: Workload, machine: Machine, layout: Layout, ranks: int, half: bool
) -> tuple[float, float, float, float]:
    """Bytes that a rank sends, seconds, in how many pieces, and behind which share of the computing they can hide."""
    gradients, weights = WEIGHT * float(work.parameters), (HALF if half else WEIGHT) * float(work.parameters)
    if layout.shards == 1:
        pieces = max(1.0, gradients / BUCKET)
        seconds = pieces * all_reduce(gradients / pieces, ranks, machine.link(ranks), machine.assumed.trees)
        return 2 * (ranks - 1) / ranks * gradients, seconds, pieces, (BACKWARD - 1) / BACKWARD
    shards, groups = layout.shards, ranks // layout.shards
    gathers = 1 if layout.keeps_weights else 2 * work.accumulate  # forward, and again backward
    link, part = machine.link(shards), (shards - 1) / shards
    units = work.units
    seconds = units * (gathers * gather(weights / units, shards, link) + gather(gradients / units, shards, link))
    sent = part * (gathers * weights + gradients)
    if groups > 1:  # one rank of each node with its like on all others, every rank of a node at once
        among = machine.link(ranks, sharing=machine.per_node)
        seconds += units * all_reduce(gradients / shards / units, groups, among, machine.assumed.trees)
        sent += 2 * (groups - 1) / groups * gradients / shards
    return sent, seconds, float(units * (gathers + 1)), 1.0


def memory_of(work: Workload, machine: Machine, layout: Layout, ranks: int, half: bool) -> Memory:
    """Bytes of a rank: float32 weights and gradients, the optimiser's state, what waits for the backward pass."""
    shards, count, number = layout.shards, float(work.parameters), HALF if half else WEIGHT
    kept = layout.keeps_weights and shards > 1
    gathered = count * number if kept else 2.0 * work.largest_unit * number if shards > 1 else 0.0
    casts = count * HALF if half and shards == 1 else 0.0  # autocast keeps a bf16 copy of each matrix through a step
    assumed = machine.assumed
    tokens = work.tokens / work.accumulate / ranks
    activations = tokens * work.kept[half] + min(CHUNK_LOGITS, tokens * work.vocabulary) * WEIGHT
    return Memory(
        count * WEIGHT / shards,
        count * WEIGHT / shards + (work.largest_unit * WEIGHT if shards > 1 else 0),
        count * work.state / shards,
        activations * assumed.fragments,
        gathered + casts,
        assumed.reserved,
    )


# --- A plan


@dataclass(frozen=True)
class Plan:
    """All layouts of a workload on so many ranks, the one to take, and how the others grow."""

    work: Workload
    machine: Machine
    ranks: int
    half: bool
    each: tuple[Estimate, ...]
    growth: tuple[Estimate, ...]  # every layout on 1 to 1,024 ranks
    price: float | None  # dollars an hour of one device
    weak: bool  # each rank has the same tokens however many there are

    @property
    def best(self) -> Estimate | None:
        """The fastest that fits; of those within a hundredth, the plainest. None: nothing fits."""
        fitting = [each for each in self.each if each.fits]
        least = min((each.step for each in fitting), default=0.0)
        return next((each for each in fitting if each.step <= 1.01 * least), None)

    def seconds(self, found: Estimate) -> float:
        """The whole run."""
        return found.step * self.work.steps

    def dollars(self, found: Estimate) -> float | None:
        return None if self.price is None else self.seconds(found) / 3600 * self.ranks * self.price

    def why(self) -> str:
        """One sentence on the choice."""
        best, room = self.best, self.machine.gpu.memory
        if best is None:
            least = min(self.each, key=lambda each: each.memory.total)
            return (
                f"nothing fits: {least.layout.name} needs the least, {gigabytes(least.memory.total)} of "
                f"{gigabytes(room)}, {gigabytes(least.memory.activations)} of it activations; "
                "take more ranks or larger ones, or model.reversible=true"
            )
        out = [each.layout.name for each in self.each if not each.fits]
        rivals = [each for each in self.each if each.fits and each is not best]
        beaten = f"{' and '.join(out)} would not fit into {gigabytes(room)}" if out else "all layouts fit"
        second = min(rivals, key=lambda each: each.step, default=None)
        if second is None:
            return f"{best.layout.name}: {beaten}"
        faster = second.step / best.step - 1
        told = f"as fast as {second.layout.name}" if faster < 0.01 else f"{faster:.0%} faster than {second.layout.name}"
        return f"{best.layout.name}: {beaten}, and it is {told}"

    def notes(self) -> list[str]:
        """What a reader should know before believing a number."""
        assumed, each = self.machine.assumed, self.work.tokens / self.ranks
        found = [
            f"assumed: {assumed.share:.0%} of the peak operations (--share), {assumed.link_share:.0%} of the links "
            f"(--link-share), an exchange hides behind {assumed.overlap:.0%} of the computing (--overlap)",
        ]
        if each < FEW and self.machine.gpu.name != "cpu":
            found.append(
                f"{each:,.0f} tokens on each rank are few: small products reach less than the share that is assumed; "
                "a larger train.batch_tokens, or --each N, uses the ranks better"
            )
        if self.ranks > MANY:
            found.append("shards are gathered by rings, whose many messages are felt among so many ranks")
        return found

    def picture(self) -> Growth:
        """Efficiency and time over 1 to 1,024 ranks."""
        title = f"{self.work.name} on {self.machine.gpu.title}: {'as many' if self.weak else 'the same'} tokens "
        title += "on each rank" if self.weak else "an update, shared by all ranks"
        shown = [each for each in self.growth if each.ranks in (1, 8, 64, 512)]
        rows = [
            (each.layout.name, str(each.ranks), gigabytes(each.memory.total) + ("" if each.fits else " (too much)"),
             time_in_words(each.step), f"{100 * each.efficiency:.0f}%")
            for each in shown
        ]  # fmt: skip
        return Growth(
            title, tuple(self.notes()), SIZES,
            {name: 100 * values for name, values in self._over_ranks(lambda each: each.efficiency).items()},
            self._over_ranks(lambda each: each.step),
            ("layout", "ranks", "memory", "step", "efficiency"), tuple(rows),
        )  # fmt: skip

    def _over_ranks(self, number: Callable[[Estimate], float]) -> dict[str, np.ndarray]:
        """A number of each layout over `SIZES`; NaN where there is no such layout, or it does not fit."""
        at = {(each.layout.name, each.ranks): number(each) for each in self.growth if each.fits}
        names = dict.fromkeys(each.layout.name for each in self.growth)
        return {name: np.array([at.get((name, ranks), np.nan) for ranks in SIZES]) for name in names}

    def data(self) -> dict[str, object]:
        """For JSON."""
        best = self.best
        return {
            "model": {**asdict(self.work), "operations": self.work.operations},
            "machine": asdict(self.machine),
            "ranks": self.ranks,
            "precision": "bf16" if self.half else "float32",
            "tokens_each": self.work.tokens / self.ranks,
            "layouts": [
                {**each.data(), "seconds": self.seconds(each), "dollars": self.dollars(each)} for each in self.each
            ],
            "best": best and best.layout.name,
            "why": self.why(),
            "growth": [each.data() for each in self.growth],
        }


def make_plan(
    work: Workload, machine: Machine, ranks: int, half: bool, *, price: float | None = None, each: int | None = None
) -> Plan:
    """Every layout on so many ranks. With `each`, so many tokens of an update are a rank's own, however many there are."""

    def of(count: int) -> list[Estimate]:
        sized = work if each is None else replace(work, tokens=each * count)
        return [estimate(sized, machine, layout, count, half) for layout in layouts(count, machine.per_node)]

    now = work if each is None else replace(work, tokens=each * ranks)
    growth = [found for count in SIZES for found in of(count)]
    return Plan(now, machine, ranks, half, tuple(of(ranks)), tuple(growth), price, each is not None)


def time_in_words(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.3g} ms"


def gigabytes(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"
