"""The state of the channel: who records, what is changed and which inputs run, in this thread; how many blocks are open.

Where none is open an attention asks nothing more: `blocks` is the one comparison that the channel costs when it is off.

Whoever sorts or cuts what a person gave into batches says which input each row is (`reading`), and a search which
hypotheses of which input go on (`searching`), so that a recording can tell, whatever became of the order.

Modules of other people report nothing by themselves. What watches them stands above the recorder and the changes
(`foreign/`), so it is not imported here: the package puts it into `watchers`, and it is asked whenever a block opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch import Tensor, nn

from regard.plugins import imported

if TYPE_CHECKING:
    from regard.attention.changes import Intervention
    from regard.attention.seen import Seen

Tokens = Mapping[str, Sequence[str]]  # what an input's tokens read as, by axis: source, target, prefix, text
Spell = Callable[[Sequence[int]], Sequence[str]]  # ids -> what each reads as


@dataclass(frozen=True, eq=False)
class InputRow:
    """Which input a row of a batch is, counted from 0 as a person gave them, and its tokens, spelled when asked for."""

    text: int
    tokens: Callable[[], Tokens] = dict
    start: int = 0  # of the row's first token in its input, where a long one is read in windows


@dataclass(frozen=True, eq=False)
class Inputs:
    """Which inputs a forward pass reads. In a search also which hypotheses: W for each of B sources, one after another."""

    seen: Seen  # whose recording this is for
    rows: tuple[InputRow, ...]  # (B,)
    spell: Spell | None = None  # what is written
    hypotheses: tuple[InputRow, ...] = ()  # (B * W,)

    def of(self, count: int) -> tuple[InputRow, ...] | None:
        """Which input each of `count` rows of an attention is; None if they cannot be told apart by their number."""
        known = next((each for each in (self.hypotheses, self.rows) if len(each) == count), None)
        if known is not None or not self.rows or count % len(self.rows):
            return known
        return tuple(row for row in self.rows for _ in range(count // len(self.rows)))  # several windows of each


recorder: ContextVar[Seen | None] = ContextVar("recorder", default=None)
interventions: ContextVar[tuple[Intervention, ...]] = ContextVar("interventions", default=())
inputs: ContextVar[Inputs | None] = ContextVar("inputs", default=None)

blocks = 0  # of `record` and `intervene` that are open, in all threads
_lock = Lock()


@contextmanager
def block() -> Iterator[None]:
    """Inside, attentions ask who records and what is changed."""
    global blocks
    with _lock:
        blocks += 1
    try:
        yield
    finally:
        with _lock:
            blocks -= 1


class Watched(Protocol):
    """A module that is watched while a block is open, because it may not report its attentions by itself."""

    def why_nothing(self) -> str:
        """Say why nothing was seen of the module, as far as that can be told."""
        ...


Watcher = Callable[[nn.Module], AbstractContextManager[Watched] | None]

# Each is asked for every module that is recorded or changed; None: no need to watch it. "module:name" is imported then.
watchers: list[Watcher | str] = []


@contextmanager
def watching(module: nn.Module) -> Iterator[Watched | None]:
    """Inside this block, the module is watched by the first watcher that wants to; None if none does."""
    wanted = (imported(watcher)(module) for watcher in watchers)
    with next((each for each in wanted if each is not None), nullcontext()) as watched:
        yield watched


def named_inputs(seen: Seen) -> Inputs | None:
    """The inputs that someone named for this recording (not for one around it)."""
    found = inputs.get()
    return found if found is not None and found.seen is seen else None


def reading(
    texts: Sequence[int],
    tokens: Callable[[int], Tokens] | None = None,
    *,
    spell: Spell | None = None,
    starts: Sequence[int] | None = None,
) -> AbstractContextManager[None]:
    """Inside this block, row i of each forward pass is input `texts[i]` of those that a person gave.

    tokens  of row i, by axis; called only when someone asks for labels
    spell   what ids that a search writes read as
    starts  of each row in its input, where one is read in windows
    """
    seen = _now()
    if seen is None:
        return nullcontext()
    rows = tuple(
        InputRow(int(text), dict if tokens is None else partial(tokens, row), starts[row] if starts else 0)
        for row, text in enumerate(texts)
    )
    return _naming(Inputs(seen, rows, spell))


def searching(sources: np.ndarray, ids: np.ndarray, prefix: Tensor) -> AbstractContextManager[None]:
    """Inside this block, a step reads hypotheses: `ids` (B, W, T) behind the prefixes of those `sources` (B,) that go on.

    `prefix` (N, P) is of all sources that the search began with, whose inputs were named, or are as they stand.
    """
    seen = _now()
    if seen is None:
        return nullcontext()
    begun = named_inputs(seen) or Inputs(seen, tuple(InputRow(row) for row in range(len(prefix))))
    rows = [begun.rows[source] for source in sources.tolist()]
    read = [
        [[*prefix[n].tolist(), *each] for each in several] for n, several in zip(sources, ids.tolist(), strict=True)
    ]
    of_each = tuple(
        replace(row, tokens=partial(_spelled, row, begun.spell, several, which))
        for row, several in zip(rows, read, strict=True)
        for which in range(len(several))
    )
    width = len(of_each) // max(1, len(rows))
    return _naming(replace(begun, rows=of_each[::width], hypotheses=of_each))


def _spelled(row: InputRow, spell: Spell | None, several: list[list[int]], which: int) -> Tokens:
    """The tokens of one hypothesis among several, and of each of them the last."""
    if spell is None:
        return row.tokens()
    written = spell(several[which])
    known = row.tokens()
    text = [*known.get("before", ()), *written]  # in one sequence with a source, that stands before
    return {**known, "prefix": written, "text": text, "hypotheses": [spell(each)[-1] for each in several]}


def _now() -> Seen | None:
    seen = recorder.get() if blocks else None
    return None if seen is None or seen.over else seen


@contextmanager
def _naming(these: Inputs) -> Iterator[None]:
    before = inputs.set(these)
    try:
        yield
    finally:
        inputs.reset(before)
