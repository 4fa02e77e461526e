"""Gated PixelCNN (van den Oord et al. 2016, "Conditional image generation with PixelCNN decoders").

Two stacks of convolutions see together all pixels above and to the left of the next one, and none else, so that nothing needs
a mask and there is no blind spot (section 2.2, figure 2). The vertical one begins with the picture moved down by a row, the
horizontal one with the picture moved right by a pixel; h is the label, one-hot (section 2.3, eq. 4):

    vertical    a = W ∗ v + V h,                v ← tanh(a₁) ⊙ σ(a₂)                W sees k / 2 rows, k columns
    horizontal  b = U ∗ x + N a + M h,          x ← x + R (tanh(b₁) ⊙ σ(b₂))        U sees k / 2 pixels, to the left

Also a stepper of decoding: a row's vertical stack is computed once, when the row above is whole, from the last rows of each
layer; a pixel then costs the horizontal stack at one place (Ramachandran et al. 2017, "Fast generation for convolutional
autoregressive models").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from regard.models.configs.pixels import BEFORE, PixelCNNConfig
from regard.models.encoder_decoder import rows_of_parents, rows_of_sources
from regard.models.language import LanguageModel
from regard.models.pixels import PixelEmbedding, as_sequence
from regard.noise import dropout


class Taps(nn.Module):
    """A convolution over the place itself, rows above it, places to its left and to its right: a matrix over all of them.

    x (B, H, W, inputs) -> (B, H, W, outputs); outside the picture are zeros.
    """

    def __init__(self, inputs: int, outputs: int, *, above: int = 0, left: int = 0, right: int = 0) -> None:
        super().__init__()
        self.above, self.left, self.right = above, left, right
        self.taps = nn.Linear((1 + above) * (1 + left + right) * inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(pad(x, (0, 0, 0, 0, self.above, 0)))

    def inside(self, x: Tensor) -> Tensor:
        """The rows that have `above` others before them: (B, above + H, W, inputs) -> (B, H, W, outputs)."""
        x = pad(x, (0, 0, self.left, self.right)).permute(0, 3, 1, 2)  # its channels stay last in memory
        weight = self.taps.weight.unflatten(1, (1 + self.above, 1 + self.left + self.right, -1)).permute(0, 3, 1, 2)
        return conv2d(x, weight, self.taps.bias).permute(0, 2, 3, 1)

    def newest(self, line: Tensor) -> Tensor:
        """The newest place of a row of which the places (N, n, inputs) are there, alone: (N, outputs)."""
        seen = line[:, -1 - self.left :]
        return self.taps(pad(seen, (0, 0, 1 + self.left - seen.size(1), 0)).flatten(1))


class GatedLayer(nn.Module):
    """One layer of both stacks: v and x (B, H, W, inputs) -> (B, H, W, channels). The first has no residual (figure 2)."""

    def __init__(self, inputs: int, channels: int, kernel: int, labels: int, *, first: bool) -> None:
        super().__init__()
        half, self.residual, self.inputs = kernel // 2, not first, inputs
        self.vertical = Taps(inputs, 2 * channels, above=half, left=half, right=half)
        self.down = Taps(2 * channels, 2 * channels)
        self.horizontal = Taps(inputs, 2 * channels, left=half)
        self.leave = Taps(channels, channels)
        self.labels = nn.Embedding(labels, 4 * channels) if labels > 1 else None  # V h beside M h; the first: none

    def forward(self, v: Tensor, x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        below, added = self.rows(self.vertical(v), labels)
        return below, self.to_the_left(x, self.horizontal(x), added)

    def rows(self, a: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The vertical stack behind its convolution, (B, H, W, 2C): what goes on, and what it adds to the horizontal one."""
        if labels is None or self.labels is None:
            return gated(a), self.down(a)
        to_rows, to_left = self.labels(labels)[:, None, None].chunk(2, dim=-1)
        a = a + to_rows
        return gated(a), self.down(a) + to_left

    def to_the_left(self, x: Tensor, seen: Tensor, added: Tensor) -> Tensor:
        """The horizontal stack behind its convolution: (..., 2C) -> (..., C)."""
        out = self.leave.taps(gated(seen + added)) if x.dim() == 2 else self.leave(gated(seen + added))
        return x + out if self.residual else out


def gated(x: Tensor) -> Tensor:
    """tanh(a) ⊙ σ(b) of the two halves a and b of each vector; tanh(a) = 2 σ(2a) - 1, which torch computes faster."""
    kept, gate = x.chunk(2, dim=-1)
    share = gate.sigmoid()
    return torch.addcmul(-share, (2 * kept).sigmoid(), share, value=2)


@dataclass(frozen=True)
class PixelCNNState:
    """Between two steps: how many tokens were read, and of each layer what the next row and the next pixel need."""

    read: int
    labels: Tensor | None  # (N,)
    line: list[Tensor]  # the pixels of the row that is being written, embedded: each (N, inputs)
    above: list[Tensor]  # of each layer: its last rows of v, (N, above, W, inputs)
    added: list[Tensor]  # of each layer: what the rows above add to this one, (N, W, 2C)
    left: list[Tensor]  # of each layer: its last places of x, (N, left, inputs)
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> PixelCNNState:
        def chosen(parts: list[Tensor]) -> list[Tensor]:
            return [part.index_select(0, rows) for part in parts]

        labels = None if self.labels is None else self.labels.index_select(0, rows)
        line, above, added, left = map(chosen, (self.line, self.above, self.added, self.left))
        return replace(self, labels=labels, line=line, above=above, added=added, left=left)


class PixelCNN(LanguageModel):
    """`model(batch)` is the loss; `start` and `step` write."""

    config: PixelCNNConfig

    def __init__(self, config: PixelCNNConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__(config, vocabulary, smoothing)
        channels = config.channels
        self.pixels = PixelEmbedding(config, vocabulary, config.inputs)
        self.layers = nn.ModuleList(
            GatedLayer(
                channels if number else config.inputs,
                channels,
                config.kernel if number else config.first,
                self.pixels.labels,
                first=not number,
            )
            for number in range(config.layers)
        )
        self.between = nn.Linear(channels, config.width)
        self.output = nn.Linear(config.width, vocabulary, bias=False)
        for layer in self.gated_layers():
            if layer.labels is not None:
                nn.init.normal_(layer.labels.weight, std=0.1)

    def gated_layers(self) -> list[GatedLayer]:
        return [layer for layer in self.layers if isinstance(layer, GatedLayer)]

    def read(self, ids: Tensor) -> Tensor:
        grid, labels = self.pixels(ids)  # (B, H, W, inputs)
        v, x = pad(grid, (0, 0, 0, 0, 1, -1)), pad(grid, (0, 0, 1, -1))  # down by a row, right by a pixel
        for layer in self.gated_layers():
            v, x = layer(v, x, labels)
        return as_sequence(self._vectors(x), ids)  # (B, T, D)

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, PixelCNNState]:
        """Read the prefix (B, P), token by token; `source` is not used. Gives logits (B, 1, V) of what follows."""
        like, width, rows = self.output.weight, self.config.columns, len(prefix)
        layers = self.gated_layers()
        above = [like.new_zeros(rows, layer.vertical.above, width, layer.inputs) for layer in layers]
        labels = None if self.pixels.labels == 1 else prefix.new_zeros(rows)
        state = PixelCNNState(0, labels, [], above, [], [])
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: PixelCNNState) -> tuple[Tensor, PixelCNNState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V)."""
        tokens, read = ids.reshape(-1), state.read  # (N,)
        if read == 0:
            return self.output(self.output.weight.new_zeros(*ids.shape, self.config.width)), replace(state, read=1)
        place = read + 1 - BEFORE  # of the pixel that is predicted
        if read < BEFORE:
            state = replace(state, labels=self.pixels.label_numbers(tokens))
        else:
            pixel = self.pixels.table(tokens) + self.pixels.place(place - 1)  # (N, inputs)
            state = replace(state, line=[*state.line, pixel])
        if place % self.config.columns == 0:
            state = self._next_row(state, len(tokens))
        x = state.line[-1] if state.line else self.output.weight.new_zeros(len(tokens), self.config.inputs)
        left = []
        for layer, added, past in zip(self.gated_layers(), state.added, state.left, strict=True):
            seen = torch.cat([past, x[:, None]], dim=1)  # (N, left + 1, inputs)
            left.append(seen[:, 1:])
            taps = layer.horizontal.taps(seen.flatten(1))
            x = layer.to_the_left(x, taps, added[:, place % self.config.columns])
        return self.output(self._vectors(x).view(*ids.shape, -1)), replace(state, read=read + 1, left=left)

    def _next_row(self, state: PixelCNNState, count: int) -> PixelCNNState:
        """The vertical stack of the row that begins, from the row above it, which is whole."""
        width, like = self.config.columns, self.output.weight
        whole = len(state.line) == width
        v = torch.stack(state.line, dim=1)[:, None] if whole else like.new_zeros(count, 1, width, self.config.inputs)
        above, added, left = [], [], []
        for layer, past in zip(self.gated_layers(), state.above, strict=True):
            rows = torch.cat([past, v], dim=1)  # (N, above + 1, W, inputs)
            above.append(rows[:, 1:])
            v, more = layer.rows(layer.vertical.inside(rows), state.labels)
            added.append(more[:, 0])
            left.append(like.new_zeros(count, layer.horizontal.left, layer.inputs))
        return replace(state, line=[], above=above, added=added, left=left)

    def reorder(self, state: PixelCNNState, parents: Tensor) -> PixelCNNState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        chosen = state.select(rows_of_parents(parents, state.hypotheses))
        return replace(chosen, hypotheses=parents.size(1))

    def keep(self, state: PixelCNNState, rows: Tensor) -> PixelCNNState:
        """Only the sources `rows` go on."""
        return state.select(rows_of_sources(rows, state.hypotheses))

    def _vectors(self, x: Tensor) -> Tensor:
        """What predicts a pixel, of the horizontal stack: (..., C) -> (..., D)."""
        out = self.between(x.relu()).relu()
        return dropout(out, self.config.dropout) if self.training else out
