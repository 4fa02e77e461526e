"""Batches of graphs side by side, and features of nodes of which most numbers are zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.data.batch import ByRows, moved


@dataclass(frozen=True)
class SparseRows:
    """Rows of which most numbers are zero: those that are not, row by row."""

    columns: Tensor  # (M,)
    values: Tensor  # (M,)
    starts: Tensor  # (N,): where each row begins
    width: int

    def __len__(self) -> int:
        return len(self.starts)

    def with_values(self, values: Tensor) -> SparseRows:
        """The same places with other values."""
        found = replace(self, values=values)
        found.__dict__["by_column"] = self.by_column  # computed once
        return found

    @cached_property
    def by_column(self) -> tuple[Tensor, Tensor, Tensor]:
        """The values' order by column, their rows in this order (M,), and where each column begins (F,)."""
        columns, order = torch.sort(self.columns, stable=True)
        counts = torch.diff(self.starts, append=self.starts.new_tensor([len(self.columns)]))
        rows = torch.repeat_interleave(torch.arange(len(self), device=order.device), counts)
        return order, rows[order], torch.searchsorted(columns, torch.arange(self.width, device=order.device))

    def to(self, to: torch.device | str | torch.dtype) -> SparseRows:
        """The rows on another device, or their values in another precision."""
        if isinstance(to, torch.dtype):
            return replace(self, values=self.values.to(to))
        return SparseRows(self.columns.to(to), self.values.to(to), self.starts.to(to), self.width)


@dataclass(frozen=True)
class GraphBatch(ByRows):
    """Graphs side by side, as one in parts, and labels of some nodes or of the graphs."""

    features: Tensor | SparseRows  # (N, F)
    edges: Tensor  # (2, E): the node that is looked at, the node that looks; each also at itself
    graph_of: Tensor  # (N,): which graph a node is of
    graphs: int
    scored: Tensor  # (M,): nodes that labels are of, or the graphs
    labels: Tensor  # (M,)

    @property
    def nodes(self) -> int:
        return len(self.graph_of)

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        rows = len(self.labels)
        return {"loss": rows, "nll": rows, "correct": rows}

    def of(self, rows: Tensor) -> GraphBatch:
        """The same graphs, and only some of what is scored."""
        return replace(self, scored=self.scored[rows], labels=self.labels[rows])

    @property
    def examples(self) -> int:
        return len(self.scored)

    def part(self, first: int, end: int) -> GraphBatch:
        """The same graphs, whole, since nodes look at each other; only what is scored is cut."""
        return self.of(torch.arange(first, end))

    def place(self, first: int, end: int) -> None:
        return None

    def to(self, device: torch.device | str) -> GraphBatch:
        """The batch with its tensors on a device."""
        there, features = moved(self, device), self.features
        return there if there is self or isinstance(features, Tensor) else replace(there, features=features.to(device))
