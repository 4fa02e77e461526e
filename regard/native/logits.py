"""What a search asks of logits, by the kernels: their norms, and the best of them (`choice.c`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.native.compiled import Kernels, kernels
from regard.native.threads import on_threads, shares_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ATTRIBUTE = "digest"  # of a tensor of logits that was given with its digest


def kernels_for(like: Tensor) -> Kernels | None:
    """The kernels for numbers like these, if there are any."""
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return None
    return kernels("float" if like.dtype == torch.float32 else "double")


class Digest:
    """Of logits (N, V): bounds of each panel of some, from above whatever filters forbid, and their norms once asked for."""

    def __init__(self, library: Kernels, logits: Tensor) -> None:
        rows, count = logits.shape
        self.library, self.logits = library, logits
        self.bounds = logits.new_empty(rows, -(-count // library.regard_panel()))  # (N, panels)
        self._norms: Floats | None = None
        self.asked = False  # for norms

    def write(self, output: Any, x: Tensor, norms: bool) -> None:
        """Compute the logits of vectors x (N, D) by the fields of an output layer, with what is kept of them."""
        sums, place = self._places(norms)
        x = x.contiguous()

        def rows(begin: int, end: int) -> None:
            logits, bounds = self.logits[begin:end].data_ptr(), self.bounds[begin:end].data_ptr()
            there = _at(None, None) if sums is None or place is None else _at(sums[begin:end], place[begin:end])
            self.library.regard_output(output, x[begin:end].data_ptr(), end - begin, logits, bounds, *there)

        on_threads([partial(rows, *share) for share in shares_of(len(x))])

    def read(self, norms: bool) -> None:
        """Go through logits that are there."""
        sums, place = self._places(norms)
        rows, count = self.logits.shape
        self.library.regard_digest(self.logits.data_ptr(), rows, count, self.bounds.data_ptr(), *_at(sums, place))

    @property
    def norms(self) -> Floats:
        """The log-sum-exp of each row (N,), of logits before any filter."""
        if self._norms is None:
            self.read(True)
            assert self._norms is not None
        self.asked = True
        return self._norms

    def best(self, offsets: Floats, k: int) -> tuple[Floats, Ints]:
        """The k greatest logits of each source + offsets (B, W), and where in (W * V): each (B, k), of equals the first."""
        offsets = np.ascontiguousarray(offsets)
        sources, width = offsets.shape
        values, places = np.empty((sources, k)), np.empty((sources, k), np.int64)
        self.library.regard_best(
            self.logits.data_ptr(), self.bounds.data_ptr(), offsets.ctypes.data, sources, width, self.logits.size(1), k,
            values.ctypes.data, places.ctypes.data,
        )  # fmt: skip
        return values, places

    def greatest(self) -> Ints | None:
        """Where the greatest logit of each row stands (N,), of equals the first; None where any is no number."""
        rows, count = self.logits.shape
        places = np.empty(rows, np.int64)
        known = self.library.regard_greatest(
            self.logits.data_ptr(), self.bounds.data_ptr(), rows, count, places.ctypes.data
        )
        return places if known else None

    def _places(self, norms: bool) -> tuple[Tensor | None, Floats | None]:
        if not norms:
            return None, None
        rows = len(self.logits)
        self._norms = np.empty(rows)
        return self.logits.new_empty(rows, self.library.regard_output_scratch(1)), self._norms


def _at(sums: Tensor | None, norms: Floats | None) -> tuple[int | None, int | None]:
    return (None, None) if sums is None or norms is None else (sums.data_ptr(), norms.ctypes.data)


def with_digest(logits: Tensor, digest: Digest) -> Tensor:
    """The logits, with what was computed along with them."""
    setattr(logits, ATTRIBUTE, digest)
    return logits


def digest_of(logits: Tensor) -> Digest | None:
    """What was computed along with logits (..., V), into which only -inf was written since."""
    found: Digest | None = getattr(logits, ATTRIBUTE, None)
    return found


def made_digest(logits: Tensor, norms: bool) -> Digest | None:
    """The digest of logits (..., V), made now where they come without; None without kernels."""
    found = digest_of(logits)
    if found is None and logits.is_contiguous() and (library := kernels_for(logits)) is not None:
        found = Digest(library, logits.view(-1, logits.size(-1)))
        found.read(norms)
    return found
