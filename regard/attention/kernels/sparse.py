"""What the kernels of sparse patterns share: a pattern to read, short texts and maps by it, long texts by parts."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from regard.attention.attend import attend, attention_weights
from regard.attention.kernels.block_sparse import attend_parts
from regard.attention.kernels.kernel import Kernel
from regard.attention.kernels.layout import Layout
from regard.attention.masks import Dense, Lengths, Mask


class Sparse(Kernel):
    """softmax(q kᵀ / √E) v over the pairs of a pattern, which `pattern` says plainly and `layout` in parts."""

    @abstractmethod
    def pattern(self, queries: int, keys: int) -> Tensor:
        """True where a query may see a key: (T, S)."""

    @abstractmethod
    def layout(self, like: Tensor) -> Layout:
        """The same pairs in parts that products can compute."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        layout, places = self.layout(q), q.size(2)
        if places * places <= layout.pairs(places):
            return attend(q, k, v, mask=self._mask(places, places, lengths, q.device))
        return attend_parts(q, k, v, layout, lengths)

    def weights(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor:
        return attention_weights(q, k, mask=self._mask(q.size(2), k.size(2), lengths, q.device))

    def visible(self, queries: int, keys: int, lengths: Tensor | None, device: torch.device) -> Tensor:
        return self._mask(queries, keys, lengths, device).dense(queries, keys, device)

    def going_on(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What the last queries (N, H, T, E) see, where keys and values (N, H, S, E) begin before them."""
        before = k.size(2) - q.size(2)
        return self(torch.cat([q.new_zeros(*k.shape[:2], before, q.size(3)), q], dim=2), k, v)[:, :, before:]

    def _mask(self, queries: int, keys: int, lengths: Tensor | None, device: torch.device) -> Mask:
        mask = Dense(self.pattern(queries, keys).to(device))
        return mask if lengths is None else mask & Lengths(lengths)
