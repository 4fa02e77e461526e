"""Attention that was looked at and can be asked for map by map: what the recorder saw is kept, weights are made when asked.

A map goes out as one byte a weight, 0 for nothing and the last for its peak. What a query must not see is 255, and then the
peak is 254. One row can be had exactly.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch

from regard.attention import AttentionCall, Seen
from regard.errors import UsageError
from regard.files import JSON
from regard.look.layers import check_choice
from regard.look.map import AttentionMap
from regard.look.sentence import NAMES
from regard.studio.refusals import Refusal
from regard.tokens.tokenizer import as_read

KEPT_BYTES = 256 * 2**20
Place = int | None  # a layer or a head from 0; None: the mean of all


@dataclass(frozen=True, eq=False)
class Layers:
    """The attentions of one role on one text, as far as a list of them shows it."""

    source: tuple[str, ...]  # what is looked at
    target: tuple[str, ...]  # who looks
    heads: tuple[int, ...]  # of each layer
    paths: tuple[str, ...]

    def data(self) -> dict[str, JSON]:
        layers: list[JSON] = [
            {"path": path, "layer": number, "heads": heads}
            for number, (path, heads) in enumerate(zip(self.paths, self.heads, strict=True))
        ]
        return {"source": list(self.source), "target": list(self.target), "layers": layers}


class Look:
    """What is kept of one text. Subclasses say where the maps come from."""

    id: str
    roles: dict[str, Layers]
    size: int  # bytes that are kept

    def heads(self, role: str, layer: int, wanted: Iterable[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Where each of these heads looked, and where it could: (T, S) both."""
        raise NotImplementedError

    def map(self, role: str | None, layer: Place, head: Place) -> np.ndarray:
        """One head, the mean of a layer's heads, or of all layers: (T, S), NaN where a query must not look."""
        role = self.role_of(role)
        sizes = list(self.roles[role].heads)
        if layer is not None or head is not None:
            check_choice(layer, head, sizes)
        layers = range(len(sizes)) if layer is None else (layer,)
        wanted = {each: range(sizes[each]) if head is None else (head,) for each in layers}
        found = chain.from_iterable(self.heads(role, each, heads) for each, heads in wanted.items())
        total, allowed = next(found)
        for weights, visible in found:  # one head at a time: all of them may be many gigabytes
            total, allowed = total + weights, allowed | visible
        return np.where(allowed, total / sum(map(len, wanted.values())), np.nan)

    def figure(self, role: str | None, layer: Place, head: Place) -> AttentionMap:
        """The same map with its labels and a title, as it is saved."""
        role = self.role_of(role)
        layers, name = self.roles[role], NAMES[role]
        place = "mean of all heads" if layer is None else f"layer {layer}, {'mean' if head is None else f'head {head}'}"
        return AttentionMap(self.map(role, layer, head), layers.source, layers.target, f"{name}, {place}")

    def role_of(self, role: str | None) -> str:
        if role is None:
            return next(iter(self.roles))
        if role not in self.roles:
            raise UsageError(f"there is no {role} attention here", f"there is {', '.join(self.roles)}")
        return role


@dataclass(eq=False)
class SeenLook(Look):
    """A recorded pass over one text."""

    seen: Seen
    first: str  # the role that a person wants to see first
    notes: tuple[str, ...] = ()
    difference: float | None = None  # of outputs rebuilt from the weights; None: nobody has asked yet
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))

    def __post_init__(self) -> None:
        calls = [call for call in self.seen.calls if call.role in NAMES]
        known = dict.fromkeys(call.role for call in calls)
        order = sorted(known, key=lambda role: role != self.first)
        self.calls: dict[str, list[AttentionCall]] = {
            role: [call for call in calls if call.role == role] for role in order
        }
        self.roles = {role: self._layers(found) for role, found in self.calls.items()}
        self.size = sum(_bytes_of(call) for call in calls)
        self.cells = max((len(each.source) * len(each.target) for each in self.roles.values()), default=0)

    def _layers(self, calls: Sequence[AttentionCall]) -> Layers:
        rows, columns = (as_read(labels) for labels in self.seen.labelled(calls[0]))
        return Layers(columns, rows, tuple(call.heads for call in calls), tuple(call.path for call in calls))

    def heads(self, role: str, layer: int, wanted: Iterable[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        call = self.calls[role][layer]
        if callable(call.reported):
            call = replace(call, reported=call.weights())  # once for all heads
        for head in wanted:
            weights, allowed = (each[0].cpu() for each in call.of_head(head))
            yield weights.masked_fill(~allowed, 0.0).float().numpy(), allowed.numpy()

    def check(self) -> float:
        """The largest difference between outputs that are rebuilt from the weights and the model's own."""
        if self.difference is None:
            self.difference = self.seen.check()
        return self.difference


@dataclass(eq=False)
class KeptLook(Look):
    """Maps that a run kept of a probe, at one step."""

    maps: dict[str, list[np.ndarray]]  # by role, of each layer (H, T, S)
    roles: dict[str, Layers]
    id: str = ""

    def __post_init__(self) -> None:
        self.size = sum(each.nbytes for layers in self.maps.values() for each in layers)

    def heads(self, role: str, layer: int, wanted: Iterable[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for found in (self.maps[role][layer][head] for head in wanted):
            yield np.nan_to_num(found), ~np.isnan(found)


class Looks:
    """The looks that were asked for last."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self.most, self.lock = most, threading.Lock()
        self.looks: OrderedDict[str, SeenLook] = OrderedDict()

    def keep(self, look: SeenLook) -> None:
        with self.lock:
            self.looks[look.id] = look
            while len(self.looks) > 1 and sum(each.size for each in self.looks.values()) > self.most:
                self.looks.popitem(last=False)

    def find(self, name: str) -> SeenLook:
        with self.lock:
            look = self.looks.get(name)
            if look is None:
                raise Refusal(404, "there is no such look", "ask for it again: only the last ones are kept")
            self.looks.move_to_end(name)
            return look


MASKED = 255


def as_bytes(weights: np.ndarray) -> tuple[bytes, float, bool]:
    """Weights (T, S) as one byte each, row by row; the weight that the last byte means; and whether any is masked."""
    masked = np.isnan(weights)
    last = MASKED - 1 if masked.any() else MASKED
    peak = 0.0 if masked.all() else float(np.nanmax(weights))
    scaled = np.rint(np.clip(np.nan_to_num(weights) * (last / peak if peak > 0 else 0.0), 0, last))
    return np.where(masked, MASKED, scaled).astype(np.uint8).tobytes(), peak, bool(masked.any())


def _bytes_of(call: AttentionCall) -> int:
    kept = [call.q, call.k, call.v, call.out, call.bias, call.reported]
    return sum(each.numel() * each.element_size() for each in kept if isinstance(each, torch.Tensor))
