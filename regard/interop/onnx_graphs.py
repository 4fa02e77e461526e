"""The computation of a model as plain modules that torch can trace into ONNX graphs: an encoder, and a step with its cache.

Products over the modules of a model, with positions and lengths as tensors: no recorder, no kernels, nothing that depends
on the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import MultiHead, Rotary
from regard.attention.attend import for_each_head
from regard.blocks import Block
from regard.embed import TokenEmbedding, sinusoid
from regard.models.config import GPTLineConfig, TransformerConfig
from regard.models.transformer import Transformer

LEAST = 1024  # positions that fixed tables have at least
Angles = tuple[Tensor, Tensor]  # cosines and sines
Memory = tuple[tuple[Tensor, ...], tuple[Tensor, ...], Tensor]  # keys and values of each block, and which are real


class Places(nn.Module):
    """The positions of one side of a model as tables: vectors to add to embeddings, or angles to turn heads by."""

    added: Tensor | None
    cosine: Tensor | None
    sine: Tensor | None

    def __init__(
        self, config: TransformerConfig | GPTLineConfig, embedding: TokenEmbedding, rotary: Rotary | None
    ) -> None:
        super().__init__()
        self.reach = config.longest or max(LEAST, config.max_length)
        added = {
            "sinusoidal": lambda: sinusoid(self.reach, config.width),
            "learned": lambda: next(embedding.positions.parameters()).detach(),
        }.get(config.positions)
        self.register_buffer("added", None if added is None else added().float())
        cosine, sine = (None, None) if rotary is None else rotary.tables(self.reach)
        self.register_buffer("cosine", None if cosine is None else cosine.float())
        self.register_buffer("sine", None if sine is None else sine.float())

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        return x if self.added is None else x + self.added[positions]  # (B, T, D)

    def angles(self, positions: Tensor) -> Angles | None:
        """Cosines and sines at positions (B, T), for all heads and blocks: (B, 1, T, E / 2) each."""
        if self.cosine is None or self.sine is None:
            return None
        return self.cosine[positions][:, None], self.sine[positions][:, None]


class EncoderGraph(nn.Module):
    """ids (B, S) and lengths (B,) -> the memory's keys and values for each block of the decoder, (L, B, H, S, E) each."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm = model.source, model.encoder, model.encoder_norm
        self.looks = nn.ModuleList(cast("MultiHead", block.cross) for block in model.decoder.each())
        first = cast("MultiHead", next(model.encoder.each()).attention)
        self.places = Places(cast("TransformerConfig", model.config), model.source, first.rotary)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(ids.size(1), device=ids.device)[None]  # (1, S)
        allowed = (positions < lengths[:, None])[:, None, None]  # (B, 1, 1, S)
        angles = self.places.angles(positions)
        x = self.places.add(_embedded(self.embedding, ids), positions)  # (B, S, D)
        for block in self.blocks.each():
            own = OwnPast(angles, allowed)
            x = block.around_attention(x, own.attention(block))
            x = block.around_feed_forward(x, block.feed_forward)
        x = self.norm(x)
        both = [cast("MultiHead", look).keys_values(x) for look in self.looks]
        return torch.stack([k for k, _ in both]), torch.stack([v for _, v in both])


class StepGraph(nn.Module):
    """The next tokens of each row, ids and positions (B, T), behind a past -> logits (B, T, V) and the longer past.

    The past is keys and values of every block, (L, B, G, P, E) each; P may be 0. A decoder is given a memory, too.
    """

    def __init__(self, model: Any, embedding: TokenEmbedding, blocks: Any, norm: nn.Module) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm, self.output = embedding, blocks, norm, model.output
        self.places = Places(model.config, embedding, cast("MultiHead", next(blocks.each()).attention).rotary)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
        memory_keys: Tensor | None = None,
        memory_values: Tensor | None = None,
        memory_lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = self.places.add(_embedded(self.embedding, ids), positions)  # (B, T, D)
        angles, causal = self.places.angles(positions), _causal(ids.size(1), past_keys.size(3), ids.device)
        memory: Memory | None = None
        if memory_keys is not None and memory_values is not None and memory_lengths is not None:
            inside = torch.arange(memory_keys.size(3), device=ids.device) < memory_lengths[:, None]  # (B, S)
            memory = memory_keys.unbind(), memory_values.unbind(), inside[:, None, None]
        pasts = []
        for number, block in enumerate(self.blocks.each()):
            own = OwnPast(angles, causal, past_keys[number], past_values[number])
            x = block.around_attention(x, own.attention(block))
            if memory is not None:
                x = _look(block, x, memory[0][number], memory[1][number], memory[2])
            x = block.around_feed_forward(x, block.feed_forward)
            pasts.append(own)
        keys, values = torch.stack([own.keys for own in pasts]), torch.stack([own.values for own in pasts])
        return self.output(self.norm(x)), keys, values


class OwnPast:
    """The keys and values (B, G, P, E) of one block, which grow as it attends; `allowed` are those that queries may see."""

    keys: Tensor
    values: Tensor

    def __init__(
        self, angles: Angles | None, allowed: Tensor, keys: Tensor | None = None, values: Tensor | None = None
    ) -> None:
        self.angles, self.allowed, self.past = (
            angles,
            allowed,
            None if keys is None or values is None else (keys, values),
        )

    def attention(self, block: Block) -> Callable[[Tensor], Tensor]:
        heads = cast("MultiHead", block.attention)

        def attend(y: Tensor) -> Tensor:
            q, (k, v) = heads.queries(y), heads.keys_values(y)
            if self.angles is not None:
                q, k = _turned(torch.cat([q, k], dim=1), self.angles).split([heads.heads, heads.groups], dim=1)
            if self.past is not None:
                k, v = torch.cat([self.past[0], k], dim=2), torch.cat([self.past[1], v], dim=2)
            self.keys, self.values = k, v
            return _seen(heads, q, k, v, self.allowed if not heads.band else self.allowed & self._near(heads.band))

        return attend

    def _near(self, band: int) -> Tensor:
        """Keys no farther back than the band (Child et al. 2019)."""
        queries, keys = self.allowed.shape[-2:]
        here = torch.arange(queries, device=self.allowed.device)[:, None] + keys - queries  # (T, 1)
        return torch.arange(keys, device=self.allowed.device) > here - band  # (T, P + T)


def _causal(new: int, past: int, device: torch.device) -> Tensor:
    """Whether a new token may see each key, of the past and of the new ones: (T, P + T)."""
    here = torch.arange(new, device=device)[:, None] + past  # (T, 1)
    return torch.arange(past + new, device=device) <= here


def _look(block: Block, x: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    """From the decoder to the memory (B, H, S, E)."""
    heads, around = cast("MultiHead", block.cross), cast("nn.Module", block.around_cross)
    found: Tensor = around(x, lambda y: _seen(heads, heads.queries(y), keys, values, allowed))
    return found


def _turned(x: Tensor, angles: Angles) -> Tensor:
    """Turn heads (B, H, T, E) (Su et al. 2021)."""
    (cosine, sine), (first, second) = angles, x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def _embedded(embedding: TokenEmbedding, ids: Tensor) -> Tensor:
    return embedding.table(ids) * embedding.scale  # (B, T, D)


def _seen(heads: MultiHead, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """softmax(q kᵀ · scale) v over the allowed keys, joined: (B, T, D) (Vaswani et al. 2017, eq. 1)."""
    scale = 1 / math.sqrt(heads.head_width) if heads.scale is None else heads.scale
    k, v = for_each_head(k, heads.heads), for_each_head(v, heads.heads)  # (B, H, S, E)
    scores = (q * scale) @ k.transpose(-2, -1)  # (B, H, T, S)
    return heads.join(scores.masked_fill(~allowed, -math.inf).softmax(dim=-1) @ v)
