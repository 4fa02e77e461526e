"""What laid-out steppers keep between two steps: a slot for each token that was read, in rows of sources that come and go.

Caches are never copied when hypotheses branch. Each token that was read has a slot, in which every layer keeps its key
and value; the hypotheses of a source stand side by side as queries of one attention over all slots of that source, and
`visible` says which slots each one sees. Branching reorders `visible` alone. Slots that no hypothesis sees any more are
given up from time to time: of a beam most tokens are soon shared, so that a source has few more slots than tokens.

Each source has its own number of tokens read. One that leaves is overwritten by the one in the last row; one that comes
is put behind, into buffers that have room for it. What is not visible is finite all the same: no source can harm another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.models.fast.layer import Workspace
from regard.native.logits import Digest

FIRST = 96  # slots of a source that buffers begin with; pages that nobody filled are not there (`zeros`), and nothing is moved
ROOM = 32  # slots: buffers grow by a multiple of it
CROWDED = 1.5  # times as many slots as the last time some were given up: look again
FULL = 1.15  # times as many slots as are seen: enough to give some up before buffers grow (9 MB more: 4 ms)
GROWTH = 3  # halves of the room that a full buffer gets
GROWN = 16  # positions of a memory: buffers have a multiple of it
MANY, TIMES = (
    64,
    4,
)  # sources that buffers have room for once others come, and how many times as many when these are there


@dataclass
class Slots:
    """Between two steps: B sources with W hypotheses each, in rows of buffers that have an order of their own."""

    past: Tensor  # (L, 2, B or more, G, room, E) keys and values of the slots; 0 where none was filled
    visible: Tensor  # (B, W, room) 0 where a hypothesis sees a slot, else -inf
    read: Tensor  # (B,) tokens that each source has read: the position of the next
    memory: Tensor | None = (
        None  # (L, 2, B or more, H, S or more, E) keys and values of what the sources gave to look at
    )
    reach: int = 0  # S: positions of the memory that are looked at
    padding: Tensor | None = None  # (B, 1, 1, S) 0 where a source has a token there, else -inf; None: everywhere
    at: Tensor | None = None  # (B, room) the position of the token in each slot; None: no layer needs to know
    longest: int = 0  # the greatest number of tokens read
    filled: int = 0  # slots
    deepest: int = 0  # the most that were filled since the buffers are there: behind them nobody wrote
    few: int = ROOM // 2  # slots that cost so little that none need be given up
    crowded: int = ROOM // 2  # slots from which on it may pay to give some up
    place: Tensor | None = None  # (B,) the row of each source; None: they stand in order
    order: Tensor | None = None  # (B,) the source in each row
    logits: Tensor | None = None  # (B * W or more, V) those of the last step, where they are many
    digest: Digest | None = None  # of the logits of the last step
    call: Any = None  # of the kernels, as the last step made it (`native.Call`)
    work: Workspace | None = None  # where the last step computed; None: shapes or buffers are others since

    def __len__(self) -> int:
        """Sources."""
        return len(self.read)

    def in_rows(self, of_sources: Tensor) -> Tensor:
        """Numbers of sources, (B, ...), in the order of the rows."""
        return of_sources if self.order is None else of_sources[self.order]

    def of_sources(self, in_rows: Tensor) -> Tensor:
        """Numbers in rows, (B, ...), in the order of the sources."""
        return in_rows if self.place is None else in_rows[self.place]


def reordered(state: Slots, parents: Tensor) -> Slots:
    """New hypotheses from old ones: `parents` (B, W') index into W. Nothing but what they see is copied."""
    parents = state.in_rows(parents)
    if parents.size(1) == state.visible.size(1) and parents.device.type == "cpu":  # NumPy takes a third of torch's time
        seen, chosen = state.visible.numpy(), parents.numpy()
        seen[...] = seen[np.arange(len(chosen))[:, None], chosen]  # (B, W, room)
        return state if state.filled < state.crowded else without_unseen(state)
    each = torch.arange(len(parents), device=parents.device)[:, None]
    visible = state.visible[each, parents]  # (B, W', room)
    if visible.shape == state.visible.shape:
        state.visible.copy_(visible)
    else:
        state = replace(state, visible=visible, work=None)
    return state if state.filled < state.crowded else without_unseen(state)


def kept(state: Slots, rows: Tensor) -> Slots:
    """Only the sources `rows`, in this order. Rows that they leave empty are filled from behind; no others are copied."""
    place, count = rows if state.place is None else state.place[rows], len(rows)
    behind = place >= count
    if bool(behind.any()):
        empty = torch.ones(count, dtype=torch.bool, device=rows.device)
        empty[place[~behind]] = False
        _move(state, place[behind], (target := empty.nonzero()[:, 0]))
        place = place.masked_scatter(behind, target)
    state = replace(
        state,
        visible=state.visible[:count],
        read=state.read[:count],
        padding=None if state.padding is None else state.padding[:count],
        at=None if state.at is None else state.at[:count],
        longest=int(state.read[:count].max()),
        place=place,
        order=place.argsort(),
        work=None,
    )
    return state if state.filled < state.crowded else without_unseen(state)


def _move(state: Slots, source: Tensor, target: Tensor) -> None:
    """Copy rows of every buffer, of slots those that are filled."""
    past = state.past[..., : state.filled, :]
    by_row = ((0, state.padding), (0, state.visible), (0, state.read), (0, state.at))
    for dimension, buffer in ((2, state.memory), (2, past), *by_row):
        if buffer is not None:
            buffer.index_copy_(dimension, target, buffer.index_select(dimension, source))


def with_room(state: Slots, more: int) -> Slots:
    """The state, with room for so many more slots."""
    room = state.past.size(4)
    if state.filled + more > room:
        state = without_unseen(state, FULL)
    if (needed := state.filled + more) <= room:
        return state
    room = -(-max(needed, GROWTH * room // 2) // ROOM) * ROOM
    past = _grown(state.past, state.past.size(2), room, state.past.size(2), state.filled)
    at = None if state.at is None else torch.nn.functional.pad(state.at, (0, room - state.at.size(1)))
    return replace(state, past=past, visible=_widened(state.visible, room), at=at, work=None)


def _grown(buffer: Tensor, rows: int, room: int, filled_rows: int, filled: int) -> Tensor:
    """A larger (L, 2, rows, G, room, E) with what is filled of a smaller one, and 0 elsewhere."""
    layers, two, _, groups, _, width = buffer.shape
    larger = zeros((layers, two, rows, groups, room, width), buffer)
    larger[:, :, :filled_rows, :, :filled] = buffer[:, :, :filled_rows, :, :filled]
    return larger


def zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """As `new_zeros`. NumPy asks for pages that are empty, torch writes zeros (17 MB: 7 ms)."""
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(shape, np.float32 if like.dtype == torch.float32 else np.float64))


def _widened(bias: Tensor, room: int) -> Tensor:
    """More places in the last dimension, which nobody sees."""
    return torch.nn.functional.pad(bias, (0, room - bias.size(-1)), value=-math.inf)


def without_unseen(state: Slots, worthwhile: float = CROWDED) -> Slots:
    """Give up the slots that no hypothesis sees: the others move to the front, as many as the fullest source has.

    `worthwhile` is how many times as many must be filled.
    """
    filled, (layers, _, _, groups, room, width) = state.filled, state.past.shape
    seen = state.visible[..., :filled].amax(dim=1) == 0  # (B, slots)
    left = int(seen.sum(dim=1).max())
    crowded = max(state.few, int(CROWDED * left))
    if filled < max(ROOM // 2, int(worthwhile * left)):
        return replace(state, crowded=crowded)
    slots = seen.byte().argsort(dim=1, descending=True, stable=True)[:, :left]  # (B, left)
    rows = len(slots)
    first = torch.arange(rows * groups, device=slots.device).view(rows, groups, 1) * room  # (B, G, 1)
    of_all_rows = state.past.view(2 * layers, -1, width)  # (2 L, B * G * room, E)
    chosen = of_all_rows.index_select(1, (first + slots[:, None]).flatten())  # (2 L, B * G * left, E)
    state.past[:, :, :rows, :, :left] = chosen.view(layers, 2, rows, groups, left, width)
    state.past[:, :, :rows, :, left:filled] = 0.0
    visible = state.visible.gather(2, slots[:, None].expand(-1, state.visible.size(1), -1))  # (B, W, left)
    state.visible.fill_(-math.inf)[..., :left] = visible
    if state.at is not None:
        state.at[:, :left] = state.at.gather(1, slots)
    return replace(state, filled=left, deepest=max(state.deepest, filled), crowded=crowded)


def joined(state: Slots, other: Slots) -> Slots:
    """The sources of both, the other's behind, each with as many hypotheses. Only the other's are copied, if there is room."""
    rows, more, filled = len(state), len(other), max(state.filled, other.filled)
    room, deepest = max(state.past.size(4), -(-filled // ROOM) * ROOM), max(state.deepest, filled)
    if room > state.past.size(4) or rows + more > state.past.size(2):
        past = _grown(state.past, _capacity(state.past.size(2), rows + more), room, rows, state.filled)
        deepest = filled
    else:
        past = state.past
        past[:, :, rows : rows + more, :, :deepest] = 0.0
    past[:, :, rows : rows + more, :, : other.filled] = other.past[:, :, :more, :, : other.filled]
    memory, reach, padding = _joined_memories(state, other)
    both = (_widened(state.visible, room), _widened(other.visible[..., :room], room))
    place, order = _joined_places(state, other)
    found = replace(
        state,
        past=past,
        visible=torch.cat(both),
        read=torch.cat([state.read, other.read]),
        memory=memory,
        reach=reach,
        padding=padding,
        at=None if state.at is None or other.at is None else _joined_positions(state.at, other.at, room),
        longest=max(state.longest, other.longest),
        filled=filled,
        deepest=deepest,
        place=place,
        order=order,
        work=None,
    )
    return found if filled < state.crowded else without_unseen(found)


def _capacity(rows: int, needed: int) -> int:
    """Rows for buffers that have `rows` and need more: pages that nobody fills are not there, and copies are dear."""
    return rows if needed <= rows else max(MANY, TIMES * needed)


def _joined_places(state: Slots, other: Slots) -> tuple[Tensor | None, Tensor | None]:
    if state.place is None and other.place is None:
        return None, None
    device = state.read.device
    own = torch.arange(len(state), device=device) if state.place is None else state.place
    theirs = torch.arange(len(other), device=device) if other.place is None else other.place
    place = torch.cat([own, len(state) + theirs])
    return place, place.argsort()


def _joined_positions(own: Tensor, theirs: Tensor, room: int) -> Tensor:
    return torch.cat(
        [torch.nn.functional.pad(each[:, :room], (0, max(0, room - each.size(1)))) for each in (own, theirs)]
    )


def _joined_memories(state: Slots, other: Slots) -> tuple[Tensor | None, int, Tensor | None]:
    """The memories of both, how far the longest of those who are there reaches, and where they are padding."""
    if state.memory is None or other.memory is None:
        return None, 0, None
    rows, more = len(state), len(other)
    own, theirs = _memory_bias(state), _memory_bias(other)  # (B, 1, 1, S)
    reach, memory = max(_used(own), other.reach), state.memory
    if rows + more > memory.size(2) or reach > memory.size(4):
        capacity, length = _capacity(memory.size(2), rows + more), memory.size(4)
        if reach > length:  # longer ones will come
            length = -(-3 * reach // (2 * GROWN)) * GROWN
        memory = _grown(memory, capacity, length, rows, min(reach, state.reach))
    else:
        memory[:, :, rows : rows + more] = 0.0
    memory[:, :, rows : rows + more, :, : other.reach] = other.memory[:, :, :more, :, : other.reach]
    padding = torch.cat([_widened(own[..., :reach], reach), _widened(theirs, reach)])
    return memory, reach, padding if bool((padding < 0).any()) else None


def _memory_bias(state: Slots) -> Tensor:
    """0 or -inf, added to scores of the memory, (B, 1, 1, S), also where there is no padding."""
    return state.past.new_zeros(len(state), 1, 1, state.reach) if state.padding is None else state.padding


def _used(bias: Tensor) -> int:
    """How far the longest memory reaches."""
    return int((bias == 0).any(dim=0).flatten().nonzero().max()) + 1
