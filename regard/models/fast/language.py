"""A language model of GPT's line as a laid-out stepper: prompts of different lengths are read together, some tokens at a
time, then one token of each hypothesis (`stepper.py`). Reading is a step of many tokens that see those before them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.blocks import Block, FeedForward, GatedFeedForward
from regard.models.fast.slots import ROOM, Slots, with_room
from regard.models.fast.stepper import FastStepper, embeds_plainly
from regard.models.gpt import GPT

AT_ONCE, LEAST = 1024, 16  # tokens of prompts that are read at once, in all and of each


class FastLanguage(FastStepper):
    """GPT, GPT-2, GPT-3 or LLaMA as a search's `Stepper` (`regard.decode.stepper`)."""

    def __init__(self, model: GPT) -> None:
        super().__init__(list(model.blocks.each()), model.tokens, model.norm, model.output)
        self.longest = model.longest

    @classmethod
    def of(cls, model: nn.Module) -> FastLanguage | None:
        """Lay out a model; None where it has parts that are not known here."""
        if not isinstance(model, GPT) or not embeds_plainly(model.tokens):
            return None
        return cls(model) if all(_is_plain(block) for block in model.blocks.each()) else None

    def start(self, source: Tensor | None, prefix: Tensor) -> tuple[Tensor, Slots]:
        """Read prompts (B, P): logits (B, 1, V) of what follows each.

        `source` (B,) is how many tokens each prompt has, where they differ; what stands behind is not read.
        """
        rows, length = prefix.shape
        lengths = torch.full((rows,), length, device=prefix.device) if source is None else source.to(prefix.device)
        state, last = self.empty(rows), self.table.new_zeros(rows, self.table.size(1))  # (B, D)
        for some in prefix.split(max(LEAST, AT_ONCE // rows), dim=1):
            before, count = state.longest, some.size(1)
            x, state = self._read(some, lengths, state)  # (B, N, D)
            here = (lengths > before) & (lengths <= before + count)
            at = (lengths - 1 - before).clamp(0, count - 1)
            last = torch.where(here[:, None], x[torch.arange(rows, device=at.device), at], last)
        state.read, state.longest = lengths.clone(), int(lengths.max())
        return self.output(self.norm(last))[:, None], state

    def _read(self, ids: Tensor, lengths: Tensor, state: Slots) -> tuple[Tensor, Slots]:
        """The next tokens of each prompt (B, N) -> (B, N, D). What is behind the end of a prompt is seen by nobody later."""
        rows, count = ids.shape
        state = with_room(state, count)
        before, new = state.longest, slice(state.filled, state.filled + count)
        places = torch.arange(before, before + count, device=ids.device)[None]  # (1, N)
        visible = state.visible.expand(-1, count, -1).clone()  # (B, N, room)
        visible[..., new] = visible.new_full((count, count), -math.inf).triu_(1)
        work = self._workspace(state, count, visible)
        x = self._through(ids, places.expand(rows, -1), state, work)
        state.visible[:, 0, new] = visible.new_zeros(()).masked_fill(places >= lengths[:, None], -math.inf)
        state.longest, state.filled = before + count, state.filled + count
        return x.view(rows, count, -1), state

    def regroup(self, state: Slots, hypotheses: int) -> Slots:
        """Sources of one hypothesis each, N of them, as N / W sources of W, each with its own slots."""
        (layers, two, rows, groups, _, width), filled = state.past.shape, state.filled
        sources, wide = rows // hypotheses, hypotheses * filled
        past = state.past[..., :filled, :].view(layers, two, sources, hypotheses, groups, filled, width)
        room = -(-wide // ROOM) * ROOM
        wider = past.new_zeros(layers, two, sources, groups, room, width)
        wider[..., :wide, :] = past.transpose(3, 4).flatten(4, 5)
        visible = past.new_full((sources, hypotheses, room), -math.inf)
        own = state.visible[:, 0, :filled].view(sources, hypotheses, filled)
        for number in range(hypotheses):
            visible[:, number, number * filled : (number + 1) * filled] = own[:, number]
        at = None
        if state.at is not None:
            at = state.at.new_zeros(sources, room)
            at[:, :wide] = state.at[:, :filled].reshape(sources, wide)
        read = state.read.view(sources, hypotheses)[:, 0].clone()
        return replace(state, past=wider, visible=visible, read=read, at=at, filled=wide, work=None)


def _is_plain(block: Block) -> bool:
    known = isinstance(block.feed_forward, FeedForward | GatedFeedForward)
    heads = block.attention
    exact = isinstance(heads, MultiHead) and heads.kernel is None and heads.relative is None
    return known and exact and block.cross is None and block.around_attention.residual and block.places is None
